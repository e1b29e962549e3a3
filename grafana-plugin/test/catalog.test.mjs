// What Grafana's catalog asks of a plugin and can be seen in dist/, as tools/plugin.sh build makes it.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, readdirSync, statSync } from 'node:fs';
import path from 'node:path';
import test from 'node:test';
import { provided } from '../webpack.config.mjs';

const root = path.join(path.dirname(new URL(import.meta.url).pathname), '..');
const dist = path.join(root, 'dist');
const read = (...parts) => readFileSync(path.join(...parts), 'utf8');
const files = (folder) =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((f) => f.isFile())
    .map((f) => path.relative(folder, path.join(f.parentPath ?? f.path, f.name)))
    .sort();
/** The import declarations of a Go file. */
const importsOf = (text) => [...text.matchAll(/^import (\([^)]*\)|(?:\w+ )?"[^"]+")/gm)].map((m) => m[1]).join('\n');
const plugin = JSON.parse(read(dist, 'plugin.json'));
const pkg = JSON.parse(read(root, 'package.json'));

test('plugin.json: id, version, date, words', () => {
  assert.match(plugin.id, /^[a-z0-9]+-[a-z0-9]+-datasource$/);
  assert.equal(plugin.id, pkg.name);
  assert.equal(plugin.type, 'datasource');
  assert.equal(plugin.info.version, pkg.version);
  assert.match(plugin.info.version, /^\d+\.\d+\.\d+$/);
  assert.match(plugin.info.updated, /^20\d\d-\d\d-\d\d$/);
  assert.doesNotMatch(JSON.stringify(plugin), /%[A-Z]+%/);
  assert.ok(plugin.name && plugin.info.author.name);
  assert.ok(plugin.info.description.length > 40 && plugin.info.description.length <= 200);
  assert.ok(plugin.info.keywords.length >= 3 && new Set(plugin.info.keywords).size === plugin.info.keywords.length);
  assert.match(plugin.dependencies.grafanaDependency, /^>=12\.\d+\.\d+$/);
  for (const flag of ['metrics', 'annotations', 'alerting', 'backend']) {
    assert.equal(plugin[flag], true, flag);
  }
  const known = 'type name id category metrics annotations alerting backend executable queryOptions info includes dependencies'.split(' ');
  assert.deepEqual(
    Object.keys(plugin).filter((k) => !known.includes(k)),
    []
  );
});

test('links are https, and say where source and license are', () => {
  for (const link of plugin.info.links) {
    assert.match(link.url, /^https:\/\/[^ ]+$/);
  }
  assert.ok(plugin.info.links.some((l) => /license/i.test(l.name)));
});

test('every picture is there, listed and harmless', () => {
  const listed = plugin.info.screenshots.map((s) => s.path);
  for (const file of [plugin.info.logos.small, plugin.info.logos.large, ...listed]) {
    assert.ok(statSync(path.join(dist, file)).size > 100, file);
  }
  const pictures = files(path.join(dist, 'img')).filter((f) => f.endsWith('.png'));
  assert.deepEqual(
    pictures.map((f) => `img/${f}`),
    [...listed].sort()
  );
  for (const file of files(dist).filter((f) => f.endsWith('.svg'))) {
    assert.doesNotMatch(read(dist, file), /<script|<foreignObject|\son\w+=|javascript:|<!ENTITY|(href|src)=["'](?!#)/i, file);
  }
});

test('bundled dashboards are there, by their names', () => {
  const uids = plugin.includes.map((i) => {
    const dashboard = JSON.parse(read(dist, i.path));
    assert.equal(dashboard.title, i.name);
    assert.equal(dashboard.id ?? null, null, 'an id is one Grafana’s own');
    return dashboard.uid;
  });
  assert.equal(new Set(uids).size, plugin.includes.length);
  assert.deepEqual(
    files(path.join(dist, 'dashboards')).map((f) => `dashboards/${f}`),
    plugin.includes.map((i) => i.path).sort()
  );
});

test('module.js is an AMD module of what Grafana provides, with its source', () => {
  const module = read(dist, 'module.js');
  const [, list] = /^define\((\[[^\]]*\]),/.exec(module) ?? [];
  assert.ok(list, 'module.js begins with define([…],');
  assert.deepEqual(
    JSON.parse(list).filter((d) => !provided.includes(d)),
    []
  );
  assert.ok(module.length < 200_000, 'Grafana’s own packages are not in it');
  assert.match(module, /\/\/# sourceMappingURL=module\.js\.map\s*$/);
  // As React 19 wants it, and no Angular.
  for (const gone of ['findDOMNode', 'ReactDOM.render', '__SECRET_INTERNALS', 'propTypes', 'grafana/app/', 'angular', 'dangerouslySetInnerHTML']) {
    assert.ok(!module.includes(gone), gone);
  }
  // Nobody is told who uses it.
  assert.doesNotMatch(module, /googletagmanager|google-analytics|segment\.(io|com)|mixpanel|hotjar|sentry|sendBeacon|new WebSocket|XMLHttpRequest/);
  assert.doesNotMatch(module, /\beval\(|new Function\(/);
  const map = JSON.parse(read(dist, 'module.js.map'));
  const ours = map.sources.map((s, i) => [/\/(src\/[^?]+)$/.exec(s)?.[1] ?? /\.\/([^?]+\.tsx?)$/.exec(s)?.[1], map.sourcesContent[i]]).filter(([name]) => name);
  assert.ok(ours.length > 10, map.sources.join(' '));
  for (const [name, text] of ours) {
    const file = name.startsWith('src/') ? name : `src/${name}`;
    assert.equal(text, read(root, file), `${file} is what was bundled`);
  }
});

test('the back end: an executable of the name that plugin.json says, and the list of its sources', () => {
  assert.match(plugin.executable, /^gpx_[a-z_]+$/);
  const binaries = files(dist).filter((f) => f.startsWith(plugin.executable));
  assert.ok(binaries.length > 0);
  for (const b of binaries) {
    assert.match(b, new RegExp(`^${plugin.executable}_(linux|darwin|windows)_(amd64|arm64)(\\.exe)?$`));
    assert.ok(b.endsWith('.exe') || statSync(path.join(dist, b)).mode & 0o111, `${b} can be run`);
  }
  const want = files(path.join(root, 'pkg'))
    .filter((f) => f.endsWith('.go'))
    .map((f) => `pkg/${f}`)
    .sort();
  const lines = read(dist, 'go_plugin_build_manifest')
    .trimEnd()
    .split('\n')
    .map((l) => /^([0-9a-f]{64}):(.+)$/.exec(l).slice(1));
  assert.deepEqual(lines.map(([, file]) => file).sort(), want);
  for (const [sum, file] of lines) {
    assert.equal(
      sum,
      createHash('sha256')
        .update(readFileSync(path.join(root, file)))
        .digest('hex'),
      `${file} is what was built`
    );
  }
});

test('the back end reads no environment, no files, and starts nothing', () => {
  // What main.go imports of this module, and what that imports.
  const ours = 'github.com/spillwayproject/spillway/';
  const module = path.join(root, '..');
  const sources = [];
  const add = (folder) => {
    for (const name of readdirSync(path.join(module, folder)).filter((f) => f.endsWith('.go') && !f.endsWith('_test.go'))) {
      const file = `${folder}/${name}`;
      if (!sources.includes(file)) {
        sources.push(file);
        for (const [, imported] of importsOf(read(module, file)).matchAll(/"([^"]+)"/g)) {
          if (imported.startsWith(ours)) {
            add(imported.slice(ours.length));
          }
        }
      }
    }
  };
  add('grafana-plugin/pkg');
  assert.ok(sources.length > 20 && sources.includes('grafana-plugin/pkg/prom/client.go'), sources.join(' '));
  for (const file of sources) {
    const text = read(module, file);
    const imports = importsOf(text);
    const allowed = file === 'grafana-plugin/pkg/main.go' ? ['os'] : [];
    for (const name of ['os', 'os/exec', 'syscall', 'unsafe', 'plugin', 'io/ioutil', 'C', 'embed']) {
      assert.ok(allowed.includes(name) || !imports.includes(`"${name}"`), `${file} imports ${name}`);
    }
    assert.doesNotMatch(text, /os\.(Getenv|LookupEnv|Environ|Open|ReadFile|Create|WriteFile)|filepath\.Walk|\/\/go:linkname/, file);
  }
});

test('documents', () => {
  const readme = read(dist, 'README.md');
  assert.ok(readme.length > 2000);
  assert.match(readme, /^# .*Spillway/);
  // On the catalog's page a relative address leads nowhere. Those into this repository are addresses of files that are there.
  const targets = [...readme.matchAll(/\]\(([^)\s]+)\)/g)].map((m) => m[1]);
  assert.equal(targets.filter((target) => target.endsWith('.png')).length, 3);
  for (const target of targets) {
    assert.match(target, /^(https:\/\/|#)/, `README.md links to ${target}`);
    const file = /^https:\/\/(?:raw\.githubusercontent\.com\/spillwayproject\/spillway|github\.com\/spillwayproject\/spillway\/blob)\/main\/(.+)$/.exec(
      target
    )?.[1];
    assert.ok(!file || existsSync(path.join(root, '..', file)), `README.md links to ${target}`);
  }
  assert.ok(read(dist, 'CHANGELOG.md').includes(`## ${pkg.version}`));
  assert.equal(read(dist, 'LICENSE'), read(root, '../LICENSE'));
  assert.match(read(dist, 'LICENSE'), /Apache License\s+Version 2\.0/);
});

test('nothing else is in dist/', () => {
  const known =
    /^(plugin\.json|module\.js(\.map)?|README\.md|CHANGELOG\.md|LICENSE|go_plugin_build_manifest|gpx_[a-z0-9_]+(\.exe)?|img\/[a-z0-9-]+\.(svg|png)|dashboards\/[a-z0-9-]+\.json)$/;
  assert.deepEqual(
    files(dist).filter((f) => !known.test(f)),
    []
  );
});

test('the front end is locked, without addresses of registries', () => {
  const lock = read(root, 'package-lock.json');
  assert.equal(JSON.parse(lock).version, pkg.version);
  assert.ok(!lock.includes('"resolved"'));
  // npm ci refuses a lock that lacks what other systems would install.
  const { packages } = JSON.parse(lock);
  for (const [where, p] of Object.entries(packages)) {
    for (const name of Object.keys(p.optionalDependencies ?? {})) {
      assert.ok(packages[`node_modules/${name}`] ?? packages[`${where}/node_modules/${name}`], `${name} of ${where} is locked`);
    }
  }
  for (const [name, version] of Object.entries({ ...pkg.dependencies, ...pkg.devDependencies })) {
    assert.match(version, /^\d/, `${name} is pinned`);
  }
});
