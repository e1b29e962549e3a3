package live

import (
	"flag"
	"io/fs"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/spillwayproject/spillway/alerts"
)

var update = flag.Bool("update", false, "writes docs/alerts-by-trouble.md")

const page = "../../docs/alerts-by-trouble.md"

// committed are the rule files as they are committed, which jsonnet's tests hold equal to what is
// rendered.
func committed(t *testing.T) Rules {
	t.Helper()
	read := func(files fs.FS) map[string][]byte {
		names, err := fs.Glob(files, "*.yaml")
		if err != nil || len(names) == 0 {
			t.Fatalf("no rule files: %v", err)
		}
		out := map[string][]byte{}
		for _, name := range names {
			if out[name], err = fs.ReadFile(files, name); err != nil {
				t.Fatal(err)
			}
		}
		return out
	}
	return Rules{Global: read(alerts.Global()), Shard: read(alerts.Shard())}
}

// TestAlertsByTroublePage: the page is what the table gives.
func TestAlertsByTroublePage(t *testing.T) {
	all, err := Alerts(committed(t))
	if err != nil {
		t.Fatal(err)
	}
	want := Page(all)
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil || string(got) != want {
		t.Errorf("%s is not what the table and the alerts give (%v): go test ./alerts/live -run TestAlertsByTroublePage -update", page, err)
	}
}

// elsewise are alerts that look far back where something is gone, and at what there is where it is
// not: that is what their cases stage.
var elsewise = map[string]bool{
	"KubeAPIServerNotMeasured": true,
	"FleetNodesFailing":        true, // at the usual number of nodes, while kube-state-metrics is gone
	"FleetGPUHot":              true,
	"FleetGPUExporterMissing":  true, // as long as the exporters are targets, up or not
	"GPUExporterMissing":       true,
}

// TestEveryAlertHasItsPlace: each alert of the mixin is raised by a case or is in Elsewhere, not
// both; what is long is not staged; cases name alerts that there are.
func TestEveryAlertHasItsPlace(t *testing.T) {
	all, err := Alerts(committed(t))
	if err != nil {
		t.Fatal(err)
	}
	raised := map[string]string{always: "always"}
	names := map[string]bool{}
	short := 0
	for _, c := range append(slices.Clone(Cases), replicaDown, shardDown) {
		if names[c.Name] {
			t.Errorf("two cases are called %q", c.Name)
		}
		names[c.Name] = true
		if c.Short {
			short++
		}
		for _, name := range c.Want {
			raised[name] = c.Name
			a, ok := all[name]
			switch {
			case !ok:
				t.Errorf("case %q wants %s, which the mixin does not have", c.Name, name)
			case a.SpanMin > longest && !elsewise[name]:
				t.Errorf("case %q wants %s, whose shortest rule spans %s: put it into Elsewhere", c.Name, name, a.SpanMin)
			}
			if _, ok := c.Beside[name]; ok {
				t.Errorf("case %q has %s among what must come and among what may", c.Name, name)
			}
		}
		for name, why := range c.Beside {
			if _, ok := all[name]; !ok || why == "" {
				t.Errorf("case %q allows %s (%q): there is no such alert, or no reason", c.Name, name, why)
			}
		}
	}
	if short != 5 {
		t.Errorf("%d cases are short; make test has time for 5", short)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		by, live := raised[name]
		how, elsewhere := Elsewhere[name]
		switch {
		case live && elsewhere:
			t.Errorf("%s is raised by %q and is in Elsewhere", name, by)
		case !live && !elsewhere:
			t.Errorf("%s (%v) is raised by no case and is not in Elsewhere: add it to Want of a case in catalogue.go, or to elsewhere.go with the reason", name, all[name].Severities)
		case elsewhere && how == "":
			t.Errorf("Elsewhere says nothing about %s", name)
		}
	}
	for name := range Elsewhere {
		if _, ok := all[name]; !ok {
			t.Errorf("Elsewhere has %s, which the mixin does not have", name)
		}
	}
}
