// Loads the front end of a plugin as Grafana does: module.js is an AMD module, and what it shares with the application comes from here.

/** What Grafana gives to plugins, of which a plugin brings no copy of its own. */
const shared: Record<string, () => Promise<unknown>> = {
  '@emotion/css': () => import('@emotion/css'),
  '@grafana/data': () => import('@grafana/data'),
  '@grafana/runtime': () => import('@grafana/runtime'),
  '@grafana/ui': () => import('@grafana/ui'),
  // CommonJS, whose whole the bundle has as the default export.
  react: async () => (await import('react')).default,
  'react-dom': async () => (await import('react-dom')).default,
  'react/jsx-runtime': async () => ((await import('react/jsx-runtime')) as { default?: unknown }).default,
  rxjs: () => import('rxjs'),
  'rxjs/operators': () => import('rxjs/operators'),
};

type Define = ((...args: unknown[]) => void) & { amd: object };

/** load runs the text of module.js, which stands at url, and returns what it exports. */
export async function load<T>(url: string): Promise<T> {
  const response = await fetch(url);
  if (!response.ok) {
    throw new Error(`${url} answered ${response.status}; is the plugin built?`);
  }
  let names: string[] | undefined;
  let factory: unknown;
  // define(name?, dependencies?, factory), once.
  const define: Define = Object.assign(
    (...args: unknown[]) => {
      factory = args.pop();
      names = (args.pop() as string[] | undefined) ?? [];
    },
    { amd: {} }
  );
  new Function('define', `${await response.text()}\n//# sourceURL=${url}`)(define);
  if (names === undefined) {
    throw new Error(`${url} is no AMD module: it does not call define`);
  }
  const exports = {};
  const dependencies = await Promise.all(
    names.map((name) => {
      switch (name) {
        case 'exports':
          return exports;
        case 'module':
          return { id: url, uri: url, exports };
      }
      const found = shared[name];
      if (!found) {
        throw new Error(`${url} wants ${name}, which this page does not share`);
      }
      return found();
    })
  );
  return ((typeof factory === 'function' ? factory(...dependencies) : factory) ?? exports) as T;
}
