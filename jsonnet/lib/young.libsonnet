// young gives the Nodes that were made within a duration. A name that comes back as another machine is a new Node: what was recorded of the name before is of the
// old machine. Where kube-state-metrics does not tell when Nodes were made there is none.
function(c, duration)
  local t = (import 'time.libsonnet')(c.timeScale);
  local number = import 'number.libsonnet';
  'max by (%s, %s) (kube_node_created{%s}) > time() - %s' % [c.clusterLabel, c.nodeLabel, c.selectors.ksm, number(t.s(duration))]
