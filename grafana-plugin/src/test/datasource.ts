import type { DataSourceInstanceSettings } from '@grafana/data';
import { DataSource } from '../datasource';
import type { Settings } from '../types';
import type { Templates } from '../variables';
import { templates } from './templates';

export const instance = {
  uid: 'ds-1',
  type: 'spillway-experiments-datasource',
  name: 'Experiments',
  jsonData: {},
  meta: {},
} as DataSourceInstanceSettings<Settings>;

/** The datasource in a dashboard with these variables. */
export function datasource(variables: Parameters<typeof templates>[0] = {}): DataSource {
  const own: Templates = templates(variables);
  return new DataSource(instance, () => own);
}
