// What front end and back end say to each other. pkg/model has the same in Go, and pkg/model/types_test.go compares both: the lists below and the fields of
// Query and Settings. Field names stand in stored dashboards, so they never change their meaning.
import type { DataSourceJsonData } from '@grafana/data';
import type { DataQuery } from '@grafana/schema';

/** The type in plugin.json. */
export const PLUGIN_ID = 'spillway-experiments-datasource';

export const QUERY_TYPES = [
  'experiments',
  'status',
  'pods',
  'nodes',
  'gpu_timeseries',
  'gpu_health',
  'network',
  'pending',
  'events',
  'cost',
  'compare',
  'stragglers',
  'promql',
] as const;
export type QueryType = (typeof QUERY_TYPES)[number];

export const METRICS = ['util', 'tensor', 'dram', 'mem', 'power', 'temp'] as const;
export type Metric = (typeof METRICS)[number];

export const GROUP_LABELS = ['experiment', 'team', 'cluster', 'namespace', 'node', 'pod', 'gpu'] as const;
export type GroupLabel = (typeof GROUP_LABELS)[number];

/** Views of query types that have more than one. The first is the default. */
export const VIEWS: Partial<Record<QueryType, readonly string[]>> = {
  status: ['now', 'over_time', 'total'],
  gpu_health: ['table', 'count', 'total'],
  network: ['infiniband', 'ethernet', 'nvlink', 'errors'],
  cost: ['table', 'total'],
  compare: ['series', 'summary'],
};

/** How many runs can be compared, how many names a list may have, and the most that `k` can be. */
export const MAX_COMPARED = 8;
export const MAX_NAMES = 100;
export const MAX_K = 100;
/** The most days back that names are listed, which is as many as runs that are compared are looked for. */
export const MAX_DAYS = 30;
/** The most that maxSeries and maxRows can be, and how many links and labels there can be. */
export const CEILING = 10_000;
export const MAX_LINKS = 20;
export const MAX_LABELS = 20;

/** The chain of labels that name an experiment, where the settings have none: one's own, JobSet, Kubeflow, Ray, LeaderWorkerSet, Kueue, Volcano, Job. */
export const DEFAULT_LABELS = [
  'label_experiment',
  'label_jobset_sigs_k8s_io_jobset_name',
  'label_training_kubeflow_org_job_name',
  'label_ray_io_cluster',
  'label_leaderworkerset_sigs_k8s_io_name',
  'label_kueue_x_k8s_io_pod_group_name',
  'label_volcano_sh_job_name',
  'label_batch_kubernetes_io_job_name',
  'label_job_name',
] as const;

/** One query of a panel or an annotation. An element of a list is a name, or has variables: one with several values stands for as many names. */
export interface Query extends DataQuery {
  queryType: QueryType;
  experiments?: string[];
  clusters?: string[];
  namespaces?: string[];
  teams?: string[];
  search?: string;
  metric?: Metric;
  groupBy?: GroupLabel[];
  view?: string;
  rank?: '' | 'top' | 'bottom';
  k?: number;
  limit?: number;
  expr?: string;
  legend?: string;
  instant?: boolean;
}

/** A link from an experiment to another place. ${experiment}, ${team}, ${cluster} and ${namespace} in its URL are replaced. */
export interface Link {
  title: string;
  url: string;
}

/** jsonData of one instance. What is left out has the back end's default, which settings.ts names. URL, TLS, credentials and headers are Grafana's own. */
export interface Settings extends DataSourceJsonData {
  labels?: string[];
  ruleInterval?: string;
  idleBelow?: number;
  stragglerBelow?: number;
  prices?: Record<string, number>;
  currency?: string;
  partialResponse?: '' | 'warn' | 'abort';
  maxSeries?: number;
  maxRows?: number;
  links?: Link[];
  nodeDashboard?: string;
  gpuDashboard?: string;
  podDashboard?: string;
}

export const RESOURCES = ['experiments', 'teams', 'clusters', 'namespaces', 'nodes'] as const;
export type Resource = (typeof RESOURCES)[number];

/** The query of a dashboard's variable. Its fields may have variables themselves; what is empty does not narrow. */
export interface VariableQuery extends Omit<DataQuery, 'queryType'> {
  queryType: 'variable';
  resource: Resource;
  /** Part of a name, for experiments. */
  q?: string;
  team?: string;
  cluster?: string;
  namespace?: string;
  /** For nodes: those that this experiment is on. */
  experiment?: string;
  /** The most names, newest experiments first. */
  limit?: number;
  /** How many days back what was there is listed, 1 to MAX_DAYS; 7 where it is left out. */
  days?: number;
}
