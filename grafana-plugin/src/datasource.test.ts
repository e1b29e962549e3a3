import { CoreApp, dateTime, type DataQueryRequest } from '@grafana/data';
import { firstValueFrom, lastValueFrom } from 'rxjs';
import { alerts } from './test/alerts';
import { datasource } from './test/datasource';
import { serve } from './test/server';
import type { Query, VariableQuery } from './types';
import type { ExperimentVariables } from './variableSupport';
import { DEFAULT_VARIABLE } from './variableDefaults';

const variables = {
  experiment: ['llm "7b"', 'a|b'],
  team: { all: '.*' },
  cluster: 'jaguar',
  word: 'LLM',
  range: '5m',
};

describe('applyTemplateVariables', () => {
  const apply = (query: Partial<Query>, scoped = {}) => datasource(variables).applyTemplateVariables({ refId: 'A', queryType: 'pods', ...query }, scoped);

  test('lists become names', () => {
    expect(apply({ experiments: ['$experiment', 'x'], clusters: ['$cluster'], namespaces: [], teams: ['$team'] })).toEqual({
      refId: 'A',
      queryType: 'pods',
      experiments: ['llm "7b"', 'a|b', 'x'],
      clusters: ['jaguar'],
    });
  });

  test('text is replaced, with values escaped in PromQL, and macros are left to the back end', () => {
    const scoped = { __interval: { text: '1m', value: '1m' }, __rate_interval: { text: '4m', value: '4m' }, node: { text: 'n', value: 'n"1' } };
    const expr = 'rate(x{e=~"$experiment",n="$node",$__experiment}[$__rate_interval]) + y[$__interval] + z[$__range]';
    expect(apply({ queryType: 'promql', expr, legend: '$cluster {{node}}', search: 'my $word' }, scoped)).toMatchObject({
      expr: 'rate(x{e=~"(llm \\"7b\\"|a\\\\|b)",n="n\\"1",$__experiment}[$__rate_interval]) + y[$__interval] + z[$__range]',
      legend: 'jaguar {{node}}',
      search: 'my LLM',
    });
  });

  // Grafana answers for macros itself where nothing else stands for them, with the interval of the request before.
  test('macros stand for themselves, whatever Grafana thinks they are', () => {
    const grafana = { __interval: '99s', __interval_ms: '99000', __rate_interval: '396s', __range: '99h', __range_s: '356400', __range_ms: '356400000' };
    const ds = datasource({ ...variables, ...grafana });
    const expr = 'rate(x[$__rate_interval]) + y[${__interval}] + z[$__range] + $__interval_ms + $__range_s + $__range_ms';
    for (const scoped of [{}, { __interval: { text: '1m', value: '1m' }, __range: { text: '1h', value: '1h' } }]) {
      expect(ds.applyTemplateVariables({ refId: 'A', queryType: 'promql', expr }, scoped).expr).toBe(
        'rate(x[$__rate_interval]) + y[$__interval] + z[$__range] + $__interval_ms + $__range_s + $__range_ms'
      );
    }
  });

  test('the stored query is not changed', () => {
    const query: Query = Object.freeze({ refId: 'A', queryType: 'pods', experiments: Object.freeze(['$experiment']) as string[] });
    expect(datasource(variables).interpolateVariablesInQueries([query], {})[0].experiments).toHaveLength(2);
    expect(query.experiments).toEqual(['$experiment']);
  });

  test('a query without a type is one of the default type', () => {
    expect(datasource().applyTemplateVariables({ refId: 'A' } as Query, {})).toEqual({ refId: 'A', queryType: 'experiments' });
  });
});

test('defaults: a table in dashboards, numbers in alerts', () => {
  expect(datasource().getDefaultQuery(CoreApp.Dashboard)).toEqual({ queryType: 'experiments' });
  expect(datasource().getDefaultQuery(CoreApp.UnifiedAlerting)).toEqual({ queryType: 'gpu_health', view: 'count' });
});

test('what goes to the back end has names instead of variables', async () => {
  const asked = serve({ '/api/ds/query': { results: {} } });
  const request = {
    targets: [{ refId: 'A', queryType: 'pods', experiments: ['$experiment'] }],
    range: { from: dateTime(0), to: dateTime(3_600_000), raw: { from: 'now-1h', to: 'now' } },
    scopedVars: {},
    intervalMs: 1000,
    maxDataPoints: 100,
  } as unknown as DataQueryRequest<Query>;
  await lastValueFrom(datasource(variables).query(request));
  expect(asked).toHaveLength(1);
  const { queries, from, to } = asked[0].data as { queries: Array<Record<string, unknown>>; from: string; to: string };
  expect([from, to]).toEqual(['0', '3600000']);
  expect(queries).toHaveLength(1);
  expect(queries[0]).toMatchObject({ refId: 'A', queryType: 'pods', experiments: ['llm "7b"', 'a|b'], maxDataPoints: 100 });
});

test('lines of compared runs are numbered by the names that were chosen, those of other queries are not', async () => {
  const frame = (run: string) => ({
    schema: {
      fields: [
        { name: 'Time', type: 'time' },
        { name: 'Value', type: 'number', labels: { run }, config: { displayNameFromDS: run } },
      ],
    },
    data: { values: [[0], [1]] },
  });
  const answer = () => ({ frames: [frame('llm "7b"'), frame('a|b')] });
  serve({ '/api/ds/query': { results: { A: answer(), B: answer() } } });
  const request = {
    targets: [
      { refId: 'A', queryType: 'compare', experiments: ['$experiment', '0'] },
      { refId: 'B', queryType: 'gpu_timeseries', experiments: ['$experiment'] },
    ],
    range: { from: dateTime(0), to: dateTime(3_600_000), raw: { from: 'now-1h', to: 'now' } },
    scopedVars: {},
    intervalMs: 1000,
    maxDataPoints: 100,
  } as unknown as DataQueryRequest<Query>;
  const { data } = await lastValueFrom(datasource(variables).query(request));
  expect(data.map((f) => [f.refId, f.fields[1].name])).toEqual([
    ['A', 'run 3'],
    ['A', 'run 2'],
    ['B', 'Value'],
    ['B', 'Value'],
  ]);
});

describe('resources', () => {
  test('a search is bounded, and narrowed', async () => {
    const asked = serve({ experiments: [{ name: 'x', cluster: 'c' }] });
    expect(await datasource().searchExperiments('LL', { team: ['nlp', 'vision'], cluster: [] })).toEqual([{ label: 'x', value: 'x', description: 'c' }]);
    expect(asked).toEqual([{ path: 'experiments', params: { limit: 50, q: ['LL'], team: ['nlp', 'vision'], warnings: 1 }, data: undefined }]);
    await datasource().searchExperiments('');
    expect(asked[1].params).toEqual({ limit: 50, warnings: 1 });
  });

  const variable = async (query: Partial<VariableQuery>) => {
    const targets = [query as VariableQuery];
    const answer = await firstValueFrom((datasource(variables).variables as ExperimentVariables).query({ targets, scopedVars: {} } as never));
    return answer.data;
  };

  test('variables: names, narrowed by other variables', async () => {
    const asked = serve({ experiments: [{ name: 'b' }, { name: 'a' }, { name: 'b' }], nodes: ['n1', 'n2'] });
    expect(await variable({ ...DEFAULT_VARIABLE, team: '$team', cluster: '$cluster', q: '$word', namespace: '', limit: 7, days: 30 })).toEqual([
      { text: 'b', value: 'b' },
      { text: 'a', value: 'a' },
    ]);
    expect(asked[0]).toMatchObject({ path: 'experiments', params: { q: ['LLM'], cluster: ['jaguar'], limit: 7, days: 30 } });
    expect(asked[0].params).not.toHaveProperty('team');
    expect(await variable({ resource: 'nodes', experiment: '$experiment' })).toEqual([
      { text: 'n1', value: 'n1' },
      { text: 'n2', value: 'n2' },
    ]);
    expect(asked[1].params).not.toHaveProperty('days');
    expect(asked[1]).toMatchObject({ path: 'nodes', params: { experiment: ['llm "7b"', 'a|b'] } });
  });

  test('what is missing from a list is told', async () => {
    const told = alerts();
    serve({ teams: { list: ['nlp'], warnings: ['Shard eu-2 does not answer.'] }, experiments: { list: [{ name: 'a' }], warnings: ['Bound.'] } });
    expect(await variable({ resource: 'teams' })).toEqual([{ text: 'nlp', value: 'nlp' }]);
    expect(await datasource().searchExperiments('a')).toEqual([{ label: 'a', value: 'a' }]);
    expect(told).toEqual([
      ['Experiments: the list of teams may not be complete', 'Shard eu-2 does not answer.'],
      ['Experiments: the list of experiments may not be complete', 'Bound.'],
    ]);
  });

  test("a refusal is the variable's error", async () => {
    serve({ teams: new Error('the proxy is down') });
    await expect(variable({ resource: 'teams' })).rejects.toThrow('the proxy is down');
  });

  test('without a stored query a variable has experiments', async () => {
    const asked = serve({ experiments: [] });
    const answer = await firstValueFrom((datasource().variables as ExperimentVariables).query({ targets: [], scopedVars: {} } as never));
    expect(answer.data).toEqual([]);
    expect(asked[0].path).toBe('experiments');
    expect(datasource().variables!.getDefaultQuery!()).toEqual(DEFAULT_VARIABLE);
  });
});

describe('Save & test', () => {
  const test1 = (health: unknown) => {
    serve({ '/api/datasources/uid/ds-1/health': health });
    return datasource().testDatasource();
  };

  test('all is set up', async () => {
    expect(await test1({ status: 'OK', message: 'The proxy answers.', details: { findings: [] } })).toEqual({
      status: 'success',
      message: 'The proxy answers.',
    });
  });

  test('some is missing: a warning with all of it', async () => {
    const details = { verboseMessage: 'No DCGM.\n\nNo rules.' };
    expect(await test1({ status: 'OK', message: '2 things', details })).toEqual({ status: 'warning', message: '2 things', details });
  });

  test('nothing works', async () => {
    const details = { verboseMessage: 'No allow-list.' };
    await expect(test1({ status: 'ERROR', message: 'nothing to show', details })).rejects.toMatchObject({
      status: 'error',
      message: 'nothing to show',
      error: { name: 'HealthCheckError', details },
    });
  });

  test('the back end does not answer', async () => {
    await expect(test1(Object.assign(new Error('x'), { data: { status: 'ERROR', message: 'plugin unavailable' } }))).rejects.toMatchObject({
      status: 'error',
      message: 'plugin unavailable',
    });
  });
});

test('names of variables are those of the dashboard', () => {
  expect(datasource(variables).variableNames()).toEqual(['$experiment', '$team', '$cluster', '$word', '$range']);
});
