// A Grafana data source of type prometheus over the HTTP API that this page's own server forwards.
import {
  type AnnotationEvent,
  type AnnotationSupport,
  type DataFrame,
  type DataQuery,
  type DataQueryRequest,
  type DataQueryResponse,
  DataSourceApi,
  type DataSourceInstanceSettings,
  LoadingState,
  type MetricFindValue,
  PluginType,
  type ScopedVars,
  type TimeRange,
} from '@grafana/data';
import { Observable, of } from 'rxjs';
import { type PromAnnotation, events } from './annotations';
import { ask, type Matrix, Refusal, type Scalar, type Vector } from './api';
import { heatmapFrame, legendOf, matrixFrames, notices, type Shape, tableFrame, vectorFrames } from './frames';
import { plain, promql } from './interpolate';
import { aligned, durationMs, promDuration, rateIntervalMs, stepMs } from './interval';
import { find } from './variables';

export interface PromQuery extends DataQuery {
  expr: string;
  legendFormat?: string;
  format?: Shape;
  instant?: boolean;
  range?: boolean;
  interval?: string;
}

/** The data source's scrape interval: the page's parameter `scrape`, or what Grafana assumes where it says nothing. */
const defaultScrapeMs = durationMs(new URLSearchParams(globalThis.location?.search).get('scrape')) || 15_000;

export const pluginMeta = {
  id: 'prometheus',
  name: 'Prometheus',
  type: PluginType.datasource,
  module: '',
  baseUrl: '',
  metrics: true,
  annotations: true,
  info: { author: { name: '' }, description: '', links: [], logos: { large: '', small: '' }, screenshots: [], updated: '', version: '' },
};

export class PrometheusDataSource extends DataSourceApi<PromQuery> {
  override annotations: AnnotationSupport<PromQuery> = {
    prepareQuery: (anno) => {
      const own = anno as PromAnnotation & { target?: Partial<PromQuery> };
      const expr = own.expr ?? own.target?.expr;
      return expr ? { refId: 'Anno', expr, range: true, instant: false, interval: own.step ?? own.target?.interval ?? '' } : undefined;
    },
    processEvents: (anno, frames): Observable<AnnotationEvent[]> => {
      const step = frames[0]?.fields[0]?.config.interval ?? defaultScrapeMs;
      return of(events(anno as PromAnnotation, frames, step));
    },
  };

  /** base is put before /api/v1; empty for this page's own server. */
  constructor(
    settings: DataSourceInstanceSettings,
    private readonly base: string
  ) {
    super(settings);
  }

  override query(request: DataQueryRequest<PromQuery>): Observable<DataQueryResponse> {
    const targets = request.targets.filter((t) => t.expr && !t.hide);
    const tables = targets.filter((t) => t.format === 'table').length;
    return new Observable((subscriber) => {
      const abort = new AbortController(); // a panel that is gone, or asked again, takes its requests with it
      Promise.all(targets.map((t) => this.run(t, request, tables > 1, abort.signal))).then(
        (answers) => {
          subscriber.next(merged(answers));
          subscriber.complete();
        },
        (err: unknown) => subscriber.error(err)
      );
      return () => abort.abort();
    });
  }

  /** run sends one target; its refusal is kept beside what the others answered. */
  private async run(target: PromQuery, request: DataQueryRequest<PromQuery>, several: boolean, signal: AbortSignal): Promise<DataQueryResponse> {
    const scrape = defaultScrapeMs;
    const fromMs = request.range.from.valueOf();
    const toMs = request.range.to.valueOf();
    const minimum = durationMs(plain(target.interval ?? '', request.scopedVars));
    const step = stepMs(request.intervalMs ?? scrape, minimum || scrape, toMs - fromMs);
    const scoped: ScopedVars = { ...request.scopedVars, ...intervals(step, minimum || scrape, toMs - fromMs) };
    const expr = promql(target.expr, scoped);
    const format = plain(target.legendFormat ?? '', scoped);
    const legend = (labels: Record<string, string>) => legendOf(format, labels, expr);
    const shape = target.format ?? 'time_series';
    try {
      const frames: DataFrame[] = [];
      if (target.instant) {
        const params = new URLSearchParams({ query: expr, time: String(toMs / 1000) });
        const answer = await ask<Vector | Scalar | Matrix>(this.base, '/api/v1/query', params, signal);
        const own =
          shape === 'table' || answer.data.resultType === 'matrix'
            ? tableFrame(target.refId, answer.data, several)
            : vectorFrames(target.refId, answer.data, legend);
        frames.push(...own.map((f) => withMeta(f, expr, answer)));
        if (own.length === 0 && answer.warnings.length + answer.infos.length > 0) {
          frames.push(withMeta({ refId: target.refId, length: 0, fields: [] }, expr, answer));
        }
      }
      if (target.range || !target.instant) {
        const ends = aligned(fromMs, toMs, step);
        const params = new URLSearchParams({ query: expr, start: String(ends.from / 1000), end: String(ends.to / 1000), step: String(step / 1000) });
        const answer = await ask<Matrix>(this.base, '/api/v1/query_range', params, signal);
        let own: DataFrame[];
        switch (shape) {
          case 'heatmap':
            own = heatmapFrame(target.refId, answer.data, step);
            break;
          case 'table':
            own = tableFrame(target.refId, answer.data, several);
            break;
          default:
            own = matrixFrames(target.refId, answer.data, legend, step);
        }
        frames.push(...own.map((f, i) => (i === 0 ? withMeta(f, expr, answer) : f)));
        if (own.length === 0 && answer.warnings.length + answer.infos.length > 0) {
          frames.push(withMeta({ refId: target.refId, length: 0, fields: [] }, expr, answer));
        }
      }
      return { data: frames };
    } catch (err) {
      if (signal.aborted) {
        return { data: [] };
      }
      const message = err instanceof Error ? err.message : String(err);
      return { data: [], errors: [{ refId: target.refId, message, status: err instanceof Refusal ? err.status : undefined }], state: LoadingState.Error };
    }
  }

  /** metricFindQuery runs a variable's query, which Grafana stores as text or as an object around it. */
  async metricFindQuery(query: string | { query?: string }, options?: { scopedVars?: ScopedVars; range?: TimeRange }): Promise<MetricFindValue[]> {
    const scoped = options?.scopedVars ?? {};
    const text = promql(typeof query === 'string' ? query : (query.query ?? ''), scoped);
    const to = options?.range?.to.valueOf() ?? Date.now();
    const begin = options?.range?.from.valueOf() ?? to - 3_600_000;
    return find(this.base, text, { from: begin, to });
  }

  override async testDatasource() {
    await ask(this.base, '/api/v1/query', new URLSearchParams({ query: '1+1' }));
    return { status: 'success', message: 'It answers.' };
  }
}

/** merged joins the answers of a panel's targets; one refusal makes the panel's state an error, and what the others said is still drawn. */
function merged(answers: DataQueryResponse[]): DataQueryResponse {
  const errors = answers.flatMap((a) => a.errors ?? []);
  return {
    data: answers.flatMap((a) => a.data),
    state: errors.length ? LoadingState.Error : LoadingState.Done,
    ...(errors.length ? { errors, error: errors[0] } : {}),
  };
}

function withMeta(frame: DataFrame, expr: string, answer: { warnings: string[]; infos: string[] }): DataFrame {
  return { ...frame, meta: { ...frame.meta, executedQueryString: expr, notices: notices(answer.warnings, answer.infos) } };
}

/** intervals are the variables that depend on the step. */
function intervals(step: number, scrape: number, rangeMs: number): ScopedVars {
  const rate = rateIntervalMs(step, scrape);
  const range = Math.round(rangeMs / 1000);
  return {
    __interval: { text: promDuration(step), value: promDuration(step) },
    __interval_ms: { text: step, value: step },
    __rate_interval: { text: promDuration(rate), value: promDuration(rate) },
    __rate_interval_ms: { text: rate, value: rate },
    __range: { text: `${range}s`, value: `${range}s` },
    __range_s: { text: range, value: range },
    __range_ms: { text: range * 1000, value: range * 1000 },
  };
}
