// The scheduler and the controller manager: of several instances one leads and
// works, the others stand by. Where their pages are not scraped, as where
// somebody else runs the control plane, nothing here is said.
{
  local c = $._config,
  local a = (import '../lib/alert.libsonnet')(c),

  local f = {
    cluster: c.clusterLabel,
    scheduler: c.selectors.scheduler,
    manager: c.selectors.controllerManager,
    name: a.cluster(),
  },

  local alert(name, o) = a.alert(name, { dashboard: 'apiserver' } + o { expr: o.expr % f, description: o.description % f }),

  prometheusAlerts+:: {
    groups+: [
      {
        name: 'controlplane',
        rules: [
          alert('KubeLeaderLost', {
            // An instance that is not scraped, or that a part of the servers which is away scrapes, may lead: only where all of the usual ones answer is it known that none does.
            // Controllers of other locks (the cloud's, while they move) say so beside the main one; whoever holds any of them works.
            expr: |||
              max by (%(cluster)s, job) (leader_election_master_status{%(scheduler)s} or leader_election_master_status{%(manager)s}) == 0
              unless on (%(cluster)s, job)
              (up{%(scheduler)s} == 0 or up{%(manager)s} == 0)
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
            description: 'All instances of {{ $labels.job }} of %(name)s answer and none has led for five minutes: none of them works. Without a scheduler no pod gets a node; without a controller manager none is replaced, no endpoint moves, no node is found dead.',
          }),
        ],
      },
    ],
  },
}
