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
import { BigValueColorMode, BigValueGraphMode, BigValueJustifyMode, BigValueTextMode, type VizTextDisplayOptions } from '@grafana/schema';
import { BigValue, DataLinksContextMenu, useTheme2, VizRepeater, type VizRepeaterRenderValueProps } from '@grafana/ui';
import { Empty } from './empty';
import { withFields, withOptions } from './options';

interface Options {
  reduceOptions: ReduceDataOptions;
  orientation: VizOrientation;
  graphMode: BigValueGraphMode;
  colorMode: BigValueColorMode;
  justifyMode: BigValueJustifyMode;
  textMode: BigValueTextMode;
  wideLayout?: boolean;
  text?: VizTextDisplayOptions;
}

type Factors = ReturnType<typeof getDisplayValueAlignmentFactors>;

function StatPanel(props: PanelProps<Options>) {
  const { data, width, height, options, fieldConfig, replaceVariables, timeZone, renderCounter } = props;
  const theme = useTheme2();
  const values = () =>
    getFieldDisplayValues({
      fieldConfig,
      reduceOptions: options.reduceOptions,
      replaceVariables,
      theme,
      data: data.series,
      sparkline: options.graphMode !== BigValueGraphMode.None,
      timeZone,
    });

  // Without any series Grafana shows noValue as a stat of its own; so do we, by the display value it makes.
  if (data.series.every((f) => f.length === 0) && !fieldConfig.defaults.noValue) {
    return <Empty {...props} />;
  }
  const render = ({ value, width, height, count, alignmentFactors }: VizRepeaterRenderValueProps<FieldDisplay, Factors>) => {
    const draw = (onClick?: React.MouseEventHandler<HTMLElement>) => {
      const sparkline = options.graphMode === BigValueGraphMode.None ? undefined : value.sparkline;
      if (sparkline) {
        sparkline.timeRange = props.timeRange;
      }
      return (
        <BigValue
          value={value.display}
          count={count}
          sparkline={sparkline}
          colorMode={options.colorMode}
          graphMode={options.graphMode}
          justifyMode={options.justifyMode}
          textMode={textMode(options.textMode, count, options.reduceOptions.values)}
          alignmentFactors={alignmentFactors}
          text={options.text}
          width={width}
          height={height}
          theme={theme}
          onClick={onClick}
          disableWideLayout={options.wideLayout === false}
        />
      );
    };
    return value.hasLinks && value.getLinks ? <DataLinksContextMenu links={value.getLinks}>{(api) => draw(api.openMenu)}</DataLinksContextMenu> : draw();
  };
  return (
    <VizRepeater
      getValues={values}
      getAlignmentFactors={getDisplayValueAlignmentFactors}
      renderValue={render}
      width={width}
      height={height}
      source={data}
      itemSpacing={3}
      renderCounter={renderCounter}
      autoGrid={true}
      orientation={options.orientation}
    />
  );
}

/** A single value needs no name beside it; several do. */
function textMode(asked: BigValueTextMode, count: number, values?: boolean): BigValueTextMode {
  return asked === BigValueTextMode.Auto && (count > 1 || values) ? BigValueTextMode.ValueAndName : asked;
}

export const stat = withFields(
  withOptions(new PanelPlugin<Options>(StatPanel), {
    reduceOptions: { values: false, calcs: ['lastNotNull'], fields: '' },
    orientation: VizOrientation.Auto,
    textMode: BigValueTextMode.Auto,
    colorMode: BigValueColorMode.Value,
    graphMode: BigValueGraphMode.Area,
    justifyMode: BigValueJustifyMode.Auto,
    wideLayout: true,
  }),
  FieldColorModeId.Thresholds
);
