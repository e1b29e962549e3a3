import { FieldValidationMessage, InlineField, MultiCombobox } from '@grafana/ui';
import React, { useCallback, useState } from 'react';
import type { Choosable } from '../resources';
import { messageOf, shown } from '../text';

interface Props {
  id: string;
  label: string;
  tooltip: string;
  placeholder: string;
  value: string[] | undefined;
  /** Names that have what was typed. It is asked while the user types, after a pause. */
  load: (typed: string) => Promise<Choosable[]>;
  /** Variables of the dashboard, which can be chosen beside names. */
  variables: string[];
  error?: string;
  onChange: (names: string[]) => void;
}

/** Chooses any number of names, from those that there are, from variables, or typed. Names that are gone stay chosen. */
export function NamesPicker({ id, label, tooltip, placeholder, value, load, variables, error, onChange }: Props) {
  const [failure, setFailure] = useState('');
  const options = useCallback(
    async (typed: string) => {
      const part = typed.toLowerCase();
      const own = variables.filter((v) => v.toLowerCase().includes(part)).map((v) => ({ label: v, value: v, description: 'Variable' }));
      try {
        const found = await load(typed);
        setFailure('');
        return [...own, ...found.map((c) => ({ ...c, label: shown(c.label) }))];
      } catch (e) {
        setFailure(`No list of names: ${messageOf(e)}. Names can be typed.`);
        return own;
      }
    },
    [load, variables]
  );
  return (
    <div>
      <InlineField label={label} labelWidth={16} tooltip={tooltip} htmlFor={id} invalid={Boolean(error)} error={error}>
        <MultiCombobox
          id={id}
          width="auto"
          minWidth={32}
          maxWidth={96}
          placeholder={placeholder}
          createCustomValue
          customValueDescription="As typed"
          isClearable
          options={options}
          value={(value ?? []).map((name) => ({ label: shown(name), value: name }))}
          onChange={(chosen) => onChange([...new Set(chosen.map((c) => c.value))])}
        />
      </InlineField>
      {failure && <FieldValidationMessage>{failure}</FieldValidationMessage>}
    </div>
  );
}
