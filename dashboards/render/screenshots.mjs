// Renders dashboards to out/NAME-THEME.png at full height, and fails where a panel shows an error or the page logs one.
//
//   node screenshots.mjs --page=http://127.0.0.1:3300 [--editors=query,config] [--only=fleet,apiserver] [--theme=light,dark] [--from=now-6h] [--to=now] [--vars=var-cluster=x] [--suffix=trouble]
//
// The page is one that is being served (dashboards/page/serve); tools/page.sh screenshots starts it.
import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { chromium } from 'playwright-core';
import { inspect } from './inspect.mjs';

const here = path.dirname(fileURLToPath(import.meta.url));
const { values: flags } = parseArgs({
  options: {
    page: { type: 'string', default: 'http://127.0.0.1:3300' },
    only: { type: 'string', default: '' },
    theme: { type: 'string', default: 'light,dark' },
    vars: { type: 'string', default: '' },
    // The demo holds an hour; some dashboards open with a month. Empty: what each opens with.
    from: { type: 'string', default: 'now-1h' },
    to: { type: 'string', default: 'now' },
    suffix: { type: 'string', default: '' },
    out: { type: 'string', default: path.join(here, 'out') },
    width: { type: 'string', default: '1600' },
    // Pixels of the picture for one of the page.
    scale: { type: 'string', default: '1' },
    chromium: { type: 'string', default: '/usr/bin/chromium' },
    // Pictures of the plugin's editors instead of dashboards: the page must be served with --plugin. query may have the experiment that it shows, as JSON.
    editors: { type: 'string', default: '' },
    query: { type: 'string', default: '' },
    // Pixels are counted in each panel, and one without any is an error.
    pixels: { type: 'boolean', default: false },
  },
});
// Where staged trouble is seen on dashboards that show one node: dashboards/page stages it there.
const staged = {
  'gpu-node': 'var-cluster=jaguar&var-node=gpu-00000',
  node: 'var-cluster=jaguar&var-node=gpu-00004',
};
// The demo has an hour of its clusters' past and none of its own proxy: an hour of that would be a sliver at the right edge.
const young = { proxy: 'now-3m' };
const list = (text) => text.split(/[\s,]+/).filter(Boolean);

const entries = await (await fetch(`${flags.page}/dashboards`)).json();
const only = list(flags.only);
const unknown = only.filter((name) => !entries.some((e) => e.name === name));
if (unknown.length) {
  console.error(`there is no dashboard ${unknown.join(', ')}; there are ${entries.map((e) => e.name).join(', ')}`);
  process.exit(2);
}
const wanted = flags.editors ? [] : entries.filter((e) => only.length === 0 || only.includes(e.name));
await mkdir(flags.out, { recursive: true });

const browser = await chromium.launch({ executablePath: flags.chromium, args: ['--no-sandbox', '--force-color-profile=srgb', '--font-render-hinting=none'] });
let faults = 0;
try {
  for (const kind of list(flags.editors)) {
    for (const theme of list(flags.theme)) {
      const file = path.join(flags.out, `editor-${kind}-${theme}.png`);
      const page = await browser.newPage({ viewport: { width: 1400, height: 900 }, deviceScaleFactor: Number(flags.scale) });
      page.on('pageerror', (err) => console.error(`  editor ${kind}: ${err.message}`, ++faults));
      await page.goto(`${flags.page}/edit/${kind}?theme=${theme}${flags.query ? `&query=${encodeURIComponent(flags.query)}` : ''}`);
      await page.getByTestId('stored').waitFor();
      await page.waitForTimeout(2000);
      await page.screenshot({ path: file, fullPage: true, animations: 'disabled' });
      await page.close();
      console.log(`editor ${kind} ${theme} -> ${path.relative(process.cwd(), file)}`);
    }
  }
  for (const entry of wanted) {
    const from = flags.from === 'now-1h' ? (young[entry.name] ?? flags.from) : flags.from;
    for (const theme of list(flags.theme)) {
      const file = path.join(flags.out, `${[entry.name, theme, ...(flags.suffix ? [flags.suffix] : [])].join('-')}.png`);
      const found = await inspect(browser, {
        base: flags.page,
        entry,
        theme,
        vars: [from && `from=${from}&to=${flags.to}`, flags.vars || (flags.suffix && staged[entry.name])].filter(Boolean).join('&'),
        width: Number(flags.width),
        scale: Number(flags.scale),
        file,
        pixels: flags.pixels,
      });
      const empty = found.panels.filter((p) => p.rows === 0 && p.errors.length === 0);
      const without = empty.length ? `, without data: ${empty.map((p) => `"${p.title}"`).join(', ')}` : '';
      const seconds = (found.took / 1000).toFixed(1);
      console.log(`${entry.name} ${theme}: ${found.panels.length} panels${without} -> ${path.relative(process.cwd(), file)} (${seconds} s)`);
      for (const warning of found.warnings) {
        console.log(`  warning: ${warning}`);
      }
      for (const fault of found.faults) {
        console.error(`  ${entry.name}: ${fault}`);
      }
      faults += found.faults.length;
    }
  }
} finally {
  await browser.close();
}
process.exit(faults ? 1 : 0);
