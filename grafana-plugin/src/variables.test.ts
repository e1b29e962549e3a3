import { templates } from './test/templates';
import { MAX_NAMES } from './types';
import { namesOf, namesOfList, promql } from './variables';

const hostile = [
  'a,b',
  '{x,y}',
  '$other',
  '"quoted"',
  "it's",
  'a|b.*',
  'line\nbreak',
  '\u202eright to left',
  '<b>bold</b>',
  '\u{10FFFD}0\u{10FFFD}',
  '\\',
  'x'.repeat(10_000),
];

const variables = templates({
  one: 'llm-1',
  many: ['a', 'b', 'c'],
  other: 'must not be looked up',
  everything: { all: '.*' },
  odd: { all: 'prod-.*' },
  nothing: [],
  unset: '',
  number: 7,
  hostile,
  dots: '.*',
});

describe('namesOf', () => {
  test.each<[string, string[] | undefined]>([
    ['llm-1', ['llm-1']],
    ['', ['']],
    ['$one', ['llm-1']],
    ['${one}', ['llm-1']],
    ['[[one]]', ['llm-1']],
    ['$many', ['a', 'b', 'c']],
    ['run-$many', ['run-a', 'run-b', 'run-c']],
    ['$many-${many}', ['a-a', 'a-b', 'a-c', 'b-a', 'b-b', 'b-c', 'c-a', 'c-b', 'c-c']],
    ['$number', ['7']],
    // A variable that is not there stays as it is written, and so finds nothing.
    ['$missing', ['$missing']],
    // All, as the custom all value has it, is no name; the same text as a name or a value is one.
    ['$everything', undefined],
    ['.*', ['.*']],
    ['$dots', ['.*']],
    ['$odd', ['prod-.*']],
    // Nothing chosen is not everything.
    ['$nothing', ['']],
    ['$unset', ['']],
    ['$hostile', hostile],
    // Marks of our own in stored text are text.
    ['\u{10FFFD}5\u{10FFFD}$one', ['\u{10FFFD}5\u{10FFFD}llm-1']],
    ['\u{10FFFD}$one', ['\u{10FFFD}llm-1']],
  ])('%s', (element, want) => {
    expect(namesOf(element, variables)).toEqual(want);
  });

  test('values of a repeated panel go before the dashboard', () => {
    expect(namesOf('$one', variables, { one: { text: 'x', value: 'repeated' } })).toEqual(['repeated']);
  });

  test('does not grow without bound', () => {
    const large = templates({ x: Array.from({ length: 1000 }, (_, i) => `n${i}`) });
    expect(namesOf('$x$x$x', large)).toHaveLength(MAX_NAMES + 1);
  });
});

describe('namesOfList', () => {
  test.each<[string, string[] | undefined, string[] | undefined]>([
    ['no list', undefined, undefined],
    ['an empty list', [], undefined],
    ['each once, in order', ['b', '$many', 'z', 'a'], ['b', 'a', 'c', 'z']],
    ['one element that stands for all', ['a', '$everything'], undefined],
    ['a variable without a value', ['$nothing'], ['']],
  ])('%s', (_, list, want) => {
    expect(namesOfList(list, variables)).toEqual(want);
  });

  test('one more than is allowed is left for the back end to refuse', () => {
    const large = templates({ x: Array.from({ length: 1000 }, (_, i) => `n${i}`) });
    expect(namesOfList(['$x', 'more'], large)).toHaveLength(MAX_NAMES + 1);
  });
});

describe('promql', () => {
  test.each<[unknown, { multi?: boolean; includeAll?: boolean } | undefined, string]>([
    ['a.b', undefined, 'a.b'],
    ['a"b\\c\nd', undefined, 'a\\"b\\\\c\\nd'],
    ['a.b', { multi: true }, 'a\\\\.b'],
    ['a.b', { includeAll: true }, 'a\\\\.b'],
    [['a.b', 'c'], { multi: true }, '(a\\\\.b|c)'],
    [['a|b'], { multi: true }, 'a\\\\|b'],
    [7, undefined, '7'],
    ["it's", undefined, 'it\\x27s'],
    [["it's", 'b"'], { multi: true }, '(it\\x27s|b\\")'],
    [undefined, undefined, ''],
  ])('%j %j', (value, variable, want) => {
    expect(promql(value, variable)).toBe(want);
  });
});
