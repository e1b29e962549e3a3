// Pods that wait, gangs that wait for each other, and the autoscaler.
{
  local c = $._config,
  local a = (import '../lib/alert.libsonnet')(c),
  local t = (import '../lib/time.libsonnet')(c.timeScale),
  local th = c.thresholds.pending,
  local cl = c.clusterLabel,
  local ns = c.namespaceLabel,
  local pod = std.join(', ', [cl, ns, c.podLabel, 'uid']),
  local ca = c.selectors.autoscaler,

  // waiting are the pods that wait for GPUs now and did so a while ago: `for` on a count of pods would fire on a cluster in which each waits a minute. What was recorded then leaves out those behind a gate.
  local waiting(since) =
    |||
      pod:gpu_pending:sum
      and on (%(pod)s)
      pod:gpu_pending:sum offset %(since)s
    ||| % { pod: pod, since: t.d(since) },
  // Not the slices of MIG that go under their own names: no pod that waits for whole GPUs can have one, nor one that waits for slices a whole GPU.
  local free = '(cluster:gpu_free:sum - on (%(cl)s) cluster:gpu_slices_free:sum or on (%(cl)s) cluster:gpu_free:sum)' % { cl: cl },
  local indented(s) = std.strReplace(std.rstripChars(s, '\n'), '\n', '\n  '),

  prometheusAlerts+:: {
    groups+: [
      {
        name: 'pending',
        rules: [
          a.alert('GPUPodsPendingLong', {
            expr: |||
              count by (%s, %s) (
                %s
              )
            ||| % [cl, ns, indented(waiting('30m'))],
            hold: '1m',
            severity: 'warning',
            summary: 'Pods have waited long for GPUs.',
            description: '{{ $value }} pods in namespace {{ $labels.%s }} of {{ $labels.%s }} have waited for GPUs for more than half an hour.' % [ns, cl],
            dashboard: 'pending',
            vars: { namespace: ns },
          }),
          a.alert('PendingWhileGPUsFree', {
            expr: |||
              (
                %(free)s / on (%(cl)s) cluster:gpu_capacity:sum > %(share)g
              )
              and on (%(cl)s)
              (%(free)s >= %(gpus)g)
              and on (%(cl)s)
              count by (%(cl)s) (
                %(waiting)s
                and on (%(pod)s)
                kube_pod_container_resource_requests{%(ksm)s, resource="%(r)s", %(n)s=""}
              )
            ||| % { cl: cl, pod: pod, n: c.nodeLabel, ksm: c.selectors.ksm, r: c.gpu.resource, free: free, share: th.freeShare, gpus: th.freeGPUs, waiting: indented(waiting('5m')) },
            hold: '15m',
            severity: 'warning',
            summary: 'Pods wait for GPUs while many are free.',
            description: '{{ $value | humanizePercentage }} of the GPUs of {{ $labels.%s }} are free and healthy, and pods have waited for GPUs for more than five minutes: free GPUs are in pieces, reserved, or out of a quota.' % cl,
            dashboard: 'pending',
          }),
          a.alert('GPUPodsNotScheduled', {
            // The scheduler marks a pod that it found no room for. One that it has not looked at has no mark: where it hangs, and where something else holds the pod back. A scheduling gate is marked by the API server, with a reason of its own.
            expr: |||
              count by (%(cl)s, %(ns)s) (
                max by (%(pod)s) (kube_pod_container_resource_requests{%(ksm)s, resource="%(r)s", %(n)s=""})
                and on (%(pod)s)
                max by (%(pod)s) (kube_pod_container_resource_requests{%(ksm)s, resource="%(r)s", %(n)s=""} offset %(since)s)
                and on (%(pod)s)
                max by (%(pod)s) (kube_pod_status_phase{%(ksm)s, phase="Pending"} == 1)
                unless on (%(pod)s)
                (
                  max by (%(pod)s) (kube_pod_status_unschedulable{%(ksm)s} == 1)
                  unless on (%(pod)s)
                  max by (%(pod)s) (kube_pod_status_reason{%(ksm)s, reason="SchedulingGated"} == 1)
                )
              )
              and on (%(cl)s)
              (%(free)s >= %(gpus)g)
            ||| % { cl: cl, free: free, ns: ns, pod: pod, n: c.nodeLabel, ksm: c.selectors.ksm, r: c.gpu.resource, since: t.d('30m'), gpus: th.freeGPUs },
            hold: '5m',
            severity: 'warning',
            summary: 'Pods wait for GPUs, and the scheduler does not look at them.',
            description: '{{ $value }} pods in namespace {{ $labels.%s }} of {{ $labels.%s }} have asked for GPUs for more than half an hour without being tried anywhere, while GPUs are free: the scheduler hangs, or something holds them back (Kueue, a scheduling gate, a pod group that is not all there, a scheduler name that nobody serves).' % [ns, cl],
            dashboard: 'pending',
            vars: { namespace: ns },
          }),
          a.alert('GangPartiallyRunning', {
            // Only what says of itself that it is a gang: of a sweep some jobs run and some wait, as they should.
            expr: 'avg by (%s) (gang:pod:running) > 0 < 1' % std.join(', ', [cl, ns, 'experiment', 'team', 'gang']),
            hold: '15m',
            severity: 'warning',
            summary: 'A gang runs in part.',
            description: '{{ $value | humanizePercentage }} of the pods of gang {{ $labels.gang }} of experiment {{ $labels.experiment }} (namespace {{ $labels.%s }}, team {{ $labels.team }}) of {{ $labels.%s }} run and wait for the others, which are pending. Two such gangs can wait for each other for ever.' % [ns, cl],
            dashboard: 'pending',
            vars: { namespace: ns },
          }),
          a.alert('ClusterAutoscalerStuck', {
            // The last value is kept for six hours: an autoscaler that does not answer grows old like one that hangs. One that is not discovered any more may run where nobody scrapes it:
            // ScrapeJobGone tells of that.
            expr: |||
              (
                time()
                - max by (%(cl)s) (
                  last_over_time(cluster_autoscaler_last_activity{%(ca)s, activity="main"}[%(w)s])
                )
                > %(x)g
              )
              and on (%(cl)s)
              max by (%(cl)s) (up{%(ca)s})
            ||| % { cl: cl, ca: ca, w: t.d('6h'), x: th.autoscalerSeconds / c.timeScale },
            hold: '10m',
            severity: 'critical',
            labels: { reason: 'no-loop' },
            summary: 'The autoscaler has stopped.',
            description: 'The autoscaler of {{ $labels.%s }} last went round its loop {{ $value | humanizeDuration }} ago: no node comes, none goes.' % cl,
            dashboard: 'pending',
          }),
          a.alert('ClusterAutoscalerStuck', {
            // A stand-by that waits for the lead says 0 as well.
            expr: 'max by (%s) (cluster_autoscaler_cluster_safe_to_autoscale{%s}) == 0' % [cl, ca],
            hold: '10m',
            severity: 'critical',
            labels: { reason: 'unsafe' },
            summary: 'The autoscaler has stopped.',
            description: 'The autoscaler of {{ $labels.%s }} holds the cluster for too unhealthy to be scaled: too many nodes are not ready or did not register.' % cl,
            dashboard: 'pending',
          }),
          a.alert('ClusterAutoscalerScaleUpFailing', {
            expr: |||
              sum by (%(cl)s, reason) (
                increase(cluster_autoscaler_failed_scale_ups_total{%(ca)s}[%(w)s])
              )
              > %(n)g
            ||| % { cl: cl, ca: ca, w: t.d('1h'), n: th.scaleUpFailures },
            hold: '15m',
            severity: 'warning',
            summary: 'The autoscaler gets no nodes.',
            description: '{{ $value | humanize }} scale-ups of {{ $labels.%s }} failed within an hour for {{ $labels.reason }}: stock-out, quota, or a node group in back-off.' % cl,
            dashboard: 'pending',
          }),
        ],
      },
    ],
  },
}
