// Pods that wait for GPUs.
{
  local c = $._config,
  local t = (import '../lib/time.libsonnet')(c.timeScale),
  local cl = c.clusterLabel,
  local ns = c.namespaceLabel,
  local node = '%s, %s' % [cl, c.nodeLabel],
  local pod = std.join(', ', [cl, ns, c.podLabel, 'uid']),
  local slices = (import '../lib/gpu.libsonnet')(c).sevenths(pod, 'container, resource', 'kube_pod_container_resource_requests', ', %s=""' % c.nodeLabel),

  // GPUs that each pod without a node asks for, whole ones and slices of MIG by their names, which are parts of one; kube-state-metrics leaves the label out until there is one. Pods behind a scheduling gate (Kueue's) are unschedulable to it too, though the scheduler never saw them.
  local wanted = |||
    sum by (%(pod)s) (
      max by (%(pod)s, container) (
        kube_pod_container_resource_requests{%(ksm)s, resource="%(r)s", %(n)s=""}
      )
      or
      %(slices)s
      / 7
    )
    and on (%(pod)s)
    max by (%(pod)s) (kube_pod_status_unschedulable{%(ksm)s} == 1)
    unless on (%(pod)s)
    max by (%(pod)s) (kube_pod_status_reason{%(ksm)s, reason="SchedulingGated"} == 1)
  ||| % { pod: pod, ksm: c.selectors.ksm, r: c.gpu.resource, n: c.nodeLabel, slices: std.strReplace(std.rstripChars(slices, '\n'), '\n', '\n  ') },

  // What of a node's GPUs nobody has, as the node hands them out.
  local free = std.rstripChars(|||
    clamp_min(
      (node:gpu_usable:sum - on (%(node)s) node:gpu_allocated:sum)
      or on (%(node)s)
      node:gpu_usable:sum,
      0
    )
  ||| % { node: node }, '\n'),

  // How long pods have waited, in minutes, as panels show it: [from, to), the label.
  local waits = [[0, 10, 'under 10 min'], [10, 30, '10 to 30 min'], [30, 120, '30 min to 2 h'], [120, 360, '2 h to 6 h'], [360, null, 'over 6 h']],

  prometheusRules+:: {
    groups+: [
      {
        name: 'pending.pods',
        rules: [
          // Pods that the scheduler found no room for, and the GPUs they ask for.
          { record: 'pod:gpu_pending:sum', expr: wanted },
          { record: 'namespace:gpu_pods_pending:count', expr: 'count by (%s, %s) (pod:gpu_pending:sum)' % [cl, ns] },
          { record: 'namespace:gpu_pending:sum', expr: 'sum by (%s, %s) (pod:gpu_pending:sum)' % [cl, ns] },
          {
            // 0 where nobody waits: a mean over a day must count the quiet hours.
            record: 'cluster:gpu_pending:sum',
            expr: |||
              sum by (%(cl)s) (pod:gpu_pending:sum)
              or on (%(cl)s)
              0 * cluster:gpu_capacity:sum
            ||| % { cl: cl },
          },
        ],
      },
      {
        name: 'pending.waits',
        interval: t.d('1m'),
        rules: [
          {
            // Minutes, of half a day, in which a pod that waits now was seen to wait. Of recorded series, so that it counts from the moment when there was no room and not from when the pod was made.
            record: 'pod:gpu_pending_minutes:count12h',
            expr: 'count_over_time(pod:gpu_pending:sum[%s:%s]) and on (%s) pod:gpu_pending:sum' % [t.d('12h'), t.d('1m'), pod],
          },
        ] + [
          {
            // 0 where nobody waits so long.
            record: 'cluster_waited:gpu_pods_pending:count',
            labels: { waited: w[2] },
            expr: |||
              count by (%(cl)s) (pod:gpu_pending_minutes:count12h >= %(from)g%(to)s)
              or on (%(cl)s)
              0 * cluster:gpu_capacity:sum
            ||| % { cl: cl, from: w[0], to: if w[1] == null then '' else ' < %g' % w[1] },
          }
          for w in waits
        ] + [
          {
            // Seconds from a pod's making to its place on a node, of pods with GPUs that run and got their place within a day.
            record: 'pod:gpu_placed_seconds:max',
            expr: |||
              (
                max by (%(pod)s) (kube_pod_status_scheduled_time{%(ksm)s} > time() - %(day)g)
                - on (%(pod)s)
                max by (%(pod)s) (kube_pod_created{%(ksm)s} > time() - %(week)g)
              )
              and on (%(name)s)
              pod:gpu_allocated:sum
            ||| % { pod: pod, name: '%s, %s, %s' % [cl, c.namespaceLabel, c.podLabel], ksm: c.selectors.ksm, day: t.real('1d'), week: t.real('1w') },
          },
        ] + [
          {
            record: 'cluster:gpu_placed_seconds:quantile',
            labels: { quantile: '%g' % q },
            expr: 'quantile by (%s) (%g, pod:gpu_placed_seconds:max)' % [cl, q],
          }
          for q in c.quantiles
        ],
      },
      {
        name: 'pending.packing',
        interval: t.d('1m'),
        rules: [
          {
            // GPUs of each node that a pod could be given now, in cards.
            record: 'node:gpu_free:sum',
            expr: |||
              %(free)s
              * on (%(node)s) node:gpu_share:ratio
              or on (%(node)s)
              %(free)s
            ||| % { node: node, free: free },
          },
          // Nodes by how many of their GPUs are free: gangs need whole ones. 56 sevenths are 8, though not quite in binary numbers.
          { record: 'cluster_free:nodes:count', expr: 'count_values by (%s) ("free", floor(node:gpu_free:sum + 0.01))' % cl },
          {
            // GPUs on nodes that are wholly free; the rest of what is free is in pieces.
            record: 'cluster:gpu_free_whole:sum',
            expr: |||
              sum by (%(cl)s) (
                node:gpu_free:sum
                and on (%(node)s)
                (
                  %(free)s
                  >= on (%(node)s) (node:gpu_capacity:max > 0)
                )
              )
              or on (%(cl)s)
              0 * cluster:gpu_capacity:sum
            ||| % { cl: cl, node: node, free: std.strReplace(free, '\n', '\n    ') },
          },
        ],
      },
    ],
  },
}
