package canary

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	"golang.org/x/sync/errgroup"

	"github.com/spillwayproject/spillway/internal/clip"
	"github.com/spillwayproject/spillway/internal/pause"
	"github.com/spillwayproject/spillway/relabel/uses"
)

const (
	// days is how many days before now are looked at, steady on how many of the last ones a
	// selector must have found something to be missed.
	days, steady = 7, 3
	// grace is how long something may be away before it is missed: a restart of its exporter, or of
	// the Prometheus that scrapes it.
	grace = time.Hour
	// atOnce is how many queries are under way.
	atOnce = 4
	// attempts is how often a query is sent that is turned away for now; the pause before another
	// one doubles.
	attempts   = 4
	firstPause = 2 * time.Second
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
	// Pause waits between two attempts; nil is a real pause.
	Pause func(context.Context, time.Duration) error
}

// NewAPI is a client of the API below base; hc brings credentials and the bound of time.
func NewAPI(base string, hc *http.Client) (promv1.API, error) {
	c, err := api.NewClient(api.Config{Address: base, Client: hc})
	if err != nil || !strings.HasPrefix(base, "http://") && !strings.HasPrefix(base, "https://") {
		return nil, fmt.Errorf("--url=%s is no URL of a Prometheus API: write http://host:9090 or https://host/prefix", base)
	}
	return promv1.NewAPI(c), nil
}

// State says what a selector finds.
type State string

// States of a selector in a cluster.
const (
	Found State = "found"
	// Gone found something on each of the last three days, and nothing in the last hour.
	Gone State = "gone"
	// Never has found nothing in seven days, in any cluster.
	Never State = "never"
	// Rare finds nothing now and did on some of the days: what is there only in a trouble.
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
	Series   int64    `json:"series,omitempty"` // a day ago
	Uses     []string `json:"uses"`             // alerts, rules and panels
	Why      string   `json:"why,omitempty"`    // of Unknown
}

// Report is what was found.
type Report struct {
	At time.Time `json:"at"`
	// Selectors is how many were asked, Skipped how many name no metric.
	Selectors int `json:"selectors"`
	Skipped   int `json:"skipped,omitempty"`
	// Clusters has how many selectors of each are in each state; of Never and Unknown under "".
	Clusters map[string]map[State]int `json:"clusters"`
	// Lost are clusters of which nothing is left. Their selectors are not among the findings.
	Lost []string `json:"lost,omitempty"`
	// Findings are all but those that find something; the gravest first.
	Findings []Finding `json:"findings"`
}

// Count is how many findings are in the state.
func (r *Report) Count(s State) (n int) {
	for _, f := range r.Findings {
		if f.State == s {
			n++
		}
	}
	return n
}

// asked is a selector, who looks for it, and what it found: by cluster how many series on each day,
// from days ago to now.
type asked struct {
	selector, metric string
	uses             []string
	found            map[string][days + 1]int64
	err              error
}

// misses tells whether there is nothing now of what was there, in a cluster that is not lost.
func (a *asked) misses(lost map[string]bool) bool {
	for c, n := range a.found {
		if gone(n) && !lost[c] {
			return true
		}
	}
	return false
}

// Run asks for all selectors. An error means that nobody could be asked.
func Run(ctx context.Context, o Options) (*Report, error) {
	all, skipped := selectors(o.Uses)
	if len(all) == 0 {
		return nil, errors.New("there is no selector to ask for: none of the files has a query that names a metric")
	}
	if o.Pause == nil {
		o.Pause = pause.For
	}
	var g errgroup.Group
	g.SetLimit(atOnce)
	for _, a := range all {
		g.Go(func() error { a.found, a.err = o.days(ctx, a.selector); return nil })
	}
	_ = g.Wait() // they return none
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if !slices.ContainsFunc(all, func(a *asked) bool { return a.err == nil }) {
		return nil, fmt.Errorf("none of %d selectors could be asked, the first: %w", len(all), all[0].err)
	}
	lost := lostClusters(all)
	var mu sync.Mutex
	back := map[*asked]map[string]bool{} // clusters in which there was something within the hour
	for _, a := range all {
		if a.err != nil || !a.misses(lost) {
			continue
		}
		g.Go(func() error {
			now, err := o.recent(ctx, a.selector)
			mu.Lock()
			defer mu.Unlock()
			back[a], a.err = now, err
			return nil
		})
	}
	_ = g.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return report(o.Now, all, skipped, lost, back), nil
}

// selectors are the different ones of all uses, by metric, and how many name none.
func selectors(set *uses.Set) (all []*asked, skipped int) {
	by := map[string]*asked{}
	nameless := map[string]bool{}
	for _, u := range set.Uses {
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
				a = &asked{selector: text, metric: name}
				by[text] = a
				all = append(all, a)
			}
			if !slices.Contains(a.uses, u.Where) {
				a.uses = append(a.uses, u.Where)
			}
		}
	}
	slices.SortFunc(all, func(a, b *asked) int {
		return cmp.Or(cmp.Compare(a.metric, b.metric), cmp.Compare(a.selector, b.selector))
	})
	return all, len(nameless)
}

// count is a query for how many series a selector finds in each cluster.
func (o *Options) count(selector string) string {
	if o.ClusterLabel == "" {
		return "count(" + selector + ")"
	}
	return "count by (" + o.ClusterLabel + ") (" + selector + ")"
}

// days asks how many series the selector finds in each cluster, on each day.
func (o *Options) days(ctx context.Context, selector string) (map[string][days + 1]int64, error) {
	const day = 24 * time.Hour
	r := promv1.Range{Start: o.Now.Add(-days * day), End: o.Now, Step: day}
	v, err := o.ask(ctx, func() (model.Value, promv1.Warnings, error) { return o.API.QueryRange(ctx, o.count(selector), r) })
	if err != nil {
		return nil, err
	}
	m, ok := v.(model.Matrix)
	if !ok {
		return nil, fmt.Errorf("the answer is a %s and not a matrix", v.Type())
	}
	out := map[string][days + 1]int64{}
	for _, s := range m {
		var n [days + 1]int64
		for _, p := range s.Values {
			if i := int(p.Timestamp.Time().Sub(r.Start).Round(day) / day); i >= 0 && i <= days {
				n[i] = int64(p.Value)
			}
		}
		out[string(s.Metric[model.LabelName(o.ClusterLabel)])] = n
	}
	return out, nil
}

// recent asks in which clusters the selector has found anything within the grace.
func (o *Options) recent(ctx context.Context, selector string) (map[string]bool, error) {
	query := o.count("present_over_time(" + selector + "[" + model.Duration(grace).String() + "])")
	v, err := o.ask(ctx, func() (model.Value, promv1.Warnings, error) { return o.API.Query(ctx, query, o.Now) })
	if err != nil {
		return nil, err
	}
	all, ok := v.(model.Vector)
	if !ok {
		return nil, fmt.Errorf("the answer is a %s and not a vector", v.Type())
	}
	out := map[string]bool{}
	for _, s := range all {
		out[string(s.Metric[model.LabelName(o.ClusterLabel)])] = true
	}
	return out, nil
}

// promQLWarning are PromQL's own warnings; by any other a part of the series is not in the answer.
var promQLWarning = regexp.MustCompile(`^PromQL (info|warning)`)

// ask asks, again where it is turned away for now. An answer of a part of the servers is none: what
// the others have would be called gone.
func (o *Options) ask(ctx context.Context, query func() (model.Value, promv1.Warnings, error)) (model.Value, error) {
	wait := firstPause
	for i := 1; ; i++ {
		v, warnings, err := query()
		if err == nil {
			for _, w := range warnings {
				if !promQLWarning.MatchString(w) {
					return nil, fmt.Errorf("the answer came with a warning: %s", clip.Said(w))
				}
			}
			return v, nil
		}
		var said *promv1.Error
		refused := errors.As(err, &said) && !slices.Contains([]promv1.ErrorType{promv1.ErrServer, promv1.ErrTimeout}, said.Type) &&
			!strings.Contains(said.Msg, "429")
		if refused || i == attempts || ctx.Err() != nil {
			return nil, err
		}
		if err := o.Pause(ctx, wait); err != nil {
			return nil, err
		}
		wait *= 2
	}
}

// gone tells whether there is nothing now of what was there on each of the last days.
func gone(n [days + 1]int64) bool {
	return n[days] == 0 && !slices.Contains(n[days-steady:days], 0)
}

// lostClusters are those that had something on each of the last days, of which no selector finds
// anything now.
func lostClusters(all []*asked) map[string]bool {
	had, has := map[string]bool{}, map[string]bool{}
	for _, a := range all {
		for c, n := range a.found {
			had[c] = had[c] || gone(n)
			has[c] = has[c] || n[days] > 0
		}
	}
	maps.DeleteFunc(had, func(c string, gone bool) bool { return !gone || has[c] || c == "" })
	return had
}

// report sorts what was found.
func report(now time.Time, all []*asked, skipped int, lost map[string]bool, back map[*asked]map[string]bool) *Report {
	r := &Report{At: now, Selectors: len(all), Skipped: skipped, Clusters: map[string]map[State]int{}, Lost: slices.Sorted(maps.Keys(lost))}
	add := func(a *asked, cluster string, s State) *Finding {
		if r.Clusters[cluster] == nil {
			r.Clusters[cluster] = map[State]int{}
		}
		r.Clusters[cluster][s]++
		if s == Found {
			return nil
		}
		r.Findings = append(r.Findings, Finding{State: s, Cluster: cluster, Selector: a.selector, Metric: a.metric, Uses: a.uses})
		return &r.Findings[len(r.Findings)-1]
	}
	for _, a := range all {
		switch {
		case a.err != nil:
			add(a, "", Unknown).Why = clip.Said(a.err.Error())
			continue
		case len(a.found) == 0:
			add(a, "", Never)
			continue
		}
		for _, c := range slices.Sorted(maps.Keys(a.found)) {
			n := a.found[c]
			switch {
			case lost[c]:
			case n[days] > 0 || back[a][c]:
				add(a, c, Found)
			case gone(n):
				add(a, c, Gone).Series = n[days-1]
			default:
				add(a, c, Rare)
			}
		}
	}
	order := []State{Gone, Unknown, Never, Rare}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.State), slices.Index(order, b.State)), cmp.Compare(a.Cluster, b.Cluster))
	})
	return r
}
