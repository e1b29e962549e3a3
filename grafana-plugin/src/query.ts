// What a query of each type is made of: the editor's words and fields, and what is wrong with a query before it is sent. Nothing here knows Grafana.
import { MAX_COMPARED, MAX_K, MAX_NAMES, VIEWS, type GroupLabel, type Metric, type Query, type QueryType } from './types';

/** A field of the editor. Those of CHOICE are there for every type. */
export type Field = 'search' | 'metric' | 'groupBy' | 'view' | 'rank' | 'limit' | 'expr' | 'legend' | 'instant';

/** The lists that choose what a query is about. */
export const CHOICE = ['experiments', 'clusters', 'namespaces', 'teams'] as const;
export type Choice = (typeof CHOICE)[number];

interface Kind {
  label: string;
  /** One line: what is seen. */
  help: string;
  fields: readonly Field[];
}

export const KINDS: Record<QueryType, Kind> = {
  experiments: { label: 'Experiments', help: 'A table of experiments, those seen last first: state, pods, GPUs.', fields: ['search', 'limit'] },
  status: { label: 'Status', help: 'How many pods run, wait or failed, by cluster: now, or over time.', fields: ['view'] },
  pods: { label: 'Pods', help: 'A row for each pod: node, phase, reason, exit code, restarts, GPUs, age.', fields: ['limit'] },
  nodes: { label: 'Nodes', help: 'A row for each node under the experiment: ready or not, cordoned, GPUs, use, Xid.', fields: ['limit'] },
  gpu_timeseries: {
    label: 'GPU metric',
    help: 'One metric of the GPUs over time, by experiment, node, GPU or other labels.',
    fields: ['metric', 'groupBy', 'rank'],
  },
  gpu_health: { label: 'GPU health', help: 'What is wrong with the GPUs: Xids, remapped rows, throttling, with what to do.', fields: ['view', 'limit'] },
  network: { label: 'Network', help: 'Traffic or errors of the nodes over time: InfiniBand, Ethernet, NVLink.', fields: ['view', 'rank'] },
  pending: { label: 'Pending pods', help: 'A row for each pod that waits: since when and why.', fields: ['limit'] },
  events: { label: 'Events', help: 'Annotations: restarts, nodes that went, Xids, evictions, failed pods.', fields: [] },
  cost: { label: 'Cost', help: 'GPU hours, idle GPU hours and money, by team and experiment.', fields: ['view', 'limit'] },
  compare: { label: 'Compare runs', help: `Two to ${MAX_COMPARED} runs over the time since each began, or a table of them.`, fields: ['view', 'metric'] },
  stragglers: { label: 'Stragglers', help: 'GPUs that do less than the others of the same experiment, the worst first.', fields: ['metric', 'limit'] },
  promql: { label: 'PromQL', help: 'Your own query; $__experiment stands for matchers of what is chosen.', fields: ['expr', 'legend', 'instant'] },
};

export const METRIC_LABELS: Record<Metric, { label: string; help: string }> = {
  util: { label: 'Utilisation', help: 'Share of time in which a kernel ran, percent' },
  tensor: { label: 'Tensor cores', help: 'Share of time in which tensor cores worked' },
  dram: { label: 'Memory bandwidth', help: 'Share of time in which memory was read or written' },
  mem: { label: 'Memory used', help: 'Memory in use, MiB' },
  power: { label: 'Power', help: 'Watts' },
  temp: { label: 'Temperature', help: 'Degrees Celsius' },
};

export const VIEW_LABELS: Record<string, string> = {
  now: 'Now',
  over_time: 'Over time',
  table: 'Table',
  count: 'Count by class',
  infiniband: 'InfiniBand',
  ethernet: 'Ethernet',
  nvlink: 'NVLink',
  errors: 'Errors',
  total: 'Totals',
  series: 'Over elapsed time',
  summary: 'Summary',
};

export const GROUP_LABEL_NAMES: Record<GroupLabel, string> = {
  experiment: 'Experiment',
  team: 'Team',
  cluster: 'Cluster',
  namespace: 'Namespace',
  node: 'Node',
  pod: 'Pod',
  gpu: 'GPU',
};

export const DEFAULT_QUERY: Pick<Query, 'queryType'> = { queryType: 'experiments' };

/** The default for alert rules: numbers rather than rows. */
export const DEFAULT_ALERT_QUERY: Pick<Query, 'queryType' | 'view'> = { queryType: 'gpu_health', view: 'count' };

/** Fields of the editor that this query shows: some views need fewer than their type. */
export function fieldsOf(query: Query): readonly Field[] {
  const fields = KINDS[query.queryType]?.fields ?? [];
  const view = viewOf(query);
  return fields.filter((f) => {
    switch (f) {
      case 'limit':
        return view === undefined || view === 'table';
      case 'metric':
        return view !== 'summary';
      default:
        return true;
    }
  });
}

/** The query's view, the first one where it names none, undefined where its type has only one. */
export function viewOf(query: Query): string | undefined {
  const views = VIEWS[query.queryType];
  return views && (query.view || views[0]);
}

/** The same query with another type. What is chosen stays; what the other type does not have goes. */
export function withType(query: Query, queryType: QueryType): Query {
  const { refId, key, hide, datasource, experiments, clusters, namespaces, teams } = query;
  const next: Query = { refId, key, hide, datasource, queryType, experiments, clusters, namespaces, teams };
  const has = (q: Query, field: Field) => KINDS[q.queryType]?.fields.includes(field) && KINDS[queryType].fields.includes(field);
  if (has(query, 'metric')) {
    next.metric = query.metric;
  }
  if (has(query, 'limit')) {
    next.limit = query.limit;
  }
  if (has(query, 'rank')) {
    next.rank = query.rank;
    next.k = query.k;
  }
  return compact(next);
}

/** The query without what is undefined, empty text or an empty list, so that stored dashboards hold no noise. */
export function compact(query: Query): Query {
  const kept = Object.entries(query).filter(([, v]) => v !== undefined && v !== '' && !(Array.isArray(v) && v.length === 0));
  return Object.fromEntries(kept) as unknown as Query;
}

const variable = /\$\w+|\$\{[^}]+\}|\[\[[^\]]+\]\]/;

/** Whether a text has a variable of a dashboard in it. */
export function hasVariable(text: string): boolean {
  return variable.test(text);
}

/**
 * What the back end would refuse, or answer with less than was meant, by field. Lists with variables are not counted: how many names they stand for is known only when the query runs.
 */
export function problems(query: Query): Partial<Record<Choice | Field, string>> {
  const found: Partial<Record<Choice | Field, string>> = {};
  for (const list of CHOICE) {
    const n = query[list]?.length ?? 0;
    if (n > MAX_NAMES) {
      found[list] = `${n} names are more than ${MAX_NAMES}; choose fewer, or none for all`;
    }
  }
  const runs = query.experiments ?? [];
  if (query.queryType === 'compare' && !runs.some(hasVariable) && (runs.length < 2 || runs.length > MAX_COMPARED)) {
    found.experiments = `A comparison is of 2 to ${MAX_COMPARED} runs, and ${runs.length} ${runs.length === 1 ? 'is' : 'are'} chosen`;
  }
  if (query.queryType === 'promql' && !query.expr?.trim()) {
    found.expr = 'Write PromQL, such as avg by (node) (experiment:gpu:util{$__experiment})';
  }
  if (query.rank && query.k !== undefined && !(Number.isInteger(query.k) && query.k >= 1 && query.k <= MAX_K)) {
    found.rank = `A whole number from 1 to ${MAX_K}`;
  }
  if (query.limit !== undefined && !(Number.isInteger(query.limit) && query.limit >= 1)) {
    found.limit = "A whole number from 1 on; leave it out for the datasource's own";
  }
  return found;
}

/** One line for a collapsed query. */
export function describe(query: Query): string {
  if (query.queryType === 'promql') {
    return query.expr ?? '';
  }
  const kind = KINDS[query.queryType];
  const view = viewOf(query);
  const chosen = CHOICE.filter((c) => query[c]?.length).map((c) => `${c} ${query[c]!.join(', ')}`);
  const what = [kind?.label ?? query.queryType, view && VIEW_LABELS[view], query.metric && METRIC_LABELS[query.metric]?.label].filter(Boolean).join(', ');
  return chosen.length > 0 ? `${what}: ${chosen.join('; ')}` : what;
}
