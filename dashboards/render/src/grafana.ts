// What Grafana's packages expect of the application around them: services, registries, the theme.
import {
  createTheme,
  type DataQueryRequest,
  type DataSourceApi,
  type DataSourceInstanceSettings,
  EventBusSrv,
  LoadingState,
  type PanelData,
  type ScopedVars,
  setLocale,
  standardEditorsRegistry,
  standardFieldConfigEditorRegistry,
  standardTransformers,
  standardTransformersRegistry,
  type TransformerRegistryItem,
} from '@grafana/data';
import { initPluginTranslations } from '@grafana/i18n';
import {
  config,
  setAppEvents,
  setBackendSrv,
  setDataSourceSrv,
  setEchoSrv,
  setGrafanaLiveSrv,
  setPluginImportUtils,
  setRunRequest,
  setTemplateSrv,
} from '@grafana/runtime';
import { sceneGraph } from '@grafana/scenes';
import { initDataSourceInstanceSettings } from 'grafana-runtime-inside/services/dataSource/settings';
import { NEVER, from, isObservable, map, type Observable, of, startWith, catchError } from 'rxjs';
import { standardFieldOptions } from './fieldOptions';
import { backend } from './plugin/backend';
import { type Loaded, loadAll } from './plugin/datasource';
import { pluginMeta, PrometheusDataSource } from './prometheus/datasource';
import { plain, sceneOf } from './prometheus/interpolate';
import { variables } from './report';

/** dataSourceUid is the Prometheus of this page, which its server forwards to the proxy. */
export const dataSourceUid = 'spillway';

/** uidOf is the data source that a dashboard's variable for data sources of this type begins with. */
let uids: Record<string, string> = { prometheus: dataSourceUid };
export const uidOf = (type: string): string => uids[type] ?? dataSourceUid;

/** runRequest is what Grafana's query runner does: loading, then the answer or the error. ask stands in for the data source's own query, as those of variables do. */
function runRequest(ds: DataSourceApi, request: DataQueryRequest, ask?: typeof ds.query): Observable<PanelData> {
  const frame = { timeRange: request.range, request };
  const answer = ask ? ask(request) : ds.query(request);
  return (isObservable(answer) ? answer : from(answer)).pipe(
    map(
      (r): PanelData => ({
        ...frame,
        state: r.state ?? LoadingState.Done,
        series: r.data,
        annotations: [],
        errors: r.errors,
        error: r.errors?.[0],
      })
    ),
    catchError(
      (err: Error): Observable<PanelData> =>
        of({ ...frame, state: LoadingState.Error, series: [], errors: [{ message: err.message }], error: { message: err.message } })
    ),
    startWith<PanelData>({ ...frame, state: LoadingState.Loading, series: [] })
  );
}

function transformer(item: (typeof standardTransformers)[keyof typeof standardTransformers]): TransformerRegistryItem<unknown> {
  return {
    id: item.id,
    name: item.name,
    editor: () => null,
    transformation: () => Promise.resolve(item),
    imageDark: '',
    imageLight: '',
  } as unknown as TransformerRegistryItem<unknown>;
}

type Ref = string | { uid?: string; type?: string } | null | undefined;

/** register makes data sources known: Prometheus, and those of plugins. References to them may have variables. */
function register(all: Array<{ settings: DataSourceInstanceSettings; api: DataSourceApi }>): void {
  const first = all[0]!;
  const find = (ref: Ref, scoped?: ScopedVars) => {
    const uid = plain((typeof ref === 'string' ? ref : ref?.uid) ?? '', scoped ?? {});
    const type = typeof ref === 'string' ? undefined : ref?.type;
    const found = all.find((d) => d.settings.uid === uid) ?? all.find((d) => d.settings.type === type);
    if (!found && type && type !== 'prometheus') {
      throw new Error(`this page has no data source of type ${type}`);
    }
    return found ?? first;
  };
  uids = Object.fromEntries(all.map((d) => [d.settings.type, d.settings.uid]));
  initDataSourceInstanceSettings(Object.fromEntries(all.map((d) => [d.settings.name, d.settings])), first.settings.name);
  setDataSourceSrv({
    get: async (ref: Ref, scoped?: ScopedVars) => find(ref, scoped).api,
    getList: ({ pluginId }: { pluginId?: string } = {}) => all.map((d) => d.settings).filter((d) => !pluginId || d.type === pluginId),
    getInstanceSettings: (ref: Ref, scoped?: ScopedVars) => find(ref, scoped).settings,
    reload: () => undefined,
    registerRuntimeDataSource: () => undefined,
  } as unknown as Parameters<typeof setDataSourceSrv>[0]);
}

/** prepare sets all of it up, and returns the data sources of plugins. It is called once, before anything is rendered. */
export async function prepare(mode: 'light' | 'dark', base: string): Promise<Loaded[]> {
  setLocale('en-GB');
  await initPluginTranslations('grafana-scenes', []);
  config.theme2 = createTheme({ colors: { mode } });
  config.buildInfo = { ...config.buildInfo, version: '13.2.2' };

  setBackendSrv(backend as unknown as Parameters<typeof setBackendSrv>[0]);
  setTemplateSrv({
    getVariables: () => variables() as never,
    replace: (text, scoped, format) => {
      const scene = sceneOf(scoped);
      return scene ? sceneGraph.interpolate(scene, text ?? '', scoped, format as never) : (text ?? '');
    },
    containsTemplate: (text) => /\$\w|\$\{/.test(text ?? ''),
    updateTimeRange: () => undefined,
  });
  const settings = {
    id: 0,
    uid: dataSourceUid,
    type: 'prometheus',
    name: 'Spillway',
    meta: pluginMeta,
    jsonData: {},
    access: 'proxy',
    readOnly: true,
    isDefault: true,
  } as unknown as DataSourceInstanceSettings;
  const prometheus = { settings, api: new PrometheusDataSource(settings, base) as unknown as DataSourceApi };
  register([prometheus]);

  setRunRequest(runRequest as Parameters<typeof setRunRequest>[0]);
  setAppEvents(new EventBusSrv());
  setEchoSrv({ flush: () => undefined, addBackend: () => undefined, addEvent: () => undefined, onInteraction: () => () => undefined });
  setGrafanaLiveSrv({
    getConnectionState: () => NEVER,
    getStream: () => NEVER,
    getDataStream: () => NEVER,
    getQueryData: () => NEVER,
    getPresence: () => NEVER,
  } as unknown as Parameters<typeof setGrafanaLiveSrv>[0]);
  setPluginImportUtils({
    importPanelPlugin: (id) => Promise.reject(new Error(`this page has no panel of type ${id}`)),
    getPanelPluginFromCache: () => undefined,
  });

  standardFieldConfigEditorRegistry.setInit(standardFieldOptions);
  standardEditorsRegistry.setInit(() => []);
  const byId = new Map(Object.values(standardTransformers).map((t) => [t.id, transformer(t)])); // some stand there under two names
  standardTransformersRegistry.setInit(() => [...byId.values()]);

  const plugins = await loadAll(); // their code may use all of the above when it is loaded
  register([prometheus, ...plugins]);
  return plugins;
}
