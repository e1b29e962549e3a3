// GPUs as Kubernetes counts them: how many nodes have, whole and as slices of
// MIG, how many of them may be given, to whom they are, and what is left.
{
  local c = $._config,
  local t = (import '../lib/time.libsonnet')(c.timeScale),
  local g = (import '../lib/gpu.libsonnet')(c),
  local node = g.byNode,
  local cl = c.clusterLabel,

  local pod = std.join(', ', [cl, c.namespaceLabel, c.podLabel, 'uid']),

  local indented(s, by) = std.strReplace(std.rstripChars(s, '\n'), '\n', '\n' + std.repeat(' ', by)),

  local ofSlices(state, expr) = { record: 'node:gpu_slices:sum', labels: { state: state }, expr: expr },
  local sliced(metric) = g.sevenths(node, 'resource', metric) + '* on (%s) node:gpu_slice:ratio' % node,
  // onClusters adds up, by cluster, what nodes have as GPUs and what they have as slices.
  local onClusters(gpus, state) = |||
    sum by (%(cl)s) (
      %(gpus)s
    )
  ||| % { cl: cl, gpus: indented(g.cardsAndSlices(gpus, state), 2) },
  // handedOut is what device plugins say that nodes have, handsOut what nodes have on which a device plugin hands out GPUs, whole or in parts. Where GPUs are given by ResourceClaims (DRA), or by nobody yet, no node has a capacity of them; one that
  // had a plugin before has a capacity of 0 for ever (kubernetes' pull request 133727), as one has whose plugin died: claims tell them apart.
  local handedOut = 'max by (%s) (kube_node_status_capacity{%s, resource=~"%s|(%s|nvidia_com_mig)_.+"}%%s)' % [node, c.selectors.ksm, c.gpu.resource, c.gpu.resource],
  local handsOut =
    local of = handedOut;
    '(%s or on (%s) %s unless on (%s) node:gpu_by_claims:bool == 1)' % [of % ' > 0', node, of % '', node],
  // seen gives what DCGM tells of the nodes of the cluster on which no plugin does.
  local seen(expr) = std.rstripChars(|||
    (
      %(of)s
      unless on (%(n)s)
      %(plugin)s
      and on (%(n)s)
      node:ready:max
    )
  ||| % { of: expr, n: node, plugin: handsOut }, '\n'),
  // usable is what of a node's GPUs a pod could be given: the node is ready and not cordoned.
  local usable(allocatable) = |||
    (
      %(a)s
      * on (%(node)s) node:ready:max
      * on (%(node)s) (1 - max by (%(node)s) (kube_node_spec_unschedulable{%(ksm)s}))
    )
    or on (%(node)s)
    %(a)s
  ||| % { a: allocatable, node: node, ksm: c.selectors.ksm },
  // young are the Nodes that were made within six hours: what was kept so long may be of another machine under their name.
  local young = (import '../lib/young.libsonnet')(c, '6h'),

  // devices are the cards of nodes on which DCGM has seen some: those that it saw last where its exporter has been away for less than six hours, or on a Node that is younger for ten minutes.
  local devices = |||
    node:gpu_devices:max > 0
    or on (%(n)s)
    (
      last_over_time(node:gpu_devices:max[%(keep)s]) > 0
      unless on (%(n)s)
      (
        %(young)s
        unless on (%(n)s)
        node:gpu_devices:max
      )
    )
    or on (%(n)s)
    (
      last_over_time(node:gpu_devices:max[%(short)s]) > 0
      unless on (%(n)s)
      %(new)s
    )
  ||| % { n: node, keep: t.recorded('6h'), short: t.recorded('10m'), young: young, new: (import '../lib/young.libsonnet')(c, '10m') },

  prometheusRules+:: {
    groups+: [
      {
        name: 'gpu.capacity',
        rules: [
          {
            // The NVLink domain of each node that is not one of its own: a link that fails is told of by GPUs of all of its nodes. Nodes without a fabric between them have zeros. It is remembered for an hour: without it
            // a node counts with its cluster. A node that has two, as where its label changes, has none: one of them would be taken for both.
            record: 'node:nvlink_domain:info',
            expr: |||
              %(now)s
              unless on (%(node)s)
              (
                count by (%(node)s) (
                  %(deep)s
                )
                > 1
              )
              or on (%(node)s)
              (
                last_over_time(node:nvlink_domain:info[%(past)s])
                unless on (%(node)s)
                (
                  count by (%(node)s) (
                    last_over_time(node:nvlink_domain:info[%(past)s])
                  )
                  > 1
                )
              )
            ||| % {
              local now = |||
                max by (%(node)s, domain) (
                  label_replace(
                    max by (%(node)s, %(l)s) (kube_node_labels{%(ksm)s, %(l)s!~"|0{8}-0{4}-.*"}),
                    "domain", "$1", "%(l)s", "(.+)"
                  )
                )
              ||| % { node: node, ksm: c.selectors.ksm, l: c.gpu.domainLabel },
              node: node,
              now: std.rstripChars(now, '\n'),
              deep: std.strReplace(self.now, '\n', '\n    '),
              past: t.recorded('1h'),
            },
          },
          {
            // 1 for each node whose GPUs were given by claims when they were given last, 0 where a plugin has handed some out since: what is claimed by nobody for a weekend is no dead plugin, and a
            // plugin that dies is one, whatever was before it. Both are samples, so that what is carried on is the last word; a node that is gone has none.
            record: 'node:gpu_by_claims:bool',
            expr: |||
              node:gpu_claims:bool
              or on (%(n)s)
              0 * last_over_time(node:gpu_by_claims:bool[%(keep)s])
              and on (%(n)s)
              %(handed)s
              or on (%(n)s)
              last_over_time(node:gpu_by_claims:bool[%(keep)s])
              and on (%(n)s)
              node:ready:max
            ||| % { n: node, keep: t.recorded('6h'), handed: handedOut % ' > 0' },
          },
          {
            // A device plugin that dies takes the allocatable GPUs at once, and five minutes later the kubelet says that the node has 0 (endpointStopGracePeriod of its device manager): what it
            // said before counts for as long as it says 0, and gives no GPUs under another name, as slices of MIG and shares of time slicing are. Where no plugin hands out any, the node has the
            // cards that DCGM sees, and for six hours after its exporter fell silent those that it saw. A name that comes back as a machine without GPUs has none: what was said before its Node was made does not count.
            record: 'node:gpu_capacity:max',
            expr: |||
              (max by (%(n)s) (kube_node_status_capacity{%(ksm)s, resource="%(r)s"}) > 0)
              or on (%(n)s)
              %(seen)s
              or on (%(n)s)
              (
                last_over_time(node:gpu_capacity:max[%(keep)s])
                unless on (%(n)s)
                (
                  %(young)s
                  unless on (%(n)s)
                  node:gpu_capacity:max
                )
                unless on (%(n)s)
                max by (%(n)s) (kube_node_status_capacity{%(ksm)s, resource=~"(%(r)s|nvidia_com_mig)_.+"} > 0)
                and on (%(n)s)
                (
                  max by (%(n)s) (kube_node_status_capacity{%(ksm)s, resource="%(r)s"})
                  or on (%(n)s)
                  node:ready:max
                  and on (%(n)s)
                  last_over_time(node:gpu_devices:count[%(keep)s])
                )
              )
              or on (%(n)s)
              max by (%(n)s) (kube_node_status_capacity{%(ksm)s, resource="%(r)s"})
            ||| % { n: node, ksm: c.selectors.ksm, r: c.gpu.resource, keep: t.recorded('6h'), seen: seen('node:gpu_devices:max > 0'), young: young },
          },
          {
            // Of nodes without a device plugin those that DCGM sees now. Where its exporter does not answer nobody knows better than before.
            record: 'node:gpu_allocatable:max',
            expr: |||
              %(seen)s
              or on (%(n)s)
              max by (%(n)s) (kube_node_status_allocatable{%(ksm)s, resource="%(r)s"})
            ||| % { n: node, ksm: c.selectors.ksm, r: c.gpu.resource, seen: seen('(node:gpu_devices:count or on (%s) node:gpu_capacity:max)' % node) },
          },
          {
            // What is bound to a node and not over: while it pulls its image it is Pending, and nobody else can have its GPUs. Asked this way round, no shard has to send the phase of every system pod.
            // max by the container comes first: two kube-state-metrics say everything twice. What a node's shard keeps of its claims counts while there is the node.
            record: 'pod:gpu_allocated:sum',
            expr: |||
              sum by (%(pod)s, %(n)s) (
                max by (%(pod)s, %(n)s, container) (
                  kube_pod_container_resource_requests{%(ksm)s, resource="%(r)s", %(n)s!=""}
                )
              )
              unless on (%(pod)s)
              max by (%(pod)s) (
                kube_pod_status_phase{%(ksm)s, phase=~"Succeeded|Failed|Unknown"} == 1
              )
              or on (%(name)s)
              (node_pod:gpu_claimed:sum and on (%(node)s) node:ready:max)
            ||| % { pod: pod, name: '%s, %s, %s' % [cl, c.namespaceLabel, c.podLabel], n: c.nodeLabel, node: node, ksm: c.selectors.ksm, r: c.gpu.resource },
          },
          {
            record: 'node:gpu_allocated:sum',
            expr: 'sum by (%s) (pod:gpu_allocated:sum)' % node,
          },
          {
            // What part of a card one of the node's GPUs is, where it is not all of one: NVIDIA's feature discovery ends the product in -SHARED for time slicing, in -MIG-… for slices
            // that are handed out as GPUs; GKE has labels of its own for both. The cards are those that DCGM saw, or where it saw none of late as many as nodes have.
            record: 'node:gpu_share:ratio',
            expr: |||
              (
                (
                  %(devices)s
                  or on (%(node)s)
                  0 * node:gpu_capacity:max + %(cards)g
                )
                < on (%(node)s) node:gpu_capacity:max
              )
              / on (%(node)s)
              node:gpu_capacity:max
              and on (%(node)s)
              max by (%(node)s) (
                kube_node_labels{%(ksm)s, %(l)s=~".+(-SHARED|-MIG-.+)"}
                %(parts)s
              )
            ||| % {
              node: node,
              ksm: c.selectors.ksm,
              l: c.gpu.modelLabel,
              cards: c.gpu.perNode,
              devices: indented(devices, 6),
              parts: std.join('\n    ', ['or\n    kube_node_labels{%s, %s!=""}' % [c.selectors.ksm, l] for l in c.gpu.partsLabels]),
            },
          },
          {
            // What part of a card a seventh is, of nodes with slices under their own names: all of its slices together are the cards that DCGM saw and that are not handed out whole, also where
            // they leave a part of a card to nobody (two of 3g). Where DCGM saw none, a seventh is one.
            record: 'node:gpu_slice:ratio',
            expr: |||
              (
                (
                  (
                    %(devices)s
                  )
                  - on (%(node)s)
                  node:gpu_capacity:max
                  or on (%(node)s)
                  %(devicesAlone)s
                )
                > 0
              )
              / on (%(node)s)
              (
                %(slices)s
                > 0
              )
              or on (%(node)s)
              (
                last_over_time(node:gpu_slice:ratio[%(keep)s])
                and on (%(node)s)
                last_over_time(node:gpu_slices:sum{state="told"}[%(keep)s])
                and on (%(node)s)
                (
                  %(deeper)s
                  == 0
                )
                unless on (%(node)s)
                (
                  %(young)s
                  unless on (%(node)s)
                  node:gpu_slices:sum{state="capacity"}
                )
              )
              or on (%(node)s)
              0 *
              %(slices)s
              + 1 / 7
            ||| % { node: node, keep: t.recorded('6h'), young: young, devices: indented(devices, 8), devicesAlone: indented(devices, 6), slices: indented(g.sevenths(node, 'resource', 'kube_node_status_capacity'), 2), deeper: indented(g.sevenths(node, 'resource', 'kube_node_status_capacity'), 4) },
          },
          // What the kubelet tells of slices while it tells of some.
          ofSlices('told', sliced('kube_node_status_capacity') + ' > 0'),
          // A device plugin that dies takes slices as it takes whole GPUs: what the kubelet said before counts while it says 0, for six hours at most, and gives no GPUs under another name. Where they are
          // cut anew what it says next counts. What was told before a Node was made does not count, and claims are no slices.
          ofSlices('capacity', |||
            node:gpu_slices:sum{state="told"}
            or on (%(n)s)
            (
              last_over_time(node:gpu_slices:sum{state="capacity"}[%(keep)s])
              and on (%(n)s)
              last_over_time(node:gpu_slices:sum{state="told"}[%(keep)s])
              unless on (%(n)s)
              (
                %(young)s
                unless on (%(n)s)
                node:gpu_slices:sum{state="capacity"}
              )
              unless on (%(n)s)
              %(handed)s
              unless on (%(n)s)
              node:gpu_by_claims:bool == 1
              and on (%(n)s)
              max by (%(n)s) (kube_node_status_capacity{%(ksm)s, resource=~"nvidia_com_mig_.+"})
            )
            or on (%(n)s)
            %(now)s
          ||| % {
            n: node,
            keep: t.recorded('6h'),
            young: young,
            handed: handedOut % ' > 0',
            ksm: c.selectors.ksm,
            now: std.rstripChars(sliced('kube_node_status_capacity'), '\n'),
          }),
          ofSlices('allocatable', sliced('kube_node_status_allocatable')),
          {
            // Cards that a pod has, whole or in parts: what counts and hours are of, and what is paid for.
            record: 'pod:gpu_cards:sum',
            expr: |||
              pod:gpu_allocated:sum * on (%(node)s) group_left () node:gpu_share:ratio
              or on (%(pod)s)
              pod:gpu_allocated:sum
              or on (%(pod)s)
              (
                %(slices)s
                * on (%(node)s) group_left () node:gpu_slice:ratio
                unless on (%(pod)s)
                max by (%(pod)s) (
                  kube_pod_status_phase{%(ksm)s, phase=~"Succeeded|Failed|Unknown"} == 1
                )
              )
            ||| % {
              node: node,
              pod: pod,
              ksm: c.selectors.ksm,
              slices: indented(g.sevenths('%s, %s' % [pod, c.nodeLabel], 'container, resource', 'kube_pod_container_resource_requests', ', %s!=""' % c.nodeLabel), 2),
            },
          },
          ofSlices('allocated', 'sum by (%s) (pod:gpu_cards:sum unless on (%s) pod:gpu_allocated:sum)' % [node, pod]),
          {
            record: 'namespace:gpu_allocated:sum',
            expr: 'sum by (%s, %s) (pod:gpu_cards:sum)' % [cl, c.namespaceLabel],
          },
          {
            record: 'node:gpu_usable:sum',
            expr: usable('node:gpu_allocatable:max'),
          },
          ofSlices('usable', usable('node:gpu_slices:sum{state="allocatable"}')),
          {
            // What is neither allocated nor usable. A pod that still runs on a sick node is allocated: each GPU is counted once.
            record: 'node:gpu_unhealthy:sum',
            expr: |||
              clamp_min(
                node:gpu_capacity:max
                - on (%(node)s) (
                  (node:gpu_allocated:sum > on (%(node)s) node:gpu_usable:sum)
                  or on (%(node)s)
                  node:gpu_usable:sum
                ),
                0
              )
            ||| % { node: node },
          },
          ofSlices('unhealthy', |||
            clamp_min(
              node:gpu_slices:sum{state="capacity"}
              - on (%(node)s) (
                (node:gpu_slices:sum{state="allocated"} > on (%(node)s) node:gpu_slices:sum{state="usable"})
                or on (%(node)s)
                node:gpu_slices:sum{state="usable"}
              ),
              0
            )
          ||| % { node: node }),
          // From here on in cards.
          { record: 'cluster:gpu_capacity:sum', expr: onClusters('node:gpu_capacity:max', 'capacity') },
          { record: 'cluster:gpu_allocatable:sum', expr: onClusters('node:gpu_allocatable:max', 'allocatable') },
          {
            // Nodes that dcgm-exporter tells of by the name that kube-state-metrics has.
            record: 'cluster:gpu_nodes_measured:count',
            expr: 'count by (%s) (node:gpu_seen:count > 0 and on (%s) node:ready:max)' % [cl, node],
          },
          { record: 'cluster:gpu_seen:sum', expr: 'sum by (%s) (node:gpu_seen:count)' % cl },
          {
            record: 'cluster:gpu_allocated:sum',
            expr: |||
              sum by (%(cl)s) (pod:gpu_cards:sum)
              or on (%(cl)s)
              0 * cluster:gpu_capacity:sum
            ||| % { cl: cl },
          },
          { record: 'cluster:gpu_unhealthy:sum', expr: onClusters('node:gpu_unhealthy:sum', 'unhealthy') },
          {
            // The rest, so that allocated, unhealthy and free are the capacity. Below 0 if pods hold GPUs that their node no longer reports.
            record: 'cluster:gpu_free:sum',
            expr: |||
              cluster:gpu_capacity:sum
              - on (%(cl)s) cluster:gpu_allocated:sum
              - on (%(cl)s) cluster:gpu_unhealthy:sum
            ||| % { cl: cl },
          },
          {
            // The part of it that only pods can have that ask for slices of MIG by their names.
            record: 'cluster:gpu_slices_free:sum',
            expr: |||
              sum by (%(cl)s) (
                clamp_min(
                  node:gpu_slices:sum{state="usable"} - on (%(node)s) node:gpu_slices:sum{state="allocated"}
                  or on (%(node)s)
                  node:gpu_slices:sum{state="usable"},
                  0
                )
              )
            ||| % { cl: cl, node: node },
          },
        ],
      },
    ],
  },
}
