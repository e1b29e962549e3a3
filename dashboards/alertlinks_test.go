package dashboards

import (
	"io/fs"
	"regexp"
	"testing"

	"github.com/prometheus/prometheus/model/rulefmt"
	"go.yaml.in/yaml/v3"

	"github.com/spillwayproject/spillway/alerts"
)

var (
	alertLink = regexp.MustCompile(`/d/(spillway-[a-z-]+)\?(.*)$`)
	alertArg  = regexp.MustCompile(`(?:^|&)var-(\w+)=\{\{`)
)

// The dashboard that an alert's description leads to is there, and has each variable that the link fills in.
func TestAlertsLeadHere(t *testing.T) {
	byUID := map[string]*Dashboard{}
	for _, name := range Names() {
		d := load(t, name)
		byUID[d.UID] = d
	}
	links := 0
	for _, fsys := range []fs.FS{alerts.Global(), alerts.Shard()} {
		names, err := fs.Glob(fsys, "*.yaml")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			b, err := fs.ReadFile(fsys, name)
			if err != nil {
				t.Fatal(err)
			}
			var groups rulefmt.RuleGroups
			if err := yaml.Unmarshal(b, &groups); err != nil {
				t.Fatal(err)
			}
			for _, g := range groups.Groups {
				for _, r := range g.Rules {
					m := alertLink.FindStringSubmatch(r.Annotations["description"])
					if m == nil {
						continue
					}
					links++
					d := byUID[m[1]]
					if d == nil {
						t.Errorf("%s leads to %s, which is not there", r.Alert, m[1])
						continue
					}
					for _, arg := range alertArg.FindAllStringSubmatch(m[2], -1) {
						if d.Variable(arg[1]) == nil {
							t.Errorf("%s: dashboard %s has no variable %s", r.Alert, d.Name, arg[1])
						}
					}
				}
			}
		}
	}
	if links < 50 {
		t.Errorf("only %d alerts lead to a dashboard", links)
	}
}
