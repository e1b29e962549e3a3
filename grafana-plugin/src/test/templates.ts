import type { ScopedVars } from '@grafana/data';
import type { Templates } from '../variables';

type Value = string | number | string[];
/** A variable's value; `all` is what its "custom all value" is while All is chosen. */
type Variable = { value: Value; multi?: boolean; includeAll?: boolean } | { all: string };

/** Variables as Grafana's TemplateSrv replaces them: $name, ${name}, ${name:format}, [[name]]; unknown ones stay. */
export function templates(variables: Record<string, Value | Variable>): Templates {
  return {
    replace(target: string, scopedVars?: ScopedVars, format?: string | Function) {
      return target.replace(/\$(\w+)|\$\{(\w+)(?::(\w+))?\}|\[\[(\w+)\]\]/g, (whole, a, b, own, c) => {
        const name = a ?? b ?? c;
        const found = scopedVars && name in scopedVars ? scopedVars[name]!.value : variables[name];
        if (found === undefined) {
          return whole;
        }
        const variable: Variable = typeof found === 'object' && !Array.isArray(found) ? found : { value: found };
        if ('all' in variable) {
          return variable.all;
        }
        if (own === undefined && typeof format === 'function') {
          return format(variable.value, { name, type: 'query', multi: variable.multi, includeAll: variable.includeAll });
        }
        return Array.isArray(variable.value) ? `{${variable.value.join(',')}}` : String(variable.value);
      });
    },
    getVariables: () => Object.keys(variables).map((name) => ({ name })),
  };
}
