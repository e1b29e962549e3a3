// One GPU's trouble: for the remediation controller where there is something to
// do without a person (auto), for working hours where there is not (warning).
// Nobody is woken for one GPU; FleetGPUUnhealthy, FleetGPUHot and
// FleetNodesFailing are what pages.
{
  local c = $._config,
  local a = (import '../lib/alert.libsonnet')(c),
  local t = (import '../lib/time.libsonnet')(c.timeScale),
  local g = (import '../lib/gpu.libsonnet')(c),
  local links = (import '../lib/links.libsonnet')(c),
  local th = c.thresholds.gpu,
  local d = c.dcgm,
  local cl = c.clusterLabel,

  local xids(classes) = std.join('|', ['%d' % x.xid for x in c.xid if std.member(classes, x.class)]),
  local known = std.join('|', ['%d' % x.xid for x in c.xid]),
  local anyXid = '[1-9][0-9]*',

  // counted is how often the exporter saw an Xid within its own window of five minutes; the series is there no longer than that.
  local counted(xids, except='') =
    if c.dcgm.xidSource == 'kernel' then
      |||
        label_replace(
          sum by (%(node)s, reason) (
            increase(problem_counter{%(npd)s, reason=~"Xid(%(xids)s)"%(except)s}[%(w)s]) > 0
          ),
          "xid", "$1", "reason", "Xid(.+)"
        )
      ||| % { node: g.byNode, npd: c.selectors.npd, xids: xids, except: if except == '' then '' else ', reason!~"Xid(%s)"' % except, w: t.d('10m') }
    else
      |||
        max by (%s) (
          %s
        ) > 0
      ||| % [g.byWith(['xid']), g.series('DCGM_EXP_XID_ERRORS_COUNT', 'xid=~"%s"%s' % [xids, if except == '' then '' else ', xid!~"%s"' % except])],

  // fresh is the last Xid of a GPU that had another one, or none, an hour ago. The gauge is kept for ever, so its being there says nothing.
  // The last lines: of a node whose exporter was away an hour ago, or whose rules did not run then, no Xid of then is known, and all old ones would look new. They are new where the node was
  // seen in this hour for minutes in which the Xid was not: a node that joined half an hour ago is one whose GPUs die young.
  local fresh(matcher) =
    |||
      gpu:xid_last:info{xid%(m)s}
      unless on (%(card)s)
      last_over_time(gpu:xid_last:info[%(gap)s] offset %(w)s)
      and (
        gpu:xid_last:info
        and on (%(cl)s, %(node)s)
        %(seen)s
        or
        gpu:xid_last:info
        and on (%(card)s)
        (
          count_over_time((group by (%(card)s) (gpu:xid_last:info))[%(w)s:%(minute)s])
          < on (%(cl)s, %(node)s) group_left ()
          %(looks)s
        )
      )
    ||| % {
      m: matcher,
      card: g.cardXid,
      gap: t.d('30m'),
      w: t.d('1h'),
      cl: cl,
      node: d.node,
      minute: t.d('1m'),
      seen: g.atDCGM('node:gpu_seen:count offset ' + t.d('1h')),
      looks: g.atDCGM('node:gpu_looks:count1h') + ' - 5',
    },

  // uncounted leaves out what the counted form has reported.
  local uncounted(expr) =
    if c.dcgm.xidSource == 'count' then
      |||
        %(expr)s
        unless on (%(by)s)
        group by (%(by)s) (last_over_time(%(x)s[%(w)s]))
      ||| % {
        expr: std.rstripChars(expr, '\n'),
        by: g.cardXid,
        x: g.series('DCGM_EXP_XID_ERRORS_COUNT', 'xid=~"%s"' % anyXid),
        w: t.d('90m'),
      }
    else expr,

  // either are those that the exporter counts, and those of its gauge that it does not.
  local either(counts, gauge) =
    local deep(expr) = std.strReplace(std.rstripChars(expr, '\n'), '\n', '\n  ');
    |||
      (
        %s
      )
      or
      (
        %s
      )
    ||| % [deep(counts), deep(gauge)],

  local which = 'GPU {{ $labels.%s }} ({{ $labels.%s }}, {{ $labels.%s }}) of node {{ $labels.%s }}' % [d.gpu, d.model, d.uuid, d.node],
  local onGPU = { dashboard: 'gpuNode', vars: { node: d.node, gpu: d.gpu } },
  local onNode = { dashboard: 'gpuNode', vars: { node: c.nodeLabel } },

  // unread leaves out the nodes of whose GPUs the recovery action is known; the label is the node's name in expr.
  local unread(expr, label) =
    |||
      %(expr)s
      unless on (%(cl)s, %(label)s)
      %(known)s
    ||| % {
      expr: std.rstripChars(expr, '\n'),
      cl: cl,
      label: label,
      local known = 'group by (%s, %s) (%s)' % [cl, d.node, g.recovery('>= 0 < 100')],
      known: if label == d.node then known else g.onNode(known),
    },

  // recovery are the GPUs whose driver wants a recovery.
  local recovery(compared, o) = a.alert('GPURecoveryAction', onGPU {
    expr: |||
      max by (%s) (
        %s
      )
    ||| % [g.by, std.join(' or ', [g.recovery(one) for one in compared])],
    hold: '2m',
    description: '%s of {{ $labels.%s }} %s' % [which, cl, o.wants],
  } + o),

  // lostLinks are the GPUs of Blackwell that lost a link: alone, or where those of several nodes of their NVLink domain did (of their cluster, where no domain is known), who are counted for longer: of a domain whose trays are serviced one after the other the last one is not alone.
  local lostLinks(op) =
    local lost(window) = std.rstripChars(g.risen(d.nvlink5.failed, window), '\n');
    local indented(expr, by) = std.strReplace(std.rstripChars(expr, '\n'), '\n', '\n' + std.repeat(' ', by));
    |||
      (
        %(lost)s
      )
      %(op)s on (%(cl)s, domain)
      (
        count by (%(cl)s, domain) (
          %(deeper)s
        )
        >= %(nodes)g
      )
    ||| % {
      op: op,
      cl: cl,
      lost: indented(links.located(lost('15m'), g.reading(d.nvlink5.failed) + ' > 0'), 2),
      deeper: indented(links.located('group by (%s, %s) (\n  %s\n)' % [cl, d.node, indented(lost('30m'), 2)], g.reading(d.nvlink5.failed) + ' > 0'), 4),
      nodes: th.nvlinkNodes,
    },

  local fatal(class, action, todo) = a.alert('GPUXidFatal', onGPU {
    expr: counted(xids([class])),
    severity: 'auto',
    labels: { class: class, action: action },
    summary: 'A GPU reported an Xid after which it must not be used.',
    description: '%s of {{ $labels.%s }} reported Xid {{ $labels.xid }}, {{ $value }} times in five minutes. %s' % [which, cl, todo],
  }),

  prometheusAlerts+:: {
    groups+: [
      // Each rule here is over every GPU of the fleet. The rules of a group are evaluated one after the other, groups beside each other; and what is read
      // here lasts for minutes, so that a look each minute misses nothing.
      {
        name: 'gpu.xid',
        interval: t.d('1m'),
        rules: [
          fatal('hard', 'drain-reset', 'Cordon, drain, reset the GPU.'),
          fatal('dead', 'drain-reboot', 'Cordon now; jobs on it are lost. Reboot, and send the GPU back if it stays.'),
          a.alert('GPUXidFatal', onGPU {
            // A minute, in which its peers of the same domain are seen too: no two exporters are scraped at once.
            expr: links.alone,
            hold: '1m',
            severity: 'auto',
            labels: { class: 'link', action: 'drain' },
            summary: 'A GPU reported an Xid after which it must not be used.',
            description: '%s of {{ $labels.%s }} had NVLink errors {{ $value }} times in a day. Once is a retry; twice slows down every job that spans its NVLink domain.' % [which, cl],
          }),
          a.alert('GPUXidFatal', onGPU {
            local told = std.join('|', ['%d' % x.xid for x in c.xid if std.get(x, 'ticket', false)]),
            expr: either(counted(told), uncounted(fresh('=~"%s"' % told))),
            severity: 'warning',
            labels: { class: 'soft' },
            summary: 'A GPU reported an Xid that somebody must look into.',
            description: '%s of {{ $labels.%s }} reported Xid {{ $labels.xid }}. No program does anything about it: look at its power, its bus and its firmware, and let the job end before it is reset.' % [which, cl],
          }),
          a.alert('GPUXidFatalLegacy', onGPU {
            // Not 154, which says nothing of what is wrong and hides the Xid that it came with.
            expr: uncounted(fresh('=~"%s"' % xids(['hard', 'dead']))),
            hold: '1m',
            severity: 'auto',
            labels: { action: 'drain' },
            summary: 'A GPU reported an Xid after which it must not be used, seen only in the gauge of the last Xid.',
            description: '%s of {{ $labels.%s }} reported Xid {{ $labels.xid }} within the last hour. The exporter does not count Xids (DCGM_EXP_XID_ERRORS_COUNT is off), so a second equal one would not be seen.' % [which, cl],
          }),
          a.alert('GPURecoveryAction', onGPU {
            // 154 comes with every change of the action, also to none, or to one that comes and goes in operation. Where the action is known what is wanted counts, and not that it changed.
            expr: |||
              (
                %(counted)s
              )
              or
              (
                %(gauge)s
              )
            ||| % {
              local deep(expr) = std.strReplace(std.rstripChars(expr, '\n'), '\n', '\n  '),
              counted: deep(unread(counted(xids(['action'])), if d.xidSource == 'kernel' then c.nodeLabel else d.node)),
              gauge: deep(unread(uncounted(fresh('=~"%s"' % xids(['action']))), d.node)),
            },
            hold: '1m',
            severity: 'warning',
            labels: { recovery: 'unread' },
            summary: 'The recovery action of a GPU has changed, and is not known.',
            description: '%s of {{ $labels.%s }} reported Xid {{ $labels.xid }}: the recovery that its driver wants has changed, perhaps to none. Read which in the kernel log (the number: R610 has other texts), or export %s (deploy/exporters). The Xid that came with it acts by itself; where the exporter does not count Xids it may be hidden.' % [which, cl, d.recovery[0]],
          }),
          a.alert('GPUXidUnknown', onGPU {
            expr: either(counted(anyXid, known), uncounted(fresh('!~"%s"' % known))),
            severity: 'info',
            summary: 'A GPU reported an Xid that is not in our table.',
            description: '%s of {{ $labels.%s }} reported Xid {{ $labels.xid }}. Until somebody classes it in lib/xid.libsonnet, let the job end and reset the GPU before the next one.' % [which, cl],
          }),
        ],
      },
      {
        name: 'gpu.broken',
        interval: t.d('1m'),
        rules: [
          a.alert('GPUUncorrectableECC', onGPU {
            // An hour's past is that of a pod that does not start. After a reboot the count begins anew.
            expr: g.risen('DCGM_FI_DEV_ECC_DBE_VOL_TOTAL', '15m', '1h'),
            severity: 'auto',
            labels: { action: 'drain-reset' },
            summary: 'A GPU had an uncorrectable memory error.',
            description: '%s of {{ $labels.%s }} has counted {{ $value }} uncorrectable memory errors since its driver was loaded, and more than 15 minutes ago. What ran on it is lost or wrong.' % [which, cl],
          }),
          a.alert('GPURowRemapFailure', onGPU {
            expr: g.isSet('DCGM_FI_DEV_ROW_REMAP_FAILURE'),
            hold: '1m',
            severity: 'auto',
            labels: { action: 'replace' },
            summary: 'A GPU has no spare memory rows left.',
            description: '%s of {{ $labels.%s }} could not remap a broken row. It does not heal: send it back.' % [which, cl],
          }),
          a.alert('GPURowRemapPending', onGPU {
            expr: g.isSet('DCGM_FI_DEV_ROW_REMAP_PENDING'),
            hold: '1m',
            severity: 'auto',
            labels: { action: 'reset-when-idle' },
            summary: 'A GPU waits for a reset to put a spare memory row in place.',
            description: '%s of {{ $labels.%s }} has a row to remap. Let the job end, then reset the GPU before it is given away again.' % [which, cl],
          }),
          // What the driver wants now, not that it changed (Xid 154), goes for each GPU by its value (dcgm_fields.h: 0 is none). What is from 100 on is none.
          recovery(['== 1'], {
            severity: 'auto',
            labels: { action: 'drain-reset' },
            summary: 'A GPU must be reset, its driver says.',
            wants: 'wants to be reset: its driver says so (recovery action {{ $value }}). Cordon, drain, reset the GPU.',
          }),
          a.alert('GPURecoveryAction', onNode {
            // All GPUs of a node have it together.
            expr: g.onNode(|||
              count by (%(cl)s, %(node)s) (
                group by (%(by)s) (
                  %(x)s
                )
              )
            ||| % { cl: cl, node: d.node, by: g.by, x: g.recovery('== 2') }),
            hold: '2m',
            severity: 'auto',
            labels: { action: 'drain-reboot' },
            summary: 'A node must be rebooted, the driver of its GPUs says.',
            description: 'Node {{ $labels.%s }} of {{ $labels.%s }} must be rebooted: the driver says so of {{ $value }} of its GPUs (recovery action 2). Cordon, drain, reboot.' % [c.nodeLabel, cl],
          }),
          recovery(['== 4'], {
            severity: 'auto',
            labels: { action: 'reset-when-idle' },
            summary: 'A GPU is to be reset when its jobs have ended, its driver says.',
            wants: 'is to get no new work, and to be reset when what runs has ended: its driver says so (recovery action {{ $value }}).',
          }),
          recovery(['== 3', '== 5'], {
            // They are set and cleared in operation, without a fault.
            hold: '30m',
            severity: 'warning',
            labels: { recovery: 'links' },
            summary: 'A GPU waits for the links to others for long.',
            wants: 'has wanted the recovery action {{ $value }} for half an hour: 3 is to drain what goes between GPUs (P2P), 5 to recover the IMEX domain. Both come and go in operation; one that stays needs somebody to look.',
          }),
          recovery(['> 5 < 100'], {
            // Nobody has said what a program should do about them.
            severity: 'warning',
            labels: { recovery: 'other' },
            summary: 'A GPU wants a recovery that no program does.',
            wants: 'wants the recovery action {{ $value }}: 6 is a reset of the bus, 7 a reboot of the system, what is above is new. Somebody must look at it before its node gets new jobs.',
          }),
          a.alert('GPUFellOffBus', onNode {
            // Cards that DCGM saw against those that it sees. What the node says it has is no measure: time slicing multiplies it, a change of MIG mode changes it, and
            // after a reboot the kubelet reports as many as are left. But DCGM that sees none of cards whose device plugin sees all is what has failed (GPUExporterMissing tells of it):
            // dcgm-exporter answers with an empty page where its host engine was started before the driver. Of cards that are given by claims nobody else tells how many there are,
            // and dcgm-exporter up to 4.5.2 leaves out those that are free once one of them is held (its issue 569): that one is lost is believed where an Xid 79 says so too.
            expr: |||
              node:gpu_devices:max
              - on (%(node)s)
              node:gpu_devices:count
              > 0
              unless on (%(node)s)
              (
                node:gpu_devices:count == 0
                and on (%(node)s)
                (
                  sum by (%(node)s) (
                    max by (%(node)s, resource) (last_over_time(kube_node_status_allocatable{%(of)s}[%(w)s]))
                  )
                  >= on (%(node)s)
                  sum by (%(node)s) (
                    max by (%(node)s, resource) (last_over_time(kube_node_status_capacity{%(of)s}[%(w)s]))
                  )
                  > 0
                )
                or on (%(node)s)
                node:gpu_by_claims:bool == 1
                unless on (%(node)s)
                (
                  %(fell)s
                )
              )
            ||| % {
              node: g.byNode,
              of: '%s, resource=~"%s|(%s|nvidia_com_mig)_.+"' % [c.selectors.ksm, c.gpu.resource, c.gpu.resource],
              w: t.d('1h'),
              // The GPU has fallen off the bus: by the exporter, or by the kernel log.
              local seen = {
                count: 'max_over_time(%s[%s]) > 0' % [g.series('DCGM_EXP_XID_ERRORS_COUNT', 'xid="79"'), t.d('1h')],
                gauge: 'last_over_time(gpu:xid_last:info{xid="79"}[%s])' % t.d('1h'),
              },
              fell: std.join('\n    or\n    ', [
                g.onNode('group by (%s, %s) (%s)' % [cl, d.node, seen[source]])
                for source in std.objectFields(seen)
                if source == d.xidSource
              ] + ['group by (%s) (increase(problem_counter{%s, reason="Xid79"}[%s]) > 0)' % [g.byNode, c.selectors.npd, t.d('1h')]]),
            },
            hold: '5m',
            severity: 'auto',
            labels: { action: 'drain-reboot' },
            summary: 'A GPU is gone from its node.',
            description: 'Node {{ $labels.%s }} of {{ $labels.%s }} has {{ $value }} GPUs fewer than it had. A GPU that falls off the bus reports nothing any more, so this is its only sign.' % [c.nodeLabel, cl],
          }),
          a.alert('GPUExporterMissing', onNode {
            // Its exporter may answer and see none of the cards that it saw; one that never saw any has cards without readings (guests with a part of a GPU).
            // A node that is down is counted by FleetNodesNotReady; one that somebody has taken out, or that has just come, may be without its driver. Of a cluster whose GPUs nobody has measured nothing is said: "What is scraped" of the dashboard of alerts tells of it.
            expr: |||
              (
                sum by (%(node)s) (
                  %(cards)s
                )
                > 0
              )
              unless on (%(node)s)
              (
                node:gpu_seen:count > 0
                or on (%(node)s)
                node:gpu_seen:count
                unless on (%(node)s)
                (node:gpu_devices:max > 0)
              )
              and on (%(node)s)
              (node:ready:max == 1)
              unless on (%(node)s)
              node:planned:bool
              and on (%(cl)s)
              (
                %(measured)s
              )
            ||| % { cl: cl, node: g.byNode, cards: std.strReplace(std.rstripChars(g.cardsAndSlices('node:gpu_capacity:max', 'capacity'), '\n'), '\n', '\n    '), measured: std.strReplace(std.rstripChars(g.measured, '\n'), '\n', '\n  ') },
            hold: '15m',
            severity: 'warning',
            summary: 'The GPUs of a node are not measured.',
            description: 'Nothing is known of the {{ $value | humanize }} GPUs of node {{ $labels.%s }} of {{ $labels.%s }}: dcgm-exporter does not answer there, or sees none. Treat the node as sick: none of the GPU alerts can see it.' % [c.nodeLabel, cl],
          }),
        ],
      },
      {
        name: 'gpu.heat',
        interval: t.d('1m'),
        rules: [
          a.alert('GPUHot', onGPU {
            expr: |||
              max by (%s) (
                %s > %g < %g
              )
            ||| % [g.by, g.series('DCGM_FI_DEV_GPU_TEMP'), th.hotCelsius, d.blank],
            hold: '5m',
            severity: 'warning',
            summary: 'A GPU is hot.',
            description: '%s of {{ $labels.%s }} is at {{ $value }} °C. It will slow down, and with it every GPU that waits for it.' % [which, cl],
          }),
          a.alert('GPUHot', onGPU {
            // The sensor of the GPU says nothing of a stack of memory that its heat sink does not touch. GPUs without the sensor report 0 or a sentinel.
            expr: |||
              max by (%s) (
                %s > %g < %g
              )
            ||| % [g.by, g.series('DCGM_FI_DEV_MEMORY_TEMP'), th.hotMemoryCelsius, d.blank],
            hold: '5m',
            severity: 'warning',
            labels: { sensor: 'memory' },
            summary: 'The memory of a GPU is hot.',
            description: 'The memory of %s of {{ $labels.%s }} is at {{ $value }} °C. The GPU will slow down, and its memory errors come sooner.' % [which, cl],
          }),
          a.alert('GPUThrottled', onGPU {
            expr: |||
              max by (%(by)s) (
                %(slow)s
              )
              / %(second)s
              > %(x)g
            ||| % { by: g.by, slow: g.violated('DCGM_FI_DEV_THERMAL_VIOLATION', '5m', ' > 0'), second: g.second, x: th.throttled },
            hold: '15m',
            severity: 'warning',
            summary: 'A GPU is slowed down for its heat.',
            description: '%s of {{ $labels.%s }} spent {{ $value | humanizePercentage }} of the time slowed down for its heat.' % [which, cl],
          }),
        ],
      },
      {
        name: 'gpu.links',
        interval: t.d('1m'),
        rules: [
          a.alert('GPUNVLinkErrors', onGPU {
            expr: g.risen('DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL', '15m'),
            hold: '5m',
            severity: 'auto',
            labels: { 'error': 'recovery', action: 'drain' },
            summary: 'A GPU has NVLink errors.',
            description: '%s of {{ $labels.%s }} had to recover an NVLink within 15 minutes; {{ $value }} times since its driver was loaded. All-reduce waits for the slowest link.' % [which, cl],
          }),
          a.alert('GPUNVLinkErrors', onGPU {
            expr: g.grown('DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL', '15m', '20m', th.nvlinkReplays),
            hold: '5m',
            severity: 'auto',
            labels: { 'error': 'replay', action: 'drain' },
            summary: 'A GPU has NVLink errors.',
            description: '%s of {{ $labels.%s }} sent {{ $value | humanize }} NVLink packets again within 15 minutes. All-reduce waits for the slowest link.' % [which, cl],
          }),
          a.alert('GPUNVLinkErrors', onGPU {
            // NVLink 5 (Blackwell) has counters of its own, and none of replays (_config.dcgm.nvlink5). A recovery that fails takes the link down.
            expr: |||
              max by (%s) (
                %s
              )
            ||| % [g.by, std.strReplace(std.rstripChars(lostLinks('unless'), '\n'), '\n', '\n  ')],
            hold: '5m',
            severity: 'auto',
            labels: { 'error': 'link-down', action: 'drain' },
            summary: 'A GPU has NVLink errors.',
            description: '%s of {{ $labels.%s }} lost an NVLink within 15 minutes that could not be recovered; {{ $value }} times since its driver was loaded. What spans its NVLink domain fails or waits.' % [which, cl],
          }),
          a.alert('GPUNVLinkErrors', onGPU {
            // A switch of theirs that is serviced, or fails, takes links of all nodes of its domain: draining sound ones mends nothing.
            expr: lostLinks('and'),
            hold: '5m',
            severity: 'warning',
            labels: { 'error': 'domain' },
            summary: 'GPUs of several nodes lost NVLinks together.',
            description: '%s of {{ $labels.%s }} lost an NVLink within 15 minutes that could not be recovered, and so did GPUs of other nodes, %g nodes at least. What they share, a switch of an NVLink domain, is more likely to be at fault than they are; no program drains them.' % [which, cl, th.nvlinkNodes],
          }),
          a.alert('GPUNVLinkErrors', onGPU {
            // One that succeeds costs a moment: no reason to drain, but sound links have none, and one that has them again and again is about to fail.
            expr: '%s> %g' % [g.moved(d.nvlink5.recovered, '1h'), th.nvlinkRecoveries],
            hold: '5m',
            severity: 'warning',
            labels: { 'error': 'recovered' },
            summary: 'A GPU recovers NVLinks again and again.',
            description: '%s of {{ $labels.%s }} recovered an NVLink {{ $value | humanize }} times within an hour. Such a link is about to fail: look at its cable or tray before it does.' % [which, cl],
          }),
          a.alert('GPUNVLinkErrors', {
            // One ticket of all of them.
            expr: links.together,
            hold: '1m',
            severity: 'warning',
            labels: { 'error': 'domain-xid' },
            summary: 'GPUs of an NVLink domain report errors of links, and it is not known that they are theirs.',
            description: '{{ $value }} GPUs of {{ with $labels.domain }}the NVLink domain {{ . }} of {{ end }}{{ $labels.%s }} had NVLink errors (Xids) for the second time in a day, while a GPU of another node says that its own link is down, or GPUs of %g nodes at least have them. One link, or a switch, is more likely to be at fault than they are; no program drains them.' % [cl, th.nvlinkNodes],
            dashboard: 'gpuFleet',
          }),
          a.alert('GPUPCIeReplay', onGPU {
            expr: |||
              %(moved)s
              / %(minutes)g
              > %(x)g
            ||| % { moved: std.rstripChars(g.moved('DCGM_FI_DEV_PCIE_REPLAY_COUNTER', '5m'), '\n'), minutes: t.s('5m') / 60, x: th.pcieReplaysPerMinute },
            hold: '15m',
            severity: 'warning',
            summary: 'A GPU repeats PCIe transfers.',
            description: '%s of {{ $labels.%s }} repeats {{ $value | humanize }} PCIe transfers a minute: a bad riser, slot or cable.' % [which, cl],
          }),
        ],
      },
      {
        name: 'gpu.idle',
        rules: [
          a.alert('GPUHoldersUnknown', {
            // Who has a GPU without a device plugin (DRA) only dcgm-exporter says. Processes outside of pods, such as a diagnosis, are a node or two.
            expr: |||
              (
                sum by (%(cl)s) (node:gpu_unattributed:count and on (%(node)s) node:ready:max) >= %(least)g
              )
              / on (%(cl)s)
              sum by (%(cl)s) (node:gpu_seen:count and on (%(node)s) node:ready:max)
              > %(share)g
            ||| % { cl: cl, node: g.byNode, least: c.gpu.perNode, share: th.unattributed },
            hold: '1h',
            severity: 'warning',
            summary: 'GPUs are at work and nobody knows for whom.',
            description: 'On {{ $value | humanizePercentage }} of the GPUs of {{ $labels.%s }} something runs, and dcgm-exporter names no pod. They count as free where ResourceClaims (DRA) give them out, are on no bill and in no view of an experiment, and GPUAllocatedIdle does not see them.' % cl,
            dashboard: 'gpuUse',
          }),
          a.alert('GPUAllocatedIdle', {
            // The team is there so that the notification can be sent to it; where kube-state-metrics does not tell it, nobody's.
            expr: |||
              (namespace:gpu_idle:count >= %(n)g)
              * on (%(cl)s, %(ns)s) group_left (team) (
                namespace:team:info
                or on (%(cl)s, %(ns)s)
                label_replace(group by (%(cl)s, %(ns)s) (namespace:gpu_idle:count), "team", "%(nobody)s", "", "")
              )
            ||| % { n: th.idleGPUs, cl: cl, ns: c.namespaceLabel, nobody: c.unassignedTeam },
            hold: '2h',
            severity: 'info',
            summary: 'GPUs are held and not used.',
            description: 'Pods in namespace {{ $labels.%(ns)s }} ({{ $labels.team }}) of {{ $labels.%(cl)s }} have held {{ $value }} GPUs for two hours that were busy for less than %(x)s of the time, or busy and moved neither memory nor tensors, as in a collective that hangs.' % {
              ns: c.namespaceLabel,
              cl: cl,
              x: '%g %%' % (th.idleActive * 100),
            },
            dashboard: 'gpuUse',
            vars: { namespace: c.namespaceLabel },
          }),
        ],
      },
    ],
  },
}
