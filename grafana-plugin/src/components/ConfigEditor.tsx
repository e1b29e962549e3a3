import type { DataSourcePluginOptionsEditorProps } from '@grafana/data';
import { config } from '@grafana/runtime';
import { DataSourceHttpSettings, Field, FieldSet, Input, RadioButtonGroup, Text } from '@grafana/ui';
import React from 'react';
import { DEFAULTS, settingsProblems } from '../settings';
import { CEILING, type Settings } from '../types';
import { LabelsEditor } from './LabelsEditor';
import { LinksEditor } from './LinksEditor';
import { PricesEditor } from './PricesEditor';

type Props = DataSourcePluginOptionsEditorProps<Settings>;
type Words = { label: string; description: string };
type NumberField = 'idleBelow' | 'stragglerBelow' | 'maxSeries' | 'maxRows';
type TextField = 'ruleInterval' | 'currency' | 'nodeDashboard' | 'gpuDashboard' | 'podDashboard';

const words: Record<NumberField | TextField, Words> = {
  ruleInterval: { label: 'Interval of the rules', description: 'How often experiment:pod:gpus and the others are recorded. GPU hours are counted by it.' },
  idleBelow: { label: 'Idle below, percent', description: 'A GPU that is held and used less than this counts as idle.' },
  stragglerBelow: {
    label: 'Straggler below, share of the median',
    description: 'A GPU that does less than this share of what the middle one does is a straggler.',
  },
  currency: { label: 'Currency', description: 'Three letters, such as USD or EUR.' },
  maxSeries: { label: 'Most lines of a panel', description: `At most ${CEILING}. What is left out is told by a notice.` },
  maxRows: { label: 'Most rows of a table', description: `At most ${CEILING}. What is left out is told by a notice.` },
  nodeDashboard: { label: 'Dashboard of a node', description: 'UID of the dashboard that nodes link to, with var-cluster and var-node; - for none.' },
  gpuDashboard: { label: 'Dashboard of a GPU', description: 'UID of the dashboard that GPUs link to; - for none.' },
  podDashboard: { label: 'Dashboard of a pod', description: 'UID of the dashboard that pods link to; - for none.' },
};

const partial = [
  { value: '', label: "As the proxy's" },
  { value: 'warn', label: 'Warn' },
  { value: 'abort', label: 'Refuse' },
] as const;

/** The settings of an instance: Grafana's own for the proxy's address, TLS and credentials, then ours. */
export function ConfigEditor({ options, onOptionsChange }: Props) {
  const settings = options.jsonData;
  const wrong = settingsProblems(settings);
  const disabled = options.readOnly;
  const set = (change: Partial<Settings>) => {
    const kept = Object.entries({ ...settings, ...change }).filter(([, v]) => v !== undefined && v !== '');
    onOptionsChange({ ...options, jsonData: Object.fromEntries(kept) });
  };
  const field = (name: NumberField | TextField, input: React.ReactElement) => (
    <Field
      key={name}
      label={words[name].label}
      description={words[name].description}
      htmlFor={`config-${name}`}
      invalid={Boolean(wrong[name])}
      error={wrong[name]}
      disabled={disabled}
    >
      {input}
    </Field>
  );
  const text = (name: TextField) =>
    field(
      name,
      <Input
        id={`config-${name}`}
        width={40}
        placeholder={DEFAULTS[name]}
        value={settings[name] ?? ''}
        onChange={(e) => set({ [name]: e.currentTarget.value.trim() })}
      />
    );
  const number = (name: NumberField, step: string) =>
    field(
      name,
      <Input
        id={`config-${name}`}
        type="number"
        step={step}
        width={40}
        placeholder={String(DEFAULTS[name])}
        value={settings[name] ?? ''}
        onChange={(e) => set({ [name]: e.currentTarget.value === '' ? undefined : Number(e.currentTarget.value) })}
      />
    );

  return (
    <>
      {/* Its successor is no part of Grafana: it would be bundled, and look like the version that we bundled. */}
      {/* eslint-disable-next-line @typescript-eslint/no-deprecated */}
      <DataSourceHttpSettings
        defaultUrl="http://spillway:9090"
        urlLabel="URL of the proxy"
        urlDocs={<Text>Spillway&apos;s query proxy. A single Prometheus works too, without bounds and without other clusters.</Text>}
        dataSourceConfig={options}
        onChange={onOptionsChange}
        showAccessOptions={false}
        showForwardOAuthIdentityOption
        secureSocksDSProxyEnabled={config.secureSocksDSProxyEnabled}
      />
      <FieldSet label="Experiments">
        <LabelsEditor labels={settings.labels} problems={wrong} disabled={disabled} onChange={(labels) => set({ labels })} />
        {text('ruleInterval')}
        {number('stragglerBelow', '0.05')}
        {number('idleBelow', '1')}
      </FieldSet>
      <FieldSet label="Prices">
        <PricesEditor prices={settings.prices} problems={wrong} disabled={disabled} onChange={(prices) => set({ prices })} />
        {text('currency')}
      </FieldSet>
      <FieldSet label="Links">
        <LinksEditor links={settings.links} problems={wrong} disabled={disabled} onChange={(links) => set({ links })} />
        {text('nodeDashboard')}
        {text('gpuDashboard')}
        {text('podDashboard')}
      </FieldSet>
      <FieldSet label="Bounds">
        {number('maxSeries', '1')}
        {number('maxRows', '1')}
        <Field
          label="When a shard does not answer"
          description="Warn: what the others have, with a notice. Refuse: an error. It matters only where the proxy lets queries choose."
          disabled={disabled}
        >
          <RadioButtonGroup
            options={[...partial]}
            value={settings.partialResponse ?? ''}
            disabled={disabled}
            onChange={(partialResponse) => set({ partialResponse })}
          />
        </Field>
      </FieldSet>
    </>
  );
}
