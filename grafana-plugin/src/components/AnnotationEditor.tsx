import type { QueryEditorProps } from '@grafana/data';
import { Stack, Text } from '@grafana/ui';
import React from 'react';
import type { DataSource } from '../datasource';
import { KINDS } from '../query';
import type { Query, Settings } from '../types';
import { ChoiceFields } from './ChoiceFields';

/** The editor of an annotation: whose events. Grafana gives and takes the annotation's target. */
export function AnnotationEditor({ datasource, query, onChange, onRunQuery }: QueryEditorProps<DataSource, Query, Settings>) {
  const events: Query = { ...query, queryType: 'events' };
  return (
    <Stack direction="column" gap={1}>
      <Text color="secondary">{KINDS.events.help}</Text>
      <ChoiceFields datasource={datasource} query={events} onChange={onChange} onRunQuery={onRunQuery} />
    </Stack>
  );
}
