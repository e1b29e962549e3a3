// What % does with a text, quickly; what its pieces do not tell is left to the operator.
function(format, values)
  local pieces = if std.isString(format) then std.native('pieces')(format);
  local last = std.length(pieces) - 1;
  local keyed = std.isObject(values);
  local list = if std.isArray(values) then values else [values];
  local fits(p) = p[2] == '' || if keyed then p[1] != null && std.objectHasAll(values, p[1]) else p[1] == null;
  local coded(i, key, code) = if keyed then ('%(' + key + ')' + code) % { [key]: values[key] } else ('%' + code) % [list[i]];
  local put(i, key, code) = if code != 's' then coded(i, key, code) else std.toString(if keyed then values[key] else list[i]);
  if pieces == null || !std.all(std.map(fits, pieces)) || !keyed && std.length(list) != last
  then format % values
  else std.join('', std.mapWithIndex(function(i, p) if i == last then p[0] else p[0] + put(i, p[1], p[2]), pieces))
