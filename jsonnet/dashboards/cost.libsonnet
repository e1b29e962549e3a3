// What GPUs cost and whose they are.
//
// Money here is that of list prices and recorded allocation: good for seeing
// where it goes. The bill is made by `spillway cost` from raw samples.
{
  local c = $._config,
  local g = (import '../lib/g.libsonnet')(c),
  local th = c.thresholds.cost,
  local f = {
    cl: g.cl,
    cluster: c.clusterLabel,
    ns: c.namespaceLabel,
    none: c.unassignedTeam,
    teams: '%s, team=~"$team"' % g.cl,
  },
  local money = 'currency%s' % c.prices.currency,

  // sum is what a recorded level adds up to over the time shown, in hours: it is read each five minutes.
  local hours(expr) = 'sum_over_time((%s)[$__range:5m]) / 12' % expr,

  grafanaDashboards+:: {
    'cost.json': g.dashboard({
      name: 'cost',
      title: 'Cost by team',
      description: 'What GPUs cost this month, whose they are, and what nobody uses.',
      time: { from: 'now/M', to: 'now' },
      variables: [
        g.clusterVar,
        g.var('team', 'Team', 'label_values(team:gpu_allocated:sum{%(cl)s}, team)' % f, { multi: true, includeAll: true, description: 'Teams that hold GPUs.' }),
      ],
      rows: [
        g.row('', [
          g.stat('Cost', {
            description: "Money for GPUs that the chosen teams held in the time shown: from the month's first day, unless you choose otherwise.",
            unit: money,
            decimals: 2,
            targets: [g.q('sum(%s)' % hours('team:gpu_cost_per_hour:sum{%(teams)s}' % f))],
          }),
          g.stat('The month at this pace', {
            description: 'What the month comes to if it goes on as in the time shown, of which the hours count in which anything was measured. Compare it with the budget while it can still be changed.',
            unit: money,
            decimals: 2,
            targets: [g.q('sum(sum_over_time((team:gpu_cost_per_hour:sum{%(teams)s})[$__range:5m])) / scalar(count_over_time((group(cluster:gpu_capacity:sum{%(cl)s}))[$__range:5m])) * 24 * scalar(days_in_month())' % f)],
          }),
          g.stat('An hour costs', {
            description: 'Money for one hour at what is held now.',
            unit: money,
            decimals: 2,
            targets: [g.q('sum(team:gpu_cost_per_hour:sum{%(teams)s})' % f)],
          }),
          g.stat('GPU-hours', {
            description: 'GPU-hours that the chosen teams held in the time shown.',
            unit: 'short',
            decimals: 0,
            targets: [g.q('sum(%s)' % hours('team:gpu_allocated:sum{%(teams)s}' % f))],
          }),
          g.stat('Held and active', {
            description: 'Share of the time in which held GPUs computed, now. Below half, somebody holds GPUs that others wait for.',
            unit: 'percentunit',
            decimals: 0,
            thresholds: [[null, 'bad'], [0.3, 'warn'], [0.5, 'ok']],
            targets: [g.q('sum(namespace:gpu_active:sum{%(cl)s} * on (%(cluster)s, %(ns)s) group_left (team) namespace:team:info{%(teams)s}) / sum(namespace:gpu_held:count{%(cl)s} * on (%(cluster)s, %(ns)s) group_left (team) namespace:team:info{%(teams)s})' % f)],
            trouble: ['GPUAllocatedIdle'],
          }),
          g.stat("Nobody's", {
            description: 'Share of the GPU-hours of the last hour in namespaces without a team. Above %g %% CostTeamUnassigned asks for an owner.' % (100 * th.unassigned),
            unit: 'percentunit',
            decimals: 1,
            thresholds: [[null, 'ok'], [th.unassigned, 'warn'], [5 * th.unassigned, 'bad']],
            targets: [g.q('(sum(team:gpu_hours:sum1h{%(cl)s, team="%(none)s"}) or 0 * sum(team:gpu_hours:sum1h{%(cl)s})) / sum(team:gpu_hours:sum1h{%(cl)s})' % f)],
          }),
        ]),
        g.row('Whose is it?', [
          g.timeseries('Cost of an hour by team', {
            description: 'Money an hour by team, the ten largest. Steps are gangs that begin and end.',
            unit: money,
            w: 16,
            h: 10,
            stack: true,
            targets: [g.q('topk(10, sum by (team) (team:gpu_cost_per_hour:sum{%(teams)s}))' % f, '{{team}}')],
            budget: 100,
          }),
          g.bargauge('Cost by team', {
            description: 'Money in the time shown by team. It adds up to the cost above.',
            unit: money,
            decimals: 0,
            w: 8,
            h: 10,
            targets: [g.q('sort_desc(topk(15, sum by (team) (%s)))' % hours('team:gpu_cost_per_hour:sum{%(teams)s}' % f), '{{team}}')],
          }),
          g.table('Teams', {
            description: 'Each team: GPU-hours and money in the time shown, what it holds now, and how busy that is. A low share beside many GPUs is the conversation to have.',
            w: 24,
            h: 9,
            targets: [
              g.q('sum by (team) (%s)' % hours('team:gpu_allocated:sum{%(teams)s}' % f)),
              g.q('sum by (team) (%s)' % hours('team:gpu_cost_per_hour:sum{%(teams)s}' % f)),
              g.q('sum by (team) (team:gpu_allocated:sum{%(teams)s})' % f),
              g.q('avg by (team) (team:gpu_active:avg{%(teams)s})' % f),
              g.q('sum by (team) (%s) / scalar(sum(%s))' % [hours('team:gpu_cost_per_hour:sum{%(teams)s}' % f), hours('team:gpu_cost_per_hour:sum{%(cl)s}' % f)]),
            ],
            columns: [
              { field: 'team', title: 'Team', link: g.link('Use of GPUs by team', 'gpu-use') },
              { field: 'Value #A', title: 'GPU-hours', unit: 'short', decimals: 0 },
              { field: 'Value #B', title: 'Cost', unit: money, decimals: 0 },
              { field: 'Value #E', title: 'Of all', unit: 'percentunit', decimals: 1 },
              { field: 'Value #C', title: 'GPUs now', unit: 'short', decimals: 0 },
              { field: 'Value #D', title: 'Active', unit: 'percentunit', decimals: 0, thresholds: [[null, 'bad'], [0.3, 'warn'], [0.5, 'text']] },
            ],
            sortBy: 'Cost',
            trouble: ['GPUAllocatedIdle'],
            budget: 200,
          }),
        ]),
        g.row('Which namespace, which model?', [
          g.table('Namespaces', {
            description: 'GPU-hours by namespace in the time shown, the twenty largest, and the team that each belongs to.',
            w: 12,
            h: 9,
            targets: [
              g.q('topk(20, sum by (%(cluster)s, %(ns)s) (sum_over_time(namespace:gpu_allocated:sum{%(cl)s}[$__range:5m]) / 12) * on (%(cluster)s, %(ns)s) group_left (team) namespace:team:info{%(teams)s})' % f),
            ],
            columns: [
              { field: c.clusterLabel, title: 'Cluster', hide: !c.showMultiCluster },
              { field: c.namespaceLabel, title: 'Namespace' },
              { field: 'team', title: 'Team' },
              { field: 'Value', title: 'GPU-hours', unit: 'short', decimals: 0 },
            ],
            sortBy: 'GPU-hours',
          }),
          g.timeseries('GPUs held by model', {
            description: 'GPUs that teams hold, by model. Models differ in price: a shift to the dearer one shows here before it shows in money.',
            unit: 'short',
            decimals: 0,
            w: 12,
            h: 9,
            stack: true,
            targets: [g.q('sum by (model) (team:gpu_allocated_by_model:sum{%(teams)s})' % f, '{{model}}')],
          }),
        ]),
        g.row('What is nobody using?', [
          g.timeseries('Where all GPUs are', {
            description: 'Every GPU there is, once: held by a pod, out of order, or free. The bill is of the first; the others are what the fleet costs beyond it.',
            unit: 'short',
            decimals: 0,
            w: 12,
            stack: true,
            colors: ['a', 'bad', 'd'],
            targets: [
              g.q('sum(cluster:gpu_allocated:sum{%(cl)s})' % f, 'held'),
              g.q('sum(cluster:gpu_unhealthy:sum{%(cl)s})' % f, 'out of order'),
              g.q('clamp_min(sum(cluster:gpu_free:sum{%(cl)s}), 0)' % f, 'free'),
            ],
            trouble: ['NodeNotReady', 'PodsPendingGPUsFree'],
          }),
          g.bargauge('GPU-hours of the last hour', {
            description: 'GPU-hours that were held, out of order and free in the last hour. They add up to the capacity.',
            unit: 'short',
            decimals: 0,
            w: 6,
            targets: [
              g.q('sum(cluster:gpu_hours:sum1h{%s, state="%s"})' % [g.cl, state[0]], state[1])
              for state in [['allocated', 'held'], ['unhealthy', 'broken'], ['free', 'free']]
            ],
          }),
          g.bargauge('Idle GPUs by namespace', {
            description: 'GPUs that are held and do nothing, by namespace: the ten with most. GPUAllocatedIdle tells their owners after two hours.',
            unit: 'short',
            decimals: 0,
            w: 6,
            thresholds: [[null, 'info'], [c.thresholds.gpu.idleGPUs, 'warn']],
            targets: [g.q('topk(10, sum by (%(ns)s) (namespace:gpu_idle:count{%(cl)s}))' % f, '{{%(ns)s}}' % f)],
            quiet: 'every GPU that is held does something',
            trouble: ['GPUAllocatedIdle'],
          }),
        ]),
        g.row('Can the numbers be trusted?', [
          g.timeseries('Share of the hour that was measured', {
            description: 'How much of each hour the GPUs were measured. Below 100 % the sums of that hour are too low: the ruler or kube-state-metrics was away.',
            unit: 'percentunit',
            w: 12,
            max: 1,
            targets: [g.q('clamp_max(min by (%(cluster)s) (cluster:gpu_hours_coverage:ratio1h{%(cl)s}), 1)' % f, '{{%(cluster)s}}' % f)],
          }),
          g.table('Namespaces without a team', {
            description: 'Namespaces without a label that names their team, those with GPUs first: nobody pays for them. Ask whoever made them, and label the namespace: %s.' % std.join(', ', [std.strReplace(l, 'label_', '') for l in c.teamLabels]),
            w: 12,
            targets: [g.q('topk(20, sum by (%(cluster)s, %(ns)s) (namespace:gpu_allocated:sum{%(cl)s} * on (%(cluster)s, %(ns)s) group_left () namespace:team:info{%(cl)s, team="%(none)s"}) or on (%(cluster)s, %(ns)s) 0 * sum by (%(cluster)s, %(ns)s) (namespace:team:info{%(cl)s, team="%(none)s"}))' % f)],
            columns: [
              { field: c.clusterLabel, title: 'Cluster', width: 90, hide: !c.showMultiCluster },
              { field: c.namespaceLabel, title: 'Namespace' },
              { field: 'Value', title: 'GPUs', unit: 'short', decimals: 0, width: 90, thresholds: [[null, 'text'], [1, 'warn']] },
            ],
            sortBy: 'GPUs',
          }),
        ]),
      ],
    }),
  },
}
