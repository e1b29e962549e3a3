import type { DataSourceSettings } from '@grafana/data';
import { render, screen } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import React, { useState } from 'react';
import { DEFAULT_LABELS, type Settings } from '../types';
import { ConfigEditor } from './ConfigEditor';

function open(jsonData: Settings = {}, readOnly = false) {
  let options = {
    id: 1,
    uid: 'ds-1',
    name: 'Experiments',
    url: '',
    access: 'proxy',
    jsonData,
    secureJsonFields: {},
    readOnly,
  } as unknown as DataSourceSettings<Settings>;
  function Page() {
    const [o, set] = useState(options);
    options = o;
    return <ConfigEditor options={o} onOptionsChange={set} />;
  }
  render(<Page />);
  return { settings: () => options.jsonData, url: () => options.url, user: userEvent.setup({ delay: null }) };
}

test('the address of the proxy', async () => {
  const { url, user } = open();
  await user.type(screen.getByPlaceholderText('http://spillway:9090'), 'http://proxy:9090');
  expect(url()).toBe('http://proxy:9090');
});

test('the chain of labels: default, order, own ones, and back', async () => {
  const { settings, user } = open();
  const shown = () => screen.getAllByLabelText(/^Label \d+$/).map((e) => (e as HTMLInputElement).value);
  expect(shown()).toEqual([...DEFAULT_LABELS]);
  await user.click(screen.getByRole('button', { name: /Label 2 up/ }));
  expect(settings().labels!.slice(0, 2)).toEqual([DEFAULT_LABELS[1], DEFAULT_LABELS[0]]);
  await user.click(screen.getByRole('button', { name: /Remove label 1/ }));
  expect(settings().labels).toEqual([DEFAULT_LABELS[0], ...DEFAULT_LABELS.slice(2)]);
  await user.click(screen.getByRole('button', { name: 'Add label' }));
  await user.type(screen.getByLabelText(`Label ${DEFAULT_LABELS.length}`), 'my-run');
  expect(settings().labels!.at(-1)).toBe('label_my-run');
  expect(screen.getByText(/A label of kube_pod_labels/)).toBeInTheDocument();
  await user.click(screen.getByRole('button', { name: 'Default chain' }));
  expect(settings()).toEqual({});
  expect(shown()).toEqual([...DEFAULT_LABELS]);
});

test('the only label cannot be removed', () => {
  open({ labels: ['label_run'] });
  expect(screen.getByRole('button', { name: /Remove label 1/ })).toBeDisabled();
});

test('prices', async () => {
  const { settings, user } = open();
  await user.type(screen.getByLabelText('Add a model'), 'NVIDIA H100 80GB HBM3{Enter}');
  const price = screen.getByLabelText('NVIDIA H100 80GB HBM3');
  await user.clear(price);
  await user.type(price, '2.50');
  await user.type(screen.getByLabelText('Add a model'), 'default');
  await user.click(screen.getByRole('button', { name: 'Add model' }));
  expect(settings().prices).toEqual({ 'NVIDIA H100 80GB HBM3': 2.5, default: 0 });
  await user.type(screen.getByLabelText('Add a model'), 'default');
  expect(screen.getByText('It has a price already')).toBeInTheDocument();
  await user.click(screen.getByRole('button', { name: /Remove price of NVIDIA/ }));
  await user.click(screen.getByRole('button', { name: /Remove price of default/ }));
  expect(settings()).toEqual({});
});

test('links: what is wrong, and what one leads to', async () => {
  const { settings, user } = open();
  await user.click(screen.getByRole('button', { name: 'Add link' }));
  expect(screen.getByText('What the link is called')).toBeInTheDocument();
  await user.type(screen.getByLabelText('Title of link 1'), 'W&B');
  const url = screen.getByLabelText('URL of link 1');
  await user.clear(url);
  await user.paste('javascript:alert(1)');
  expect(screen.getByText(/It begins with https/)).toBeInTheDocument();
  await user.clear(url);
  await user.paste('https://wandb.ai/lab/runs?search=${experiment}');
  expect(screen.getByText('Such as https://wandb.ai/lab/runs?search=llm-70b%2Frun%207')).toBeInTheDocument();
  expect(settings().links).toEqual([{ title: 'W&B', url: 'https://wandb.ai/lab/runs?search=${experiment}' }]);
  await user.click(screen.getByRole('button', { name: /Remove link 1/ }));
  expect(settings()).toEqual({});
});

test('numbers and text: what is empty is not stored', async () => {
  const { settings, user } = open();
  const rows = screen.getByLabelText(/Most rows of a table/);
  expect(rows).toHaveAttribute('placeholder', '1000');
  await user.type(rows, '20000');
  expect(screen.getByText('A whole number from 1 to 10000')).toBeInTheDocument();
  await user.clear(rows);
  await user.type(screen.getByLabelText(/Idle below/), '0');
  await user.type(screen.getByLabelText(/Currency/), 'eur');
  expect(screen.getByText('Three capital letters, such as USD')).toBeInTheDocument();
  await user.click(screen.getByRole('radio', { name: 'Refuse' }));
  expect(settings()).toEqual({ idleBelow: 0, currency: 'eur', partialResponse: 'abort' });
  await user.click(screen.getByRole('radio', { name: "As the proxy's" }));
  expect(settings()).toEqual({ idleBelow: 0, currency: 'eur' });
});

test('a provisioned datasource cannot be changed here', () => {
  open({ labels: ['label_run', 'label_b'], prices: { H100: 2 }, links: [{ title: 'a', url: 'https://h/' }] }, true);
  for (const name of [/^Label 1$/, /^H100$/, /Title of link 1/, /Most rows/, /Add a model/]) {
    expect(screen.getByLabelText(name)).toBeDisabled();
  }
  for (const name of [/Add label/, /Remove label 1/, /Remove price/, /Remove link 1/, /Default chain/]) {
    expect(screen.getByRole('button', { name })).toBeDisabled();
  }
});
