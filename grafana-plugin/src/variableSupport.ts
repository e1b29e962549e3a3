import { CustomVariableSupport, type DataQueryRequest, type DataQueryResponse } from '@grafana/data';
import { from, map, type Observable } from 'rxjs';
import { VariableEditor } from './components/VariableEditor';
import type { DataSource } from './datasource';
import { variableValues } from './resources';
import type { Query as PanelQuery, Settings, VariableQuery } from './types';
import { DEFAULT_VARIABLE } from './variableDefaults';

/** Variables of dashboards: experiments, teams, clusters, namespaces, nodes. */
export class ExperimentVariables extends CustomVariableSupport<DataSource, VariableQuery, PanelQuery, Settings> {
  editor = VariableEditor;

  constructor(private readonly datasource: DataSource) {
    super();
    // Grafana takes the function out of its object.
    this.query = this.query.bind(this);
  }

  getDefaultQuery(): Partial<PanelQuery> {
    // Grafana's types take it for a query of a panel.
    return DEFAULT_VARIABLE as unknown as PanelQuery;
  }

  query(request: DataQueryRequest<VariableQuery>): Observable<DataQueryResponse> {
    const query = { ...DEFAULT_VARIABLE, ...request.targets[0] };
    const names = this.datasource.names(query.resource, this.datasource.narrowing(query, request.scopedVars));
    return from(names).pipe(map((list) => ({ data: variableValues(list) })));
  }
}
