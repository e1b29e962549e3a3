// All panel types that our dashboards may use. Grafana's own are on no registry; these draw the same options with the components of @grafana/ui.
import type { PanelPlugin } from '@grafana/data';
import { sceneUtils } from '@grafana/scenes';
import { bargauge } from './bargauge';
import { gauge } from './gauge';
import { heatmap } from './heatmap';
import { histogram } from './histogram';
import { stat } from './stat';
import { stateTimeline } from './stateTimeline';
import { table } from './table';
import { text } from './text';
import { timeseries } from './timeseries';

const panels = { bargauge, gauge, heatmap, histogram, stat, 'state-timeline': stateTimeline, table, text, timeseries } as unknown as Record<
  string,
  PanelPlugin
>;

/** registerPanels makes them known to Scenes. */
export function registerPanels(): void {
  for (const [pluginId, plugin] of Object.entries(panels)) {
    sceneUtils.registerRuntimePanelPlugin({ pluginId, plugin });
  }
  text.meta.skipDataQuery = true;
}
