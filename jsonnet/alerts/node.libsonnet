// One node's trouble, for the remediation controller. FleetNodesNotReady,
// FleetNodesUnreachable and FleetNodesFailing page.
{
  local c = $._config,
  local a = (import '../lib/alert.libsonnet')(c),
  local t = (import '../lib/time.libsonnet')(c.timeScale),
  local m = (import '../lib/mesh.libsonnet')(c),
  local number = import '../lib/number.libsonnet',
  local th = c.thresholds.node,
  local s = c.selectors.nodeExporter,
  local cl = c.clusterLabel,
  local node = '%s, %s' % [cl, c.nodeLabel],
  local fs = '%s, mountpoint, device' % node,

  local onNode = { dashboard: 'node', vars: { node: c.nodeLabel } },
  local where = 'node {{ $labels.%s }} of {{ $labels.%s }}' % [c.nodeLabel, cl],
  local mount = '{{ $labels.mountpoint }} ({{ $labels.device }}) of %s' % where,

  // full is a file system with too little left: one of the node's own (=~), or another (!~).
  local full(name, ratio, limit, summary, own, text) = a.alert(name, onNode {
    expr: '%s{mountpoint%s"%s"} > %g' % [ratio, own, c.node.ownMounts, limit],
    hold: '10m',
    summary: summary,
    description: 'The file system %s %s' % [mount, text],
  } + (if own == '=~' then { severity: 'auto', labels: { action: 'cordon' } } else { severity: 'warning' })),

  // tables are the nodes whose neighbour table was full, by how often.
  local tables =
    |||
      sum by (%s) (
        increase(node_lnstat_table_fulls_total{%s, subsystem="arp_cache"}[%s]) > 0
      )
    ||| % [node, s, t.d('10m')],

  local nearLimit(family, ratio) = a.alert('NodeARPTableNearLimit', onNode {
    expr: '%s > %g' % [ratio, th.arp],
    hold: '10m',
    severity: 'warning',
    labels: { family: family },
    summary: 'The neighbour table of a node is nearly full.',
    description: 'The neighbour table of %s of %s holds {{ $value | humanizePercentage }} of what gc_thresh3 allows. Past it, connections to new addresses fail at random; all nodes come there together, since each talks to all.' % [{ ipv4: 'IPv4', ipv6: 'IPv6' }[family], where],
  }),

  // readOnly are file systems that were writable and are read-only, of nodes to which that happened together with others (and), or alone (unless).
  local readOnly(how, o) = a.alert('NodeFilesystemReadOnly', onNode {
    expr: |||
      max by (%(fs)s) (node_filesystem_readonly{%(s)s, %(local)s} == 1)
      and on (%(fs)s)
      node:filesystem_was_writable:bool
      %(how)s on (%(node)s)
      last_over_time(cluster_node:filesystem_readonly_together:bool[%(w)s])
    ||| % { fs: fs, node: node, s: s, 'local': c.node.filesystems, how: how, w: t.recorded('10m') },
    // As long as it takes to see whether others follow.
    hold: '3m',
  } + o),

  // diskError are nodes of whose disks the kernel's log speaks and whose own file systems say the same (and) or do not (unless). node-problem-detector takes a buffer I/O error of any device, and does not say of which: a volume
  // that is detached while it is written to, a disk of iSCSI, the virtual CD of a BMC. An error of ext4 or XFS may be a pod's volume's. Eight sound GPUs and their gang are not drained for those.
  local diskError(how, o, text) = a.alert('NodeDiskError', onNode {
    expr: |||
      sum by (%(node)s, reason) (
        increase(problem_counter{%(npd)s, reason=~"%(reasons)s"}[%(w)s]) > 0
      )
      %(how)s on (%(node)s)
      (
        node_filesystem_device_error{%(s)s, %(local)s, device_error!~"%(asker)s"} == 1
        or
        node_filesystem_readonly{%(s)s, %(local)s} == 1
        and on (%(fs)s)
        node:filesystem_was_writable:bool
      )
    ||| % { node: node, npd: c.selectors.npd, reasons: c.node.diskProblems, w: t.d('10m'), how: how, s: s, 'local': c.node.filesystems, fs: fs, asker: c.node.askersErrors },
    // Where the storage of many nodes stumbles FleetNodesFailing, which keeps machines from acting, stands after two minutes.
    hold: '3m',
    summary: 'The kernel log speaks of disk errors.',
    description: 'node-problem-detector saw {{ $labels.reason }} {{ $value | humanize }} times in ten minutes on %s. %s' % [where, text],
  } + o),

  // unreachable are nodes that probers do not reach (cluster_node:unreachable:ratio), of those that are known to run (and) or are not (unless), and that became so together with others and are not given up (and) or not (unless).
  local unreachable(runs, together, o) = a.alert('NodeUnreachable', onNode {
    // Who answers to a scrape runs, whatever the probers see: they knock at one port, which a firewall closes by itself. What is said of the scrapes is asked for here and not recorded: where it cannot be read no reboot is asked for. Of a cluster without these exporters the probers alone are believed.
    expr: |||
      cluster_node:unreachable:ratio
      %(runs)s on (%(node)s)
      (
        %(known)s
      )
    ||| % { runs: runs, node: node, known: std.strReplace(std.rstripChars(m.runs, '\n'), '\n', '\n  ') } + (
      if together == '' then '' else |||
        %(together)s on (%(node)s)
        (
          last_over_time(cluster_node:unreachable_together:bool[%(w)s])
          unless on (%(node)s)
          cluster_node:unreachable_given_up:bool
        )
      ||| % { together: together, node: node, w: t.recorded('10m') }
    ),
    // Longer than LocationLost takes, which asks for the same series: the alert of a place must stand before its nodes'.
    hold: '8m',
  } + o),

  // neverReached are those that most probers do not reach and nobody has reached yet: a new pool behind a firewall that knows the API server and not the probers is ready, and runs what it is given.
  local neverReached(o) = a.alert('NodeUnreachable', onNode {
    expr: |||
      %(unreachable)s
      unless on (%(node)s)
      node:reached:bool
    ||| % { unreachable: std.rstripChars(m.standing(''), '\n'), node: node },
    hold: '5m',
  } + o),

  prometheusAlerts+:: {
    groups+: [
      {
        // Nobody is woken for one node, and each rule is over all of them.
        name: 'node',
        interval: t.d('1m'),
        rules: [
          unreachable('unless', 'unless', {
            severity: 'auto',
            labels: { action: 'cordon-reboot' },
            summary: 'A node cannot be reached.',
            description: '{{ $value | humanizePercentage }} of the probers do not reach %s, and none of its exporters answers. Its kubelet still reports, or has been silent for longer than a machine boots.' % where,
          }),
          unreachable('and', '', {
            severity: 'warning',
            labels: { state: 'runs' },
            summary: 'A node that runs is closed to the probers.',
            description: '{{ $value | humanizePercentage }} of the probers do not reach %s, and it runs as far as anybody knows: its exporters answer, or are not asked. The port that is probed is closed, by a firewall on the node or before it, or the network between is.' % where,
          }),
          unreachable('unless', 'and', {
            severity: 'warning',
            labels: { state: 'together' },
            summary: 'Several nodes cannot be reached since the same time.',
            description: '{{ $value | humanizePercentage }} of the probers do not reach %s, nor those that scrape it, and so it is with %g nodes or more of the cluster since the same quarter of an hour. They share a switch, a power feed or a firewall, and no reboot mends that.' % [where, th.unreachableNodes],
          }),
          neverReached({
            severity: 'warning',
            summary: 'A node was never reached.',
            description: '{{ $value | humanizePercentage }} of the probers do not reach %s, and fewer than %g ever have. A firewall or a route between them is likelier than a dead machine.' % [where, c.thresholds.node.probers],
          }),
          a.alert('NodeNotReady', onNode {
            // A node that is not ready gets no pods, and those that it had are gone after five minutes: to drain it changes nothing, and where its machine runs no reboot is owed. Somebody must look, by day. Of a machine that
            // answers nobody the ticket waits for longer than it boots, and for NodeUnreachable, which holds it back.
            expr: |||
              node:ready:max == 0
              and on (%(node)s)
              (
                max by (%(node)s) (up{%(exporter)s}) == 1
                or on (%(node)s)
                max by (%(node)s) (probe_success{%(mesh)s}) == 1
                or on (%(node)s)
                max_over_time(node:ready:max[%(boot)s]) == 0
              )
              unless on (%(node)s)
              node:planned:bool
            ||| % { node: node, exporter: s, mesh: c.selectors.nodeMesh, boot: t.d(c.node.boot) },
            hold: '15m',
            severity: 'warning',
            summary: 'A node is not ready.',
            description: 'The %s has not been ready for a quarter of an hour, and nobody took it out. Where its machine answers, its kubelet, its container runtime or its network plugin is broken; its GPUs stand idle until somebody looks.' % where,
          }),
          a.alert('NodeExporterMissing', onNode {
            // TargetDown and ScrapeTargetsGone begin at a tenth of the fleet. A node whose disk is dead may be just this: its exporter cannot be started again, and the kubelet goes on from memory. Where a cluster has no such
            // exporter at all, or none of its targets names a node as kube-state-metrics does, nothing can be said.
            expr: |||
              node:ready:max{%(label)s!~"%(unmeasured)s"} == 1
              unless on (%(node)s)
              max by (%(node)s) (up{%(exporter)s}) == 1
              unless on (%(node)s)
              node:planned:bool
              and on (%(cl)s)
              count by (%(cl)s) (up{%(exporter)s} == 1 and on (%(node)s) node:ready:max)
            ||| % { cl: cl, node: node, exporter: s, label: c.nodeLabel, unmeasured: c.node.unmeasured },
            hold: '15m',
            severity: 'warning',
            summary: 'A node is not measured.',
            description: 'The %s is ready, and its node-exporter has not been scraped for a quarter of an hour: no alert on its disks, file systems, clock and tables can fire, and jobs are given to it as before.' % where,
          }),
          a.alert('NodeRestarts', onNode {
            // Each restart is told of for five minutes, by when the node booted: as many restarts as there are times. Roughly, since two replicas of a Prometheus may have it by a second or two apart.
            // One of a node that is cordoned, or was a moment ago, about to be deleted or has just come is none: upgrades and repairs take several, and what failed before it was cordoned is no planned outage for an hour. A machine that is back within minutes is ready again before any other alert has waited long enough.
            expr: |||
              1 + changes(
                (
                  round(node:boot_time_seconds:restarted, %(roughly)s)
                  unless on (%(node)s)
                  (
                    last_over_time(node:planned:bool[%(lately)s])
                    or on (%(node)s)
                    last_over_time(node:cordoned:bool[%(lately)s])
                  )
                )[%(hours)s:%(step)s]
              ) >= %(n)g
            ||| % { node: node, roughly: number(t.s('5m')), lately: t.recorded('10m'), hours: t.d('6h'), step: t.d('1m'), n: th.restarts },
            severity: 'warning',
            summary: 'A node restarts again and again.',
            description: 'The %s has restarted {{ $value }} times within six hours, and nobody took it out. Each time it is back before anybody is told, and the jobs on it were lost.' % where,
          }),
          readOnly('unless', {
            severity: 'auto',
            labels: { action: 'drain' },
            summary: 'A file system has gone read-only.',
            description: 'The file system %s is read-only: the kernel has seen errors on it and stopped writing.' % mount,
          }),
          readOnly('and', {
            severity: 'warning',
            summary: 'File systems of several nodes have gone read-only together.',
            description: 'The file system %s is said to be read-only, and so are some of other nodes since the same quarter of an hour. Their storage has stumbled, or a node-exporter that was rolled out tells it of mounts of its own: look at /proc/1/mountinfo of one of the nodes.' % mount,
          }),
          a.alert('NodeExporterTooOld', {
            expr: |||
              count by (%(cl)s) (
                group by (%(node)s) (node_filesystem_readonly{%(s)s, %(local)s})
                and on (%(node)s)
                node_exporter_build_info{%(s)s, version!~"%(known)s"}
              )
            ||| % { cl: cl, node: node, s: s, 'local': c.node.filesystems, known: c.node.readonlyExporters },
            hold: '1h',
            severity: 'warning',
            summary: 'node-exporter does not know which file systems are read-only.',
            description: '{{ $value | humanize }} nodes of {{ $labels.%s }} have a node-exporter of 1.9 to 1.11, or one without a version. It does not see that the kernel has made a file system read-only, so that NodeFilesystemReadOnly is silent about these nodes.' % cl,
            dashboard: 'alerts',
          }),
          a.alert('NodeFilesystemDeviceError', onNode {
            expr: 'max by (%s) (node_filesystem_device_error{%s, %s, device_error!~"%s"} == 1)' % [fs, s, c.node.filesystems, c.node.askersErrors],
            hold: '5m',
            severity: 'auto',
            labels: { action: 'drain' },
            summary: 'A file system cannot be read.',
            description: 'The kernel answers no questions about the file system %s. Its size and free space are unknown, so no other alert speaks of it.' % mount,
          }),
          a.alert('NodeFilesystemDeviceError', onNode {
            expr: 'max by (%s, device_error) (node_filesystem_device_error{%s, %s, device_error=~"%s"} == 1)' % [fs, s, c.node.filesystems, c.node.askersErrors],
            hold: '5m',
            severity: 'warning',
            summary: 'A file system is closed to node-exporter.',
            description: 'node-exporter may not look at the file system %s ({{ $labels.device_error }}). Nothing says that its disk is bad; its size and free space are unknown, so no other alert speaks of it.' % mount,
          }),
          // A drain where the node's own file systems say so too. The kernel has the same words for any block device.
          diskError('and', {
            severity: 'auto',
            labels: { action: 'drain' },
          }, 'A file system of the node is read-only or cannot be read.'),
          diskError('unless', {
            severity: 'warning',
          }, 'All file systems of the node answer and are as they were: it may be a volume over the network, a virtual medium of the BMC, or the beginning of a bad disk.'),
          // Only without the mounts of its own a node cannot work. A cordon stays when a job has cleaned up its scratch, and of 10,000 nodes' caches some are always full.
          full('NodeFilesystemFull', 'node:filesystem_used:ratio', th.full, 'A file system is nearly full.', '=~', 'is {{ $value | humanizePercentage }} full. Images can no longer be pulled and pods are evicted.'),
          full('NodeFilesystemFull', 'node:filesystem_used:ratio', th.full, 'A file system is nearly full.', '!~', 'is {{ $value | humanizePercentage }} full. The node itself goes on: whoever writes there runs out of room.'),
          full(
            'NodeFilesystemInodesFull',
            'node:filesystem_inodes_used:ratio',
            th.inodes,
            'A file system is nearly out of inodes.',
            '=~',
            'has used {{ $value | humanizePercentage }} of its inodes. However much of it is free, no file can be made: images and pods fail.'
          ),
          full(
            'NodeFilesystemInodesFull',
            'node:filesystem_inodes_used:ratio',
            th.inodes,
            'A file system is nearly out of inodes.',
            '!~',
            'has used {{ $value | humanizePercentage }} of its inodes. However much of it is free, no file can be made there; the node itself goes on.'
          ),
          a.alert('NodeConntrackNearLimit', onNode {
            expr: 'node:conntrack_entries:ratio > %g' % th.conntrack,
            hold: '10m',
            severity: 'warning',
            summary: 'The connection table of a node is nearly full.',
            description: 'The connection table of %s holds {{ $value | humanizePercentage }} of what nf_conntrack_max allows. Past it the kernel drops the packets of new connections, and counts that nowhere that pods see.' % where,
          }),
          a.alert('NodeClockSkewed', onNode {
            // ntpd slews by at most 128 ms, which takes 256 s at 500 ppm: what stays for ten minutes is no correction under way.
            expr: 'node:clock_offset_seconds:abs > %g' % th.clockSeconds,
            hold: '10m',
            severity: 'warning',
            summary: 'The clock of a node is off.',
            description: 'The clock of %s is off by {{ $value | humanizeDuration }}. Leases, certificates, tokens and whatever compares times of two nodes go wrong there.' % where,
          }),
          a.alert('NodeClockSkewed', onNode {
            // Where chrony or ntpd-rs keeps the clock the kernel is told of no offset, and the first expression is silent.
            expr: 'node:clock_apart_seconds:min > %g' % th.clockApartSeconds,
            hold: '10m',
            severity: 'warning',
            labels: { against: 'nodes' },
            summary: 'The clock of a node is off.',
            description: 'The clock of %s is off by {{ $value | humanizeDuration }} or more from that of most nodes. Leases, certificates, tokens and whatever compares times of two nodes go wrong there.' % where,
          }),
          a.alert('NodeClockNotSynchronised', onNode {
            // The kernel counts the largest possible error up while nobody sets the clock, to 16 s and no further (NTP_PHASE_LIMIT); whoever sets it sets the error back.
            expr: |||
              max by (%(n)s) (node_timex_maxerror_seconds{%(s)s}) >= %(maxerror)g
              and on (%(n)s)
              max by (%(n)s) (max_over_time(node_timex_sync_status{%(s)s}[%(w)s])) == 0
            ||| % { n: node, s: s, maxerror: th.clockErrorSeconds, w: t.d('5m') },
            hold: '10m',
            severity: 'warning',
            summary: 'Nothing keeps the clock of a node right.',
            description: 'Nothing has set the clock of %s for hours: by the kernel it may be off by {{ $value | humanizeDuration }} or more. It drifts by seconds a day.' % where,
          }),
          nearLimit('ipv4', 'node:arp_entries:ratio'),
          nearLimit('ipv6', 'node:ndisc_entries:ratio'),
          a.alert('NodeARPTableOverflow', onNode {
            expr: tables,
            severity: 'auto',
            labels: { scope: 'node', action: 'raise-gc-thresh' },
            summary: 'The neighbour table of a node has overflowed.',
            description: 'The kernel of %s found its neighbour table full {{ $value | humanize }} times in ten minutes: connections to new addresses fail.' % where,
          }),
          a.alert('NodeARPTableOverflow', {
            expr: |||
              count by (%(cl)s) (
                %(tables)s
              )
              >= %(n)g
            ||| % { cl: cl, tables: std.strReplace(std.rstripChars(tables, '\n'), '\n', '\n  '), n: th.arpOverflowNodes },
            severity: 'critical',
            labels: { scope: 'cluster' },
            summary: 'Neighbour tables overflow across the cluster.',
            description: 'On {{ $value }} nodes of {{ $labels.%s }} the neighbour table overflowed within ten minutes. The limit is the same on all nodes: more will follow, DNS and the API servers first.' % cl,
            dashboard: 'network',
          }),
        ],
      },
    ],
  },
}
