// What the GPUs are given to, and what is made of them: by team, namespace and
// job. Busy is the share of time in which the graphics engine was active, of
// GPUs that a pod holds; free GPUs count for nobody.
{
  local c = $._config,
  local g = (import '../lib/g.libsonnet')(c),
  local ns = c.namespaceLabel,
  // Recorded series of the chosen namespaces, of the chosen teams.
  local ofTeams(series) = '(namespace:%(series)s{%(cl)s, %(ns)s=~"$namespace"} and on (%(cluster)s, %(ns)s) namespace:team:info{%(cl)s, team=~"$team"})' % {
    series: series,
    cl: g.cl,
    ns: ns,
    cluster: c.clusterLabel,
  },
  local f = {
    cl: g.cl,
    cluster: c.clusterLabel,
    ns: ns,
    // What the reader chose.
    jobs: '%s, %s=~"$namespace", team=~"$team"' % [g.cl, ns],
    teams: '%s, team=~"$team"' % g.cl,
    job: '%s, experiment' % std.join(', ', [c.clusterLabel, ns]),
    // What their pods hold, what that is worth by its activity, and what of it does nothing.
    held: ofTeams('gpu_held:count'),
    active: ofTeams('gpu_active:sum'),
    tensor: ofTeams('gpu_tensor_active:sum'),
    idle: ofTeams('gpu_idle:count'),
  },
  local q(expr, legend='', o={}) = g.q(expr % f, legend, o),
  local largest = 'topk(25, sum by (%(cluster)s, %(ns)s) (%(held)s))',
  local largestJobs = 'topk(25, sum by (%(job)s) (experiment:gpu_util:count{%(jobs)s}))',
  local cluster = { field: c.clusterLabel, title: 'Cluster', width: 85 },
  local share = { unit: 'percentunit', decimals: 0, width: 90 },

  grafanaDashboards+:: {
    'gpu-use.json': g.dashboard({
      name: 'gpu-use',
      title: 'GPU use by team and job',
      description: 'Who has the GPUs, and does the work get out of them what it could?',
      variables: [
        g.clusterVar,
        g.var('team', 'Team', 'label_values(team:gpu_allocated:sum{%s}, team)' % g.cl, {
          multi: true,
          includeAll: true,
          description: 'Teams that hold GPUs.',
        }),
        g.var('namespace', 'Namespace', 'label_values(namespace:gpu_held:count{%s}, %s)' % [g.cl, ns], {
          multi: true,
          includeAll: true,
          description: 'Namespaces whose pods hold GPUs.',
        }),
      ],
      rows: [
        g.row('', [
          g.stat('Busy, of what is held', {
            description: 'Share of time in which GPUs that pods hold did anything. Training is above 80 %; below half somebody holds GPUs for nothing.',
            unit: 'percentunit',
            decimals: 0,
            verdict: true,
            thresholds: [[null, 'bad'], [0.4, 'warn'], [0.6, 'ok']],
            targets: [q('sum(%(active)s) / sum(%(held)s)')],
            trouble: ['GPUAllocatedIdle'],
          }),
          g.stat('Given to pods', {
            description: 'Share of all GPUs that running pods hold, of all namespaces. The rest is free or unhealthy.',
            unit: 'percentunit',
            decimals: 0,
            sparkline: true,
            targets: [q('sum(cluster:gpu_allocated:sum{%(cl)s}) / sum(cluster:gpu_capacity:sum{%(cl)s})')],
            links: [g.link('Pending and packing', 'pending')],
          }),
          g.stat('Tensor cores', {
            description: 'Share of cycles in which tensor cores of held GPUs worked. 30 to 50 % is good training; it tells more than "busy".',
            unit: 'percentunit',
            decimals: 0,
            sparkline: true,
            targets: [q('sum(%(tensor)s) / sum(%(held)s)')],
            trouble: ['GPUAllocatedIdle'],
          }),
          g.stat('Held and idle', {
            description: 'GPUs that a pod holds and that do nothing now. A few between two steps of a job are normal; who holds them is below.',
            unit: 'none',
            decimals: 0,
            sparkline: true,
            targets: [q('sum(%(idle)s) or 0 * sum(%(held)s)')],
            trouble: ['GPUAllocatedIdle'],
          }),
          g.stat('Free GPUs', {
            description: 'GPUs of sound nodes that nobody holds, of all namespaces. Many of them beside pods that wait is fragmentation.',
            unit: 'none',
            decimals: 0,
            sparkline: true,
            targets: [q('sum(cluster:gpu_free:sum{%(cl)s})')],
            links: [g.link('Pending and packing', 'pending')],
          }),
          g.stat('GPUs waited for', {
            description: 'GPUs that pods ask for and the scheduler has no room for, of all namespaces.',
            unit: 'none',
            decimals: 0,
            sparkline: true,
            targets: [q('sum(cluster:gpu_pending:sum{%(cl)s})')],
            links: [g.link('Pending and packing', 'pending')],
            trouble: ['PodsPendingGPUsFree'],
          }),
        ]),

        g.row('Teams', [
          g.timeseries('GPUs by team', {
            description: 'GPUs that running pods of each team hold. What no label claims is "%s".' % c.unassignedTeam,
            unit: 'short',
            stack: true,
            targets: [q('sum by (team) (team:gpu_allocated:sum{%(teams)s})', '{{team}}')],
            links: [g.link('Cost by team', 'cost')],
          }),
          g.timeseries("How busy the teams' GPUs are", {
            description: 'Share of time in which the GPUs that a team holds did anything. A line that falls and stays is a job that hangs.',
            unit: 'percentunit',
            max: 1,
            targets: [q('avg by (team) (team:gpu_active:avg{%(teams)s})', '{{team}}')],
            trouble: ['GPUAllocatedIdle'],
          }),
        ]),

        g.row('Namespaces', [
          g.table('Who holds what', {
            description: 'Namespaces by GPUs held now, how busy they are, and how many of them do nothing. Ask the team whose row is large and slow.',
            unit: 'none',
            w: 16,
            h: 9,
            budget: 100,
            targets: [
              q(largest),
              q('sum by (%(cluster)s, %(ns)s) (%(active)s) / ' + largest),
              q('sum by (%(cluster)s, %(ns)s) (%(tensor)s) / ' + largest),
              q('topk(25, sum by (%(cluster)s, %(ns)s) (%(idle)s) and ' + largest + ' or 0 * ' + largest + ')'),
            ],
            columns: [
              cluster,
              { field: ns, title: 'Namespace', link: g.link('This namespace alone', 'gpu-use', { cluster: g.field(c.clusterLabel), namespace: g.field(ns) }) },
              { field: 'Value #A', title: 'GPUs', decimals: 0, width: 90 },
              share { field: 'Value #B', title: 'Busy', thresholds: [[null, 'bad'], [0.4, 'warn'], [0.6, 'text']] },
              share { field: 'Value #C', title: 'Tensor' },
              { field: 'Value #D', title: 'Idle', decimals: 0, width: 80, thresholds: [[null, 'text'], [c.thresholds.gpu.idleGPUs, 'warn']] },
            ],
            sortBy: 'GPUs',
            trouble: ['GPUAllocatedIdle'],
          }),
          g.bargauge('Most idle GPUs', {
            description: 'Namespaces by GPUs that are held and do nothing. With at least %g for two hours the owner gets a note.' % c.thresholds.gpu.idleGPUs,
            unit: 'none',
            decimals: 0,
            h: 9,
            thresholds: [[null, 'a'], [c.thresholds.gpu.idleGPUs, 'warn']],
            targets: [q('topk(8, sum by (%(cluster)s, %(ns)s) (%(idle)s))', '{{%(ns)s}} {{%(cluster)s}}' % f)],
            links: [g.link('This namespace alone', 'gpu-use', { cluster: g.label(c.clusterLabel), namespace: g.label(ns) })],
            quiet: 'no GPU that is held does nothing',
            trouble: ['GPUAllocatedIdle'],
          }),
        ]),

        g.row('Jobs', [
          g.table('Largest jobs', {
            description: 'Experiments by GPUs, with what they make of them. Spread is how far the busiest GPU is ahead of the idlest, in points: a job goes at the pace of its slowest GPU.',
            unit: 'none',
            w: 16,
            h: 10,
            budget: 100,
            targets: [
              q(largestJobs),
              q('topk(25, max by (%(job)s) (experiment:gpu_util:avg{%(jobs)s}) and ' + largestJobs + ')'),
              q('topk(25, max by (%(job)s) (experiment:gpu_tensor:avg{%(jobs)s}) and ' + largestJobs + ')'),
              q('topk(25, max by (%(job)s) (experiment:gpu_util:spread{%(jobs)s}) and ' + largestJobs + ')'),
            ],
            columns: [
              cluster,
              { field: ns, title: 'Namespace' },
              { field: 'experiment', title: 'Job' },
              { field: 'Value #A', title: 'GPUs', decimals: 0, width: 80 },
              { field: 'Value #B', title: 'Busy', unit: 'percent', decimals: 0, width: 80, thresholds: [[null, 'bad'], [40, 'warn'], [60, 'text']] },
              share { field: 'Value #C', title: 'Tensor' },
              { field: 'Value #D', title: 'Spread', decimals: 0, width: 85, thresholds: [[null, 'text'], [40, 'warn'], [70, 'bad']] },
            ],
            sortBy: 'GPUs',
            trouble: ['GPUAllocatedIdle', 'GPUSlow'],
          }),
          g.bargauge('Jobs with stragglers', {
            description: 'Points of use between the busiest and the idlest GPU of a job. Some between steps is normal; a job that stays above 40 has a slow GPU, a slow node or a bad split.',
            unit: 'none',
            decimals: 0,
            h: 10,
            max: 100,
            thresholds: [[null, 'a'], [40, 'warn'], [70, 'bad']],
            targets: [q('topk(12, max by (%(job)s) (experiment:gpu_util:spread{%(jobs)s}))', '{{experiment}}')],
            trouble: ['GPUSlow'],
          }),
        ]),

        g.row('Nodes', [
          g.heatmap('Nodes by how busy they are', {
            description: 'How many nodes have how busy GPUs. Two bands, at the top and at zero, are good: full nodes and free ones. A wide middle is jobs that wait for data, or for each other.',
            unit: 'percent',
            rows: true,
            targets: [q('sum by (percent) (cluster:node_gpu_util_percent:count{%(cl)s})', '{{percent}}')],
            trouble: ['GPUAllocatedIdle'],
          }),
          g.timeseries('Held, busy and idle', {
            description: 'GPUs that pods of the chosen namespaces hold, how many of them that are worth by their activity, and how many do nothing.',
            unit: 'short',
            targets: [
              q('sum(%(held)s)', 'held'),
              q('sum(%(active)s)', 'worth of work'),
              q('sum(%(idle)s) or 0 * sum(%(held)s)', 'idle'),
            ],
            colors: ['d', 'a', 'c'],
            trouble: ['GPUAllocatedIdle'],
          }),
        ]),
      ],
    }),
  },
}
