// What a team has: its experiments, the GPUs that they hold and those that are kept for it, what is idle, what waits, what it cost.
function(c, e)
  local ours = e.of(['team', 'cluster']);
  local q(type, o={}, several=false) = e.q(type, ours, o, several);
  local promql(expr, legend, several=false) = q('promql', { expr: expr, legend: legend }, several);
  local now(expr, legend) = q('promql', { expr: expr, legend: legend, instant: true });
  local kept(series) = 'sum(%s{%s=~"$cluster", team=~"$team"})' % [series, c.clusterLabel];

  // Idle GPUs, as type cost counts them: each of a pod weighs as much as the pod holds of each that is measured, a quarter of a card a quarter.
  local pod = 'cluster, namespace, pod, node, experiment, team';
  local idle(sum) = '%(sum)s (avg by (%(pod)s) (experiment:gpu:util{$__experiment} < bool $__idle_below) * on (%(pod)s) sum by (%(pod)s) (experiment:pod:gpus{$__experiment}))'
                    % { sum: sum, pod: pod };
  // GPUs of pods of which nothing is measured, where there are any: nobody knows whether they are idle.
  local unmeasured = 'sum(sum by (%(pod)s) (experiment:pod:gpus{$__experiment}) unless on (%(pod)s) experiment:gpu:util{$__experiment}) > 0' % { pod: pod };
  // What is of nothing has no value. It is nought while kube-state-metrics and the rules say which nodes there are.
  local held = 'sum(experiment:pod:gpus{$__experiment})';
  local nought = '0 * sum(cluster:nodes:count{%s=~"$cluster"})' % c.clusterLabel;

  local toExperiment = e.link('This experiment', 'experiment', { experiment: e.field('experiment'), team: e.field('team') });

  e.dashboard({
    name: 'team',
    title: 'My team',
    description: 'What does my team run, does it use the GPUs that it holds, and what waits?',
    time: 'now-24h',
    refresh: '5m',
    events: ours,
    variables: [
      // Not All: on a large fleet it is more than the proxy lets one panel ask.
      e.list('team', 'Team', 'teams', [], { multi: true, description: 'One or several of the teams that have experiments. The address remembers them: bookmark it with your own.' }),
      e.clusterVar,
    ],
    rows: [
      e.row('', [
        e.counts('Pods', ['Running', 'Pending', 'Failed'], {
          description: 'Pods of all its experiments that are there now.',
          w: 6,
          decimals: 0,
          targets: [q('status', { view: 'total' })],
          overrides: [
            { match: { name: 'Running' }, thresholds: [[null, 'off'], [1, 'ok']] },
            { match: { name: 'Pending' }, thresholds: [[null, 'off'], [1, 'warn']] },
            { match: { name: 'Failed' }, thresholds: [[null, 'off'], [1, 'bad']] },
          ],
          thresholds: [[null, 'text']],
        }),
        e.stat('GPUs held', {
          description: 'GPUs that its running pods hold now.',
          w: 3,
          decimals: 0,
          targets: [now(held + ' or ' + nought, 'held')],
        }) + { options+: { textMode: 'value' } },
        e.stat('Idle GPUs', {
          description: 'GPUs that its pods hold and that do next to nothing now: less than `idleBelow` of the data source, 5 % where it is not set. A part of a card counts as that part. A few between two steps of a job are normal. GPUs of pods of which nothing is measured stand beside them.',
          w: 3,
          decimals: 1,
          targets: [now('%s or (%s unless %s)' % [idle('sum'), nought, held], 'idle'), now(unmeasured, 'not measured')],
        }),
        e.stat('Cost in this time', {
          description: 'Money, GPU hours, and those of them in which the GPU did next to nothing. Money needs prices in the settings of the data source.',
          w: 8,
          decimals: 0,
          targets: [q('cost', { view: 'total' })],
          transformations: [{ id: 'labelsToFields', options: { mode: 'columns', valueLabel: 'what' } }],
          overrides: [
            { match: { name: 'cost' }, title: 'Cost' },
            { match: { name: 'gpu_hours' }, title: 'GPU hours' },
            { match: { name: 'idle_gpu_hours' }, title: 'Idle' },
          ],
        }),
        e.counts('GPU faults in this time', ['Value'], {
          description: 'Faults of GPUs while its experiments held them: Xids, remapped rows, NVLink, heat.',
          w: 4,
          decimals: 0,
          verdict: true,
          thresholds: [[null, 'ok'], [1, 'bad']],
          mappings: [[0, 'None', 'ok']],
          targets: [q('gpu_health', { view: 'total' })],
        }),
      ]),

      e.row('Experiments', [
        e.table('Experiments', {
          empty: 'No experiment of this team was seen in this time',
          description: 'Its experiments of this time, those that were seen last first. A name leads to its dashboard.',
          h: 10,
          targets: [q('experiments')],
          columns: [
            { field: 'experiment', link: toExperiment },
            { field: 'team', width: 130 },
            { field: 'state', mappings: e.states, width: 90 },
            { field: 'pods', width: 70 },
            { field: 'gpus', width: 150, decimals: 0, bar: true, color: 'a', min: 0 },
            { field: 'created', width: 165, unit: 'dateTimeAsIso' },
            { field: 'seen', width: 150, unit: 'dateTimeFromNow' },
          ],
        }),
      ]),

      e.row('GPUs', [
        e.timeseries('GPUs by experiment', {
          description: 'GPUs that the running pods of each experiment hold.',
          stack: true,
          decimals: 0,
          targets: [promql('sum by (experiment) (experiment:pod:gpus{$__experiment})', '{{experiment}}', true)],
        }),
        e.timeseries('Reserved against used', {
          noValue: 'Nothing is reserved for this team',
          description: 'GPUs on nodes that are kept for the team, how many of them it uses, and how many its pods wait for.',
          quiet: 'nothing is reserved for the team',
          decimals: 0,
          targets: [
            promql(kept('team:gpu_reserved:sum'), 'reserved'),
            promql(kept('team:gpu_reserved_used:sum'), 'used'),
            promql(kept('team:gpu_reserved_pending:sum'), 'waited for'),
          ],
          colors: ['d', 'a', 'c'],
        }),
        e.timeseries('Utilisation of the idlest experiments', {
          description: 'Share of time in which kernels ran, on average over the GPUs of an experiment: the fifteen where it is lowest. A line that falls and stays is a job that hangs.',
          max: 100,
          targets: [q('gpu_timeseries', { metric: 'util', groupBy: ['experiment'], rank: 'bottom', k: 15 }, true)],
        }),
        e.timeseries('Idle GPUs by experiment', {
          noValue: 'No GPU that was measured was idle in this time',
          description: 'GPUs that an experiment holds and that do next to nothing: less than `idleBelow` of the data source; and those of pods of which nothing is measured.',
          quiet: 'no GPU is idle',
          stack: true,
          draw: 'bars',  // what is idle for one step stands alone, and an area of it has no width
          decimals: 1,
          maxDataPoints: 120,
          targets: [promql('%s > 0 or label_replace(%s, "experiment", "not measured", "", "")' % [idle('sum by (experiment)'), unmeasured], '{{experiment}}', true)],
        }),
      ]),

      e.row('Queue', [
        e.table('Pods that wait, and why', {
          empty: 'No pod waits',
          description: 'Since when each pod of the team waits, and for what.',
          quiet: 'all its pods run',
          h: 8,
          targets: [q('pending')],
          without: ['uid'],
          columns: [
            { field: 'experiment', link: toExperiment },
            { field: 'waited', width: 100, thresholds: [[null, 'text'], [600, 'warn'], [3600, 'bad']] },
            { field: 'reason', width: 200 },
            { field: 'detail', minWidth: 300 },
          ],
        }),
      ]),

      e.row('Cost', [
        e.table('Cost by experiment', {
          empty: 'No GPU was held in this time',
          description: 'GPU hours of this time, how many of them did next to nothing, and the money, by experiment, cluster and model of GPU.',
          h: 8,
          targets: [q('cost')],
          columns: [
            { field: 'experiment', link: toExperiment },
            { field: 'model', width: 190 },
            { field: 'gpu_hours', decimals: 1 },
            { field: 'idle_gpu_hours', decimals: 1 },
            { field: 'idle_share', decimals: 0, thresholds: [[null, 'text'], [0.2, 'warn'], [0.5, 'bad']] },
          ],
        }),
        e.table('GPU health', {
          empty: 'No fault in this time',
          description: 'What was wrong with GPUs while its experiments held them, the worst first, and what to do about it.',
          quiet: 'they are sound',
          h: 8,
          targets: [q('gpu_health')],
          without: ['UUID', 'value'],
          columns: [
            { field: 'gpu', width: 60 },
            { field: 'class', width: 80 },
            { field: 'since', noValue: '' },
            { field: 'text', minWidth: 180 },
            { field: 'action', minWidth: 180 },
          ],
        }),
      ]),
    ],
  })
