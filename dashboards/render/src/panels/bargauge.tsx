import {
  FieldColorModeId,
  type FieldDisplay,
  getDisplayValueAlignmentFactors,
  getFieldDisplayValues,
  PanelPlugin,
  type PanelProps,
  type ReduceDataOptions,
  VizOrientation,
} from '@grafana/data';
import { BarGaugeDisplayMode, BarGaugeNamePlacement, BarGaugeSizing, BarGaugeValueMode, type VizTextDisplayOptions } from '@grafana/schema';
import { BarGauge, DataLinksContextMenu, useTheme2, VizRepeater, type VizRepeaterRenderValueProps } from '@grafana/ui';
import { Empty } from './empty';
import { withFields, withOptions } from './options';

interface Options {
  reduceOptions: ReduceDataOptions;
  orientation: VizOrientation;
  displayMode: BarGaugeDisplayMode;
  valueMode: BarGaugeValueMode;
  namePlacement: BarGaugeNamePlacement;
  showUnfilled: boolean;
  sizing: BarGaugeSizing;
  minVizWidth: number;
  minVizHeight: number;
  maxVizHeight: number;
  text?: VizTextDisplayOptions;
}

type Factors = ReturnType<typeof getDisplayValueAlignmentFactors>;

function BarGaugePanel(props: PanelProps<Options>) {
  const { data, width, height, options, fieldConfig, replaceVariables, timeZone, renderCounter } = props;
  const theme = useTheme2();
  if (data.series.every((f) => f.length === 0)) {
    return <Empty {...props} noValue={fieldConfig.defaults.noValue} />;
  }
  const values = () => getFieldDisplayValues({ fieldConfig, reduceOptions: options.reduceOptions, replaceVariables, theme, data: data.series, timeZone });
  const render = ({ value, width, height, count, alignmentFactors, orientation }: VizRepeaterRenderValueProps<FieldDisplay, Factors>) => {
    const draw = (onClick?: React.MouseEventHandler<HTMLElement>) => (
      <BarGauge
        value={value.display}
        width={width}
        height={height}
        orientation={orientation}
        field={value.field}
        text={options.text}
        display={value.view && value.colIndex !== undefined ? value.view.getFieldDisplayProcessor(value.colIndex) : undefined}
        theme={theme}
        itemSpacing={options.displayMode === BarGaugeDisplayMode.Lcd ? 2 : 10}
        displayMode={options.displayMode}
        onClick={onClick}
        alignmentFactors={count > 1 ? alignmentFactors : undefined}
        showUnfilled={options.showUnfilled}
        valueDisplayMode={options.valueMode}
        namePlacement={options.namePlacement}
      />
    );
    return value.hasLinks && value.getLinks ? (
      <DataLinksContextMenu links={value.getLinks} style={{ height: '100%' }}>
        {(api) => draw(api.openMenu)}
      </DataLinksContextMenu>
    ) : (
      draw()
    );
  };
  const manual = options.sizing === BarGaugeSizing.Manual;
  return (
    <VizRepeater
      source={data}
      getAlignmentFactors={getDisplayValueAlignmentFactors}
      getValues={values}
      renderValue={render}
      renderCounter={renderCounter}
      width={width}
      height={height}
      minVizWidth={manual ? options.minVizWidth : 8}
      minVizHeight={manual ? options.minVizHeight : 16}
      maxVizHeight={manual ? options.maxVizHeight : 300}
      itemSpacing={options.displayMode === BarGaugeDisplayMode.Lcd ? 2 : 10}
      orientation={options.orientation}
    />
  );
}

export const bargauge = withFields(
  withOptions(new PanelPlugin<Options>(BarGaugePanel), {
    reduceOptions: { values: false, calcs: ['lastNotNull'], fields: '' },
    orientation: VizOrientation.Auto,
    displayMode: BarGaugeDisplayMode.Gradient,
    valueMode: BarGaugeValueMode.Color,
    namePlacement: BarGaugeNamePlacement.Auto,
    showUnfilled: true,
    sizing: BarGaugeSizing.Auto,
    minVizWidth: 8,
    minVizHeight: 16,
    maxVizHeight: 300,
  }),
  FieldColorModeId.Thresholds
);
