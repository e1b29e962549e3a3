// The Grafana plugin in a browser, as it is built: its editors from module.js, typed into, and its dashboards. Queries go from the page to its server, from there
// over gRPC to the plugin's program, from there to the proxy, and to the demo's shards.
// SPILLWAY_PAGE names the built dashboards/page/serve, SPILLWAY_PLUGIN the plugin's folder; tools/page.sh check builds both.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';
import { inspect } from '../inspect.mjs';

const render = path.join(path.dirname(fileURLToPath(import.meta.url)), '..');
const binary = process.env.SPILLWAY_PAGE ?? path.join(render, '../../dist/spillway-page');
const plugin = process.env.SPILLWAY_PLUGIN ?? path.join(render, '../../grafana-plugin/dist');
const api = '/api/datasources/uid/spillway-experiments';

// Names that some of the demo's experiments have, and their teams: what is typed to find one, and what a list shows of it.
const odd = [
  { name: '<img src=x onerror=alert(1)>', typed: '<IMG', label: '<img src=x onerror=alert(1)>' },
  { name: '"><script>alert("x")</script>', typed: 'script>alert', label: '"><script>alert("x")</script>' },
  { name: `quote " slash \\ back\\\\slash tick \` single '`, typed: 'slash \\', label: `quote " slash \\ back\\\\slash tick \` single '` },
  { name: '.*|a+[b]$', typed: '.*|a+', label: '.*|a+[b]$' },
  { name: 'line\nbreak\ttab', typed: 'break', label: 'line⏎break‹U+0009›tab' },
  { name: '\u202egnp.exe\u202c rtl \u200b zero', typed: 'gnp.exe', label: '‹U+202E›gnp.exe‹U+202C› rtl ‹U+200B› zero' },
  { name: `${'long-'.repeat(2000)}x`, typed: 'long-long', label: `${'long-'.repeat(52)}…` },
];

// How long a browser on a busy machine may take for one answer.
const patience = 60_000;

let server, browser, base, experiments, running, folder;

before(
  async () => {
    folder = await mkdtemp(path.join(os.tmpdir(), 'spillway-plugin-'));
    await writeFile(path.join(folder, 'names.json'), JSON.stringify(odd.map((o) => o.name)));
    server = spawn(
      binary,
      [
        '--web.listen-address=127.0.0.1:0',
        `--bundle=${path.join(render, 'dist')}`,
        `--plugin=${plugin}`,
        '--nodes=20',
        '--shards=1',
        '--replicas=1',
        '--history=45m',
        `--called=${path.join(folder, 'names.json')}`,
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
    const listed = (await (await fetch(`${base}${api}/resources/experiments`)).json()).filter((e) => !odd.some((o) => o.name === e.name));
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
  if (folder) {
    await rm(folder, { recursive: true });
  }
});

/** edit opens an editor, lets use work with it, and fails where the page logged an error meanwhile. */
async function edit(kind, query, use) {
  const page = await browser.newPage({ viewport: { width: 1400, height: 1200 } });
  const faults = [];
  await traps(page);
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

/** traps has a page note whatever script of a name runs. */
async function traps(page) {
  await page.addInitScript(() => {
    window.ran = [];
    window.alert = (...what) => window.ran.push(what);
  });
}

/** harmless fails where a name became more than text, or stretched the page. */
async function harmless(page) {
  const { ran, made, wide, high } = await page.evaluate(() => ({
    ran: window.ran,
    made: [...document.querySelectorAll('img[src="x"], body script')]
      .map((e) => e.outerHTML)
      .filter((html) => html.includes('alert') || html.includes('src="x"')),
    wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    // What stands around a whole name must be no higher than two lines, but for what the page shows as JSON.
    high: [...document.querySelectorAll('[role="row"], [role="option"], li, button')]
      .filter((e) => e.textContent.includes('long-long') && e.getBoundingClientRect().height > 120)
      .map((e) => `${e.tagName} of ${e.getBoundingClientRect().height} pixels: ${e.textContent.slice(0, 40)}`),
  }));
  assert.deepEqual({ ran, made, high }, { ran: [], made: [], high: [] });
  assert.ok(wide <= 0, `the page is ${wide} pixels wider than its window`);
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
    { timeout: patience }
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
    await page.waitForFunction(() => window.spillway.report().panels[0]?.errors.length > 0, undefined, { timeout: patience });
    const [error] = (await page.evaluate(() => window.spillway.report())).panels[0].errors;
    assert.match(error, /parse error|unclosed|unexpected/i);
  });
});

test('a query: a hostile name is found, chosen, sent as it is, and shown as text', { timeout: 180_000 }, async () => {
  await edit('query', { queryType: 'pods' }, async (page, stored) => {
    const picker = page.locator('[id^="experiments-"]').first();
    for (const { name, typed, label } of odd) {
      await picker.click();
      await picker.fill(typed);
      const option = page.getByRole('option').filter({ hasText: label }).first();
      await option.waitFor();
      assert.ok((await option.textContent()).startsWith(label), `of ${label} the list shows ${await option.textContent()}`);
      const sent = page.waitForRequest((r) => r.url().includes('/api/ds/query') && r.postDataJSON().queries[0].experiments?.length > 0);
      await option.click();
      await page.keyboard.press('Escape');
      await page.locator('h1').click();
      assert.deepEqual((await sent).postDataJSON().queries[0].experiments, [name]);
      assert.deepEqual((await stored()).experiments, [name]);
      const panel = await answered(page, { queryType: 'pods', experiments: [name] });
      assert.deepEqual(panel.errors, []);
      assert.ok(panel.rows > 0, `${panel.rows} pods of ${label}`);
      const cells = await page.getByRole('gridcell').allTextContents();
      assert.ok(cells.includes(name), `the table shows ${label} as it is: ${cells.slice(0, 9).map((c) => c.slice(0, 60))}`);
      await harmless(page);
      await page.locator('[data-testid="stored"]').scrollIntoViewIfNeeded();
      await page.getByRole('button', { name: /clear/i }).first().click();
      await page.waitForFunction(() => !('experiments' in JSON.parse(document.querySelector('[data-testid="stored"]').textContent)));
    }
  });
});

test('dashboards: hostile names in variables, titles, legends, tables and links', { timeout: 180_000 }, async () => {
  const entries = await (await fetch(`${base}/dashboards`)).json();
  // The long one apart: beside names that must be escaped it costs more than the proxy's bound on regular expressions.
  const names = odd.map((o) => o.name).slice(0, -1);
  const long = odd.at(-1).name;
  for (const [board, vars] of [
    ['experiment', [['var-experiment', names[0]]]],
    ['compare', names.map((n) => ['var-experiment', n])],
    ['compare', [long, running[0].name].map((n) => ['var-experiment', n])],
    ['team', names.map((n) => ['var-team', n])],
  ]) {
    const entry = entries.find((e) => e.name === board);
    const address = new URLSearchParams([['from', 'now-45m'], ['to', 'now'], ...vars]).toString();
    const found = await inspect(browser, { base, entry, theme: 'dark', vars: address, prepare: traps, look: harmless });
    assert.deepEqual(found.faults, [], board);
    assert.ok(
      found.panels.some((p) => p.type === 'table' && p.rows > 0),
      `${board} has rows`
    );
  }
});

test('a variable: its values are the names that the back end has', { timeout: 120_000 }, async () => {
  await edit('variable', undefined, async (page, stored) => {
    const values = async () => (await page.getByTestId('values').locator('li').allTextContents()).sort();
    await page.getByLabel('Clusters').click({ force: true });
    await page.waitForFunction(() => document.querySelectorAll('[data-testid="values"] li').length === 2, undefined, { timeout: patience });
    assert.deepEqual(await values(), ['ibis', 'jaguar']);
    assert.equal((await stored()).resource, 'clusters');
    await page.getByLabel('Experiments').click({ force: true });
    await page.waitForFunction((n) => document.querySelectorAll('[data-testid="values"] li').length === n, new Set(experiments).size + odd.length, {
      timeout: patience,
    });
    await page.locator('#variable-q').fill(experiments[0]);
    await page.locator('h1').click();
    await page.waitForFunction(
      (name) => [...document.querySelectorAll('[data-testid="values"] li')].every((li) => li.textContent.includes(name)),
      experiments[0],
      {
        timeout: patience,
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
      await page.getByTestId('health').getByText('currency').first().waitFor({ timeout: patience });
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
