// Nodes with a finding for the remediation controller, for what pages when they
// are many and for what says that a node was sick before it was taken out.
function(config) {
  local node = '%s, %s' % [config.clusterLabel, config.nodeLabel],
  local g = (import 'gpu.libsonnet')(config),

  // elsewhere are alerts whose findings have a fleet alert of their own: FleetNodesFailing leaves them to it.
  elsewhere:: 'NodeUnreachable|NodeARPTableOverflow',

  // unreachable are the nodes that were to be rebooted, within a range, since nobody reached them: each for itself, which
  // a roll-out that shuts them out one by one is not. by are further labels that are kept.
  unreachable(range, offset='', by=[])::
    'max by (%s) (last_over_time(ALERTS{alertstate="firing", severity="%s", alertname="NodeUnreachable"}[%s]%s))' % [std.join(', ', [node] + by), config.severities.auto, range, if offset == '' then '' else ' offset ' + offset],

  // sick are the nodes on which an alert for the controller fires, but those of except, a regular expression; with a range and an offset, at that time; with together, also those
  // whose file systems went read-only together, of which there is no more than a ticket; by are further labels that are kept; with passed, a range, also those of an Xid within it; light, a regular expression, are actions that do not count.
  sick(except='', range='', offset='', together=false, by=[], passed='', light='')::
    local one(label) = 'max by (%(cl)s, %(l)s) (%(before)sALERTS{alertstate="firing", severity="%(auto)s", %(has)s!=""%(except)s%(light)s}%(at)s%(together)s%(passed)s)' % {
      cl: config.clusterLabel,
      l: std.join(', ', [label] + by),
      has: label,
      before: if range == '' then '' else 'last_over_time(',
      auto: config.severities.auto,
      except: if except == '' then '' else ', alertname!~"%s"' % except,
      at: if range == '' then '' else '[%s] offset %s)' % [range, offset],
      light: if light == '' then '' else ', action!~"%s"' % light,
      passed: if passed == '' then '' else ' or last_over_time(ALERTS{alertstate="firing", severity="%s", %s!="", alertname=~"GPUXid.+"%s}[%s])' % [config.severities.auto, label, self.light, passed],
      together: if together && label == config.nodeLabel then ' or %scluster_node:filesystem_readonly_together:bool%s' % [self.before, self.at] else '',
    };
    if config.dcgm.node == config.nodeLabel then one(config.nodeLabel)
    else 'max by (%s) (%s or %s)' % [std.join(', ', [node] + by), one(config.nodeLabel), g.onNode(one(config.dcgm.node))],
}
