import {
  buildHistogram,
  FieldColorModeId,
  FieldType,
  formattedValueToString,
  getFieldSeriesColor,
  PanelPlugin,
  type PanelProps,
  type Field,
} from '@grafana/data';
import { AxisPlacement, GraphDrawStyle, ScaleDirection, ScaleOrientation, VisibilityMode } from '@grafana/schema';
import { UPlotChart, UPlotConfigBuilder, useTheme2 } from '@grafana/ui';
import { useMemo } from 'react';
import type uPlot from 'uplot';
import { Empty } from './empty';
import { withFields, withOptions } from './options';

interface Options {
  bucketSize?: number;
  bucketCount?: number;
  bucketOffset?: number;
  combine: boolean;
}

function HistogramPanel(props: PanelProps<Options>) {
  const { data, width, height, options, fieldConfig, timeZone } = props;
  const theme = useTheme2();
  const { bucketSize, bucketCount, bucketOffset, combine } = options;
  // The first number field says how values are written and which colour they have.
  const like = data.series.flatMap((f) => f.fields).find((f) => f.type === FieldType.number) as Field | undefined;
  const histogram = useMemo(
    () => buildHistogram(data.series, { bucketSize, bucketCount, bucketOffset, combine }, theme),
    [data.series, bucketSize, bucketCount, bucketOffset, combine, theme]
  );
  const config = useMemo(() => {
    if (!histogram || !like) {
      return undefined;
    }
    const lower = histogram.xMin.values as number[];
    const upper = histogram.xMax.values as number[];
    const builder = new UPlotConfigBuilder(timeZone);
    builder.addScale({
      scaleKey: 'x',
      isTime: false,
      orientation: ScaleOrientation.Horizontal,
      direction: ScaleDirection.Right,
      range: () => [lower[0]!, upper.at(-1)!],
    });
    builder.addAxis({
      scaleKey: 'x',
      placement: AxisPlacement.Bottom,
      theme,
      grid: { show: false },
      formatValue: (v: number) => (like.display ? formattedValueToString(like.display(v)) : String(v)),
    });
    builder.addScale({ scaleKey: 'y', orientation: ScaleOrientation.Vertical, direction: ScaleDirection.Up, softMin: 0 });
    builder.addAxis({
      scaleKey: 'y',
      placement: AxisPlacement.Left,
      theme,
      incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000],
    });
    for (let i = 0; i < histogram.counts.length; i++) {
      builder.addSeries({
        scaleKey: 'y',
        theme,
        drawStyle: GraphDrawStyle.Points,
        showPoints: VisibilityMode.Never,
        pathBuilder: () => null,
        pointsBuilder: () => undefined,
        lineColor: 'transparent',
      } as never);
    }
    builder.addHook('draw', (u: uPlot) => {
      const { ctx } = u;
      const ratio = window.devicePixelRatio || 1;
      ctx.save();
      histogram.counts.forEach((counts) => {
        const color = getFieldSeriesColor(
          { ...counts, config: { ...like.config, ...counts.config, color: counts.config.color ?? like.config.color } },
          theme
        ).color;
        const fill = (like.config.custom?.fillOpacity ?? 80) / 100;
        const line = (like.config.custom?.lineWidth ?? 1) * ratio;
        const base = u.valToPos(0, 'y', true);
        (counts.values as number[]).forEach((n, i) => {
          if (!n) {
            return;
          }
          const left = u.valToPos(lower[i]!, 'x', true) + ratio;
          const w = Math.max(u.valToPos(upper[i]!, 'x', true) - left - ratio, ratio);
          const top = u.valToPos(n, 'y', true);
          ctx.fillStyle = ctx.strokeStyle = color;
          ctx.globalAlpha = fill;
          ctx.fillRect(left, top, w, base - top);
          ctx.globalAlpha = 1;
          if (line > 0) {
            ctx.lineWidth = line;
            ctx.strokeRect(left + line / 2, top + line / 2, Math.max(w - line, 0), Math.max(base - top - line, 0));
          }
        });
      });
      ctx.restore();
    });
    return builder;
  }, [histogram, like, theme, timeZone]);
  if (!histogram || !config) {
    return <Empty {...props} noValue={fieldConfig.defaults.noValue} />;
  }
  return (
    <UPlotChart config={config} data={[histogram.xMin.values, ...histogram.counts.map((c) => c.values)] as uPlot.AlignedData} width={width} height={height} />
  );
}

export const histogram = withFields(withOptions(new PanelPlugin<Options>(HistogramPanel), { combine: false }), FieldColorModeId.PaletteClassic, {
  fillOpacity: 80,
  lineWidth: 1,
  gradientMode: 'none',
  stacking: { mode: 'none' },
  hideFrom: undefined,
});
