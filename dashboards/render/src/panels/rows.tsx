// A plot with time on its x axis and a row for each thing on its y axis: heat maps and state time lines draw their own marks into it.
import { type GrafanaTheme2, type TimeRange, type TimeZone } from '@grafana/data';
import { AxisPlacement, GraphDrawStyle, ScaleDirection, ScaleDistribution, ScaleOrientation, VisibilityMode } from '@grafana/schema';
import { UPlotChart, UPlotConfigBuilder, useTheme2 } from '@grafana/ui';
import { type ReactNode, useMemo, useRef } from 'react';
import type uPlot from 'uplot';

export interface Mark {
  u: uPlot;
  ctx: CanvasRenderingContext2D;
  /** Pixels of the canvas for one CSS pixel. */
  ratio: number;
  x: (time: number) => number;
  /** Where a row begins, counted from below; row + 1 is where it ends. */
  y: (row: number) => number;
  theme: GrafanaTheme2;
}

interface Props {
  width: number;
  height: number;
  timeRange: TimeRange;
  timeZone: TimeZone;
  times: number[];
  rows: number;
  /** Where ticks stand, in rows, and what they say. */
  ticks: Array<{ at: number; text: string }>;
  draw: (mark: Mark) => void;
  children?: (config: UPlotConfigBuilder) => ReactNode;
}

/** textWidth measures an axis label, so that the axis is as wide as its longest. */
function textWidth(texts: string[]): number {
  const ctx = document.createElement('canvas').getContext('2d')!;
  ctx.font = '12px Inter, Helvetica, Arial, sans-serif';
  return Math.max(0, ...texts.map((t) => ctx.measureText(t).width));
}

export function RowsPlot({ width, height, timeRange, timeZone, times, rows, ticks, draw, children }: Props) {
  const theme = useTheme2();
  const latest = useRef({ draw, timeRange });
  latest.current = { draw, timeRange };
  // Few ticks where rows are lower than a line of text.
  const every = Math.max(1, Math.ceil((ticks.length * 14) / Math.max(height - 30, 1)));
  const shown = ticks.filter((_, i) => i % every === 0);
  const key = JSON.stringify([rows, shown]);
  const config = useMemo(() => {
    const builder = new UPlotConfigBuilder(timeZone);
    builder.addScale({
      scaleKey: 'x',
      isTime: true,
      orientation: ScaleOrientation.Horizontal,
      direction: ScaleDirection.Right,
      range: () => [latest.current.timeRange.from.valueOf(), latest.current.timeRange.to.valueOf()],
    });
    builder.addAxis({ scaleKey: 'x', isTime: true, placement: AxisPlacement.Bottom, timeZone, theme, grid: { show: false } });
    builder.addScale({
      scaleKey: 'y',
      orientation: ScaleOrientation.Vertical,
      direction: ScaleDirection.Up,
      distribution: ScaleDistribution.Linear,
      range: () => [0, rows],
    });
    builder.addAxis({
      scaleKey: 'y',
      placement: AxisPlacement.Left,
      theme,
      grid: { show: false },
      ticks: { show: false },
      size: Math.min(Math.ceil(textWidth(shown.map((t) => t.text))) + 14, 260),
      splits: () => shown.map((t) => t.at),
      values: () => shown.map((t) => t.text),
    });
    builder.addSeries({
      scaleKey: 'y',
      theme,
      drawStyle: GraphDrawStyle.Points,
      showPoints: VisibilityMode.Never,
      pathBuilder: () => null,
      pointsBuilder: () => undefined,
      lineColor: 'transparent',
    } as never);
    builder.addHook('draw', (u: uPlot) => {
      const ratio = window.devicePixelRatio || 1;
      const { ctx } = u;
      ctx.save();
      ctx.beginPath();
      ctx.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height);
      ctx.clip();
      latest.current.draw({ u, ctx, ratio, theme, x: (t) => u.valToPos(t, 'x', true), y: (row) => u.valToPos(row, 'y', true) });
      ctx.restore();
    });
    return builder;
    // The key stands for the ticks and the number of rows, which are new arrays at each drawing.
  }, [key, timeZone, theme]);
  const data = useMemo((): uPlot.AlignedData => [times, times.map(() => rows / 2)], [times, rows]);
  return (
    <UPlotChart config={config} data={data} width={width} height={height}>
      {children?.(config)}
    </UPlotChart>
  );
}
