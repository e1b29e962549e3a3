import {
  CoreApp,
  type DataQueryRequest,
  type DataQueryResponse,
  type DataSourceInstanceSettings,
  type ScopedVars,
  type TestDataSourceResponse,
} from '@grafana/data';
import { DataSourceWithBackend, HealthCheckError, HealthStatus, getTemplateSrv } from '@grafana/runtime';
import { map, type Observable } from 'rxjs';
import { annotationSupport } from './annotations';
import { legible, numbered } from './frames';
import { CHOICE, compact, DEFAULT_ALERT_QUERY, DEFAULT_QUERY, describe } from './query';
import { experimentChoices, parseExperiments, parseNames, withWarnings, type Choosable } from './resources';
import type { Query, Resource, Settings, VariableQuery } from './types';
import { namesOfList, promql, type Templates } from './variables';
import { tell } from './warnings';
import { ExperimentVariables } from './variableSupport';

/** How many experiments a picker lists at once; typing narrows. */
const PICKER_LIMIT = 50;

// The back end knows them: it chooses steps, and alert rules never pass through here. Each stands for itself, since Grafana has values for those that no
// scoped variable stands for, such as the interval of the request before.
const macros: ScopedVars = Object.fromEntries(
  ['__interval', '__interval_ms', '__rate_interval', '__range', '__range_s', '__range_ms'].map((m) => [m, { text: '$' + m, value: '$' + m }])
);

/** What narrows a list of names. */
export type Narrowing = Partial<Record<'q' | 'team' | 'cluster' | 'namespace' | 'experiment', string[]>> & { limit?: number; days?: number };

export class DataSource extends DataSourceWithBackend<Query, Settings> {
  annotations = annotationSupport;

  constructor(
    settings: DataSourceInstanceSettings<Settings>,
    private readonly templates: () => Templates = getTemplateSrv
  ) {
    super(settings);
    this.variables = new ExperimentVariables(this);
  }

  getDefaultQuery(app: CoreApp): Partial<Query> {
    return app === CoreApp.UnifiedAlerting || app === CoreApp.CloudAlerting ? DEFAULT_ALERT_QUERY : DEFAULT_QUERY;
  }

  getQueryDisplayText(query: Query): string {
    return describe(query);
  }

  query(request: DataQueryRequest<Query>): Observable<DataQueryResponse> {
    const compared = new Map(request.targets.filter((t) => t.queryType === 'compare').map((t) => [t.refId, t.experiments]));
    const names = (refId = '') => namesOfList(compared.get(refId), this.templates(), request.scopedVars) ?? [];
    return super.query(request).pipe(map((answer) => ({ ...answer, data: answer.data.map((frame) => numbered(legible(frame), names(frame.refId))) })));
  }

  /** The query as the back end takes it: lists of names instead of variables. */
  applyTemplateVariables(query: Query, scopedVars: ScopedVars): Query {
    const templates = this.templates();
    const next: Query = { ...query, queryType: query.queryType ?? DEFAULT_QUERY.queryType };
    for (const list of CHOICE) {
      next[list] = namesOfList(query[list], templates, scopedVars);
    }
    next.search = query.search && templates.replace(query.search, scopedVars);
    next.expr = query.expr && templates.replace(query.expr, { ...scopedVars, ...macros }, promql);
    next.legend = query.legend && templates.replace(query.legend, scopedVars);
    return compact(next);
  }

  /** For Explore, and for panels that are taken out of their dashboard. */
  interpolateVariablesInQueries(queries: Query[], scopedVars: ScopedVars): Query[] {
    return queries.map((q) => this.applyTemplateVariables(q, scopedVars));
  }

  /** "Save & test". Grafana's own shows what is missing only where nothing works; here it is shown where some views work, too. */
  async testDatasource(): Promise<TestDataSourceResponse> {
    const { status, message, details } = await this.callHealthCheck();
    if (status !== HealthStatus.OK) {
      const error = new HealthCheckError(message, details ?? {});
      throw Object.assign(error, { status: 'error', error });
    }
    return details?.verboseMessage ? { status: 'warning', message, details } : { status: 'success', message };
  }

  /** Experiments whose names have what was typed, those that were seen last first. */
  async searchExperiments(typed: string, narrow: Narrowing = {}): Promise<Choosable[]> {
    const answer = await this.listed('experiments', { limit: PICKER_LIMIT, ...narrow, q: typed ? [typed] : [] });
    return experimentChoices(parseExperiments(answer));
  }

  /** The names of a resource. Experiments come newest first, the others sorted. */
  async names(resource: Resource, narrow: Narrowing = {}): Promise<string[]> {
    const answer = await this.listed(resource, narrow);
    return resource === 'experiments' ? parseExperiments(answer).map((e) => e.name) : parseNames(answer, resource);
  }

  /** What a resource lists; what is missing from it is told. */
  private async listed(resource: Resource, narrow: Narrowing): Promise<unknown> {
    const { list, warnings } = withWarnings(await this.getResource(resource, { ...params(narrow), warnings: 1 }));
    tell(`${resource} ${this.uid}`, `${this.name}: the list of ${resource} may not be complete`, warnings);
    return list;
  }

  /** What a variable's query narrows by, after the variables in it were replaced. */
  narrowing(query: VariableQuery, scopedVars?: ScopedVars): Narrowing {
    const templates = this.templates();
    const list = (text?: string) => (text ? namesOfList([text], templates, scopedVars) : undefined)?.filter(Boolean);
    return {
      q: query.q ? [templates.replace(query.q, scopedVars)] : undefined,
      team: list(query.team),
      cluster: list(query.cluster),
      namespace: list(query.namespace),
      experiment: list(query.experiment),
      limit: query.limit,
      days: query.days,
    };
  }

  /** Variables of the dashboard, as one writes them into a list. */
  variableNames(): string[] {
    return this.templates()
      .getVariables()
      .map((v) => '$' + v.name);
  }
}

/** Only what narrows; a list becomes a parameter that is there several times. */
function params(narrow: Narrowing): Record<string, string[] | number> {
  return Object.fromEntries(Object.entries(narrow).filter(([, v]) => v !== undefined && !(Array.isArray(v) && v.length === 0)));
}
