// What a script wants to know of the page: which panels there are, whether each has its answer, what it said, what went wrong.
import { sceneGraph, VizPanel } from '@grafana/scenes';
import type { PanelData } from '@grafana/data';
import type { Page } from './scene';

export interface PanelReport {
  id: number;
  title: string;
  type: string;
  /** Loading, Done or Error; '' while nothing was asked yet. */
  state: string;
  errors: string[];
  warnings: string[];
  /** Rows over all frames; 0 is an empty panel. */
  rows: number;
}

export interface PageReport {
  /** Set once the page knows what it shows. */
  title: string;
  /** Panels and variables have their answers. */
  settled: boolean;
  panels: PanelReport[];
  variables: Array<{ name: string; value: string; error: string }>;
  failure: string;
}

declare global {
  interface Window {
    spillway: { report: () => PageReport };
  }
}

let page: Page | undefined;
let failure = '';

/** watch makes a page the one that is reported. */
export function watch(shown: Page): void {
  page = shown;
}

/** variables are those of the page that is shown. */
export function variables(): Array<{ name: string; type: string }> {
  return (page?.state.$variables?.state.variables ?? []).map((v) => ({ name: v.state.name, type: v.state.type }));
}

/** failed reports that there is no page. */
export function failed(reason: string): void {
  failure = reason;
}

function panel(p: VizPanel): PanelReport {
  const wanted = p.state.$data !== undefined;
  const data = sceneGraph.getData(p).state.data as PanelData | undefined;
  const warnings = new Set(
    (data?.series ?? [])
      .flatMap((f) => f.meta?.notices ?? [])
      .filter((n) => n.severity !== 'info')
      .map((n) => n.text)
  );
  return {
    id: p.getLegacyPanelId(),
    title: sceneGraph.interpolate(p, p.state.title, undefined, 'text'),
    type: p.state.pluginId,
    state: wanted ? (data?.state ?? '') : 'Done',
    errors: [...(data?.errors ?? []).map((e) => e.message ?? 'unknown'), ...(p.state._pluginLoadError ? [p.state._pluginLoadError] : [])],
    warnings: [...warnings],
    rows: wanted ? (data?.series ?? []).reduce((n, f) => n + f.length, 0) : 1,
  };
}

window.spillway = {
  report: () => {
    if (!page) {
      return { title: '', settled: failure !== '', panels: [], variables: [], failure };
    }
    const panels = (sceneGraph.findAllObjects(page, (o) => o instanceof VizPanel) as VizPanel[]).filter((p) => p.isActive).map(panel);
    const set = page.state.$variables;
    const loading = set?.state.variables.some((v) => set.isVariableLoadingOrWaitingToUpdate(v)) ?? false;
    return {
      title: page.state.dashboard.title,
      settled: !loading && panels.length > 0 && panels.every((p) => p.state === 'Done' || p.state === 'Error'),
      panels,
      variables: (set?.state.variables ?? []).map((v) => ({
        name: v.state.name,
        value: String(v.getValue()),
        error: v.state.error ? String(v.state.error) : '',
      })),
      failure,
    };
  },
};
