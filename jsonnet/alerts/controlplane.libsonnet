// The scheduler and the controller manager: of several instances one leads and
// works, the others stand by. Where their pages are not scraped, as where
// somebody else runs the control plane, nothing here is said.
{
  local c = $._config,
  local th = c.thresholds.controlPlane,
  local t = (import '../lib/time.libsonnet')(c.timeScale),
  local a = (import '../lib/alert.libsonnet')(c),
  local number = import '../lib/number.libsonnet',

  local f = {
    cluster: c.clusterLabel,
    scheduler: c.selectors.scheduler,
    manager: c.selectors.controllerManager,
    apiserver: c.selectors.apiserver,
    measured: number(c.thresholds.apiserver.measured),
    memory: t.d(c.targets.memory),
    w5: t.d('5m'),
    w10: t.d('10m'),
    w: t.d('15m'),
    day: t.d('1d'),
    name: a.cluster(),
  } + { [k]: number(th[k]) for k in std.objectFields(th) },

  local alert(name, o) = a.alert(name, { dashboard: 'apiserver' } + o { expr: o.expr % f, description: o.description % f }),

  prometheusAlerts+:: {
    groups+: [
      {
        name: 'controlplane',
        rules: [
          alert('KubeLeaderLost', {
            // An instance that is not scraped, or that a part of the servers which is away scrapes, may lead: only where all of the usual ones answer is it known that none does.
            // Controllers of other locks (the cloud's, while they move) say so beside the main one; whoever holds any of them works.
            // Who is dead says nothing of leading: where none answers of those that once did, none works; nor where each answers a scrape now and then, between two crashes. They ask the API server whether whoever scrapes them may, so that without one they answer with 401: that is
            // KubeAPIServerNotMeasured. Those of kubeadm listen on 127.0.0.1, and never answered.
            expr: |||
              (
                max by (%(cluster)s, job) (leader_election_master_status{%(scheduler)s} or leader_election_master_status{%(manager)s}) == 0
                unless on (%(cluster)s, job)
                (up{%(scheduler)s} == 0 or up{%(manager)s} == 0)
                or
                (
                  max by (%(cluster)s, job) (up{%(scheduler)s} or up{%(manager)s}) == 0
                  or
                  max by (%(cluster)s, job) (avg_over_time(up{%(scheduler)s}[%(w10)s]) or avg_over_time(up{%(manager)s}[%(w10)s])) < 0.2
                )
                and on (%(cluster)s, job)
                group by (%(cluster)s, job) (
                  last_over_time(leader_election_master_status{%(scheduler)s}[%(memory)s])
                  or
                  last_over_time(leader_election_master_status{%(manager)s}[%(memory)s])
                )
                unless on (%(cluster)s)
                avg by (%(cluster)s) (avg_over_time(up{%(apiserver)s}[%(w5)s])) < %(measured)s
              )
              unless on (%(cluster)s, job)
              (
                count by (%(cluster)s, job) (up{%(scheduler)s} or up{%(manager)s})
                < on (%(cluster)s, job)
                cluster_job:targets_usual:count
              )
            |||,
            hold: '5m',
            severity: 'critical',
            summary: 'The scheduler or the controller manager has no leader.',
            description: 'All instances of {{ $labels.job }} of %(name)s answer and none has led for five minutes, or none of them answers: none of them works. Without a scheduler no pod gets a node; without a controller manager none is replaced, no endpoint moves, no node is found dead.',
          }),
          alert('KubeSchedulerStuck', {
            // A stand-by fills its queue with every pod that has no node and takes none out: those that the leader has long tried and found no room for wait there for ever. Only who does not
            // say that it stands by is looked at. Attempts are counted of all instances, since the lead may just have moved.
            // The counter is not there before the first attempt, and not where it is dropped: it must have been there within a day.
            expr: |||
              max by (%(cluster)s) (
                min_over_time(scheduler_pending_pods{%(scheduler)s,queue="active"}[%(w10)s])
                unless on (%(cluster)s, instance)
                leader_election_master_status{%(scheduler)s} == 0
              ) >= %(waitingPods)s
              unless on (%(cluster)s)
              sum by (%(cluster)s) (rate(scheduler_schedule_attempts_total{%(scheduler)s}[%(w10)s])) > 0
              and on (%(cluster)s)
              count by (%(cluster)s) (present_over_time(scheduler_schedule_attempts_total{%(scheduler)s}[%(day)s]))
            |||,
            hold: '5m',
            severity: 'critical',
            summary: 'The scheduler takes no pod from its queue.',
            description: '{{ $value }} pods or more have waited for ten minutes to be tried by the scheduler of %(name)s, and it has tried none: it hangs, and no pod of the cluster gets a node.',
          }),
          alert('KubeControllerQueueStuck', {
            // What is put off until later, as after a failure, is not in the queue: what is there could be worked on now. Only who leads has these queues, and another one's are not mixed in.
            // Where the count of what was finished is not there, as after a drop rule, nothing is known.
            expr: |||
              max by (%(cluster)s, name) (
                min_over_time(workqueue_depth{%(manager)s}[%(w)s]) >= %(waitingItems)s
                and on (%(cluster)s, instance, name)
                rate(workqueue_work_duration_seconds_count{%(manager)s}[%(w)s]) == 0
              )
            |||,
            hold: '15m',
            severity: 'warning',
            summary: 'A controller finishes nothing of what waits for it.',
            description: 'In queue {{ $labels.name }} of the controller manager of %(name)s {{ $value }} objects or more have waited, and none has been finished: its workers hang.',
          }),
        ],
      },
    ],
  },
}
