import { AppEvents } from '@grafana/data';
import { setAppEvents } from '@grafana/runtime';

/** The warnings that Grafana shows above everything, from now on: title and text of each. */
export function alerts(): unknown[] {
  const told: unknown[] = [];
  const publish = ({ type, payload }: { type: string; payload?: unknown }) => type === AppEvents.alertWarning.name && told.push(payload);
  setAppEvents({ publish } as never);
  return told;
}
