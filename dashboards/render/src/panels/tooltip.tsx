// The tooltip of plots whose x axis is time.
import { type DataFrame, dateTimeFormat, type Field, type TimeZone } from '@grafana/data';
import { type SortOrder, TooltipDisplayMode } from '@grafana/schema';
import {
  getFieldDisplayItems,
  getFieldDisplayLinks,
  TooltipPlugin2,
  type UPlotConfigBuilder,
  VizTooltipContent,
  VizTooltipFooter,
  VizTooltipHeader,
  VizTooltipWrapper,
} from '@grafana/ui';

// TooltipPlugin2's own enumeration is a `const enum` of its package; these are its values.
const nearestOnX = 0;
const allOnX = 1;

interface Props {
  config: UPlotConfigBuilder;
  frame: DataFrame;
  mode: TooltipDisplayMode;
  sort: SortOrder;
  timeZone: TimeZone;
}

export function SeriesTooltip({ config, frame, mode, sort, timeZone }: Props) {
  const x = frame.fields[0] as Field;
  if (mode === TooltipDisplayMode.None) {
    return null;
  }
  return (
    <TooltipPlugin2
      config={config}
      hoverMode={mode === TooltipDisplayMode.Multi ? allOnX : nearestOnX}
      getDataLinks={(series, row) => (frame.fields[series] ? getFieldDisplayLinks(frame.fields[series], row) : [])}
      render={(_u, rows, series, pinned, _dismiss, _range, _sync, links) => (
        <VizTooltipWrapper>
          <VizTooltipHeader item={{ label: '', value: dateTimeFormat(x.values[rows[0] ?? 0] as number, { timeZone }) }} isPinned={pinned} />
          <VizTooltipContent
            items={getFieldDisplayItems(frame.fields, x, rows, series, mode, sort, (f) => !f.config.custom?.hideFrom?.tooltip)}
            isPinned={pinned}
          />
          {pinned && links.length > 0 && <VizTooltipFooter dataLinks={links} />}
        </VizTooltipWrapper>
      )}
    />
  );
}
