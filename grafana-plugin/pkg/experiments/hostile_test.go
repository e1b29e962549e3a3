package experiments

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-plugin-sdk-go/data"
)

// The names of testdata/hostile.load: of experiments, teams, clusters, nodes, pods and queues.
var hostile = []string{
	"<img src=x onerror=alert(1)>", `a"b\c`, ".*|a{2}[x]$", "line\ntwo", "\u202eevil\u2066", "a,b", "${experiment}$__all",
}

// A name selects itself and nothing else, in each place where one can be chosen, and comes back as
// it is.
func TestHostileNames(t *testing.T) {
	w := worldOf(t, "hostile")
	for _, name := range hostile {
		for _, field := range []string{"experiments", "clusters", "teams"} {
			for _, c := range []struct {
				kind string
				rows int
			}{{"experiments", 1}, {"pods", 2}, {"pending", 1}, {"events", 1}, {"status", 3}} {
				query, err := json.Marshal(map[string]any{"queryType": c.kind, field: []string{name}})
				if err != nil {
					t.Fatal(err)
				}
				frames := w.frames(t, settingsOf(t, ""), string(query), 0, 30*minute)
				switch c.kind {
				case "status":
					if len(frames) != c.rows || frames[0].Fields[0].Labels["cluster"] != name {
						t.Errorf("%s: %d frames of %v", query, len(frames), frames[0].Fields[0].Labels)
					}
				case "events":
					checkHostileEvent(t, frames[0], name)
				default:
					want := slices.Repeat([]string{name}, c.rows)
					for _, f := range []string{"experiment", "team", "cluster"} {
						if got := values[string](t, frames[0], f); !slices.Equal(got, want) {
							t.Errorf("%s: %s is %q", query, f, got)
						}
					}
				}
			}
		}
	}
	// Part of a name is no pattern.
	f := w.frames(t, settingsOf(t, ""), `{"queryType": "experiments", "search": ".*"}`, 0, 30*minute)[0]
	if got := values[string](t, f, "experiment"); !slices.Equal(got, []string{".*|a{2}[x]$"}) {
		t.Errorf("search for .*: %q", got)
	}
	if got := values[string](t, w.frames(t, settingsOf(t, ""), `{"queryType": "pending", "experiments": ["a,b"]}`, 0, 30*minute)[0],
		"detail"); len(got) != 1 ||
		got[0] != "Kueue has not let it in from the queue a,b." {
		t.Errorf("%q", got)
	}
}

// The front end makes HTML of title and text, and divides tags at commas.
func checkHostileEvent(t *testing.T, f *data.Frame, name string) {
	t.Helper()
	if f.Rows() != 1 {
		t.Errorf("%q: %d events", name, f.Rows())
		return
	}
	if v := values[string](t, f, "text")[0]; !strings.Contains(v, name) {
		t.Errorf("%q has not the name %q as it is", v, name)
	}
	if tags := values[string](t, f, "tags")[0]; strings.Count(tags, ",") != 2 || !strings.HasPrefix(tags, "failed,") {
		t.Errorf("tags: %q", tags)
	}
}
