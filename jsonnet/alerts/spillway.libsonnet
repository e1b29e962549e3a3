// Spillway, the ruler that asks through it, and Alertmanager. These run in each
// Prometheus and never through Spillway, which could not say that it is down.
// They belong into servers that scrape Spillway, the ruler and Alertmanager:
// ProxyDown and RulerFailing fire when there is nothing of the kind to scrape.
{
  local c = $._config,
  local th = c.thresholds.spillway,
  local slo = c.slo.proxy,
  local t = (import '../lib/time.libsonnet')(c.timeScale),
  local a = (import '../lib/alert.libsonnet')(c),
  local number = import '../lib/number.libsonnet',
  local bounds = import '../lib/bounds.libsonnet',

  // Not below half a minute under a scale: rulers write each 15 s whatever it is.
  local seconds(duration) = number(std.max(t.s(duration), 30)),

  local f = {
    cluster: c.clusterLabel,
    proxy: c.selectors.proxy,
    ruler: c.selectors.ruler,
    alertmanager: c.selectors.alertmanager,
    programs: c.alertmanager.programs,
    // Spillways for people and for the ruler are targets of one job, told apart by this label. Without it they are one.
    role: c.proxyRoleLabel,
    // Outcomes that are no fault of the caller: overloaded is 429 for want of room, here or on a server. What a caller can mend by asking for less is too_expensive.
    failed: 'internal|shard_failed|timeout|unavailable|overloaded',
    capacity: bounds.capacity,
    suspect: bounds.suspect,
    w: t.d('5m'),
    half: t.d('30m'),
    usual: t.d(c.targets.memory),
    // Seconds since the newest sample that was written; the heartbeat is one each 15 s.
    unwrittenSeconds: seconds('2m'),
    heartbeat: t.recorded('2m'),
    // After four minutes without being sent again an alert is over, as is one that a clock four minutes behind gives its end.
    stuckSeconds: seconds('3m'),
    behindSeconds: seconds('2m'),
    aheadSeconds: seconds('1m'),
    evaluated: std.join(' ', [
      'prometheus_rule_group_last_evaluation_timestamp_seconds{%s} > 0' % c.selectors.ruler,
      'or 0 * prometheus_rule_group_last_evaluation_timestamp_seconds{%s}' % c.selectors.ruler,
      '+ on (%s, instance) group_left () max by (%s, instance) (process_start_time_seconds{%s} or label_replace(thanos_rule_config_last_reload_success_timestamp_seconds{%s}, "of", "reload", "", ""))'
      % [c.clusterLabel, c.clusterLabel, c.selectors.ruler, c.selectors.ruler],
    ]),
    q: t.d('15m'),
    name: a.cluster(external=true),
    // Within a text of a template.
    quoted: std.strReplace(c.selectors.proxy, '"', '\\"'),
    whose: '{{ with $labels.%s }} for {{ . }}{{ end }}' % c.proxyRoleLabel,
  } + { [k]: number(th[k]) for k in std.objectFields(th) },

  local alert(name, o) = a.alert(name, { dashboard: 'proxy', external: true } + o { expr: o.expr % f, description: o.description % f }),

  // notificationsFailing is about the integrations by which people are told, or programs.
  local notificationsFailing(which, o) = alert('AlertmanagerNotificationsFailing', {
    // A group that is told every five minutes (group_interval) fails once in each: over a window of five it would come and go.
    local of = '%%(alertmanager)s, integration%s"%%(programs)s"' % which,
    expr: |||
      sum by (%%(cluster)s, integration) (rate(alertmanager_notifications_failed_total{%(of)s}[%%(q)s])) / (sum by (%%(cluster)s, integration) (rate(alertmanager_notifications_total{%(of)s}[%%(q)s])) > 0) > %%(notifications)s
    ||| % { of: of },
    dashboard: 'alerts',
    vars: { integration: 'integration' },
    summary: 'Alertmanager cannot send notifications.',
  } + o),

  // le as Prometheus 2 and 3 store it.
  local bound = if slo.latencySeconds == std.floor(slo.latencySeconds)
  then '%d(\\\\.0)?' % slo.latencySeconds
  else std.strReplace(number(slo.latencySeconds), '.', '\\\\.'),

  local objectives = [
    {
      name: 'availability',
      target: slo.availability,
      bad: 'sum by (%(cluster)s, %(role)s) (rate(spillway_requests_total{%(proxy)s,outcome=~"%(failed)s"}[%(w)s])) / sum by (%(cluster)s, %(role)s) (rate(spillway_requests_total{%(proxy)s}[%(w)s]))',
      why: 'failed',
    },
    {
      name: 'latency',
      target: slo.latency,
      bad: '1 - sum by (%(cluster)s, %(role)s) (rate(spillway_request_duration_seconds_bucket{%(proxy)s,le=~"%(bound)s"}[%(w)s])) / sum by (%(cluster)s, %(role)s) (rate(spillway_request_duration_seconds_count{%(proxy)s}[%(w)s]))',
      why: 'took longer than %s s' % number(slo.latencySeconds),
    },
  ],

  local burn(o, w) =
    local limit = number(w.factor * (1 - o.target));
    local share(window) = o.bad % (f { w: t.d(window), bound: bound });
    a.alert('ProxyErrorBudgetBurn', {
      expr: |||
        (
          %s > %s
          and
          %s > %s
        )
        and
        sum by (%s, %s) (rate(spillway_requests_total{%s}[%s])) > %s
      ||| % [share(w.long), limit, share(w.short), limit, c.clusterLabel, f.role, c.selectors.proxy, t.d(w.short), f.budgetTrafficPerSecond],
      hold: w.hold,
      severity: w.severity,
      labels: { objective: o.name, long: w.long, short: w.short },
      dashboard: 'proxy',
      external: true,
      summary: 'Spillway is using up its error budget too fast.',
      description: '{{ $value | humanizePercentage }} of requests to Spillway of %s%s %s over %s, at least %s times what its budget of %s%% allows.' % [
        f.name,
        f.whose,
        o.why,
        w.long,
        number(w.factor),
        number(100 * (1 - o.target)),
      ],
    }),

  prometheusAlerts+:: {
    groups+: [
      {
        name: 'spillway',
        scope:: 'shard',
        rules: [
          alert('ProxyDown', {
            expr: |||
              max by (%(cluster)s, %(role)s) (up{%(proxy)s}) == 0
              or
              absent(up{%(proxy)s})
            |||,
            hold: '2m',
            severity: 'critical',
            summary: 'Spillway is down.',
            description: 'No Spillway of %(name)s%(whose)s can be scraped (up: {{ $value }}; 1 stands for no target at all). Where it is that of people, dashboards are dark; where it is that of the ruler, or one for both, rules are not evaluated either.',
          }),
          alert('ProxyErrorRatio', {
            expr: |||
              sum by (%(cluster)s, %(role)s) (rate(spillway_requests_total{%(proxy)s,outcome=~"%(failed)s"}[%(w)s])) / sum by (%(cluster)s, %(role)s) (rate(spillway_requests_total{%(proxy)s}[%(w)s])) > %(errors)s
              and
              sum by (%(cluster)s, %(role)s) (rate(spillway_requests_total{%(proxy)s,outcome=~"%(failed)s"}[%(w)s])) > %(errorsPerSecond)s
            |||,
            hold: '5m',
            severity: 'critical',
            summary: 'Spillway fails requests.',
            description: "{{ $value | humanizePercentage }} of requests to Spillway of %(name)s%(whose)s fail. The label outcome of spillway_requests_total tells how: shard_failed and timeout are a shard's doing, overloaded is want of room.",
          }),
          alert('ProxyShardDown', {
            // Of several Spillways the worst: what one of them cannot reach is missing from its answers.
            expr: |||
              min by (%(cluster)s, group, shard) (
                max by (%(cluster)s, instance, group, shard) (spillway_shard_replica_state{%(proxy)s,state="up"})
              ) == 0
            |||,
            hold: '2m',
            severity: 'critical',
            vars: { group: 'group', shard: 'shard' },
            summary: 'A shard has no replica that Spillway can ask.',
            description: 'No replica of shard {{ $labels.shard }} of group {{ $labels.group }} is up ({{ $value }}), as seen by a Spillway of %(name)s. Queries that need it fail, and so do the rules of a ruler that asks for all clusters: what fires in any of them is resolved after four minutes without being over.',
          }),
          alert('ProxyPartialAnswers', {
            expr: |||
              sum by (%(cluster)s, endpoint) (rate(spillway_partial_answers_total{%(proxy)s}[%(w)s])) > %(partialPerSecond)s
            |||,
            hold: '10m',
            severity: 'warning',
            vars: { endpoint: 'endpoint' },
            summary: 'Answers lack shards.',
            description: 'Answers of Spillway of %(name)s for {{ $labels.endpoint }} go without {{ $value | humanize }} shards a second; their readers asked for partial answers and got them.',
          }),
          alert('ProxyRejectedByPolicy', {
            expr: |||
              sum by (%(cluster)s, bound) (rate(spillway_refusals_total{%(proxy)s,bound!~"%(capacity)s|%(suspect)s"}[%(w)s])) / on (%(cluster)s) group_left () sum by (%(cluster)s) (rate(spillway_requests_total{%(proxy)s}[%(w)s])) > %(refused)s
              and
              sum by (%(cluster)s, bound) (rate(spillway_refusals_total{%(proxy)s,bound!~"%(capacity)s|%(suspect)s"}[%(w)s])) > %(refusedPerSecond)s
            |||,
            hold: '10m',
            severity: 'warning',
            vars: { bound: 'bound' },
            summary: 'Spillway refuses much of what it is asked.',
            description: '{{ $value | humanizePercentage }} of requests to Spillway of %(name)s are refused by the bound {{ $labels.bound }}: each asks for more than one request may. Either a dashboard asks too much or the bound is too tight.',
          }),
          alert('ProxyOverloaded', {
            expr: |||
              sum by (%(cluster)s, bound) (rate(spillway_refusals_total{%(proxy)s,bound=~"%(capacity)s"}[%(w)s])) / on (%(cluster)s) group_left () sum by (%(cluster)s) (rate(spillway_requests_total{%(proxy)s}[%(w)s])) > %(overloaded)s
              and
              sum by (%(cluster)s, bound) (rate(spillway_refusals_total{%(proxy)s,bound=~"%(capacity)s"}[%(w)s])) > %(overloadedPerSecond)s
            |||,
            hold: '5m',
            severity: 'warning',
            vars: { bound: 'bound' },
            summary: 'Spillway has no room for what it is asked.',
            description: '{{ $value | humanizePercentage }} of requests to Spillway of %(name)s get 429 because there is no room ({{ $labels.bound }}), whatever they ask for. Somebody asks far more than usual, a server is slow, or Spillway is too small.',
          }),
          alert('ProxyMemoryNearBudget', {
            expr: |||
              max by (%(cluster)s, instance) (max_over_time(spillway_memory_budget_peak_bytes{%(proxy)s}[%(w)s]) / spillway_memory_budget_bytes{%(proxy)s}) > %(memory)s
            |||,
            hold: '10m',
            severity: 'warning',
            vars: { instance: 'instance' },
            summary: 'Requests fill the memory of a Spillway.',
            description: 'Requests wanted up to {{ $value | humanizePercentage }} of memory.budget of Spillway {{ $labels.instance }} of %(name)s at once, again and again. What goes beyond 100%% is refused with 429.',
          }),
          alert('ProxyMemoryNearCeiling', {
            // What is really held, whatever requests were estimated to need.
            expr: |||
              max by (%(cluster)s, instance) (max_over_time(spillway_memory_held_bytes{%(proxy)s}[%(w)s]) / spillway_memory_ceiling_bytes{%(proxy)s}) > %(held)s
              or
              sum by (%(cluster)s, instance) (rate(spillway_evictions_total{%(proxy)s}[%(w)s])) > 0
            |||,
            hold: '10m',
            severity: 'warning',
            vars: { instance: 'instance' },
            summary: 'A Spillway ends requests so that its memory lasts, or is about to.',
            description: 'Spillway {{ $labels.instance }} of %(name)s holds nearly all the memory that it may, or ends the heaviest requests for that reason ({{ $value | printf "%%.3g" }}: the share that is held, or requests ended a second).',
          }),
          alert('ProxySlow', {
            expr: |||
              histogram_quantile(0.99, sum by (%(cluster)s, le) (rate(spillway_request_duration_seconds_bucket{%(proxy)s}[%(w)s]))) > %(latencySeconds)s
              and
              sum by (%(cluster)s) (rate(spillway_requests_total{%(proxy)s}[%(w)s])) > %(budgetTrafficPerSecond)s
            |||,
            hold: '10m',
            severity: 'warning',
            summary: 'Requests to Spillway take long.',
            description: 'One of a hundred requests to Spillway of %(name)s takes {{ $value | humanizeDuration }} or more. ProxyShardSlow and ProxyProcessorBusy, where they fire, say why.',
          }),
          alert('ProxyShardSlow', {
            // Against the quickest quarter, so that queries that are dear everywhere blame nobody.
            expr: |||
              (
                histogram_quantile(0.9, sum by (%(cluster)s, group, shard, replica, le) (rate(spillway_shard_header_duration_seconds_bucket{%(proxy)s}[%(w)s]))) > %(shardSlowSeconds)s
              )
              > on (%(cluster)s) group_left ()
              2 * quantile by (%(cluster)s) (0.25, histogram_quantile(0.9, sum by (%(cluster)s, group, shard, replica, le) (rate(spillway_shard_header_duration_seconds_bucket{%(proxy)s}[%(w)s]))) >= 0)
              and
              sum by (%(cluster)s, group, shard, replica) (rate(spillway_shard_header_duration_seconds_count{%(proxy)s}[%(w)s])) > %(shardSlowPerSecond)s
            |||,
            hold: '10m',
            severity: 'warning',
            vars: { group: 'group', shard: 'shard' },
            summary: 'A replica is much slower than others.',
            description: 'Replica {{ $labels.replica }} of shard {{ $labels.shard }} of group {{ $labels.group }} takes {{ $value | humanizeDuration }} or more to begin one answer of ten, as seen by Spillway of %(name)s. Every query that needs it waits for it.',
          }),
          alert('ProxyCallsWaiting', {
            expr: |||
              sum by (%(cluster)s, group, shard) (rate(spillway_shard_calls_wait_seconds_total{%(proxy)s}[%(w)s])) > %(callsWaiting)s
            |||,
            hold: '10m',
            severity: 'warning',
            labels: { scope: 'shard' },
            vars: { group: 'group', shard: 'shard' },
            summary: 'Calls wait for a place at a shard.',
            description: '{{ $value | humanize }} calls of Spillway of %(name)s wait for a place at shard {{ $labels.shard }} of group {{ $labels.group }} at any time: its servers have as many as they may (replica_calls), or what is free is kept for one that takes several. Requests are late, and then refused with 429.',
          }),
          alert('ProxyCallsWaiting', {
            expr: |||
              sum by (%(cluster)s, instance) (rate(spillway_calls_wait_seconds_total{%(proxy)s}[%(w)s])) > %(callsWaiting)s
              or
              sum by (%(cluster)s, instance) (rate(spillway_local_dial_failures_total{%(proxy)s}[%(w)s])) > 0
            |||,
            hold: '10m',
            severity: 'warning',
            labels: { scope: 'process' },
            vars: { instance: 'instance' },
            summary: 'A Spillway cannot have as many calls under way as it needs.',
            description: 'Spillway {{ $labels.instance }} of %(name)s has as many calls to shards under way as it may, and others wait, or its machine has no file, port or buffer left for one ({{ $value | printf "%%.3g" }}: calls that wait at any time, or connections a second that could not be made). It is no shard that is at fault.',
          }),
          alert('ProxyReplicaDown', {
            expr: |||
              min by (%(cluster)s, group, shard, replica) (spillway_shard_replica_state{%(proxy)s,state="up"}) == 0
              and on (%(cluster)s, group, shard)
              max by (%(cluster)s, group, shard) (spillway_shard_replica_state{%(proxy)s,state="up"}) == 1
            |||,
            hold: '5m',
            severity: 'warning',
            vars: { group: 'group', shard: 'shard' },
            summary: 'A replica is down, and another one of its shard answers.',
            description: 'Replica {{ $labels.replica }} of shard {{ $labels.shard }} of group {{ $labels.group }} is not up ({{ $value }}), as seen by a Spillway of %(name)s. The next one that fails takes the shard with it.',
          }),
          alert('ProxyReplicaCutOff', {
            // By role, since a Spillway that says so runs, whatever the server that is cut off thinks of it: Alertmanager holds that back. So it waits less than ProxyDown does.
            expr: |||
              max by (%(cluster)s, %(role)s, group, shard, replica) (spillway_shard_replica_unreached_ratio{%(proxy)s}) > %(replicaUnreached)s
            |||,
            hold: '1m',
            severity: 'warning',
            vars: { group: 'group', shard: 'shard' },
            summary: 'A replica is cut off from targets that another one of its shard reaches.',
            description: 'Replica {{ $labels.replica }} of shard {{ $labels.shard }} of group {{ $labels.group }} fails to reach {{ $value | humanizePercentage }} of the targets that another one reaches, as seen by a Spillway of %(name)s. The targets are well: queries read the other one. What the server that is cut off says by its own rules is not true.',
          }),
          alert('ProxyReplicaNotWhole', {
            // Not divided by the time scale: what a replica lacks is known by stretches of five minutes, which no scale makes shorter.
            expr: |||
              time() - min by (%(cluster)s, group, shard, replica) (spillway_shard_replica_lacking_since_timestamp_seconds{%(proxy)s} > 0) > %(replicaLackingSeconds)s
            |||,
            hold: '15m',
            severity: 'warning',
            vars: { group: 'group', shard: 'shard' },
            summary: 'A replica goes on to lack what another one of its shard has.',
            description: 'Replica {{ $labels.replica }} of shard {{ $labels.shard }} of group {{ $labels.group }} has lacked scrapes that another one has for {{ $value | humanizeDuration }}, and still does, as seen by a Spillway of %(name)s. Nothing is missing from answers while the other one is well.',
          }),
          alert('ProxyStoresLeftOut', {
            // Thanos forgets a store that was found by DNS five minutes after it went, and so does the metric: the hold must be shorter.
            expr: |||
              max by (%(cluster)s, group, shard) (spillway_shard_stores_left_out{%(proxy)s}) > 0
            |||,
            hold: '3m',
            severity: 'warning',
            vars: { group: 'group', shard: 'shard' },
            summary: 'A store behind Thanos Query is left out, and its copy is all there is.',
            description: 'Stores behind shard {{ $labels.shard }} of group {{ $labels.group }} fail and are left out ({{ $value }}), as seen by a Spillway of %(name)s. Answers are whole, since a copy of each is well. Where that one goes too, requests that need it fail.',
          }),
        ] + [
          alert('ProxyReplicaSilent', o {
            // What it does not answer is not asked any more, so that nothing fails there; its state stays up. Spillway by Spillway, as ProxyShardDown has it.
            expr: |||
              max by (%%(cluster)s, group, shard, replica) (
                max by (%%(cluster)s, instance, group, shard, replica) (spillway_shard_replica_silent{%%(proxy)s}) == 1
                %s on (%%(cluster)s, instance, group, shard)
                (
                  max by (%%(cluster)s, instance, group, shard, replica) (spillway_shard_replica_state{%%(proxy)s,state="up"}) == 1
                  unless
                  max by (%%(cluster)s, instance, group, shard, replica) (spillway_shard_replica_silent{%%(proxy)s}) == 1
                )
              )
            ||| % o.others,
            hold: '2m',
            vars: { group: 'group', shard: 'shard' },
            description: 'Replica {{ $labels.replica }} of shard {{ $labels.shard }} of group {{ $labels.group }} takes connections and answers nothing ({{ $value }}), as seen by a Spillway of %%(name)s. %s' % o.so,
          })
          for o in [
            {
              others:: 'unless',
              severity: 'critical',
              summary: 'A shard takes connections and answers nothing.',
              so:: 'No other one can be asked: requests that need the shard fail at once, and so do the rules of the ruler.',
            },
            {
              others:: 'and',
              severity: 'warning',
              summary: 'A replica takes connections and answers nothing.',
              so:: 'Another one of its shard is up, and has all of its load.',
            },
          ]
        ] + [
          alert('ProxyReplicaFailing', {
            // Its readiness page is sound: the state stays up.
            expr: |||
              sum by (%(cluster)s, group, shard, replica) (rate(spillway_shard_requests_total{%(proxy)s,outcome=~"timeout|shard_failed|silent"}[%(w)s])) / sum by (%(cluster)s, group, shard, replica) (rate(spillway_shard_requests_total{%(proxy)s}[%(w)s])) > %(replicaFailures)s
              and
              sum by (%(cluster)s, group, shard, replica) (rate(spillway_shard_requests_total{%(proxy)s,outcome=~"timeout|shard_failed|silent"}[%(w)s])) > %(replicaFailuresPerSecond)s
              and
              max by (%(cluster)s, group, shard, replica) (spillway_shard_replica_state{%(proxy)s,state="up"}) == 1
            |||,
            hold: '2m',
            severity: 'warning',
            vars: { group: 'group', shard: 'shard' },
            summary: 'A replica says that it is ready and fails what it is asked.',
            description: '{{ $value | humanizePercentage }} of calls to replica {{ $labels.replica }} of shard {{ $labels.shard }} of group {{ $labels.group }} fail or are never answered, although its readiness page is sound, as seen by Spillway of %(name)s.',
          }),
          alert('ProxyProcessorBusy', {
            expr: |||
              max by (%(cluster)s, instance) (rate(process_cpu_seconds_total{%(proxy)s}[%(w)s]) / spillway_processors{%(proxy)s}) > %(processor)s
            |||,
            hold: '10m',
            severity: 'warning',
            vars: { instance: 'instance' },
            summary: 'The processors of a Spillway are busy.',
            description: 'Spillway {{ $labels.instance }} of %(name)s uses {{ $value | humanizePercentage }} of the processors that it may use. Queries that it evaluates itself wait for each other.',
          }),
          alert('ProxyRawPlans', {
            expr: |||
              sum by (%(cluster)s, cause) (rate(spillway_query_plans_total{%(proxy)s,cause!~"none|expression|no_heartbeat"}[%(w)s])) / on (%(cluster)s) group_left () sum by (%(cluster)s) (rate(spillway_query_plans_total{%(proxy)s}[%(w)s])) > %(rawPlans)s
              and
              sum by (%(cluster)s, cause) (rate(spillway_query_plans_total{%(proxy)s,cause!~"none|expression|no_heartbeat"}[%(w)s])) > %(rawPlansPerSecond)s
            |||,
            hold: '15m',
            severity: 'warning',
            summary: 'Queries that shards could answer are evaluated in Spillway.',
            // The three shards with which it lies most.
            description: 'For {{ $value | humanizePercentage }} of queries to Spillway of %(name)s series are fetched because of what is wrong with servers ({{ $labels.cause }}{{ range printf "topk(3, sum by (group, shard) (rate(spillway_shard_raw_plans_total{%(quoted)s,%(cluster)s=%%q,cause=%%q}[%(w)s])) > 0)" $labels.%(cluster)s $labels.cause | query }}, {{ .Labels.group }}[{{ .Labels.shard }}]{{ end }}). They take more time and memory, and large ones meet bounds.',
          }),
          alert('ProxyQuarantine', {
            expr: |||
              sum by (%(cluster)s, group, shard, replica) (increase(spillway_shard_quarantined_total{%(proxy)s}[%(q)s])) > 0
            |||,
            severity: 'info',
            vars: { group: 'group', shard: 'shard' },
            summary: 'A server ended while it worked on queries, which are held back for a while.',
            description: 'Replica {{ $labels.replica }} of shard {{ $labels.shard }} of group {{ $labels.group }} ended on {{ $value | humanize }} calls of Spillway of %(name)s. Their queries are not sent to its copies for some minutes, in case one of them was the cause.',
          }),
          alert('ProxyReplicaNoMemory', {
            // Sick by its own metrics: 90 % of its limit, and what it cannot give back.
            expr: |||
              max by (%(cluster)s, group, shard, replica) (spillway_shard_health{%(proxy)s,state="sick"}) == 1
            |||,
            hold: '10m',
            severity: 'warning',
            vars: { group: 'group', shard: 'shard' },
            summary: 'A server has nearly no memory left.',
            description: 'Replica {{ $labels.replica }} of shard {{ $labels.shard }} of group {{ $labels.group }} has held nine tenths of its memory limit and more for ten minutes, by its own metrics ({{ $value }}), as seen by a Spillway of %(name)s. Heavy queries go to a copy that has memory, and are refused where none has. It is close to being killed, and then replays its log.',
          }),
          alert('ProxyConfigReloadFailed', {
            expr: |||
              max by (%(cluster)s, instance) (spillway_config_last_reload_successful{%(proxy)s}) == 0
            |||,
            hold: '10m',
            severity: 'warning',
            vars: { instance: 'instance' },
            summary: 'A Spillway runs with an old configuration.',
            description: 'Spillway {{ $labels.instance }} of %(name)s could not load its configuration (spillway_config_last_reload_successful is {{ $value }}) and goes on with the one before. Its next start would fail, or leave a group without answers.',
          }),
          alert('ProxyJournalNotWorking', {
            // Not there without state_dir. A disk that was slow for a moment is tried again after a second, one that takes nothing after ten minutes at
            // most; one that has room now and then works in between.
            expr: |||
              max by (%(cluster)s, instance) (avg_over_time(spillway_journal_working{%(proxy)s}[%(half)s])) < 0.5
            |||,
            hold: '15m',
            severity: 'warning',
            vars: { instance: 'instance' },
            summary: 'A query that gets a Spillway killed would do so again.',
            description: 'Spillway {{ $labels.instance }} of %(name)s could write down which requests are under way for only {{ $value | humanizePercentage }} of the last half hour (spillway_journal_working). One that gets it killed is not refused after the next start, and gets it killed again as often as it is asked.',
          }),
          alert('ProxyDiscoveryRefused', {
            expr: |||
              max by (%(cluster)s, instance, group) (spillway_discovery_refused{%(proxy)s}) == 1
            |||,
            hold: '15m',
            severity: 'warning',
            vars: { instance: 'instance', group: 'group' },
            summary: 'What Spillway finds for a group cannot be used.',
            description: 'Spillway {{ $labels.instance }} of %(name)s finds nothing for group {{ $labels.group }} that it can use (spillway_discovery_refused is {{ $value }}) and asks those that it found before. New shards are not asked, moved servers for a while.',
          }),
          alert('ProxyGroupNotTrusted', {
            expr: |||
              max by (%(cluster)s, group, kind) (
                spillway_group_sick{%(proxy)s}
                or
                label_replace(1 - spillway_shard_hashmod_trusted{%(proxy)s}, "kind", "hashmod", "", "")
                or
                label_replace(1 - spillway_shard_names_trusted{%(proxy)s}, "kind", "names", "", "")
                or
                label_replace(1 - spillway_shard_own_names_trusted{%(proxy)s}, "kind", "shard_names", "", "")
                or
                label_replace(1 - spillway_shard_by_trusted{%(proxy)s}, "kind", "shard_by", "", "")
              ) == 1
            |||,
            hold: '15m',
            severity: 'warning',
            vars: { group: 'group' },
            summary: 'The servers of a group are not as the configuration of Spillway says.',
            description: 'Servers of group {{ $labels.group }} do not keep to {{ $labels.kind }}, as seen by a Spillway of %(name)s ({{ $value }}). Its queries are answered the slow way, over series that are fetched and not over the shards; with overlap or copy some may be refused.',
          }),
          alert('RulerFailing', {
            // By reason: Alertmanager holds back rules that fail where a shard or Spillway is the cause, and no other reason. That no ruler is left is told from the shards too: watchdog.libsonnet.
            expr: |||
              label_replace(sum by (%(cluster)s) (rate(prometheus_rule_evaluation_failures_total{%(ruler)s}[%(w)s])) / sum by (%(cluster)s) (rate(prometheus_rule_evaluations_total{%(ruler)s}[%(w)s])) > %(ruleFailures)s, "reason", "rules", "", "")
              or
              label_replace(sum by (%(cluster)s) (rate(thanos_alert_sender_alerts_dropped_total{%(ruler)s}[%(w)s])) > 0, "reason", "sending", "", "")
              or
              label_replace(
                min by (%(cluster)s) (
                  time()
                  -
                  (
                    prometheus_remote_storage_queue_highest_sent_timestamp_seconds{%(ruler)s} > 0
                    or
                    0 * prometheus_remote_storage_queue_highest_sent_timestamp_seconds{%(ruler)s}
                    + on (%(cluster)s, instance) group_left ()
                    max by (%(cluster)s, instance) (process_start_time_seconds{%(ruler)s})
                  )
                ) > %(unwrittenSeconds)s,
                "reason", "writing", "", ""
              )
            |||,
            hold: '5m',
            severity: 'critical',
            dashboard: 'alerts',
            summary: 'The ruler cannot evaluate its rules, send its alerts or write what they give.',
            description: 'The ruler of %(name)s fails by {{ $labels.reason }} ({{ $value | humanize }}: a share of evaluations, alerts dropped a second, or for writing seconds since the newest sample that any ruler has written). All alerts about the cluster come from it.',
          }),
          alert('RulerFailing', {
            // One of two: the other one writes the same. A Prometheus that has not had the heartbeat for days is beside no ruler.
            expr: |||
              max(last_over_time(ruler:heartbeat:vector[%(usual)s]))
              unless
              max(last_over_time(ruler:heartbeat:vector[%(heartbeat)s]))
            |||,
            hold: '5m',
            severity: 'warning',
            labels: { reason: 'writing' },
            dashboard: 'alerts',
            summary: 'A small Prometheus hears nothing of its ruler.',
            description: 'The ruler beside {{ or $externalLabels.ruler_replica "a Prometheus" }} of %(name)s has written no heartbeat for minutes (the last one was {{ $value }}). What it evaluates is stored by the other one alone.',
          }),
          alert('RulerFailing', {
            // A query that is never answered keeps a group from its next evaluation, and no rule fails. A group that was not evaluated yet is as old as its ruler, or the configuration that brought it. Of two rulers the better one counts, group by group.
            expr: |||
              max by (%(cluster)s) (
                time() - max by (%(cluster)s, rule_group) (%(evaluated)s)
                >
                clamp_min(%(rulerIntervals)s * max by (%(cluster)s, rule_group) (prometheus_rule_group_interval_seconds{%(ruler)s}), %(stuckSeconds)s)
              )
            |||,
            hold: '1m',
            severity: 'critical',
            labels: { reason: 'stuck' },
            dashboard: 'alerts',
            summary: 'No ruler evaluates some of its rules any more.',
            description: 'No ruler of %(name)s has evaluated one of its groups for {{ $value | humanizeDuration }}, and no rule fails: its queries are not answered. What fires is resolved at Alertmanager without being over.',
          }),
          alert('RulerFailing', {
            // What one ruler sends with an end that is over is over for Alertmanager, whatever the other one says. So of each ruler, by its newest evaluation of all.
            expr: |||
              time() - max by (%(cluster)s, instance) (%(evaluated)s)
              >
              clamp_min(2 * min by (%(cluster)s, instance) (prometheus_rule_group_interval_seconds{%(ruler)s}), %(behindSeconds)s)
              or
              time() - max by (%(cluster)s, instance) (%(evaluated)s) < -%(aheadSeconds)s
            |||,
            hold: '1m',
            severity: 'critical',
            labels: { reason: 'clock' },
            dashboard: 'alerts',
            summary: 'The clock of a ruler is wrong, or it evaluates nothing.',
            description: 'The newest evaluation of ruler {{ $labels.instance }} of %(name)s is {{ $value | humanizeDuration }} old by the clock of who says so: that of the ruler differs, or it evaluates nothing. What a clock that is four minutes behind sends is over for Alertmanager, though the other ruler says that it fires.',
          }),
          notificationsFailing('!~', {
            hold: '5m',
            severity: 'critical',
            description: '{{ $value | humanizePercentage }} of notifications by {{ $labels.integration }} fail in Alertmanager of %(name)s. Send this one by another road than that one.',
          }),
          // What programs are told is sent again: one sick node and an API server that is slow for some minutes are half of all webhooks. That nothing remediates is RemediatorStuck's, and the dead man's switch hears by itself that it hears nothing.
          notificationsFailing('=~', {
            hold: '30m',
            severity: 'warning',
            description: "{{ $value | humanizePercentage }} of notifications by {{ $labels.integration }}, by which programs are told, have failed in Alertmanager of %(name)s for half an hour: the remediation controller, the dead man's switch. People are told all the same.",
          }),
        ],
      },
      {
        name: 'spillway.budget',
        scope:: 'shard',
        // Its windows are hours and days.
        interval: t.d('1m'),
        rules: [burn(o, w) for o in objectives for w in c.slo.windows],
      },
    ],
  },
}
