import type { QueryEditorProps } from '@grafana/data';
import { Combobox, InlineField, InlineFieldRow, InlineSwitch, Input, MultiCombobox, RadioButtonGroup, Stack, Text, TextArea } from '@grafana/ui';
import React from 'react';
import type { DataSource } from '../datasource';
import { DEFAULT_QUERY, GROUP_LABEL_NAMES, KINDS, METRIC_LABELS, VIEW_LABELS, compact, fieldsOf, problems, viewOf, withType, type Field } from '../query';
import { GROUP_LABELS, MAX_K, METRICS, QUERY_TYPES, VIEWS, type GroupLabel, type Query, type Settings } from '../types';
import { ChoiceFields } from './ChoiceFields';

type Props = QueryEditorProps<DataSource, Query, Settings>;

const types = QUERY_TYPES.map((value) => ({ value, label: KINDS[value].label, description: KINDS[value].help }));
const metrics = METRICS.map((value) => ({ value, label: METRIC_LABELS[value].label, description: METRIC_LABELS[value].help }));
const groups = GROUP_LABELS.map((value) => ({ value, label: GROUP_LABEL_NAMES[value] }));
const ranks: Array<{ value: 'all' | 'top' | 'bottom'; label: string }> = [
  { value: 'all', label: 'All' },
  { value: 'top', label: 'Largest' },
  { value: 'bottom', label: 'Smallest' },
];

/** Text of a number's field as a number; empty text is undefined. What is no number stays NaN, which the query's problems name. */
function numberOf(text: string): number | undefined {
  return text === '' ? undefined : Number(text);
}

export function QueryEditor({ datasource, query: stored, onChange, onRunQuery }: Props) {
  const query: Query = { ...stored, queryType: stored.queryType ?? DEFAULT_QUERY.queryType };
  const id = (name: string) => `${name}-${query.refId}`;
  const has = (field: Field) => fieldsOf(query).includes(field);
  const wrong = problems(query);
  /** Changes that are made by one click run the query; typed text runs it when the field is left or on Enter. */
  const set = (change: Partial<Query>) => onChange(compact({ ...query, ...change }));
  const setAndRun = (change: Partial<Query>) => {
    set(change);
    onRunQuery();
  };
  const runOnEnter = (e: React.KeyboardEvent) => {
    if (e.key === 'Enter') {
      onRunQuery();
    }
  };
  const views = VIEWS[query.queryType] ?? [];

  return (
    <Stack direction="column" gap={0.5}>
      <InlineFieldRow>
        <InlineField label="Show" labelWidth={16} htmlFor={id('type')}>
          <Combobox
            id={id('type')}
            width={32}
            options={types}
            value={query.queryType}
            onChange={({ value }) => {
              onChange(withType(query, value));
              onRunQuery();
            }}
          />
        </InlineField>
        <Stack alignItems="center">
          <Text color="secondary">{KINDS[query.queryType]?.help ?? `Queries of type ${query.queryType} are unknown to this version of the plugin.`}</Text>
        </Stack>
      </InlineFieldRow>

      <ChoiceFields datasource={datasource} query={query} onChange={onChange} onRunQuery={onRunQuery} />

      <InlineFieldRow>
        {has('search') && (
          <InlineField label="Name has" labelWidth={16} htmlFor={id('search')} tooltip="Part of an experiment's name; upper and lower case are one.">
            <Input
              id={id('search')}
              width={32}
              value={query.search ?? ''}
              placeholder="Any"
              onChange={(e) => set({ search: e.currentTarget.value })}
              onBlur={onRunQuery}
              onKeyDown={runOnEnter}
            />
          </InlineField>
        )}
        {has('view') && (
          <InlineField label="View" labelWidth={16}>
            <RadioButtonGroup
              options={views.map((value) => ({ value, label: VIEW_LABELS[value] ?? value }))}
              value={viewOf(query)}
              onChange={(view) => setAndRun({ view })}
            />
          </InlineField>
        )}
        {has('metric') && (
          <InlineField label="Metric" labelWidth={16} htmlFor={id('metric')}>
            <Combobox id={id('metric')} width={32} options={metrics} value={query.metric ?? 'util'} onChange={({ value }) => setAndRun({ metric: value })} />
          </InlineField>
        )}
        {has('groupBy') && (
          <InlineField label="Group by" labelWidth={16} htmlFor={id('groupBy')} tooltip="One line for each combination of these, the average of its GPUs.">
            <MultiCombobox<GroupLabel>
              id={id('groupBy')}
              width="auto"
              minWidth={24}
              placeholder="Experiment"
              options={groups}
              value={query.groupBy ?? []}
              onChange={(chosen) => setAndRun({ groupBy: chosen.map((c) => c.value) })}
            />
          </InlineField>
        )}
        {has('rank') && (
          <>
            <InlineField label="Lines" labelWidth={16} tooltip="By their average over the time shown, so that the same lines are there all along.">
              <RadioButtonGroup<'all' | 'top' | 'bottom'>
                options={ranks}
                value={query.rank || 'all'}
                onChange={(rank) => setAndRun(rank === 'all' ? { rank: undefined, k: undefined } : { rank, k: query.k ?? 10 })}
              />
            </InlineField>
            {query.rank && (
              <InlineField label="How many" htmlFor={id('k')} invalid={Boolean(wrong.rank)} error={wrong.rank}>
                <Input
                  id={id('k')}
                  type="number"
                  width={10}
                  min={1}
                  max={MAX_K}
                  value={query.k ?? ''}
                  onChange={(e) => set({ k: numberOf(e.currentTarget.value) })}
                  onBlur={onRunQuery}
                  onKeyDown={runOnEnter}
                />
              </InlineField>
            )}
          </>
        )}
        {has('limit') && (
          <InlineField
            label="Rows"
            labelWidth={16}
            htmlFor={id('limit')}
            tooltip="At most so many; a notice on the panel says how many were left out."
            invalid={Boolean(wrong.limit)}
            error={wrong.limit}
          >
            <Input
              id={id('limit')}
              type="number"
              width={16}
              min={1}
              placeholder="datasource's own"
              value={query.limit ?? ''}
              onChange={(e) => set({ limit: numberOf(e.currentTarget.value) })}
              onBlur={onRunQuery}
              onKeyDown={runOnEnter}
            />
          </InlineField>
        )}
      </InlineFieldRow>

      {has('expr') && (
        <InlineField
          label="PromQL"
          labelWidth={16}
          grow
          htmlFor={id('expr')}
          tooltip="$__experiment becomes matchers of what is chosen above, for series that have these labels. $__idle_below is the percentage below which a GPU is idle. $__interval, $__rate_interval and $__range are as in Grafana's Prometheus datasource. Ctrl+Enter runs it."
          invalid={Boolean(wrong.expr)}
          error={wrong.expr}
        >
          <TextArea
            id={id('expr')}
            rows={3}
            spellCheck={false}
            value={query.expr ?? ''}
            onChange={(e) => set({ expr: e.currentTarget.value })}
            onBlur={onRunQuery}
            onKeyDown={(e) => {
              if (e.key === 'Enter' && (e.ctrlKey || e.metaKey || e.shiftKey)) {
                e.preventDefault();
                onRunQuery();
              }
            }}
          />
        </InlineField>
      )}
      {has('legend') && (
        <InlineFieldRow>
          <InlineField label="Legend" labelWidth={16} htmlFor={id('legend')} tooltip="{{label}} becomes a label's value.">
            <Input
              id={id('legend')}
              width={32}
              placeholder="all labels"
              value={query.legend ?? ''}
              onChange={(e) => set({ legend: e.currentTarget.value })}
              onBlur={onRunQuery}
              onKeyDown={runOnEnter}
            />
          </InlineField>
          <InlineField label="Instant" labelWidth={16} htmlFor={id('instant')} tooltip="One value at the end of the time shown, instead of a line.">
            <InlineSwitch id={id('instant')} value={query.instant ?? false} onChange={(e) => setAndRun({ instant: e.currentTarget.checked || undefined })} />
          </InlineField>
        </InlineFieldRow>
      )}
    </Stack>
  );
}
