package helm

import (
	"maps"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
)

// TestOwnLabels: a label of one's own takes the place of the chart's, wherever one can be set, and
// those by which the chart finds its objects are refused by name.
func TestOwnLabels(t *testing.T) {
	const own, selector = "app.kubernetes.io/part-of", "app.kubernetes.io/name"
	on := func(labels obj) obj { return obj{"enabled": true, "labels": labels} }
	for key, one := range map[string]struct {
		values func(labels obj) obj
		object string // its kind and name; the pods' is the Deployment's
	}{
		"podLabels":      {func(l obj) obj { return obj{"podLabels": l} }, "Deployment spillway"},
		"service.labels": {func(l obj) obj { return obj{"service": obj{"labels": l}} }, "Service spillway"},
		"serviceMonitor.labels": {
			func(l obj) obj { return obj{"serviceMonitor": on(l)} }, "ServiceMonitor spillway",
		},
		"serviceMonitor.labels of the remediator": {func(l obj) obj {
			return obj{"serviceMonitor": on(l), "remediator": obj{"enabled": true, "cluster": "a", "alertmanager": "http://a:9093"}}
		}, "ServiceMonitor spillway-remediator"},
		"mixin.rules.labels": {
			func(l obj) obj { return obj{"mixin": obj{"rules": on(l)}} }, "PrometheusRule spillway-shard-spillway",
		},
		"mixin.dashboards.labels": {
			func(l obj) obj { return obj{"mixin": obj{"dashboards": on(l)}} }, "ConfigMap spillway-dashboard-proxy",
		},
		"plugin.datasource.labels": {
			func(l obj) obj { return obj{"plugin": obj{"datasource": on(l)}} }, "ConfigMap spillway-plugin",
		},
	} {
		t.Run(key, func(t *testing.T) {
			with := func(labels obj) ([]object, error) {
				values := valuesOf(t, ciFiles(t)["minimal"])
				maps.Copy(values, one.values(labels))
				return render(values)
			}
			all, err := with(obj{own: "fleet", "team": "platform"})
			if err != nil {
				t.Fatal(err)
			}
			check(t, all)
			found, the := false, ""
			for _, o := range all {
				if o.kind()+" "+o.meta.GetName() != one.object {
					continue
				}
				labels := o.meta.GetLabels()
				if d, ok := o.in.(*appsv1.Deployment); ok {
					labels = d.Spec.Template.Labels
				}
				the = labels[selector]
				if found = true; labels[own] != "fleet" || labels["team"] != "platform" || labels[selector] == "" {
					t.Errorf("the labels are %v", labels)
				}
			}
			if !found {
				t.Errorf("there is no %s", one.object)
			}
			key, _, _ := strings.Cut(key, " ")
			want := key + ": " + selector + " is the chart's own"
			// The same labels are for both monitors, whose names differ.
			if _, err := with(obj{selector: the}); err != nil && !strings.HasSuffix(one.object, "-remediator") {
				t.Errorf("the chart's own value: %v", err)
			}
			if _, err := with(obj{selector: "mine"}); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("a label of selectors: %v", err)
			}
		})
	}
}
