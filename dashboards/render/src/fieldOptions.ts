// The field options that every Grafana panel has. Grafana registers them in its application, which is on no registry; without them units, thresholds,
// mappings and colours of a dashboard are ignored. The editors are empty: nothing is edited here.
import {
  type DataLink,
  dataLinksOverrideProcessor,
  displayNameOverrideProcessor,
  type FieldConfigPropertyItem,
  identityOverrideProcessor,
  numberOverrideProcessor,
  stringOverrideProcessor,
  thresholdsOverrideProcessor,
  unitOverrideProcessor,
  valueMappingsOverrideProcessor,
  booleanOverrideProcessor,
} from '@grafana/data';

type Item = FieldConfigPropertyItem;

function option(id: string, name: string, process: unknown, rest: Partial<Item> = {}): Item {
  return {
    id,
    path: id,
    name,
    editor: () => null,
    override: () => null,
    process: process as Item['process'],
    shouldApply: () => true,
    settings: {},
    category: ['Standard options'],
    ...rest,
  } as Item;
}

/** standardFieldOptions are all of them, by the names that dashboards use. */
export function standardFieldOptions(): Item[] {
  return [
    option('unit', 'Unit', unitOverrideProcessor),
    option('min', 'Min', numberOverrideProcessor),
    option('max', 'Max', numberOverrideProcessor),
    option('fieldMinMax', 'Field min/max', booleanOverrideProcessor),
    option('decimals', 'Decimals', numberOverrideProcessor),
    option('displayName', 'Display name', displayNameOverrideProcessor),
    option('color', 'Color', identityOverrideProcessor),
    option('noValue', 'No value', stringOverrideProcessor),
    option('links', 'Data links', dataLinksOverrideProcessor, { getItemsCount: (links?: DataLink[]) => links?.length ?? 0 } as Partial<Item>),
    option('mappings', 'Value mappings', valueMappingsOverrideProcessor, { defaultValue: [] }),
    option('thresholds', 'Thresholds', thresholdsOverrideProcessor, {
      defaultValue: { mode: 'absolute', steps: [{ value: -Infinity, color: 'green' }] },
    }),
    option('description', 'Description', stringOverrideProcessor),
    option('actions', 'Actions', identityOverrideProcessor),
    option('filterable', 'Filterable', booleanOverrideProcessor),
  ];
}
