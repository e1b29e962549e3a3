// The frame around a dashboard: name, links, variables, time; and the list of all dashboards.
import { css } from '@emotion/css';
import { type GrafanaTheme2, textUtil, type UrlQueryMap, urlUtil } from '@grafana/data';
import { type SceneComponentProps, SceneVariableSet, sceneGraph } from '@grafana/scenes';
import { Dropdown, Icon, LinkButton, Menu, ToolbarButton, useStyles2 } from '@grafana/ui';
import type { DashboardLink, Entry } from './model';
import type { Page } from './scene';

/** carried are the variables of the URL and, where wanted, its time, for a link to a sibling. */
function carried(page: Page, link: DashboardLink): string {
  const params: UrlQueryMap = {};
  if (link.keepTime) {
    const { from, to } = sceneGraph.getTimeRange(page).state;
    Object.assign(params, { from, to });
  }
  if (link.includeVars && page.state.$variables instanceof SceneVariableSet) {
    for (const v of page.state.$variables.state.variables) {
      Object.assign(params, v.urlSync?.getUrlState() ?? {});
    }
  }
  return urlUtil.renderUrl('', params).replace(/^\?/, '');
}

const to = (path: string, query: string) => textUtil.sanitizeUrl(query ? `${path}${path.includes('?') ? '&' : '?'}${query}` : path);

function Links({ page, entries }: { page: Page; entries: Entry[] }) {
  const { links = [], uid } = page.state.dashboard;
  return (
    <>
      {links.map((link) => {
        if (link.type === 'link') {
          return (
            <LinkButton
              key={link.title}
              variant="secondary"
              size="sm"
              href={to(sceneGraph.interpolate(page, link.url ?? ''), carried(page, link))}
              target={link.targetBlank ? '_blank' : undefined}
            >
              {link.title}
            </LinkButton>
          );
        }
        const siblings = entries.filter((e) => e.uid !== uid && (link.tags ?? []).every((t) => e.tags.includes(t)));
        const menu = () => (
          <Menu>
            {siblings.map((e) => (
              <Menu.Item key={e.uid} label={e.title} url={to(`/d/${e.uid}`, carried(page, link))} />
            ))}
          </Menu>
        );
        return (
          <Dropdown key={link.title} overlay={menu} placement="bottom-end">
            <ToolbarButton icon="bars" tooltip={link.tooltip || 'Other dashboards'} variant="canvas" isOpen={false}>
              {link.title}
            </ToolbarButton>
          </Dropdown>
        );
      })}
    </>
  );
}

export function DashboardView({ model, entries }: SceneComponentProps<Page> & { entries: Entry[] }) {
  const styles = useStyles2(getStyles);
  const { dashboard, body, controls, timePicker, refreshPicker } = model.useState();
  return (
    <div className={styles.page}>
      <header className={styles.bar}>
        <nav className={styles.crumbs}>
          <a href="/">Dashboards</a>
          <Icon name="angle-right" />
          <h1 className={styles.title}>{dashboard.title}</h1>
        </nav>
        <Links page={model} entries={entries} />
      </header>
      <div className={styles.controls}>
        <div className={styles.variables}>
          {controls.map((control) => (
            <control.Component key={control.state.key} model={control} />
          ))}
        </div>
        <timePicker.Component model={timePicker} />
        <refreshPicker.Component model={refreshPicker} />
      </div>
      <body.Component model={body} />
    </div>
  );
}

/** Groups are the order of the list: what one opens first, then by what it is about. */
const groups: Array<[string, string[]]> = [
  ['Start here', ['fleet', 'alerts']],
  ['Experiments', ['experiment', 'compare', 'team']],
  ['GPUs', ['gpu-fleet', 'gpu-node', 'gpu-use', 'cost']],
  ['Nodes and network', ['node', 'network', 'pending']],
  ['Control plane', ['apiserver', 'etcd']],
  ['Monitoring itself', ['prometheus', 'proxy', 'cardinality']],
];

export function ListView({ entries, query }: { entries: Entry[]; query: string }) {
  const styles = useStyles2(getStyles);
  const known = new Set(groups.flatMap(([, names]) => names));
  const others: [string, string[]] = ['Others', entries.map((e) => e.name).filter((n) => !known.has(n))];
  return (
    <div className={styles.page}>
      <header className={styles.bar}>
        <h1 className={styles.title}>Dashboards</h1>
      </header>
      {[...groups, others].map(([group, names]) => {
        const inside = names.map((n) => entries.find((e) => e.name === n)).filter((e): e is Entry => e !== undefined);
        return inside.length === 0 ? null : (
          <section key={group}>
            <h2 className={styles.group}>{group}</h2>
            <div className={styles.cards}>
              {inside.map((e) => (
                <a key={e.uid} className={styles.card} href={to(`/d/${e.uid}`, query)}>
                  <strong>{e.title}</strong>
                  <span>{e.description}</span>
                </a>
              ))}
            </div>
          </section>
        );
      })}
    </div>
  );
}

function getStyles(theme: GrafanaTheme2) {
  return {
    page: css({
      padding: theme.spacing(2),
      display: 'flex',
      flexDirection: 'column',
      gap: theme.spacing(1),
      minHeight: '100vh',
      background: theme.colors.background.canvas,
    }),
    bar: css({ display: 'flex', alignItems: 'center', gap: theme.spacing(1) }),
    crumbs: css({ display: 'flex', alignItems: 'center', gap: theme.spacing(1), flexGrow: 1, color: theme.colors.text.secondary }),
    title: css({ ...theme.typography.h4, margin: 0, color: theme.colors.text.primary }),
    controls: css({ display: 'flex', alignItems: 'flex-start', gap: theme.spacing(1) }),
    variables: css({ display: 'flex', flexWrap: 'wrap', gap: theme.spacing(1), flex: '1 1 0', minWidth: 0 }),
    group: css({ ...theme.typography.h5, margin: theme.spacing(2, 0, 1), color: theme.colors.text.secondary }),
    cards: css({ display: 'grid', gridTemplateColumns: 'repeat(auto-fill, minmax(300px, 1fr))', gap: theme.spacing(1) }),
    card: css({
      display: 'flex',
      flexDirection: 'column',
      gap: theme.spacing(0.5),
      padding: theme.spacing(2),
      background: theme.colors.background.primary,
      border: `1px solid ${theme.colors.border.weak}`,
      borderRadius: theme.shape.radius.default,
      '&:hover': { background: theme.colors.emphasize(theme.colors.background.primary, 0.03) },
      span: { color: theme.colors.text.secondary, fontSize: theme.typography.bodySmall.fontSize },
    }),
  };
}
