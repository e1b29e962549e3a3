// GPUs as their exporters tell of them: how many answer, who has them, how busy
// and how hot they are.
//
// gpu.nodes and gpu.work run in each Prometheus: they read the pages of one node
// at a time, which are on one shard, and leave some 7,500 series of what were
// 60,000, but for gpu:seen:bool and gpu:settled:bool, which no other server
// reads. gpu.use and gpu_capacity.libsonnet join over the whole cluster, and read
// no series of single GPUs: also when the proxy has to read raw, since a replica
// has a gap, they stay within its limits.
{
  local c = $._config,
  local t = (import '../lib/time.libsonnet')(c.timeScale),
  local g = (import '../lib/gpu.libsonnet')(c),
  local node = g.byNode,
  local cl = c.clusterLabel,

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
            // what they had last: this rule's own last sample, which ends with the pod, and not all of the time before; for six hours by what keeps no memory of its own. With a node that is gone for ten minutes, while others are told of, they are gone: its name may come back as another machine. So is a pod of which
            // kube-state-metrics tells no more on its node while it tells of others: it was taken off a dead node, and may be on another one by now.
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
                unless on (%(node)s)
                (
                  node_pod:gpu_claimed:sum
                  unless on (%(node)s)
                  last_over_time(kube_node_status_condition{%(ksm)s, condition="Ready", status="true"}[%(gone)s])
                  and on (%(cl)s)
                  kube_node_status_condition{%(ksm)s, condition="Ready", status="true"}
                )
                unless on (%(pods)s)
                (
                  node_pod:gpu_claimed:sum
                  unless on (%(pods)s)
                  last_over_time(kube_pod_info{%(ksm)s}[%(gone)s])
                  and on (%(cl)s)
                  kube_pod_info{%(ksm)s}
                )
              )
            ||| % {
              cl: cl,
              node: node,
              ksm: c.selectors.ksm,
              keep: t.recorded('6h'),
              gone: t.d('10m'),
              pods: '%s, %s, %s' % [node, c.namespaceLabel, c.podLabel],
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
            // The last Xid of each GPU that had one, as a label; 1 however many pods share it. The gauge behind it goes back only with the driver or the exporter.
            record: 'gpu:xid_last:info',
            expr: 'group by (%s) (count_values by (%s) ("xid", %s > 0 < %g))' % [g.byWith(['xid']), g.by, g.series('DCGM_FI_DEV_XID_ERRORS'), c.dcgm.blank],
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
            // By the mean of half an hour of each GPU in a namespace's hands, whichever pods had it one after another, and of those that are held now: jobs load data and write checkpoints. A job that hangs in a collective keeps the engine at 100 %, and moves no memory and no tensor.
            record: 'node_namespace:gpu_idle:count',
            expr:
              local idle(metric) = std.rstripChars(|||
                (
                  sum by (%(by)s) (sum_over_time(%(x)s[%(w)s]))
                  / on (%(by)s)
                  sum by (%(by)s) (count_over_time(%(x)s[%(w)s]))
                  < %(least)g
                  and on (%(by)s)
                  %(x)s
                )
              ||| % { by: '%s, %s' % [g.each, c.dcgm.namespace], x: held(metric), w: t.d('30m'), least: c.thresholds.gpu.idleActive }, '\n');
              onNamespaces('count', '%s or %s and %s' % [idle('DCGM_FI_PROF_GR_ENGINE_ACTIVE'), idle('DCGM_FI_PROF_PIPE_TENSOR_ACTIVE'), idle('DCGM_FI_PROF_DRAM_ACTIVE')]),
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
