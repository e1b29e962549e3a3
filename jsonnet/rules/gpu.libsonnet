// GPUs: how many there are, how many answer, who has them, how busy and how hot
// they are.
//
// gpu.nodes and gpu.work run in each Prometheus: they read the pages of one node
// at a time, which are on one shard, and leave some 7,500 series of what were
// 60,000, but for gpu:seen:bool and gpu:settled:bool, which no other server
// reads. The rest joins over the whole cluster, and reads no series of single
// GPUs: also when the proxy has to read raw, since a replica has a gap, it stays
// within its limits.
{
  local c = $._config,
  local t = (import '../lib/time.libsonnet')(c.timeScale),
  local g = (import '../lib/gpu.libsonnet')(c),
  local node = g.byNode,
  local cl = c.clusterLabel,

  local pod = std.join(', ', [cl, c.namespaceLabel, c.podLabel, 'uid']),

  // onNamespaces aggregates DCGM series of GPUs that are given to a pod by node
  // and by its namespace, whatever the exporter's labels are called. Containers
  // that share a GPU have it once.
  local onNamespaces(op, expr) =
    local inner = g.onNode('%s by (%s, %s, %s) (max by (%s, %s) (%s))' % [op, cl, c.dcgm.node, c.dcgm.namespace, g.each, c.dcgm.namespace, expr]);
    if c.dcgm.namespace == c.namespaceLabel then inner
    else 'sum by (%s, %s) (label_replace(%s, "%s", "$1", "%s", "(.+)"))' % [node, c.namespaceLabel, inner, c.namespaceLabel, c.dcgm.namespace],
  local onModels(op) = g.onNode('%s by (%s, %s, %s) (max by (%s, %s) (%s <= 100))' % [op, cl, c.dcgm.node, c.dcgm.model, g.each, c.dcgm.model, g.series('DCGM_FI_DEV_GPU_UTIL')]),
  local held(metric) = g.series(metric, g.held),

  local indented(s, by) = std.strReplace(std.rstripChars(s, '\n'), '\n', '\n' + std.repeat(' ', by)),

  // sevenths adds up slices of MIG that go under their own names, by how many of a card's seven parts they have.
  local sevenths(by, each, metric, matchers='') = |||
    sum by (%(by)s) (
      %(of)s
    )
  ||| % {
    by: by,
    of: std.join('\n  or\n  ', [
      '%d * max by (%s, %s) (%s{%s, resource=~"nvidia_com_mig_%dg_.+"%s})' % [of, by, each, metric, c.selectors.ksm, of, matchers]
      for of in [1, 2, 3, 4, 7]
    ]),
  },
  local ofSlices(state, expr) = { record: 'node:gpu_slices:sum', labels: { state: state }, expr: expr },
  local sliced(metric) = sevenths(node, 'resource', metric) + '* on (%s) node:gpu_slice:ratio' % node,
  // onClusters adds up, by cluster, what nodes have as GPUs and what they have as slices.
  local onClusters(gpus, state) = |||
    sum by (%(cl)s) (
      %(gpus)s
      or
      node:gpu_slices:sum{state="%(state)s"}
    )
  ||| % { cl: cl, gpus: g.cards(gpus), state: state },
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
  // sizes are the sevenths of a card in series of DCGM: a slice of MIG has as many as its profile says, a whole card one, which is all of it.
  local sizes(by, matchers) =
    local of(n, profiles) = '%sgroup by (%s) (%s)' % [
      if n == 1 then '' else '%d * ' % n,
      by,
      g.series('DCGM_FI_DEV_GPU_TEMP', '%s, %s%s' % [matchers, c.dcgm.profile, profiles]),
    ];
    std.join('\nor\n', [of(1, '!~"[2347]g.*"')] + [of(n, '=~"%dg.*"' % n) for n in [2, 3, 4, 7]]),
  local claimed = '%s!="", %s' % [c.dcgm.claimed, g.held],
  local holder = '%s, %s, %s' % [g.each, c.dcgm.namespace, c.dcgm.pod],
  // onPods gives series of DCGM by pod the labels that pods have elsewhere.
  local onPods(expr) = g.onNode(std.foldl(
    function(e, pair) if pair[0] == pair[1] then e else 'label_replace(%s, "%s", "$1", "%s", "(.+)")' % [e, pair[1], pair[0]],
    [[c.dcgm.namespace, c.namespaceLabel], [c.dcgm.pod, c.podLabel]],
    expr
  )),

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
  local ofNamespace(name) = { record: 'namespace:' + name, expr: 'sum by (%s, %s) (node_namespace:%s)' % [cl, c.namespaceLabel, name] },

  // young are the Nodes that were made within six hours: what was kept so long may be of another machine under their name.
  local young = (import '../lib/young.libsonnet')(c, '6h'),

  // there are the cards that DCGM sees, or saw then, by their identity.
  local there(offset='') = 'group by (%s, %s) (gpu:seen:bool%s)' % [node, c.dcgm.uuid, offset],

  prometheusRules+:: {
    groups+: [
      {
        name: 'gpu.settled',
        scope:: 'shard',
        interval: t.d('5m'),
        rules: [
          {
            // 1 for each card that was on its node five minutes ago too: those of another machine under the same name are looked at before they count.
            record: 'gpu:settled:bool',
            expr: |||
              %s
              and on (%s, %s)
              %s
            ||| % [there(), node, c.dcgm.uuid, there(' offset ' + t.d('5m'))],
          },
        ],
      },
      {
        name: 'gpu.nodes',
        scope:: 'shard',
        interval: t.d('1m'),
        rules: [
          {
            // The cards and slices with a temperature or a power: one that answers nothing but blanks is as lost as one that is gone, but a sensor that cannot be read is no reason to drain a node.
            // A series for each, since what is asked of them is dear over pages with the labels of pods.
            record: 'gpu:seen:bool',
            expr: g.onNode('group by (%s, %s, %s) (%s or %s)' % [
              g.card,
              c.dcgm.uuid,
              c.dcgm.instance,
              g.reading('DCGM_FI_DEV_GPU_TEMP'),
              g.reading('DCGM_FI_DEV_POWER_USAGE'),
            ]),
          },
          {
            // A page without GPUs is 0, no page is no series.
            record: 'node:gpu_seen:count',
            expr: |||
              count by (%(n)s) (group by (%(n)s, %(u)s, %(i)s) (gpu:seen:bool))
              or
              0 * max by (%(n)s) (up{%(up)s} == 1)
            ||| % { n: node, u: c.dcgm.uuid, i: c.dcgm.instance, up: c.selectors.dcgm },
          },
          {
            // How many minutes of the last hour there were any.
            record: 'node:gpu_looks:count1h',
            expr: 'count_over_time((node:gpu_seen:count > 0)[%s:%s])' % [t.d('1h'), t.d('1m')],
          },
          {
            // The cards among them, by their index: slices of MIG are no more of them, and a card that was replaced is none.
            record: 'node:gpu_devices:count',
            expr: |||
              count by (%(n)s) (group by (%(n)s, %(i)s) (gpu:seen:bool))
              or
              0 * max by (%(n)s) (up{%(up)s} == 1)
            ||| % { n: node, i: c.dcgm.gpu, up: c.selectors.dcgm },
          },
          {
            // The most that a node had, kept by itself while its exporter answers, and for six hours in which it does not. A node's name may come back as another machine, with fewer cards and no
            // fault: what is kept counts while one of the cards that are seen now has been there before, or none is seen. None is seen of a new machine too, until it has its driver: a Node that is younger than what is kept
            // has none of it, but for what this rule said a moment ago.
            record: 'node:gpu_devices:max',
            expr: |||
              (
                last_over_time(node:gpu_devices:max[%(keep)s]) > on (%(n)s) node:gpu_devices:count
                and on (%(n)s)
                (
                  node:gpu_devices:count == 0
                  unless on (%(n)s)
                  (
                    %(young)s
                    unless on (%(n)s)
                    node:gpu_devices:max
                  )
                  or on (%(n)s)
                  group by (%(n)s) (
                    %(now)s
                    and on (%(n)s, %(u)s)
                    last_over_time(gpu:settled:bool[%(keep)s])
                  )
                )
              )
              or on (%(n)s)
              node:gpu_devices:count
            ||| % { n: node, u: c.dcgm.uuid, keep: t.recorded('6h'), now: there(), young: young },
          },
          {
            record: 'node:gpu_temp_celsius:max',
            expr: g.onNode('max by (%s, %s) (%s)' % [cl, c.dcgm.node, g.reading('DCGM_FI_DEV_GPU_TEMP')]),
          },
          {
            record: 'node:gpu_power_watts:sum',
            expr: g.onNode('sum by (%s, %s) (max by (%s) (%s))' % [cl, c.dcgm.node, g.card, g.reading('DCGM_FI_DEV_POWER_USAGE')]),
          },
          {
            // Cards that a pod has through ResourceClaims, which kube-state-metrics does not count (its issue 2979): by the labels that dcgm-exporter has from the kubelet, without a uid. Pods that share
            // a card or a slice have equal parts of it; a slice of MIG is its part, by its profile, of all slices that the card is cut into. While a node's exporter is silent pods have
            // what they had last: this rule's own last sample, which ends with the pod, and not all of the time before; for six hours by what keeps no memory of its own.
            record: 'node_pod:gpu_claimed:sum',
            expr: |||
              %(now)s
              or
              (
                node_pod:gpu_claimed:sum
                unless on (%(node)s)
                node:gpu_devices:count
                and on (%(node)s)
                last_over_time(node:gpu_devices:count[%(keep)s])
              )
            ||| % {
              node: node,
              keep: t.recorded('6h'),
              now: std.rstripChars(onPods(|||
                sum by (%(cl)s, %(node)s, %(ns)s, %(pod)s) (
                  (
                    %(sizes)s
                  )
                  / on (%(each)s) group_left ()
                  count by (%(each)s) (
                    group by (%(holder)s) (%(held)s)
                  )
                  / on (%(card)s) group_left ()
                  sum by (%(card)s) (
                    %(cut)s
                  )
                )
              ||| % {
                cl: cl,
                node: c.dcgm.node,
                ns: c.dcgm.namespace,
                pod: c.dcgm.pod,
                card: g.card,
                each: g.each,
                holder: holder,
                held: g.series('DCGM_FI_DEV_GPU_TEMP', claimed),
                sizes: indented(sizes(holder, claimed), 4),
                cut: indented(sizes(g.each, claimed) + '\nor\n' + sizes(g.each, '%s!=""' % c.dcgm.instance), 4),
              }), '\n'),
            },
          },
          {
            // Nodes on which GPUs are claimed now, be it by who only looks on.
            record: 'node:gpu_claims:bool',
            expr: g.onNode('group by (%s, %s) (%s)' % [cl, c.dcgm.node, g.series('DCGM_FI_DEV_GPU_TEMP', '%s!=""' % c.dcgm.claimed)]),
          },
          {
            // The last Xid of each GPU that had one, as a label. The gauge behind it goes back only with the driver or the exporter.
            record: 'gpu:xid_last:info',
            expr: 'count_values by (%s) ("xid", %s > 0 < %g)' % [g.by, g.series('DCGM_FI_DEV_XID_ERRORS'), c.dcgm.blank],
          },
        ],
      },
      {
        // Beside gpu.nodes, since groups are evaluated side by side and their rules one after the other.
        name: 'gpu.work',
        scope:: 'shard',
        interval: t.d('1m'),
        rules: [
          {
            record: 'node:gpu_util_percent:avg',
            expr: g.onNode('avg by (%s, %s) (%s <= 100)' % [cl, c.dcgm.node, g.series('DCGM_FI_DEV_GPU_UTIL')]),
          },
          { record: 'node_model:gpu_util_percent:sum', expr: onModels('sum') },
          { record: 'node_model:gpu_util_percent:count', expr: onModels('count') },
          { record: 'node_namespace:gpu_held:count', expr: onNamespaces('count', '%s <= 1' % held('DCGM_FI_PROF_GR_ENGINE_ACTIVE')) },
          { record: 'node_namespace:gpu_active:sum', expr: onNamespaces('sum', '%s <= 1' % held('DCGM_FI_PROF_GR_ENGINE_ACTIVE')) },
          { record: 'node_namespace:gpu_tensor_active:sum', expr: onNamespaces('sum', '%s <= 1' % held('DCGM_FI_PROF_PIPE_TENSOR_ACTIVE')) },
          {
            // GPUs at work of which no pod is known.
            record: 'node:gpu_unattributed:count',
            expr: g.onNode(|||
              count by (%(cl)s, %(n)s) (
                max by (%(each)s) (%(active)s > %(x)g <= 1)
                unless on (%(each)s)
                %(held)s
              )
            ||| % {
              cl: cl,
              n: c.dcgm.node,
              each: g.each,
              active: g.series('DCGM_FI_PROF_GR_ENGINE_ACTIVE'),
              x: c.thresholds.gpu.heldActive,
              held: held('DCGM_FI_PROF_GR_ENGINE_ACTIVE'),
            }),
          },
          {
            // By the mean of half an hour of each GPU: jobs load data and write checkpoints. A job that hangs in a collective keeps the engine at 100 %, and moves no memory and no tensor.
            record: 'node_namespace:gpu_idle:count',
            expr:
              local idle(metric) = 'avg_over_time(%s[%s]) < %g' % [held(metric), t.d('30m'), c.thresholds.gpu.idleActive];
              onNamespaces('count', '%s or %s and %s' % [idle('DCGM_FI_PROF_GR_ENGINE_ACTIVE'), idle('DCGM_FI_PROF_PIPE_TENSOR_ACTIVE'), idle('DCGM_FI_PROF_DRAM_ACTIVE')]),
          },
        ],
      },
      {
        name: 'gpu.capacity',
        rules: [
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
            // that are handed out as GPUs. The cards are those that DCGM saw, or as many as nodes have.
            record: 'node:gpu_share:ratio',
            expr: |||
              (
                (
                  node:gpu_devices:max > 0
                  or on (%(node)s)
                  0 * node:gpu_capacity:max + %(cards)g
                )
                < on (%(node)s) node:gpu_capacity:max
              )
              / on (%(node)s)
              node:gpu_capacity:max
              and on (%(node)s)
              max by (%(node)s) (kube_node_labels{%(ksm)s, %(l)s=~".+(-SHARED|-MIG-.+)"})
            ||| % { node: node, ksm: c.selectors.ksm, l: c.gpu.modelLabel, cards: c.gpu.perNode },
          },
          {
            // What part of a card a seventh is, of nodes with slices under their own names: all of its slices together are the cards that DCGM saw and that are not handed out whole, also where
            // they leave a part of a card to nobody (two of 3g). Where DCGM saw none, a seventh is one.
            record: 'node:gpu_slice:ratio',
            expr: |||
              (
                (
                  node:gpu_devices:max - on (%(node)s) node:gpu_capacity:max
                  or on (%(node)s)
                  node:gpu_devices:max
                )
                > 0
              )
              / on (%(node)s)
              (
                %(slices)s
                > 0
              )
              or on (%(node)s)
              0 *
              %(slices)s
              + 1 / 7
            ||| % { node: node, slices: indented(sevenths(node, 'resource', 'kube_node_status_capacity'), 2) },
          },
          ofSlices('capacity', sliced('kube_node_status_capacity')),
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
              slices: indented(sevenths('%s, %s' % [pod, c.nodeLabel], 'container, resource', 'kube_pod_container_resource_requests', ', %s!=""' % c.nodeLabel), 2),
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
      {
        name: 'gpu.use',
        interval: t.d('1m'),
        rules: [
          ofNamespace('gpu_held:count'),
          ofNamespace('gpu_active:sum'),
          ofNamespace('gpu_tensor_active:sum'),
          ofNamespace('gpu_idle:count'),
          {
            record: 'team:gpu_active:avg',
            expr: |||
              sum by (%(cl)s, team) (namespace:gpu_active:sum * on (%(cl)s, %(ns)s) group_left (team) namespace:team:info)
              / on (%(cl)s, team)
              sum by (%(cl)s, team) (namespace:gpu_held:count * on (%(cl)s, %(ns)s) group_left (team) namespace:team:info)
            ||| % { cl: cl, ns: c.namespaceLabel },
          },
          {
            record: 'cluster:gpu_util_percent:avg',
            expr: 'sum by (%(cl)s) (node_model:gpu_util_percent:sum) / on (%(cl)s) sum by (%(cl)s) (node_model:gpu_util_percent:count)' % { cl: cl },
          },
          {
            record: 'model:gpu_util_percent:avg',
            expr: |||
              sum by (%(cl)s, %(m)s) (node_model:gpu_util_percent:sum)
              / on (%(cl)s, %(m)s)
              sum by (%(cl)s, %(m)s) (node_model:gpu_util_percent:count)
            ||| % { cl: cl, m: c.dcgm.model },
          },
          { record: 'model:gpu_util_percent:count', expr: 'sum by (%s, %s) (node_model:gpu_util_percent:count)' % [cl, c.dcgm.model] },
          { record: 'cluster:gpu_power_watts:sum', expr: 'sum by (%s) (node:gpu_power_watts:sum)' % cl },
          {
            record: 'cluster:node_gpu_util_percent:count',
            expr: 'count_values by (%s) ("percent", floor(node:gpu_util_percent:avg / 10) * 10)' % cl,
          },
          // A heatmap of the hottest GPU of 7,500 nodes in some twenty series.
          {
            record: 'cluster:node_gpu_temp_celsius:count',
            expr: 'count_values by (%s) ("celsius", floor(node:gpu_temp_celsius:max / 5) * 5)' % cl,
          },
        ] + [
          // Of the hottest GPU on each node.
          {
            record: 'cluster:node_gpu_temp_celsius:quantile',
            labels: { quantile: '%g' % q },
            expr: 'quantile by (%s) (%g, node:gpu_temp_celsius:max)' % [cl, q],
          }
          for q in c.quantiles
        ],
      },
    ],
  },
}
