// The query language of Grafana's Prometheus variables: label_names(), label_values(), metrics(), query_result().
import type { MetricFindValue } from '@grafana/data';
import { ask, type Matrix, type Scalar, type Vector } from './api';
import { legendOf } from './frames';

export interface Window {
  from: number; // ms
  to: number;
}

const labelNames = /^label_names\(\s*\)$/;
const labelValues = /^label_values\(\s*(?:([^]+?)\s*,\s*)?([a-zA-Z_][a-zA-Z0-9_]*)\s*\)\s*$/;
const metricNames = /^metrics\(([^]*)\)\s*$/;
const queryResult = /^query_result\(([^]+)\)\s*$/;

function windowed(window: Window): URLSearchParams {
  return new URLSearchParams({ start: String(Math.floor(window.from / 1000)), end: String(Math.ceil(window.to / 1000)) });
}

const values = (names: string[]): MetricFindValue[] => names.map((text) => ({ text, value: text }));

/** find runs one variable's query, all variables in it filled already. */
export async function find(base: string, query: string, window: Window): Promise<MetricFindValue[]> {
  const text = query.trim();
  if (labelNames.test(text)) {
    return values((await ask<string[]>(base, '/api/v1/labels', windowed(window), undefined, 'GET')).data);
  }
  const forLabel = labelValues.exec(text);
  if (forLabel) {
    const params = windowed(window);
    if (forLabel[1]) {
      params.append('match[]', forLabel[1]);
    }
    return values((await ask<string[]>(base, `/api/v1/label/${encodeURIComponent(forLabel[2]!)}/values`, params, undefined, 'GET')).data);
  }
  const forMetrics = metricNames.exec(text);
  if (forMetrics) {
    const names = (await ask<string[]>(base, '/api/v1/label/__name__/values', windowed(window), undefined, 'GET')).data;
    const wanted = new RegExp(forMetrics[1]!);
    return values(names.filter((name) => wanted.test(name)));
  }
  const forResult = queryResult.exec(text);
  if (forResult) {
    const params = new URLSearchParams({ query: forResult[1]!, time: String(window.to / 1000) });
    const { data } = await ask<Vector | Scalar | Matrix>(base, '/api/v1/query', params);
    if (data.resultType !== 'vector') {
      return [];
    }
    return data.result.map(({ metric, value }) => ({ text: `${legendOf('__auto', metric, '')} ${value[1]} ${value[0] * 1000}` }));
  }
  throw new Error(`"${query}" is no variable query: write label_values(selector, label), label_names(), metrics(regex) or query_result(expression)`);
}
