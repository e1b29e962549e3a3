// The page in a browser, over a small demo: three of our dashboards, one with every kind of panel, and one in which each panel is wrong.
// SPILLWAY_PAGE names the built dashboards/page/serve; tools/page.sh check builds it.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';
import { inspect } from '../inspect.mjs';
import { broken, complaints, kitchen } from './fixtures.mjs';

const render = path.join(path.dirname(fileURLToPath(import.meta.url)), '..');
const binary = process.env.SPILLWAY_PAGE ?? path.join(render, '../../dist/spillway-page');
const bundle = path.join(render, 'dist');

const children = [];
let folder, browser, ours, fixtures;

/** serve starts the page and waits for a line of its output that has each of the wanted patterns. */
function serve(args, wanted) {
  return new Promise((resolve, reject) => {
    const child = spawn(binary, ['--web.listen-address=127.0.0.1:0', `--bundle=${bundle}`, ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
    children.push(child);
    let said = '';
    const hear = (chunk) => {
      said += chunk;
      const found = wanted.map((w) => w.exec(said)?.[1]);
      if (found.every(Boolean)) {
        resolve(found);
      }
    };
    child.stdout.on('data', hear);
    child.stderr.on('data', hear);
    child.on('error', reject);
    child.on('exit', (code) => reject(new Error(`${binary} ended with ${code}:\n${said}`)));
  });
}

before(
  async () => {
    folder = await mkdtemp(path.join(os.tmpdir(), 'spillway-page-test-'));
    for (const d of [kitchen(), broken()]) {
      await writeFile(path.join(folder, `${d.uid}.json`), JSON.stringify(d));
    }
    const here = /dashboards {2,}(http:\/\/\S+)/;
    const [api, page] = await serve(
      ['--nodes=6', '--shards=1', '--replicas=1', '--history=30m'],
      [/Prometheus API {2,}(http:\/\/\S+)/, here, /(recorded series and alerts are there)/]
    );
    ours = page;
    [fixtures] = await serve([`--url=${api}`, `--dashboards=${folder}`], [here]);
    browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });
  },
  { timeout: 180_000 }
);

after(async () => {
  await browser?.close();
  await Promise.all(
    children.map(
      (child) =>
        new Promise((ended) => {
          if (child.exitCode !== null) {
            return ended();
          }
          child.on('exit', ended);
          child.kill('SIGTERM');
        })
    )
  );
  if (folder) {
    await rm(folder, { recursive: true, force: true });
  }
});

const entry = async (base, name) => {
  const found = (await (await fetch(`${base}/dashboards`)).json()).find((e) => e.name === name);
  assert.ok(found, `there is a dashboard ${name}`);
  return found;
};

for (const [name, theme] of [
  ['fleet', 'dark'],
  ['apiserver', 'light'],
  ['gpu-fleet', 'dark'],
]) {
  test(`${name}, ${theme}: no panel is in error or blank`, { timeout: 120_000 }, async () => {
    const found = await inspect(browser, { base: ours, entry: await entry(ours, name), theme, pixels: true });
    assert.deepEqual(found.faults, []);
    assert.ok(found.panels.length > 5, `${found.panels.length} panels`);
    assert.ok(found.panels.filter((p) => p.rows > 0).length > found.panels.length / 2, 'most panels have data');
  });
}

test('every kind of panel draws', { timeout: 120_000 }, async () => {
  const found = await inspect(browser, {
    base: fixtures,
    entry: await entry(fixtures, 'test-kitchen'),
    theme: 'dark',
    vars: 'var-cluster=jaguar',
    pixels: true,
    file: process.env.KITCHEN,
  });
  assert.deepEqual(found.faults, []);
  assert.equal(found.panels.length, 13);
  assert.deepEqual(
    found.panels.filter((p) => p.rows === 0).map((p) => p.title),
    ['Nothing']
  );
});

test('what is wrong is found', { timeout: 120_000 }, async () => {
  const found = await inspect(browser, { base: fixtures, entry: await entry(fixtures, 'test-broken'), theme: 'light', pixels: true, file: process.env.BROKEN });
  for (const [title, complaint] of Object.entries(complaints)) {
    assert.ok(
      found.faults.some((f) => f.includes(`"${title}"`) && complaint.test(f)),
      `"${title}": ${complaint} is not in\n${found.faults.join('\n')}`
    );
  }
  assert.ok(
    found.faults.some((f) => f.startsWith('variable wrong: ')),
    `the variable is not in\n${found.faults.join('\n')}`
  );
  assert.deepEqual(
    found.faults.filter((f) => f.includes('Sound among them')),
    []
  );
});

test('the list has all dashboards, and a link leads to one with its variables', { timeout: 120_000 }, async () => {
  const page = await browser.newPage();
  try {
    await page.goto(`${fixtures}/?theme=light`);
    await page.getByText('Every kind of panel').first().click();
    await page.waitForURL(/\/d\/test-kitchen\?theme=light/);
    await page.waitForFunction(() => window.spillway?.report().settled, undefined, { timeout: 60_000 });
    assert.equal(await page.title(), 'Every kind of panel');
    // The variable's value is in the address, as in Grafana, so that an address can be sent to somebody.
    await page.goto(`${fixtures}/d/test-kitchen?var-cluster=ibis&whole=1`);
    await page.waitForFunction(() => window.spillway?.report().settled, undefined, { timeout: 60_000 });
    const report = await page.evaluate(() => window.spillway.report());
    assert.equal(report.variables.find((v) => v.name === 'cluster').value, 'ibis');
    await page.getByText('Others', { exact: true }).click();
    const href = await page.getByRole('menuitem', { name: 'Everything is wrong' }).getAttribute('href');
    assert.match(href, /^\/d\/test-broken\?.*var-cluster=ibis/);
    assert.match(href, /from=now-15m&to=now/);
  } finally {
    await page.close();
  }
});
