// The Prometheus HTTP API as this page asks it: forms by POST, errors as one sentence, warnings kept.

export interface Answer<T> {
  data: T;
  warnings: string[];
  infos: string[];
}

export interface Matrix {
  resultType: 'matrix';
  result: Array<{ metric: Record<string, string>; values: Array<[number, string]> }>;
}

export interface Vector {
  resultType: 'vector';
  result: Array<{ metric: Record<string, string>; value: [number, string] }>;
}

export interface Scalar {
  resultType: 'scalar' | 'string';
  result: [number, string];
}

interface Envelope {
  status?: string;
  data?: unknown;
  error?: string;
  errorType?: string;
  warnings?: string[];
  infos?: string[];
  // What the proxy adds to its errors.
  spillway?: { bound?: string; advice?: string };
}

/** Refusal is an answer that says no. Its message is for the panel: what the server said, and what it advises. */
export class Refusal extends Error {
  constructor(
    readonly status: number,
    readonly type: string,
    message: string
  ) {
    super(message);
    this.name = 'Refusal';
  }
}

/** ask sends one request and returns what is in its `data`. */
export async function ask<T>(base: string, path: string, params: URLSearchParams, signal?: AbortSignal, method: 'GET' | 'POST' = 'POST'): Promise<Answer<T>> {
  const url = method === 'GET' ? `${base}${path}?${params}` : `${base}${path}`;
  const response = await fetch(url, method === 'GET' ? { signal } : { method, body: params, signal });
  const text = await response.text();
  let envelope: Envelope;
  try {
    envelope = JSON.parse(text) as Envelope;
  } catch {
    throw new Refusal(response.status, 'unreadable', `${path} answered ${response.status} with something that is not JSON: ${text.slice(0, 200)}`);
  }
  if (envelope.status !== 'success') {
    const said = envelope.error ?? `${path} answered ${response.status}`;
    const advice = envelope.spillway?.advice;
    throw new Refusal(response.status, envelope.errorType ?? 'unknown', advice && !said.includes(advice) ? `${said}. ${advice}` : said);
  }
  return { data: envelope.data as T, warnings: envelope.warnings ?? [], infos: envelope.infos ?? [] };
}
