package helm

import (
	"testing"

	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	resources "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
)

// deployments is a cluster for the chart's lookups, which has some Deployments.
type deployments struct{ dynamic.Interface }

// GetClientFor implements engine.ClientProvider.
func (d deployments) GetClientFor(string, string) (dynamic.NamespaceableResourceInterface, bool, error) {
	return d.Resource(resources.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}), true, nil
}

// TestAutoscalerKeepsPods: a release that has an autoscaler from now on goes on with the pods that
// it has, where Helm would take their number away, and the API server's default is one. Where
// nothing can be looked up, as in `helm template`, the number is the autoscaler's alone.
func TestAutoscalerKeepsPods(t *testing.T) {
	known := runtime.NewScheme()
	if err := appsv1.AddToScheme(known); err != nil {
		t.Fatal(err)
	}
	four := int32(4)
	live := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "spillway", Namespace: "monitoring"}, Spec: appsv1.DeploymentSpec{Replicas: &four},
	}
	for name, tc := range map[string]struct {
		objects []runtime.Object
		on      bool
		want    *int32
	}{
		"on, live":     {[]runtime.Object{live}, true, &four},
		"on, none yet": {nil, true, nil},
		"off, live":    {[]runtime.Object{live}, false, new(int32(2))},
	} {
		values := valuesOf(t, ciFiles(t)["minimal"])
		values["autoscaling"] = obj{"enabled": tc.on}
		values["replicaCount"] = 2
		c, err := ours()
		if err != nil {
			t.Fatal(err)
		}
		release := chartutil.ReleaseOptions{Name: "spillway", Namespace: "monitoring", IsUpgrade: true, Revision: 2}
		all, err := chartutil.ToRenderValues(c, values, release, chartutil.DefaultCapabilities)
		if err != nil {
			t.Fatal(err)
		}
		files, err := engine.RenderWithClientProvider(c, all, deployments{fake.NewSimpleDynamicClient(known, tc.objects...)})
		if err != nil {
			t.Fatal(err)
		}
		objects, err := objectsOf(files)
		if err != nil {
			t.Fatal(err)
		}
		if got := deployment(objects).Spec.Replicas; (got == nil) != (tc.want == nil) || got != nil && *got != *tc.want {
			t.Errorf("%s: %v replicas", name, got)
		}
	}
}
