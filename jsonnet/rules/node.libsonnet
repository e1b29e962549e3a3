// Nodes' own pages, brought down to one series for each node on the shard that
// scrapes it, and from there to quantiles: no panel has to read 192 CPUs of
// 7,500 nodes.
{
  local c = $._config,
  local t = (import '../lib/time.libsonnet')(c.timeScale),
  local m = (import '../lib/mesh.libsonnet')(c),
  local number = import '../lib/number.libsonnet',
  local s = c.selectors.nodeExporter,
  local node = '%s, %s' % [c.clusterLabel, c.nodeLabel],
  local cl = c.clusterLabel,

  // written leaves out file systems that are read-only: NodeFilesystemReadOnly tells of those that were not always.
  local written = std.rstripChars(|||
    unless on (%(n)s, mountpoint, device)
    node_filesystem_readonly{%(s)s, %(fs)s} == 1
  ||| % { n: node, s: s, fs: c.node.filesystems }, '\n'),

  // boot is when each node booted, by the clock of who asks.
  local boot =
    'max by (%(n)s) (node_boot_time_seconds{%(s)s} - (node_time_seconds{%(s)s} - timestamp(node_time_seconds{%(s)s})) or node_boot_time_seconds{%(s)s})' % { n: node, s: s },

  // lately are those of some nodes that nobody reaches that could be reached a quarter of an hour ago, or of which nobody knew for longer than that.
  local lately(of='cluster_node:unreachable:ratio') = std.rstripChars(|||
    %(of)s
    unless on (%(n)s)
    last_over_time(cluster_node:unreachable:ratio[%(past)s] offset %(w)s)
  ||| % { of: of, n: node, past: t.d('1h'), w: t.d('15m') }, '\n'),

  // name of the recorded series of a node: what its quantiles over the cluster are called.
  local quantiles = {
    'node:cpu_busy:ratio_rate5m': 'cluster:node_cpu_busy:quantile',
    'node:load1_per_cpu:ratio': 'cluster:node_load1_per_cpu:quantile',
    'node:memory_used:ratio': 'cluster:node_memory_used:quantile',
    'node:disk_busy:max_rate5m': 'cluster:node_disk_busy:quantile',
    'node:arp_entries:ratio': 'cluster:node_arp_entries:quantile',
    'node:conntrack_entries:ratio': 'cluster:node_conntrack_entries:quantile',
    'node:clock_offset_seconds:abs': 'cluster:node_clock_offset_seconds:quantile',
  },

  prometheusRules+:: {
    groups+: [
      {
        name: 'node.pages',
        scope:: 'shard',
        rules: [
          {
            record: 'node:cpu_busy:ratio_rate5m',
            expr: '1 - avg by (%s) (rate(node_cpu_seconds_total{%s, mode="idle"}[%s]))' % [node, s, t.d('5m')],
          },
          {
            record: 'node:load1_per_cpu:ratio',
            expr: |||
              max by (%(n)s) (node_load1{%(s)s})
              / on (%(n)s)
              count by (%(n)s) (node_cpu_seconds_total{%(s)s, mode="idle"})
            ||| % { n: node, s: s },
          },
          {
            record: 'node:memory_used:ratio',
            expr: '1 - max by (%(n)s) (node_memory_MemAvailable_bytes{%(s)s}) / on (%(n)s) max by (%(n)s) (node_memory_MemTotal_bytes{%(s)s})' % { n: node, s: s },
          },
          {
            record: 'node:disk_busy:max_rate5m',
            expr: 'max by (%s) (rate(node_disk_io_time_seconds_total{%s}[%s]))' % [node, s, t.d('5m')],
          },
          {
            // Of each local file system that can be written to: the image of an immutable system is as full as it was built, often to the last block.
            record: 'node:filesystem_used:ratio',
            expr: |||
              max by (%(n)s, mountpoint, device) (
                1 - node_filesystem_avail_bytes{%(s)s, %(fs)s} / node_filesystem_size_bytes{%(s)s, %(fs)s}
              )
              %(written)s
            ||| % { n: node, s: s, fs: c.node.filesystems, written: written },
          },
          {
            // A file system that makes inodes as it needs them (btrfs) tells of 0, and has no ratio.
            record: 'node:filesystem_inodes_used:ratio',
            expr: |||
              max by (%(n)s, mountpoint, device) (
                1 - node_filesystem_files_free{%(s)s, %(fs)s} / (node_filesystem_files{%(s)s, %(fs)s} > 0)
              )
              %(written)s
            ||| % { n: node, s: s, fs: c.node.filesystems, written: written },
          },
          {
            // 1 for each local file system that has been writable, as long as it
            // is there: the root of an immutable system (Container-Optimized OS,
            // Bottlerocket, Talos) never is, and nothing is wrong with it. Of a Node
            // that is younger than what is kept only what was said a moment ago
            // counts: the rest may be of another machine under its name. Nor does what
            // a node-exporter says that does not know (readonlyExporters): what it took
            // for writable turns read-only on every node that gets a new one.
            // Where an operator names targets after pods, both pages stand for a while.
            record: 'node:filesystem_was_writable:bool',
            expr: |||
              group by (%(n)s, mountpoint, device) (
                node_filesystem_readonly{%(s)s, %(fs)s} == 0
                unless on (%(n)s, instance, pod)
                node_exporter_build_info{%(s)s, version!~"%(known)s"}
              )
              or
              (
                group by (%(n)s, mountpoint, device) (node_filesystem_readonly{%(s)s, %(fs)s} == 1)
                and on (%(n)s, mountpoint, device)
                (
                  node:filesystem_was_writable:bool
                  or
                  last_over_time(node:filesystem_was_writable:bool[%(past)s])
                  unless on (%(n)s)
                  %(young)s
                )
              )
            ||| % {
              n: node,
              s: s,
              fs: c.node.filesystems,
              known: c.node.readonlyExporters,
              past: t.d('6h'),
              young: (import '../lib/young.libsonnet')(c, '6h'),
            },
          },
          {
            // For each node with a file system that was writable and is read-only:
            // 1 where it was written to within a quarter of an hour, else 0.
            record: 'node:filesystem_readonly_lately:bool',
            expr: |||
              max by (%(n)s) (
                min_over_time(node_filesystem_readonly{%(s)s, %(fs)s}[%(lately)s]) == bool 0
                and on (%(n)s, mountpoint, device)
                (
                  node_filesystem_readonly{%(s)s, %(fs)s} == 1
                  and on (%(n)s, mountpoint, device)
                  node:filesystem_was_writable:bool
                )
              )
            ||| % { n: node, s: s, fs: c.node.filesystems, lately: t.d('15m') },
          },
          {
            // The kernel has one table, and one limit, for all devices and network namespaces. /proc/net/stat/arp_cache tells how much all of it holds, the same on the line of each processor (neigh_stat_seq_show);
            // node_arp_entries is of the host's namespace alone and knows nothing of pods. It stands in where lnstat is not read; a device whose last entry goes loses its series there. Permanent entries are in the table and,
            // from Linux 5.0 on, not in what the limit is for (gc_entries): the network of pods makes one for each other node, on the device of its tunnel.
            record: 'node:arp_entries:ratio',
            expr: |||
              (
                clamp_min(
                  max by (%(n)s) (node_lnstat_entries_total{%(s)s, subsystem="arp_cache"})
                  - on (%(n)s)
                  sum by (%(n)s) (node_arp_entries{%(s)s, device=~"%(tunnels)s"}),
                  0
                )
                or on (%(n)s)
                max by (%(n)s) (node_lnstat_entries_total{%(s)s, subsystem="arp_cache"})
                or on (%(n)s)
                sum by (%(n)s) (node_arp_entries{%(s)s, device!~"%(tunnels)s"})
              )
              / on (%(n)s)
              max by (%(n)s) (node_sysctl_net_ipv4_neigh_default_gc_thresh3{%(s)s})
            ||| % { n: node, s: s, tunnels: c.node.tunnels },
          },
          {
            // Of IPv6, which has a table and a limit of its own.
            record: 'node:ndisc_entries:ratio',
            expr: |||
              max by (%(n)s) (node_lnstat_entries_total{%(s)s, subsystem="ndisc_cache"})
              / on (%(n)s)
              max by (%(n)s) (node_sysctl_net_ipv6_neigh_default_gc_thresh3{%(s)s})
            ||| % { n: node, s: s },
          },
          {
            record: 'node:conntrack_entries:ratio',
            expr: |||
              max by (%(n)s) (node_nf_conntrack_entries{%(s)s})
              / on (%(n)s)
              max by (%(n)s) (node_nf_conntrack_entries_limit{%(s)s})
            ||| % { n: node, s: s },
          },
          { record: 'node:clock_offset_seconds:abs', expr: 'max by (%s) (abs(node_timex_offset_seconds{%s}))' % [node, s] },
          {
            // How far a node's clock is at least from that of most nodes of the same Prometheus, whose own clock may be off: what its exporter says the time is, against when it was asked. Less what the scrape took, since it
            // may have looked at any time in it. Of two nodes nobody knows which is right. The kernel knows of no offset where chrony or ntpd-rs steers.
            record: 'node:clock_apart_seconds:min',
            expr: |||
              abs(
                max by (%(n)s) (node_time_seconds{%(s)s} - timestamp(node_time_seconds{%(s)s}))
                - on (%(cl)s) group_left ()
                quantile by (%(cl)s) (0.5, node_time_seconds{%(s)s} - timestamp(node_time_seconds{%(s)s}))
              )
              - on (%(n)s)
              max by (%(n)s) (scrape_duration_seconds{%(s)s})
              and on (%(cl)s)
              (count by (%(cl)s) (node_time_seconds{%(s)s}) >= 3)
            ||| % { n: node, cl: cl, s: s },
          },
          {
            // When each node booted, as it was first told: corrections of its clock do not move it. How far its clock is off is taken out, where its exporter tells the time: one that begins an hour off and is set a minute
            // later would have booted twice.
            record: 'node:boot_time_seconds:kept',
            expr: |||
              (
                last_over_time(node:boot_time_seconds:kept[%(past)s])
                and on (%(n)s)
                abs(
                  %(boot)s
                  - on (%(n)s)
                  last_over_time(node:boot_time_seconds:kept[%(past)s])
                ) <= %(seconds)g
              )
              or on (%(n)s)
              %(boot)s
            ||| % { n: node, past: t.recorded('1h'), seconds: c.node.bootSeconds, boot: boot },
          },
          {
            // The same for five minutes after a restart, of nodes that had one and were there within the hour before.
            record: 'node:boot_time_seconds:restarted',
            expr: |||
              node:boot_time_seconds:kept
              != on (%(n)s)
              last_over_time(node:boot_time_seconds:kept[%(past)s] offset %(w)s)
            ||| % { n: node, past: t.recorded('1h'), w: t.d('5m') },
          },
          {
            record: 'node:network_errors:rate5m',
            expr: |||
              sum by (%(n)s) (rate(node_network_receive_errs_total{%(s)s}[%(w)s]))
              + on (%(n)s)
              sum by (%(n)s) (rate(node_network_transmit_errs_total{%(s)s}[%(w)s]))
            ||| % { n: node, s: s, w: t.d('5m') },
          },
          {
            // Of nodes whose table was full.
            record: 'node:arp_overflows:increase5m',
            expr: 'sum by (%s) (increase(node_lnstat_table_fulls_total{%s, subsystem="arp_cache"}[%s]) > 0)' % [node, s, t.d('5m')],
          },
          {
            // What the kernel's log spoke of, of nodes on which it did.
            record: 'node_reason:problems:increase5m',
            expr: 'sum by (%s, reason) (increase(problem_counter{%s}[%s]) > 0)' % [node, c.selectors.npd, t.d('5m')],
          },
        ],
      },
      {
        name: 'node.reach',
        interval: t.d('1m'),
        rules: [
          {
            // Probes of the nodes of a rack that fail, as a share. Only those that fail are joined with their rack.
            record: 'rack:probes_failed:ratio',
            expr: |||
              (
                sum by (%(cl)s, rack) (
                  count by (%(n)s) (probe_success{%(mesh)s} == 0)
                  * on (%(n)s) group_left (rack)
                  node:rack:info
                )
                or on (%(cl)s, rack)
                0 * count by (%(cl)s, rack) (node:rack:info)
              )
              / on (%(cl)s, rack)
              (
                count by (%(cl)s, rack) (node:rack:info)
                * on (%(cl)s) group_left ()
                count by (%(cl)s) (count by (%(cl)s, prober) (probe_success{%(mesh)s}))
              )
            ||| % { cl: cl, n: node, mesh: c.selectors.nodeMesh },
          },
          {
            record: 'prober:probes_failed:ratio',
            expr: '1 - avg by (%s, prober) (probe_success{%s})' % [cl, c.selectors.nodeMesh],
          },
          {
            // 1 for each node that as many probers have reached as NodeUnreachable asks for, as long as it is probed: one beside it, behind a firewall that keeps the others out, says nothing of what these will see.
            // Of a Node that is young it asks for what it said last, and not for what it said once: a name that comes back as another machine has not been reached. An older one has no sample of another machine within
            // that time, and what it said once counts: all probers may be away for minutes, with the cluster's DNS, while it dies.
            record: 'node:reached:bool',
            expr: |||
              group by (%(n)s) (count by (%(n)s) (probe_success{%(mesh)s} == 1) >= %(probers)g)
              or
              (
                group by (%(n)s) (probe_success{%(mesh)s})
                and on (%(n)s)
                (
                  node:reached:bool
                  or on (%(n)s)
                  last_over_time(node:reached:bool[%(past)s])
                  and on (%(n)s)
                  max by (%(n)s) (kube_node_created{%(ksm)s}) <= time() - %(pastSeconds)s
                )
              )
            ||| % { n: node, mesh: c.selectors.nodeMesh, probers: c.thresholds.node.probers, ksm: c.selectors.ksm, past: t.recorded('6h'), pastSeconds: number(t.s('6h')) },
          },
          {
            // Of each node that one could reach and most probers no longer do, and that does not boot: the share of them.
            record: 'cluster_node:unreachable:ratio',
            expr: |||
              %(standing)s
              and on (%(n)s)
              node:reached:bool
            ||| % { n: node, standing: std.rstripChars(m.standing(), '\n') },
          },
          {
            // 1 for each of these nodes of which an exporter answers.
            record: 'cluster_node:unreachable_answers:bool',
            expr: |||
              group by (%(n)s) (cluster_node:unreachable:ratio)
              and on (%(n)s)
              (
                %(answers)s
              )
            ||| % { n: node, answers: std.strReplace(std.rstripChars(m.answers, '\n'), '\n', '\n  ') },
          },
          {
            // 1 for each of these nodes of which no exporter answers either.
            record: 'cluster_node:unreachable_dark:bool',
            expr: |||
              group by (%(n)s) (cluster_node:unreachable:ratio)
              unless on (%(n)s)
              (
                %(answers)s
              )
            ||| % { n: node, answers: std.strReplace(std.rstripChars(m.answers, '\n'), '\n', '\n  ') },
          },
          {
            // 1 for each of these nodes that fell silent to the last within a quarter of an hour: nobody reaches it since then, or an
            // exporter answered within it. Where no rule told of it for a while, one that answered before that is among them. One of
            // which no rule ever said that it answers is not, however new the rule is.
            record: 'cluster_node:unreachable_dark_newly:bool',
            expr: |||
              cluster_node:unreachable_dark:bool
              and on (%(n)s)
              (
                %(reached)s
                or on (%(n)s)
                last_over_time(cluster_node:unreachable_answers:bool[%(w)s])
                or on (%(n)s)
                last_over_time(cluster_node:unreachable_answers:bool[%(before)s])
                unless on (%(n)s)
                last_over_time(cluster_node:unreachable_dark:bool[%(past)s] offset %(w)s)
              )
            ||| % { n: node, reached: std.strReplace(lately(), '\n', '\n  '), w: t.d('15m'), before: t.d('75m'), past: t.d('1h') },
          },
          {
            // 1 for each of these nodes whose kubelet is silent too. One that says that its node is not ready, since its pod network is broken, is none.
            record: 'cluster_node:unreachable_silent:bool',
            expr: |||
              group by (%(n)s) (cluster_node:unreachable:ratio)
              and on (%(n)s)
              max by (%(n)s) (kube_node_status_condition{%(ksm)s, condition="Ready", status="unknown"}) == 1
            ||| % { n: node, ksm: c.selectors.ksm },
          },
          {
            // 1 for each of these nodes whose kubelet reports, for minutes perhaps.
            record: 'cluster_node:unreachable_heard:bool',
            expr: |||
              group by (%(n)s) (cluster_node:unreachable:ratio)
              and on (%(n)s)
              max by (%(n)s) (kube_node_status_condition{%(ksm)s, condition="Ready", status="unknown"}) == 0
            ||| % { n: node, ksm: c.selectors.ksm },
          },
          {
            // 1 for each of these nodes of which nobody has heard for six hours, kubelet and all: nothing runs there that a reboot
            // would take. Of the hours some minutes may be missing, in which nobody knew, and what was hours ago does not count.
            // It ends when the kubelet reports.
            record: 'cluster_node:unreachable_given_up:bool',
            expr: |||
              cluster_node:unreachable_silent:bool
              and on (%(n)s)
              count_over_time(cluster_node:unreachable_silent:bool[%(longest)s:%(step)s]) >= %(most)g
              unless on (%(n)s)
              last_over_time(cluster_node:unreachable_heard:bool[%(past)s])
            ||| % { n: node, past: t.recorded('6h'), longest: t.d('6h'), step: t.d('1m'), most: 350 },
          },
          {
            // 1 for each of these nodes that nobody reaches since the same quarter of an hour as others, and of which no exporter answers:
            // while that is new, and for one evaluation perhaps. Where nobody probed for an hour it is not known that they could be reached
            // until then: the probers may be back before the exporters are scraped.
            record: 'cluster_node:unreachable_newly_together:bool',
            expr: |||
              group by (%(n)s) (
                %(lately)s
              )
              and on (%(cl)s)
              count by (%(cl)s) (cluster_node:unreachable_dark_newly:bool) >= %(nodes)g
              and on (%(cl)s)
              last_over_time(cluster:nodes_unreachable:count[%(past)s] offset %(w)s)
            ||| % { cl: cl, n: node, lately: std.strReplace(lately('cluster_node:unreachable_dark:bool'), '\n', '\n  '), past: t.d('1h'), w: t.d('15m'), nodes: c.thresholds.node.unreachableNodes },
          },
          {
            // 1 for each of these nodes that became so within the same quarter of an hour as others, as long as it is so: machines do not break together, and no reboot mends what they share. A policy, a switch or a power feed
            // of less than FleetNodesUnreachable's share of the fleet shuts out a pool, perhaps one port after the other: those
            // fell silent when the last one was closed. NodeUnreachable leaves out those that are given up. One whose kubelet
            // reports, or reports again, may be at work behind a firewall, for as long as that is so. It is known for hours in
            // which nobody says anything of them, control plane, probers or rulers: an hour is too short for that, and the
            // twenty minutes after which a silent kubelet counts.
            // Where exporters answer again after one evaluation or two they missed a scrape, and it is forgotten; but not of nodes that
            // could be reached until then. A switch may be away for minutes and half an hour later for good, and of machines without
            // power Ready turns Unknown after minutes, and then they may boot: neither is new any more when it is back.
            record: 'cluster_node:unreachable_together:bool',
            expr: |||
              group by (%(n)s) (cluster_node:unreachable:ratio)
              and on (%(n)s)
              (
                (
                  %(lately)s
                  or on (%(n)s)
                  cluster_node:unreachable_dark_newly:bool
                )
                and on (%(cl)s)
                count by (%(cl)s) (cluster_node:unreachable_dark_newly:bool) >= %(nodes)g
                or on (%(n)s)
                count_over_time(cluster_node:unreachable_together:bool[%(past)s]) > 2
                or on (%(n)s)
                last_over_time(cluster_node:unreachable_newly_together:bool[%(past)s])
                or on (%(n)s)
                last_over_time(cluster_node:unreachable_together:bool[%(now)s])
                and on (%(n)s)
                cluster_node:unreachable_dark:bool
              )
            ||| % { cl: cl, n: node, lately: std.strReplace(lately(), '\n', '\n    '), nodes: c.thresholds.node.unreachableNodes, past: t.recorded('6h'), now: t.recorded('5m') },
          },
          {
            // Nodes that most probers do not reach; NodeUnreachable has the patience that this has not.
            record: 'cluster:nodes_unreachable:count',
            expr: |||
              count by (%(cl)s) (
                count by (%(n)s) (probe_success{%(mesh)s} == 0)
                >= on (%(cl)s) group_left ()
                %(agree)g * count by (%(cl)s) (count by (%(cl)s, prober) (probe_success{%(mesh)s}))
              )
              or on (%(cl)s)
              0 * count by (%(cl)s) (probe_success{%(mesh)s})
            ||| % { cl: cl, n: node, mesh: c.selectors.nodeMesh, agree: c.thresholds.node.probersAgree },
          },
        ],
      },
      {
        name: 'node.readonly',
        interval: t.d('1m'),
        rules: [
          {
            // 1 for each node of which a file system went read-only within the same quarter of an hour as those of others, as long as it is so: disks do not break together, and nothing of their nodes is mended by a drain. They may
            // share a storage, or a setting of node-exporter that was rolled out tells it of all mounts.
            record: 'cluster_node:filesystem_readonly_together:bool',
            expr: |||
              group by (%(n)s) (node:filesystem_readonly_lately:bool)
              and on (%(n)s)
              (
                node:filesystem_readonly_lately:bool == 1
                and on (%(cl)s)
                count by (%(cl)s) (node:filesystem_readonly_lately:bool == 1) >= %(nodes)g
                or on (%(n)s)
                last_over_time(cluster_node:filesystem_readonly_together:bool[%(past)s])
              )
            ||| % { cl: cl, n: node, nodes: c.thresholds.node.readonlyNodes, past: t.recorded('6h') },
          },
        ],
      },
      {
        name: 'node.quantiles',
        interval: t.d('1m'),
        rules: [
          {
            record: quantiles[name],
            labels: { quantile: '%g' % q },
            expr: 'quantile by (%s) (%g, %s)' % [cl, q, name],
          }
          for name in std.objectFields(quantiles)
          for q in c.quantiles
        ],
      },
    ],
  },
}
