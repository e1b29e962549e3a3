// Variables of dashboards in lists of names: one with several values stands for as many names. Values are never put into text that is read again, so a name
// with commas, braces, quotes or a dollar sign stays one name.
import type { ScopedVars, TypedVariableModel } from '@grafana/data';
import { MAX_NAMES } from './types';

/** What is needed of Grafana's TemplateSrv. */
export interface Templates {
  replace(target: string, scopedVars?: ScopedVars, format?: string | Function): string;
  getVariables(): Array<Pick<TypedVariableModel, 'name'>>;
}

/** What `All` stands for where a variable's "custom all value" is this: no restriction. */
export const ALL = '.*';

// No label of Kubernetes has it, and no keyboard.
const mark = '\u{10FFFD}';
const marked = new RegExp(`${mark}(\\d+)${mark}`);

/**
 * The names that an element of a list stands for; undefined where it stands for all of them. At most MAX_NAMES + 1 names come back, which the back end refuses.
 */
export function namesOf(element: string, templates: Templates, scopedVars?: ScopedVars): string[] | undefined {
  const values: string[][] = [];
  const text = templates.replace(element, scopedVars, (value: unknown) => {
    const list = (Array.isArray(value) ? value : [value]).map((v) => String(v ?? ''));
    // A variable without a value chooses nothing, and not everything.
    values.push(list.length > 0 ? list : ['']);
    return `${mark}${values.length - 1}${mark}`;
  });
  // A variable's own "all" value is put in without being formatted.
  if (text === ALL && element !== ALL) {
    return undefined;
  }
  // Text and numbers of values take turns.
  let names = [''];
  for (const [i, part] of text.split(marked).entries()) {
    const here = i % 2 === 1 ? (values[Number(part)] ?? [mark + part + mark]) : [part];
    names = names.flatMap((before) => here.slice(0, MAX_NAMES + 1).map((value) => before + value)).slice(0, MAX_NAMES + 1);
  }
  return names;
}

/** All names of a list, each once, in its order. An empty list, and one with an element that stands for all, is undefined. */
export function namesOfList(list: string[] | undefined, templates: Templates, scopedVars?: ScopedVars): string[] | undefined {
  const names = new Set<string>();
  for (const element of list ?? []) {
    const some = namesOf(element, templates, scopedVars);
    if (some === undefined) {
      return undefined;
    }
    some.forEach((n) => names.add(n));
  }
  return names.size > 0 ? [...names].slice(0, MAX_NAMES + 1) : undefined;
}

/**
 * For PromQL in quotes, as Grafana's own Prometheus datasource does it: several values, and those of a variable that can have several, are for =~ and become
 * alternatives that match only themselves; the value of another variable is for = too.
 */
export function promql(value: unknown, variable?: { multi?: boolean; includeAll?: boolean }): string {
  const values = (Array.isArray(value) ? value : [value]).map((v) => String(v ?? ''));
  let text = values[0] ?? '';
  if (Array.isArray(value) || variable?.multi || variable?.includeAll) {
    const escaped = values.map((v) => v.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&'));
    text = escaped.length === 1 ? escaped[0] : `(${escaped.join('|')})`;
  }
  // A \' would be an error within double quotes, and \x27 is a quote within both kinds.
  return text.replace(/\\/g, '\\\\').replace(/"/g, '\\"').replace(/'/g, '\\x27').replace(/\n/g, '\\n');
}
