declare module 'react-custom-scrollbars-2/lib/index.js' {
  export { Scrollbars } from 'react-custom-scrollbars-2';
}
declare module '*.css';
declare module 'grafana-runtime-inside/services/dataSource/settings' {
  import type { DataSourceInstanceSettings } from '@grafana/data';
  /** Of Grafana's own start, and not exported: what getDataSourceInstanceSettings looks in. */
  export function initDataSourceInstanceSettings(settings: Record<string, DataSourceInstanceSettings>, defaultName: string): void;
}
