package dashboards

import (
	"regexp"
	"testing"

	"github.com/prometheus/prometheus/model/rulefmt"
)

var (
	alertLink = regexp.MustCompile(`/d/(spillway-[a-z-]+)\?(.*)$`)
	alertArg  = regexp.MustCompile(`(?:^|&)var-(\w+)=\{\{`)
)

// The dashboard that an alert's description leads to is there, and has each variable that the link
// fills in.
func TestAlertsLeadHere(t *testing.T) {
	byUID := map[string]*Dashboard{}
	for _, name := range Names() {
		d := load(t, name)
		byUID[d.UID] = d
	}
	links := 0
	eachRule(t, func(r rulefmt.Rule) {
		m := alertLink.FindStringSubmatch(r.Annotations["description"])
		if m == nil {
			return
		}
		links++
		d := byUID[m[1]]
		if d == nil {
			t.Errorf("%s leads to %s, which is not there", r.Alert, m[1])
			return
		}
		for _, arg := range alertArg.FindAllStringSubmatch(m[2], -1) {
			if d.Variable(arg[1]) == nil {
				t.Errorf("%s: dashboard %s has no variable %s", r.Alert, d.Name, arg[1])
			}
		}
	})
	if links < 50 {
		t.Errorf("only %d alerts lead to a dashboard", links)
	}
}
