import { render, screen, waitFor, within } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import React, { useState } from 'react';
import { datasource } from '../test/datasource';
import { serve } from '../test/server';
import type { Query } from '../types';
import { QueryEditor } from './QueryEditor';

/** The editor in a panel that keeps what it is given. */
function open(first: Partial<Query>, variables: Parameters<typeof datasource>[0] = {}) {
  const ds = datasource(variables);
  const run = jest.fn();
  let query = { refId: 'A', queryType: 'experiments', ...first } as Query;
  function Panel() {
    const [q, set] = useState(query);
    query = q;
    return <QueryEditor datasource={ds} query={q} onChange={set} onRunQuery={run} />;
  }
  render(<Panel />);
  return { run, query: () => query, user: userEvent.setup({ delay: null }) };
}

const hostile = ['<img src=x onerror="window.hit=1">', 'a,b|c.*{}', 'line\nbreak', '\u202ereversed', 'y'.repeat(10_000)];

beforeEach(() => {
  serve({
    experiments: [
      { name: 'llm-7b', team: 'nlp', cluster: 'jaguar', state: 'running' },
      { name: 'llm-70b', team: 'nlp', cluster: 'lynx', state: 'ended' },
    ],
    clusters: ['jaguar', 'lynx'],
    namespaces: ['research'],
    teams: ['nlp', 'vision'],
  });
});

test('typing searches experiments, and a click chooses one', async () => {
  const asked = serve({ experiments: [{ name: 'llm-7b', team: 'nlp', cluster: 'jaguar', state: 'running' }] });
  const { query, run, user } = open({ teams: ['$team'] }, { team: ['nlp', 'vision'] });
  await user.type(screen.getByLabelText('Experiments'), 'llm');
  const option = await screen.findByRole('option', { name: /llm-7b/ });
  expect(within(option).getByText('running · nlp · jaguar')).toBeInTheDocument();
  await user.click(option);
  expect(query()).toEqual({ refId: 'A', queryType: 'experiments', teams: ['$team'], experiments: ['llm-7b'] });
  expect(run).toHaveBeenCalledTimes(1);
  // The search is the back end's, narrowed by what else is chosen, and not one request for each letter.
  const searches = asked.filter((a) => a.path === 'experiments');
  expect(searches.at(-1)!.params).toEqual({ limit: 50, q: ['llm'], team: ['nlp', 'vision'], warnings: 1 });
  expect(searches.length).toBeLessThanOrEqual(2);
});

test('runs to compare are searched as far back as they are compared', async () => {
  const asked = serve({ experiments: [{ name: 'llm-7b' }] });
  const { user } = open({ queryType: 'compare' });
  await user.type(screen.getByLabelText('Experiments'), 'llm');
  await screen.findByRole('option', { name: /llm-7b/ });
  expect(asked.at(-1)!.params).toEqual({ limit: 50, q: ['llm'], days: 30, warnings: 1 });
});

test('a name that is not listed can be typed, and a variable chosen', async () => {
  const { query, user } = open({}, { experiment: ['x'] });
  const picker = screen.getByLabelText('Experiments');
  await user.type(picker, '$exp');
  await user.click(await screen.findByRole('option', { name: /\$experiment/ }));
  await user.clear(picker);
  await user.type(picker, 'long-gone');
  await user.click(await screen.findByRole('option', { name: /long-gone/ }));
  expect(query().experiments).toEqual(['$experiment', 'long-gone']);
});

test('names are removed one by one, and an empty list is not stored', async () => {
  const { query, user } = open({ clusters: ['jaguar', 'lynx'] });
  await user.click(screen.getByRole('button', { name: 'Remove jaguar' }));
  expect(query().clusters).toEqual(['lynx']);
  await user.click(screen.getByRole('button', { name: 'Remove lynx' }));
  expect(query()).toEqual({ refId: 'A', queryType: 'experiments' });
});

test('hostile names show as text, and are sent as they are', async () => {
  serve({ experiments: hostile.map((name) => ({ name })) });
  const { query, user } = open({});
  await user.click(screen.getByLabelText('Experiments'));
  await screen.findAllByRole('option');
  for (const part of [/<img src=x/, /a,b\|c/, /line⏎break/, /‹U\+202E›reversed/, /y{260}…/]) {
    await user.click(screen.getByRole('option', { name: part }));
  }
  expect(query().experiments).toEqual(hostile);
  expect(document.querySelector('img[src="x"]')).toBeNull();
  expect(window).not.toHaveProperty('hit');
  expect(document.body.textContent).not.toContain('y'.repeat(300));
});

test('a list that cannot be had says why, and names can still be typed', async () => {
  serve({ experiments: Object.assign(new Error('x'), { data: { message: 'refused: max_series 50000' } }) });
  const { query, user } = open({});
  await user.type(screen.getByLabelText('Experiments'), 'mine');
  expect(await screen.findByText(/No list of names: refused: max_series 50000/)).toBeInTheDocument();
  await user.click(await screen.findByRole('option', { name: /mine/ }));
  expect(query().experiments).toEqual(['mine']);
});

test('another type: what it does not have goes, its help is shown, the query runs', async () => {
  const { query, run, user } = open({ experiments: ['llm-7b'], search: 'left over', limit: 5 });
  await user.click(screen.getByLabelText('Show'));
  await user.click(await screen.findByRole('option', { name: /Stragglers/ }));
  expect(query()).toEqual({ refId: 'A', queryType: 'stragglers', experiments: ['llm-7b'], limit: 5 });
  expect(run).toHaveBeenCalledTimes(1);
  expect(screen.getByText(/GPUs that do less than the others/)).toBeInTheDocument();
  expect(screen.queryByLabelText('Name has')).not.toBeInTheDocument();
});

test('metric, group by, rank and their bounds', async () => {
  const { query, user } = open({ queryType: 'gpu_timeseries' });
  await user.click(screen.getByLabelText('Metric'));
  await user.click(await screen.findByRole('option', { name: /Power/ }));
  await user.click(screen.getByLabelText('Group by'));
  await user.click(await screen.findByRole('option', { name: 'Node' }));
  await user.click(screen.getByRole('option', { name: 'GPU' }));
  await user.keyboard('{Escape}');
  await user.click(screen.getByRole('radio', { name: 'Smallest' }));
  expect(query()).toEqual({ refId: 'A', queryType: 'gpu_timeseries', metric: 'power', groupBy: ['node', 'gpu'], rank: 'bottom', k: 10 });
  const k = screen.getByLabelText('How many');
  await user.clear(k);
  await user.type(k, '500');
  expect(query().k).toBe(500);
  expect(screen.getByText('A whole number from 1 to 100')).toBeInTheDocument();
  await user.click(screen.getByRole('radio', { name: 'All' }));
  expect(query()).not.toHaveProperty('rank');
  expect(query()).not.toHaveProperty('k');
});

test('views', async () => {
  const { query, user } = open({ queryType: 'cost' });
  expect(screen.getByRole('radio', { name: 'Table' })).toBeChecked();
  expect(screen.getByLabelText('Rows')).toBeInTheDocument();
  await user.click(screen.getByRole('radio', { name: 'Totals' }));
  expect(query().view).toBe('total');
  expect(screen.queryByLabelText('Rows')).not.toBeInTheDocument();
});

test('a comparison says how many runs it wants', () => {
  open({ queryType: 'compare', experiments: ['one'] });
  expect(screen.getByText('A comparison is of 2 to 8 runs, and 1 is chosen')).toBeInTheDocument();
});

test('typed text runs the query on Enter and when the field is left, not for each letter', async () => {
  const { query, run, user } = open({});
  await user.type(screen.getByLabelText('Name has'), 'llm');
  expect(query().search).toBe('llm');
  expect(run).not.toHaveBeenCalled();
  await user.keyboard('{Enter}');
  expect(run).toHaveBeenCalledTimes(1);
  await user.tab();
  expect(run).toHaveBeenCalledTimes(2);
});

test('PromQL: empty is named; Ctrl+Enter runs it; legend and instant', async () => {
  const { query, run, user } = open({ queryType: 'promql' });
  expect(screen.getByText(/Write PromQL, such as/)).toBeInTheDocument();
  const text = screen.getByLabelText('PromQL');
  await user.click(text);
  await user.paste('avg by (node) (experiment:gpu:util{$__experiment})');
  expect(screen.queryByText(/Write PromQL, such as/)).not.toBeInTheDocument();
  await user.keyboard('{Control>}{Enter}{/Control}');
  expect(run).toHaveBeenCalledTimes(1);
  await user.click(screen.getByLabelText('Legend'));
  await user.paste('{{node}}');
  await user.click(screen.getByRole('switch', { name: /Instant/ }));
  expect(query()).toEqual({ refId: 'A', queryType: 'promql', expr: 'avg by (node) (experiment:gpu:util{$__experiment})', legend: '{{node}}', instant: true });
});

test('a query of a later version is shown as what it is', () => {
  open({ queryType: 'forecast' as Query['queryType'] });
  expect(screen.getByText('Queries of type forecast are unknown to this version of the plugin.')).toBeInTheDocument();
});

test('a new panel without a type shows the default one', async () => {
  open({ queryType: undefined });
  await waitFor(() => expect(screen.getByLabelText('Show')).toHaveValue('Experiments'));
});
