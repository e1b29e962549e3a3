// Xids of NVLinks (class link), from where the site reads Xids, and whose fault
// they are: in an NVLink domain of many nodes the GPUs of all of them say that a
// link went down, and one node's mends it.
function(config) {
  local t = (import 'time.libsonnet')(config.timeScale),
  local g = (import 'gpu.libsonnet')(config),
  local d = config.dcgm,
  local cl = config.clusterLabel,
  local th = config.thresholds.gpu,
  local deep(expr, by) = std.strReplace(std.rstripChars(expr, '\n'), '\n', '\n' + std.repeat(' ', by)),

  local all = [x for x in config.xid if x.class == 'link'],
  // whose are the Xids of links that may be so far away.
  local whose(far) = [x for x in all if std.member(far, std.get(x, 'link', 'domain'))],
  local beyond = whose(['own', 'domain']),
  local own = whose(['own']),

  // The kernel log tells of nodes, by the name that they have elsewhere.
  local kernel = d.xidSource == 'kernel',
  local by = if kernel then g.byNode else g.by,
  local node = if kernel then config.nodeLabel else d.node,

  // any is whose Xids make the comparison true: of all models at once, and of each Xid that says nothing on some of them.
  local any(xids, everywhere, elsewhere) =
    local numbers = std.join('|', ['%d' % x.xid for x in xids if !std.objectHas(x, 'notOn')]);
    std.join(' or ', [everywhere(numbers) for _ in [1] if numbers != ''] + [elsewhere(x) for x in xids if std.objectHas(x, 'notOn')]),
  local exported(xids, seen) = any(
    xids,
    function(numbers) seen(g.series('DCGM_EXP_XID_ERRORS_COUNT', 'xid=~"%s"' % numbers)),
    function(x) seen(g.series('DCGM_EXP_XID_ERRORS_COUNT', 'xid="%d", %s!~"%s"' % [x.xid, d.model, x.notOn]))
  ),
  local logged(xids, range) =
    local seen(numbers) = 'increase(problem_counter{%s, reason=~"Xid(%s)"}[%s) > 0' % [config.selectors.npd, numbers, range];
    any(
      xids,
      seen,
      function(x) '(%s unless on (%s) node_model:gpu_util_percent:count{%s=~"%s"})' % [seen('%d' % x.xid), by, d.model, x.notOn]
    ),
  // at is when there were such Xids in the last five minutes: so long the exporter shows them. An increase in five minutes misses what comes between the last sample of one and the first of the next.
  local at(xids, offset='') =
    if kernel then logged(xids, t.d('6m') + ']' + offset)
    else exported(xids, function(series) series + offset + ' > 0'),
  // within is who had them in a window.
  local within(xids, window) =
    if kernel then logged(xids, t.d(window) + ']')
    else exported(xids, function(series) 'max_over_time(%s[%s]) > 0' % [series, t.d(window)]),

  // located gives nodes their domain; those of which none is known have otherwise, without one.
  local domain = 'node:nvlink_domain:info',
  local located(expr, otherwise=expr) = |||
    (
      %(expr)s
    )
    * on (%(n)s) group_left (domain)
    %(domain)s
    or on (%(n)s)
    (
      %(otherwise)s
    )
  ||| % { n: '%s, %s' % [cl, node], expr: deep(expr, 2), otherwise: deep(otherwise, 2), domain: if kernel then domain else g.atDCGM(domain) },

  // told are the nodes whose GPUs had such Xids in the day in which a GPU's are counted; where no domain is known a cluster is one, and of 500 racks one has them at any time.
  local told(xids) =
    local nodes(window) = 'group by (%s, %s) (%s)' % [cl, node, within(xids, window)];
    located(nodes('24h'), nodes('30m')),
  local several(xids) = |||
    count by (%s, domain) (
      %s
    ) >= %g
  ||| % [cl, deep(told(xids), 2), th.nvlinkNodes],

  // incidents are the GPUs that had errors of links again, and how many times in a day.
  // An incident is five minutes in which there were errors, however many: a GPU's links go down together, each with an Xid of its own. The exporter shows them for five minutes,
  // in which steps of five minutes see them once, or twice at the edge: the second of two is none, unless there was one before the first.
  // What was counted within the day stays so when the node has been repaired and is back: the last of it must have been just now.
  local incidents = |||
    count_over_time(
      (
        max by (%(by)s) (
          %(x)s
        )
        unless on (%(by)s) (
          max by (%(by)s) (
            %(before)s
          )
          unless on (%(by)s)
          max by (%(by)s) (
            %(before2)s
          )
        )
      )[%(day)s:%(step)s]
    ) >= %(n)g
    and on (%(by)s)
    max by (%(by)s) (
      %(lately)s
    )
  ||| % {
    by: by,
    x: at(all),
    before: at(all, ' offset ' + t.d('5m')),
    before2: at(all, ' offset ' + t.d('10m')),
    lately: within(all, '10m'),
    day: t.d('24h'),
    step: t.d('5m'),
    n: th.linkXids,
  },

  // others are the GPUs whose Xids are more likely of what they share with GPUs of other nodes: of a link of which one of those says that it is its own, or of a switch where those of several nodes do. They have the label domain, where it is known.
  local others = |||
    (
      %(these)s
      unless on (%(by)s)
      max by (%(by)s) (%(its)s)
      and on (%(cl)s, domain)
      (
        %(several)s
        or
        group by (%(cl)s, domain) (
          %(told)s
        )
      )
      or
      %(own)s
      and on (%(cl)s, domain)
      (
        %(severalOwn)s
      )
    )
  ||| % {
    cl: cl,
    by: by,
    local these(xids) = '(\n  %s\n)' % deep(located('max by (%s) (%s)' % [by, within(xids, '10m')]), 2),
    these: deep(these(beyond), 2),
    its: within(own, '24h'),
    several: deep(several(beyond), 4),
    told: deep(told(own), 6),
    own: deep(these(own), 2),
    severalOwn: deep(several(own), 4),
  },

  // located gives series of DCGM their node's domain, those of which none is known none; they are of nodes that have some of any, which is told sooner than expr.
  located(expr, any):: |||
    (
      %(expr)s
    )
    * on (%(n)s) group_left (domain)
    (
      %(domain)s
      or on (%(n)s)
      group by (%(n)s) (%(any)s)
    )
  ||| % { n: '%s, %s' % [cl, d.node], expr: deep(expr, 2), domain: g.atDCGM(domain), any: any },

  // alone are the GPUs that had errors of links again, of which nobody else says that they are its own, and how many times in a day.
  alone:: |||
    %(incidents)s
    unless on (%(by)s)
    %(others)s
  ||| % { by: by, incidents: std.rstripChars(incidents, '\n'), others: std.rstripChars(others, '\n') },

  // together are how many of the others there are in each domain.
  together:: |||
    count by (%(cl)s, domain) (
      %(others)s
      and on (%(by)s)
      (
        %(incidents)s
      )
    )
  ||| % { cl: cl, by: by, incidents: deep(incidents, 4), others: deep(others, 2) },
}
