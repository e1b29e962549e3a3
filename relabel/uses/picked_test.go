package uses

import (
	"strings"
	"testing"
)

// TestWholeNeeds: of what a log has alone the index knows a second need, of all jobs and values,
// that reads the labels which the first one has matchers on.
func TestWholeNeeds(t *testing.T) {
	for _, c := range []struct{ logged, written, want string }{
		{`sum(x{gpu="3"})`, `y`, `x gpu`},
		{`sum by (a) (x{gpu="3",job="j"})`, `x{gpu="4"}`, `x a, gpu, job`},
		{`sum(x{gpu="3"})`, `x{gpu="3"}`, ``},
		{`sum(x{gpu="3"})`, `x{gpu=~"$gpu"}`, ``},
		{`sum(x{gpu="3"})`, `x{gpu!="0"}`, ``},
		{`sum(x{gpu=~"1|3"})`, `x{gpu=~"1|2|3"}`, ``},
		{`sum(x{gpu=~".+"})`, `x{gpu=~"1|2|3"}`, `x gpu`},
		{`sum(x{gpu="3"})`, `{__name__=~"x|y"}`, ``},
		{`sum(x{gpu="3"})`, `{__name__=~"x|y",gpu="4"}`, `x gpu`},
		{`sum(x{gpu="3"})`, `x{gpu="3",cluster="eu"}`, ``},
		{`sum(x{gpu="3"})`, `x{gpu="3",node="a"}`, `x gpu`},
		{`{__name__=~"x|y",gpu="3"}`, `x`, `{__name__=~"x|y"} all`},
		{`{gpu="3"}`, `x`, ``},
		{`sum by (uid) (x{job="a"})`, `sum by (id) (x)`, `x job, uid`},
		{`sum by (uid) (x{job="a"})`, `sum by (id, uid) (x)`, ``},
		{`sum by (uid) (x{job="a"})`, `sum by (id) (x) or sum by (uid) (x)`, ``},
		{`sum without (id) (x{job="a"})`, `sum without (id, uid) (x)`, `x all but id`},
		{`x{job="a"}`, `sum(x)`, `x all`},
		{`sum by (uid) (x{job="a"})`, `x`, ``},
		{`sum(x_bucket{job="a",le="1"})`, `histogram_quantile(0.9, sum by (le) (x_bucket))`, `x_bucket job, le`},
		{`histogram_quantile(0.9, sum by (le) (x_bucket{job="a"}))`, `histogram_quantile(0.5, sum by (le) (x_bucket))`, ``},
		{`x`, `y`, ``},
	} {
		set := new(Set)
		set.Add(&Use{Kind: Logged, Picked: true, Query: c.logged})
		set.Add(&Use{Kind: Dashboard, Query: c.written})
		var got []string
		for _, e := range set.Index(External, nil).Entries() {
			if e.Whole {
				got = append(got, e.Selector()+" "+e.Labels.String())
			}
		}
		if text := strings.Join(got, "; "); text != c.want {
			t.Errorf("%s beside %s: %s, want %s", c.logged, c.written, text, c.want)
		}
	}
}
