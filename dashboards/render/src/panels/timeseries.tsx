import { FieldColorModeId, PanelPlugin, type PanelProps } from '@grafana/data';
import {
  GraphDrawStyle,
  LegendDisplayMode,
  LineInterpolation,
  SortOrder,
  StackingMode,
  TooltipDisplayMode,
  VisibilityMode,
  type VizLegendOptions,
  type VizTooltipOptions,
} from '@grafana/schema';
import { TimeSeries } from '@grafana/ui';
import { useMemo } from 'react';
import { drawAnnotations } from './annotations';
import { Empty, graphable } from './empty';
import { withFields } from './options';
import { SeriesTooltip } from './tooltip';

interface Options {
  legend: VizLegendOptions;
  tooltip: VizTooltipOptions;
}

const defaultLegend: VizLegendOptions = { showLegend: true, displayMode: LegendDisplayMode.List, placement: 'bottom', calcs: [] };

function TimeSeriesPanel(props: PanelProps<Options>) {
  const { data, width, height, timeRange, timeZone, options, fieldConfig } = props;
  const frames = useMemo(() => graphable(data.series), [data.series]);
  if (frames.length === 0) {
    return <Empty {...props} noValue={fieldConfig.defaults.noValue} />;
  }
  return (
    <TimeSeries
      frames={frames}
      structureRev={data.structureRev}
      timeRange={timeRange}
      timeZone={timeZone}
      width={width}
      height={height}
      legend={{ ...defaultLegend, ...options.legend }}
      options={options}
    >
      {(config, aligned) => {
        drawAnnotations(config, () => data.annotations ?? []);
        return (
          <SeriesTooltip
            config={config}
            frame={aligned}
            mode={options.tooltip?.mode ?? TooltipDisplayMode.Single}
            sort={options.tooltip?.sort ?? SortOrder.None}
            timeZone={timeZone}
          />
        );
      }}
    </TimeSeries>
  );
}

// The defaults of Grafana's own panel, for whatever a dashboard leaves out.
const custom: Record<string, unknown> = {
  drawStyle: GraphDrawStyle.Line,
  lineInterpolation: LineInterpolation.Linear,
  lineWidth: 1,
  fillOpacity: 0,
  gradientMode: 'none',
  lineStyle: { fill: 'solid' },
  spanNulls: false,
  showPoints: VisibilityMode.Auto,
  pointSize: 5,
  stacking: { mode: StackingMode.None, group: 'A' },
  axisPlacement: 'auto',
  axisLabel: '',
  axisColorMode: 'text',
  axisBorderShow: false,
  axisCenteredZero: false,
  axisGridShow: true,
  axisWidth: undefined,
  axisSoftMin: undefined,
  axisSoftMax: undefined,
  scaleDistribution: { type: 'linear' },
  barAlignment: 0,
  barWidthFactor: 0.6,
  thresholdsStyle: { mode: 'off' },
  fillBelowTo: undefined,
  lineColor: undefined,
  hideFrom: { legend: false, tooltip: false, viz: false },
  transform: undefined,
  insertNulls: false,
};

export const timeseries = withFields(new PanelPlugin<Options>(TimeSeriesPanel), FieldColorModeId.PaletteClassic, custom).setDataSupport({
  annotations: true,
  alertStates: false,
});
