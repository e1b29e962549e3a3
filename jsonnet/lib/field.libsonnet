// Field configuration: what the panels of g.libsonnet say about their values.
// Colours are names of palette.libsonnet and nothing else.
local palette = import 'palette.libsonnet';

local series = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'];

// The colours that byName chooses from: the second tones first, since a name of digits alone, such as a GPU's, is to have one of the first eight.
local tones = [x + '2' for x in std.reverse(series)] + std.reverse(series);

// Characters that byName counts in a name. The parity of each of the first four counts is a bit of the colour's number; where the fifth one leaves three, divided by
// four, lines are dashed. Digits differ in their bits, so that 0 to 7 have eight hues; letters were dealt out by trying, so that names that stand together on our panels (jobs,
// verbs, resources, teams, modes of a processor) look different: a test in dashboards/ has them.
local counted = ['13579acdfhjkloprtuwxz', '2367acdhkmnoprstvxyz', '4567behknopsuwxz', '89aijklnopwx'];
local dashed = 'acefhlmopqrtvwxy';

// byName are overrides that give each series one of sixteen colours by its name, and with lines a quarter of the names dashes, so that a thing looks the same on every
// panel and however many others there are. Grafana can only colour by name from its own palette, where green and red mean nothing; so the name is hashed here, by regular
// expressions. Of colours that match the last one counts, so that each expression asks for the odd counts alone.
local byName =
  local by(expr, property) = { matcher: { id: 'byRegexp', options: '/^%s/i' % expr }, properties: [property] };
  local even(set) = '(?:(?:[^%(set)s]*[%(set)s]){2})*[^%(set)s]*$' % { set: set };
  local odd(number) = std.join('', ['(?!%s)' % even(counted[k]) for k in std.range(0, 3) if ((number >> k) & 1) == 1]);
  local threeLeft = '(?:(?:[^%(set)s]*[%(set)s]){4})*(?:[^%(set)s]*[%(set)s]){3}[^%(set)s]*$' % { set: dashed };
  // Made once, for all panels.
  local colours = [by(odd(i), { id: 'color', value: { mode: 'fixed', fixedColor: palette[tones[i]] } }) for i in std.range(0, 15)];
  local dashes = colours + [by(threeLeft, { id: 'custom.lineStyle', value: { fill: 'dash', dash: [12, 4] } })];
  function(lines=true) if lines then dashes else colours;

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

  // byName are the overrides by which series look as their names say; see above. What bars and areas are drawn of has no style.
  byName:: byName,

  // solid are overrides of which those that give a colour also give a whole line, under those of byName.
  solid(overrides):: [
    local has(id) = std.length([p for p in x.properties if p.id == id]) > 0;
    if has('color') && !has('custom.lineStyle') then x { properties+: [{ id: 'custom.lineStyle', value: { fill: 'solid' } }] } else x
    for x in overrides
  ],

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
