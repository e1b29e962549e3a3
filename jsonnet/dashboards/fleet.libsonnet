// The first dashboard anybody sees: is the fleet fine, and if not, where to look.
// Everything on it is recorded: it costs the same for a hundred nodes and for
// 7,500, and a wall may show it all day.
{
  local c = $._config,
  local g = (import '../lib/g.libsonnet')(c),
  local th = c.thresholds,
  local f = {
    cl: g.cl,
    cluster: c.clusterLabel,
    ns: c.namespaceLabel,
    critical: c.severities.critical,
    warning: c.severities.warning,
    auto: c.severities.auto,
    requests: 'sum(cluster_code:apiserver_requests:rate5m{%s})' % g.cl,
  },
  // share of the API server's answers.
  local answers(matcher) = '(sum(cluster_code:apiserver_requests:rate5m{%s, %s}) or 0 * %s) / %s' % [g.cl, matcher, f.requests, f.requests],
  local gpus(state) = 'sum(cluster:gpu_%s:sum{%s})' % [state, g.cl],
  // firing alerts of a severity. Zero is only said where the rules see a cluster.
  local firing(severity) = 'count(ALERTS{%s, alertstate="firing", alertname!="Watchdog", severity="%s"}) or 0 * sum(cluster:nodes:count{%s})' % [g.cl, severity, g.cl],

  // Severities in the order in which one wants to read them; the table sorts by the number and shows the word.
  local ranks = [['critical', 'page', 'bad'], ['warning', 'warning', 'warn'], ['auto', 'for the controller', 'off'], ['info', 'for its owner', 'off']],
  local ranked = std.foldl(
    function(expr, i) 'label_replace(%s, "rank", "%d", "severity", "%s")' % [expr, i + 1, c.severities[ranks[i][0]]],
    std.range(0, std.length(ranks) - 1),
    'ALERTS{%s, alertstate="firing", alertname!="Watchdog"}' % g.cl
  ),

  local thisCluster = { cluster: g.field(c.clusterLabel) },

  grafanaDashboards+:: {
    'fleet.json': g.dashboard({
      name: 'fleet',
      title: 'Fleet at a glance',
      description: 'Is the fleet fine, and if not, where to look? Each panel leads to the dashboard that says more.',
      variables: [g.clusterVar],
      time: { from: 'now-6h', to: 'now' },
      rows: [
        g.row('', [
          g.stat('Pages', {
            description: 'Alerts that page somebody and fire now. Normal is 0; the table of clusters says where, the dashboard of alerts says which.',
            unit: 'short',
            verdict: true,
            mappings: [[0, 'All is well', 'ok'], [[1, null], null, 'bad']],
            thresholds: [[null, 'ok'], [1, 'bad']],
            targets: [g.q(firing(f.critical))],
            trouble: ['APIErrors', 'EtcdNoLeader'],
            links: [g.link('Alerts and remediation', 'alerts')],
          }),
          g.stat('Nodes ready', {
            description: 'Nodes that are ready, as a share of all. Normal is above %g %%; a single node is for the remediation controller, a share of the fleet is for people.' % (100 * (1 - th.fleet.notReady)),
            unit: 'percentunit',
            decimals: 2,
            thresholds: [[null, 'bad'], [1 - th.fleet.notReady, 'warn'], [1 - th.fleet.notReady / 4, 'ok']],
            targets: [g.q('sum(cluster:nodes_ready:sum{%(cl)s}) / sum(cluster:nodes:count{%(cl)s})' % f)],
            trouble: ['NodeNotReady'],
            links: [g.link('Node health', 'node')],
          }),
          g.stat('GPUs fit for work', {
            description: 'GPUs that run something or could, as a share of those that are there. Normal is above %g %%; below, look for one cause: a rack, a driver, a model.' % (100 * (1 - th.fleet.gpuUnhealthy)),
            unit: 'percentunit',
            decimals: 2,
            thresholds: [[null, 'bad'], [1 - th.fleet.gpuUnhealthy, 'warn'], [1 - th.fleet.gpuUnhealthy / 4, 'ok']],
            targets: [g.q('1 - %s / %s' % [gpus('unhealthy'), gpus('capacity')])],
            trouble: ['NodeNotReady'],
            links: [g.link('GPU fleet health', 'gpu-fleet')],
          }),
          g.stat('GPUs given out', {
            description: 'GPUs that a running pod holds, as a share of those that are there. What is given out and does nothing is on the dashboard of GPU use.',
            unit: 'percentunit',
            decimals: 1,
            sparkline: true,
            targets: [g.q('%s / %s' % [gpus('allocated'), gpus('capacity')])],
            links: [g.link('GPU use by team and job', 'gpu-use')],
          }),
          g.stat('GPUs waited for', {
            description: 'GPUs that pods without a node ask for. Some are normal on a full fleet; many while GPUs are free means that the free ones do not fit.',
            unit: 'short',
            sparkline: true,
            targets: [g.q(gpus('pending'))],
            trouble: ['PodsPendingGPUsFree', 'GangHalfPending'],
            links: [g.link('Autoscaler, pending and packing', 'pending')],
          }),
          g.stat('API failed or refused', {
            description: 'Answers of the API server that are 5xx or 429, as a share of all. Normal is next to nothing; above %g %% controllers and kubelets suffer.' % (100 * th.apiserver.errors),
            unit: 'percentunit',
            decimals: 2,
            thresholds: [[null, 'ok'], [th.apiserver.throttling, 'warn'], [th.apiserver.errors, 'bad']],
            targets: [g.q(answers('code=~"5..|429"'))],
            trouble: ['APIErrors', 'APIThrottling'],
            links: [g.link('API server', 'apiserver')],
          }),
          g.table('Clusters', {
            description: 'Each cluster on one line. Coloured is what is out of order; the name leads to this dashboard for that cluster alone.',
            h: 5,
            sortBy: 'Pages',
            columns: [
              { field: c.clusterLabel, title: 'Cluster', minWidth: 160, link: g.link('This cluster alone', 'fleet', thisCluster) },
              { field: 'Value #A', title: 'Pages', unit: 'short', thresholds: [[null, 'text'], [1, 'bad']], link: g.link('Its alerts', 'alerts', thisCluster) },
              { field: 'Value #B', title: 'For the controller', unit: 'short', link: g.link('Its alerts', 'alerts', thisCluster) },
              { field: 'Value #C', title: 'Nodes', unit: 'short', link: g.link('Its nodes', 'node', thisCluster) },
              { field: 'Value #D', title: 'Ready', unit: 'percentunit', decimals: 2, thresholds: [[null, 'bad'], [1 - th.fleet.notReady, 'text']] },
              { field: 'Value #E', title: 'GPUs', unit: 'short', link: g.link('Its GPUs', 'gpu-fleet', thisCluster) },
              { field: 'Value #F', title: 'Given out', unit: 'percentunit', decimals: 1 },
              { field: 'Value #G', title: 'Unfit', unit: 'percentunit', decimals: 2, thresholds: [[null, 'text'], [th.fleet.gpuUnhealthy, 'bad']] },
              { field: 'Value #H', title: 'Waited for', unit: 'short', link: g.link('Who waits', 'pending', thisCluster) },
              { field: 'Value #I', title: 'API failed or refused', unit: 'percentunit', decimals: 2, thresholds: [[null, 'text'], [th.apiserver.errors, 'bad']], link: g.link('Its API server', 'apiserver', thisCluster) },
            ],
            budget: 200,
            targets: [g.q(e % f) for e in [
              'count by (%(cluster)s) (ALERTS{%(cl)s, alertstate="firing", alertname!="Watchdog", severity="%(critical)s"}) or 0 * sum by (%(cluster)s) (cluster:nodes:count{%(cl)s})',
              'count by (%(cluster)s) (ALERTS{%(cl)s, alertstate="firing", alertname!="Watchdog", severity="%(auto)s"}) or 0 * sum by (%(cluster)s) (cluster:nodes:count{%(cl)s})',
              'sum by (%(cluster)s) (cluster:nodes:count{%(cl)s})',
              'sum by (%(cluster)s) (cluster:nodes_ready:sum{%(cl)s}) / sum by (%(cluster)s) (cluster:nodes:count{%(cl)s})',
              'sum by (%(cluster)s) (cluster:gpu_capacity:sum{%(cl)s})',
              'sum by (%(cluster)s) (cluster:gpu_allocated:sum{%(cl)s}) / sum by (%(cluster)s) (cluster:gpu_capacity:sum{%(cl)s})',
              'sum by (%(cluster)s) (cluster:gpu_unhealthy:sum{%(cl)s}) / sum by (%(cluster)s) (cluster:gpu_capacity:sum{%(cl)s})',
              'sum by (%(cluster)s) (cluster:gpu_pending:sum{%(cl)s})',
              |||
                (
                  sum by (%(cluster)s) (cluster_code:apiserver_requests:rate5m{%(cl)s, code=~"5..|429"})
                  or 0 * sum by (%(cluster)s) (cluster_code:apiserver_requests:rate5m{%(cl)s})
                )
                / sum by (%(cluster)s) (cluster_code:apiserver_requests:rate5m{%(cl)s})
              |||,
            ]],
            trouble: ['NodeNotReady', 'APIErrors'],
          }),
        ]),
        g.row('GPUs', [
          g.timeseries('Where the GPUs are', {
            description: 'Every GPU once: held by a running pod, free, or unfit. The top of the stack is what is there; a step down in it is nodes that left the cluster.',
            unit: 'short',
            w: 16,
            h: 9,
            stack: true,
            legend: 'table',
            calcs: ['lastNotNull', 'min', 'max'],
            colors: ['a', 'd', 'bad'],
            targets: [g.q(gpus('allocated'), 'given out'), g.q(gpus('free'), 'free'), g.q(gpus('unhealthy'), 'unfit')],
            trouble: ['NodeNotReady'],
            links: [g.link('GPU fleet health', 'gpu-fleet')],
          }),
          g.bargauge('Teams that hold most', {
            description: 'GPUs that pods of a team hold now, the ten largest teams. Cost and reservations are on the dashboards of cost and packing.',
            unit: 'short',
            w: 8,
            h: 9,
            targets: [g.q('topk(10, sum by (team) (team:gpu_allocated:sum{%(cl)s}))' % f, '{{team}}')],
            links: [g.link('Cost by team', 'cost'), g.link('GPU use by team and job', 'gpu-use')],
          }),
          g.heatmap('Nodes by how busy their GPUs are', {
            description: 'How many nodes have GPUs that are so busy, in steps of ten percent. A band at the top and one at the bottom is normal; what thins out at the top while the GPUs are given out waits for something.',
            unit: 'percent',
            rows: true,
            cellUnit: 'short',
            w: 8,
            targets: [g.q('sum by (percent) (cluster:node_gpu_util_percent:count{%(cl)s})' % f, '{{percent}}')],
            links: [g.link('GPU use by team and job', 'gpu-use')],
          }),
          g.timeseries('How busy GPUs are', {
            description: 'Mean of all GPUs, by model. A fall while the same GPUs are given out is a job that waits: for data, for a slow peer, for a hung collective.',
            unit: 'percent',
            max: 100,
            w: 8,
            targets: [g.q(|||
              topk(8,
                sum by (%(model)s) (model:gpu_util_percent:avg{%(cl)s} * model:gpu_util_percent:count{%(cl)s})
                / sum by (%(model)s) (model:gpu_util_percent:count{%(cl)s})
              )
            ||| % (f { model: c.dcgm.model }), '{{%s}}' % c.dcgm.model)],
            links: [g.link('GPU use by team and job', 'gpu-use')],
          }),
          g.timeseries('Power of GPUs', {
            description: 'What all GPUs draw. A sudden step down of a whole cluster is a job that ended or hangs, or a breaker.',
            unit: 'watt',
            w: 8,
            targets: [g.q('sum by (%(cluster)s) (cluster:gpu_power_watts:sum{%(cl)s})' % f, '{{%s}}' % c.clusterLabel)],
            links: [g.link('GPU fleet health', 'gpu-fleet')],
          }),
        ]),
        g.row('Nodes and remediation', [
          g.timeseries('Nodes out of service', {
            description: 'Nodes that are not ready, that are cordoned, and that most probers cannot reach. Some dozen cordoned nodes are normal on thousands; a step is a drain by somebody, or a switch.',
            unit: 'short',
            w: 7,
            colors: ['bad', 'd', 'warn'],
            targets: [
              g.q('sum(cluster:nodes:count{%(cl)s}) - sum(cluster:nodes_ready:sum{%(cl)s})' % f, 'not ready'),
              g.q('sum(cluster:nodes_cordoned:sum{%(cl)s})' % f, 'cordoned'),
              g.q('sum(cluster:nodes_unreachable:count{%(cl)s})' % f, 'unreachable'),
            ],
            trouble: ['NodeNotReady', 'NodeUnreachable'],
            links: [g.link('Node health', 'node')],
          }),
          g.timeseries('Work for the remediation controller', {
            description: 'Alerts about single nodes and GPUs that fire, the six most frequent. A steady few are the daily failures of a large fleet; one that shoots up is a common cause and soon a page.',
            unit: 'short',
            w: 10,
            stack: true,
            draw: 'bars',
            quiet: 'no node or GPU needs repair',
            targets: [g.q('topk(6, sum by (alertname) (count by (alertname, %(cluster)s) (ALERTS{%(cl)s, alertstate="firing", alertname!="Watchdog", severity="%(auto)s"})))' % f, '{{alertname}}')],
            trouble: ['GPUXidFatal', 'NodeUnreachable'],
            links: [g.link('Alerts and remediation', 'alerts')],
          }),
          g.bargauge('Racks with most unfit GPUs', {
            description: 'GPUs that are neither held nor usable, in the ten worst racks. Several in one rack are its power, its cooling or its switch, and one repair.',
            unit: 'short',
            w: 7,
            thresholds: [[null, 'off'], [c.gpu.perNode, 'warn'], [2 * c.gpu.perNode, 'bad']],
            quiet: 'every GPU is fit',
            targets: [g.q('topk(10, sum by (%(cluster)s, rack) (rack:gpu_unhealthy:sum{%(cl)s}) > 0)' % f, '{{%s}} {{rack}}' % c.clusterLabel)],
            trouble: ['NodeNotReady'],
            links: [g.link('GPU fleet health', 'gpu-fleet')],
          }),
        ]),
        g.row('Control plane and monitoring', [
          g.timeseries('API server: failed, refused, slow', {
            description: 'Answers that are 5xx, that are 429, and that came later than the objective allows, as shares. All three near zero is normal; 429 alone is one client too many, slow alone is etcd.',
            unit: 'percentunit',
            w: 8,
            colors: ['bad', 'warn', 'a'],
            targets: [
              g.q(answers('code=~"5.."'), 'failed'),
              g.q(answers('code="429"'), 'refused'),
              g.q('sum(cluster_verb:apiserver_sli_slow:rate5m{%(cl)s}) / sum(cluster_verb:apiserver_sli_judged:rate5m{%(cl)s})' % f, 'slow'),
            ],
            trouble: ['APIErrors', 'APIThrottling', 'APISlow'],
            links: [g.link('API server', 'apiserver')],
          }),
          g.timeseries('etcd: slowest log writes', {
            description: 'Time that 99 % of fsyncs of the log stay under, on the slowest member of each cluster. Normal is below the dashed line; above it, the API server becomes slow, then leaders change.',
            unit: 's',
            w: 8,
            thresholds: [[null, 'ok'], [th.etcd.fsyncSeconds, 'bad']],
            targets: [g.q('max by (%(cluster)s, job) (cluster_job_instance:etcd_disk_wal_fsync_duration_seconds:p99_rate5m{%(cl)s})' % f, '{{%s}} {{job}}' % c.clusterLabel)],
            trouble: ['EtcdFsyncSlow'],
            links: [g.link('etcd', 'etcd')],
          }),
          g.timeseries('Targets that do not answer', {
            description: 'Share of the targets of a job that could not be scraped, the eight worst jobs. What is not scraped cannot alert.',
            quiet: 'every target answers',
            unit: 'percentunit',
            w: 8,
            thresholds: [[null, 'ok'], [th.prometheus.targetsDown, 'bad']],
            targets: [g.q('topk(8, 1 - sum by (job) (cluster_job:targets_up:sum{%(cl)s}) / sum by (job) (cluster_job:targets:count{%(cl)s}) > 0)' % f, '{{job}}')],
            trouble: ['GPUExporterGone', 'NodeDown'],
            links: [g.link('Prometheus and shards', 'prometheus')],
          }),
        ]),
        g.row('Work and money', [
          g.stat('GPU cost per hour', {
            description: 'What the GPUs that are given out cost in an hour, by the prices of the configuration.',
            unit: 'currency%s' % c.prices.currency,
            w: 4,
            h: 8,
            targets: [g.q('sum(team:gpu_cost_per_hour:sum{%(cl)s})' % f)],
            links: [g.link('Cost by team', 'cost')],
          }),
          g.timeseries('Namespaces that wait', {
            description: 'GPUs that unschedulable pods of a namespace ask for, the eight longest queues. A queue that does not shrink while GPUs are free is fragmentation, a taint or a gang that cannot start.',
            unit: 'short',
            w: 10,
            stack: true,
            step: true,
            quiet: 'nobody waits for a GPU',
            targets: [g.q('topk(8, sum by (%(ns)s) (namespace:gpu_pending:sum{%(cl)s}))' % f, '{{%s}}' % c.namespaceLabel)],
            trouble: ['PodsPendingGPUsFree'],
            links: [g.link('Autoscaler, pending and packing', 'pending')],
          }),
          g.timeseries('To and from the internet', {
            description: 'Traffic that the tagged rules of all nodes count. A jump is a data set on its way, or somebody who takes one.',
            unit: 'Bps',
            w: 10,
            targets: [
              g.q('sum(cluster:net_internet_in_bytes:rate5m{%(cl)s})' % f, 'in'),
              g.q('sum(cluster:net_internet_out_bytes:rate5m{%(cl)s})' % f, 'out'),
            ],
            trouble: ['EgressJump'],
            links: [g.link('Network by namespace and pod', 'network')],
          }),
        ]),
        g.row('What fires', [
          g.table('Alerts that fire', {
            description: 'Alerts by name, pages first; Watchdog, which always fires, is left out. Each has a runbook page of its name.',
            h: 9,
            quiet: 'no alert fires',
            sortBy: 'Severity',
            sortDesc: false,
            budget: 100,
            columns: [
              {
                field: 'rank',
                title: 'Severity',
                width: 160,
                mappings: [['%d' % (i + 1), ranks[i][1], ranks[i][2]] for i in std.range(0, std.length(ranks) - 1)],
                cell: { type: 'color-text' },
              },
              { field: 'alertname', title: 'Alert', minWidth: 240, link: g.link('Alerts and remediation', 'alerts', thisCluster) },
              { field: c.clusterLabel, title: 'Cluster', minWidth: 160 },
              { field: 'Value', title: 'Firing', unit: 'short', width: 120 },
            ],
            targets: [g.q('topk(100, count by (%s, alertname, rank) (%s))' % [c.clusterLabel, ranked])],
            trouble: ['APIErrors', 'GPUXidFatal', 'NodeNotReady'],
          }),
        ]),
      ],
    }),
  },
}
