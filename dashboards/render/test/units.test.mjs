// The arithmetic and the shapes that Grafana's Prometheus data source has, of what the page has of its own.
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';
import * as esbuild from 'esbuild';

const src = path.join(path.dirname(fileURLToPath(import.meta.url)), '../src/prometheus');
let built;
let interval, frames, annotations, variables, api;

before(async () => {
  built = await mkdtemp(path.join(os.tmpdir(), 'spillway-page-'));
  await esbuild.build({
    entryPoints: ['interval', 'frames', 'annotations', 'variables', 'api'].map((name) => path.join(src, `${name}.ts`)),
    outdir: built,
    outExtension: { '.js': '.mjs' },
    bundle: true,
    splitting: true, // one class Refusal for all of them
    format: 'esm',
    platform: 'node',
    logLevel: 'error',
    // Only names and one function are used of it; its whole would want a browser.
    plugins: [
      {
        name: 'grafana-data',
        setup(build) {
          build.onResolve({ filter: /^@grafana\/data$/ }, () => ({ path: 'data', namespace: 'stand-in' }));
          build.onLoad({ filter: /.*/, namespace: 'stand-in' }, () => ({ contents: standIn }));
        },
      },
    ],
  });
  const load = (name) => import(pathToFileURL(path.join(built, `${name}.mjs`)));
  [interval, frames, annotations, variables, api] = await Promise.all(['interval', 'frames', 'annotations', 'variables', 'api'].map(load));
});

after(() => rm(built, { recursive: true, force: true }));

const standIn = `
export const FieldType = { time: 'time', number: 'number', string: 'string' };
export const DataFrameType = { TimeSeriesMulti: 'timeseries-multi', NumericMulti: 'numeric-multi', HeatmapRows: 'heatmap-rows' };
const units = { ms: 1, s: 1000, m: 60000, h: 3600000, d: 86400000 };
export const rangeUtil = {
  intervalToMs(text) {
    const m = /^(\\d+)(ms|s|m|h|d)$/.exec(text);
    if (!m) { throw new Error('no interval: ' + text); }
    return Number(m[1]) * units[m[2]];
  },
  roundInterval: (ms) => ms,
};`;

test('rate intervals hold four scrapes, and one scrape more than a step', () => {
  for (const [step, scrape, want] of [
    [15_000, 15_000, 60_000],
    [30_000, 15_000, 60_000],
    [60_000, 15_000, 75_000],
    [300_000, 30_000, 330_000],
  ]) {
    assert.equal(interval.rateIntervalMs(step, scrape), want, `step ${step}, scrape ${scrape}`);
  }
});

test('a step is never under the minimum, and never gives more than 11,000 points', () => {
  assert.equal(interval.stepMs(2_000, 15_000, 3_600_000), 15_000);
  assert.equal(interval.stepMs(60_000, 15_000, 3_600_000), 60_000);
  const month = 31 * 86_400_000;
  assert.ok(month / interval.stepMs(15_000, 15_000, month) <= 11_000);
});

test('durations are read and written as PromQL does', () => {
  for (const [text, ms] of [
    ['30s', 30_000],
    ['>1m', 60_000],
    ['', 0],
    [undefined, 0],
    ['$unset', 0],
  ]) {
    assert.equal(interval.durationMs(text), ms, String(text));
  }
  for (const [ms, text] of [
    [500, '500ms'],
    [60_000, '1m'],
    [75_000, '75s'],
    [7_200_000, '2h'],
    [86_400_000, '1d'],
  ]) {
    assert.equal(interval.promDuration(ms), text);
  }
});

test('ranges are aligned to the step', () => {
  assert.deepEqual(interval.aligned(100_001, 199_999, 15_000), { from: 90_000, to: 195_000 });
});

describe('frames', () => {
  const matrix = (...series) => ({ resultType: 'matrix', result: series.map(([metric, ...values]) => ({ metric, values })) });

  test('legends', () => {
    const labels = { __name__: 'up', job: 'node', node: 'gpu-1' };
    for (const [format, want] of [
      ['{{node}} of {{ job }}', 'gpu-1 of node'],
      ['{{none}}!', '!'],
      ['', 'up{job="node", node="gpu-1"}'],
      ['__auto', 'up{job="node", node="gpu-1"}'],
    ]) {
      assert.equal(frames.legendOf(format, labels, 'up'), want);
    }
    assert.equal(frames.legendOf('', {}, 'sum(up)'), 'sum(up)');
  });

  test('a series is a frame, with its step, so that holes are not drawn over', () => {
    const [f, ...rest] = frames.matrixFrames('A', matrix([{ a: '1' }, [10, '1'], [25, 'NaN'], [40, '+Inf']]), (l) => `a ${l.a}`, 15_000);
    assert.equal(rest.length, 0);
    assert.deepEqual(f.fields[0].values, [10_000, 25_000, 40_000]);
    assert.equal(f.fields[0].config.interval, 15_000);
    assert.deepEqual(f.fields[1].values, [1, NaN, Infinity]);
    assert.equal(f.fields[1].config.displayNameFromDS, 'a 1');
    assert.deepEqual(f.fields[1].labels, { a: '1' });
  });

  test('a table has a column for each label that any series has', () => {
    const vector = {
      resultType: 'vector',
      result: [
        { metric: { b: 'x' }, value: [1, '2'] },
        { metric: { a: 'y' }, value: [1, '3'] },
      ],
    };
    const [f] = frames.tableFrame('B', vector, true);
    assert.deepEqual(
      f.fields.map((x) => x.name),
      ['Time', 'a', 'b', 'Value #B']
    );
    assert.deepEqual(f.fields[1].values, ['', 'y']);
    assert.deepEqual(frames.tableFrame('A', vector, false)[0].fields.at(-1).name, 'Value');
    assert.deepEqual(frames.tableFrame('A', { resultType: 'vector', result: [] }, false), []);
  });

  test('buckets are taken apart, in the order of their bounds and not of their text', () => {
    const [f] = frames.heatmapFrame(
      'A',
      matrix([{ le: '+Inf' }, [10, '9']], [{ le: '10' }, [10, '7'], [20, '4']], [{ le: '2' }, [10, '3'], [20, '5']]),
      10_000
    );
    assert.deepEqual(
      f.fields.map((x) => x.name),
      ['Time', '2', '10', '+Inf']
    );
    assert.deepEqual(
      f.fields.slice(1).map((x) => x.values),
      [
        [3, 5],
        [4, 0],
        [2, null],
      ]
    );
  });
});

test('annotations: points a step apart are one region, zero is nothing, another series is another event', () => {
  const frame = (labels, values) => ({ length: values.length, fields: [{ values: values.map((_, i) => i * 60_000) }, { values, labels }] });
  const got = annotations.events(
    { titleFormat: '{{alertname}}', textFormat: 'on {{node}}', tagKeys: 'severity, none' },
    [frame({ alertname: 'A', node: 'n', severity: 'page' }, [1, 1, 0, 1]), frame({ alertname: 'B' }, [0, 1, 0, 0])],
    60_000
  );
  assert.deepEqual(
    got.map((e) => [e.title, e.time, e.timeEnd, Boolean(e.isRegion)]),
    [
      ['A', 0, 60_000, true],
      ['A', 180_000, 180_000, false],
      ['B', 60_000, 60_000, false],
    ]
  );
  assert.deepEqual(got[0].tags, ['page']);
  assert.equal(got[0].text, 'on n');
});

describe('the API', () => {
  let asked;
  const answer = (status, body) => {
    globalThis.fetch = async (url, init) => {
      asked = { url: String(url), body: init?.body ? String(init.body) : '' };
      return new Response(typeof body === 'string' ? body : JSON.stringify(body), { status });
    };
  };

  test('queries go by POST; warnings come back', async () => {
    answer(200, { status: 'success', data: 1, warnings: ['cut'] });
    assert.deepEqual(await api.ask('http://p', '/api/v1/query', new URLSearchParams({ query: 'a+b' })), { data: 1, warnings: ['cut'], infos: [] });
    assert.deepEqual(asked, { url: 'http://p/api/v1/query', body: 'query=a%2Bb' });
  });

  test('a refusal is its sentence and the advice', async () => {
    answer(422, { status: 'error', errorType: 'execution', error: 'max_series is 5 and 9 were seen', spillway: { advice: 'Name a cluster' } });
    await assert.rejects(api.ask('', '/api/v1/query', new URLSearchParams()), {
      name: 'Refusal',
      status: 422,
      message: 'max_series is 5 and 9 were seen. Name a cluster',
    });
    answer(502, '<html>bad gateway');
    await assert.rejects(api.ask('', '/api/v1/query', new URLSearchParams()), /502 with something that is not JSON/);
  });

  test('label_values with a selector, commas inside it too', async () => {
    answer(200, { status: 'success', data: ['x', 'y'] });
    const window = { from: 1_000_500, to: 2_000_000 };
    assert.deepEqual(await variables.find('', 'label_values(up{a="1", b=~"c,d"}, node)', window), [
      { text: 'x', value: 'x' },
      { text: 'y', value: 'y' },
    ]);
    assert.equal(decodeURIComponent(asked.url.replaceAll('+', ' ')), '/api/v1/label/node/values?start=1000&end=2000&match[]=up{a="1", b=~"c,d"}');
    await variables.find('', 'label_values(node)', window);
    assert.equal(asked.url, '/api/v1/label/node/values?start=1000&end=2000');
    await assert.rejects(variables.find('', 'up', window), /is no variable query/);
  });
});
