// Bundles the page into dist/: page.js, page.css, Grafana's images and its font. `--watch` bundles again after each change.
import { cp, mkdir, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import * as esbuild from 'esbuild';

const here = path.dirname(fileURLToPath(import.meta.url));
const dist = path.join(here, 'dist');
const modules = path.join(here, 'node_modules');

// What @grafana's packages contain and do not export, by its path inside: the table that Grafana 12 and later show, and the list of data sources.
const inside = {
  name: 'inside-grafana',
  setup(build) {
    build.onResolve({ filter: /^grafana-(ui|runtime)-inside\// }, (args) => {
      const [, name, rest] = /^grafana-(\w+)-inside\/(.*)$/.exec(args.path);
      return { path: path.join(modules, '@grafana', name, 'dist/esm', `${rest}.mjs`) };
    });
    // The shim itself imports a path inside that package, which this does not match.
    build.onResolve({ filter: /^react-custom-scrollbars-2$/ }, () => ({ path: path.join(here, 'src/shims/scrollbars.ts') }));
  },
};

const options = {
  absWorkingDir: here,
  entryPoints: { page: 'src/main.tsx' },
  outdir: dist,
  bundle: true,
  format: 'esm',
  splitting: true, // the code editors and the like are loaded by nobody
  chunkNames: 'chunks/[name]-[hash]',
  assetNames: 'assets/[name]-[hash]',
  target: 'es2022',
  jsx: 'automatic',
  minify: true,
  sourcemap: false,
  legalComments: 'none',
  logLevel: 'warning',
  define: { 'process.env.NODE_ENV': '"production"', global: 'globalThis' },
  loader: { '.svg': 'dataurl', '.ttf': 'file', '.woff': 'file', '.woff2': 'file', '.png': 'file' },
  alias: { 'react-router-dom-v5-compat': 'react-router-dom' },
  plugins: [inside],
};

const index = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Spillway dashboards</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/static/page.css">
<style>body { margin: 0; }</style>
</head>
<body>
<div id="page"></div>
<script>
// Grafana's packages read the application's settings when they are loaded.
window.__grafana_public_path__ = '/public/';
window.grafanaBootData = { settings: {}, user: { locale: 'en-GB', timezone: 'browser', weekStart: 'monday' }, navTree: [] };
</script>
<script type="module" src="/static/page.js"></script>
</body>
</html>
`;

await rm(dist, { recursive: true, force: true });
await mkdir(dist, { recursive: true });
await cp(path.join(modules, '@grafana/ui/dist/public/img'), path.join(dist, 'img'), { recursive: true });
// Grafana's style sheet asks for its font by these names.
for (const face of ['Regular', 'Medium', 'Italic', 'MediumItalic']) {
  await cp(path.join(modules, `inter-ui/web/Inter-${face}.woff2`), path.join(dist, `fonts/inter/Inter-${face}.woff2`));
}
await writeFile(path.join(dist, 'index.html'), index);
if (process.argv.includes('--watch')) {
  const context = await esbuild.context(options);
  await context.watch();
} else {
  await esbuild.build(options);
}
