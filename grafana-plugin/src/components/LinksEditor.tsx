import { Button, Field, IconButton, Input, Stack, Text } from '@grafana/ui';
import React from 'react';
import { linkExample } from '../settings';
import { MAX_LINKS, type Link } from '../types';

interface Props {
  links: Link[] | undefined;
  problems: Record<string, string>;
  disabled?: boolean;
  onChange: (links: Link[] | undefined) => void;
}

/** Links from an experiment to other places. */
export function LinksEditor({ links = [], problems, disabled, onChange }: Props) {
  const set = (i: number, change: Partial<Link>) => onChange(links.map((l, j) => (j === i ? { ...l, ...change } : l)));
  return (
    <>
      <Text element="h6">From an experiment to W&amp;B, MLflow, TensorBoard</Text>
      <Text element="p" color="secondary" variant="bodySmall">
        {'Each is on every experiment that a table shows. ${experiment}, ${team}, ${cluster} and ${namespace} in the URL are replaced.'}
      </Text>
      {problems.links && <Text color="error">{problems.links}</Text>}
      {links.map((link, i) => {
        const wrong = problems[`links[${i}].url`];
        return (
          <Stack key={i} direction="row" gap={1} alignItems="flex-start">
            <Field invalid={Boolean(problems[`links[${i}].title`])} error={problems[`links[${i}].title`]} disabled={disabled}>
              <Input
                aria-label={`Title of link ${i + 1}`}
                width={20}
                placeholder="W&B"
                value={link.title}
                onChange={(e) => set(i, { title: e.currentTarget.value })}
              />
            </Field>
            <div>
              <Field noMargin invalid={Boolean(wrong)} error={wrong} disabled={disabled}>
                <Input
                  aria-label={`URL of link ${i + 1}`}
                  width={80}
                  placeholder="https://wandb.ai/our-lab/runs?search=${experiment}"
                  value={link.url}
                  onChange={(e) => set(i, { url: e.currentTarget.value.trim() })}
                />
              </Field>
              <Text element="p" color="secondary" variant="bodySmall">
                {wrong ? '' : `Such as ${linkExample(link.url)}`}
              </Text>
            </div>
            <IconButton
              name="trash-alt"
              tooltip={`Remove link ${i + 1}`}
              disabled={disabled}
              onClick={() => {
                const rest = links.filter((_, j) => j !== i);
                onChange(rest.length > 0 ? rest : undefined);
              }}
            />
          </Stack>
        );
      })}
      <Button
        variant="secondary"
        icon="plus"
        disabled={disabled || links.length >= MAX_LINKS}
        onClick={() => onChange([...links, { title: '', url: 'https://' }])}
      >
        Add link
      </Button>
      <br />
      <br />
    </>
  );
}
