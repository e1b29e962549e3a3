// What Grafana's packages expect of the application around them: services, registries, the theme.
import {
  createTheme,
  type DataQueryRequest,
  type DataSourceApi,
  type DataSourceInstanceSettings,
  EventBusSrv,
  LoadingState,
  type PanelData,
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
import { NEVER, from, isObservable, map, type Observable, of, startWith, catchError } from 'rxjs';
import { standardFieldOptions } from './fieldOptions';
import { pluginMeta, PrometheusDataSource } from './prometheus/datasource';

/** dataSourceUid is the one data source of this page. */
export const dataSourceUid = 'spillway';

/** runRequest is what Grafana's query runner does: loading, then the answer or the error. */
function runRequest(ds: DataSourceApi, request: DataQueryRequest): Observable<PanelData> {
  const frame = { timeRange: request.range, request };
  const answer = ds.query(request);
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

/** prepare sets all of it up. It is called once, before anything is rendered. */
export async function prepare(mode: 'light' | 'dark', base: string): Promise<void> {
  setLocale('en-GB');
  await initPluginTranslations('grafana-scenes', []);
  config.theme2 = createTheme({ colors: { mode } });
  config.buildInfo = { ...config.buildInfo, version: '13.2.2' };

  const settings = {
    id: 1,
    uid: dataSourceUid,
    type: 'prometheus',
    name: 'Spillway',
    meta: pluginMeta,
    jsonData: {},
    access: 'proxy',
    readOnly: true,
    isDefault: true,
  } as unknown as DataSourceInstanceSettings;
  const prometheus = new PrometheusDataSource(settings, base);
  setDataSourceSrv({
    get: () => Promise.resolve(prometheus as unknown as DataSourceApi),
    getList: () => [settings],
    getInstanceSettings: () => settings,
    reload: () => undefined,
    registerRuntimeDataSource: () => undefined,
  } as unknown as Parameters<typeof setDataSourceSrv>[0]);

  setRunRequest(runRequest as Parameters<typeof setRunRequest>[0]);
  setAppEvents(new EventBusSrv());
  setEchoSrv({ flush: () => undefined, addBackend: () => undefined, addEvent: () => undefined, onInteraction: () => () => undefined });
  setTemplateSrv({ getVariables: () => [], replace: (text?: string) => text ?? '', containsTemplate: () => false, updateTimeRange: () => undefined });
  setBackendSrv({ fetch: () => NEVER, get: () => Promise.resolve({}) } as unknown as Parameters<typeof setBackendSrv>[0]);
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
}
