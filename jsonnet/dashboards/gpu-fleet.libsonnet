// All GPUs: how many are sick, what is wrong with them, and which come back
// with the same trouble. Everything here is recorded or filtered where it is
// stored: no query brings 60,000 GPUs to the reader.
{
  local c = $._config,
  local t = c.thresholds.gpu,
  local d = c.dcgm,
  local g = (import '../lib/g.libsonnet')(c),
  local gpus = (import '../lib/gpu.libsonnet')(c),
  local field = import '../lib/field.libsonnet',
  local f = {
    cl: g.cl,
    cluster: c.clusterLabel,
    node: c.nodeLabel,
    by: gpus.by,
    byNode: gpus.byNode,
    model: d.model,
    i: g.i,
    // Xids that say something about the GPU and not about what ran on it.
    hardware: 'class=~"soft|hard|dead|link|action"',
  },
  local q(expr, legend='', o={}) = g.q(expr % f, legend, o),

  local cluster = { field: c.clusterLabel, title: 'Cluster', width: 85 },
  local node = { field: d.node, title: 'Node', link: g.link('GPU node', 'gpu-node', { cluster: g.field(c.clusterLabel), node: g.field(d.node) }) },
  local gpu = { field: d.gpu, title: 'GPU', width: 70, link: g.link('This GPU', 'gpu-node', { cluster: g.field(c.clusterLabel), node: g.field(d.node), gpu: g.field(d.gpu) }) },
  // A table of several queries has cells that one of them does not speak of.
  local none = [null, '–'],
  local model = { field: d.model, title: 'Model' },

  // Names of bars. Clusters may have nodes of one name.
  local ofCluster = if c.showMultiCluster then ' {{%s}}' % c.clusterLabel else '',
  local oneNode = '{{%s}}' % c.nodeLabel + ofCluster,
  local oneGPU = '{{%s}} GPU {{%s}}' % [d.node, d.gpu] + ofCluster,

  // Bars are as wide as two neighbouring values are apart: a zero at each step keeps one error from being an hour wide.
  local baseline = q('0 * sum(cluster:gpu_capacity:sum{%(cl)s})', 'none'),
  local noBaseline = [{ match: { name: 'none' }, hideFrom: { legend: true, tooltip: true, viz: false } }],

  // What the classes of Xids look like: those that a job brings on itself are nobody's trouble here.
  local classes = [
    { match: { name: 'app' }, color: 'd' },
    { match: { name: 'unknown' }, color: 'h' },
    { match: { name: 'soft' }, color: 'a' },
    { match: { name: 'link' }, color: 'c' },
    { match: { name: 'action' }, color: 'b' },
    { match: { name: 'hard' }, color: 'warn' },
    { match: { name: 'dead' }, color: 'bad' },
  ],

  // The numbers that fleets see most, each with a colour that is its own; the others are shades of the first. Neighbours in a stack differ in hue.
  local codes = std.mapWithIndex(
    function(i, xid) { match: { name: 'Xid %d' % xid }, color: (field.series + [x + '2' for x in field.series])[i] },
    [79, 48, 63, 64, 95, 94, 74, 13, 31, 43, 45, 92, 109, 119, 120, 140],
  ),

  grafanaDashboards+:: {
    'gpu-fleet.json': g.dashboard({
      name: 'gpu-fleet',
      title: 'GPU fleet health',
      description: 'How many GPUs are sick, with what, where they stand, and which come back.',
      variables: [g.clusterVar],
      rows: [
        g.row('', [
          g.stat('GPUs unhealthy', {
            description: 'GPUs that are there and that no pod could be given: their device plugin holds them for dead, or their node is cordoned or not ready. Normal is under 1 %; above the red line somebody is paged.',
            unit: 'percentunit',
            decimals: 1,
            verdict: true,
            thresholds: [[null, 'ok'], [c.thresholds.fleet.gpuUnhealthy / 2, 'warn'], [c.thresholds.fleet.gpuUnhealthy, 'bad']],
            targets: [q('sum(cluster:gpu_unhealthy:sum{%(cl)s}) / sum(cluster:gpu_capacity:sum{%(cl)s})')],
            trouble: ['GPUXidFatal', 'NodeNotReady'],
          }),
          g.stat('GPUs', {
            description: 'GPUs that nodes report as their capacity, broken ones included.',
            unit: 'short',
            sparkline: true,
            targets: [q('sum(cluster:gpu_capacity:sum{%(cl)s})')],
          }),
          g.stat('Off the bus', {
            description: 'GPUs that a node says it has and that DCGM does not see. Normal is none: such a GPU says nothing any more, so this is its only sign. They are listed below.',
            unit: 'none',
            mappings: [['0', 'None']],
            thresholds: [[null, 'ok'], [1, 'bad']],
            targets: [q('sum(cluster:gpu_missing:sum{%(cl)s})')],
            trouble: ['GPUXidFatal'],
          }),
          g.stat('Not measured', {
            description: 'GPUs of nodes whose dcgm-exporter does not answer. Normal is none: nobody knows how they are. The nodes are listed below.',
            unit: 'none',
            mappings: [['0', 'None']],
            thresholds: [[null, 'ok'], [1, 'warn']],
            targets: [q('sum(node:gpu_unmeasured:count{%(cl)s}) or 0 * sum(cluster:gpu_capacity:sum{%(cl)s})')],
            trouble: ['GPUExporterGone'],
          }),
          g.stat('Hardware Xids in 24 h', {
            description: 'Errors that say something about the GPU; those that a job brings on itself are not among them. A few a day are usual in thousands of GPUs.',
            unit: 'none',
            mappings: [['0', 'None']],
            targets: [q('sum(sum_over_time(gpu:xid_errors:count5m{%(cl)s, %(hardware)s}[24h])) or 0 * sum(cluster:gpu_capacity:sum{%(cl)s})')],
            trouble: ['GPUXidFatal', 'GPUUncorrectableECC', 'GPURowRemapFailure', 'GPURowRemapPending'],
          }),
          g.stat('Hottest GPU', {
            description: 'Of all GPUs. From the red line on it slows down, and with it every GPU that waits for it.',
            unit: 'celsius',
            decimals: 0,
            thresholds: [[null, 'ok'], [t.hotCelsius - 5, 'warn'], [t.hotCelsius, 'bad']],
            targets: [q('max(node:gpu_temp_celsius:max{%(cl)s})')],
            trouble: ['GPUHot'],
          }),
        ]),

        g.row('What broke', [
          g.timeseries('Xid errors by what has to be done', {
            description: "Errors in each bar. dead: cordon now. hard: drain and reset. soft: reset when the job ends. link: twice in a day is a broken NVLink. app: the job did it. Grey ones are nobody's night.",
            unit: 'none',
            decimals: 0,
            draw: 'bars',
            stack: true,
            fill: 80,
            // Each error is one sample, of a rule that is evaluated every five minutes: bars add up all of their step, which is no shorter.
            interval: '5m',
            targets: [q('sum by (class) (sum_over_time(gpu:xid_errors:count5m{%(cl)s}[$__interval]))', '{{class}}'), baseline],
            overrides: classes + noBaseline,
            quiet: 'there are Xids only while something fails',
            trouble: ['GPUXidFatal', 'GPUUncorrectableECC', 'GPURowRemapFailure', 'GPURowRemapPending'],
          }),
          g.timeseries('Xid errors by code', {
            description: "The same by NVIDIA's number. One code on many nodes at once is a driver, a firmware or a job; many codes on one node are its hardware.",
            unit: 'none',
            decimals: 0,
            draw: 'bars',
            stack: true,
            fill: 80,
            interval: '5m',
            targets: [q('sum by (xid) (sum_over_time(gpu:xid_errors:count5m{%(cl)s}[$__interval]))', 'Xid {{xid}}'), baseline],
            overrides: codes + noBaseline,
            quiet: 'there are Xids only while something fails',
            trouble: ['GPUXidFatal', 'GPUUncorrectableECC', 'GPURowRemapFailure', 'GPURowRemapPending'],
          }),
          g.table('GPUs with Xid errors', {
            description: 'In the time shown, most errors first; those that want nothing done (class info) are left out. A click leads to the GPU: look at what ran there and whether it has happened before.',
            unit: 'none',
            w: 14,
            h: 8,
            targets: [q('topk(50, sum by (%(by)s, xid, class) (sum_over_time(gpu:xid_errors:count5m{%(cl)s,class!="info"}[$__range])))')],
            columns: [
              cluster,
              node,
              gpu,
              model,
              { field: 'xid', title: 'Xid', width: 70 },
              { field: 'class', title: 'Class', width: 90, mappings: [['dead', 'dead', 'bad'], ['hard', 'hard', 'warn']], thresholds: [[null, 'text']] },
              { field: 'Value', title: 'Errors', width: 80, decimals: 0 },
            ],
            sortBy: 'Errors',
            quiet: 'there are Xids only while something fails',
            trouble: ['GPUXidFatal', 'GPUUncorrectableECC', 'GPURowRemapFailure', 'GPURowRemapPending'],
          }),
          g.table('GPUs missing or not measured', {
            description: "Nodes on which DCGM sees fewer GPUs than the node has, and nodes whose exporter is silent. Reboot the first; of the second look at the exporter's pod.",
            unit: 'none',
            w: 10,
            h: 8,
            targets: [
              q('topk(25, sum by (%(byNode)s) (node:gpu_missing:count{%(cl)s}))'),
              q('topk(25, sum by (%(byNode)s) (node:gpu_unmeasured:count{%(cl)s}))'),
            ],
            columns: [
              cluster,
              { field: c.nodeLabel, title: 'Node', link: g.link('GPU node', 'gpu-node', { cluster: g.field(c.clusterLabel), node: g.field(c.nodeLabel) }) },
              { field: 'Value #A', title: 'Missing', mappings: [none], thresholds: [[null, 'text'], [1, 'bad']] },
              { field: 'Value #B', title: 'Not measured', mappings: [none], thresholds: [[null, 'text'], [1, 'warn']] },
            ],
            sortBy: 'Missing',
            quiet: 'every GPU is seen',
            trouble: ['GPUXidFatal', 'GPUExporterGone'],
          }),
          g.table('Memory that cannot be trusted', {
            description: 'GPUs with uncorrectable errors, rows that wait for a reset to be remapped, or no spare rows. Drain and reset for the first two; send the last back.',
            unit: 'none',
            w: 14,
            h: 7,
            targets: [
              q('topk(25, max by (%(by)s) (gpu:ecc_dbe:max{%(cl)s}))'),
              q('topk(25, max by (%(by)s) (gpu:row_remap_pending:max{%(cl)s}))'),
              q('topk(25, max by (%(by)s) (gpu:row_remap_failure:max{%(cl)s}))'),
            ],
            columns: [
              cluster,
              node,
              gpu,
              model,
              { field: 'Value #A', title: 'Uncorrectable', decimals: 0, width: 120, mappings: [none], thresholds: [[null, 'text']] },
              { field: 'Value #B', title: 'Remap waits', width: 110, mappings: [['1', 'reset it', 'warn'], none], thresholds: [[null, 'text']] },
              { field: 'Value #C', title: 'Remap failed', width: 120, mappings: [['1', 'replace it', 'bad'], none], thresholds: [[null, 'text']] },
            ],
            sortBy: 'Remap failed',
            quiet: 'no GPU has an uncorrectable error',
            trouble: ['GPUUncorrectableECC', 'GPURowRemapPending', 'GPURowRemapFailure'],
          }),
          g.bargauge('Corrected memory errors, worst GPUs', {
            description: 'Single-bit errors an hour that ECC corrected. Some are normal; one card far ahead of the others fails next.',
            unit: 'none',
            decimals: 0,
            w: 10,
            h: 7,
            targets: [q('topk(8, 3600 * sum by (%(by)s) (gpu:ecc_sbe:rate5m{%(cl)s}))', oneGPU)],
            links: [g.link('This GPU', 'gpu-node', { cluster: g.label(c.clusterLabel), node: g.label(d.node), gpu: g.label(d.gpu) })],
            quiet: 'no GPU has corrected an error for five minutes',
            trouble: ['GPUCorrectableECC'],
          }),
        ]),

        g.row('Does it come back?', [
          g.table('Repeat offenders', {
            description: 'GPUs by five-minute spells with hardware Xids in the last 30 days. From the second spell on (red) the card is for the vendor: a reset has not helped.',
            unit: 'none',
            w: 14,
            h: 6,
            targets: [
              q('topk(25, sum by (%(by)s) (count_over_time(gpu:xid_errors:count5m{%(cl)s, %(hardware)s}[30d])))'),
            ],
            columns: [cluster, node, gpu, model, { field: d.uuid, title: 'UUID', width: 365 }, { field: 'Value', title: 'Spells', width: 80, decimals: 0, thresholds: [[null, 'text'], [2, 'bad']] }],
            sortBy: 'Spells',
            quiet: 'no GPU has had a hardware Xid in 30 days',
            trouble: ['GPUXidFatal'],
          }),
          g.bargauge('GPU-hours between hardware Xids', {
            description: 'By model, over the 30 days before: GPU-hours measured over spells of errors. Tens of thousands are usual; a model or a new batch far below the others is a case for the vendor.',
            unit: 'short',  // the title has the unit; with 'h' it would be days and weeks
            decimals: 0,
            w: 10,
            h: 6,
            targets: [q(|||
              sum by (%(model)s) (sum_over_time(model:gpu_util_percent:count{%(cl)s}[30d])) / 60
              / on (%(model)s)
              sum by (%(model)s) (count_over_time(gpu:xid_errors:count5m{%(cl)s, %(hardware)s}[30d]))
            |||, '{{%(model)s}}' % f)],
            quiet: 'no model has had a hardware Xid in 30 days',
            trouble: ['GPUXidFatal'],
          }),
        ]),

        g.row('Heat and power', [
          g.heatmap('Nodes by their hottest GPU', {
            description: 'How many nodes have their hottest GPU at which temperature. The band moves with load; nodes that leave it upwards have dust, a dead fan or a hot aisle.',
            unit: 'celsius',
            rows: true,
            targets: [q('sum by (celsius) (cluster:node_gpu_temp_celsius:count{%(cl)s})', '{{celsius}}')],
            trouble: ['GPUHot'],
          }),
          g.timeseries('GPU time lost to slowing down', {
            description: 'Share of all GPU time in which clocks were held down for heat or for power. Power is normal under full load; heat is not.',
            unit: 'percentunit',
            targets: [q('sum by (cause) (cluster:gpu_slowed:sum_rate5m{%(cl)s}) / on () group_left () sum(cluster:gpu_seen:sum{%(cl)s})', '{{cause}}')],
            overrides: [{ match: { name: 'heat' }, color: 'warn' }, { match: { name: 'power' }, color: 'a' }],
            trouble: ['GPUThrottled'],
          }),
          g.bargauge('Nodes slowed down by heat', {
            description: 'Time that the GPUs of a node lose to heat, from 1 % of one GPU on; 100 % is one GPU that is held down all the time. One slow GPU slows every job that spans it.',
            unit: 'percentunit',
            decimals: 0,
            w: 8,
            targets: [q('topk(8, sum by (%(byNode)s) (node:gpu_slowed:sum_rate5m{%(cl)s, cause="heat"}) > 0.01)', oneNode)],
            links: [g.link('GPU node', 'gpu-node', { cluster: g.label(c.clusterLabel), node: g.label(c.nodeLabel) })],
            quiet: 'no node is slowed down by heat',
            trouble: ['GPUThrottled'],
          }),
          g.bargauge('Hottest nodes', {
            description: 'Their hottest GPU. Several of one rack are its cooling.',
            unit: 'celsius',
            decimals: 0,
            w: 8,
            thresholds: [[null, 'a'], [t.hotCelsius - 5, 'warn'], [t.hotCelsius, 'bad']],
            targets: [q('topk(8, max by (%(byNode)s) (node:gpu_temp_celsius:max{%(cl)s}))', oneNode)],
            links: [g.link('GPU node', 'gpu-node', { cluster: g.label(c.clusterLabel), node: g.label(c.nodeLabel) })],
            trouble: ['GPUHot'],
          }),
          g.timeseries('Power', {
            description: 'Drawn by all GPUs. It follows the jobs; a fall of all clusters at once is a fall of the network or of power.',
            unit: 'watt',
            w: 8,
            stack: true,
            targets: [q('sum by (%(cluster)s) (cluster:gpu_power_watts:sum{%(cl)s})', '{{%(cluster)s}}' % f)],
          }),
        ]),

        g.row('Links', [
          g.timeseries('Packets sent again', {
            description: 'Of all GPUs, a minute. NVLink replays slow every all-reduce; PCIe replays are risers, slots and cables. A low level is normal, a step is one broken link.',
            unit: 'cpm',
            w: 8,
            targets: [
              q('60 * sum(gpu:nvlink_replays:rate5m{%(cl)s})', 'NVLink'),
              q('60 * sum(gpu:pcie_replays:rate5m{%(cl)s})', 'PCIe'),
            ],
            quiet: 'no link repeats anything',
            trouble: ['GPUNVLinkErrors', 'GPUPCIeReplay'],
          }),
          g.bargauge('NVLink, worst GPUs', {
            description: 'Packets a minute sent again. %g in 15 minutes or one recovery make the GPU a case for the remediation controller.' % t.nvlinkReplays,
            unit: 'cpm',
            decimals: 1,
            w: 8,
            targets: [q('topk(8, 60 * sum by (%(by)s) (gpu:nvlink_replays:rate5m{%(cl)s}))', oneGPU)],
            links: [g.link('This GPU', 'gpu-node', { cluster: g.label(c.clusterLabel), node: g.label(d.node), gpu: g.label(d.gpu) })],
            quiet: 'no NVLink repeats anything',
            trouble: ['GPUNVLinkErrors'],
          }),
          g.bargauge('PCIe, worst GPUs', {
            description: 'Transfers a minute made again. From %g on somebody has to reseat the card.' % t.pcieReplaysPerMinute,
            unit: 'cpm',
            decimals: 1,
            w: 8,
            thresholds: [[null, 'a'], [t.pcieReplaysPerMinute, 'warn']],
            targets: [q('topk(8, 60 * sum by (%(by)s) (gpu:pcie_replays:rate5m{%(cl)s}))', oneGPU)],
            links: [g.link('This GPU', 'gpu-node', { cluster: g.label(c.clusterLabel), node: g.label(d.node), gpu: g.label(d.gpu) })],
            quiet: 'no GPU repeats a transfer',
            trouble: ['GPUPCIeReplay'],
          }),
        ]),

        g.row('Where', [
          g.bargauge('Unhealthy GPUs by rack', {
            description: 'The worst racks. Several nodes of one rack at once are its power, its cooling or its switch, not its GPUs.',
            unit: 'none',
            decimals: 0,
            thresholds: [[null, 'a'], [8, 'warn'], [32, 'bad']],
            targets: [q('topk(12, rack:gpu_unhealthy:sum{%(cl)s} > 0)', '{{rack}} {{%(cluster)s}}' % f)],
            links: [g.link('Node health', 'node', { cluster: g.label(c.clusterLabel) })],
            quiet: 'no rack has an unhealthy GPU',
            trouble: ['GPUXidFatal', 'NodeNotReady'],
          }),
          g.timeseries('What becomes of the GPUs', {
            description: 'All GPUs: given to pods, free, or unhealthy. The three add up to the capacity.',
            unit: 'short',
            w: 8,
            stack: true,
            targets: [
              q('sum(cluster:gpu_allocated:sum{%(cl)s})', 'allocated'),
              q('sum(cluster:gpu_free:sum{%(cl)s})', 'free'),
              q('sum(cluster:gpu_unhealthy:sum{%(cl)s})', 'unhealthy'),
            ],
            colors: ['a', 'd', 'bad'],
            links: [g.link('GPU use', 'gpu-use')],
            trouble: ['GPUXidFatal', 'NodeNotReady'],
          }),
          g.table('Models', {
            description: 'How many GPUs of each model answer, and how busy they are.',
            unit: 'none',
            w: 8,
            h: 8,
            targets: [
              q('sum by (%(model)s) (model:gpu_util_percent:count{%(cl)s})'),
              q('sum by (%(model)s) (model:gpu_util_percent:avg{%(cl)s} * model:gpu_util_percent:count{%(cl)s}) / sum by (%(model)s) (model:gpu_util_percent:count{%(cl)s})'),
            ],
            columns: [model, { field: 'Value #A', title: 'GPUs', width: 90, decimals: 0 }, { field: 'Value #B', title: 'Busy', width: 110, unit: 'percent', decimals: 0, min: 0, max: 100 }],
            sortBy: 'GPUs',
          }),
        ]),
      ],
    }),
  },
}
