// Pods that wait for GPUs.
{
  local c = $._config,
  local cl = c.clusterLabel,
  local ns = c.namespaceLabel,
  local pod = std.join(', ', [cl, ns, c.podLabel, 'uid']),
  // GPUs that each pod without a node asks for; kube-state-metrics leaves the label out until there is one.
  local wanted = |||
    sum by (%(pod)s) (
      max by (%(pod)s, container) (
        kube_pod_container_resource_requests{%(ksm)s, resource="%(r)s", %(n)s=""}
      )
    )
    and on (%(pod)s)
    max by (%(pod)s) (kube_pod_status_unschedulable{%(ksm)s} == 1)
  ||| % { pod: pod, ksm: c.selectors.ksm, r: c.gpu.resource, n: c.nodeLabel },

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
    ],
  },
}
