// Who has the GPUs, and what that costs.
//
// The three sums over namespaces, teams and models are of the same series and
// equal: what no label claims is on _config.unassignedTeam, never left out. They
// count cards: a share of time slicing or a slice of MIG is a part of one.
// GPU-hours are sums over minutes, not a mean times a span: a series that was
// there for ten minutes is ten minutes' worth. The coverage beside them says how
// much of the hour was measured; a gap of less than five minutes is bridged by
// Prometheus' look-back.
{
  local c = $._config,
  local t = (import '../lib/time.libsonnet')(c.timeScale),
  local g = (import '../lib/gpu.libsonnet')(c),
  local cl = c.clusterLabel,
  local ns = c.namespaceLabel,
  local node = '%s, %s' % [cl, c.nodeLabel],
  local pod = std.join(', ', [cl, ns, c.podLabel, 'uid']),
  local ksm = c.selectors.ksm,

  local labelled(expr, label, value) = 'label_replace(%s, "%s", "%s", "", "")' % [expr, label, value],

  // team of the namespaces that have the label.
  local teamFrom(label) =
    'max by (%s, %s, team) (label_replace(max by (%s, %s, %s) (kube_namespace_labels{%s, %s!=""}), "team", "$1", "%s", "(.+)"))\n'
    % [cl, ns, cl, ns, label, ksm, label, label],

  // byModel sums what pods have by namespace and model, ofTeams that by team and model.
  local byModel(pods) = |||
    sum by (%(cl)s, %(ns)s, model) (
      %(of)s * on (%(node)s) group_left (model) node:gpu_model:info
      or on (%(pod)s)
      %(unknown)s
    )
  ||| % { cl: cl, ns: ns, node: node, pod: pod, of: pods, unknown: labelled(pods, 'model', 'unknown') },
  local ofTeams(namespaces) = |||
    sum by (%(cl)s, team, model) (
      %(of)s * on (%(cl)s, %(ns)s) group_left (team) namespace:team:info
      or on (%(cl)s, %(ns)s, model)
      %(unassigned)s
    )
  ||| % { cl: cl, ns: ns, of: namespaces, unassigned: labelled(namespaces, 'team', c.unassignedTeam) },

  // hours of what is recorded each minute; the units cancel whatever the time scale.
  local hours(of) = 'sum_over_time(%s[%s:%s]) / 60' % [of, t.d('1h'), t.d('1m')],

  // The product label of the node has the GPU's name with dashes.
  local product(model) = std.strReplace(model, ' ', '-'),
  local priced = [m for m in std.objectFields(c.prices.gpuHour) if m != 'default'],
  local priceOf(matcher, price) = 'team:gpu_allocated_by_model:sum{%s} * %g\n' % [matcher, price],

  prometheusRules+:: {
    groups+: [
      {
        name: 'cost.allocation',
        rules: [
          {
            // The team of every namespace there is.
            record: 'namespace:team:info',
            expr: std.join(
              'or on (%s, %s)\n' % [cl, ns],
              [teamFrom(l) for l in c.teamLabels]
              + [labelled('max by (%s, %s) (kube_namespace_created{%s} > bool 0)' % [cl, ns, ksm], 'team', c.unassignedTeam)]
            ),
          },
          {
            record: 'node:gpu_model:info',
            expr: |||
              max by (%(node)s, model) (
                label_replace(
                  max by (%(node)s, %(l)s) (kube_node_labels{%(ksm)s, %(l)s!=""}),
                  "model", "$1", "%(l)s", "(.+?)(?:-SHARED|-MIG-.+)?"
                )
              )
              or on (%(node)s)
              max by (%(node)s, model) (
                label_replace(
                  max by (%(node)s, %(o)s) (kube_node_labels{%(ksm)s, %(o)s!=""}),
                  "model", "$1", "%(o)s", "(.+)"
                )
              )
            ||| % { node: node, ksm: ksm, l: c.gpu.modelLabel, o: c.gpu.modelLabelOtherwise },
          },
          {
            record: 'namespace:gpu_allocated_by_model:sum',
            expr: byModel('pod:gpu_cards:sum'),
          },
          {
            record: 'team:gpu_allocated_by_model:sum',
            expr: ofTeams('namespace:gpu_allocated_by_model:sum'),
          },
          {
            record: 'team:gpu_allocated:sum',
            expr: |||
              sum by (%(cl)s, team) (
                namespace:gpu_allocated:sum * on (%(cl)s, %(ns)s) group_left (team) namespace:team:info
                or on (%(cl)s, %(ns)s)
                %(unassigned)s
              )
            ||| % { cl: cl, ns: ns, unassigned: labelled('namespace:gpu_allocated:sum', 'team', c.unassignedTeam) },
          },
          {
            record: 'team:gpu_cost_per_hour:sum',
            labels: { currency: c.prices.currency },
            expr: 'sum by (%s, team) (\n%s)' % [
              cl,
              std.join('or\n', [
                priceOf('model="%s"' % product(m), c.prices.gpuHour[m])
                for m in priced
              ] + [
                // A model that is not in the list has the price of the others.
                priceOf('model!~"%s"' % std.join('|', [product(m) for m in priced]), c.prices.gpuHour.default),
              ]),
            ],
          },
          {
            // Nodes that a taint keeps for one team. A node has one taint of a key for each effect: PreferNoSchedule keeps nobody away, and where the two others name two teams it is the one that evicts.
            record: 'node:reserved_for:info',
            local by(effect) = std.rstripChars(|||
              max by (%(node)s, team) (
                label_replace(
                  max by (%(node)s, value) (kube_node_spec_taint{%(ksm)s, key="%(key)s", value!="", effect="%(effect)s"}),
                  "team", "$1", "value", "(.+)"
                )
              )
            ||| % { node: node, ksm: ksm, key: c.reservation.taint, effect: effect }, '\n'),
            expr: std.join('\nor on (%s)\n' % node, [by('NoExecute'), by('NoSchedule')]),
          },
          {
            // GPUs of nodes that a taint keeps for one team, and how many of them are in use.
            record: 'team:gpu_reserved:sum',
            expr: |||
              sum by (%(cl)s, team) (
                (%(capacity)s) * on (%(node)s) group_left (team) node:reserved_for:info
              )
            ||| % { cl: cl, node: node, capacity: g.cards('node:gpu_capacity:max') },
          },
          {
            record: 'team:gpu_reserved_used:sum',
            expr: |||
              sum by (%(cl)s, team) (
                (%(allocated)s) * on (%(node)s) group_left (team) node:reserved_for:info
              )
              or on (%(cl)s, team)
              0 * team:gpu_reserved:sum
            ||| % { cl: cl, node: node, allocated: g.cards('node:gpu_allocated:sum') },
          },
          {
            // GPUs that such a team waits for itself, as pods ask for them: before they have a node nobody knows what part of a card each is.
            record: 'team:gpu_reserved_pending:sum',
            expr: |||
              (
                sum by (%(cl)s, team) (
                  namespace:gpu_pending:sum * on (%(cl)s, %(ns)s) group_left (team) namespace:team:info
                )
                and on (%(cl)s, team)
                team:gpu_reserved:sum
              )
              or on (%(cl)s, team)
              0 * team:gpu_reserved:sum
            ||| % { cl: cl, ns: ns },
          },
        ],
      },
      {
        name: 'cost.hours',
        interval: t.d('5m'),
        rules: [
          { record: 'namespace:gpu_hours:sum1h', expr: hours('namespace:gpu_allocated:sum') },
          { record: 'team:gpu_hours:sum1h', expr: hours('team:gpu_allocated:sum') },
          { record: 'cluster:gpu_hours:sum1h', labels: { state: 'allocated' }, expr: hours('cluster:gpu_allocated:sum') },
          { record: 'cluster:gpu_hours:sum1h', labels: { state: 'unhealthy' }, expr: hours('cluster:gpu_unhealthy:sum') },
          { record: 'cluster:gpu_hours:sum1h', labels: { state: 'free' }, expr: hours('cluster:gpu_free:sum') },
          {
            // Share of the hour that was measured: 1, or the hour's sums are too low.
            record: 'cluster:gpu_hours_coverage:ratio1h',
            expr: 'count_over_time(cluster:gpu_capacity:sum[%s:%s]) / 60' % [t.d('1h'), t.d('1m')],
          },
        ],
      },
    ],
  },
}
