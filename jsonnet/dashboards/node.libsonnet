// Nodes, whatever is in them: can they be reached, do they resolve names, are
// their disks and their kernel's tables sound? At the end one node by itself.
{
  local c = $._config,
  local t = c.thresholds,
  local g = (import '../lib/g.libsonnet')(c),
  local gpus = (import '../lib/gpu.libsonnet')(c),
  local f = {
    cl: g.cl,
    cluster: c.clusterLabel,
    node: c.nodeLabel,
    byNode: gpus.byNode,
    i: g.i,
    ksm: c.selectors.ksm,
    coredns: c.selectors.coredns,
    mesh: c.selectors.nodeMesh,
    fs: c.node.filesystems,
    exporter: '%s, %s' % [g.cl, c.selectors.nodeExporter],
    // The node that the reader chose.
    one: '%s, %s, %s="$node"' % [g.cl, c.selectors.nodeExporter, c.nodeLabel],
    n: '%s, %s="$node"' % [g.cl, c.nodeLabel],
    full: '%g' % t.node.full,
    arp: '%g' % t.node.arp,
  },
  local q(expr, legend='', o={}) = g.q(expr % f, legend, o),

  local cluster = { field: c.clusterLabel, title: 'Cluster', width: 85 },
  local node = { field: c.nodeLabel, title: 'Node', link: g.link('This node', 'node', { cluster: g.field(c.clusterLabel), node: g.field(c.nodeLabel) }) },
  // A table of several queries has cells that one of them does not speak of.
  local none = [null, '–'],
  local toNode = g.link('This node', 'node', { cluster: g.label(c.clusterLabel), node: g.label(c.nodeLabel) }),

  // Clusters may have nodes of one name.
  local ofCluster = if c.showMultiCluster then ' {{%s}}' % c.clusterLabel else '',

  // quantiles over the nodes: the worst one alone is a broken node, all together are the cluster.
  local quantiles(title, series, o) = g.timeseries(title, {
    w: 8,
    unit: 'percentunit',
    targets: [q('max(%s{%%(cl)s, quantile="%g"})' % [series, n], if n == 0.5 then 'median' else 'p%g' % (n * 100)) for n in c.quantiles],
  } + o),

  grafanaDashboards+:: {
    'node.json': g.dashboard({
      name: 'node',
      title: 'Node health',
      description: 'Can the nodes be reached, do names resolve, are disks and kernel tables sound?',
      variables: [
        g.clusterVar,
        g.var('node', 'Node', 'label_values(node:ready:max{%s}, %s)' % [g.cl, c.nodeLabel], { description: 'The node of the last row.' }),
      ],
      rows: [
        g.row('', [
          g.stat('Nodes not ready', {
            description: 'Share of all nodes whose kubelet does not report them as ready. A few of thousands always are; from the red line on somebody is paged.',
            unit: 'percentunit',
            decimals: 1,
            verdict: true,
            thresholds: [[null, 'ok'], [t.fleet.notReady / 2, 'warn'], [t.fleet.notReady, 'bad']],
            targets: [q('1 - sum(cluster:nodes_ready:sum{%(cl)s}) / sum(cluster:nodes:count{%(cl)s})')],
            trouble: ['NodeNotReady'],
          }),
          g.stat('Cannot be reached', {
            description: 'Nodes that most probers do not reach through the pod network, though their kubelet may report. Normal is none for longer than a minute or two.',
            unit: 'none',
            mappings: [['0', 'None']],
            thresholds: [[null, 'ok'], [1, 'warn'], [t.fleet.notReadyNodes, 'bad']],
            targets: [q('sum(cluster:nodes_unreachable:count{%(cl)s})')],
            trouble: ['NodeUnreachable'],
          }),
          g.stat('Cordoned', {
            description: 'Nodes that take no new pods since somebody, or the remediation controller, said so. Many that stay are repairs that nobody ends.',
            unit: 'none',
            sparkline: true,
            targets: [q('sum(cluster:nodes_cordoned:sum{%(cl)s})')],
            links: [g.link('Alerts and remediation', 'alerts')],
          }),
          g.stat('DNS that fails', {
            description: 'SERVFAIL as a share of what CoreDNS answers. Above the red line jobs fail to start and to find each other.',
            unit: 'percentunit',
            decimals: 2,
            sparkline: true,
            thresholds: [[null, 'ok'], [t.dns.errors / 2, 'warn'], [t.dns.errors, 'bad']],
            targets: [q('sum(cluster_rcode:coredns_dns_responses:rate5m{%(cl)s, rcode="SERVFAIL"}) / sum(cluster_rcode:coredns_dns_responses:rate5m{%(cl)s})')],
            trouble: ['DNSErrors'],
          }),
          g.stat('Full disks', {
            description: 'File systems that are more than %g %% full. Normal is none: images cannot be pulled there and pods are evicted.' % (t.node.full * 100),
            unit: 'none',
            mappings: [['0', 'None']],
            thresholds: [[null, 'ok'], [1, 'warn'], [10, 'bad']],
            targets: [q('count(node:filesystem_used:ratio{%(cl)s} > %(full)s) or 0 * sum(cluster:nodes:count{%(cl)s})')],
            trouble: ['NodeDiskFull'],
          }),
          g.stat('Fullest neighbour table', {
            description: 'Entries as a share of what the kernel allows. All nodes come to the limit together, since each talks to all: raise gc_thresh3 everywhere before one does.',
            unit: 'percentunit',
            decimals: 0,
            thresholds: [[null, 'ok'], [0.75 * t.node.arp, 'warn'], [t.node.arp, 'bad']],
            targets: [q('max(node:arp_entries:ratio{%(cl)s})')],
            trouble: ['NodeARPTableFilling', 'NodeARPTableOverflow'],
          }),
        ]),

        g.row('Can they be reached?', [
          g.heatmap('Probes that fail, by rack', {
            description: 'The 40 worst racks of the time shown. A dark line is one rack: its switch or its power. A dark column is everything at once: the network between racks, or the probers.',
            unit: 'none',
            cellUnit: 'percentunit',
            rows: true,
            cellMin: 0,
            h: 10,
            budget: 100,
            targets: [q(|||
              max by (%(cluster)s, rack) (rack:probes_failed:ratio{%(cl)s})
              and on (%(cluster)s, rack)
              topk(40, max by (%(cluster)s, rack) (max_over_time(rack:probes_failed:ratio{%(cl)s}[$__range] @ end())))
            |||, '{{rack}} {{%(cluster)s}}' % f)],
            trouble: ['NodeUnreachable'],
          }),
          g.timeseries('Probes that fail, by prober', {
            description: 'All lines rise: nodes are gone. One rises: that prober, or its own network, is. An alert needs most of them to agree.',
            unit: 'percentunit',
            w: 6,
            h: 10,
            softMax: 0.02,
            targets: [q('max by (%(cluster)s, prober) (prober:probes_failed:ratio{%(cl)s})', '{{prober}} {{%(cluster)s}}' % f)],
            trouble: ['NodeUnreachable'],
          }),
          g.table('Nodes with failing probes', {
            description: 'How many of the probers do not reach a node now. One of them is noise, all of them is the node: cordon it and look at its network.',
            unit: 'none',
            w: 6,
            h: 10,
            targets: [q('topk(25, count by (%(byNode)s) (probe_success{%(cl)s, %(mesh)s} == 0))')],
            columns: [cluster, node, { field: 'Value', title: 'Probers', width: 80, decimals: 0, thresholds: [[null, 'text'], [t.node.probers, 'bad']] }],
            sortBy: 'Probers',
            quiet: 'every prober reaches every node',
            trouble: ['NodeUnreachable'],
          }),
          g.timeseries('Nodes by state', {
            description: 'Not ready and cordoned, over all. A step up is an outage or a rollout; a slow rise is repairs that are not ended.',
            unit: 'none',
            w: 12,
            h: 6,
            targets: [
              q('sum(cluster:nodes:count{%(cl)s}) - sum(cluster:nodes_ready:sum{%(cl)s})', 'not ready'),
              q('sum(cluster:nodes_cordoned:sum{%(cl)s})', 'cordoned'),
              q('sum(cluster:nodes_unreachable:count{%(cl)s})', 'not reached'),
            ],
            colors: ['bad', 'd', 'warn'],
            trouble: ['NodeNotReady', 'NodeUnreachable'],
          }),
          g.table('Nodes that are not ready', {
            description: "By the kubelet's own report, or for want of one. A node is given up after five minutes and its jobs are evicted.",
            unit: 'none',
            w: 12,
            h: 6,
            // With their racks, where they have any.
            targets: [
              q(
                'topk(25, (1 - max by (%(byNode)s) (node:ready:max{%(cl)s} == 0)) * on (%(byNode)s) group_left (rack) node:rack:info{%(cl)s}'
                + ' or on (%(byNode)s) 1 - max by (%(byNode)s) (node:ready:max{%(cl)s} == 0))'
              ),
            ],
            columns: [cluster, node, { field: 'rack', title: 'Rack' }],
            quiet: 'every node is ready',
            trouble: ['NodeNotReady'],
          }),
        ]),

        g.row('Do names resolve?', [
          g.timeseries('DNS answers by code', {
            description: 'NXDOMAIN is normal: search paths make several of each question. SERVFAIL is not: CoreDNS or what it forwards to is broken.',
            unit: 'ops',
            w: 8,
            targets: [q('sum by (rcode) (cluster_rcode:coredns_dns_responses:rate5m{%(cl)s})', '{{rcode}}')],
            overrides: [{ match: { name: 'SERVFAIL' }, color: 'bad', lineWidth: 2 }],
            trouble: ['DNSErrors'],
          }),
          g.timeseries('DNS answer time', {
            description: 'From the cache it is under a millisecond. A high p99 with a low p50 is the upstream server; both high is CoreDNS out of CPU.',
            unit: 's',
            w: 8,
            targets: [
              q('histogram_quantile(0.5, sum by (le) (cluster_le:coredns_dns_request_duration_seconds_bucket:rate5m{%(cl)s}))', 'p50'),
              q('histogram_quantile(0.99, sum by (le) (cluster_le:coredns_dns_request_duration_seconds_bucket:rate5m{%(cl)s}))', 'p99'),
            ],
            trouble: ['DNSSlow'],
          }),
          g.heatmap('DNS answers by time', {
            description: 'A second band far above the first is an upstream server that times out.',
            unit: 's',
            cellUnit: 'ops',
            w: 8,
            targets: [q('sum by (le) (cluster_le:coredns_dns_request_duration_seconds_bucket:rate5m{%(cl)s})', '{{le}}')],
            trouble: ['DNSSlow'],
          }),
        ]),

        g.row('Disks and kernel', [
          g.table('Disks that are broken', {
            description: 'File systems that were writable until the kernel made them read-only after errors, or that it cannot read at all. Drain the node and change the disk.',
            unit: 'none',
            w: 8,
            targets: [
              q('topk(25, max by (%(byNode)s, mountpoint) (node_filesystem_readonly{%(exporter)s, %(fs)s} == 1 and on (%(byNode)s, mountpoint, device) node:filesystem_was_writable:bool{%(cl)s}))'),
              q('topk(25, max by (%(byNode)s, mountpoint) (node_filesystem_device_error{%(exporter)s, %(fs)s} == 1))'),
            ],
            columns: [
              cluster,
              node,
              { field: 'mountpoint', title: 'Mounted on', width: 115 },
              { field: 'Value #A', title: 'Read-only', width: 85, mappings: [['1', 'yes', 'bad'], none], thresholds: [[null, 'text']] },
              { field: 'Value #B', title: 'Error', width: 65, mappings: [['1', 'yes', 'bad'], none], thresholds: [[null, 'text']] },
            ],
            quiet: 'no file system is read-only or broken',
            trouble: ['NodeDiskReadOnly', 'NodeDiskError'],
          }),
          g.bargauge('Fullest disks', {
            description: "File systems by the share that is used. Scratch is the jobs' to clean; / is images and logs.",
            unit: 'percentunit',
            decimals: 0,
            max: 1,
            thresholds: [[null, 'a'], [0.9, 'warn'], [t.node.full, 'bad']],
            targets: [q('topk(8, max by (%(byNode)s, mountpoint) (node:filesystem_used:ratio{%(cl)s}))', '{{%s}}%s {{mountpoint}}' % [c.nodeLabel, ofCluster])],
            links: [toNode],
            trouble: ['NodeDiskFull'],
          }),
          g.timeseries('What the kernel logs', {
            description: 'Problems in five minutes that node-problem-detector read in kernel logs, by reason, over all nodes. IOError and Ext4Error are disks, TaskHung is a kernel that waits for one, OOMKilling is jobs.',
            unit: 'none',
            decimals: 0,
            w: 8,
            draw: 'bars',
            stack: true,
            fill: 80,
            interval: '5m',
            // Bars are as wide as two neighbouring values are apart: a zero at each step keeps one problem from being an hour wide.
            targets: [
              q('sum by (reason) (node_reason:problems:increase5m{%(cl)s})', '{{reason}}'),
              q('0 * sum(cluster:nodes:count{%(cl)s})', 'none'),
            ],
            overrides: [{ match: { name: 'none' }, hideFrom: { legend: true, tooltip: true, viz: false } }],
            quiet: 'the kernels have nothing to say',
            trouble: ['NodeDiskError', 'NodeDiskReadOnly', 'GPUXidFatal'],
          }),
          g.table('Nodes with kernel problems', {
            description: 'In the time shown, most first. One reason on many nodes is a rollout; many on one node is its hardware.',
            unit: 'none',
            w: 8,
            targets: [q('topk(25, sum by (%(byNode)s, reason) (avg_over_time(node_reason:problems:increase5m{%(cl)s}[$__range])))')],
            columns: [cluster, node, { field: 'reason', title: 'Reason' }, { field: 'Value', title: 'In 5 min', width: 85, decimals: 0 }],
            sortBy: 'In 5 min',
            quiet: 'the kernels have nothing to say',
            trouble: ['NodeDiskError', 'NodeDiskReadOnly', 'GPUXidFatal'],
          }),
          quantiles('Neighbour tables', 'cluster:node_arp_entries:quantile', {
            description: 'Entries as a share of gc_thresh3: the median of the nodes, and the highest tenth and hundredth. They rise with the number of nodes and pods that each node talks to.',
            thresholds: [[null, 'text'], [t.node.arp, 'bad']],
            softMax: 0.2,
            trouble: ['NodeARPTableFilling', 'NodeARPTableOverflow'],
          }),
          quantiles('Connection tables', 'cluster:node_conntrack_entries:quantile', {
            description: 'Entries as a share of nf_conntrack_max, likewise. When it is full new connections are dropped without a word.',
            softMax: 0.1,
          }),
          g.table('Neighbour tables that overflow', {
            description: 'Entries that the kernel refused in five minutes for want of room. Connections to new addresses fail there: raise gc_thresh3, on all nodes.',
            unit: 'none',
            w: 8,
            targets: [q('topk(25, sum by (%(byNode)s) (node:arp_overflows:increase5m{%(cl)s}))')],
            columns: [cluster, node, { field: 'Value', title: 'Refused', width: 90, decimals: 0 }],
            sortBy: 'Refused',
            quiet: 'no table is full',
            trouble: ['NodeARPTableOverflow'],
          }),
          g.bargauge('Network errors', {
            description: 'Packets a second that were broken on receiving or sending, worst nodes. One node far ahead has a bad cable, optic or port.',
            unit: 'pps',
            decimals: 2,
            targets: [q('topk(8, max by (%(byNode)s) (node:network_errors:rate5m{%(cl)s}))', '{{%s}}%s' % [c.nodeLabel, ofCluster])],
            links: [toNode],
          }),
          quantiles('Clock offset', 'cluster:node_clock_offset_seconds:quantile', {
            description: "How far the nodes' clocks are off, by NTP. Beyond 50 ms leases and certificates begin to fail, and samples are out of order.",
            unit: 's',
            softMax: 0.01,
            thresholds: [[null, 'text'], [0.05, 'warn']],
          }),
        ]),

        g.row('How busy they are', [
          quantiles('CPU', 'cluster:node_cpu_busy:quantile', {
            w: 6,
            description: "Share of the CPUs' time that was not idle. GPU nodes mostly feed GPUs: the top hundredth at 100 % is data loading that holds them up.",
            max: 1,
          }),
          quantiles('Load per CPU', 'cluster:node_load1_per_cpu:quantile', {
            w: 6,
            description: 'Processes that run or wait for a disk, per CPU. Above 1 they wait; far above it with an idle CPU a file system hangs.',
            unit: 'none',
          }),
          quantiles('Memory', 'cluster:node_memory_used:quantile', {
            w: 6,
            description: 'Share of the memory that is not available. Near 1 the kernel kills.',
            max: 1,
          }),
          quantiles('Disks', 'cluster:node_disk_busy:quantile', {
            w: 6,
            description: 'Share of time in which the busiest disk of a node worked. NVMe disks do many things at once: 1 is not yet full.',
            max: 1,
          }),
        ]),

        g.row('One node: $node', [
          g.stateTimeline('Conditions', {
            description: 'What the kubelet and node-problem-detector say of the node. Ready should be true and all others false.',
            unit: 'none',
            h: 9,
            w: 12,
            mappings: [['0', 'as it should be', 'ok'], ['1', 'not so', 'bad']],
            targets: [q(|||
              max by (condition) (kube_node_status_condition{%(n)s, %(ksm)s, condition!="Ready", status="true"})
              or
              1 - max by (condition) (kube_node_status_condition{%(n)s, %(ksm)s, condition="Ready", status="true"})
            |||, '{{condition}}')],
            links: [g.link('Its GPUs', 'gpu-node', { node: '${node}' })],
            trouble: ['NodeNotReady', 'NodeDiskReadOnly'],
          }),
          g.timeseries('CPU by mode', {
            description: 'Mean over its CPUs. iowait is a disk or a file server that does not keep up.',
            unit: 'percentunit',
            w: 6,
            h: 9,
            stack: true,
            max: 1,
            targets: [q('avg by (mode) (rate(node_cpu_seconds_total{%(one)s, mode!="idle"}[%(i)s]))', '{{mode}}')],
          }),
          g.timeseries('Memory of the node', {
            description: 'Used is what could not be had back.',
            unit: 'bytes',
            w: 6,
            h: 9,
            targets: [
              q('max(node_memory_MemTotal_bytes{%(one)s}) - max(node_memory_MemAvailable_bytes{%(one)s})', 'used'),
              q('max(node_memory_MemTotal_bytes{%(one)s})', 'installed'),
            ],
            colors: ['a', 'd'],
          }),
          g.timeseries('File systems', {
            description: 'Share that is used.',
            unit: 'percentunit',
            w: 6,
            max: 1,
            thresholds: [[null, 'text'], [t.node.full, 'bad']],
            targets: [q('max by (mountpoint) (node:filesystem_used:ratio{%(n)s})', '{{mountpoint}}')],
            trouble: ['NodeDiskFull'],
          }),
          g.timeseries('Disk traffic', {
            description: 'Read and written, by disk.',
            unit: 'Bps',
            w: 6,
            targets: [
              q('sum by (device) (rate(node_disk_read_bytes_total{%(one)s}[%(i)s]))', 'read {{device}}'),
              q('sum by (device) (rate(node_disk_written_bytes_total{%(one)s}[%(i)s]))', 'written {{device}}'),
            ],
          }),
          g.timeseries('Network traffic', {
            description: 'By interface; InfiniBand counts apart, on the network dashboard.',
            unit: 'Bps',
            w: 6,
            targets: [
              q('sum by (device) (rate(node_network_receive_bytes_total{%(one)s}[%(i)s]))', 'received {{device}}'),
              q('sum by (device) (rate(node_network_transmit_bytes_total{%(one)s}[%(i)s]))', 'sent {{device}}'),
            ],
          }),
          g.timeseries('Time spent waiting', {
            description: "Share of time in which some task waited for CPU, disk or memory (the kernel's pressure). Anything for memory is too much.",
            unit: 'percentunit',
            w: 6,
            targets: [
              q('max(rate(node_pressure_cpu_waiting_seconds_total{%(one)s}[%(i)s]))', 'CPU'),
              q('max(rate(node_pressure_io_waiting_seconds_total{%(one)s}[%(i)s]))', 'disk'),
              q('max(rate(node_pressure_memory_waiting_seconds_total{%(one)s}[%(i)s]))', 'memory'),
            ],
          }),
        ]),
      ],
    }),
  },
}
