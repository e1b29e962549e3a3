import {
  type DataFrame,
  DataFrameType,
  dateTimeFormat,
  FieldColorModeId,
  FieldType,
  formattedValueToString,
  getFieldDisplayName,
  getValueFormat,
  type GrafanaTheme2,
  PanelPlugin,
  type PanelProps,
} from '@grafana/data';
import { TooltipPlugin2, useTheme2, VizLayout, VizTooltipContent, VizTooltipHeader, VizTooltipWrapper } from '@grafana/ui';
import * as chromatic from 'd3-scale-chromatic';
import { useMemo } from 'react';
import { Empty, graphable } from './empty';
import { withFields, withOptions } from './options';
import { type Mark, RowsPlot } from './rows';

interface Options {
  color: { mode: string; scheme: string; fill: string; scale: string; exponent: number; steps: number; reverse: boolean; min?: number; max?: number };
  cellGap: number;
  cellValues: { unit?: string; decimals?: number };
  yAxis: { unit?: string; decimals?: number; reverse?: boolean };
  filterValues?: { le?: number; ge?: number };
  legend: { show: boolean };
}

interface Cells {
  times: number[];
  stepMs: number;
  names: string[];
  values: Array<Array<number | null>>;
  /** Rows are buckets, whose names are their upper bounds. */
  buckets: boolean;
}

/** cells reads either one frame with a field for each row, or a frame for each row. */
function cells(frames: DataFrame[]): Cells | undefined {
  const usable = graphable(frames);
  const first = usable[0];
  if (!first) {
    return undefined;
  }
  const at = new Set<number>();
  const rows: Array<{ name: string; samples: Map<number, number> }> = [];
  let stepMs = Infinity;
  for (const frame of usable) {
    const time = frame.fields.find((f) => f.type === FieldType.time)!;
    stepMs = Math.min(stepMs, time.config.interval ?? Infinity);
    time.values.forEach((t: number) => at.add(t));
    for (const field of frame.fields.filter((f) => f.type === FieldType.number)) {
      rows.push({
        name: frame.meta?.type === DataFrameType.HeatmapRows ? field.name : getFieldDisplayName(field, frame, usable),
        samples: new Map(time.values.map((t: number, i: number) => [t, field.values[i]])),
      });
    }
  }
  const times = [...at].sort((a, b) => a - b);
  if (!Number.isFinite(stepMs)) {
    stepMs = Math.min(...times.slice(1).map((t, i) => t - times[i]!), 60_000);
  }
  return {
    times,
    stepMs,
    names: rows.map((r) => r.name),
    values: rows.map((r) => times.map((t) => r.samples.get(t) ?? null)),
    buckets: first.meta?.type === DataFrameType.HeatmapRows,
  };
}

// Which of d3's schemes Grafana turns round, so that few are near the background and many stand out: always, on a dark page, on a light one.
const turned: Record<string, 'always' | 'dark' | 'light'> = {
  ...each(['Spectral', 'RdYlGn', 'RdYlBu', 'RdBu', 'PRGn', 'PiYG', 'PuOr', 'BrBG', 'RdGy'], 'always'),
  ...each(
    [
      'Blues',
      'Greens',
      'Greys',
      'Oranges',
      'Purples',
      'Reds',
      'BuGn',
      'BuPu',
      'GnBu',
      'OrRd',
      'PuBu',
      'PuBuGn',
      'PuRd',
      'RdPu',
      'YlGn',
      'YlGnBu',
      'YlOrBr',
      'YlOrRd',
    ],
    'dark'
  ),
  ...each(['Turbo', 'Cividis', 'Viridis', 'Magma', 'Inferno', 'Plasma', 'Warm', 'Cool', 'CubehelixDefault'], 'light'),
};

function each(names: string[], when: 'always' | 'dark' | 'light'): Record<string, 'always' | 'dark' | 'light'> {
  return Object.fromEntries(names.map((name) => [name, when]));
}

/** palette is the scheme's colours from few to many. */
function palette(color: Options['color'], theme: GrafanaTheme2): string[] {
  const scheme = (chromatic as unknown as Record<string, unknown>)[`interpolate${color.scheme}`] as ((t: number) => string) | undefined;
  const steps = Math.max(2, Math.min(color.steps || 64, 128));
  if (color.mode === 'opacity' || !scheme) {
    const base = theme.visualization.getColorByName(color.fill);
    return Array.from({ length: steps }, (_, i) => `color-mix(in srgb, ${base} ${Math.round((i / (steps - 1)) * 100)}%, transparent)`);
  }
  const when = turned[color.scheme];
  const flip = color.reverse !== (when === 'always' || when === (theme.isDark ? 'dark' : 'light'));
  return Array.from({ length: steps }, (_, i) => scheme(flip ? 1 - i / (steps - 1) : i / (steps - 1)));
}

function HeatmapPanel(props: PanelProps<Options>) {
  const { data, width, height, options, fieldConfig, timeRange, timeZone } = props;
  const theme = useTheme2();
  const map = useMemo(() => cells(data.series), [data.series]);
  const colors = useMemo(() => palette(options.color, theme), [options.color, theme]);
  if (!map) {
    return <Empty {...props} noValue={fieldConfig.defaults.noValue} />;
  }
  const hidden = (v: number | null) =>
    v === null ||
    !Number.isFinite(v) ||
    (options.filterValues?.le !== undefined && v <= options.filterValues.le) ||
    (options.filterValues?.ge !== undefined && v >= options.filterValues.ge);
  const all = map.values.flat().filter((v): v is number => !hidden(v));
  const low = options.color.min ?? (all.length ? Math.min(...all) : 0);
  const high = options.color.max ?? (all.length ? Math.max(...all) : 1);
  const share = (v: number) => {
    const linear = high > low ? Math.min(1, Math.max(0, (v - low) / (high - low))) : 1;
    return options.color.scale === 'exponential' ? linear ** (options.color.exponent || 0.5) : linear;
  };
  const colorOf = (v: number) => colors[Math.min(colors.length - 1, Math.floor(share(v) * colors.length))]!;
  const boundFormat = getValueFormat(options.yAxis.unit ?? 'short');
  const bound = (name: string) =>
    /^[+-]?(inf|[0-9.])/i.test(name) ? (name === '+Inf' ? '+Inf' : formattedValueToString(boundFormat(Number(name), options.yAxis.decimals))) : name;
  const valueFormat = getValueFormat(options.cellValues.unit ?? 'short');
  const value = (v: number) => formattedValueToString(valueFormat(v, options.cellValues.decimals));
  // A bucket's bound is its upper edge; a row's name stands beside its middle.
  const ticks = map.names.map((name, i) => ({ at: map.buckets ? i + 1 : i + 0.5, text: bound(name) })).filter((t) => t.text !== '+Inf');

  const draw = ({ ctx, ratio, x, y }: Mark) => {
    const gap = options.cellGap * ratio;
    map.values.forEach((row, i) => {
      const top = y(i + 1);
      const bottom = y(i);
      row.forEach((v, j) => {
        if (hidden(v)) {
          return;
        }
        const right = x(map.times[j]!);
        const left = x(map.times[j]! - map.stepMs); // a point speaks for the step that ends with it
        ctx.fillStyle = colorOf(v!);
        ctx.fillRect(left, top, Math.max(right - left - (right - left > 3 * ratio ? gap : 0), ratio), Math.max(bottom - top - gap, ratio));
      });
    });
  };

  const legend = options.legend.show ? (
    <VizLayout.Legend placement="bottom" maxHeight="20%">
      <div style={{ display: 'flex', alignItems: 'center', gap: 8, padding: '2px 8px', fontSize: 12, color: theme.colors.text.secondary }}>
        <span>{value(low)}</span>
        <div
          style={{ width: 160, height: 8, background: `linear-gradient(90deg, ${colors.filter((_, i) => i % 4 === 0 || i === colors.length - 1).join(', ')})` }}
        />
        <span>{value(high)}</span>
      </div>
    </VizLayout.Legend>
  ) : null;
  return (
    <VizLayout width={width} height={height} legend={legend}>
      {(w, h) => (
        <RowsPlot width={w} height={h} timeRange={timeRange} timeZone={timeZone} times={map.times} rows={map.names.length} ticks={ticks} draw={draw}>
          {(config) => (
            <TooltipPlugin2
              config={config}
              hoverMode={1}
              render={(u, idxs) => {
                const j = idxs[0] ?? idxs[1];
                const i = Math.floor(u.posToVal(u.cursor.top ?? 0, 'y'));
                const v = j === null || j === undefined ? undefined : map.values[i]?.[j];
                if (j === null || j === undefined || v === null || v === undefined) {
                  return null;
                }
                const lower = map.buckets ? (i > 0 ? bound(map.names[i - 1]!) : '0') : '';
                return (
                  <VizTooltipWrapper>
                    <VizTooltipHeader item={{ label: '', value: dateTimeFormat(map.times[j]!, { timeZone }) }} />
                    <VizTooltipContent
                      items={[{ label: map.buckets ? `${lower} to ${bound(map.names[i]!)}` : map.names[i]!, value: value(v), color: colorOf(v) }]}
                      isPinned={false}
                    />
                  </VizTooltipWrapper>
                );
              }}
            />
          )}
        </RowsPlot>
      )}
    </VizLayout>
  );
}

export const heatmap = withFields(
  withOptions(new PanelPlugin<Options>(HeatmapPanel), {
    color: { mode: 'scheme', scheme: 'Oranges', fill: 'dark-orange', scale: 'exponential', exponent: 0.5, steps: 64, reverse: false },
    cellGap: 1,
    cellValues: {},
    yAxis: {},
    filterValues: { le: 1e-9 },
    legend: { show: true },
  }),
  FieldColorModeId.PaletteClassic,
  { hideFrom: undefined, scaleDistribution: { type: 'linear' } }
);
