// Two to eight runs beside each other, over the time since each began.
function(c, e)
  local runs = e.of(['experiment', 'team', 'cluster']);
  local metric(title, name, description, o={}) = e.timeseries(title, {
    description: description + ' Each run begins at the left edge.',
    w: 12,
    h: 8,
    lineWidth: 2,
    targets: [e.q('compare', runs, { view: 'series', metric: name }, true)],
  } + o) + { fieldConfig+: { overrides+: e.runs } };

  e.dashboard({
    name: 'compare',
    title: 'Compare experiments',
    description: 'Is this run better than the last one? Two to eight runs over the time since each began.',
    time: 'now-2d',
    refresh: '5m',
    variables: [
      e.list('team', 'Team', 'teams', [], { multi: true, includeAll: true, days: 30, description: 'Whose experiments are listed and shown.' }),
      e.clusterVar,
      e.list('experiment', 'Runs', 'experiments', ['team', 'cluster'], { multi: true, limit: 500, days: 30, description: 'Two to eight of them, that ran in the last 30 days.' }),
    ],
    rows: [
      e.row('', [
        e.table('Runs', {
          empty: 'None of these has run',
          description: 'A row for each run. Choose two to eight of them at the top.',
          h: 10,
          targets: [e.q('compare', runs, { view: 'summary' })],
          columns: [
            { field: 'run', link: e.link('This experiment', 'experiment', { experiment: e.field('run') }, ['team', 'cluster'], 'from=%s&to=%s' % [e.field('from'), e.field('to')]) },
            { field: 'started', width: 165, unit: 'dateTimeAsIso' },
            { field: 'ended', noValue: 'runs', width: 165, unit: 'dateTimeAsIso' },
            { field: 'duration', width: 110 },
            { field: 'gpu_hours', decimals: 0, min: 0, bar: true, color: 'a' },
            { field: 'mean_util', decimals: 0, min: 0, max: 100, bar: true, color: 'b' },
            { field: 'restarts', width: 90, thresholds: [[null, 'text'], [1, 'warn']] },
            { field: 'failures', width: 90, thresholds: [[null, 'text'], [1, 'bad']] },
            { field: 'gpus', width: 80, decimals: 0 },
            // For the link.
            { field: 'from', hideFrom: { viz: true, legend: false, tooltip: false } },
            { field: 'to', hideFrom: { viz: true, legend: false, tooltip: false } },
          ],
        }),
      ]),
      e.row('Since each began', [
        metric('GPU utilisation', 'util', 'Share of time in which kernels ran, on average over the GPUs of a run.', { max: 100 }),
        metric('Tensor cores', 'tensor', 'Share of cycles in which tensor cores worked: how much of the GPUs the model gets.'),
        metric('Memory bandwidth', 'dram', 'Share of cycles in which GPU memory was read or written.'),
        metric('Memory in use', 'mem', 'GPU memory in use, on average over the GPUs of a run.'),
        metric('Power', 'power', 'Watts of a GPU on average. A fall to idle power is a run that hung, or ended.'),
        metric('Temperature', 'temp', 'Degrees of a GPU on average.'),
      ]),
      e.row('Cost', [
        e.table('Cost in this time', {
          empty: 'No GPU was held in this time',
          description: 'GPU hours of this time alone, how many of them did next to nothing, and the money, by run, cluster and model of GPU. Runs has the whole of each: of one that began before this time, or went on after it, there are fewer here. Choose a time that holds all of both before you compare what they cost.',
          h: 9,
          targets: [e.q('cost', runs)],
          columns: [
            { field: 'model', width: 190 },
            { field: 'gpu_hours', decimals: 1 },
            { field: 'idle_gpu_hours', decimals: 1 },
            { field: 'idle_share', decimals: 0, thresholds: [[null, 'text'], [0.2, 'warn'], [0.5, 'bad']] },
          ],
        }),
      ]),
    ],
  })
