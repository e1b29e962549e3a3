import { Button, Field, IconButton, Input, Stack, Text } from '@grafana/ui';
import React, { useState } from 'react';

interface Props {
  prices: Record<string, number> | undefined;
  problems: Record<string, string>;
  disabled?: boolean;
  onChange: (prices: Record<string, number> | undefined) => void;
}

/** The price of one hour of one GPU, by model. */
export function PricesEditor({ prices, problems, disabled, onChange }: Props) {
  const [model, setModel] = useState('');
  const rows = Object.entries(prices ?? {});
  const name = model.trim();
  const taken = Object.hasOwn(prices ?? {}, name);
  const add = () => {
    onChange({ ...prices, [name]: 0 });
    setModel('');
  };
  const remove = (gone: string) => {
    const rest = rows.filter(([m]) => m !== gone);
    onChange(rest.length > 0 ? Object.fromEntries(rest) : undefined);
  };
  return (
    <>
      <Text element="h6">Price of one hour of one GPU</Text>
      <Text element="p" color="secondary" variant="bodySmall">
        By model as DCGM reports it in modelName, such as NVIDIA H100 80GB HBM3; “default” is for models that are not listed. Without prices, cost shows GPU
        hours alone.
      </Text>
      {rows.map(([m, price]) => (
        <Stack key={m} direction="row" gap={1} alignItems="flex-start">
          <Field label={m} htmlFor={`price-${m}`} invalid={Boolean(problems[`prices.${m}`])} error={problems[`prices.${m}`]} disabled={disabled}>
            <Input
              id={`price-${m}`}
              type="number"
              min={0}
              step="any"
              width={40}
              value={Number.isFinite(price) ? price : ''}
              onChange={(e) => onChange({ ...prices, [m]: e.currentTarget.value === '' ? 0 : Number(e.currentTarget.value) })}
            />
          </Field>
          <IconButton name="trash-alt" tooltip={`Remove price of ${m}`} disabled={disabled} onClick={() => remove(m)} />
        </Stack>
      ))}
      <Field label="Add a model" htmlFor="price-new" invalid={taken} error={taken ? 'It has a price already' : undefined} disabled={disabled}>
        <Input
          id="price-new"
          width={40}
          placeholder="default"
          value={model}
          onChange={(e) => setModel(e.currentTarget.value)}
          onKeyDown={(e) => {
            if (e.key === 'Enter') {
              // Enter would save the form that Grafana puts around this.
              e.preventDefault();
              name !== '' && !taken && add();
            }
          }}
          addonAfter={
            <Button variant="secondary" disabled={disabled || name === '' || taken} onClick={add}>
              Add model
            </Button>
          }
        />
      </Field>
    </>
  );
}
