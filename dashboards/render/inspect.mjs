// Opens one dashboard in a browser, waits until every panel has its answer, takes the picture, and tells what is wrong.

const patience = 60_000;

/**
 * prepare is called with the page before it opens, look when everything on it is there.
 *
 * @returns {Promise<{panels: object[], warnings: string[], faults: string[], took: number}>} faults are sentences, empty where all is well
 */
export async function inspect(browser, { base, entry, theme, vars = '', width = 1600, scale = 1, file, pixels = false, prepare, look }) {
  const began = Date.now();
  const faults = [];
  const context = await browser.newContext({
    viewport: { width, height: 1000 },
    deviceScaleFactor: scale,
    locale: 'en-GB',
    timezoneId: 'UTC',
    colorScheme: theme,
  });
  try {
    const page = await context.newPage();
    page.on('pageerror', (err) => faults.push(`JavaScript error: ${err.message}`));
    page.on('console', (m) => {
      // A refused query is logged by the browser too; the panel says it better.
      if (m.type() === 'error' && !m.text().startsWith('Failed to load resource')) {
        faults.push(`logged an error: ${m.text().slice(0, 300)}`);
      }
    });
    page.on('requestfailed', (r) => {
      if (r.failure()?.errorText !== 'net::ERR_ABORTED') {
        faults.push(`${r.url()}: ${r.failure()?.errorText}`);
      }
    });
    await prepare?.(page);
    await page.goto(`${base}/d/${encodeURIComponent(entry.uid)}?theme=${theme}&whole=1&refresh=${vars ? `&${vars}` : ''}`, { waitUntil: 'load' });
    const report = () => page.evaluate(() => window.spillway?.report());
    let last = await settled(page, report);
    // Rows push each other down as they open, and a plot is drawn again in its new size: the window becomes as high as the page, then all of it is seen.
    const height = await page.evaluate(() => document.documentElement.scrollHeight);
    await page.setViewportSize({ width, height: Math.min(Math.max(height, 400), 12_000) });
    await page.waitForTimeout(300);
    last = await settled(page, report);
    await page.waitForTimeout(500);

    if (last.failure) {
      faults.push(last.failure);
    } else if (!last.settled) {
      const waiting = last.panels.filter((p) => p.state !== 'Done' && p.state !== 'Error').map((p) => `"${p.title}" (${p.state || 'not asked'})`);
      faults.push(`after ${patience / 1000} s these panels have no answer: ${waiting.join(', ') || 'all of them'}`);
    }
    for (const v of last.variables.filter((v) => v.error)) {
      faults.push(`variable ${v.name}: ${v.error}`);
    }
    for (const p of last.panels) {
      faults.push(...p.errors.map((e) => `panel "${p.title}": ${e}`));
    }
    faults.push(...(await broken(page)));
    if (pixels) {
      faults.push(...(await blank(page)));
    }
    await look?.(page);
    if (file) {
      await page.screenshot({ path: file, fullPage: true, animations: 'disabled' });
    }
    const warnings = last.panels.flatMap((p) => p.warnings.map((w) => `"${p.title}": ${w}`));
    return { panels: last.panels, warnings, faults: [...new Set(faults)], took: Date.now() - began };
  } finally {
    await context.close();
  }
}

async function settled(page, report) {
  const end = Date.now() + patience;
  let last;
  let times = 0;
  for (;;) {
    last = (await report()) ?? { title: '', settled: false, panels: [], variables: [], failure: 'the page did not start' };
    times = last.settled ? times + 1 : 0;
    if (times >= 3 || Date.now() > end) {
      return last; // three looks in a row: a variable that changes asks all panels again
    }
    await page.waitForTimeout(150);
  }
}

/** broken are panels whose component threw, which Grafana's error boundary shows in their place. */
async function broken(page) {
  return page.evaluate(() =>
    [...document.querySelectorAll('[data-viz-panel-key]')].flatMap((panel) => {
      const alert = panel.querySelector('[data-testid="data-testid Alert error"], [role="alert"]');
      const title = panel.querySelector('h2, h6')?.textContent ?? panel.getAttribute('data-viz-panel-key');
      return alert ? [`panel "${title}" could not be drawn: ${alert.textContent.slice(0, 200)}`] : [];
    })
  );
}

/** blank are panels in whose inside every pixel has the background's colour. */
async function blank(page) {
  const out = [];
  for (const panel of await page.locator('[data-viz-panel-key]').all()) {
    const content = panel.locator('[data-testid="data-testid panel content"]').first();
    if ((await content.count()) === 0) {
      out.push(`panel "${await panel.locator('h2, h6').first().textContent()}" has no inside`);
      continue;
    }
    const image = (await content.screenshot()).toString('base64');
    const coloured = await page.evaluate(async (png) => {
      const bitmap = await createImageBitmap(await (await fetch(`data:image/png;base64,${png}`)).blob());
      const canvas = new OffscreenCanvas(bitmap.width, bitmap.height);
      const ctx = canvas.getContext('2d');
      ctx.drawImage(bitmap, 0, 0);
      const edge = 4; // the panel's own border is no content
      const { data } = ctx.getImageData(edge, edge, bitmap.width - 2 * edge, bitmap.height - 2 * edge);
      const counts = new Map();
      for (let i = 0; i < data.length; i += 4) {
        const colour = (data[i] << 16) | (data[i + 1] << 8) | data[i + 2];
        counts.set(colour, (counts.get(colour) ?? 0) + 1);
      }
      return data.length / 4 - Math.max(...counts.values());
    }, image);
    if (coloured < 20) {
      out.push(`panel "${await panel.locator('h2, h6').first().textContent()}" is blank: ${coloured} pixels differ from its background`);
    }
  }
  return out;
}
