// Who has the GPUs, and what that costs.
//
// The three sums over namespaces, teams and models are of the same series and
// equal: what no label claims is on _config.unassignedTeam, never left out.
// GPU-hours are sums over minutes, not a mean times a span: a series that was
// there for ten minutes is ten minutes' worth. The coverage beside them says how
// much of the hour was measured; a gap of less than five minutes is bridged by
// Prometheus' look-back.
{
  local c = $._config,
  local t = (import '../lib/time.libsonnet')(c.timeScale),
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
  local priceOf(matcher, price) = 'team:gpu_cards_by_model:sum{%s} * %g\n' % [matcher, price],

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
            ||| % { node: node, ksm: ksm, l: c.gpu.modelLabel },
          },
          {
            // What part of a card one of the node's GPUs is, where it is not all of one: NVIDIA's feature discovery ends the product in -SHARED for time slicing, in -MIG-… for slices
            // that are handed out as GPUs. The cards are those that DCGM saw, or as many as nodes have.
            record: 'node:gpu_share:ratio',
            expr: |||
              (
                (
                  node:gpu_devices:max > 0
                  or on (%(node)s)
                  0 * node:gpu_capacity:max + %(cards)g
                )
                < on (%(node)s) node:gpu_capacity:max
              )
              / on (%(node)s)
              node:gpu_capacity:max
              and on (%(node)s)
              max by (%(node)s) (kube_node_labels{%(ksm)s, %(l)s=~".+(-SHARED|-MIG-.+)"})
            ||| % { node: node, ksm: ksm, l: c.gpu.modelLabel, cards: c.gpu.perNode },
          },
          {
            // Cards that a pod has, whole or in parts: what is paid for.
            record: 'pod:gpu_cards:sum',
            expr: |||
              pod:gpu_allocated:sum * on (%(node)s) group_left () node:gpu_share:ratio
              or on (%(pod)s)
              pod:gpu_allocated:sum
              or on (%(pod)s)
              (
                sum by (%(pod)s, %(n)s) (
                  %(slices)s)
                unless on (%(pod)s)
                max by (%(pod)s) (
                  kube_pod_status_phase{%(ksm)s, phase=~"Succeeded|Failed|Unknown"} == 1
                )
              )
            ||| % {
              node: node,
              pod: pod,
              n: c.nodeLabel,
              ksm: ksm,
              // Slices of MIG under their own names: so many of a card's seven.
              slices: std.join('    or\n    ', [
                'max by (%s, %s, container, resource) (kube_pod_container_resource_requests{%s, resource=~"nvidia_com_mig_%dg_.+", %s!=""}) * %d / 7\n' % [pod, c.nodeLabel, ksm, g, c.nodeLabel, g]
                for g in [1, 2, 3, 4, 7]
              ]),
            },
          },
          {
            record: 'namespace:gpu_allocated_by_model:sum',
            expr: byModel('pod:gpu_allocated:sum'),
          },
          {
            record: 'team:gpu_allocated_by_model:sum',
            expr: ofTeams('namespace:gpu_allocated_by_model:sum'),
          },
          {
            record: 'namespace:gpu_cards_by_model:sum',
            expr: byModel('pod:gpu_cards:sum'),
          },
          {
            record: 'team:gpu_cards_by_model:sum',
            expr: ofTeams('namespace:gpu_cards_by_model:sum'),
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
            // Nodes that a taint keeps for one team.
            record: 'node:reserved_for:info',
            expr: |||
              max by (%(node)s, team) (
                label_replace(
                  max by (%(node)s, value) (kube_node_spec_taint{%(ksm)s, key="%(key)s", value!=""}),
                  "team", "$1", "value", "(.+)"
                )
              )
            ||| % { node: node, ksm: ksm, key: c.reservation.taint },
          },
          {
            // GPUs of nodes that a taint keeps for one team, and how many of them are in use.
            record: 'team:gpu_reserved:sum',
            expr: |||
              sum by (%(cl)s, team) (
                node:gpu_capacity:max * on (%(node)s) group_left (team) node:reserved_for:info
              )
            ||| % { cl: cl, node: node },
          },
          {
            record: 'team:gpu_reserved_used:sum',
            expr: |||
              sum by (%(cl)s, team) (
                node:gpu_allocated:sum * on (%(node)s) group_left (team) node:reserved_for:info
              )
              or on (%(cl)s, team)
              0 * team:gpu_reserved:sum
            ||| % { cl: cl, node: node },
          },
          {
            // GPUs that such a team waits for itself.
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
