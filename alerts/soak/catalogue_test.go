package soak

import (
	"maps"
	"slices"
	"testing"

	"github.com/spillwayproject/spillway/alerts/live"
)

// TestCatalogueIsThatOfLive: what a kind must raise here is what it must raise on real servers.
func TestCatalogueIsThatOfLive(t *testing.T) {
	judged := map[string]bool{}
	groups, err := shipped().read()
	if err != nil {
		t.Fatal(err)
	}
	o := Options{All: true}.withDefaults()
	for _, g := range groups {
		for _, r := range g.rules {
			if o.chosen(r) {
				judged[r.Alert] = true
			}
		}
	}
	for _, s := range catalogue {
		for _, name := range append(slices.Clone(s.want), s.beside...) {
			if !judged[name] {
				t.Errorf("%s: %s is no alert that is judged", s.name, name)
			}
		}
	}
	for _, c := range live.Cases {
		var want []string
		for _, name := range c.Want {
			if judged[name] {
				want = append(want, name)
			}
		}
		for _, s := range catalogue {
			if s.kind != c.Kind || s.value != c.Value || (s.on == aShare) != (c.On == nil) {
				continue
			}
			if !slices.Equal(s.want, want) {
				t.Errorf("%s must raise %q, and %q on real servers (%s)", s.name, s.want, want, c.Name)
			}
			for _, name := range s.beside {
				if _, ok := c.Beside[name]; !ok && s.kind != "NodeUnreachable" && name != "GPUXidFatalLegacy" {
					t.Errorf("%s may raise %s, and not on real servers (%s)", s.name, name, c.Name)
				}
			}
		}
	}
}

// TestEveryAlertIsStaged: an alert that is judged by default is raised by some line of the table,
// or stands here with the reason.
func TestEveryAlertIsStaged(t *testing.T) {
	not := map[string]string{
		"NodeFilesystemInodesFull":   "the model has no such trouble",
		"KubeStateMetricsIncomplete": "the model's pages are whole",
		"ScrapeJobGone":              "jobs do not go away",
		"ClusterAutoscalerStuck":     "the autoscaler's troubles are not staged",
		"FleetGPUUnhealthy":          "comes beside others, never alone",
		"LocationLost":               "comes beside others; zones are as large as the cluster",
		"GPURecoveryAction":          "the model's exporters do not have its field, which older ones do not start with",
		"GPUXidFatalLegacy":          "the exporter counts Xids, so it comes only beside others",
	}
	groups, err := shipped().read()
	if err != nil {
		t.Fatal(err)
	}
	staged := map[string]bool{}
	for _, s := range catalogue {
		for _, name := range s.want {
			staged[name] = true
		}
	}
	o := Options{}.withDefaults()
	for _, g := range groups {
		for _, r := range g.rules {
			if o.chosen(r) && !staged[r.Alert] {
				if not[r.Alert] == "" {
					t.Errorf("nothing raises %s: give the table a line, or say why not", r.Alert)
				}
				staged[r.Alert] = true
			}
			delete(not, map[bool]string{true: r.Alert}[o.chosen(r)])
		}
	}
	for name := range maps.Keys(not) {
		t.Errorf("%s is said not to be staged, and is not judged", name)
	}
}
