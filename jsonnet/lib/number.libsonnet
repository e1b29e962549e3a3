// Numbers as PromQL literals: whole ones in full, others without the noise of
// their last binary digit.
function(n) if n == std.floor(n) && std.abs(n) < 1e15 then '%d' % n else '%g' % n
