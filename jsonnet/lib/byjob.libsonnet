// What a selector says of the label job, the only one that is recorded of
// targets: jobs of kube-prometheus are told apart by metrics_path too.
function(selector) std.join(', ', std.filter(
  function(m) std.startsWith(m, 'job=') || std.startsWith(m, 'job!'),
  [std.stripChars(m, ' ') for m in std.split(selector, ',')]
))
