// Durations as PromQL writes them, divided by one scale, so that a rehearsal of
// the whole mixin can run thirty times as fast as the real one.
//
//   local t = (import '../lib/time.libsonnet')($._config.timeScale);
//   t.d('10m')   '10m' at scale 1, '20s' at scale 30
//   t.s('4h')    14400 at scale 1, 480 at scale 30: for predict_linear and for
//                comparisons with timestamps
//
// A result is never below one millisecond, the least that PromQL can say, and
// never above what the scale gives: what is no whole millisecond is rounded.
local units = [
  { name: 'd', ms: 86400000 },
  { name: 'h', ms: 3600000 },
  { name: 'm', ms: 60000 },
  { name: 's', ms: 1000 },
  { name: 'ms', ms: 1 },
];

// Weeks and years can be read, but are written as days: nobody has to remember
// that PromQL's year has 365 of them.
local readable = units + [{ name: 'w', ms: 604800000 }, { name: 'y', ms: 31536000000 }];

local digit(c) = std.codepoint(c) >= 48 && std.codepoint(c) <= 57;

local unit(name, duration) =
  local found = [u.ms for u in readable if u.name == name];
  if std.length(found) == 1 then found[0] else error 'duration %s: unit "%s" is none of y, w, d, h, m, s, ms' % [std.manifestJson(duration), name];

// parse gives the milliseconds of a duration such as '90m' or '1h30m'.
local parse(duration) =
  local step(acc, c) =
    if digit(c) then
      // A digit after a unit closes that unit's part.
      if acc.unit == '' then acc { number+: c }
      else { ms: acc.ms + std.parseInt(acc.number) * unit(acc.unit, duration), number: c, unit: '' }
    else if acc.number == '' then error 'duration %s does not begin with a number' % std.manifestJson(duration)
    else acc { unit+: c };
  local end = std.foldl(step, std.stringChars(duration), { ms: 0, number: '', unit: '' });
  if end.unit == '' then error 'duration %s does not end with a unit' % std.manifestJson(duration)
  else end.ms + std.parseInt(end.number) * unit(end.unit, duration);

// format writes milliseconds in the largest unit that holds them exactly.
local format(ms) =
  if ms == 0 then '0s'
  else
    local fit = [u for u in units if ms % u.ms == 0][0];
    '%d%s' % [ms / fit.ms, fit.name];

function(timeScale) {
  assert timeScale > 0 : 'timeScale must be above 0, it is %s' % timeScale,

  local scaled(duration) =
    local ms = parse(duration);
    if ms == 0 then 0 else std.max(1, std.round(ms / timeScale)),

  // d is the duration, divided by the scale, as PromQL and rule files write it.
  d(duration):: format(scaled(duration)),

  // s is the same in seconds, as a number.
  s(duration):: scaled(duration) / 1000,

  // recorded is the range for series that a ruler records: d, but under a scale
  // never below half a minute. A Thanos ruler that writes to a Prometheus tails
  // its own log every 15 s, so what it recorded can be read that much later.
  recorded(duration):: format(std.max(scaled(duration), std.min(parse(duration), 30000))),

  // real is the duration in seconds without the scale: for what a server counts
  // in its own time, such as an age that it reports.
  real(duration):: parse(duration) / 1000,
}
