import { cacheFieldDisplayNames, FieldColorModeId, PanelPlugin, type PanelProps } from '@grafana/data';
import { TableCellHeight } from '@grafana/schema';
// The table that Grafana 12 and later show; @grafana/ui has it inside and exports the older one.
import { TableNG } from 'grafana-ui-inside/components/Table/TableNG/TableNG';
import { Empty } from './empty';
import { withFields, withOptions } from './options';

interface Options {
  frameIndex: number;
  showHeader: boolean;
  cellHeight: TableCellHeight;
  sortBy?: Array<{ displayName: string; desc?: boolean }>;
  footer?: { enablePagination?: boolean };
  enablePagination?: boolean;
}

function TablePanel(props: PanelProps<Options>) {
  const { data, width, height, options, fieldConfig, timeRange, transparent } = props;
  cacheFieldDisplayNames(data.series); // the table reads names from there
  const frame = data.series[options.frameIndex] ?? data.series[0];
  if (!frame || frame.length === 0 || frame.fields.length === 0) {
    return <Empty {...props} noValue={fieldConfig.defaults.noValue} />;
  }
  return (
    <TableNG
      data={frame}
      width={width}
      height={height}
      noHeader={!options.showHeader}
      resizable={false}
      sortBy={options.sortBy}
      sortByBehavior="managed"
      cellHeight={options.cellHeight}
      enablePagination={options.footer?.enablePagination ?? options.enablePagination}
      structureRev={data.structureRev}
      timeRange={timeRange}
      fieldConfig={fieldConfig}
      transparent={transparent}
    />
  );
}

export const table = withFields(
  withOptions(new PanelPlugin<Options>(TablePanel), { frameIndex: 0, showHeader: true, cellHeight: TableCellHeight.Sm }),
  FieldColorModeId.Thresholds,
  {
    align: 'auto',
    cellOptions: { type: 'auto' },
    inspect: false,
    filterable: undefined,
    width: undefined,
    minWidth: undefined,
    wrapHeaderText: undefined,
    hideFrom: { viz: false },
  }
);
