// Rule files by path, as they are committed under alerts/: the alerts of group
// apiserver are global/apiserver.yaml, its recording rules
// global/apiserver-rules.yaml; groups that run in each Prometheus are under
// shard/. A group's file is its name up to the first dot, so that one file may
// hold several groups (apiserver, apiserver.budget).
function(mixin)
  local file(g, suffix) = '%s/%s%s.yaml' % [g.scope, std.split(g.name, '.')[0], suffix];
  local collect(groups, suffix) = std.foldl(
    function(acc, g) acc { [file(g, suffix)]+: { groups+: [g] } }, groups, {}
  );
  collect(mixin.prometheusAlerts.groups, '') + collect(mixin.prometheusRules.groups, '-rules')
