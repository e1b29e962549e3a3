// The colours of all dashboards. They read on Grafana's dark and light themes
// alike. Series are neutral; green, orange and red are for what was judged, so
// that a red spot on a wall of panels is always trouble.
{
  // Judged state.
  ok: '#4c9f70',
  warn: '#e0912f',
  bad: '#d64550',
  // Not judged: worth a look, and switched off or unknown.
  info: '#4188b6',
  off: '#8f8f8f',
  // The colour of text, for values that nobody judges.
  text: 'text',
  // Series, in the order in which a panel's queries get them. All eight stay apart, on both themes and for people who see no red, no green or no blue, and apart
  // from what is judged: a test in dashboards/ measures it.
  a: '#4188b6',
  b: '#39b8bd',
  c: '#6a5db9',
  d: '#8f8f8f',
  e: '#787b1f',
  f: '#a45a81',
  g: '#969bed',
  h: '#6b535e',
  // A second tone of each, for panels of more than eight series: apart from all others by lightness where not by hue.
  a2: '#1f6591',
  b2: '#217e70',
  c2: '#d0a6f8',
  d2: '#b8b8b8',
  e2: '#b3b660',
  f2: '#f58bbd',
  g2: '#8f74bd',
  h2: '#c9758d',
  // Up to eight things that are compared on one panel, in the order of their names: stronger than a to h, since there is nothing else on the page.
  r1: '#5b8fb9',
  r2: '#a05508',
  r3: '#7d49c6',
  r4: '#74c0b1',
  r5: '#c6145f',
  r6: '#aeae10',
  r7: '#106b5c',
  r8: '#c38787',
}
