import {
  CHOICE,
  DEFAULT_ALERT_QUERY,
  KINDS,
  METRIC_LABELS,
  VIEW_LABELS,
  compact,
  describe as described,
  fieldsOf,
  hasVariable,
  problems,
  viewOf,
  withType,
} from './query';
import { METRICS, QUERY_TYPES, VIEWS, type Query, type QueryType } from './types';

const query = (q: Partial<Query>): Query => ({ refId: 'A', queryType: 'experiments', ...q });

test('every type, view and metric has words', () => {
  expect(Object.keys(KINDS)).toEqual([...QUERY_TYPES]);
  expect(new Set(Object.values(KINDS).map((k) => k.label)).size).toBe(QUERY_TYPES.length);
  expect(Object.keys(METRIC_LABELS)).toEqual([...METRICS]);
  for (const type of QUERY_TYPES) {
    expect(KINDS[type].help).toMatch(/^[^\n]{20,110}\.$/);
    expect(KINDS[type].fields.includes('view')).toBe(VIEWS[type] !== undefined);
    for (const view of VIEWS[type] ?? []) {
      expect(VIEW_LABELS[view]).toBeTruthy();
    }
  }
  expect(VIEWS[DEFAULT_ALERT_QUERY.queryType]).toContain(DEFAULT_ALERT_QUERY.view);
});

test.each<[Partial<Query>, string[]]>([
  [{ queryType: 'experiments' }, ['search', 'limit']],
  [{ queryType: 'status' }, ['view']],
  [{ queryType: 'gpu_timeseries' }, ['metric', 'groupBy', 'rank']],
  [{ queryType: 'gpu_health' }, ['view', 'limit']],
  [{ queryType: 'gpu_health', view: 'count' }, ['view']],
  [{ queryType: 'cost', view: 'table' }, ['view', 'limit']],
  [{ queryType: 'cost', view: 'total' }, ['view']],
  [{ queryType: 'compare' }, ['view', 'metric']],
  [{ queryType: 'compare', view: 'summary' }, ['view']],
  [{ queryType: 'events' }, []],
  [{ queryType: 'promql' }, ['expr', 'legend', 'instant']],
  [{ queryType: 'of a later version' as QueryType }, []],
])('fields of %j', (q, want) => {
  expect(fieldsOf(query(q))).toEqual(want);
});

test('viewOf is the first one where none is stored', () => {
  expect(viewOf(query({ queryType: 'cost' }))).toBe('table');
  expect(viewOf(query({ queryType: 'cost', view: 'total' }))).toBe('total');
  expect(viewOf(query({ queryType: 'pods' }))).toBeUndefined();
});

test('another type keeps what is chosen, and what both have', () => {
  const before = query({
    queryType: 'gpu_timeseries',
    datasource: { type: 't', uid: 'u' },
    hide: true,
    experiments: ['$experiment'],
    clusters: ['jaguar'],
    metric: 'power',
    groupBy: ['node'],
    rank: 'top',
    k: 5,
    search: 'left over',
  });
  const kept = { refId: 'A', datasource: { type: 't', uid: 'u' }, hide: true, experiments: ['$experiment'], clusters: ['jaguar'] };
  expect(withType(before, 'stragglers')).toEqual({ ...kept, queryType: 'stragglers', metric: 'power' });
  expect(withType(before, 'network')).toEqual({ ...kept, queryType: 'network', rank: 'top', k: 5 });
  expect(withType(before, 'pods')).toEqual({ ...kept, queryType: 'pods' });
  // A view of one type is none of another's.
  expect(withType(query({ queryType: 'cost', view: 'total' }), 'gpu_health')).toEqual({ refId: 'A', queryType: 'gpu_health' });
});

test('compact leaves out what says nothing', () => {
  expect(compact(query({ experiments: [], clusters: [''], search: '', view: undefined, instant: false, limit: 0 }))).toEqual({
    refId: 'A',
    queryType: 'experiments',
    clusters: [''],
    instant: false,
    limit: 0,
  });
});

const names = (n: number) => Array.from({ length: n }, (_, i) => `e${i}`);

test.each<[Partial<Query>, string[]]>([
  [{}, []],
  [{ experiments: names(100) }, []],
  [{ experiments: names(101) }, ['experiments']],
  [{ teams: names(101), clusters: names(101) }, ['clusters', 'teams']],
  [{ queryType: 'compare' }, ['experiments']],
  [{ queryType: 'compare', experiments: names(1) }, ['experiments']],
  [{ queryType: 'compare', experiments: names(2) }, []],
  [{ queryType: 'compare', experiments: names(8) }, []],
  [{ queryType: 'compare', experiments: names(9) }, ['experiments']],
  [{ queryType: 'compare', experiments: ['$runs'] }, []],
  [{ queryType: 'promql' }, ['expr']],
  [{ queryType: 'promql', expr: ' \n' }, ['expr']],
  [{ queryType: 'promql', expr: 'up' }, []],
  [{ rank: 'top', k: 0 }, ['rank']],
  [{ rank: 'top', k: 101 }, ['rank']],
  [{ rank: 'top', k: 2.5 }, ['rank']],
  [{ rank: 'top', k: NaN }, ['rank']],
  [{ rank: 'top', k: 100 }, []],
  [{ rank: 'top' }, []],
  [{ limit: -1 }, ['limit']],
  [{ limit: 1 }, []],
])('problems of %j', (q, want) => {
  expect(Object.keys(problems(query(q)))).toEqual(want);
});

test('a comparison of one says how many are chosen', () => {
  expect(problems(query({ queryType: 'compare', experiments: ['a'] })).experiments).toBe('A comparison is of 2 to 8 runs, and 1 is chosen');
});

test.each<[string, boolean]>([
  ['$x', true],
  ['run-${x:csv}', true],
  ['[[x]]', true],
  ['costs 5$', false],
  ['plain', false],
])('hasVariable %s', (text, want) => {
  expect(hasVariable(text)).toBe(want);
});

test.each<[Partial<Query>, string]>([
  [{ queryType: 'cost', view: 'total', teams: ['nlp', 'vision'] }, 'Cost, Totals: teams nlp, vision'],
  [{ queryType: 'gpu_timeseries', metric: 'temp', experiments: ['a'], clusters: ['c'] }, 'GPU metric, Temperature: experiments a; clusters c'],
  [{ queryType: 'events' }, 'Events'],
  [{ queryType: 'promql', expr: 'up' }, 'up'],
])('describe %j', (q, want) => {
  expect(described(query(q))).toBe(want);
});

test('the lists that choose are lists of the query', () => {
  expect(compact(query(Object.fromEntries(CHOICE.map((c) => [c, ['x']]))))).toMatchObject({
    experiments: ['x'],
    clusters: ['x'],
    namespaces: ['x'],
    teams: ['x'],
  });
});
