// One experiment, wherever it runs: what runs, what waits and why, which node is slow or sick, what it cost.
function(c, e)
  local one = e.of(['experiment', 'team', 'cluster']);
  local many = true;
  local q(type, o={}, several=false) = e.q(type, one, o, several);
  // A metric of its GPUs: that of the whole experiment, and of the nodes where it is lowest or highest, which are where to look.
  local metric(title, name, description, rank='bottom', o={}) = e.timeseries(title, {
    description: description,
    w: 8,
    h: 7,
    targets: [
      q('gpu_timeseries', { metric: name, groupBy: ['experiment'] }),
      q('gpu_timeseries', { metric: name, groupBy: ['cluster', 'node'], rank: rank, k: 4 }, many),
    ],
  } + o) + { fieldConfig+: { overrides+: e.parts } };

  e.dashboard({
    name: 'experiment',
    title: 'Experiment',
    description: 'One training run over all its pods, nodes and clusters: does it run, and if not, why?',
    time: 'now-6h',
    refresh: c.grafana.refresh,
    events: one,
    variables: [
      e.list('team', 'Team', 'teams', [], { multi: true, includeAll: true, description: 'Whose experiments are listed and shown.' }),
      e.clusterVar,
      e.list('experiment', 'Experiment', 'experiments', ['team', 'cluster'], { limit: 500, description: 'Those that were seen last come first.' }),
    ],
    rows: [
      e.row('', [
        e.counts('Pods', ['Running', 'Pending', 'Failed'], {
          description: 'Pods of all clusters that are there now. Pending ones are explained below; failed ones are in the list of pods, with their reason.',
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
        // Not the sum of its rows below: a run that was queued again in another cluster or namespace has two, of which one has ended.
        e.stat('GPUs', {
          description: 'GPUs that its running pods hold now; where none runs, those that they held last.',
          w: 3,
          decimals: 0,
          targets: [q('promql', {
            expr: 'sum(experiment:pod:gpus{$__experiment}) or last_over_time(sum(experiment:pod:gpus{$__experiment})[$__range:5m])',
            instant: true,
          })],
        }) + { options+: { textMode: 'value' } },
        e.stat('Utilisation', {
          description: 'Share of time in which kernels ran, on average over its GPUs. Training is above 80 %; below half, most often the GPUs wait for data or for each other.',
          w: 4,
          decimals: 0,
          sparkline: true,
          thresholds: [[null, 'bad'], [40, 'warn'], [60, 'ok']],
          targets: [q('gpu_timeseries', { metric: 'util', groupBy: ['experiment'] })],
        }) + { options+: { textMode: 'value' } },
        e.stat('Cost in this time', {
          description: 'Money, GPU hours, and those of them in which the GPU did next to nothing. Money needs prices in the settings of the data source.',
          w: 7,
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
          description: 'Faults of GPUs while the experiment held them: Xids, remapped rows, NVLink, heat. What each is and what to do about it is under GPU health.',
          w: 4,
          decimals: 0,
          verdict: true,
          thresholds: [[null, 'ok'], [1, 'bad']],
          mappings: [[0, 'None', 'ok']],
          targets: [q('gpu_health', { view: 'total' })],
        }),
      ]),

      e.row('Where it runs, and what waits', [
        e.table('Where it runs', {
          empty: 'It had no pods in this time',
          description: "A row for each namespace and cluster that it has pods in. The name leads to where the data source's settings say: W&B, MLflow, TensorBoard.",
          w: 16,
          h: 7,
          targets: [q('experiments')],
          columns: [
            { field: 'team', width: 90 },
            { field: 'cluster', width: 75 },
            { field: 'namespace', width: 120 },
            { field: 'state', mappings: e.states, width: 75 },
            { field: 'pods', width: 55 },
            { field: 'gpus', width: 60, decimals: 0 },
            { field: 'created', width: 105, unit: 'dateTimeFromNow' },
            { field: 'seen', width: 130, unit: 'dateTimeFromNow' },
          ],
        }),
        e.timeseries('Pods by phase', {
          description: 'Pods of each cluster by phase. Running ones that fall and come back are restarts of the whole job.',
          w: 8,
          h: 7,
          stack: true,
          decimals: 0,
          targets: [q('status', { view: 'over_time' }, many)],
          overrides: [
            { match: { regex: '/Running$/' }, shades: 'a' },
            { match: { regex: '/Pending$/' }, shades: 'warn' },
            { match: { regex: '/Failed$/' }, shades: 'bad' },
            { match: { regex: '/(Succeeded|Unknown)$/' }, shades: 'off' },
          ],
        }),
        e.table('Pods that wait, and why', {
          empty: 'No pod waits',
          description: 'Since when each pod waits, and for what: room, a queue, an image, a volume.',
          quiet: 'all its pods run',
          h: 6,
          targets: [q('pending')],
          without: ['experiment', 'uid'],
          columns: [
            { field: 'team', width: 110 },
            { field: 'cluster', width: 90 },
            { field: 'namespace', width: 160 },
            { field: 'since', width: 165 },
            { field: 'waited', width: 100, thresholds: [[null, 'text'], [600, 'warn'], [3600, 'bad']] },
            { field: 'reason', width: 200 },
            { field: 'detail', minWidth: 300 },
          ],
        }),
      ]),

      e.row('GPUs', [
        e.heatmap('Utilisation of the slowest nodes', {
          description: 'The nodes that do least on average, a row each. One that is darker or lighter than the others for long is where to look; all at once is the job itself.',
          h: 9,
          targets: [q('gpu_timeseries', { metric: 'util', groupBy: ['cluster', 'node'], rank: 'bottom', k: 40 })],
        }),
        e.heatmap('Utilisation of the slowest GPUs', {
          description: 'The GPUs that do least on average, a row each. One GPU of a node is a sick GPU or a bad split of the work; all of a node is the node.',
          h: 9,
          targets: [q('gpu_timeseries', { metric: 'util', groupBy: ['cluster', 'node', 'gpu'], rank: 'bottom', k: 40 })],
        }),
        metric('GPU utilisation', 'util', 'Share of time in which kernels ran: the whole experiment, and the four nodes where it is lowest.'),
        metric('Tensor cores', 'tensor', 'Share of cycles in which tensor cores worked. 30 to 50 % is good training; it tells more than utilisation.'),
        metric('Memory bandwidth', 'dram', 'Share of cycles in which GPU memory was read or written. High beside idle tensor cores is a job that memory holds back.'),
        metric('Memory in use', 'mem', 'GPU memory in use, on average over the GPUs, and the four nodes where it is highest.', 'top'),
        metric('Power', 'power', 'Watts of a GPU on average, and the four nodes where it is lowest. Power falls at once when a collective hangs, while utilisation may stay at 100 %.'),
        metric('Temperature', 'temp', 'Degrees of a GPU on average, and the four nodes where it is highest. Slowed down for their heat they stand among the faults.', 'top'),
      ]),

      e.row('Slow and sick', [
        e.table('Stragglers', {
          empty: 'No GPU that was measured is far behind the others',
          description: 'GPUs that do less than the others of the experiment, by the share of its median that they reach: a job goes at the pace of its slowest GPU.',
          quiet: 'no GPU is far behind',
          w: 12,
          h: 8,
          targets: [q('stragglers', { metric: 'util', limit: 100 })],
          without: ['UUID'],
          columns: [
            { field: 'gpu', width: 60 },
            { field: 'value', decimals: 0, width: 80 },
            { field: 'median', decimals: 0, width: 80 },
            { field: 'share', decimals: 0, width: 80, thresholds: [[null, 'bad'], [0.5, 'warn']] },
          ],
        }),
        e.table('GPU health', {
          empty: 'No fault in this time',
          description: 'What was wrong with its GPUs while it held them, the worst first, and what to do about it.',
          quiet: 'they are sound',
          w: 12,
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
        e.table('Nodes', {
          empty: 'None of its pods is on a node',
          description: 'The nodes under it, with what Kubernetes and DCGM say of them.',
          h: 9,
          targets: [q('nodes')],
          columns: [
            { field: 'state', mappings: e.nodeStates, width: 95 },
            { field: 'cordoned', width: 95 },
            { field: 'pods', width: 65 },
            { field: 'gpus_held', title: 'held', width: 65, decimals: 0 },
            { field: 'gpus', width: 65, decimals: 0 },
            { field: 'util', decimals: 0, min: 0, max: 100, bar: true, color: 'a' },
            { field: 'xid', width: 60 },
          ],
        }),
      ]),

      e.row('Network', [
        e.timeseries('InfiniBand', {
          description: 'Bytes a second of the ten nodes that move most, each way. All of a job should look alike.',
          targets: [q('network', { view: 'infiniband', rank: 'top', k: 10 }, many)],
        }),
        e.timeseries('NVLink', {
          description: 'Bytes a second between the GPUs of a node, of the ten nodes that move most.',
          targets: [q('network', { view: 'nvlink', rank: 'top', k: 10 }, many)],
        }),
        e.timeseries('Ethernet', {
          description: 'Bytes a second of the ten nodes that move most: data sets, checkpoints, images.',
          targets: [q('network', { view: 'ethernet', rank: 'top', k: 10 }, many)],
        }),
        e.timeseries('Network errors', {
          description: 'Errors of InfiniBand a second, of the ten nodes with most: links that went down or recovered, and packets received with errors. Above nought for long, a cable or a port is bad.',
          targets: [q('network', { view: 'errors', rank: 'top', k: 10 }, many)],
        }),
      ]),

      e.row('Events and pods', [
        e.table('Events', {
          empty: 'Nothing happened in this time',
          description: 'Restarts, nodes that went, Xids, evictions: the same as the marks on the panels.',
          quiet: 'nothing happened',
          w: 24,
          h: 7,
          targets: [q('events')],
          without: ['id'],
          columns: [{ field: 'timeEnd', noValue: '' }, { field: 'title', minWidth: 150 }, { field: 'text', minWidth: 350 }],
          sortBy: 'time',
        }),
        e.table('All pods', {
          empty: 'It had no pods in this time',
          description: 'A row for each pod that was there in this time.',
          h: 10,
          targets: [q('pods')],
          without: ['experiment', 'uid', 'created'],
          columns: [
            { field: 'team', width: 110 },
            { field: 'cluster', width: 100 },
            { field: 'namespace', width: 160 },
            { field: 'phase', mappings: e.phases, width: 95 },
            { field: 'exit_code', title: 'exit', width: 60 },
            { field: 'restarts', width: 95, thresholds: [[null, 'text'], [1, 'warn']] },
            { field: 'gpus', width: 80, decimals: 0 },
            { field: 'age', width: 90 },
          ],
          filterable: true,
        }),
      ]),

      e.row('Cost', [
        e.table('Cost by cluster and GPU', {
          empty: 'No GPU was held in this time',
          description: 'GPU hours of this time, how many of them did next to nothing, and the money, by cluster and model of GPU.',
          h: 6,
          targets: [q('cost')],
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
