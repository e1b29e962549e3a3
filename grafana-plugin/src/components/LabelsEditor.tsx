import { Button, Field, IconButton, Input, Stack, Text } from '@grafana/ui';
import React from 'react';
import { DEFAULTS } from '../settings';
import { MAX_LABELS } from '../types';

interface Props {
  labels: string[] | undefined;
  problems: Record<string, string>;
  disabled?: boolean;
  /** undefined is the default chain. */
  onChange: (labels: string[] | undefined) => void;
}

/** The ordered chain of labels that name an experiment. */
export function LabelsEditor({ labels, problems, disabled, onChange }: Props) {
  const chain = labels?.length ? labels : DEFAULTS.labels;
  const swap = (i: number, j: number) => {
    const next = [...chain];
    [next[i], next[j]] = [next[j], next[i]];
    onChange(next);
  };
  return (
    <>
      <Text element="h6">Labels that name an experiment</Text>
      <Text element="p" color="secondary" variant="bodySmall">
        Of kube_pod_labels; the first that a pod has counts. They are those that the recording rules were rendered with (experimentLabels of the mixin), and
        kube-state-metrics must export them. “Save &amp; test” tells which are missing.
      </Text>
      {problems.labels && <Text color="error">{problems.labels}</Text>}
      {chain.map((label, i) => (
        <Stack key={i} direction="row" gap={1} alignItems="flex-start">
          <Field invalid={Boolean(problems[`labels[${i}]`])} error={problems[`labels[${i}]`]} disabled={disabled}>
            <Input
              aria-label={`Label ${i + 1}`}
              width={60}
              value={label}
              onChange={(e) => onChange(chain.map((l, j) => (j === i ? e.currentTarget.value.trim() : l)))}
            />
          </Field>
          <IconButton name="arrow-up" tooltip={`Label ${i + 1} up`} disabled={disabled || i === 0} onClick={() => swap(i, i - 1)} />
          <IconButton name="arrow-down" tooltip={`Label ${i + 1} down`} disabled={disabled || i === chain.length - 1} onClick={() => swap(i, i + 1)} />
          <IconButton
            name="trash-alt"
            tooltip={`Remove label ${i + 1}`}
            disabled={disabled || chain.length === 1}
            onClick={() => onChange(chain.filter((_, j) => j !== i))}
          />
        </Stack>
      ))}
      <Stack direction="row" gap={1}>
        <Button variant="secondary" icon="plus" disabled={disabled || chain.length >= MAX_LABELS} onClick={() => onChange([...chain, 'label_'])}>
          Add label
        </Button>
        <Button variant="secondary" fill="outline" disabled={disabled || !labels?.length} onClick={() => onChange(undefined)}>
          Default chain
        </Button>
      </Stack>
      <br />
    </>
  );
}
