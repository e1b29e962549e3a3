// Annotations and lists have no place for warnings of their own, as panels have: Grafana shows them above everything.
import { AppEvents } from '@grafana/data';
import { getAppEvents } from '@grafana/runtime';

const told = new Map<string, string>();

/** Shows the warnings about one thing, unless it said the same the last time, but for numbers: dashboards are drawn again each minute. */
export function tell(about: string, title: string, warnings: string[]): void {
  const text = [...new Set(warnings)].join('\n');
  const said = text.replace(/\d+/g, '#');
  const before = told.get(about) ?? '';
  told.set(about, said);
  if (text && said !== before) {
    getAppEvents()?.publish({ type: AppEvents.alertWarning.name, payload: [title, text] });
  }
}
