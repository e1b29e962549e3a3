// Registering a panel's options: defaults for what a dashboard leaves out, and no editors.
import type { PanelPlugin } from '@grafana/data';

/** withOptions gives a panel its options' defaults. */
export function withOptions<T extends object>(plugin: PanelPlugin<T>, defaults: Partial<T>): PanelPlugin<T> {
  return plugin.setPanelOptions((builder) => {
    for (const [path, defaultValue] of Object.entries(defaults)) {
      builder.addCustomEditor({ id: path, path, name: path, editor: () => null, defaultValue: defaultValue as never });
    }
  });
}

/** withFields gives a panel the standard field options, the colour mode that is its default, and field options of its own. */
export function withFields<T extends object>(plugin: PanelPlugin<T>, colorMode: string, custom: Record<string, unknown> = {}): PanelPlugin<T> {
  return plugin.useFieldConfig({
    standardOptions: { color: { defaultValue: { mode: colorMode } } as never },
    useCustomConfig: (builder) => {
      for (const [path, defaultValue] of Object.entries(custom)) {
        builder.addCustomEditor({
          id: path,
          path,
          name: path,
          editor: () => null,
          override: () => null,
          process: (value) => value,
          shouldApply: () => true,
          defaultValue,
        });
      }
    },
  });
}
