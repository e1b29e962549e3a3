import type { VariableQuery } from './types';

export const DEFAULT_VARIABLE: VariableQuery = { queryType: 'variable', resource: 'experiments', refId: 'variable' };
