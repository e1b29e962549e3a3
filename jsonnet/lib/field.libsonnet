// Field configuration: what the panels of g.libsonnet say about their values.
// Colours are names of palette.libsonnet and nothing else.
local palette = import 'palette.libsonnet';

local series = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'];

// byName are overrides that give each series one of the eight colours by its name, so that a thing has one colour on every panel and however many others there
// are. Grafana can only colour by name from its own palette, where green and red mean nothing; so the name is hashed here, by a regular expression for each
// colour: its length and its last character, modulo eight. Series of one colour differ in shade.
local byName =
  local letters = [
    std.join('', [std.char(x) for x in std.range(48, 57) + std.range(65, 90) + std.range(97, 122) if (x % 32) % 8 == k])
    for k in std.range(0, 7)
  ];
  // Every other character ends the names of the first class.
  local class(k) = if k == 0 then '[^%s]' % std.join('', letters[1:]) else '[%s]' % letters[k];
  [
    {
      matcher: { id: 'byRegexp', options: '/^(.{8})*(%s)$/' % std.join('|', ['.{%d}%s' % [n, class((i - n + 8) % 8)] for n in std.range(0, 7)]) },
      properties: [{ id: 'color', value: { mode: 'shades', fixedColor: palette[series[i]] } }],
    }
    for i in std.range(0, 7)
  ];

// unknown are the keys of an object that are not among those that there are.
local unknown(o, known) =
  local there = { [k]: null for k in known };
  [k for k in std.objectFields(o) if !std.objectHas(there, k)];

{
  // series are the colours that a panel's queries get in turn.
  series:: series,

  unknown:: unknown,

  colour(name)::
    if std.objectHas(palette, name) then palette[name]
    else error 'there is no colour "%s"; there are %s (lib/palette.libsonnet)' % [name, std.join(', ', std.objectFields(palette))],

  fixed(name):: { mode: 'fixed', fixedColor: $.colour(name) },
  // Lighter and darker tones of one colour, for as many series as a query gives.
  shades(name):: { mode: 'shades', fixedColor: $.colour(name) },

  // byName are the overrides by which series have their colours by name; see above.
  byName:: byName,

  // thresholds of [[null, 'ok'], [0.01, 'warn']]: the first one has no lower end.
  thresholds(steps):: {
    mode: 'absolute',
    steps: [{ value: s[0], color: $.colour(s[1]) } for s in steps],
  },

  // mappings of [[value, text, colour]]. A value is a number or a string, null for no value, [from, to] for a range (either end may be null), or '/regex/'.
  mappings(list):: std.mapWithIndex(
    function(i, m)
      local result = { index: i, text: m[1] } + (if std.length(m) > 2 then { color: $.colour(m[2]) } else {});
      local v = m[0];
      if v == null then { type: 'special', options: { match: 'null+nan', result: result } }
      else if std.isArray(v) then { type: 'range', options: { from: v[0], to: v[1], result: result } }
      else if std.isString(v) && std.startsWith(v, '/') then { type: 'regex', options: { pattern: v, result: result } }
      else { type: 'value', options: { ['%s' % v]: result } },
    list
  ),

  local properties = {
    unit: function(v) { id: 'unit', value: v },
    decimals: function(v) { id: 'decimals', value: v },
    min: function(v) { id: 'min', value: v },
    max: function(v) { id: 'max', value: v },
    title: function(v) { id: 'displayName', value: v },
    noValue: function(v) { id: 'noValue', value: v },
    color: function(v) { id: 'color', value: $.fixed(v) },
    shades: function(v) { id: 'color', value: $.shades(v) },
    thresholds: function(v) { id: 'thresholds', value: $.thresholds(v) },
    mappings: function(v) { id: 'mappings', value: $.mappings(v) },
    links: function(v) { id: 'links', value: v },
    link: function(v) { id: 'links', value: [v] },
    // Of tables.
    width: function(v) { id: 'custom.width', value: v },
    minWidth: function(v) { id: 'custom.minWidth', value: v },
    align: function(v) { id: 'custom.align', value: v },
    cell: function(v) { id: 'custom.cellOptions', value: v },
    filterable: function(v) { id: 'custom.filterable', value: v },
    // Of time series.
    fill: function(v) { id: 'custom.fillOpacity', value: v },
    lineWidth: function(v) { id: 'custom.lineWidth', value: v },
    dash: function(v) { id: 'custom.lineStyle', value: { fill: 'dash', dash: v } },
    stack: function(v) { id: 'custom.stacking', value: { mode: v, group: 'A' } },
    axis: function(v) { id: 'custom.axisPlacement', value: v },
    transform: function(v) { id: 'custom.transform', value: v },
    fillBelowTo: function(v) { id: 'custom.fillBelowTo', value: v },
    hideFrom: function(v) { id: 'custom.hideFrom', value: v },
  },

  // overrides of [{match: {name|regex|ref: ...}, unit: ..., color: ..., ...}].
  override(o):: {
    matcher:
      if std.objectHas(o.match, 'name') then { id: 'byName', options: o.match.name }
      else if std.objectHas(o.match, 'regex') then { id: 'byRegexp', options: o.match.regex }
      else if std.objectHas(o.match, 'ref') then { id: 'byFrameRefID', options: o.match.ref }
      else error 'an override matches by name, regex or ref, not by %s' % std.toString(o.match),
    properties: [
      if std.objectHas(properties, k) then properties[k](o[k])
      else error 'an override has no "%s"; it has %s' % [k, std.join(', ', std.objectFields(properties))]
      for k in std.objectFields(o)
      if k != 'match'
    ],
  },
}
