import { ConfigEditor } from './components/ConfigEditor';
import { QueryEditor } from './components/QueryEditor';
import { DataSource } from './datasource';
import { plugin } from './module';
import settings from './plugin.json';
import { PLUGIN_ID } from './types';

test('the plugin has its editors, and the id that dashboards name', () => {
  expect(plugin.DataSourceClass).toBe(DataSource);
  expect(plugin.components.ConfigEditor).toBe(ConfigEditor);
  expect(plugin.components.QueryEditor).toBe(QueryEditor);
  expect(settings.id).toBe(PLUGIN_ID);
});
