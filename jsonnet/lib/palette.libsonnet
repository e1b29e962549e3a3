// The colours of all dashboards. They read on Grafana's dark and light themes
// alike. Series are neutral; green, orange and red are for what was judged, so
// that a red spot on a wall of panels is always trouble.
{
  // Judged state.
  ok: '#4c9f70',
  warn: '#e0912f',
  bad: '#d64550',
  // Not judged: worth a look, and switched off or unknown.
  info: '#5b8fb9',
  off: '#8c96a3',
  // The colour of text, for values that nobody judges.
  text: 'text',
  // Series, in the order in which a panel's queries get them.
  a: '#5b8fb9',
  b: '#3fa7a0',
  c: '#8a7fc0',
  d: '#8c96a3',
  e: '#3d6ea5',
  f: '#7fc4be',
  g: '#b79fd0',
  h: '#6f7d8c',
}
