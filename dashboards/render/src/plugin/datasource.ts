// Datasources of plugins that this page's server runs: their settings from its API, their front end from module.js.
import {
  type DataSourceApi,
  type DataSourceInstanceSettings,
  type DataSourcePlugin,
  type DataSourcePluginMeta,
  type DataSourceSettings,
  PluginType,
} from '@grafana/data';
import { load } from './amd';
import { backend } from './backend';

/** Loaded is one datasource: what is stored of it, what it says of itself, and its front end. */
export interface Loaded {
  stored: DataSourceSettings;
  settings: DataSourceInstanceSettings;
  plugin: DataSourcePlugin<DataSourceApi>;
  api: DataSourceApi;
}

type Manifest = Omit<DataSourcePluginMeta, 'module' | 'baseUrl'>;

/** folder is where the server has the plugin's files. */
const folder = (id: string) => `/public/plugins/${encodeURIComponent(id)}`;

async function open(stored: DataSourceSettings): Promise<Loaded> {
  const base = folder(stored.type);
  const [manifest, module] = await Promise.all([
    backend.get<Manifest>(`${base}/plugin.json`),
    load<{ plugin: DataSourcePlugin<DataSourceApi> }>(`${base}/module.js`),
  ]);
  const logos = { small: `${base}/${manifest.info.logos.small}`, large: `${base}/${manifest.info.logos.large}` };
  const meta: DataSourcePluginMeta = {
    ...manifest,
    type: PluginType.datasource,
    module: `${base}/module.js`,
    baseUrl: base,
    info: { ...manifest.info, logos },
  };
  const settings: DataSourceInstanceSettings = {
    id: stored.id,
    uid: stored.uid,
    type: stored.type,
    name: stored.name,
    meta,
    jsonData: stored.jsonData,
    access: 'proxy',
    url: `/api/datasources/proxy/uid/${stored.uid}`,
    readOnly: stored.readOnly,
  };
  const { plugin } = module;
  plugin.meta = meta;
  const api = new plugin.DataSourceClass(settings);
  api.components = plugin.components;
  return { stored, settings, plugin, api };
}

/** loadAll opens every datasource that the server has; none is usual. */
export async function loadAll(): Promise<Loaded[]> {
  return Promise.all((await backend.get<DataSourceSettings[]>('/api/datasources')).map(open));
}
