import { PanelPlugin, type PanelProps, renderMarkdown } from '@grafana/data';
import { RenderUserContentAsHTML } from '@grafana/ui';

interface Options {
  mode: string;
  content: string;
}

function TextPanel({ options, replaceVariables }: PanelProps<Options>) {
  return <RenderUserContentAsHTML className="markdown-html" content={renderMarkdown(replaceVariables(options.content ?? '', {}, 'html'))} />;
}

export const text = new PanelPlugin<Options>(TextPanel).useFieldConfig({ disableStandardOptions: [] });
