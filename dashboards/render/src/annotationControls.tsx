// A switch for each annotation of the dashboard, as Grafana has them beside the variables.
import { ControlsLabel, type SceneComponentProps, SceneDataLayerSet, SceneObjectBase, type SceneObjectState, sceneGraph } from '@grafana/scenes';

export class AnnotationControls extends SceneObjectBase<SceneObjectState> {
  static Component = Switches;
}

function Switches({ model }: SceneComponentProps<AnnotationControls>) {
  const sets = sceneGraph.getDataLayers(model, true).filter((set) => set instanceof SceneDataLayerSet);
  return sets
    .flatMap((set) => set.state.layers)
    .filter((layer) => !layer.state.isHidden)
    .map((layer) => (
      <div key={layer.state.key} style={{ display: 'flex' }}>
        <ControlsLabel htmlFor={`data-layer-${layer.state.key}`} label={layer.state.name} />
        <layer.Component model={layer} />
      </div>
    ));
}
