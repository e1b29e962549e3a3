package server

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/proxy/plan"
)

// twoJobs are the series of scraped in the job node, and once more in the job gpu; skip is told the
// job.
func twoJobs(from, until time.Time, phase time.Duration, skip func(job string, at time.Time) bool) []storedSeries {
	var out []storedSeries
	for _, job := range []string{"node", "gpu"} {
		for _, s := range scraped(5, from, until, phase, func(_ int, at time.Time) bool { return skip != nil && skip(job, at) }) {
			b := labels.NewBuilder(s.lbls)
			b.Set("job", job)
			s.lbls = b.Labels()
			out = append(out, s)
		}
	}
	return out
}

// whys are the reasons of a plan's nodes.
func whys(n *plan.Node) string {
	out := n.Why + "\n"
	for _, c := range n.Children {
		out += whys(c)
	}
	return out
}

// TestWhatLacksIsSaid: explain, and the refusal of what had to be read, name the replica that lacks
// something, how many scrapes of which job, and since when; and the shard is counted.
func TestWhatLacksIsSaid(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	from, until := now.Add(-50*time.Minute), now.Add(-time.Second)
	gap := func(lost string) func(string, time.Time) bool {
		return func(job string, at time.Time) bool {
			return job == lost && at.After(now.Add(-26*time.Minute)) && at.Before(now.Add(-22*time.Minute))
		}
	}
	stamps := `between 20\S+Z and 20\S+Z`
	for _, c := range []struct {
		name  string
		a, b  func(string, time.Time) bool
		query string
		says  []string // with the addresses as A and B
		raw   bool
	}{
		{"nobody", nil, nil, `sum(count_over_time(up[10m]))`, nil, false},
		{"one", gap("node"), nil, `sum(count_over_time(up[10m]))`, []string{`; jaguar/A lacks \d+ scrapes that another one has, ` + stamps + `, most of job node, so another one is read\n`}, false},
		{"one, and series are needed", gap("node"), nil, `count(info(up))`, []string{`; jaguar/A lacks \d+ scrapes that another one has, ` + stamps + `, most of job node, so another one is read\n`}, false},
		{"each", gap("node"), gap("gpu"), `stddev(count_over_time(up[10m]))`, []string{ // which is in no parcels
			`no replica of shard jaguar\[0\] is known to be whole over its window: jaguar/A lacks \d+ scrapes that another one has, ` + stamps + `, most of job node; jaguar/B lacks \d+ scrapes that another one has, ` + stamps + `, most of job gpu\n`,
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := promShard(t, labels.FromStrings("replica", "a"), twoJobs(from, until, 2*time.Second, c.a))
			b := promShard(t, labels.FromStrings("replica", "b"), twoJobs(from, until, 9*time.Second, c.b))
			s, base := startProxy(t, t.Context(), replicasConfig("    heartbeat: up\n", a.URL(), b.URL())+"limits: {max_series: 3}\n")
			named := strings.NewReplacer(strings.TrimPrefix(a.URL(), "http://"), "A", strings.TrimPrefix(b.URL(), "http://"), "B").Replace
			at := stamp(now.Add(-18 * time.Minute))
			e, err := s.ExplainQuery(t.Context(), Question{Query: c.query, Time: at})
			if err != nil {
				t.Fatal(err)
			}
			why := named(whys(e.Plan))
			if c.says == nil && strings.Contains(why, "lacks") {
				t.Errorf("explain says %s", why)
			}
			for _, want := range c.says {
				if !regexp.MustCompile(want).MatchString(why) {
					t.Errorf("explain says %s, and not %s", why, want)
				}
			}
			r := &rig{t: t, s: s}
			before := r.metric("spillway_shard_raw_plans_total", "group=jaguar", "shard=0", "cause=not_whole")
			code, body := ask(t, base, "/api/v1/query", url.Values{"query": {c.query}, "time": {at}})
			if n := r.metric("spillway_shard_raw_plans_total", "group=jaguar", "shard=0",
				"cause=not_whole") - before; n != map[bool]float64{true: 1}[c.raw] {
				t.Errorf("the shard is counted %g times", n)
			}
			if !c.raw {
				return
			}
			text := named(fmt.Sprintf("%d %s", code, body))
			for _, want := range []string{
				`^422 .*they have to be read since it is evaluated here: no replica of shard jaguar\[0\] is known to be whole over its window: jaguar/A lacks \d+ scrapes that another one has, ` + stamps + `, most of job node; jaguar/B lacks`,
				`ask for a time over which one replica lacks nothing; for good: mend the replica that does not scrape what another one does`,
			} {
				if !regexp.MustCompile(want).MatchString(text) {
					t.Errorf("refused with %s, and not %s", text, want)
				}
			}
		})
	}
}
