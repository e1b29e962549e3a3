package experiments

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/model"
)

// My team shows what is held and idle now: what was released hours ago is none of it. What is not
// measured is not idle, and no good news.
func TestMyTeamNow(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(repository, "grafana-plugin", "src", "dashboards", "team.json"))
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			Title   string
			Targets []model.Query
		}
	}
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	w := worldOf(t, "released")
	// shown are the last values of a panel, with their names.
	shown := func(title, team, cluster string) string {
		var out []string
		for _, p := range d.Panels {
			for _, q := range p.Targets {
				if p.Title != title {
					continue
				}
				q.RefID, q.Teams, q.Clusters = "A", []string{team}, nil
				q.Expr = strings.NewReplacer("$team", team, "$cluster", cluster).Replace(q.Expr)
				text, err := json.Marshal(q)
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range w.frames(t, settingsOf(t, ""), string(text), -740*minute, 700*minute-30*time.Second) {
					if len(f.Fields) == 0 {
						continue
					}
					v := f.Fields[len(f.Fields)-1]
					last, _ := v.FloatAt(v.Len() - 1)
					out = append(out, fmt.Sprintf("%s %g", v.Config.DisplayNameFromDS, last))
				}
			}
		}
		return strings.Join(out, ", ")
	}
	for _, c := range []struct{ title, team, cluster, want string }{
		{"GPUs held", "r", ".*", "held 0"},
		{"GPUs held", "u", ".*", "held 4"},
		{"GPUs held", "v", "c", "held 2"},
		{"GPUs held", "r", "lost", ""},
		{"Idle GPUs", "r", ".*", "idle 0"},
		{"Idle GPUs", "u", ".*", "not measured 4"},
		{"Idle GPUs", "v", ".*", "idle 2"},
		{"Idle GPUs", "r", "lost", ""},
		{"Idle GPUs by experiment", "u", ".*", "not measured 4"},
		{"Idle GPUs by experiment", "v", ".*", "idle 2"},
	} {
		if got := shown(c.title, c.team, c.cluster); got != c.want {
			t.Errorf("%s of %s in %s: %q, want %q", c.title, c.team, c.cluster, got, c.want)
		}
	}
}
