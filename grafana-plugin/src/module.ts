import { DataSourcePlugin } from '@grafana/data';
import { ConfigEditor } from './components/ConfigEditor';
import { QueryEditor } from './components/QueryEditor';
import { DataSource } from './datasource';
import type { Query, Settings } from './types';

export const plugin = new DataSourcePlugin<DataSource, Query, Settings>(DataSource).setConfigEditor(ConfigEditor).setQueryEditor(QueryEditor);
