// Answers of the Prometheus HTTP API as Grafana's data frames, in the shapes that Grafana's own Prometheus data source makes.
import { type DataFrame, DataFrameType, type Field, FieldType, type QueryResultMetaNotice } from '@grafana/data';
import type { Matrix, Scalar, Vector } from './api';

/** Shape is what a target's `format` asks for. */
export type Shape = 'time_series' | 'table' | 'heatmap';

type Labels = Record<string, string>;

/** number reads a sample's text; NaN is no value to draw. */
function number(text: string): number {
  switch (text) {
    case '+Inf':
      return Infinity;
    case '-Inf':
      return -Infinity;
    default:
      return Number(text);
  }
}

/** seriesName writes labels as Prometheus does. */
function seriesName(labels: Labels): string {
  const { __name__: name = '', ...rest } = labels;
  const pairs = Object.entries(rest).map(([k, v]) => `${k}="${v}"`);
  return pairs.length ? `${name}{${pairs.join(', ')}}` : name || 'Value';
}

/** legendOf fills a legend format such as `{{node}} GPU {{gpu}}`; `__auto` or nothing is the labels themselves, or the query where there are none. */
export function legendOf(format: string | undefined, labels: Labels, expr: string): string {
  if (format && format !== '__auto') {
    return format.replace(/\{\{\s*(.+?)\s*\}\}/g, (_, label: string) => labels[label] ?? '');
  }
  return Object.keys(labels).length ? seriesName(labels) : expr;
}

function timeField(values: number[], intervalMs?: number): Field {
  return { name: 'Time', type: FieldType.time, values, config: intervalMs ? { interval: intervalMs } : {} };
}

/** matrixFrames is one frame for each series. */
export function matrixFrames(refId: string, matrix: Matrix, legend: (labels: Labels) => string, stepMs: number): DataFrame[] {
  return matrix.result.map(({ metric, values }) => {
    const name = legend(metric);
    return {
      refId,
      name,
      length: values.length,
      fields: [
        timeField(
          values.map(([t]) => t * 1000),
          stepMs
        ),
        { name: 'Value', type: FieldType.number, values: values.map(([, v]) => number(v)), labels: metric, config: { displayNameFromDS: name } },
      ],
      meta: { type: DataFrameType.TimeSeriesMulti },
    };
  });
}

/** vectorFrames is one frame of one row for each series. */
export function vectorFrames(refId: string, answer: Vector | Scalar, legend: (labels: Labels) => string): DataFrame[] {
  const samples = answer.resultType === 'vector' ? answer.result : [{ metric: {}, value: answer.result }];
  return samples.map(({ metric, value: [t, v] }) => {
    const name = legend(metric);
    return {
      refId,
      name,
      length: 1,
      fields: [timeField([t * 1000]), { name: 'Value', type: FieldType.number, values: [number(v)], labels: metric, config: { displayNameFromDS: name } }],
      meta: { type: DataFrameType.NumericMulti },
    };
  });
}

/** tableFrame is one frame of all samples: time, a column for each label, the value, whose name carries the query's letter where the panel has several tables. */
export function tableFrame(refId: string, answer: Matrix | Vector | Scalar, several: boolean): DataFrame[] {
  const rows: Array<{ metric: Labels; at: number; value: number }> = [];
  switch (answer.resultType) {
    case 'matrix':
      for (const { metric, values } of answer.result) {
        rows.push(...values.map(([t, v]) => ({ metric, at: t * 1000, value: number(v) })));
      }
      break;
    case 'vector':
      rows.push(...answer.result.map(({ metric, value: [t, v] }) => ({ metric, at: t * 1000, value: number(v) })));
      break;
    default:
      rows.push({ metric: {}, at: answer.result[0] * 1000, value: number(answer.result[1]) });
  }
  if (rows.length === 0) {
    return [];
  }
  const names = [...new Set(rows.flatMap((r) => Object.keys(r.metric)))].sort();
  return [
    {
      refId,
      length: rows.length,
      fields: [
        timeField(rows.map((r) => r.at)),
        ...names.map((name): Field => ({ name, type: FieldType.string, values: rows.map((r) => r.metric[name] ?? ''), config: {} })),
        { name: several ? `Value #${refId}` : 'Value', type: FieldType.number, values: rows.map((r) => r.value), config: {} },
      ],
      meta: { preferredVisualisationType: 'table' },
    },
  ];
}

/** heatmapFrame is one frame with a field for each bucket: the cumulative counts of `le` taken apart, in rising order. */
export function heatmapFrame(refId: string, matrix: Matrix, stepMs: number): DataFrame[] {
  const buckets = matrix.result
    .filter(({ metric }) => metric['le'] !== undefined)
    .map(({ metric, values }) => ({ le: metric['le']!, bound: number(metric['le']!), at: new Map(values.map(([t, v]) => [t, number(v)])) }))
    .sort((a, b) => a.bound - b.bound);
  if (buckets.length === 0) {
    return [];
  }
  const times = [...new Set(buckets.flatMap((b) => [...b.at.keys()]))].sort((a, b) => a - b);
  const counts = buckets.map((bucket, i) =>
    times.map((t) => {
      const count = bucket.at.get(t);
      // rate() of buckets that were scraped at different moments may fall a little with le; a bucket is never less than empty.
      return count === undefined ? null : Math.max(0, count - (i > 0 ? (buckets[i - 1]!.at.get(t) ?? 0) : 0));
    })
  );
  return [
    {
      refId,
      length: times.length,
      fields: [
        timeField(
          times.map((t) => t * 1000),
          stepMs
        ),
        ...buckets.map(({ le }, i): Field => ({ name: le, type: FieldType.number, values: counts[i]!, config: {}, labels: { le } })),
      ],
      meta: { type: DataFrameType.HeatmapRows },
    },
  ];
}

/** notices are an answer's warnings and infos, for the panel's header. */
export function notices(warnings: string[], infos: string[]): QueryResultMetaNotice[] {
  return [...warnings.map((text) => ({ severity: 'warning' as const, text })), ...infos.map((text) => ({ severity: 'info' as const, text }))];
}
