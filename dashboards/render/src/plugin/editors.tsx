// The editors of a plugin's datasource, each on a page of its own, with what they make: /edit/query, /edit/variable, /edit/annotation, /edit/config.
import { CoreApp, type DataQuery, type DataSourceSettings, dateTime, getDefaultTimeRange, type MetricFindValue, type TimeRange } from '@grafana/data';
import { SceneTimeRange } from '@grafana/scenes';
import { Alert, Button, Stack, Text } from '@grafana/ui';
import { type ComponentType, type ReactNode, useEffect, useMemo, useRef, useState } from 'react';
import { firstValueFrom, from, isObservable, last } from 'rxjs';
import type { Dashboard } from '../model';
import { watch } from '../report';
import { sceneOf } from '../scene';
import { backend } from './backend';
import type { Loaded } from './datasource';

// Editors have their own types of queries; this page only keeps what they give.
type AnyQuery = DataQuery & Record<string, unknown>;
type AnyEditor = ComponentType<any>;

function Frame({ title, children }: { title: string; children: ReactNode }) {
  return (
    <div style={{ padding: 24, maxWidth: 1400 }}>
      <Stack direction="column" gap={2}>
        <Text element="h1" variant="h3">
          {title}
        </Text>
        {children}
      </Stack>
    </div>
  );
}

/** Stored is what would stand in the dashboard's JSON. */
function Stored({ value }: { value: unknown }) {
  return (
    <pre data-testid="stored" style={{ margin: 0, whiteSpace: 'pre-wrap', overflowWrap: 'anywhere' }}>
      {JSON.stringify(value, null, 2)}
    </pre>
  );
}

/** useEdited keeps a query the way Grafana does: what onChange gave is there at once for the onRunQuery that follows it. */
function useEdited(initial: AnyQuery) {
  const [query, setQuery] = useState(initial);
  const [run, setRun] = useState(initial);
  const latest = useRef(initial);
  const onChange = (next: AnyQuery) => {
    latest.current = next;
    setQuery(next);
  };
  return { query, run, onChange, onRunQuery: () => setRun({ ...latest.current }) };
}

/** panelTypes draw what a query gives: lines, numbers or rows, which its first frame's type tells. */
const panelTypes: Record<string, string> = { 'timeseries-multi': 'timeseries', 'numeric-multi': 'stat', 'numeric-long': 'stat' };

function Answer({ of, query, type }: { of: Loaded; query: AnyQuery; type: string }) {
  const page = useMemo(() => {
    const dashboard: Dashboard = {
      uid: 'editor',
      title: 'Answer',
      time: { from: 'now-1h', to: 'now' },
      panels: [
        {
          id: 1,
          type,
          title: 'Answer',
          gridPos: { x: 0, y: 0, w: 24, h: 12 },
          datasource: { uid: of.settings.uid, type: of.settings.type },
          targets: [query as never],
        },
      ],
    };
    return sceneOf(dashboard, { whole: true, timeZone: 'utc' });
  }, [of, query, type]);
  const [active, setActive] = useState(false);
  useEffect(() => {
    watch(page);
    const stop = page.activate();
    setActive(true);
    return () => {
      setActive(false);
      stop();
    };
  }, [page]);
  return active ? <page.state.body.Component model={page.state.body} /> : null;
}

function QueryPage({ of, initial }: { of: Loaded; initial: Partial<AnyQuery> }) {
  const defaults = of.api.getDefaultQuery?.(CoreApp.PanelEditor) ?? {};
  const ref = { uid: of.settings.uid, type: of.settings.type };
  const { query, run, onChange, onRunQuery } = useEdited({ refId: 'A', datasource: ref, ...defaults, ...initial } as AnyQuery);
  const [type, setType] = useState<string>();
  useEffect(() => {
    // The first frame's type is known once it was asked; the panel then asks for itself, as in a dashboard.
    let here = true;
    const range = getDefaultTimeRange();
    range.from = dateTime(range.to).subtract(1, 'hour');
    const asked = of.api.query({
      requestId: 'type',
      app: CoreApp.PanelEditor,
      interval: '15s',
      intervalMs: 15_000,
      maxDataPoints: 500,
      range,
      scopedVars: {},
      targets: [run],
      timezone: 'utc',
      startTime: Date.now(),
    });
    firstValueFrom((isObservable(asked) ? asked : from(asked)).pipe(last()))
      .then((answer) => here && setType(panelTypes[answer.data[0]?.meta?.type ?? ''] ?? 'table'))
      .catch(() => here && setType('table'));
    return () => {
      here = false;
    };
  }, [of, run]);
  const Editor = of.plugin.components.QueryEditor as AnyEditor;
  return (
    <Frame title={`Query of ${of.settings.name}`}>
      <Editor
        datasource={of.api}
        query={query}
        queries={[query]}
        app={CoreApp.PanelEditor}
        onChange={onChange}
        onRunQuery={onRunQuery}
        onAddQuery={() => undefined}
      />
      {type && <Answer of={of} query={run} type={type} />}
      <Stored value={query} />
    </Frame>
  );
}

interface CustomVariables {
  editor: AnyEditor;
  getDefaultQuery?: () => Partial<AnyQuery>;
  query: (request: unknown) => import('rxjs').Observable<{ data: MetricFindValue[] }>;
}

function VariablePage({ of }: { of: Loaded }) {
  const variables = of.api.variables as unknown as CustomVariables;
  const { query, run, onChange, onRunQuery } = useEdited({ refId: 'variable', ...variables.getDefaultQuery?.() } as AnyQuery);
  const [values, setValues] = useState<MetricFindValue[]>();
  const [failure, setFailure] = useState('');
  useEffect(() => {
    const asked = variables.query({ targets: [run], scopedVars: {}, range: getDefaultTimeRange() }).subscribe({
      next: (answer) => {
        setFailure('');
        setValues(answer.data);
      },
      error: (err: { data?: { message?: string }; message?: string }) => setFailure(err.data?.message ?? err.message ?? 'unknown'),
    });
    return () => asked.unsubscribe();
  }, [variables, run]);
  const Editor = variables.editor;
  return (
    <Frame title={`Variable of ${of.settings.name}`}>
      <Editor datasource={of.api} query={query} onChange={onChange} onRunQuery={onRunQuery} />
      {failure && <Alert title={failure} severity="error" />}
      <Text element="h2" variant="h5">
        Values
      </Text>
      <ul data-testid="values" style={{ margin: 0, paddingLeft: 24 }}>
        {values?.map((v) => (
          <li key={String(v.value ?? v.text)}>{v.text}</li>
        ))}
      </ul>
      <Stored value={query} />
    </Frame>
  );
}

function AnnotationPage({ of }: { of: Loaded }) {
  const support = of.api.annotations!;
  const { query, run, onChange, onRunQuery } = useEdited({ refId: 'Anno', ...support.getDefaultQuery?.() } as AnyQuery);
  const [events, setEvents] = useState<Array<{ time?: number; title?: string; text?: string }>>([]);
  useEffect(() => {
    let here = true;
    const range: TimeRange = new SceneTimeRange({ from: 'now-1h', to: 'now' }).state.value;
    const annotation = { name: 'Events', enable: true, iconColor: 'red', target: run };
    const target = support.prepareQuery?.(annotation as never) ?? run;
    const asked = of.api.query({
      requestId: 'annotation',
      app: CoreApp.Dashboard,
      interval: '1m',
      intervalMs: 60_000,
      maxDataPoints: 100,
      range,
      scopedVars: {},
      targets: [target],
      timezone: 'utc',
      startTime: Date.now(),
    });
    firstValueFrom((isObservable(asked) ? asked : from(asked)).pipe(last()))
      .then((answer) => firstValueFrom(support.processEvents!(annotation as never, answer.data)))
      .then((found) => here && setEvents(found ?? []))
      .catch(() => here && setEvents([]));
    return () => {
      here = false;
    };
  }, [of, run, support]);
  const Editor = support.QueryEditor as AnyEditor;
  return (
    <Frame title={`Annotations of ${of.settings.name}`}>
      <Editor datasource={of.api} query={query} onChange={onChange} onRunQuery={onRunQuery} />
      <ul data-testid="events" style={{ margin: 0, paddingLeft: 24 }}>
        {events.map((e, i) => (
          <li key={i}>
            {new Date(e.time ?? 0).toISOString()} {e.title}: {e.text}
          </li>
        ))}
      </ul>
      <Stored value={query} />
    </Frame>
  );
}

interface Health {
  status: string;
  message: string;
  details?: unknown;
}

function ConfigPage({ of }: { of: Loaded }) {
  const [options, setOptions] = useState<DataSourceSettings>({ ...of.stored, secureJsonFields: of.stored.secureJsonFields ?? {} });
  const [health, setHealth] = useState<Health>();
  const save = async () => {
    const path = `/api/datasources/uid/${encodeURIComponent(of.settings.uid)}`;
    await backend.put(path, options);
    setHealth(
      await backend
        .get<Health>(`${path}/health`)
        .catch((err: { data?: Health; statusText?: string }) => err.data ?? { status: 'ERROR', message: err.statusText ?? '' })
    );
  };
  const Editor = of.plugin.components.ConfigEditor as AnyEditor;
  return (
    <Frame title={options.name}>
      <Editor options={options} onOptionsChange={setOptions} />
      <div>
        <Button onClick={() => void save()}>Save &amp; test</Button>
      </div>
      {health && (
        <div data-testid="health">
          <Alert title={health.message} severity={health.status === 'OK' ? 'success' : 'error'}>
            {health.details !== undefined && <pre style={{ margin: 0, whiteSpace: 'pre-wrap' }}>{JSON.stringify(health.details, null, 2)}</pre>}
          </Alert>
        </div>
      )}
      <Stored value={options.jsonData} />
    </Frame>
  );
}

/** editorOf is the page of one editor; initial is a query to begin with, in the address as JSON. */
export function editorOf(kind: string, of: Loaded, initial: string | null): ReactNode {
  switch (kind) {
    case 'query':
      return <QueryPage of={of} initial={initial ? (JSON.parse(initial) as Partial<AnyQuery>) : {}} />;
    case 'variable':
      return <VariablePage of={of} />;
    case 'annotation':
      return <AnnotationPage of={of} />;
    case 'config':
      return <ConfigPage of={of} />;
  }
  throw new Error(`there is no editor ${kind}; there are query, variable, annotation and config`);
}
