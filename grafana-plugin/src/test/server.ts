import { setBackendSrv, type BackendSrvRequest } from '@grafana/runtime';
import { of, throwError } from 'rxjs';

/** What is asked: the path without that of the datasource, and the parameters. */
export interface Asked {
  path: string;
  params: Record<string, unknown>;
  data?: unknown;
}

/** Stands for Grafana's server: answers by the resource's name, and keeps what it was asked. An Error as an answer is a failure. */
export function serve(answers: Record<string, unknown>): Asked[] {
  const asked: Asked[] = [];
  const answer = (request: BackendSrvRequest) => {
    const path = request.url.replace(/^\/api\/datasources\/uid\/ds-1\/resources\//, '');
    asked.push({ path, params: (request.params ?? {}) as Record<string, unknown>, data: request.data });
    const found = answers[path.replace(/\?.*/, '')];
    return found instanceof Error ? throwError(() => found) : of({ data: found, status: 200, ok: true });
  };
  setBackendSrv({ fetch: answer } as never);
  return asked;
}
