import { InlineFieldRow } from '@grafana/ui';
import React, { useMemo } from 'react';
import type { DataSource, Narrowing } from '../datasource';
import { CHOICE, compact, problems, type Choice } from '../query';
import type { Choosable } from '../resources';
import { MAX_DAYS, type Query } from '../types';
import { NamesPicker } from './NamesPicker';

const words: Record<Choice, { label: string; tooltip: string; placeholder: string }> = {
  experiments: { label: 'Experiments', tooltip: 'Runs, those that were seen last first. Typing searches all of them.', placeholder: 'All; type to search' },
  clusters: { label: 'Clusters', tooltip: 'Only what is in these clusters.', placeholder: 'All' },
  namespaces: { label: 'Namespaces', tooltip: 'Only what is in these namespaces.', placeholder: 'All' },
  teams: { label: 'Teams', tooltip: 'Only experiments of these teams.', placeholder: 'All' },
};

interface Props {
  datasource: DataSource;
  query: Query;
  onChange: (query: Query) => void;
  onRunQuery?: () => void;
}

/** What a query is about: experiments, clusters, namespaces, teams. */
export function ChoiceFields({ datasource, query, onChange, onRunQuery }: Props) {
  const wrong = problems(query);
  const { clusters, namespaces, teams } = query;
  // Older runs are compared with the one that runs.
  const days = query.queryType === 'compare' ? MAX_DAYS : undefined;
  const variables = useMemo(() => datasource.variableNames(), [datasource]);
  const loaders = useMemo(() => {
    /** What is chosen by the other lists now, with the values that variables have now. */
    const chosen = () => {
      const q = datasource.applyTemplateVariables({ refId: '', queryType: 'experiments', clusters, namespaces, teams }, {});
      return { cluster: q.clusters, namespace: q.namespaces, team: q.teams };
    };
    const listed = (resource: 'clusters' | 'namespaces' | 'teams', narrow: () => Narrowing) => async (typed: string) => {
      const part = typed.toLowerCase();
      const names = await datasource.names(resource, narrow());
      return names.filter((n) => n.toLowerCase().includes(part)).map((n): Choosable => ({ label: n, value: n }));
    };
    return {
      experiments: (typed: string) => datasource.searchExperiments(typed, { ...chosen(), days }),
      clusters: listed('clusters', () => ({ days })),
      namespaces: listed('namespaces', () => ({ cluster: chosen().cluster, days })),
      teams: listed('teams', () => ({ cluster: chosen().cluster, days })),
    };
  }, [datasource, clusters, namespaces, teams, days]);
  return (
    <InlineFieldRow>
      {CHOICE.map((list) => (
        <NamesPicker
          key={list}
          id={`${list}-${query.refId}`}
          {...words[list]}
          value={query[list]}
          load={loaders[list]}
          variables={variables}
          error={wrong[list]}
          onChange={(names) => {
            onChange(compact({ ...query, [list]: names }));
            onRunQuery?.();
          }}
        />
      ))}
    </InlineFieldRow>
  );
}
