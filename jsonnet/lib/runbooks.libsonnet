// The last layer of the mixin: what is the same for every group and rule.
//
// It leaves out alerts named in _config.disabledAlerts, gives each alert its
// runbook_url, gives each group that lacks them its interval and scope, and
// leaves out groups without rules.
{
  local config = $._config,
  local t = (import 'time.libsonnet')(config.timeScale),

  local finish(rule) =
    if std.objectHas(rule, 'alert')
    then rule { annotations+: { runbook_url: config.runbookURLPattern % rule.alert } }
    else rule,

  local wanted(rule) = !(std.objectHas(rule, 'alert') && std.member(config.disabledAlerts, rule.alert)),

  local group(g) =
    { interval: t.d(config.evaluationInterval), scope:: 'global' } + g + { rules: [finish(r) for r in g.rules if wanted(r)] },

  local groups(gs) = std.filter(function(g) std.length(g.rules) > 0, std.map(group, gs)),

  prometheusAlerts+:: { groups: groups(super.groups) },
  prometheusRules+:: { groups: groups(super.groups) },
}
