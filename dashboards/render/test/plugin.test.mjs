// The Grafana plugin in a browser, as it is built: its editors from module.js, typed into, and its dashboards. Queries go from the page to its server, from there
// over gRPC to the plugin's program, from there to the proxy, and to the demo's shards.
// SPILLWAY_PAGE names the built dashboards/page/serve, SPILLWAY_PLUGIN the plugin's folder; tools/page.sh check builds both.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';
import { inspect } from '../inspect.mjs';

const render = path.join(path.dirname(fileURLToPath(import.meta.url)), '..');
const binary = process.env.SPILLWAY_PAGE ?? path.join(render, '../../dist/spillway-page');
const plugin = process.env.SPILLWAY_PLUGIN ?? path.join(render, '../../grafana-plugin/dist');
const api = '/api/datasources/uid/spillway-experiments';

let server, browser, base, experiments, running;

before(
  async () => {
    server = spawn(
      binary,
      [
        '--web.listen-address=127.0.0.1:0',
        `--bundle=${path.join(render, 'dist')}`,
        `--plugin=${plugin}`,
        '--nodes=12',
        '--shards=1',
        '--replicas=1',
        '--history=45m',
      ],
      { stdio: ['ignore', 'pipe', 'pipe'] }
    );
    base = await new Promise((resolve, reject) => {
      let said = '';
      const hear = (chunk) => {
        said += chunk;
        const address = /dashboards {2,}(http:\/\/\S+)/.exec(said)?.[1];
        if (address && /recorded series and alerts are there/.test(said)) {
          resolve(address);
        }
      };
      server.stdout.on('data', hear);
      server.stderr.on('data', hear);
      server.on('error', reject);
      server.on('exit', (code) => reject(new Error(`${binary} ended with ${code}:\n${said}`)));
    });
    const listed = await (await fetch(`${base}${api}/resources/experiments`)).json();
    experiments = listed.map((e) => e.name);
    // Those that hold GPUs show most; unassigned is no team that a variable offers.
    running = listed.filter((e) => e.state === 'running' && e.team && e.team !== 'unassigned');
    assert.ok(running.length >= 2, `of the demo's experiments run ${running.map((e) => e.name).join(', ')}`);
    assert.ok(experiments.length >= 2, `the demo has the experiments ${experiments.join(', ')}`);
    browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });
  },
  { timeout: 180_000 }
);

after(async () => {
  await browser?.close();
  if (server && server.exitCode === null) {
    const ended = new Promise((resolve) => server.on('exit', resolve));
    server.kill('SIGTERM');
    await ended;
  }
});

/** edit opens an editor, lets use work with it, and fails where the page logged an error meanwhile. */
async function edit(kind, query, use) {
  const page = await browser.newPage({ viewport: { width: 1400, height: 1200 } });
  const faults = [];
  page.on('pageerror', (err) => faults.push(err.message));
  page.on('console', (m) => m.type() === 'error' && !m.text().startsWith('Failed to load resource') && faults.push(m.text().slice(0, 300)));
  try {
    await page.goto(`${base}/edit/${kind}?theme=dark${query ? `&query=${encodeURIComponent(JSON.stringify(query))}` : ''}`);
    const stored = async () => JSON.parse(await page.getByTestId('stored').textContent());
    await page.getByTestId('stored').waitFor();
    await use(page, stored);
    assert.deepEqual(faults, []);
  } finally {
    await page.close();
  }
}

/** answered waits until the panel has the answer to a query that has all of these fields. */
async function answered(page, fields) {
  await page.waitForFunction(
    ([wanted]) => {
      const stored = JSON.parse(document.querySelector('[data-testid="stored"]')?.textContent ?? '{}');
      const report = window.spillway?.report();
      const same = Object.entries(wanted).every(([k, v]) => JSON.stringify(stored[k]) === JSON.stringify(v));
      return same && report?.settled && report.panels.length === 1;
    },
    [fields],
    { timeout: 30_000 }
  );
  return (await page.evaluate(() => window.spillway.report())).panels[0];
}

test('a query: an experiment is found by typing, chosen, and its pods are shown', { timeout: 120_000 }, async () => {
  await edit('query', { queryType: 'pods' }, async (page, stored) => {
    const name = experiments[0];
    const picker = page.locator('[id^="experiments-"]').first();
    await picker.click();
    await picker.pressSequentially(name.slice(0, Math.max(3, name.length - 2)));
    await page.getByRole('option', { name }).first().click();
    await page.keyboard.press('Escape');
    await page.locator('h1').click();
    const panel = await answered(page, { queryType: 'pods', experiments: [name] });
    assert.deepEqual(panel.errors, []);
    assert.ok(panel.rows > 0, `${panel.rows} pods of ${name}`);
    assert.deepEqual((await stored()).experiments, [name]);
  });
});

test('a query: another type shows its fields and keeps what is chosen', { timeout: 120_000 }, async () => {
  const name = experiments[0];
  await edit('query', { queryType: 'pods', experiments: [name] }, async (page) => {
    await page.locator('#type-A').click();
    await page.getByRole('option', { name: 'GPU metric' }).first().click();
    const panel = await answered(page, { queryType: 'gpu_timeseries', experiments: [name] });
    assert.equal(panel.type, 'timeseries');
    assert.deepEqual(panel.errors, []);
    await page.getByLabel('Largest').click({ force: true });
    await answered(page, { queryType: 'gpu_timeseries', rank: 'top', k: 10 });
  });
});

test('a query: PromQL is typed, run with Ctrl+Enter, and what is wrong with it is shown', { timeout: 120_000 }, async () => {
  await edit('query', { queryType: 'promql', expr: 'up' }, async (page) => {
    await page.locator('#expr-A').fill('count by (cluster) (experiment:pod:info{$__experiment})');
    await page.locator('#expr-A').press('Control+Enter');
    const panel = await answered(page, { expr: 'count by (cluster) (experiment:pod:info{$__experiment})' });
    assert.deepEqual(panel.errors, []);
    assert.ok(panel.rows > 0);
    await page.locator('#expr-A').fill('sum(');
    await page.locator('#expr-A').press('Control+Enter');
    await page.waitForFunction(() => window.spillway.report().panels[0]?.errors.length > 0, undefined, { timeout: 30_000 });
    const [error] = (await page.evaluate(() => window.spillway.report())).panels[0].errors;
    assert.match(error, /parse error|unclosed|unexpected/i);
  });
});

test('a variable: its values are the names that the back end has', { timeout: 120_000 }, async () => {
  await edit('variable', undefined, async (page, stored) => {
    const values = async () => (await page.getByTestId('values').locator('li').allTextContents()).sort();
    await page.getByLabel('Clusters').click({ force: true });
    await page.waitForFunction(() => document.querySelectorAll('[data-testid="values"] li').length === 2, undefined, { timeout: 30_000 });
    assert.deepEqual(await values(), ['ibis', 'jaguar']);
    assert.equal((await stored()).resource, 'clusters');
    await page.getByLabel('Experiments').click({ force: true });
    await page.waitForFunction((n) => document.querySelectorAll('[data-testid="values"] li').length === n, new Set(experiments).size, { timeout: 30_000 });
    await page.locator('#variable-q').fill(experiments[0]);
    await page.locator('h1').click();
    await page.waitForFunction(
      (name) => [...document.querySelectorAll('[data-testid="values"] li')].every((li) => li.textContent.includes(name)),
      experiments[0],
      {
        timeout: 30_000,
      }
    );
    assert.ok((await values()).includes(experiments[0]));
  });
});

test('an annotation: its query is about events', { timeout: 120_000 }, async () => {
  await edit('annotation', undefined, async (page, stored) => {
    await page.locator('[id^="experiments-"]').first().waitFor();
    assert.equal((await stored()).queryType, 'events');
  });
});

test('settings: what is typed is saved, and the health check says what is wrong', { timeout: 120_000 }, async () => {
  const before = await (await fetch(`${base}${api}`)).json();
  try {
    await edit('config', undefined, async (page, stored) => {
      await page.locator('#config-currency').fill('EUR');
      assert.equal((await stored()).currency, 'EUR');
      const test = page.getByRole('button', { name: 'Save & test' });
      await test.click();
      await page.getByTestId('health').waitFor();
      assert.equal((await (await fetch(`${base}${api}`)).json()).jsonData.currency, 'EUR');
      assert.doesNotMatch(await page.getByTestId('health').textContent(), /currency/);
      await page.locator('#config-currency').fill('euros');
      await test.click();
      await page.getByTestId('health').getByText('currency').first().waitFor({ timeout: 30_000 });
    });
  } finally {
    await fetch(`${base}${api}`, { method: 'PUT', body: JSON.stringify(before) });
  }
});

for (const [name, theme] of [
  ['experiment', 'dark'],
  ['compare', 'light'],
  ['team', 'dark'],
]) {
  test(`dashboard ${name}, ${theme}: no panel is in error or blank`, { timeout: 180_000 }, async () => {
    const entry = (await (await fetch(`${base}/dashboards`)).json()).find((e) => e.name === name);
    assert.ok(entry, `there is a dashboard ${name}`);
    const [first, second] = running;
    const vars = {
      experiment: [['var-experiment', first.name]],
      compare: [first, second].map((e) => ['var-experiment', e.name]),
      team: [['var-team', first.team]],
    }[name];
    const address = new URLSearchParams([['from', 'now-45m'], ['to', 'now'], ...vars]).toString();
    const found = await inspect(browser, { base, entry, theme, vars: address, pixels: true });
    assert.deepEqual(found.faults, []);
    const without = found.panels.filter((p) => p.rows === 0).map((p) => p.title);
    assert.ok(without.length < found.panels.length / 2, `without data: ${without.join(', ')}`);
  });
}
