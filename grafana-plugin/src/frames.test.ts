import { FieldType, getFieldDisplayName, type DataFrame } from '@grafana/data';
import { legible, numbered } from './frames';

const line = (run: string): DataFrame => ({
  refId: 'A',
  length: 1,
  fields: [
    { name: 'Time', type: FieldType.time, config: {}, values: [0] },
    { name: 'Value', type: FieldType.number, config: { displayNameFromDS: run }, labels: { run }, values: [1] },
  ],
});

const names = (frame: DataFrame) => frame.fields.map((f) => f.name);

test('runs are numbered in the order of their names, however they were chosen', () => {
  const chosen = ['c', 'a', 'b', 'a'];
  expect(['a', 'b', 'c'].map((run) => names(numbered(line(run), chosen))[1])).toEqual(['run 1', 'run 2', 'run 3']);
});

test('a run keeps its number where others have no line, and its name is what is shown', () => {
  const frame = numbered(line('c'), ['a', 'b', 'c']);
  expect(names(frame)).toEqual(['Time', 'run 3']);
  expect(getFieldDisplayName(frame.fields[1], frame, [frame])).toBe('c');
});

test('what is no line of a chosen run stays as it is, and what came is not changed', () => {
  const table: DataFrame = { refId: 'A', length: 1, fields: [{ name: 'run', type: FieldType.string, config: {}, values: ['a'] }] };
  expect(numbered(table, ['a'])).toEqual(table);
  expect(names(numbered(line('x'), ['a']))).toEqual(['Time', 'Value']);
  const frame = line('a');
  numbered(frame, ['a']);
  expect(names(frame)).toEqual(['Time', 'Value']);
});

test('a line is called by what can be seen of its name, and its labels are the name', () => {
  const frame = legible(line('a\u202e\nb'));
  expect(getFieldDisplayName(frame.fields[1], frame, [frame])).toBe('a‹U+202E›⏎b');
  expect(frame.fields[1].labels).toEqual({ run: 'a\u202e\nb' });
  expect(frame.fields[0]).toEqual(line('x').fields[0]);
  const long = legible(line('x'.repeat(10_000)));
  expect(getFieldDisplayName(long.fields[1], long, [long])).toHaveLength(261);
});
