import type { QueryEditorProps } from '@grafana/data';
import { InlineField, Input, RadioButtonGroup, Stack, Text } from '@grafana/ui';
import React from 'react';
import type { DataSource } from '../datasource';
import { MAX_DAYS, RESOURCES, type Query, type Resource, type Settings, type VariableQuery } from '../types';
import { DEFAULT_VARIABLE } from '../variableDefaults';

type Props = Pick<QueryEditorProps<DataSource, Query, Settings, VariableQuery>, 'query' | 'onChange' | 'onRunQuery'>;
type Narrow = 'q' | 'team' | 'cluster' | 'namespace' | 'experiment';

const labels: Record<Resource, string> = { experiments: 'Experiments', teams: 'Teams', clusters: 'Clusters', namespaces: 'Namespaces', nodes: 'Nodes' };

const words: Record<Narrow, { label: string; placeholder: string }> = {
  q: { label: 'Name has', placeholder: 'any' },
  team: { label: 'Team', placeholder: 'all, or $team' },
  cluster: { label: 'Cluster', placeholder: 'all, or $cluster' },
  namespace: { label: 'Namespace', placeholder: 'all, or $namespace' },
  experiment: { label: 'Experiment', placeholder: 'all, or $experiment' },
};

/** What each resource can be narrowed by. */
const narrows: Record<Resource, readonly Narrow[]> = {
  experiments: ['q', 'team', 'cluster', 'namespace'],
  teams: ['cluster'],
  clusters: [],
  namespaces: ['team', 'cluster'],
  nodes: ['experiment', 'cluster'],
};

/** The editor of a dashboard's variable: names of what, narrowed by what. */
export function VariableEditor({ query: stored, onChange, onRunQuery }: Props) {
  const query: VariableQuery = { ...DEFAULT_VARIABLE, ...stored };
  const set = (change: Partial<VariableQuery>) => {
    const next = Object.entries({ ...query, ...change, queryType: DEFAULT_VARIABLE.queryType }).filter(([, v]) => v !== undefined && v !== '');
    onChange(Object.fromEntries(next) as unknown as VariableQuery);
  };
  const allowed = narrows[query.resource] ?? [];
  return (
    <Stack direction="column" gap={0.5}>
      <InlineField label="Names of" labelWidth={16}>
        <RadioButtonGroup
          options={RESOURCES.map((value) => ({ value, label: labels[value] }))}
          value={query.resource}
          onChange={(resource) => {
            const gone = Object.fromEntries((Object.keys(words) as Narrow[]).filter((n) => !narrows[resource].includes(n)).map((n) => [n, undefined]));
            set({ ...gone, resource, limit: resource === 'experiments' ? query.limit : undefined });
            onRunQuery();
          }}
        />
      </InlineField>
      {allowed.map((name) => (
        <InlineField key={name} label={words[name].label} labelWidth={16} htmlFor={`variable-${name}`}>
          <Input
            id={`variable-${name}`}
            width={40}
            placeholder={words[name].placeholder}
            value={query[name] ?? ''}
            onChange={(e) => set({ [name]: e.currentTarget.value })}
            onBlur={onRunQuery}
          />
        </InlineField>
      ))}
      {query.resource === 'experiments' && (
        <InlineField label="At most" labelWidth={16} htmlFor="variable-limit" tooltip="Experiments that were seen last come first.">
          <Input
            id="variable-limit"
            type="number"
            min={1}
            width={16}
            placeholder="the back end's"
            value={query.limit ?? ''}
            onChange={(e) => set({ limit: Number(e.currentTarget.value) || undefined })}
            onBlur={onRunQuery}
          />
        </InlineField>
      )}
      <InlineField label="Days back" labelWidth={16} htmlFor="variable-days" tooltip="What was there in these days is listed.">
        <Input
          id="variable-days"
          type="number"
          min={1}
          max={MAX_DAYS}
          width={16}
          placeholder="7"
          value={query.days ?? ''}
          onChange={(e) => set({ days: Number(e.currentTarget.value) || undefined })}
          onBlur={onRunQuery}
        />
      </InlineField>
      <Text color="secondary" variant="bodySmall">
        With the option “All”, write .* as the custom all value: queries then ask for everything, instead of for each name.
      </Text>
    </Stack>
  );
}
