// What goes wrong with GPUs, kept as few series that are there only while
// something is wrong: so that a dashboard can ask for a month of it, and rank
// links and cards, without a look at 60,000 GPUs.
{
  local c = $._config,
  local t = (import '../lib/time.libsonnet')(c.timeScale),
  local g = (import '../lib/gpu.libsonnet')(c),
  local node = g.byNode,
  local cl = c.clusterLabel,

  // classed gives a series with the label xid the class that lib/xid.libsonnet has for it.
  local classed(expr) =
    local of(class) = std.join('|', ['%d' % x.xid for x in c.xid if x.class == class]);
    std.foldl(
      function(e, class) 'label_replace(%s, "class", "%s", "xid", "%s")' % [e, class, of(class)],
      std.set([x.class for x in c.xid]),
      'label_replace(%s, "class", "unknown", "", "")' % expr
    ),

  // xids are errors by GPU and Xid, seen in five minutes.
  local xids = {
    // The exporter's window is five minutes, and so is this group's interval: each error is counted once.
    count: 'max by (%s) (%s > 0)' % [g.byWith(['xid']), g.series('DCGM_EXP_XID_ERRORS_COUNT')],
    // The gauge of the last Xid: one that was not there before, of a node that was looked at for a minute or two without it. After an outage of the exporter, or of who asks it, all old ones come back at once with the node; the
    // one more is for a server that has the two a minute apart. A second equal one is not seen.
    gauge: std.rstripChars(|||
      (
        gpu:xid_last:info
        unless on (%(card)s)
        gpu:xid_last:info offset %(w)s
        and on (%(card)s)
        (
          count_over_time((group by (%(card)s) (gpu:xid_last:info))[%(past)s:%(minute)s])
          < on (%(cl)s, %(node)s) group_left ()
          %(looks)s - 1
        )
      )
    ||| % {
      card: g.cardXid,
      cl: cl,
      node: c.dcgm.node,
      w: t.d('5m'),
      past: t.d('7m'),
      minute: t.d('1m'),
      looks: g.atDCGM('count_over_time((node:gpu_seen:count > 0)[%s:%s])' % [t.d('7m'), t.d('1m')]),
    }, '\n'),
    // Counts now less those that the last evaluation saw: an increase() in windows of five minutes misses what comes between the last sample of one and the first of the next. A count below that of then began anew. One of which
    // none is known, or 0, is new where the node was looked at then; after an outage nobody knows how old it is.
    // node-problem-detector begins each reason at 0: a series seen at 0 in this window counts in full, however long nobody looked. Series by series: beside a pod that begins, the one before it may still have its old count.
    kernel: 'label_replace(%s, "xid", "$1", "reason", "Xid(.+)")' % std.rstripChars(|||
      (
        max by (%(by)s) (
          %(last)s > 0
          and
          min_over_time(%(counter)s[%(w)s]) == 0
        )
        or
        (
          %(now)s
          - on (%(by)s)
          %(before)s
        )
        > 0
        or
        %(now)s
        < on (%(by)s)
        %(before)s
        or
        (
          %(now)s
          unless on (%(by)s)
          %(before)s
        )
        and on (%(n)s)
        max by (%(n)s) (max_over_time(up{%(npd)s}[%(w)s] offset %(w)s)) == 1
      )
    ||| % {
      local counter = 'problem_counter{%s, reason=~"Xid[0-9]+"}' % c.selectors.npd,
      local last(offset) = 'last_over_time(%s[%s]%s)' % [counter, t.d('5m'), offset],
      local seen(offset) = 'max by (%s, reason) (%s > 0)' % [node, last(offset)],
      counter: counter,
      last: last(''),
      by: '%s, reason' % node,
      n: node,
      now: seen(''),
      before: seen(' offset ' + t.d('5m')),
      npd: c.selectors.npd,
      w: t.d('5m'),
    }, '\n'),
  }[c.dcgm.xidSource],

  // Seconds of each second that the GPUs of a node were slowed down.
  local slowed(cause, metric) = {
    record: 'node:gpu_slowed:sum_rate5m',
    labels: { cause: cause },
    expr: g.onNode('sum by (%s, %s) (max by (%s) (%s)) / %s' % [cl, c.dcgm.node, g.card, g.violated(metric, '5m'), g.second]),
  },
  local moving(record, metric) = {
    record: record,
    expr: 'max by (%s) (rate(%s[%s]) > 0 < %g)' % [g.by, g.series(metric), t.d('5m'), c.dcgm.blank],
  },

  prometheusRules+:: {
    groups+: [
      {
        name: 'gpu.errors',
        scope:: 'shard',
        interval: t.d('1m'),
        rules: [
          slowed('heat', 'DCGM_FI_DEV_THERMAL_VIOLATION'),
          slowed('power', 'DCGM_FI_DEV_POWER_VIOLATION'),
          // Of GPUs on which they move.
          moving('gpu:nvlink_replays:rate5m', 'DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL'),
          moving('gpu:pcie_replays:rate5m', 'DCGM_FI_DEV_PCIE_REPLAY_COUNTER'),
          moving('gpu:ecc_sbe:rate5m', 'DCGM_FI_DEV_ECC_SBE_VOL_TOTAL'),
          // Of GPUs that have any: a look at all of them through the proxy would be 60,000 series.
          { record: 'gpu:ecc_dbe:max', expr: 'max by (%s) (%s > 0 < %g)' % [g.by, g.series('DCGM_FI_DEV_ECC_DBE_VOL_TOTAL'), c.dcgm.blank] },
          { record: 'gpu:row_remap_pending:max', expr: g.isSet('DCGM_FI_DEV_ROW_REMAP_PENDING') },
          { record: 'gpu:row_remap_failure:max', expr: g.isSet('DCGM_FI_DEV_ROW_REMAP_FAILURE') },
          {
            // GPUs that are hot, or slowed down for their heat now; of nodes that have any. Two minutes, so that a burst as a job begins is soon over.
            record: 'node:gpu_overheated:count',
            expr: g.onNode('count by (%(l)s) (group by (%(l)s, %(u)s, %(i)s) (%(hot)s > %(celsius)g < %(blank)g or %(slow)s))' % {
              l: '%s, %s' % [cl, c.dcgm.node],
              u: c.dcgm.uuid,
              i: c.dcgm.instance,
              hot: g.series('DCGM_FI_DEV_GPU_TEMP'),
              celsius: c.thresholds.gpu.hotCelsius,
              blank: c.dcgm.blank,
              slow: g.violated('DCGM_FI_DEV_THERMAL_VIOLATION', '2m', ' > %g' % (c.thresholds.gpu.throttled * g.violations)),
            }),
          },
        ],
      },
      {
        name: 'gpu.faults',
        interval: t.d('5m'),
        rules: [
          // A month of it says which GPU comes back with errors, and how long a model runs without one.
          { record: 'gpu:xid_errors:count5m', expr: classed(xids) },
        ],
      },
      {
        name: 'gpu.missing',
        interval: t.d('1m'),
        rules: [
          {
            // GPUs that DCGM saw on a node and does not see; of nodes whose exporter answers.
            record: 'node:gpu_missing:count',
            expr: 'node:gpu_devices:max - on (%s) node:gpu_devices:count > 0' % node,
          },
          {
            // GPUs of nodes whose exporter does not answer: nobody knows how they are.
            record: 'node:gpu_unmeasured:count',
            expr: |||
              (
                sum by (%(n)s) (
                  %(cards)s
                )
                > 0
              )
              unless on (%(n)s)
              node:gpu_seen:count
            ||| % { n: node, cards: std.strReplace(std.rstripChars(g.cardsAndSlices('node:gpu_capacity:max', 'capacity'), '\n'), '\n', '\n    ') },
          },
          {
            record: 'cluster:gpu_missing:sum',
            expr: 'sum by (%s) (node:gpu_missing:count) or on (%s) 0 * cluster:gpu_capacity:sum' % [cl, cl],
          },
          {
            record: 'cluster:gpu_slowed:sum_rate5m',
            expr: 'sum by (%s, cause) (node:gpu_slowed:sum_rate5m)' % cl,
          },
          {
            // Where the sick ones stand: several in one rack are its power, its cooling or its switch.
            record: 'rack:gpu_unhealthy:sum',
            expr: |||
              sum by (%(cl)s, rack) (
                (
                  %(cards)s
                )
                * on (%(n)s) group_left (rack)
                node:rack:info
              )
            ||| % { cl: cl, n: node, cards: std.strReplace(std.rstripChars(g.cardsAndSlices('node:gpu_unhealthy:sum', 'unhealthy'), '\n'), '\n', '\n    ') },
          },
        ],
      },
    ],
  },
}
