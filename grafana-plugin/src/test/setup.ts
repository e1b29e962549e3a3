import '@testing-library/jest-dom';
import { configure } from '@testing-library/react';

// Machines that do other things besides are slow; a test that would fail fails still.
configure({ asyncUtilTimeout: 30_000 });
jest.setTimeout(120_000);

// A component that logs an error is broken, whatever it shows.
let errors: jest.SpyInstance;
beforeEach(() => {
  errors = jest.spyOn(console, 'error').mockImplementation(() => {});
});
afterEach(() => {
  const calls = errors.mock.calls.map((c) => c.map(String).join(' ').slice(0, 500));
  errors.mockRestore();
  expect(calls).toEqual([]);
});
