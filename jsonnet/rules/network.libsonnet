// Traffic to and from the internet, which iptables rules tag on each node and
// which the scrape relabelings turn into the label `traffic`.
//
// A counter knows the node and the chain, not the pod. What is forwarded is that of
// pods with networks of their own, and is divided among their namespaces by what
// these send and receive themselves, which cAdvisor counts there; no pod gets more
// than that. The rest is that of the host's network, if its chains OUTPUT and INPUT
// are counted too, and what is too little to be told apart: it goes to the
// namespaces that hold the node's GPUs, by how many they hold. Where a pod in the
// host's network holds some, only what other chains count goes to them: what is
// forwarded is never its own, and what no pod was seen to send is nobody's. cAdvisor
// gives such a pod the whole node's traffic (google/cadvisor#2615), so that where
// the forwarded part cannot be told, all of the node's goes to the holders: exact
// where one job has the whole node, which is how such jobs run. What is left while
// nobody holds a GPU there is on the namespace _config.unassignedTeam, so that the
// parts add up to the whole.
{
  local c = $._config,
  local t = (import '../lib/time.libsonnet')(c.timeScale),
  local node = '%s, %s' % [c.clusterLabel, c.nodeLabel],
  local cl = c.clusterLabel,
  local ns = c.namespaceLabel,
  local ne = c.selectors.nodeExporter,

  // Errors of InfiniBand ports that a job notices: links that went down or had to recover, packets that came damaged.
  local portErrors = ['node_infiniband_link_downed_total', 'node_infiniband_link_error_recovery_total', 'node_infiniband_port_errors_received_total'],

  local onRacks(series) = {
    record: 'rack:' + series,
    expr: 'sum by (%s, rack) (node:%s * on (%s) group_left (rack) node:rack:info)' % [cl, series, node],
  },
  local quantiles = {
    'node:net_internet_out_bytes:rate5m': 'cluster:node_net_internet_out_bytes:quantile',
    'node:infiniband_transmitted_bytes:rate5m': 'cluster:node_infiniband_transmitted_bytes:quantile',
  },

  local counts(name, direction, only) = {
    record: name % direction,
    expr: 'sum by (%s) (rate(%s{%s}[%s]))' % [
      node,
      c.network.bytes,
      std.join(', ', [c.selectors.iptables, '%s="%s"' % [c.network.trafficLabel, c.network.traffic[direction]]] + only),
      t.d('5m'),
    ],
  },
  local onNodes(direction) = counts('node:net_internet_%s_bytes:rate5m', direction, []),
  local forwarded(direction) = counts('node:net_internet_%s_forwarded_bytes:rate5m', direction, [c.network.podChain]),

  // A pod that is gone has a rate for minutes longer than it is in kube_pod_info, and while kube-state-metrics is away none is: who was in the host's network in the last ten minutes counts as in it.
  local inHostNetwork = 'last_over_time(kube_pod_info{%s, host_network="true"}[%s])' % [c.selectors.ksm, t.d('10m')],

  // What pods in networks of their own have of what a node forwards, or of all its traffic where that is not told: in proportion to what each sends (or receives) in all, and no more than that. None, where nobody says which these are.
  local ofPods(direction, metric) = {
    record: 'node_namespace:net_internet_%s_bytes:rate5m' % direction,
    expr: |||
      %(pods)s
      * on (%(node)s) group_left ()
      clamp_max(
        (node:net_internet_%(d)s_forwarded_bytes:rate5m or on (%(node)s) node:net_internet_%(d)s_bytes:rate5m)
        / on (%(node)s)
        (sum by (%(node)s) (%(pods)s) > 0),
        1
      )
      > %(least)g
      and on (%(cl)s)
      %(inHostNetwork)s
    ||| % {
      d: direction,
      cl: cl,
      inHostNetwork: inHostNetwork,
      node: node,
      least: c.network.podBytesPerSecond,
      pods: |||
        sum by (%(node)s, %(ns)s) (
          rate(%(m)s{%(s)s, %(i)s, %(pod)s!=""}[%(w)s])
          unless on (%(cl)s, %(ns)s, %(pod)s)
          %(inHostNetwork)s
        )
      ||| % { node: node, cl: cl, ns: ns, pod: c.podLabel, m: metric, s: c.selectors.cadvisor, i: c.network.podInterface, inHostNetwork: inHostNetwork, w: t.d('5m') },
    },
  },

  // Without nodes where a pod in the host's network holds GPUs and what is forwarded cannot be told.
  local counted(direction) =
    '(node_namespace:net_internet_%(d)s_bytes:rate5m unless on (%(node)s) (node:gpu_in_host_network:bool unless on (%(node)s) node:net_internet_%(d)s_forwarded_bytes:rate5m))' % { d: direction, node: node },

  local rest(direction) = {
    record: 'node:net_internet_%s_rest_bytes:rate5m' % direction,
    expr: |||
      clamp_min(node:net_internet_%(d)s_bytes:rate5m - on (%(node)s) node:net_internet_%(d)s_forwarded_bytes:rate5m, 0)
      and on (%(node)s)
      node:gpu_in_host_network:bool
      or on (%(node)s)
      clamp_min(
        node:net_internet_%(d)s_bytes:rate5m
        - on (%(node)s)
        sum by (%(node)s) (%(counted)s),
        0
      )
      or on (%(node)s)
      node:net_internet_%(d)s_bytes:rate5m
    ||| % { d: direction, node: node, counted: counted(direction) },
  },

  local byNamespace(direction) = {
    record: 'namespace:net_internet_%s_bytes:rate5m' % direction,
    expr: |||
      sum by (%(cl)s, %(ns)s) (
        label_replace(%(counted)s, "by", "pods", "", "")
        or
        label_replace(
          (
            sum by (%(node)s, %(ns)s) (pod:gpu_allocated:sum)
            / on (%(node)s) group_left ()
            (node:gpu_allocated:sum > 0)
          )
          * on (%(node)s) group_left ()
          node:net_internet_%(d)s_rest_bytes:rate5m,
          "by", "gpus", "", ""
        )
        or
        label_replace(
          node:net_internet_%(d)s_rest_bytes:rate5m
          unless on (%(node)s)
          (node:gpu_allocated:sum > 0),
          "%(ns)s", "%(none)s", "", ""
        )
        or
        label_replace(
          label_replace(
            (
              clamp_min(
                node:net_internet_%(d)s_forwarded_bytes:rate5m
                - on (%(node)s)
                sum by (%(node)s) (node_namespace:net_internet_%(d)s_bytes:rate5m),
                0
              )
              or on (%(node)s)
              node:net_internet_%(d)s_forwarded_bytes:rate5m
            )
            and on (%(node)s)
            node:gpu_in_host_network:bool,
            "%(ns)s", "%(none)s", "", ""
          ),
          "by", "forwarded", "", ""
        )
      )
    ||| % { cl: cl, ns: ns, node: node, d: direction, none: c.unassignedTeam, counted: counted(direction) },
  },

  prometheusRules+:: {
    groups+: [
      {
        name: 'network.nodes',
        scope:: 'shard',
        rules: [
          onNodes('out'),
          onNodes('in'),
          forwarded('out'),
          forwarded('in'),
          ofPods('out', 'container_network_transmit_bytes_total'),
          ofPods('in', 'container_network_receive_bytes_total'),
          {
            record: 'node:infiniband_transmitted_bytes:rate5m',
            expr: 'sum by (%s) (rate(node_infiniband_port_data_transmitted_bytes_total{%s}[%s]))' % [node, c.selectors.nodeExporter, t.d('5m')],
          },
          {
            record: 'node:infiniband_received_bytes:rate5m',
            expr: 'sum by (%s) (rate(node_infiniband_port_data_received_bytes_total{%s}[%s]))' % [node, c.selectors.nodeExporter, t.d('5m')],
          },
          {
            record: 'node:infiniband_errors:rate5m',
            expr: std.join('\n+ on (%s)\n' % node, ['sum by (%s) (rate(%s{%s}[%s]))' % [node, m, ne, t.d('5m')] for m in portErrors]),
          },
          {
            // Ports whose state is 4, active (IBTA 1.3, table 145, as node_exporter numbers them).
            record: 'node:infiniband_ports_active:sum',
            expr: 'sum by (%s) (node_infiniband_state_id{%s} == bool 4)' % [node, ne],
          },
          {
            // How often the worst link of a node went down. Of nodes where one did.
            record: 'node:infiniband_link_downs:max1h',
            expr: 'max by (%s) (increase(node_infiniband_link_downed_total{%s}[%s])) > 0' % [node, ne, t.d('1h')],
          },
          {
            // Of Ethernet, whatever its names: what InfiniBand carries is not counted twice where IP runs over it.
            record: 'node:ethernet_transmitted_bytes:rate5m',
            expr: 'sum by (%s) (rate(node_network_transmit_bytes_total{%s, %s}[%s]))' % [node, ne, c.network.ethernet, t.d('5m')],
          },
          {
            record: 'node:ethernet_received_bytes:rate5m',
            expr: 'sum by (%s) (rate(node_network_receive_bytes_total{%s, %s}[%s]))' % [node, ne, c.network.ethernet, t.d('5m')],
          },
        ],
      },
      {
        name: 'network.namespaces',
        interval: t.d('1m'),
        rules: [
          {
            // 1 for each node where a pod in the host's network holds GPUs.
            record: 'node:gpu_in_host_network:bool',
            expr: |||
              group by (%(node)s) (
                pod:gpu_allocated:sum
                and on (%(cl)s, %(ns)s, %(pod)s)
                last_over_time(kube_pod_info{%(ksm)s, host_network="true", created_by_kind!="DaemonSet"}[%(w)s])
              )
            ||| % { node: node, cl: cl, ns: ns, pod: c.podLabel, ksm: c.selectors.ksm, w: t.d('10m') },
          },
          {
            // Active ports, with the node's GPU model: nodes of one model have the same cards. Nodes without GPUs, for storage or logins, have those that each needs. A node whose driver does not load tells of no port at all: one that had some has none now, where its exporter
            // answers, and as many as it had where it does not. That is known by this rule's own last sample, which ends ten minutes after the node: a name that comes back as another machine
            // had none.
            record: 'node_model:infiniband_ports_active:sum',
            expr: |||
              node:infiniband_ports_active:sum
              * on (%(node)s) group_left (%(model)s)
              (
                group by (%(node)s, %(model)s) (kube_node_labels{%(ksm)s, %(model)s!=""})
                or on (%(node)s)
                group by (%(node)s) (kube_node_labels{%(ksm)s})
                and on (%(node)s)
                node:gpu_capacity:max > 0
              )
              or on (%(node)s)
              (
                (
                  0 * node_model:infiniband_ports_active:sum
                  and on (%(node)s)
                  max by (%(node)s) (up{%(exporter)s}) == 1
                  unless on (%(node)s)
                  node:infiniband_ports_active:sum
                  or
                  node_model:infiniband_ports_active:sum
                )
                and on (%(node)s)
                (
                  last_over_time(kube_node_labels{%(ksm)s, %(model)s!=""}[%(w)s])
                  or on (%(node)s)
                  node:gpu_capacity:max > 0
                )
              )
            ||| % { node: node, model: c.gpu.modelLabel, ksm: c.selectors.ksm, exporter: ne, w: t.d('10m') },
          },
          rest('out'),
          rest('in'),
          byNamespace('out'),
          byNamespace('in'),
          { record: 'cluster:net_internet_out_bytes:rate5m', expr: 'sum by (%s) (node:net_internet_out_bytes:rate5m)' % cl },
          { record: 'cluster:net_internet_in_bytes:rate5m', expr: 'sum by (%s) (node:net_internet_in_bytes:rate5m)' % cl },
          { record: 'cluster:infiniband_transmitted_bytes:rate5m', expr: 'sum by (%s) (node:infiniband_transmitted_bytes:rate5m)' % cl },
          { record: 'cluster:net_accounted_nodes:count', expr: 'count by (%s) (node:net_internet_out_bytes:rate5m)' % cl },
          { record: 'cluster:ethernet_transmitted_bytes:rate5m', expr: 'sum by (%s) (node:ethernet_transmitted_bytes:rate5m)' % cl },
          { record: 'cluster:ethernet_received_bytes:rate5m', expr: 'sum by (%s) (node:ethernet_received_bytes:rate5m)' % cl },
          onRacks('infiniband_transmitted_bytes:rate5m'),
          onRacks('infiniband_received_bytes:rate5m'),
          onRacks('infiniband_errors:rate5m'),
        ] + [
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
