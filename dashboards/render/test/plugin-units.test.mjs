// How the page loads a plugin's front end, and how it sends what that asks.
import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { mkdtemp, rm } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath, pathToFileURL } from 'node:url';
import * as esbuild from 'esbuild';

const src = path.join(path.dirname(fileURLToPath(import.meta.url)), '../src/plugin');
let built, server, base, amd, backend;

/** What the server answers, by path; whatever else is asked is told back. */
const answers = {
  '/lists.js': 'define(["exports", "rxjs"], (exports, rxjs) => { exports.of = typeof rxjs.of; })',
  '/returns.js': 'define([], () => ({ plugin: 1 }))',
  '/named.js': 'define("name", ["module"], (module) => ({ uri: module.uri }))',
  '/wants.js': 'define(["jquery"], () => ({}))',
  '/none.js': 'export const plugin = 1',
  '/silent.js': 'const plugin = 1',
};

before(async () => {
  built = await mkdtemp(path.join(os.tmpdir(), 'spillway-plugin-units-'));
  await esbuild.build({
    entryPoints: ['amd', 'backend'].map((name) => path.join(src, `${name}.ts`)),
    outdir: built,
    outExtension: { '.js': '.mjs' },
    bundle: true,
    format: 'esm',
    platform: 'node',
    logLevel: 'error',
    external: ['@grafana/*', '@emotion/*', 'react', 'react-dom', 'react/*'], // they want a browser, and none is asked for here
  });
  [amd, backend] = await Promise.all(['amd', 'backend'].map((name) => import(pathToFileURL(path.join(built, `${name}.mjs`)))));
  server = createServer((request, response) => {
    let body = '';
    request.on('data', (chunk) => (body += chunk));
    request.on('end', () => {
      if (answers[request.url]) {
        response.end(answers[request.url]);
        return;
      }
      const status = Number(/status=(\d+)/.exec(request.url)?.[1] ?? 200);
      response.writeHead(status, { 'Content-Type': 'application/json' });
      response.end(
        JSON.stringify({ method: request.method, url: request.url, panel: request.headers['x-panel-id'], type: request.headers['content-type'], body })
      );
    });
  });
  await new Promise((ready) => server.listen(0, '127.0.0.1', ready));
  base = `http://127.0.0.1:${server.address().port}`;
  const real = globalThis.fetch;
  globalThis.fetch = (url, init) => real(url.startsWith('/') ? base + url : url, init); // a browser puts the page's own address before it
});

after(async () => {
  server.closeAllConnections();
  await new Promise((ended) => server.close(ended));
  await rm(built, { recursive: true, force: true });
});

describe('module.js', () => {
  test('exports what it puts into exports, and gets what it shares', async () => assert.deepEqual(await amd.load('/lists.js'), { of: 'function' }));
  test('exports what it returns', async () => assert.deepEqual(await amd.load('/returns.js'), { plugin: 1 }));
  test('may have a name, and is told its address', async () => assert.deepEqual(await amd.load('/named.js'), { uri: '/named.js' }));
  test('is refused where it wants what is not shared', () => assert.rejects(amd.load('/wants.js'), /wants jquery/));
  test('is refused where it is an ES module', () => assert.rejects(amd.load('/none.js')));
  test('is refused where it defines nothing', () => assert.rejects(amd.load('/silent.js'), /no AMD module/));
  test('is missing where the plugin is not built', () => assert.rejects(amd.load('/missing?status=404'), /answered 404; is the plugin built/));
});

describe('requests', () => {
  test('parameters, lists and what is not set', () => {
    for (const [url, params, want] of [
      ['/api/x', undefined, '/api/x'],
      ['api/x', {}, '/api/x'],
      ['/api/x', { q: 'a b&c', team: ['x', 'y'], limit: 5, no: undefined, none: null, empty: [] }, '/api/x?q=a+b%26c&team=x&team=y&limit=5'],
      ['/api/x?ds_type=y', { q: '' }, '/api/x?ds_type=y&q='],
    ]) {
      assert.equal(backend.address(url, params), want);
    }
  });
  test('a body is JSON, headers go with it', async () => {
    const answer = await new Promise((resolve, reject) =>
      backend.backend
        .fetch({ url: '/api/ds/query', method: 'POST', data: { a: 1 }, headers: { 'X-Panel-Id': '7' } })
        .subscribe({ next: resolve, error: reject })
    );
    assert.equal(answer.status, 200);
    assert.deepEqual(answer.data, { method: 'POST', url: '/api/ds/query', panel: '7', type: 'application/json', body: '{"a":1}' });
  });
  test('GET has parameters and no body', async () => {
    const answer = await backend.backend.get('/api/x', { q: 'é' });
    assert.deepEqual(answer, { method: 'GET', url: '/api/x?q=%C3%A9', body: '' });
  });
  test('a refusal is an error that has the answer', async () => {
    await assert.rejects(backend.backend.get('/api/x?status=400'), (err) => err.status === 400 && err.data.url === '/api/x?status=400');
  });
});
