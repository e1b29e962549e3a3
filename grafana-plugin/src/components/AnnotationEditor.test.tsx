import { render, screen } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import React from 'react';
import { datasource } from '../test/datasource';
import { serve } from '../test/server';
import { AnnotationEditor } from './AnnotationEditor';

test('an annotation chooses whose events, and is of type events whatever it was', async () => {
  serve({ experiments: [{ name: 'llm-7b' }] });
  const change = jest.fn();
  render(
    <AnnotationEditor datasource={datasource({ experiment: 'x' })} query={{ refId: 'Anno', queryType: 'pods' }} onChange={change} onRunQuery={() => {}} />
  );
  const user = userEvent.setup({ delay: null });
  await user.click(screen.getByLabelText('Experiments'));
  await user.click(await screen.findByRole('option', { name: /\$experiment/ }));
  expect(change).toHaveBeenLastCalledWith({ refId: 'Anno', queryType: 'events', experiments: ['$experiment'] });
});
