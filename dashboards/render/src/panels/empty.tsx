// What a panel says when there is nothing to draw, and what can be drawn.
import { type DataFrame, FieldType, type PanelData } from '@grafana/data';
import { useTheme2 } from '@grafana/ui';

/** graphable keeps frames with a time and a number in them. */
export function graphable(frames: DataFrame[]): DataFrame[] {
  return frames.filter((f) => f.length > 0 && f.fields.some((x) => x.type === FieldType.time) && f.fields.some((x) => x.type === FieldType.number));
}

/** Empty fills the panel with the dashboard's own words, or Grafana's. Nothing is said before there is an answer. */
export function Empty({ data, width, height, noValue }: { data: PanelData; width: number; height: number; noValue?: string }) {
  const theme = useTheme2();
  const waiting = data.state === 'Loading' || data.state === 'NotStarted';
  return (
    <div
      data-empty={waiting ? undefined : 'true'}
      style={{
        width,
        height,
        display: 'flex',
        alignItems: 'center',
        justifyContent: 'center',
        textAlign: 'center',
        padding: 8,
        color: theme.colors.text.secondary,
        fontSize: theme.typography.bodySmall.fontSize,
      }}
    >
      {waiting ? '' : noValue || 'No data'}
    </div>
  );
}
