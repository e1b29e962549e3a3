// What the back end's resources answer, read with suspicion: an answer of another form is an error that says so, never a crash of the editor.
import type { MetricFindValue } from '@grafana/data';
import { shown } from './text';

/** An experiment as /experiments lists it, those that were seen last first. */
export interface Experiment {
  name: string;
  team?: string;
  cluster?: string;
  state?: string;
}

/** Something that is not set up: what is missing and how to mend it. */
export interface Finding {
  missing: string;
  fix: string;
}

/** A value that can be chosen. */
export interface Choosable {
  label: string;
  value: string;
  description?: string;
}

const text = (v: unknown): string | undefined => (typeof v === 'string' ? v : undefined);

function list(answer: unknown, path: string): unknown[] {
  if (!Array.isArray(answer)) {
    throw new Error(`/${path} answered with something that is no list; is the plugin's back end as old as its front end?`);
  }
  return answer;
}

/** A list and what is missing from it: {list, warnings}, or the list alone, as a back end has it that knows no warnings. */
export function withWarnings(answer: unknown): { list: unknown; warnings: string[] } {
  const o = answer as { list?: unknown; warnings?: unknown } | null;
  if (Array.isArray(answer) || o?.list === undefined) {
    return { list: answer, warnings: [] };
  }
  return { list: o.list, warnings: (Array.isArray(o.warnings) ? o.warnings : []).filter((w) => typeof w === 'string') };
}

export function parseExperiments(answer: unknown): Experiment[] {
  return list(answer, 'experiments').flatMap((e) => {
    const o = e as Record<string, unknown> | null;
    const name = text(o?.name);
    return name === undefined ? [] : [{ name, team: text(o?.team), cluster: text(o?.cluster), state: text(o?.state) }];
  });
}

export function parseNames(answer: unknown, path: string): string[] {
  return list(answer, path).filter((n) => typeof n === 'string');
}

/** One choice for each name, in the order in which they came; a name in several clusters is described by all of them. */
export function experimentChoices(experiments: Experiment[]): Choosable[] {
  const byName = new Map<string, { teams: Set<string>; clusters: Set<string>; states: Set<string> }>();
  for (const e of experiments) {
    let facts = byName.get(e.name);
    if (!facts) {
      facts = { teams: new Set(), clusters: new Set(), states: new Set() };
      byName.set(e.name, facts);
    }
    e.team && facts.teams.add(e.team);
    e.cluster && facts.clusters.add(e.cluster);
    e.state && facts.states.add(e.state);
  }
  return [...byName].map(([name, f]) => ({
    label: name,
    value: name,
    description:
      [f.states, f.teams, f.clusters]
        .map((s) => [...s].join(', '))
        .filter(Boolean)
        .join(' · ') || undefined,
  }));
}

/** What a variable offers: names as they are shown, standing for the names themselves. */
export function variableValues(names: string[]): MetricFindValue[] {
  return [...new Set(names)].map((n) => ({ text: shown(n), value: n }));
}
