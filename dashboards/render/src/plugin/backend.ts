// Grafana's BackendSrv, as much of it as a datasource's front end uses: requests to this page's own server.
import type { BackendSrvRequest, FetchError, FetchResponse } from '@grafana/runtime';
import { firstValueFrom, map, Observable } from 'rxjs';

/** address is the request's URL with its parameters; a list is one that is there several times. */
export function address(url: string, params?: Record<string, unknown>): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params ?? {})) {
    for (const v of Array.isArray(value) ? value : [value]) {
      if (v !== undefined && v !== null) {
        query.append(name, String(v));
      }
    }
  }
  const path = url.startsWith('/') ? url : `/${url}`;
  const tail = query.toString();
  return tail ? `${path}${path.includes('?') ? '&' : '?'}${tail}` : path;
}

/** request sends one; whoever unsubscribes takes it back. A status that is no success is an error with the answer in it, as in Grafana. */
function request<T>(config: BackendSrvRequest): Observable<FetchResponse<T>> {
  return new Observable((subscriber) => {
    const abort = new AbortController();
    const url = address(config.url, config.params);
    const run = async () => {
      const response = await fetch(url, {
        method: config.method ?? 'GET',
        headers: { ...(config.data === undefined ? {} : { 'Content-Type': 'application/json' }), ...config.headers },
        body: config.data === undefined ? undefined : JSON.stringify(config.data),
        signal: abort.signal,
      });
      const text = await response.text();
      let data: unknown = text;
      try {
        data = JSON.parse(text);
      } catch {
        // It is text.
      }
      const { status, statusText, ok, headers, redirected, type } = response;
      if (!ok) {
        throw { status, statusText, data, config } satisfies FetchError;
      }
      return { data: data as T, status, statusText, ok, headers, redirected, type, url, config };
    };
    run().then(
      (answer) => {
        subscriber.next(answer);
        subscriber.complete();
      },
      (err: unknown) => subscriber.error(err)
    );
    return () => abort.abort();
  });
}

const whole =
  (method: string) =>
  <T>(url: string, data?: unknown): Promise<T> =>
    firstValueFrom(request<T>({ url, method, ...(method === 'GET' ? { params: data as Record<string, unknown> } : { data }) }).pipe(map((r) => r.data)));

export const backend = { fetch: request, get: whole('GET'), post: whole('POST'), put: whole('PUT') };
