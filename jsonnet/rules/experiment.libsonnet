// What the Grafana plugin and its users ask for: pods and GPUs by experiment.
//
// Which label of a pod names its experiment differs between controllers:
// _config.experimentLabels is a chain, the first that a pod has counts. A link
// selects only pods without the labels before it: however many of them a pod
// has (JobSet's have Job's two as well), it is sent once. max by comes before
// label_replace, so that shards send one series for each pod however many
// kube-state-metrics there are.
{
  local c = $._config,
  local t = (import '../lib/time.libsonnet')(c.timeScale),
  local g = (import '../lib/gpu.libsonnet')(c),
  local cl = c.clusterLabel,
  local ns = c.namespaceLabel,
  local p = c.podLabel,
  local pod = std.join(', ', [cl, ns, p, 'uid']),

  // replaced copies the first label of a list that is not empty into `to`: the last replacement wins, so they are written worst first.
  local replaced(expr, labels, to) = std.foldr(function(l, e) 'label_replace(%s, "%s", "$1", "%s", "(.+)")' % [e, to, l], labels, expr),

  local link(i) =
    local label = c.experimentLabels[i];
    local before = std.join('', [l + '="", ' for l in c.experimentLabels[:i]]);
    local teams = std.join(', ', c.teamLabels);
    |||
      max by (%(pod)s, experiment, team) (
        %(replaced)s
      )
    ||| % {
      pod: pod,
      replaced: replaced(
        replaced('max by (%s, %s, %s) (kube_pod_labels{%s, %s%s!=""})' % [pod, label, teams, c.selectors.ksm, before, label], c.teamLabels, 'team'),
        [label],
        'experiment'
      ),
    },

  // gang is the gang of each pod that is of one: of the same form as a link.
  local gang = std.join('or on (%s)\n' % pod, [
    'max by (%s, gang) (\n  %s\n)\n' % [pod, replaced(
      'max by (%s, %s) (kube_pod_labels{%s, %s%s!=""})' % [pod, c.gangLabels[i], c.selectors.ksm, std.join('', [l + '="", ' for l in c.gangLabels[:i]]), c.gangLabels[i]],
      [c.gangLabels[i]],
      'gang'
    )]
    for i in std.range(0, std.length(c.gangLabels) - 1)
  ]),

  // Of DCGM series whose labels of the pod are called otherwise.
  local onPod(expr) = std.foldl(
    function(e, pair) if pair[0] == pair[1] then e else 'label_replace(%s, "%s", "$1", "%s", "(.+)")' % [e, pair[1], pair[0]],
    [[c.dcgm.namespace, ns], [c.dcgm.pod, p], [c.dcgm.node, c.nodeLabel]],
    expr
  ),

  local ofExperiment = '%s, %s, experiment, team' % [cl, ns],

  // A join of 60,000 GPUs is more than one request should hold, so it is made in parts by the GPU's index. Parts are disjoint: together they are all.
  local parts = [
    '%s=~"%s"' % [c.dcgm.gpu, part]
    for part in c.gpu.indexParts
  ] + ['%s!~"%s"' % [c.dcgm.gpu, std.join('|', c.gpu.indexParts)]],
  local ofGPU(name, metric, bound) = [
    {
      record: 'experiment:gpu:%s' % name,
      expr: |||
        %(gpu)s
        * on (%(join)s) group_left (experiment, team)
        group by (%(join)s, experiment, team) (experiment:pod:gpus)
      ||| % {
        gpu: onPod('max by (%s, %s, %s, %s, %s, %s) (%s)' % [
          cl,
          c.dcgm.namespace,
          c.dcgm.pod,
          c.dcgm.node,
          c.dcgm.gpu,
          c.dcgm.uuid,
          '%s %s' % [g.series(metric, '%s!="", %s' % [c.dcgm.pod, part]), bound],
        ]),
        // The node too: under one name there may be a pod that is going and one that has come.
        join: std.join(', ', [cl, ns, p, c.nodeLabel]),
      },
    }
    for part in parts
  ],

  prometheusRules+:: {
    groups+: [
      {
        name: 'experiment.pods',
        interval: t.d('1m'),
        rules: [
          {
            // team is empty where the pod has no label for it.
            record: 'experiment:pod:labels',
            expr: std.join('or on (%s)\n' % pod, [link(i) for i in std.range(0, std.length(c.experimentLabels) - 1)]),
          },
          {
            // node is empty while the pod waits; the team is the namespace's where the pod names none. Daemons are left out: at 7,500 nodes they are nearly all pods.
            record: 'experiment:pod:info',
            expr: |||
              (
                experiment:pod:labels{team!=""}
                or on (%(pod)s)
                experiment:pod:labels * on (%(cl)s, %(ns)s) group_left (team) namespace:team:info
                or on (%(pod)s)
                experiment:pod:labels
              )
              * on (%(pod)s) group_left (%(n)s)
              (
                max by (%(pod)s, %(n)s) (kube_pod_info{%(ksm)s, created_by_kind!="DaemonSet", %(n)s!=""})
                or on (%(pod)s)
                max by (%(pod)s, %(n)s) (kube_pod_info{%(ksm)s, created_by_kind!="DaemonSet", %(n)s=""})
              )
            ||| % { pod: pod, cl: cl, ns: ns, n: c.nodeLabel, ksm: c.selectors.ksm },
          },
          {
            // GPUs of pods that run, or are bound to a node and start; in cards. Of those that have theirs by a ResourceClaim the exporter knows no uid.
            record: 'experiment:pod:gpus',
            expr: |||
              pod:gpu_cards:sum
              * on (%(pod)s, %(n)s) group_left (experiment, team)
              experiment:pod:info
              or on (%(name)s)
              experiment:pod:info
              * on (%(name)s) group_left ()
              pod:gpu_cards:sum{uid=""}
            ||| % { pod: pod, name: std.join(', ', [cl, ns, p, c.nodeLabel]), n: c.nodeLabel },
          },
          {
            // Pods with GPUs by what they do.
            record: 'experiment:pods:count',
            labels: { phase: 'Running' },
            expr: |||
              count by (%(cl)s, %(ns)s, experiment, team) (
                experiment:pod:gpus
                unless on (%(pod)s)
                max by (%(pod)s) (kube_pod_status_phase{%(ksm)s, phase="Pending"} == 1)
              )
            ||| % { pod: pod, cl: cl, ns: ns, ksm: c.selectors.ksm },
          },
          {
            record: 'experiment:pods:count',
            labels: { phase: 'Pending' },
            expr: |||
              count by (%(cl)s, %(ns)s, experiment, team) (
                experiment:pod:info
                and on (%(pod)s)
                max by (%(pod)s) (kube_pod_status_phase{%(ksm)s, phase="Pending"} == 1)
                and on (%(pod)s)
                max by (%(pod)s) (kube_pod_container_resource_requests{%(ksm)s, resource="%(r)s"})
              )
            ||| % { pod: pod, cl: cl, ns: ns, ksm: c.selectors.ksm, r: c.gpu.resource },
          },
          {
            // Pods of gangs that wait or run, 0 while they wait: what a gang is judged by. Jobs of a sweep wait for nobody.
            record: 'gang:pod:running',
            expr: |||
              (
                0 * (
                  experiment:pod:info
                  and on (%(pod)s)
                  max by (%(pod)s) (kube_pod_status_phase{%(ksm)s, phase="Pending"} == 1)
                  and on (%(pod)s)
                  max by (%(pod)s) (kube_pod_container_resource_requests{%(ksm)s, resource="%(r)s"})
                )
                or on (%(pod)s)
                experiment:pod:gpus > bool 0
              )
              * on (%(pod)s) group_left (gang)
              group by (%(pod)s, gang) (
                %(gang)s
              )
            ||| % { pod: pod, ksm: c.selectors.ksm, r: c.gpu.resource, gang: std.strReplace(std.rstripChars(gang, '\n'), '\n', '\n  ') },
          },
        ],
      },
      // A series for each GPU of an experiment: few such joins of the whole fleet in a group, so that none takes long.
      {
        name: 'experiment.gpus',
        interval: t.d('1m'),
        rules: std.flattenArrays([
          ofGPU('util', 'DCGM_FI_DEV_GPU_UTIL', '<= 100'),
          ofGPU('tensor', 'DCGM_FI_PROF_PIPE_TENSOR_ACTIVE', '<= 1'),
          // A job goes at the pace of its slowest GPU: how far its fastest is ahead of that, in points of use.
          [
            {
              record: 'experiment:gpu_util:spread',
              expr: 'max by (%(by)s) (experiment:gpu:util) - on (%(by)s) min by (%(by)s) (experiment:gpu:util)' % { by: ofExperiment },
            },
            { record: 'experiment:gpu_util:avg', expr: 'avg by (%s) (experiment:gpu:util)' % ofExperiment },
            { record: 'experiment:gpu_util:count', expr: 'count by (%s) (experiment:gpu:util)' % ofExperiment },
            { record: 'experiment:gpu_tensor:avg', expr: 'avg by (%s) (experiment:gpu:tensor)' % ofExperiment },
          ],
        ]),
      },
      {
        name: 'experiment.memory',
        interval: t.d('1m'),
        rules: ofGPU('mem', 'DCGM_FI_DEV_FB_USED', '< %g' % c.dcgm.blank) + ofGPU('dram', 'DCGM_FI_PROF_DRAM_ACTIVE', '<= 1'),
      },
      { name: 'experiment.power', interval: t.d('1m'), rules: ofGPU('power', 'DCGM_FI_DEV_POWER_USAGE', '< %g' % c.dcgm.blank) },
      { name: 'experiment.heat', interval: t.d('1m'), rules: ofGPU('temp', 'DCGM_FI_DEV_GPU_TEMP', '< %g' % c.dcgm.blank) },
    ],
  },
}
