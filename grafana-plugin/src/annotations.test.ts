import { createDataFrame, FieldType, type QueryResultMetaNotice } from '@grafana/data';
import { lastValueFrom } from 'rxjs';
import { annotationSupport, escapeHtml } from './annotations';
import { alerts } from './test/alerts';

const frame = createDataFrame({
  fields: [
    { name: 'time', type: FieldType.time, values: [1000, 2000, null, 3000] },
    { name: 'timeEnd', type: FieldType.time, values: [null, 5000, 1, 3000] },
    { name: 'title', type: FieldType.string, values: ['Xid 79', '<script>alert(1)</script>', 'no time', ''] },
    { name: 'text', type: FieldType.string, values: ['GPU 3 of node-1 & "node-2"', "<b>it's</b>", 'x', ''] },
    { name: 'tags', type: FieldType.string, values: ['xid,gpu', '', 'x', 'restart'] },
    { name: 'id', type: FieldType.string, values: ['1', '2', '3', ''] },
  ],
});

test('rows become events, and HTML in names becomes text', async () => {
  const events = await lastValueFrom(annotationSupport.processEvents!({} as never, [frame]));
  expect(events).toEqual([
    { time: 1000, title: 'Xid 79', text: 'GPU 3 of node-1 &amp; &quot;node-2&quot;', tags: ['xid', 'gpu'], id: '1' },
    { time: 2000, timeEnd: 5000, isRegion: true, title: '&lt;script&gt;alert(1)&lt;/script&gt;', text: '&lt;b&gt;it&#39;s&lt;/b&gt;', tags: [], id: '2' },
    { time: 3000, timeEnd: 3000, isRegion: false, text: '', tags: ['restart'] },
  ]);
  const shown = document.createElement('div');
  shown.innerHTML = events!.map((e) => `${e.title} ${e.text}`).join(' ');
  expect(shown.children).toHaveLength(0);
  expect(shown.textContent).toContain("<b>it's</b>");
});

test('what is missing is told, once', async () => {
  const told = alerts();
  const marks = (notices?: QueryResultMetaNotice[], name = 'Events') =>
    lastValueFrom(annotationSupport.processEvents!({ name, datasource: { uid: 'ds-1' } } as never, [{ ...frame, meta: { notices } }]));
  const away: QueryResultMetaNotice[] = [
    { severity: 'warning', text: 'Shard eu-2 does not answer.' },
    { severity: 'info', text: 'There are no events.' },
  ];
  expect(await marks(away)).toHaveLength(3);
  await marks(away);
  expect(told).toEqual([['Annotations "Events" may not be complete', 'Shard eu-2 does not answer.']]);
  // Where it comes back, and is away again, that is told again.
  await marks();
  await marks(away);
  await marks(away, 'Others');
  expect(told).toHaveLength(3);
});

test('frames without the columns are no events', async () => {
  expect(await lastValueFrom(annotationSupport.processEvents!({} as never, [createDataFrame({ fields: [{ name: 'x', values: [1] }] })]))).toEqual([]);
});

test("an annotation's query is of type events, whatever was stored", () => {
  expect(annotationSupport.prepareQuery!({ name: 'a', enable: true, iconColor: 'red' })).toEqual({ refId: 'Anno', queryType: 'events' });
  expect(
    annotationSupport.prepareQuery!({ name: 'a', enable: true, iconColor: 'red', target: { refId: 'B', queryType: 'pods', experiments: ['$e'] } })
  ).toEqual({
    refId: 'B',
    queryType: 'events',
    experiments: ['$e'],
  });
});

test('escapeHtml', () => {
  expect(escapeHtml('&<>"\'')).toBe('&amp;&lt;&gt;&quot;&#39;');
});
