package canary

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"golang.org/x/sync/errgroup"

	"github.com/spillwayproject/spillway/internal/clip"
	"github.com/spillwayproject/spillway/internal/pause"
	"github.com/spillwayproject/spillway/relabel/uses"
)

const (
	// days is how many days before now are looked at, steady on how many in a row a selector must
	// have found something to be missed after them.
	days, steady = 7, 3
	// grace is how long something may be away before it is missed: a restart of its exporter, or of
	// the Prometheus that scrapes it.
	grace = time.Hour
)

// Options say what to ask whom.
type Options struct {
	// Uses are the alerts, rules and dashboards.
	Uses *uses.Set
	// API is the proxy, or one server that has everything.
	API promv1.API
	// Now is until when series are looked for.
	Now time.Time
	// ClusterLabel tells clusters apart; "" is one cluster.
	ClusterLabel string
	// Within bounds all of it; what is not asked by then is Unknown. 0 is no bound.
	Within time.Duration
	// Pause waits between two attempts; nil is a real pause.
	Pause func(context.Context, time.Duration) error
}

// State says what a selector finds.
type State string

// States of a selector in a cluster.
const (
	Found State = "found"
	// Gone found something on three days in a row, nothing since then, and nothing in the last
	// hour.
	Gone State = "gone"
	// Never has found nothing in seven days, in any cluster.
	Never State = "never"
	// Rare finds nothing now and did on some of the days: what is there only in a trouble. So is
	// what is gone while the metric is there with other values of the same labels, and what a rule
	// records that has nothing to record.
	Rare State = "rare"
	// Unknown could not be asked.
	Unknown State = "unknown"
)

// Finding is a selector that does not find what it should, and who looks for it.
type Finding struct {
	State    State    `json:"state"`
	Cluster  string   `json:"cluster,omitempty"`
	Selector string   `json:"selector"`
	Metric   string   `json:"metric"`
	Series   int64    `json:"series,omitempty"`   // when it was seen last,
	DaysAgo  int      `json:"days_ago,omitempty"` // so many days ago
	Uses     []string `json:"uses"`               // alerts, rules and panels
	Why      string   `json:"why,omitempty"`      // it is Unknown, or Rare
}

// Report is what was found.
type Report struct {
	At time.Time `json:"at"`
	// Selectors is how many were asked, Skipped how many name no metric.
	Selectors int `json:"selectors"`
	Skipped   int `json:"skipped,omitempty"`
	// Clusters has how many selectors of each are in each state; of Never and Unknown under "".
	Clusters map[string]map[State]int `json:"clusters"`
	// Lost are clusters of which nothing is left. Their selectors are counted as gone, and are not
	// among the findings.
	Lost []string `json:"lost,omitempty"`
	// Young says that nothing was there on three days in a row yet, so that nothing can be gone.
	Young bool `json:"young,omitempty"`
	// Unlabelled says that no series has the label that tells clusters apart.
	Unlabelled bool `json:"unlabelled,omitempty"`
	// Findings are all but those that find something; the gravest first.
	Findings []Finding `json:"findings"`
}

// Count is how many selectors are in the state, in one cluster or many.
func (r *Report) Count(s State) int {
	different := map[string]bool{}
	for _, f := range r.Findings {
		if f.State == s {
			different[f.Selector] = true
		}
	}
	return len(different)
}

// Blind says why this was no look at all, by which nothing is known to be well; empty where it was
// one.
func (r *Report) Blind() string {
	switch unknown := r.Count(Unknown); {
	case unknown > r.Selectors/2:
		return fmt.Sprintf("%d of %d selectors could not be asked", unknown, r.Selectors)
	case r.Count(Never) == r.Selectors:
		return fmt.Sprintf("none of %d selectors has found anything in %d days: is it the right server, and are these its rules and dashboards?", r.Selectors, days)
	}
	return ""
}

// asked is a selector, who looks for it, and what it found.
type asked struct {
	selector, metric string
	bare             string // the same with any values of its labels; empty where that is no other
	records          string // what the rules evaluate that record the metric; empty where none is known
	uses             []string
	found            map[string]seen // by cluster
	back             map[string]bool // clusters in which there was something within the grace
	values           map[string]bool // … in which there was the bare one
	recordable       map[string]bool // … in which there is something to record
	err              error
}

// seen is how many series a selector found on each day, from days ago to now.
type seen [days + 1]int64

// last is on which of the days something was seen last, before now and after as many in a row that
// it is missed; -1 where it is not.
func (n seen) last() int {
	i := days
	for i >= 0 && n[i] == 0 {
		i--
	}
	if i == days || i < steady-1 || slices.Contains(n[i-steady+1:i+1], 0) {
		return -1
	}
	return i
}

// misses tells whether a cluster lacks what it had, as far as is known by now.
func (a *asked) misses(cluster string) bool {
	return a.found[cluster].last() >= 0 && !a.back[cluster]
}

// anywhere tells whether any cluster does.
func (a *asked) anywhere() bool {
	for c := range a.found {
		if a.misses(c) {
			return true
		}
	}
	return false
}

// Run asks for all selectors. An error means that nobody could be asked, or that ctx ended.
func Run(ctx context.Context, o Options) (*Report, error) {
	all, skipped := selectors(o.Uses)
	if len(all) == 0 {
		return nil, errors.New("there is no selector to ask for: none of the files has a query that names a metric")
	}
	if o.Pause == nil {
		o.Pause = pause.For
	}
	within := ctx
	if o.Within > 0 {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeoutCause(ctx, o.Within, fmt.Errorf("not asked within %s", o.Within))
		defer cancel()
	}
	q := &questions{Options: o}
	each := func(which func(*asked) bool, do func(*asked) error) {
		var g errgroup.Group
		g.SetLimit(atOnce)
		for _, a := range all {
			if a.err == nil && which(a) {
				g.Go(func() error { a.err = do(a); return nil })
			}
		}
		_ = g.Wait() // they return none
	}
	each(func(*asked) bool { return true }, func(a *asked) (err error) { a.found, err = q.days(within, a.selector); return err })
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if !slices.ContainsFunc(all, func(a *asked) bool { return a.err == nil }) {
		return nil, fmt.Errorf("none of %d selectors could be asked, the first: %s", len(all), clip.Said(sentence(all[0].err)))
	}
	each((*asked).anywhere, func(a *asked) (err error) { a.back, err = q.recent(within, a.selector); return err })
	each(func(a *asked) bool { return a.bare != "" && a.anywhere() },
		func(a *asked) (err error) { a.values, err = q.recent(within, a.bare); return err })
	each(func(a *asked) bool { return a.records != "" && a.anywhere() },
		func(a *asked) (err error) { a.recordable, err = q.now(within, a.records); return err })
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return report(o, all, skipped), nil
}

// selectors are the different ones of all uses, by metric, and how many name none.
func selectors(set *uses.Set) (all []*asked, skipped int) {
	by, nameless, rules := map[string]*asked{}, map[string]bool{}, map[string][]string{}
	for _, u := range set.Uses {
		if u.Records != "" {
			rules[u.Records] = append(rules[u.Records], u.Query)
		}
		for i := range u.Needs {
			n := &u.Needs[i]
			name, ok := n.Name()
			text := n.Selector()
			if !ok {
				nameless[text] = true
				continue
			}
			a := by[text]
			if a == nil {
				a = &asked{selector: text, metric: name, bare: bare(n)}
				by[text] = a
				all = append(all, a)
			}
			if !slices.Contains(a.uses, u.Where) {
				a.uses = append(a.uses, u.Where)
			}
		}
	}
	for _, a := range all {
		a.records = strings.Join(rules[a.metric], "\nor\n")
	}
	slices.SortFunc(all, func(a, b *asked) int {
		return cmp.Or(cmp.Compare(a.metric, b.metric), cmp.Compare(a.selector, b.selector))
	})
	return all, len(nameless)
}

// bare is a need's selector with any values in place of those that it names, but for the job: a
// reason, a code or an Xid comes and goes, while a label that is no longer there was dropped or
// renamed. It is empty where it names none.
func bare(n *uses.Need) string {
	out := uses.Need{}
	for _, m := range n.Matchers {
		switch {
		case m.Name == model.MetricNameLabel || m.Name == model.JobLabel:
			out.Matchers = append(out.Matchers, m)
		case !m.Matches(""):
			out.Matchers = append(out.Matchers, labels.MustNewMatcher(labels.MatchNotEqual, m.Name, ""))
		}
	}
	if text := out.Selector(); text != n.Selector() {
		return text
	}
	return ""
}

// lostClusters are those that had something on three days in a row, of which no selector finds
// anything now.
func lostClusters(all []*asked) map[string]bool {
	had, has := map[string]bool{}, map[string]bool{}
	for _, a := range all {
		for c, n := range a.found {
			had[c] = had[c] || a.misses(c)
			has[c] = has[c] || n[days] > 0 || a.back[c]
		}
	}
	maps.DeleteFunc(had, func(c string, misses bool) bool { return !misses || has[c] || c == "" })
	return had
}

// report sorts what was found.
func report(o Options, all []*asked, skipped int) *Report {
	lost := lostClusters(all)
	r := &Report{
		At: o.Now, Selectors: len(all), Skipped: skipped, Clusters: map[string]map[State]int{}, Lost: slices.Sorted(maps.Keys(lost)),
		Young: true, Unlabelled: o.ClusterLabel != "",
	}
	add := func(a *asked, cluster string, s State, why string) {
		if r.Clusters[cluster] == nil {
			r.Clusters[cluster] = map[State]int{}
		}
		r.Clusters[cluster][s]++
		if s == Found || lost[cluster] {
			return
		}
		f := Finding{State: s, Cluster: cluster, Selector: a.selector, Metric: a.metric, Uses: a.uses, Why: why}
		if i := a.found[cluster].last(); s == Gone {
			f.Series, f.DaysAgo = a.found[cluster][i], days-i
		}
		r.Findings = append(r.Findings, f)
	}
	for _, a := range all {
		for c, n := range a.found {
			r.Unlabelled = r.Unlabelled && c == ""
			r.Young = r.Young && !n.steady()
		}
		switch {
		case a.err != nil:
			add(a, "", Unknown, clip.Said(sentence(a.err)))
			continue
		case len(a.found) == 0:
			add(a, "", Never, "")
			continue
		}
		for _, c := range slices.Sorted(maps.Keys(a.found)) {
			switch {
			case a.found[c][days] > 0 || a.back[c]:
				add(a, c, Found, "")
			case lost[c]:
				add(a, c, Gone, "")
			case !a.misses(c):
				add(a, c, Rare, "")
			case a.values[c]:
				add(a, c, Rare, "the metric is there, with other values of its labels")
			case a.recordable != nil && !a.recordable[c]:
				add(a, c, Rare, "its rule has nothing to record")
			default:
				add(a, c, Gone, "")
			}
		}
	}
	r.Unlabelled = r.Unlabelled && len(r.Clusters[""]) > 0 && r.Blind() == ""
	order := []State{Gone, Unknown, Never, Rare}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.State), slices.Index(order, b.State)), cmp.Compare(a.Metric, b.Metric),
			cmp.Compare(a.Selector, b.Selector), cmp.Compare(a.Why, b.Why), cmp.Compare(a.Cluster, b.Cluster))
	})
	return r
}

// steady tells whether something was there on so many days in a row that it would be missed now.
func (n seen) steady() bool {
	for i := range days - steady + 1 {
		if !slices.Contains(n[i:i+steady], 0) {
			return true
		}
	}
	return false
}
