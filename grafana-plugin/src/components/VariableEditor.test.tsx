import { render, screen } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import React, { useState } from 'react';
import type { VariableQuery } from '../types';
import { DEFAULT_VARIABLE } from '../variableDefaults';
import { VariableEditor } from './VariableEditor';

function open(first: Partial<VariableQuery> | undefined) {
  let query = first as VariableQuery;
  function Page() {
    const [q, set] = useState(query);
    query = q;
    return <VariableEditor query={q} onChange={set} onRunQuery={() => {}} />;
  }
  render(<Page />);
  return { query: () => query, user: userEvent.setup({ delay: null }) };
}

test('a new variable is of experiments, and what is typed narrows it', async () => {
  const { query, user } = open(undefined);
  expect(screen.getByRole('radio', { name: 'Experiments' })).toBeChecked();
  await user.type(screen.getByLabelText('Name has'), 'llm');
  await user.type(screen.getByLabelText('Team'), '$team');
  await user.type(screen.getByLabelText('At most'), '20');
  await user.type(screen.getByLabelText('Days back'), '30');
  expect(query()).toEqual({ ...DEFAULT_VARIABLE, q: 'llm', team: '$team', limit: 20, days: 30 });
  await user.clear(screen.getByLabelText('Team'));
  expect(query()).toEqual({ ...DEFAULT_VARIABLE, q: 'llm', limit: 20, days: 30 });
});

test('another resource loses what does not narrow it', async () => {
  const { query, user } = open({ ...DEFAULT_VARIABLE, q: 'llm', team: '$team', cluster: '$cluster', limit: 5, days: 14 });
  await user.click(screen.getByRole('radio', { name: 'Nodes' }));
  expect(query()).toEqual({ ...DEFAULT_VARIABLE, resource: 'nodes', cluster: '$cluster', days: 14 });
  await user.type(screen.getByLabelText('Experiment'), '$experiment');
  expect(query().experiment).toBe('$experiment');
  await user.click(screen.getByRole('radio', { name: 'Clusters' }));
  expect(query()).toEqual({ ...DEFAULT_VARIABLE, resource: 'clusters', days: 14 });
  expect(screen.queryByLabelText('Cluster')).not.toBeInTheDocument();
});
