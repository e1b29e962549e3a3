// The page. `/` lists all dashboards, `/d/<uid>` shows one, `/edit/<editor>` shows an editor of the data source whose plugin the server runs; ?theme=light|dark chooses the theme, ?whole=1 opens every row and loads everything at once.
import 'react-grid-layout/css/styles.css';
import 'react-resizable/css/styles.css';
import { ThemeContext } from '@grafana/data';
import { config, LocationServiceProvider, locationService } from '@grafana/runtime';
import { UrlSyncContextProvider } from '@grafana/scenes';
import { ErrorBoundaryAlert, GlobalStyles, PortalContainer } from '@grafana/ui';
import { type ReactNode, useLayoutEffect, useState } from 'react';
import { createRoot } from 'react-dom/client';
import { Router } from 'react-router-dom';
import { prepare } from './grafana';
import type { Dashboard, Entry } from './model';
import { registerPanels } from './panels';
import type { Loaded } from './plugin/datasource';
import { editorOf } from './plugin/editors';
import { failed, watch } from './report';
import { type Page, sceneOf } from './scene';
import { DashboardView, ListView } from './view';

/** Location gives Scenes the router it asks; the history is the one that Grafana's runtime keeps. */
function Location({ children }: { children: ReactNode }) {
  const history = locationService.getHistory();
  const [location, setLocation] = useState(history.location);
  useLayoutEffect(() => history.listen((next: typeof location) => setLocation(next)), [history]);
  return (
    <LocationServiceProvider service={locationService}>
      <Router location={location} navigator={history as never}>
        {children}
      </Router>
    </LocationServiceProvider>
  );
}

function Shown({ page, entries }: { page: Page; entries: Entry[] }) {
  return (
    <UrlSyncContextProvider scene={page} updateUrlOnInit={false} createBrowserHistorySteps>
      <Active page={page} entries={entries} />
    </UrlSyncContextProvider>
  );
}

/** Active starts the scene's variables and layers before its panels ask for data. */
function Active({ page, entries }: { page: Page; entries: Entry[] }) {
  const [ready, setReady] = useState(false);
  useLayoutEffect(() => {
    const stop = page.activate();
    setReady(true);
    return stop;
  }, [page]);
  return ready ? <DashboardView model={page} entries={entries} /> : null;
}

async function get<T>(path: string): Promise<T> {
  const response = await fetch(path);
  if (!response.ok) {
    throw new Error(`${path} answered ${response.status}: ${(await response.text()).slice(0, 200)}`);
  }
  return (await response.json()) as T;
}

async function content(params: URLSearchParams, plugins: Loaded[]): Promise<ReactNode> {
  const editor = /^\/edit\/(\w+)/.exec(location.pathname)?.[1];
  if (editor) {
    const of = plugins[0];
    if (!of) {
      throw new Error('this page runs no plugin; serve it with --plugin');
    }
    document.title = `${of.settings.name}: ${editor}`;
    return editorOf(editor, of, params.get('query'));
  }
  const entries = await get<Entry[]>('/dashboards');
  const shown = /^\/d\/([^/]+)/.exec(location.pathname);
  if (!shown) {
    document.title = 'Dashboards';
    return <ListView entries={entries} query={params.get('theme') ? `theme=${params.get('theme')}` : ''} />;
  }
  const uid = decodeURIComponent(shown[1]!);
  const entry = entries.find((e) => e.uid === uid);
  if (!entry) {
    throw new Error(`there is no dashboard with the uid ${uid}`);
  }
  const dashboard = await get<Dashboard>(`/dashboards/${entry.name}.json`);
  document.title = dashboard.title;
  const page = sceneOf(dashboard, { whole: params.get('whole') === '1', timeZone: params.get('timezone') ?? dashboard.timezone ?? 'browser' });
  watch(page);
  return <Shown page={page} entries={entries} />;
}

async function start(): Promise<void> {
  const params = new URLSearchParams(location.search);
  const asked = params.get('theme') ?? sessionStorage.getItem('theme') ?? 'dark';
  const theme = asked === 'light' ? 'light' : 'dark';
  sessionStorage.setItem('theme', theme); // links of dashboards carry variables and time, not this
  registerPanels();
  let shown: ReactNode;
  try {
    shown = await content(params, await prepare(theme, ''));
  } catch (err) {
    const reason = err instanceof Error ? err.message : String(err);
    failed(reason);
    shown = <div style={{ padding: 32 }}>{reason}</div>;
  }
  document.body.classList.add(`theme-${theme}`);
  createRoot(document.getElementById('page')!).render(
    <ThemeContext.Provider value={config.theme2}>
      <GlobalStyles />
      <Location>
        <ErrorBoundaryAlert>{shown}</ErrorBoundaryAlert>
      </Location>
      <PortalContainer />
    </ThemeContext.Provider>
  );
}

void start();
