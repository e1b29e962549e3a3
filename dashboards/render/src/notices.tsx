// What the server said beside its answer: a warning sign in the panel's header, with the sentences behind it.
import { PanelChrome, Icon, Tooltip, useTheme2 } from '@grafana/ui';
import { type SceneComponentProps, SceneObjectBase, type SceneObjectState, sceneGraph } from '@grafana/scenes';

export class PanelNotices extends SceneObjectBase<SceneObjectState> {
  static Component = Notices;
}

function Notices({ model }: SceneComponentProps<PanelNotices>) {
  const theme = useTheme2();
  const { data } = sceneGraph.getData(model).useState();
  const all = (data?.series ?? []).flatMap((f) => f.meta?.notices ?? []);
  const texts = [...new Set(all.map((n) => n.text))];
  if (texts.length === 0) {
    return null;
  }
  const warning = all.some((n) => n.severity !== 'info');
  return (
    <Tooltip
      content={
        <ul style={{ margin: 0, paddingLeft: 16 }}>
          {texts.map((t) => (
            <li key={t}>{t}</li>
          ))}
        </ul>
      }
    >
      <PanelChrome.TitleItem>
        <span data-notice={warning ? 'warning' : 'info'} style={{ color: warning ? theme.colors.warning.text : theme.colors.text.secondary }}>
          <Icon name={warning ? 'exclamation-triangle' : 'info-circle'} size="md" />
        </span>
      </PanelChrome.TitleItem>
    </Tooltip>
  );
}
