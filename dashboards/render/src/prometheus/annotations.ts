// Annotations from a PromQL query: where its value is not zero something was the case; points a step apart are one region.
import type { AnnotationEvent, DataFrame } from '@grafana/data';

export interface PromAnnotation {
  expr?: string;
  step?: string;
  titleFormat?: string;
  textFormat?: string;
  tagKeys?: string;
  useValueForTime?: boolean;
}

function fill(format: string, labels: Record<string, string>): string {
  return format.replace(/\{\{\s*(.+?)\s*\}\}/g, (_, label: string) => labels[label] ?? '');
}

/** events reads one frame for each series. */
export function events(annotation: PromAnnotation, frames: DataFrame[], stepMs: number): AnnotationEvent[] {
  const out: AnnotationEvent[] = [];
  const tagKeys = (annotation.tagKeys ?? '')
    .split(',')
    .map((key) => key.trim())
    .filter(Boolean);
  for (const frame of frames) {
    const time = frame.fields[0];
    const value = frame.fields[1];
    if (!time || !value) {
      continue;
    }
    const labels = value.labels ?? {};
    const texts = {
      title: fill(annotation.titleFormat ?? '', labels),
      text: fill(annotation.textFormat ?? '', labels),
      tags: tagKeys.map((key) => labels[key] ?? '').filter(Boolean),
    };
    let open: AnnotationEvent | undefined;
    for (let i = 0; i < frame.length; i++) {
      const v = value.values[i] as number;
      if (!v) {
        continue;
      }
      if (annotation.useValueForTime) {
        const at = Math.floor(v);
        if (out.every((e) => e.time !== at || e.title !== texts.title)) {
          out.push({ ...texts, time: at, timeEnd: at });
        }
        continue;
      }
      const at = time.values[i] as number;
      if (open && at - open.timeEnd! <= stepMs) {
        open.timeEnd = at;
        open.isRegion = true;
        continue;
      }
      open = { ...texts, time: at, timeEnd: at };
      out.push(open);
    }
  }
  return out;
}
