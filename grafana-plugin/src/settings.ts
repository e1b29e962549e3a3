// What is wrong with an instance's settings, by field. pkg/model.ParseSettings checks the same; here the editor says it while one types.
import { CEILING, DEFAULT_LABELS, MAX_LABELS, MAX_LINKS, type Settings } from './types';

/** What the back end takes for what is left out. */
export const DEFAULTS = {
  labels: [...DEFAULT_LABELS] as string[],
  ruleInterval: '1m',
  idleBelow: 5,
  stragglerBelow: 0.8,
  currency: 'USD',
  partialResponse: '',
  maxSeries: 200,
  maxRows: 1000,
  nodeDashboard: 'spillway-node',
  gpuDashboard: 'spillway-gpu-node',
  podDashboard: 'spillway-pending',
} as const satisfies Partial<Settings> & Record<string, unknown>;

/** A duration as Prometheus writes it, longer than nothing: its parts in this order, each once. */
const duration = /^(?=\d)(?:\d+y)?(?:\d+w)?(?:\d+d)?(?:\d+h)?(?:\d+m)?(?:\d+s)?(?:\d+ms)?$/;

export function isDuration(text: string): boolean {
  return duration.test(text) && /[1-9]/.test(text);
}

/** Why a link's URL cannot be used; undefined where it can. What comes from a label must never become a scheme or a host. */
export function urlProblem(url: string): string | undefined {
  const at = url.indexOf('${');
  const fixed = at < 0 ? url : url.slice(0, at);
  const bad = 'It begins with https://host/ or http://host/, before any ${…}';
  if (!/^https?:\/\/[^/?#]/.test(fixed) || !URL.canParse(fixed)) {
    return bad;
  }
  if (at >= 0 && !/^https?:\/\/[^/?#]+[/?]/.test(fixed)) {
    return bad;
  }
  const unknown = [...url.matchAll(/\$\{([^}]*)\}?/g)].find((m) => !['${experiment}', '${team}', '${cluster}', '${namespace}'].includes(m[0]));
  return unknown && `${unknown[0]} is none of \${experiment}, \${team}, \${cluster}, \${namespace}`;
}

/** Messages by path: `labels[2]`, `prices.H100`, `links[0].url`, `maxRows`. */
export function settingsProblems(s: Settings): Record<string, string> {
  const found: Record<string, string> = {};
  const labels = s.labels ?? [];
  if (labels.length > MAX_LABELS) {
    found.labels = `${labels.length} are more than ${MAX_LABELS}`;
  }
  labels.forEach((label, i) => {
    if (!/^label_[a-zA-Z0-9_]*$/.test(label)) {
      found[`labels[${i}]`] = 'A label of kube_pod_labels: it begins with label_, as label_experiment does';
    } else if (labels.indexOf(label) < i) {
      found[`labels[${i}]`] = 'It stands in the list twice';
    }
  });
  if (s.ruleInterval && !isDuration(s.ruleInterval)) {
    found.ruleInterval = 'A duration, such as 1m or 30s';
  }
  if (s.idleBelow !== undefined && !(s.idleBelow >= 0 && s.idleBelow <= 100)) {
    found.idleBelow = 'From 0 to 100 percent';
  }
  if (s.stragglerBelow !== undefined && s.stragglerBelow !== 0 && !(s.stragglerBelow > 0 && s.stragglerBelow <= 1)) {
    found.stragglerBelow = 'Above 0, and at most 1';
  }
  for (const [model, price] of Object.entries(s.prices ?? {})) {
    if (!(price >= 0 && price < 1e6)) {
      found[`prices.${model}`] = "A number: the price of one GPU's hour";
    }
  }
  if (s.currency && !/^[A-Z]{3}$/.test(s.currency)) {
    found.currency = 'Three capital letters, such as USD';
  }
  for (const name of ['maxSeries', 'maxRows'] as const) {
    const n = s[name];
    if (n !== undefined && n !== 0 && !(Number.isInteger(n) && n >= 1 && n <= CEILING)) {
      found[name] = `A whole number from 1 to ${CEILING}`;
    }
  }
  const links = s.links ?? [];
  if (links.length > MAX_LINKS) {
    found.links = `${links.length} are more than ${MAX_LINKS}`;
  }
  links.forEach((link, i) => {
    if (!link.title) {
      found[`links[${i}].title`] = 'What the link is called';
    }
    const problem = urlProblem(link.url);
    if (problem) {
      found[`links[${i}].url`] = problem;
    }
  });
  return found;
}

/** The link as an experiment of that name would have it, for the editor's example. */
export function linkExample(url: string, experiment = 'llm-70b/run 7'): string {
  const values: Record<string, string> = { experiment, team: 'nlp', cluster: 'jaguar', namespace: 'research' };
  return url.replace(/\$\{(\w+)\}/g, (whole, name) => (name in values ? encodeURIComponent(values[name]) : whole));
}
