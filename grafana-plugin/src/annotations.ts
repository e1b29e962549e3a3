import type { AnnotationEvent, AnnotationSupport, DataFrame } from '@grafana/data';
import { of } from 'rxjs';
import { AnnotationEditor } from './components/AnnotationEditor';
import type { Query } from './types';
import { tell } from './warnings';

/** Grafana shows an annotation's title and text as HTML. Ours are text: names in them come from labels, which anybody may write. */
export function escapeHtml(text: string): string {
  return text.replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/>/g, '&gt;').replace(/"/g, '&quot;').replace(/'/g, '&#39;');
}

/** The events of frames of query type events: one for each row that has a time. */
export function eventsOf(frames: DataFrame[]): AnnotationEvent[] {
  return frames.flatMap((frame) => {
    const column = (name: string) => frame.fields.find((f) => f.name === name)?.values;
    const [time, timeEnd, title, text, tags, id] = ['time', 'timeEnd', 'title', 'text', 'tags', 'id'].map(column);
    const events: AnnotationEvent[] = [];
    for (let row = 0; row < frame.length; row++) {
      if (typeof time?.[row] !== 'number') {
        continue;
      }
      const event: AnnotationEvent = {
        time: time[row],
        text: escapeHtml(String(text?.[row] ?? '')),
        tags: String(tags?.[row] ?? '')
          .split(',')
          .filter(Boolean),
      };
      if (typeof timeEnd?.[row] === 'number') {
        event.timeEnd = timeEnd[row];
        event.isRegion = timeEnd[row] > time[row];
      }
      if (title?.[row]) {
        event.title = escapeHtml(String(title[row]));
      }
      if (id?.[row]) {
        event.id = String(id[row]);
      }
      events.push(event);
    }
    return events;
  });
}

/** Notices that are more than words about what is there. */
const warningsOf = (frames: DataFrame[]) => frames.flatMap((f) => f.meta?.notices ?? []).flatMap((n) => (n.severity === 'info' ? [] : [n.text]));

export const annotationSupport: AnnotationSupport<Query> = {
  QueryEditor: AnnotationEditor,
  getDefaultQuery: () => ({ queryType: 'events' }),
  prepareQuery: (annotation) => ({ refId: 'Anno', ...annotation.target, queryType: 'events' }),
  processEvents: (annotation, frames) => {
    const name = annotation.name ?? '';
    tell(`annotations ${annotation.datasource?.uid} ${name}`, `Annotations "${name}" may not be complete`, warningsOf(frames));
    return of(eventsOf(frames));
  },
};
