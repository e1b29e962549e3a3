// The parts of Grafana's dashboard JSON that our dashboards use.
import type {
  AnnotationQuery,
  DataLink,
  DataSourceRef,
  DataTransformerConfig,
  FieldConfigSource,
  VariableHide,
  VariableRefresh,
  VariableSort,
} from '@grafana/data';
import type { PromQuery } from './prometheus/datasource';

export interface GridPos {
  x: number;
  y: number;
  w: number;
  h: number;
}

export interface Panel {
  id: number;
  type: string;
  title?: string;
  description?: string;
  gridPos: GridPos;
  datasource?: DataSourceRef;
  targets?: PromQuery[];
  options?: Record<string, unknown>;
  fieldConfig?: FieldConfigSource;
  transformations?: DataTransformerConfig[];
  transparent?: boolean;
  interval?: string;
  maxDataPoints?: number;
  timeFrom?: string;
  collapsed?: boolean;
  panels?: Panel[];
  links?: DataLink[];
}

export interface Variable {
  type: 'datasource' | 'query' | 'custom' | 'textbox' | 'interval' | 'constant';
  name: string;
  label?: string;
  description?: string;
  hide?: VariableHide;
  query?: string | { query: string; refId: string };
  regex?: string;
  multi?: boolean;
  includeAll?: boolean;
  allValue?: string;
  refresh?: VariableRefresh;
  sort?: VariableSort;
  datasource?: DataSourceRef;
  current?: { text?: unknown; value?: unknown };
  options?: Array<{ text: string; value: string }>;
}

export interface DashboardLink {
  type: 'link' | 'dashboards';
  title: string;
  url?: string;
  tags?: string[];
  asDropdown?: boolean;
  includeVars?: boolean;
  keepTime?: boolean;
  targetBlank?: boolean;
  tooltip?: string;
  icon?: string;
}

export interface Dashboard {
  uid: string;
  title: string;
  description?: string;
  tags?: string[];
  panels: Panel[];
  templating?: { list: Variable[] };
  annotations?: { list: Array<AnnotationQuery & { builtIn?: number; expr?: string; hide?: boolean }> };
  links?: DashboardLink[];
  time?: { from: string; to: string };
  timezone?: string;
  refresh?: string;
  graphTooltip?: number;
}

/** Entry is a dashboard in the server's list. */
export interface Entry {
  name: string;
  uid: string;
  title: string;
  description: string;
  tags: string[];
}
