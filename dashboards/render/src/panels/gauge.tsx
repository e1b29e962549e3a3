import {
  FieldColorModeId,
  type FieldDisplay,
  formattedValueToString,
  getDisplayValueAlignmentFactors,
  getFieldDisplayValues,
  PanelPlugin,
  type PanelProps,
  type ReduceDataOptions,
  VizOrientation,
} from '@grafana/data';
import { useTheme2, VizRepeater, type VizRepeaterRenderValueProps } from '@grafana/ui';
import { Empty } from './empty';
import { withFields, withOptions } from './options';

interface Options {
  reduceOptions: ReduceDataOptions;
  orientation: VizOrientation;
  showThresholdMarkers: boolean;
  showThresholdLabels: boolean;
}

const begin = (-120 * Math.PI) / 180;
const sweep = (240 * Math.PI) / 180;

function arc(cx: number, cy: number, r: number, from: number, to: number): string {
  const at = (share: number) => {
    const angle = begin + sweep * share - Math.PI / 2;
    return `${cx + r * Math.cos(angle)} ${cy + r * Math.sin(angle)}`;
  };
  return `M ${at(from)} A ${r} ${r} 0 ${sweep * (to - from) > Math.PI ? 1 : 0} 1 ${at(to)}`;
}

/** Dial is an arc of 240 degrees with the value in its middle. */
function Dial({ value, width, height, markers, several }: { value: FieldDisplay; width: number; height: number; markers: boolean; several: boolean }) {
  const theme = useTheme2();
  const { min = 0, max = 100, thresholds } = value.field;
  const share = Math.min(1, Math.max(0, (value.display.numeric - min!) / (max! - min! || 1)));
  const label = several ? 18 : 0;
  const size = Math.min(width, (height - label) * 1.25);
  const thick = size / 9;
  const r = size / 2 - thick / 2 - (markers ? 6 : 1);
  const cx = width / 2;
  const cy = (height - label) / 2 + r * 0.18;
  const text = formattedValueToString(value.display);
  const steps = (thresholds?.steps ?? []).map((s) => ({ color: s.color, at: Math.min(1, Math.max(0, (s.value - min!) / (max! - min! || 1))) }));
  return (
    <svg width={width} height={height}>
      <path d={arc(cx, cy, r, 0, 1)} fill="none" stroke={theme.colors.background.secondary} strokeWidth={thick} />
      {share > 0 && !Number.isNaN(share) && <path d={arc(cx, cy, r, 0, share)} fill="none" stroke={value.display.color} strokeWidth={thick} />}
      {markers &&
        steps.map((s, i) => (
          <path
            key={i}
            d={arc(cx, cy, r + thick / 2 + 3, Number.isFinite(s.at) ? s.at : 0, steps[i + 1]?.at ?? 1)}
            fill="none"
            stroke={theme.visualization.getColorByName(s.color)}
            strokeWidth={3}
          />
        ))}
      <text
        x={cx}
        y={cy + size / 24}
        textAnchor="middle"
        dominantBaseline="middle"
        fill={value.display.color}
        fontSize={Math.min(size / 4.5, (size * 1.2) / Math.max(text.length, 3))}
        fontFamily={theme.typography.fontFamily}
      >
        {text}
      </text>
      {several && (
        <text x={cx} y={height - 4} textAnchor="middle" fill={theme.colors.text.primary} fontSize={12} fontFamily={theme.typography.fontFamily}>
          {value.display.title}
        </text>
      )}
    </svg>
  );
}

function GaugePanel(props: PanelProps<Options>) {
  const { data, width, height, options, fieldConfig, replaceVariables, timeZone, renderCounter } = props;
  const theme = useTheme2();
  if (data.series.every((f) => f.length === 0)) {
    return <Empty {...props} noValue={fieldConfig.defaults.noValue} />;
  }
  return (
    <VizRepeater
      source={data}
      getAlignmentFactors={getDisplayValueAlignmentFactors}
      getValues={() => getFieldDisplayValues({ fieldConfig, reduceOptions: options.reduceOptions, replaceVariables, theme, data: data.series, timeZone })}
      renderValue={({ value, width, height, count }: VizRepeaterRenderValueProps<FieldDisplay, unknown>) => (
        <Dial value={value} width={width} height={height} markers={options.showThresholdMarkers} several={count > 1} />
      )}
      renderCounter={renderCounter}
      width={width}
      height={height}
      autoGrid
      orientation={options.orientation}
    />
  );
}

export const gauge = withFields(
  withOptions(new PanelPlugin<Options>(GaugePanel), {
    reduceOptions: { values: false, calcs: ['lastNotNull'], fields: '' },
    orientation: VizOrientation.Auto,
    showThresholdMarkers: true,
    showThresholdLabels: false,
  }),
  FieldColorModeId.Thresholds
);
