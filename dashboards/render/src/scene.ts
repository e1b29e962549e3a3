// A dashboard's JSON as a scene: variables, time, annotations, the grid with its rows, one panel object for each panel.
import { type AnnotationQuery, CoreApp, type DataQueryRequest, type TimeZone, VariableHide } from '@grafana/data';
import {
  behaviors,
  ConstantVariable,
  CustomVariable,
  DataSourceVariable,
  dataLayers,
  IntervalVariable,
  QueryVariable,
  SceneDataLayerSet,
  SceneDataTransformer,
  SceneGridItem,
  type SceneGridItemLike,
  SceneGridLayout,
  SceneGridRow,
  type SceneObject,
  SceneObjectBase,
  type SceneObjectState,
  SceneQueryRunner,
  SceneRefreshPicker,
  SceneTimePicker,
  SceneTimeRange,
  type SceneVariable,
  SceneVariableSet,
  TextBoxVariable,
  VariableValueSelectors,
  VizPanel,
} from '@grafana/scenes';
import type { DashboardCursorSync } from '@grafana/schema';
import { AnnotationControls } from './annotationControls';
import { dataSourceUid, uidOf } from './grafana';
import type { Dashboard, Panel, Variable } from './model';
import { PanelNotices } from './notices';

/** Page is a whole dashboard; it is drawn by DashboardView. */
export interface PageState extends SceneObjectState {
  dashboard: Dashboard;
  body: SceneGridLayout;
  /** Variables, and switches for the annotations. */
  controls: SceneObject[];
  timePicker: SceneTimePicker;
  refreshPicker: SceneRefreshPicker;
}

export class Page extends SceneObjectBase<PageState> {
  /** What Grafana says of the panel that asks: data sources pass it on, so that the proxy knows whose query it is. */
  enrichDataRequest(source: SceneObject): Partial<DataQueryRequest> {
    const panel = source.parent instanceof VizPanel ? source.parent : source.parent?.parent;
    return {
      app: CoreApp.Dashboard,
      dashboardUID: this.state.dashboard.uid,
      ...(panel instanceof VizPanel ? { panelId: panel.getLegacyPanelId(), panelPluginId: panel.state.pluginId } : {}),
    };
  }
}

/** How a page is shown. */
export interface Show {
  /** All rows open and everything loaded at once, as a picture of the whole needs it. */
  whole: boolean;
  timeZone: TimeZone;
}

function variable(v: Variable): SceneVariable {
  const shared = { name: v.name, label: v.label, description: v.description, hide: v.hide ?? VariableHide.dontHide };
  const many = {
    ...shared,
    isMulti: v.multi ?? false,
    includeAll: v.includeAll ?? false,
    allValue: v.allValue || undefined,
    defaultToAll: v.includeAll ?? false,
    value: (v.current?.value ?? '') as string,
    text: (v.current?.text ?? '') as string,
  };
  switch (v.type) {
    case 'datasource':
      return new DataSourceVariable({
        ...many,
        pluginId: String(v.query ?? 'prometheus'),
        regex: v.regex ?? '',
        value: uidOf(String(v.query ?? 'prometheus')),
        text: '',
      });
    case 'query':
      return new QueryVariable({
        ...many,
        datasource: v.datasource ?? { uid: dataSourceUid, type: 'prometheus' },
        query: v.query ?? '',
        regex: v.regex ?? '',
        refresh: v.refresh ?? 2,
        sort: v.sort ?? 1,
      });
    case 'custom':
      return new CustomVariable({ ...many, query: String(v.query ?? '') });
    case 'textbox':
      return new TextBoxVariable({ ...shared, value: String(v.current?.value ?? v.query ?? '') });
    case 'interval':
      return new IntervalVariable({ ...shared, value: String(v.current?.value ?? ''), intervals: String(v.query ?? '').split(',') });
    case 'constant':
      return new ConstantVariable({ ...shared, value: String(v.query ?? '') });
  }
}

function queries(panel: Panel): SceneQueryRunner | SceneDataTransformer | undefined {
  if (!panel.targets?.length) {
    return undefined;
  }
  const $data = new SceneQueryRunner({
    datasource: panel.datasource ?? panel.targets[0]?.datasource ?? { uid: dataSourceUid },
    queries: panel.targets.map((t) => ({ ...t })),
    maxDataPoints: panel.maxDataPoints,
    maxDataPointsFromWidth: true,
    minInterval: panel.interval,
    dataLayerFilter: { panelId: panel.id },
  });
  return panel.transformations?.length ? new SceneDataTransformer({ $data, transformations: panel.transformations }) : $data;
}

function item(panel: Panel): SceneGridItem {
  return new SceneGridItem({
    key: `item-${panel.id}`,
    ...place(panel),
    body: new VizPanel({
      key: `panel-${panel.id}`,
      title: panel.title ?? '',
      description: panel.description,
      pluginId: panel.type,
      pluginVersion: '13.2.2',
      options: panel.options ?? {},
      fieldConfig: panel.fieldConfig ?? { defaults: {}, overrides: [] },
      displayMode: panel.transparent ? 'transparent' : 'default',
      hoverHeader: !panel.title,
      titleItems: [new PanelNotices({})],
      $data: queries(panel),
    }),
  });
}

function place(panel: Panel) {
  const { x, y, w, h } = panel.gridPos;
  return { x, y, width: w, height: h };
}

/** grid puts the panels after an open row under it, as Grafana does; a collapsed row carries its own. */
function grid(panels: Panel[], show: Show): SceneGridLayout {
  const children: SceneGridItemLike[] = [];
  let row: SceneGridRow | undefined;
  let shift = 0; // by how much opened rows have pushed down what is below them
  for (const panel of panels) {
    if (panel.type !== 'row') {
      const child = item({ ...panel, gridPos: { ...panel.gridPos, y: panel.gridPos.y + shift } });
      if (row) {
        row.setState({ children: [...row.state.children, child] });
      } else {
        children.push(child);
      }
      continue;
    }
    const y = panel.gridPos.y + shift;
    const inside = panel.panels ?? [];
    const collapsed = Boolean(panel.collapsed) && !show.whole;
    row = new SceneGridRow({
      key: `row-${panel.id}`,
      title: panel.title ?? '',
      isCollapsible: true,
      isCollapsed: collapsed,
      x: 0,
      y,
      width: 24,
      height: 1,
      children: inside.map((p) => item({ ...p, gridPos: { ...p.gridPos, y: p.gridPos.y + shift } })),
    });
    children.push(row);
    if (panel.collapsed && show.whole && inside.length) {
      shift += Math.max(...inside.map((p) => p.gridPos.y + p.gridPos.h)) - panel.gridPos.y - 1;
    }
    if (panel.collapsed) {
      row = undefined;
    }
  }
  return new SceneGridLayout({ children, isDraggable: false, isResizable: false, isLazy: !show.whole });
}

function annotations(dashboard: Dashboard): SceneDataLayerSet {
  const layers = (dashboard.annotations?.list ?? [])
    .filter((a) => !a.builtIn) // Grafana's own, kept in its database
    .map(
      (a) =>
        new dataLayers.AnnotationsDataLayer({ key: `annotations-${a.name}`, name: a.name, query: a as AnnotationQuery, isEnabled: a.enable, isHidden: a.hide })
    );
  return new SceneDataLayerSet({ layers });
}

/** sceneOf builds the page. */
export function sceneOf(dashboard: Dashboard, show: Show): Page {
  return new Page({
    dashboard,
    $timeRange: new SceneTimeRange({ from: dashboard.time?.from ?? 'now-1h', to: dashboard.time?.to ?? 'now', timeZone: show.timeZone }),
    $variables: new SceneVariableSet({ variables: (dashboard.templating?.list ?? []).map(variable) }),
    $data: annotations(dashboard),
    $behaviors: [new behaviors.CursorSync({ key: 'cursor', sync: (dashboard.graphTooltip ?? 0) as DashboardCursorSync })],
    controls: [new VariableValueSelectors({}), new AnnotationControls({})],
    timePicker: new SceneTimePicker({ isOnCanvas: true }),
    refreshPicker: new SceneRefreshPicker({ refresh: dashboard.refresh || undefined, isOnCanvas: true, intervals: ['30s', '1m', '5m', '15m', '1h'] }),
    body: grid(dashboard.panels, show),
  });
}
