// Steps and rate windows, by the same arithmetic as Grafana's Prometheus data source, so that a panel here asks what it asks there.
import { rangeUtil } from '@grafana/data';

/** Prometheus refuses a range of more points. */
const maxPoints = 11_000;

/** stepMs is the step of a range query: Grafana's interval for the panel's width, not under the query's own minimum, and few enough points for the server. */
export function stepMs(intervalMs: number, minimumMs: number, rangeMs: number): number {
  const safe = rangeUtil.roundInterval(rangeMs / maxPoints);
  const wanted = Math.max(intervalMs, minimumMs);
  return wanted >= safe ? wanted : Math.ceil(safe / 1000) * 1000;
}

/** rateIntervalMs is $__rate_interval: four scrapes, and one more than a step, so that no sample between two points is left out. */
export function rateIntervalMs(step: number, scrapeMs: number): number {
  return Math.max(step + scrapeMs, 4 * scrapeMs);
}

/** aligned moves both ends back to a multiple of the step, so that a refresh evaluates the same moments again and lines do not jitter. */
export function aligned(fromMs: number, toMs: number, step: number): { from: number; to: number } {
  return { from: Math.floor(fromMs / step) * step, to: Math.floor(toMs / step) * step };
}

/** durationMs reads 30s, 5m or $__interval's own text; 0 for what is empty or no duration. */
export function durationMs(text: string | undefined | null): number {
  const plain = (text ?? '').trim().replace(/^[<>=]+/, '');
  if (plain === '') {
    return 0;
  }
  try {
    return rangeUtil.intervalToMs(plain);
  } catch {
    return 0;
  }
}

/** promDuration writes milliseconds as PromQL reads them. */
export function promDuration(ms: number): string {
  if (ms % 1000 !== 0) {
    return `${ms}ms`;
  }
  const s = ms / 1000;
  for (const [unit, size] of [
    ['d', 86400],
    ['h', 3600],
    ['m', 60],
  ] as const) {
    if (s >= size && s % size === 0) {
      return `${s / size}${unit}`;
    }
  }
  return `${s}s`;
}
