// Traffic: to and from the internet by namespace, inside the cluster, over
// InfiniBand, and whether all of it is counted.
//
// A node's counters do not know pods. What a namespace sends is what its nodes
// forward, by what its pods there send in all, and what its nodes send themselves,
// by the GPUs that it holds (rules/network.libsonnet); what a pod sends is
// what its network namespace does, which pods in the host's network do not have.
{
  local c = $._config,
  local g = (import '../lib/g.libsonnet')(c),
  local th = c.thresholds.network,
  local f = {
    cl: g.cl,
    cluster: c.clusterLabel,
    node: c.nodeLabel,
    ns: c.namespaceLabel,
    pod: c.podLabel,
    cadvisor: c.selectors.cadvisor,
    // Namespaces that were chosen; recorded series name a namespace as everything else does.
    chosen: '%s=~"$namespace"' % c.namespaceLabel,
    i: g.i,
  },
  // quantiles are those that are recorded, each in a colour of its own.
  local quantiles(series) = [
    g.q('max(%s{%s, quantile="%g"}) * 8' % [series, g.cl, q], 'p%g' % (100 * q))
    for q in c.quantiles
  ],
  local toNode = g.link('Node', 'node', { node: g.field(c.nodeLabel) }),
  local thisNamespace = g.link('Only this namespace', 'network', { namespace: g.field(c.namespaceLabel) }),

  local byNamespace(title, direction, description, trouble) = g.timeseries(title, {
    description: description,
    unit: 'bps',
    w: 12,
    h: 9,
    stack: true,
    targets: [g.q('topk(10, sum by (%(ns)s) (namespace:net_internet_%(d)s_bytes:rate5m{%(cl)s, %(chosen)s})) * 8' % (f { d: direction }), '{{%(ns)s}}' % f)],
    trouble: trouble,
    budget: 200,
  }),

  grafanaDashboards+:: {
    'network.json': g.dashboard({
      name: 'network',
      title: 'Network by namespace and pod',
      description: 'Who sends how much where, whether links are sound, and whether all traffic is counted.',
      variables: [
        g.clusterVar,
        g.var('namespace', 'Namespace', 'label_values(namespace:net_internet_out_bytes:rate5m{%(cl)s}, %(ns)s)' % f, { multi: true, includeAll: true, description: 'Namespaces with traffic of their own.' }),
      ],
      rows: [
        g.row('', [
          g.stat('Egress against usual', {
            description: 'What the clusters send to the internet now, as a multiple of their mean over a week. About 1 is normal; InternetEgressJump fires at %gx. If it is high, the table below names the namespace.' % th.egressFactor,
            unit: 'none',
            decimals: 2,
            thresholds: [[null, 'ok'], [2, 'warn'], [th.egressFactor, 'bad']],
            targets: [g.q('sum(cluster:net_internet_out_bytes:rate5m{%(cl)s}) / sum(avg_over_time(cluster:net_internet_out_bytes:rate5m{%(cl)s}[1w]))' % f)],
            verdict: true,
            trouble: ['EgressJump'],
          }),
          g.stat('To the internet', {
            description: 'Bits a second that nodes send out of the cluster.',
            unit: 'bps',
            sparkline: true,
            targets: [g.q('sum(cluster:net_internet_out_bytes:rate5m{%(cl)s}) * 8' % f)],
            trouble: ['EgressJump'],
          }),
          g.stat('From the internet', {
            description: 'Bits a second that come in from outside: data sets, images, packages.',
            unit: 'bps',
            sparkline: true,
            targets: [g.q('sum(cluster:net_internet_in_bytes:rate5m{%(cl)s}) * 8' % f)],
          }),
          g.stat('Nodes accounted for', {
            description: 'Ready nodes whose traffic counters are tagged, as a share. Below %g %% bills are too low and a leak there would not be seen: NetworkAccountingLost.' % (100 * th.accounting),
            unit: 'percentunit',
            decimals: 1,
            thresholds: [[null, 'bad'], [th.accounting, 'warn'], [1, 'ok']],
            max: 1,
            targets: [g.q('clamp_max((sum(cluster:net_accounted_nodes:count{%(cl)s}) or 0 * sum(cluster:nodes:count{%(cl)s})) / sum(cluster:nodes_ready:sum{%(cl)s}), 1)' % f)],
            trouble: ['NetworkAccountingLost'],
          }),
          g.stat('InfiniBand', {
            description: 'Bits a second that nodes send to each other over InfiniBand. It follows training: none at all while GPUs are busy is a broken fabric.',
            unit: 'bps',
            sparkline: true,
            targets: [g.q('sum(cluster:infiniband_transmitted_bytes:rate5m{%(cl)s}) * 8' % f)],
          }),
          g.stat('Racks with port errors', {
            description: 'Racks in which an InfiniBand port went down, had to recover or took in damaged packets in the last five minutes. None is normal; one slow link holds up the whole gang.',
            unit: 'short',
            thresholds: [[null, 'ok'], [1, 'warn']],
            targets: [g.q('count(rack:infiniband_errors:rate5m{%(cl)s} > 0) or 0 * sum(cluster:nodes:count{%(cl)s})' % f)],
          }),
        ]),
        g.row('To and from the internet: who?', [
          byNamespace('Sent to the internet by namespace', 'out', 'The ten namespaces that send most. What a node forwards is divided by what its pods send in all; what is sent from its own network, if the chain OUTPUT is counted, goes by the GPUs held, and to "%s" while nobody holds any.' % c.unassignedTeam, ['EgressJump', 'NetworkAccountingLost']),
          byNamespace('Received from the internet by namespace', 'in', 'The ten namespaces that receive most. A flat ceiling is usually the link or a mirror at its limit.', []),
          g.table('Namespaces, now', {
            description: 'What the namespaces that send or receive most do, and how that compares with its mean over a week. A namespace at several times its usual either started something or leaks; ask its team.',
            w: 12,
            h: 9,
            targets: [
              g.q('topk(15, namespace:net_internet_out_bytes:rate5m{%(cl)s, %(chosen)s}) * 8' % f),
              g.q('topk(15, namespace:net_internet_in_bytes:rate5m{%(cl)s, %(chosen)s}) * 8' % f),
              g.q('topk(15, namespace:net_internet_out_bytes:rate5m{%(cl)s, %(chosen)s}) / on (%(cluster)s, %(ns)s) avg_over_time(namespace:net_internet_out_bytes:rate5m{%(cl)s, %(chosen)s}[1w])' % f),
            ],
            columns: [
              { field: c.clusterLabel, title: 'Cluster', width: 90, hide: !c.showMultiCluster },
              { field: c.namespaceLabel, title: 'Namespace', link: thisNamespace },
              { field: 'Value #A', title: 'Sent', unit: 'bps', width: 110 },
              { field: 'Value #B', title: 'Received', unit: 'bps', width: 110 },
              { field: 'Value #C', title: 'Against usual', unit: 'none', decimals: 2, width: 130, thresholds: [[null, 'text'], [2, 'warn'], [th.egressFactor, 'bad']] },
            ],
            sortBy: 'Sent',
            trouble: ['EgressJump'],
          }),
          g.table('Pods that send most', {
            description: "All that leaves the network of a pod, wherever it goes; pods in the host's network are not seen. Compare with the namespace beside it to find which pod sends out.",
            w: 12,
            h: 9,
            targets: [g.q('topk(20, sum by (%(cluster)s, %(node)s, %(ns)s, %(pod)s) (rate(container_network_transmit_bytes_total{%(cl)s, %(cadvisor)s, %(chosen)s, %(pod)s!=""}[%(i)s]))) * 8' % f)],
            columns: [
              { field: c.clusterLabel, title: 'Cluster', width: 90, hide: !c.showMultiCluster },
              { field: c.namespaceLabel, title: 'Namespace' },
              { field: c.podLabel, title: 'Pod' },
              { field: c.nodeLabel, title: 'Node', width: 110, link: toNode },
              { field: 'Value', title: 'Sent', unit: 'bps', width: 110 },
            ],
            sortBy: 'Sent',
            trouble: ['EgressJump'],
          }),
        ]),
        g.row('Inside the cluster', [
          g.timeseries('Ethernet: all, and what is internet', {
            description: 'What nodes send over Ethernet, and how much of it leaves the cluster. The rest is storage, images and pods talking to each other.',
            unit: 'bps',
            w: 12,
            colors: ['d', 'a'],
            targets: [
              g.q('sum(cluster:ethernet_transmitted_bytes:rate5m{%(cl)s}) * 8' % f, 'all'),
              g.q('sum(cluster:net_internet_out_bytes:rate5m{%(cl)s}) * 8' % f, 'to the internet'),
            ],
            trouble: ['EgressJump'],
          }),
          g.timeseries('Is the load even?', {
            description: 'What the median, the 90th and the 99th node of 100 send to the internet. Lines far apart: a few nodes do most of it, the table beside names them.',
            unit: 'bps',
            w: 12,
            targets: quantiles('cluster:node_net_internet_out_bytes:quantile'),
            trouble: ['EgressJump'],
          }),
          g.table('Nodes that send most to the internet', {
            description: 'Twenty nodes by what they send out of the cluster. One far above the others is worth a look at what runs there.',
            w: 24,
            h: 8,
            targets: [
              g.q('topk(20, node:net_internet_out_bytes:rate5m{%(cl)s}) * 8' % f),
              g.q('topk(20, node:net_internet_out_bytes:rate5m{%(cl)s}) / on (%(cluster)s) group_left () cluster:net_internet_out_bytes:rate5m{%(cl)s}' % f),
            ],
            columns: [
              { field: c.clusterLabel, title: 'Cluster', width: 90, hide: !c.showMultiCluster },
              { field: c.nodeLabel, title: 'Node', link: toNode },
              { field: 'Value #A', title: 'Sent', unit: 'bps' },
              { field: 'Value #B', title: 'Of the cluster', unit: 'percentunit', decimals: 1 },
            ],
            sortBy: 'Sent',
            trouble: ['EgressJump'],
          }),
        ]),
        g.row('InfiniBand', [
          g.timeseries('Sent by node: median and tail', {
            description: 'What the median, the 90th and the 99th node of 100 send over InfiniBand. A median that falls while jobs run means that jobs wait for something.',
            unit: 'bps',
            w: 12,
            targets: quantiles('cluster:node_infiniband_transmitted_bytes:quantile'),
          }),
          g.timeseries('Sent by rack', {
            description: 'The ten racks that send most over InfiniBand. Racks of one job move together; one that drops out of step is where to look.',
            unit: 'bps',
            w: 12,
            targets: [g.q('topk(10, rack:infiniband_transmitted_bytes:rate5m{%(cl)s}) * 8' % f, '{{%(cluster)s}} {{rack}}' % f)],
            budget: 100,
          }),
          g.table('Racks', {
            description: 'Racks with the most port errors first, then those with the most traffic. Errors above none: clean or replace the cable before the next gang is placed there.',
            w: 24,
            h: 8,
            targets: [
              g.q('topk(50, sum by (%(cluster)s, rack) (rack:infiniband_errors:rate5m{%(cl)s}))' % f),
              g.q('rack:infiniband_transmitted_bytes:rate5m{%(cl)s} * 8 and on (%(cluster)s, rack) topk(50, rack:infiniband_errors:rate5m{%(cl)s})' % f),
              g.q('rack:infiniband_received_bytes:rate5m{%(cl)s} * 8 and on (%(cluster)s, rack) topk(50, rack:infiniband_errors:rate5m{%(cl)s})' % f),
            ],
            columns: [
              { field: c.clusterLabel, title: 'Cluster', width: 90, hide: !c.showMultiCluster },
              { field: 'rack', title: 'Rack', link: g.link('GPUs of the fleet', 'gpu-fleet') },
              { field: 'Value #A', title: 'Port errors', unit: 'cps', thresholds: [[null, 'text'], [1e-9, 'warn']] },
              { field: 'Value #B', title: 'Sent', unit: 'bps' },
              { field: 'Value #C', title: 'Received', unit: 'bps' },
            ],
            sortBy: 'Port errors',
          }),
        ]),
        g.row('Is all of it counted?', [
          g.timeseries('Nodes with tagged counters', {
            description: 'Ready nodes, and those whose iptables rules are tagged. A gap means rules that were flushed, or an exporter that is gone; restore them before the month is billed.',
            unit: 'short',
            w: 12,
            decimals: 0,
            colors: ['d', 'a'],
            targets: [
              g.q('sum(cluster:nodes_ready:sum{%(cl)s})' % f, 'ready'),
              g.q('sum(cluster:net_accounted_nodes:count{%(cl)s}) or 0 * sum(cluster:nodes:count{%(cl)s})' % f, 'accounted for'),
            ],
            trouble: ['NetworkAccountingLost'],
          }),
          g.table('Ready nodes that count nothing', {
            description: 'Up to twenty ready nodes without a tagged counter. Look at the iptables exporter and at the mangle table there.',
            w: 12,
            targets: [g.q('topk(20, (node:ready:max{%(cl)s} == 1) unless on (%(cluster)s, %(node)s) node:net_internet_out_bytes:rate5m{%(cl)s})' % f)],
            columns: [
              { field: c.clusterLabel, title: 'Cluster', width: 90, hide: !c.showMultiCluster },
              { field: c.nodeLabel, title: 'Node', link: toNode },
            ],
            quiet: 'every ready node counts',
            trouble: ['NetworkAccountingLost'],
          }),
        ]),
      ],
    }),
  },
}
