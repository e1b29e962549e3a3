import { experimentChoices, parseExperiments, parseNames, variableValues } from './resources';
import { messageOf, shown } from './text';

test('experiments: one choice for each name, described by what is known of it', () => {
  const experiments = parseExperiments([
    { name: 'b', team: 'nlp', cluster: 'jaguar', state: 'running', gpus: 8 },
    { name: 'a', team: '', cluster: 'lynx', state: 'ended' },
    { name: 'b', team: 'nlp', cluster: 'lynx', state: 'pending' },
    { name: 'c' },
    { team: 'nameless' },
    null,
    'text',
  ]);
  expect(experimentChoices(experiments)).toEqual([
    { label: 'b', value: 'b', description: 'running, pending · nlp · jaguar, lynx' },
    { label: 'a', value: 'a', description: 'ended · lynx' },
    { label: 'c', value: 'c', description: undefined },
  ]);
});

test('an answer of another form is an error that names the resource', () => {
  expect(() => parseExperiments({ items: [] })).toThrow('/experiments answered with something that is no list');
  expect(() => parseNames('<html>', 'teams')).toThrow('/teams answered');
  expect(parseNames(['a', 1, null, 'b'], 'teams')).toEqual(['a', 'b']);
});

test('a variable offers each name once, in letters that can be seen', () => {
  expect(variableValues(['b', 'a\u202e', 'b'])).toEqual([
    { text: 'b', value: 'b' },
    { text: 'a‹U+202E›', value: 'a\u202e' },
  ]);
});

test.each<[string, string]>([
  ['llm-1', 'llm-1'],
  ['<img src=x onerror=alert(1)>', '<img src=x onerror=alert(1)>'],
  ['two\nlines', 'two⏎lines'],
  ['a\u202eb\u200bc\u0000', 'a‹U+202E›b‹U+200B›c‹U+0000›'],
  ['übung 実験 🚀', 'übung 実験 🚀'],
  ['🚀'.repeat(300), '🚀'.repeat(260) + '…'],
  ['x'.repeat(10_000), 'x'.repeat(260) + '…'],
  ['x'.repeat(260), 'x'.repeat(260)],
])('shown %#', (name, want) => {
  expect(shown(name)).toBe(want);
});

test.each<[unknown, string]>([
  [new Error('no route'), 'no route'],
  [{ data: { message: 'refused: max_series' }, statusText: 'Bad Request' }, 'refused: max_series'],
  [{ data: { error: 'denied' } }, 'denied'],
  [{ statusText: 'Bad Gateway', data: {} }, 'Bad Gateway'],
  ['text', 'text'],
  [null, 'null'],
])('messageOf %#', (error, want) => {
  expect(messageOf(error)).toBe(want);
});
