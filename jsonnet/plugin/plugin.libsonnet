// What the datasource for experiments brings along, by file. It only joins.
function(c) {
  local e = (import 'e.libsonnet')(c),

  'experiment.json': (import 'experiment.libsonnet')(c, e),
  'compare.json': (import 'compare.libsonnet')(c, e),
  'team.json': (import 'team.libsonnet')(c, e),
}
