// Pieces of expressions over dcgm-exporter's pages that several groups need.
// They build in what trips people up there:
//
//   - Gauges leak sentinels for "no value" (2147483632, 4294967295, 1.4e14,
//     9.2e18 by the field's type): readings from _config.dcgm.blank on are none.
//   - Labels of the pod come and go with the pod, so a counter is cut into new
//     series just when something kills the pod: what must not be missed compares
//     values across those series instead of taking increase() of each.
//   - A GPU that several hold, or look at, has a series for each of them, of the
//     same values: what is added up is made one for each GPU first (max by).
//   - 60,000 GPUs are more series than one request should hold: filters stand
//     inside of the aggregation, so that shards send what is wrong and no more.
function(config) {
  local t = (import 'time.libsonnet')(config.timeScale),
  local d = config.dcgm,

  // What names one GPU in an alert. No pod: the alert must outlive it.
  local labels = [config.clusterLabel, d.node, d.gpu, d.uuid, d.model],
  by:: std.join(', ', labels),
  byWith(more):: std.join(', ', labels + more),
  // What names the node in expressions that meet those of kube-state-metrics.
  byNode:: '%s, %s' % [config.clusterLabel, config.nodeLabel],

  // violations is how much DCGM's violation counters move in a second of which all is lost; second is the same as PromQL, which %g would write as 10e+08.
  local units = { ns: 1e9, us: 1e6 },
  second:: { ns: '1e9', us: '1e6' }[d.violationUnit],
  violations:: if std.objectHas(units, d.violationUnit) then units[d.violationUnit] else error 'dcgm.violationUnit must be ns or us, it is %s' % d.violationUnit,
  // More than a second and a half each second is a sentinel that came and went.
  violated(metric, window, above=''):: 'rate(%s[%s])%s < %g' % [$.series(metric), t.d(window), above, 1.5 * $.violations],

  // series is a selector of one of DCGM's metrics.
  series(metric, matchers=''):: '%s{%s%s}' % [metric, config.selectors.dcgm, if matchers == '' then '' else ', ' + matchers],

  // reading is the series whose value is one.
  reading(metric, matchers=''):: '%s < %g' % [$.series(metric, matchers), d.blank],

  // onNode gives an expression over DCGM series the label that nodes have elsewhere.
  onNode(expr)::
    if d.node == config.nodeLabel then expr
    else 'label_replace(%s, "%s", "$1", "%s", "(.+)")' % [expr, config.nodeLabel, d.node],

  // atDCGM gives an expression by node the label that nodes have in DCGM's series.
  atDCGM(expr)::
    if d.node == config.nodeLabel then expr
    else 'label_replace(%s, "%s", "$1", "%s", "(.+)")' % [expr, d.node, config.nodeLabel],

  // cards gives a count of what nodes hand out as GPUs, by node, in cards: shares of time slicing are parts of one.
  cards(series):: '%(s)s * on (%(n)s) node:gpu_share:ratio or on (%(n)s) %(s)s' % { s: series, n: $.byNode },

  // cardsAndSlices adds to them the slices of MIG that nodes hand out under their own names, by the state in which they are counted.
  cardsAndSlices(series, state):: |||
    %(cards)s
    or
    node:gpu_slices:sum{state="%(state)s"}
  ||| % { cards: $.cards(series), state: state },

  // sevenths adds up slices of MIG that go under their own names, by how many of a card's seven parts they have.
  sevenths(by, each, metric, matchers=''):: |||
    sum by (%(by)s) (
      %(of)s
    )
  ||| % {
    by: by,
    of: std.join('\n  or\n  ', [
      '%d * max by (%s, %s) (%s{%s, resource=~"nvidia_com_mig_%dg_.+"%s})' % [of, by, each, metric, config.selectors.ksm, of, matchers]
      for of in [1, 2, 3, 4, 7]
    ]),
  },

  // measured are the clusters of which GPUs are measured, or were within targets.memory, on nodes by the name that kube-state-metrics has for them. Where no exporter was ever scraped, or its pages do
  // not tell the node, each node would miss it for ever.
  measured:: |||
    count by (%(cl)s) (up{%(up)s} and on (%(n)s) node:ready:max)
    or on (%(cl)s)
    last_over_time(cluster:gpu_nodes_measured:count[%(memory)s])
  ||| % { cl: config.clusterLabel, n: $.byNode, up: config.selectors.dcgm, memory: t.d(config.targets.memory) },

  // held are the matchers of series that name the pod that has the GPU; who only looks on is none, and the exporter is not.
  held:: '%s!="", %s!~"%s", %s!~"%s"' % [d.pod, d.pod, d.exporterPods, d.claimNamespace, d.adminNamespaces],

  // card is what tells the cards of nodes apart, each the cards and the slices into which they are cut.
  card:: std.join(', ', [config.clusterLabel, d.node, d.gpu]),
  each:: '%s, %s' % [$.card, d.instance],

  // cardXid names a GPU's Xid, without the labels that a new exporter may spell otherwise, such as the model's.
  cardXid:: std.join(', ', [config.clusterLabel, d.node, d.gpu, 'xid']),

  // isSet is one for each GPU on which a flag is up.
  isSet(metric)::
    |||
      max by (%s) (
        %s == 1
      )
    ||| % [$.by, $.series(metric)],

  // recovery are the GPUs of whose driver's recovery action the comparison is true, by each name that exporters have for it.
  recovery(compared):: std.join(' or ', ['%s %s' % [$.series(m), compared] for m in d.recovery]),

  // risen is the present value of a count on each GPU on which it is higher
  // than it was a window ago, whatever labels its series had then. What ended
  // before that tells nothing: a pod's series keeps the count that the GPU had
  // until it was reset. Where a GPU had no series then the look back covers a gap of the exporter of
  // as long as past; after a longer one, or on a server without
  // a past, nobody knows how old a count is, and old ones must drain nothing.
  risen(metric, window, past=window)::
    |||
      max by (%(by)s) (%(m)s > 0 < %(blank)g)
      >
      (
        max by (%(by)s) (%(m)s offset %(w)s < %(blank)g)
        or
        max by (%(by)s) (last_over_time(%(m)s[%(past)s] offset %(w)s) < %(blank)g)
      )
    ||| % { by: $.by, m: $.series(metric), w: t.d(window), past: t.d(past), blank: d.blank },

  // grown is the increase of a counter in a window on each GPU on which it is more than least. One that was reset within before says nothing: what a GPU had counted before it was repaired is in the window still, and one that dips and
  // is as before (dcgm-exporter's issue 417: 5000, 0, 5000) would have grown by all that it ever counted. Where pods followed each other it is that of one of them.
  grown(metric, window, before, least)::
    |||
      max by (%(by)s) (
        increase(%(m)s[%(w)s]) > %(least)g
        unless
        resets(%(m)s[%(before)s]) > 0
        unless
        max_over_time(%(m)s[%(w)s]) >= %(blank)g
      )
    ||| % { by: $.by, m: $.series(metric), w: t.d(window), before: t.d(before), least: least, blank: d.blank },

  // moved is the increase of a counter in a window on each GPU on which it moved. Where pods followed each other it is that of one of them. One that is blank for a while and then as before would have
  // moved by all that it ever counted.
  moved(metric, window)::
    |||
      max by (%(by)s) (
        increase(%(m)s[%(w)s]) > 0
        unless max_over_time(%(m)s[%(w)s]) >= %(blank)g
      )
    ||| % { by: $.by, m: $.series(metric), w: t.d(window), blank: d.blank },
}
