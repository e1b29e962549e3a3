// What becomes of the back end's frames before panels have them.
import { FieldType, type DataFrame } from '@grafana/data';
import { shown } from './text';

/** Names of lines, for legends: one line each, in which every character can be seen. Labels stay what they are. */
export function legible(frame: DataFrame): DataFrame {
  return {
    ...frame,
    fields: frame.fields.map((f) =>
      f.config.displayNameFromDS === undefined ? f : { ...f, config: { ...f.config, displayNameFromDS: shown(f.config.displayNameFromDS) } }
    ),
  };
}

/**
 * Lines of runs that are compared get fields that are called `run 1` to `run 8`, by which a dashboard gives each its colour: Grafana can choose neither by a line's place
 * nor by all names that there may be. What is shown is the run's name. The numbers are in the order of the chosen runs' names: a run has its own also on panels where
 * others have no line.
 */
export function numbered(frame: DataFrame, chosen: string[]): DataFrame {
  const order = [...new Set(chosen)].sort();
  return {
    ...frame,
    fields: frame.fields.map((f) => {
      const place = f.type === FieldType.number && f.labels?.run !== undefined ? order.indexOf(f.labels.run) : -1;
      return place < 0 ? f : { ...f, name: `run ${place + 1}` };
    }),
  };
}
