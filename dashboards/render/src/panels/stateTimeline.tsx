import {
  dateTimeFormat,
  type Field,
  FieldColorModeId,
  FieldType,
  formattedValueToString,
  getFieldDisplayName,
  PanelPlugin,
  type PanelProps,
} from '@grafana/data';
import { LegendDisplayMode, type VizLegendOptions } from '@grafana/schema';
import { TooltipPlugin2, useTheme2, VizLayout, VizLegend, VizTooltipContent, VizTooltipHeader, VizTooltipWrapper } from '@grafana/ui';
import { useMemo } from 'react';
import { Empty, graphable } from './empty';
import { withFields, withOptions } from './options';
import { type Mark, RowsPlot } from './rows';

interface Options {
  mergeValues: boolean;
  showValue: 'auto' | 'always' | 'never';
  rowHeight: number;
  alignValue: 'left' | 'center' | 'right';
  legend: VizLegendOptions;
}

interface State {
  from: number;
  to: number;
  text: string;
  color: string;
}

interface Row {
  name: string;
  states: State[];
  opacity: number;
}

/** states are the stretches of one value; a hole wider than a step and a half ends a stretch. */
function states(time: Field, field: Field, merge: boolean, end: number): State[] {
  const out: State[] = [];
  const step = time.config.interval ?? 60_000;
  for (let i = 0; i < time.values.length; i++) {
    const raw: unknown = field.values[i];
    if (raw === null || raw === undefined || Number.isNaN(raw)) {
      continue;
    }
    const shown = field.display!(raw);
    const at = time.values[i] as number;
    const next = time.values[i + 1] as number | undefined;
    const to = next !== undefined && next - at <= 1.5 * step ? next : Math.min(at + step, end);
    const last = out.at(-1);
    const text = formattedValueToString(shown);
    if (merge && last && last.to === at && last.text === text && last.color === shown.color) {
      last.to = to;
    } else {
      out.push({ from: at, to, text, color: shown.color ?? 'grey' });
    }
  }
  return out;
}

function StateTimelinePanel(props: PanelProps<Options>) {
  const { data, width, height, options, fieldConfig, timeRange, timeZone } = props;
  const theme = useTheme2();
  const rows = useMemo((): Row[] => {
    const frames = graphable(data.series);
    const end = timeRange.to.valueOf();
    return frames.flatMap((frame) => {
      const time = frame.fields.find((f) => f.type === FieldType.time)!;
      return frame.fields
        .filter((f) => f !== time && f.type !== FieldType.time && f.display)
        .map((f) => ({
          name: getFieldDisplayName(f, frame, frames),
          states: states(time, f, options.mergeValues, end),
          opacity: (f.config.custom?.fillOpacity ?? 70) / 100,
        }));
    });
  }, [data.series, options.mergeValues, timeRange]);
  const times = useMemo(() => [...new Set(rows.flatMap((r) => r.states.flatMap((s) => [s.from, s.to])))].sort((a, b) => a - b), [rows]);
  if (rows.length === 0) {
    return <Empty {...props} noValue={fieldConfig.defaults.noValue} />;
  }
  const n = rows.length;
  const draw = ({ ctx, ratio, x, y }: Mark) => {
    ctx.font = `${12 * ratio}px ${theme.typography.fontFamily}`;
    ctx.textBaseline = 'middle';
    rows.forEach((row, i) => {
      // The first series is the uppermost row.
      const top = y(n - i);
      const full = y(n - i - 1) - top;
      const h = full * options.rowHeight;
      for (const s of row.states) {
        const left = x(s.from);
        const w = Math.max(x(s.to) - left, ratio);
        ctx.globalAlpha = row.opacity;
        ctx.fillStyle = s.color;
        ctx.fillRect(left, top + (full - h) / 2, w, h);
        ctx.globalAlpha = 1;
        const room = w - 8 * ratio;
        if (options.showValue !== 'never' && h > 12 * ratio && (options.showValue === 'always' || ctx.measureText(s.text).width < room)) {
          ctx.fillStyle = theme.colors.getContrastText(s.color);
          ctx.textAlign = options.alignValue;
          const anchor = options.alignValue === 'left' ? left + 4 * ratio : options.alignValue === 'right' ? left + w - 4 * ratio : left + w / 2;
          ctx.fillText(s.text, anchor, top + full / 2);
        }
      }
    });
  };
  const meanings = new Map(rows.flatMap((r) => r.states.map((s) => [`${s.text} ${s.color}`, s] as const)));
  const showLegend = options.legend.showLegend && options.legend.displayMode !== LegendDisplayMode.Hidden;
  const legend = showLegend ? (
    <VizLayout.Legend placement={options.legend.placement ?? 'bottom'}>
      <VizLegend
        placement={options.legend.placement ?? 'bottom'}
        displayMode={LegendDisplayMode.List}
        readonly
        items={[...meanings.values()].map((s) => ({ label: s.text, color: s.color, yAxis: 1 }))}
      />
    </VizLayout.Legend>
  ) : null;
  return (
    <VizLayout width={width} height={height} legend={legend}>
      {(w, h) => (
        <RowsPlot
          width={w}
          height={h}
          timeRange={timeRange}
          timeZone={timeZone}
          times={times}
          rows={n}
          ticks={rows.map((r, i) => ({ at: n - i - 0.5, text: r.name }))}
          draw={draw}
        >
          {(config) => (
            <TooltipPlugin2
              config={config}
              hoverMode={1}
              render={(u) => {
                const row = rows[n - 1 - Math.floor(u.posToVal(u.cursor.top ?? 0, 'y'))];
                const t = u.posToVal(u.cursor.left ?? 0, 'x');
                const state = row?.states.find((s) => s.from <= t && t < s.to);
                return row && state ? (
                  <VizTooltipWrapper>
                    <VizTooltipHeader item={{ label: '', value: `${dateTimeFormat(state.from, { timeZone })} to ${dateTimeFormat(state.to, { timeZone })}` }} />
                    <VizTooltipContent items={[{ label: row.name, value: state.text, color: state.color }]} isPinned={false} />
                  </VizTooltipWrapper>
                ) : null;
              }}
            />
          )}
        </RowsPlot>
      )}
    </VizLayout>
  );
}

export const stateTimeline = withFields(
  withOptions(new PanelPlugin<Options>(StateTimelinePanel), {
    mergeValues: true,
    showValue: 'auto',
    rowHeight: 0.9,
    alignValue: 'left',
    legend: { showLegend: true, displayMode: LegendDisplayMode.List, placement: 'bottom', calcs: [] },
  }),
  FieldColorModeId.ContinuousGrYlRd,
  { lineWidth: 0, fillOpacity: 70, spanNulls: false, insertNulls: false, hideFrom: { legend: false, tooltip: false, viz: false } }
);
