import { DEFAULTS, isDuration, linkExample, settingsProblems, urlProblem } from './settings';
import type { Settings } from './types';

test('the defaults, and nothing at all, are good', () => {
  expect(settingsProblems({})).toEqual({});
  expect(settingsProblems({ ...DEFAULTS, labels: [...DEFAULTS.labels] })).toEqual({});
});

test.each<[Settings, string[]]>([
  [{ labels: ['experiment'] }, ['labels[0]']],
  [{ labels: ['label_a', 'label_a', 'label_b-c', ''] }, ['labels[1]', 'labels[2]', 'labels[3]']],
  [{ labels: Array.from({ length: 21 }, (_, i) => `label_${i}`) }, ['labels']],
  [{ ruleInterval: '1 minute' }, ['ruleInterval']],
  [{ ruleInterval: '0s' }, ['ruleInterval']],
  [{ idleBelow: 0 }, []],
  [{ idleBelow: 101 }, ['idleBelow']],
  [{ idleBelow: NaN }, ['idleBelow']],
  [{ stragglerBelow: 1 }, []],
  [{ stragglerBelow: 1.1 }, ['stragglerBelow']],
  [{ stragglerBelow: -0.5 }, ['stragglerBelow']],
  [{ prices: { H100: 2.5, default: 0 } }, []],
  [{ prices: { H100: -1, A100: 1e6, B200: NaN } }, ['prices.H100', 'prices.A100', 'prices.B200']],
  [{ currency: 'usd' }, ['currency']],
  [{ currency: 'EUR' }, []],
  [{ maxSeries: 10_001, maxRows: 1.5 }, ['maxSeries', 'maxRows']],
  [{ maxSeries: 10_000, maxRows: 1 }, []],
  [{ links: [{ title: '', url: 'javascript:alert(1)' }] }, ['links[0].title', 'links[0].url']],
  [{ links: Array.from({ length: 21 }, () => ({ title: 'a', url: 'https://h/' })) }, ['links']],
])('settingsProblems of %j', (settings, want) => {
  expect(Object.keys(settingsProblems(settings))).toEqual(want);
});

test.each<[string, boolean]>([
  ['https://wandb.ai/lab/runs?search=${experiment}', true],
  ['http://tensorboard:6006/#scalars', true],
  ['https://host', true],
  ['https://host?x=${team}', true],
  ['https://host/${cluster}/${namespace}', true],
  ['https://${experiment}.example.com/', false],
  ['https://host${experiment}', false],
  ['https://host:${team}/', false],
  ['https://user@${team}', false],
  ['${experiment}', false],
  ['//host/', false],
  ['javascript:alert(1)//https://host/', false],
  ['data:text/html,x', false],
  ['ftp://host/', false],
  ['https://', false],
  ['https:///x', false],
  ['', false],
  ['https://host/${user}', false],
  ['https://host/${experiment', false],
])('urlProblem of %s: good %s', (url, good) => {
  expect(urlProblem(url) === undefined).toBe(good);
});

test.each<[string, boolean]>([
  ['1m', true],
  ['30s', true],
  ['1h30m', true],
  ['500ms', true],
  ['1w2d', true],
  ['0s', false],
  ['1', false],
  ['m', false],
  ['', false],
  ['1m1h', false],
  ['1m 1s', false],
])('isDuration of %s', (text, want) => {
  expect(isDuration(text)).toBe(want);
});

test('the example of a link is encoded', () => {
  expect(linkExample('https://h/${experiment}?t=${team}&u=${user}', 'a/b &c')).toBe('https://h/a%2Fb%20%26c?t=nlp&u=${user}');
});
