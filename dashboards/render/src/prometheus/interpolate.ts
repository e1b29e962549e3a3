// Variables in PromQL, written as Grafana's Prometheus data source writes them.
import type { ScopedVars } from '@grafana/data';
import { type SceneObject, sceneGraph } from '@grafana/scenes';

interface VariableShape {
  multi?: boolean;
  includeAll?: boolean;
}

/** A value that stands alone is text inside quotes. */
function quoted(value: string): string {
  return value.replace(/\\/g, '\\\\').replace(/"/g, '\\"').replace(/'/g, "\\\\'");
}

/** A value of a list is text inside a regular expression inside quotes. */
function inRegex(value: string): string {
  return value.replace(/\\/g, '\\\\\\\\').replace(/[$^*{}[\]'+?.()|]/g, '\\\\$&');
}

function format(value: unknown, variable: VariableShape): string {
  if (Array.isArray(value)) {
    const parts = value.map((v) => inRegex(String(v)));
    return parts.length === 1 ? parts[0]! : `(${parts.join('|')})`;
  }
  return variable.multi || variable.includeAll ? inRegex(String(value)) : quoted(String(value));
}

/** sceneOf is the object of the page on whose behalf a query runs. */
export function sceneOf(scoped: ScopedVars | undefined): SceneObject | undefined {
  const held = scoped?.['__sceneObject']?.value as { valueOf(): SceneObject } | undefined;
  return held?.valueOf();
}

/** promql fills variables in an expression. */
export function promql(expr: string, scoped: ScopedVars): string {
  const scene = sceneOf(scoped);
  return scene ? sceneGraph.interpolate(scene, expr, scoped, format as never) : expr;
}

/** plain fills variables in a text, such as a legend. */
export function plain(text: string, scoped: ScopedVars): string {
  const scene = sceneOf(scoped);
  return scene ? sceneGraph.interpolate(scene, text, scoped) : text;
}
