// What is missing from a panel is told by notices of the first frame that the back end answers with. What a dashboard makes of frames must not lose them.
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import {
  FieldType,
  standardTransformers,
  standardTransformersRegistry,
  toDataFrame,
  transformDataFrame,
  type DataFrame,
  type DataTransformerConfig,
  type TransformerRegistryItem,
} from '@grafana/data';
import { firstValueFrom } from 'rxjs';

interface Panel {
  title: string;
  transformations?: DataTransformerConfig[];
  panels?: Panel[];
}

const folder = path.join(__dirname, 'dashboards');
const panelsOf = (panels: Panel[]): Panel[] => panels.flatMap((p) => [p, ...panelsOf(p.panels ?? [])]);
const panels = readdirSync(folder)
  .filter((f) => f.endsWith('.json'))
  .flatMap((f) =>
    panelsOf(JSON.parse(readFileSync(path.join(folder, f), 'utf8')).panels)
      .filter((p) => p.transformations?.length)
      .map((p) => ({ ...p, title: `${f}: ${p.title}` }))
  );

/** A number, as the back end answers with one for each of several things. */
const number = (label: string, notices?: Array<{ severity: 'warning'; text: string }>): DataFrame =>
  toDataFrame({ meta: { notices }, fields: [{ name: 'Value', type: FieldType.number, labels: { class: label, what: label }, values: [1] }] });

beforeAll(() =>
  standardTransformersRegistry.setInit(() =>
    // Some are there under two names.
    Object.values(standardTransformers)
      .map((t) => t as { id: string; name: string })
      .filter((t, i, all) => all.findIndex((other) => other.id === t.id) === i)
      .map((t) => ({ id: t.id, name: t.name, transformation: t }) as unknown as TransformerRegistryItem)
  )
);

test.each(panels)('$title', async ({ transformations }) => {
  const frames = [number('a', [{ severity: 'warning', text: 'A shard is away.' }]), number('b'), number('c')];
  const made = await firstValueFrom(transformDataFrame(transformations!, frames));
  expect(made.flatMap((f) => f.meta?.notices ?? [])).toEqual([{ severity: 'warning', text: 'A shard is away.' }]);
});

test('there are some', () => expect(panels.length).toBeGreaterThan(3));
