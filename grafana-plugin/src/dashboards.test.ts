// The bundled dashboards ask what this datasource has, by names that the editor knows.
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { KINDS, problems } from './query';
import settings from './plugin.json';
import { GROUP_LABELS, MAX_DAYS, METRICS, PLUGIN_ID, QUERY_TYPES, RESOURCES, VIEWS, type Query, type VariableQuery } from './types';

interface Panel {
  title: string;
  fieldConfig?: { overrides: Array<{ matcher: { id: string; options: unknown }; properties: Array<{ id: string; value: unknown }> }> };
  targets?: Array<Query & { datasource: { type: string; uid: string } }>;
  panels?: Panel[];
}
interface Variable {
  name: string;
  type: string;
  query: VariableQuery | string;
  includeAll?: boolean;
  allValue?: string;
}
interface Dashboard {
  uid: string;
  title: string;
  panels: Panel[];
  templating: { list: Variable[] };
  annotations: { list: Array<{ name: string; datasource: { type: string }; target?: Query }> };
}

const folder = path.join(__dirname, 'dashboards');
const names = readdirSync(folder).filter((f) => f.endsWith('.json'));
const read = (name: string): Dashboard => JSON.parse(readFileSync(path.join(folder, name), 'utf8'));
const panelsOf = (panels: Panel[]): Panel[] => panels.flatMap((p) => [p, ...panelsOf(p.panels ?? [])]);

/** Fields of a query beside those that Grafana has for every datasource. */
const fields = ['experiments', 'clusters', 'namespaces', 'teams', 'search', 'metric', 'groupBy', 'view', 'rank', 'k', 'limit', 'expr', 'legend', 'instant'];

function check(query: Query, variables: string[]) {
  const { refId, queryType, datasource, ...rest } = query;
  expect(refId).toBeTruthy();
  expect(QUERY_TYPES).toContain(queryType);
  expect(fields).toEqual(expect.arrayContaining(Object.keys(rest)));
  expect(!datasource || datasource.type === PLUGIN_ID).toBe(true);
  query.view && expect(VIEWS[queryType]).toContain(query.view);
  query.metric && expect(METRICS).toContain(query.metric);
  query.metric && expect(KINDS[queryType].fields).toContain('metric');
  query.rank && expect(KINDS[queryType].fields).toContain('rank');
  query.limit && expect(KINDS[queryType].fields).toContain('limit');
  expect(GROUP_LABELS).toEqual(expect.arrayContaining(query.groupBy ?? []));
  expect(problems(query)).toEqual({});
  for (const [, name] of JSON.stringify(query).matchAll(/\$(\w+)/g)) {
    name.startsWith('__') || expect(variables).toContain(name);
  }
}

test('plugin.json lists them all', () => {
  expect(settings.includes.map((i) => path.basename(i.path)).sort()).toEqual([...names].sort());
  expect(settings.includes.map((i) => i.name).sort()).toEqual(names.map((n) => read(n).title).sort());
});

test('runs that are compared are chosen from those of as many days as Compare looks back', () => {
  const compared = names.map(read).filter((d) => panelsOf(d.panels).some((p) => p.targets?.some((q) => q.queryType === 'compare')));
  expect(compared.map((d) => d.title)).toEqual(['Compare experiments']);
  const days = compared[0].templating.list.filter((v) => v.type === 'query' && v.name !== 'cluster').map((v) => [v.name, (v.query as VariableQuery).days]);
  expect(days).toEqual([
    ['team', MAX_DAYS],
    ['experiment', MAX_DAYS],
  ]);
});

/** Red, green and blue of #rrggbb as linear light, 0 to 1. */
const light = (hex: string) => [1, 3, 5].map((i) => (parseInt(hex.slice(i, i + 2), 16) / 255) ** 2.2);

const luminance = (hex: string) => light(hex).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);

/** Contrast as WCAG has it, 1 to 21. */
const contrast = (a: string, b: string) => {
  const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (high + 0.05) / (low + 0.05);
};

/** Where a colour is in CIE's L*a*b*. */
const lab = (hex: string) => {
  const [r, g, b] = light(hex);
  const [x, y, z] = [(0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505, 0.2126 * r + 0.7152 * g + 0.0722 * b, (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089].map(
    Math.cbrt
  );
  return [116 * y - 16, 500 * (x - y), 200 * (y - z)];
};

test('eight runs have colours of their own, which can be told apart and seen in both themes', () => {
  const panels = panelsOf(read('compare.json').panels).filter((p) => p.targets?.[0].view === 'series');
  expect(panels).toHaveLength(6);
  for (const panel of panels) {
    const colours = [1, 2, 3, 4, 5, 6, 7, 8].map((n) => {
      const last = panel.fieldConfig!.overrides.findLast((o) => o.matcher.id === 'byName' && o.matcher.options === `run ${n}`);
      return (last!.properties.find((p) => p.id === 'color')!.value as { mode: string; fixedColor: string }).fixedColor;
    });
    for (const [i, one] of colours.entries()) {
      expect(Math.min(contrast(one, '#181b1f'), contrast(one, '#ffffff'))).toBeGreaterThan(2);
      for (const other of colours.slice(i + 1)) {
        expect([one, other, Math.hypot(...lab(one).map((v, k) => v - lab(other)[k])) > 30]).toEqual([one, other, true]);
      }
    }
  }
});

describe.each(names)('%s', (name) => {
  const dashboard = read(name);
  const variables = dashboard.templating.list;
  const known = variables.map((v) => v.name);

  test('queries', () => {
    const queries = panelsOf(dashboard.panels).flatMap((p) => p.targets ?? []);
    expect(queries.length).toBeGreaterThan(5);
    queries.forEach((q) => check(q, known));
  });

  test('what is chosen at the top holds for all panels and marks', () => {
    const lists = (['experiment', 'team', 'cluster'] as const).filter((v) => known.includes(v));
    const own = dashboard.annotations.list.flatMap((a) => (a.target ? [a.target] : []));
    for (const query of [...panelsOf(dashboard.panels).flatMap((p) => p.targets ?? []), ...own]) {
      for (const list of lists) {
        expect([query, query[`${list}s`]]).toEqual([query, ['$' + list]]);
      }
    }
  });

  test('variables', () => {
    const own = variables.filter((v) => v.type === 'query');
    expect(own.length).toBeGreaterThan(0);
    for (const v of own) {
      expect(v.query).toMatchObject({ queryType: 'variable', refId: expect.any(String) });
      expect(RESOURCES).toContain((v.query as VariableQuery).resource);
      // All is everything, and not each name by itself, of which a query may have only so many.
      v.includeAll && expect(v.allValue).toBe('.*');
    }
    expect(variables.filter((v) => v.type === 'datasource').map((v) => v.query)).toEqual([PLUGIN_ID]);
  });

  test('annotations', () => {
    const own = dashboard.annotations.list.filter((a) => a.datasource.type === PLUGIN_ID);
    own.forEach((a) => {
      expect(a.target!.queryType).toBe('events');
      check(a.target!, known);
    });
  });
});
