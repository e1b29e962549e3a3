package uses

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A library panel that is there twice, once as an export brought it along: each of its forms counts
// for every dashboard that shows it.
func TestLibraryPanelTwice(t *testing.T) {
	model := func(metric string) string {
		return fmt.Sprintf(`{"type": "timeseries", "title": "P", "targets": [{"expr": "%s{job=\"$job\"}"}]}`, metric)
	}
	board := func(job, metric string) string {
		embedded := ""
		if metric != "" {
			embedded = `"__elements": {"L1": {"name": "lib", "uid": "L1", "kind": 1, "model": ` + model(metric) + `}}, `
		}
		return `{"title": "` + job + `", "schemaVersion": 39, ` + embedded + `"panels": [{"libraryPanel": {"uid": "L1", "name": "lib"}}],
			"templating": {"list": [{"name": "job", "type": "constant", "query": "` + job + `"}]}}`
	}
	lib := `{"result": {"elements": [{"uid": "L1", "name": "lib", "kind": 1, "model": ` + model("new_m") + `}]}}`
	for name, c := range map[string]struct {
		files []string
		want  string
		warns bool
	}{
		"an old export": {
			[]string{"a.json", board("a", "old_m"), "lib.json", lib},
			"new_m a | old_m a", true,
		},
		"two exports": {
			[]string{"a.json", board("a", "old_m"), "b.json", board("b", "new_m")},
			"new_m a | new_m b | old_m a | old_m b", true,
		},
		"another look": {
			[]string{"a.json", board("a", "new_m"), "lib.json", strings.Replace(lib, `"title": "P"`, `"title": "Q"`, 1)},
			"new_m a", false,
		},
		"the same": {
			[]string{"a.json", board("a", "new_m"), "lib.json", lib},
			"new_m a", false,
		},
		"of two in a third": {
			[]string{"a.json", board("a", "old_m"), "b.json", board("b", ""), "lib.json", lib},
			"new_m a | new_m b | old_m a | old_m b", true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			set := new(Set)
			if err := Dashboards(set, folder(t, c.files...)); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, u := range set.Uses {
				for _, n := range u.Needs {
					metric, _ := n.Name()
					for _, m := range n.Matchers {
						if m.Name == "job" {
							got = append(got, metric+" "+m.Value)
						}
					}
				}
			}
			slices.Sort(got)
			if strings.Join(slices.Compact(got), " | ") != c.want {
				t.Errorf("%q", got)
			}
			if warned := strings.Contains(strings.Join(set.Warnings, "\n"), `library panel "lib" (uid L1)`); warned != c.warns {
				t.Errorf("warnings %q", set.Warnings)
			}
		})
	}
}
