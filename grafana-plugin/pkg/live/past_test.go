package live

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/data"

	"github.com/spillwayproject/spillway/alerts"
	"github.com/spillwayproject/spillway/grafana-plugin/pkg/experiments"
	"github.com/spillwayproject/spillway/grafana-plugin/pkg/model"
	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
	"github.com/spillwayproject/spillway/internal/realprom/realpromtest"
	"github.com/spillwayproject/spillway/loadtest/cluster"
)

func TestMain(m *testing.M) { realpromtest.Main(m) }

const (
	big, small = "jaguar", "ibis"
	// spread is a run with gangs in both clusters.
	spread = "llama-70b"
	// window is what is asked about, and before is written in front of it, so that rates and
	// lookbacks at its beginning have what they look back on.
	window, before = 4 * time.Hour, 15 * time.Minute
	scrapes        = 30 * time.Second
	every          = time.Minute // rules are evaluated
	// points is how many a panel shows.
	points = 300
	// late is how long after it happened a change may be seen by a rule: a scrape's interval and
	// its jitter.
	late = scrapes + time.Second
)

// hostile are names of experiments as no one should have them. Each must show as it is, and choose
// nothing but itself.
var hostile = []string{
	`<script>alert("x")</script><img src=x onerror=alert(1)>`,
	`quote " backslash \ back\\slash tick ` + "`" + ` single '`,
	`.*`,
	`.+|a|^$`,
	"line\nbreak\ttab\r",
	"\u202egnp.exe\u202c rtl \u200b zero",
	strings.Repeat("long-", 2000) + "x", // 10 kB
	`${__from} $__experiment $experiment {{node}} %s`,
}

// past is the clusters, and when they are asked.
type past struct {
	models      map[string]*cluster.Model
	from, until time.Time
	pods        []truePod // of [from-before, until]
	idle        string    // the gang that holds its GPUs and does nothing, of small
	faults      map[string]cluster.Trouble
}

// truePod is a pod and its cluster.
type truePod struct {
	cluster.Pod
	cluster string
}

// phase is the pod's at a moment, "" where it is not there.
func (p truePod) phase(at time.Time) string {
	switch {
	case at.Before(p.Created) || !at.Before(p.Removed):
		return ""
	case p.Started.IsZero() || at.Before(p.Started):
		return "Pending"
	case at.Before(p.Ended):
		return "Running"
	case p.Failed:
		return "Failed"
	}
	return "Succeeded"
}

// over is when the pod gave its GPUs back.
func (p truePod) over() time.Time {
	if p.Ended.IsZero() {
		return p.Removed
	}
	return p.Ended
}

// changes are the moments at which something of the pod changes.
func (p truePod) changes() []time.Time {
	out := []time.Time{p.Created, p.Removed}
	for _, t := range []time.Time{p.Scheduled, p.Started, p.Ended} {
		if !t.IsZero() {
			out = append(out, t)
		}
	}
	for _, r := range p.Restarts {
		out = append(out, r.From, r.Until)
	}
	return out
}

// quiet says that no pod changes shortly before a moment, so that what is seen then is what is.
func (p *past) quiet(at time.Time) bool {
	for _, q := range p.pods {
		for _, c := range q.changes() {
			if c.After(at.Add(-every-2*late)) && !c.After(at.Add(time.Second)) {
				return false
			}
		}
	}
	return true
}

func (p *past) collect() {
	p.pods = nil
	for _, name := range slices.Sorted(maps.Keys(p.models)) {
		for _, q := range p.models[name].Pods(p.from.Add(-before), p.until) {
			p.pods = append(p.pods, truePod{q, name})
		}
	}
}

// built is when the clusters were, and around when they are looked at.
var (
	built  = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	around = time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
)

func optionsOf(seed uint64) map[string]cluster.Options {
	return map[string]cluster.Options{
		big:   {Seed: seed, Cluster: big, Nodes: 12, KubeStateMetrics: 2, Detail: cluster.Full, Start: built},
		small: {Seed: seed, Cluster: small, Nodes: 4, Detail: cluster.Full, Start: built},
	}
}

// findPast looks for a time in which everything happens that the tests are about.
func findPast(t *testing.T) *past {
	t.Helper()
	why := map[string]int{}
	for seed := range uint64(40) {
		options, models := optionsOf(seed), map[string]*cluster.Model{}
		for name, o := range options {
			m, err := cluster.New(o)
			if err != nil {
				t.Fatal(err)
			}
			models[name] = m
		}
		for k := range 500 {
			p, err := tryPast(options, models, around.Add(-time.Duration(k)*11*time.Minute))
			if err == nil {
				t.Logf("a past of seed %d that ends at %s", seed, p.until)
				return p
			}
			why[err.Error()]++
		}
	}
	t.Fatalf("no time has all that the tests are about; what was lacking, and how often: %v", why)
	return nil
}

func tryPast(options map[string]cluster.Options, models map[string]*cluster.Model, until time.Time) (*past, error) {
	p := &past{models: map[string]*cluster.Model{}, from: until.Add(-window), until: until, faults: map[string]cluster.Trouble{}}
	in := map[string][]cluster.Experiment{}
	for name, m := range models {
		in[name] = m.Experiments(p.from, until)
	}
	runsNow := func(e cluster.Experiment) bool {
		return slices.ContainsFunc(e.Runs, func(r cluster.Span) bool {
			return r.From.Before(until.Add(-110*time.Minute)) && r.Until.After(until.Add(10*time.Minute))
		})
	}
	var run, other, gang *cluster.Experiment
	for i := range in[big] {
		for j := range in[small] {
			a, b := &in[big][i], &in[small][j]
			if len(a.Nodes) > 1 && a.Namespace == b.Namespace && a.Team == b.Team && runsNow(*a) && runsNow(*b) &&
				a.GPUs*len(a.Nodes) > 2*b.GPUs*len(b.Nodes) {
				run, other = a, b
			}
		}
	}
	if run == nil {
		return nil, errors.New("a gang of both clusters in one namespace")
	}
	for i := range in[big] {
		if e := &in[big][i]; e.Name != run.Name && len(e.Nodes) > 1 && runsNow(*e) {
			gang = e
		}
	}
	if gang == nil {
		return nil, errors.New("a second gang")
	}
	called := map[string]cluster.Called{run.Name: {Experiment: spread}}
	rest := slices.Clone(hostile)
	for _, e := range in[big] {
		if e.Name != run.Name && e.Name != gang.Name && len(rest) > 0 && len(e.Runs) > 0 &&
			e.Runs[0].From.Before(until.Add(-30*time.Minute)) && e.Runs[len(e.Runs)-1].Until.After(p.from.Add(30*time.Minute)) {
			called[e.Name] = cluster.Called{Experiment: rest[0]}
			rest = rest[1:]
		}
	}
	if len(rest) > 0 {
		return nil, errors.New("experiments for all hostile names")
	}
	trouble := func(kind cluster.Kind, target string, from, to time.Duration, value float64) cluster.Trouble {
		tr := cluster.Trouble{Kind: kind, Target: target, From: until.Add(from), Until: until.Add(to), Value: value}
		p.faults[string(kind)] = tr
		return tr
	}
	o := options[big]
	o.Called = called
	o.Troubles = []cluster.Trouble{
		// Not long enough for its pods to be evicted.
		trouble(cluster.NodeNotReady, run.Nodes[0], -4*time.Minute, 30*time.Minute, 0),
		// Kills the run, which begins again under the same names of pods.
		trouble(cluster.GPUXidFatal, run.Nodes[1]+"/5", -100*time.Minute, -80*time.Minute, 95),
		trouble(cluster.GPUHot, run.Nodes[0]+"/2", -window, 30*time.Minute, 0),
		trouble(cluster.NodeCordoned, run.Nodes[1], -20*time.Minute, 30*time.Minute, 0),
		trouble(cluster.GangHalfPending, gang.Name, -25*time.Minute, 30*time.Minute, 0),
	}
	s := options[small]
	s.Called = map[string]cluster.Called{other.Name: {Experiment: spread}}
	p.idle = other.Name
	s.Troubles = []cluster.Trouble{trouble(cluster.GPUAllocatedIdle, other.Name, -window, time.Hour, 0)}
	for name, o := range map[string]cluster.Options{big: o, small: s} {
		m, err := cluster.New(o)
		if err != nil {
			return nil, err
		}
		p.models[name] = m
	}
	p.collect()
	return p, p.check()
}

// check says what of all that the tests are about does not happen.
func (p *past) check() error {
	if !p.quiet(p.until) {
		return errors.New("quiet")
	}
	var pending, began, ended bool
	uids, clusters := map[string]map[string]bool{}, map[string]bool{}
	for _, q := range p.pods {
		began = began || q.Experiment != spread && q.Started.After(p.from.Add(15*time.Minute)) && q.phase(p.until) == "Running" &&
			q.Attempt == 0
		ended = ended || q.Started.Before(p.from) && !q.Ended.IsZero() && q.Ended.After(p.from.Add(10*time.Minute)) &&
			q.Removed.Before(p.until)
		pending = pending || q.phase(p.until) == "Pending" && p.until.Sub(q.Created) > 5*time.Minute
		if q.Experiment == spread && q.phase(p.until) == "Running" {
			clusters[q.cluster] = true
		}
		id := q.cluster + "/" + q.Namespace + "/" + q.Name
		if low, _ := marks(q.Created, q.Removed, p.from, p.until); low == 0 {
			continue
		}
		if uids[id] == nil {
			uids[id] = map[string]bool{}
		}
		uids[id][q.UID] = true
	}
	reused := false
	for _, u := range uids {
		reused = reused || len(u) > 1
	}
	switch {
	case !pending:
		return errors.New("pods that wait")
	case !began:
		return errors.New("a run that began")
	case !ended:
		return errors.New("a run that ended")
	case !reused:
		return errors.New("a name of a pod that is used twice")
	case len(clusters) != 2:
		return errors.New("the run in both clusters at the end")
	}
	return nil
}

// of are the pods of an experiment, by its label.
func (p *past) of(experiment string) []truePod {
	var out []truePod
	for _, q := range p.pods {
		if q.Experiment == experiment {
			out = append(out, q)
		}
	}
	return out
}

// names are the labels of all experiments that a rule must have seen within the window, sorted.
func (p *past) names() []string {
	var out []string
	for _, q := range p.pods {
		if low, _ := marks(q.Created, q.Removed, p.from, p.until); low > 0 {
			out = append(out, q.Experiment)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// marks is at how many evaluations in (from, until] a rule sees what is there in [begins, ends): at
// least and at most, as scrapes come late.
func marks(begins, ends, from, until time.Time) (low, high int) {
	count := func(a, b time.Time) int { // multiples of every in [a, b) ∩ (from, until]
		if m := from.Add(time.Millisecond); a.Before(m) {
			a = m
		}
		if m := until.Add(time.Millisecond); b.After(m) {
			b = m
		}
		up := func(t time.Time) int64 {
			return int64(math.Ceil(float64(t.UnixMilli()) / float64(every.Milliseconds())))
		}
		return int(max(0, up(b)-up(a)))
	}
	return count(begins.Add(late), ends), count(begins, ends.Add(late))
}

// stage is the past behind the proxy.
type stage struct {
	*past
	servers  *Servers
	client   *prom.Client
	settings model.Settings
}

// newStage writes the past and starts its servers; they end with the test.
func newStage(t *testing.T, settings string) *stage {
	t.Helper()
	spillway := realpromtest.Spillway(t)
	p := findPast(t)
	w, err := Write(t.Context(), Options{
		Dir: t.TempDir(), From: p.from.Add(-before), Until: p.until.Add(every), Interval: scrapes, Rules: alerts.Global(),
		ShardRules: alerts.Shard(), Say: t.Logf,
		Clusters: []Cluster{{Model: p.models[big], Shards: 2, Replicas: 2}, {Model: p.models[small]}},
	})
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{past: p}
	if s.servers, err = w.Serve(t.Context(), spillway); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.servers.Stop(); err != nil {
			t.Error(err)
		}
	})
	s.client = newClient(t, s.servers.URL)
	if s.settings, err = model.ParseSettings([]byte(settings)); err != nil {
		t.Fatal(err)
	}
	return s
}

// newClient asks a proxy; its connections end with the test.
func newClient(t *testing.T, url string) *prom.Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	c, err := prom.New(url, &http.Client{Transport: transport, Timeout: time.Minute}, "")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// do answers a query, as the editor writes it, over the window.
func (s *stage) do(ctx context.Context, query string) (data.Frames, error) {
	q, err := model.ParseQuery("A", "", []byte(query))
	if err != nil {
		return nil, err
	}
	r := experiments.NewRun(s.client, s.settings, q, s.from, s.until)
	r.MaxPoints = points
	return r.Do(ctx)
}

// frames is do without an error.
func (s *stage) frames(t *testing.T, query string) data.Frames {
	t.Helper()
	f, err := s.do(t.Context(), query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return f
}

// rows are those of a table, by the names of its fields.
func (s *stage) rows(t *testing.T, query string) []map[string]any {
	t.Helper()
	f := s.frames(t, query)
	if len(f) != 1 {
		t.Fatalf("%s: %d frames are no table", query, len(f))
	}
	return rowsOf(t, f[0])
}

func rowsOf(t *testing.T, f *data.Frame) []map[string]any {
	t.Helper()
	n, err := f.RowLen()
	if err != nil {
		t.Fatal(err)
	}
	out := make([]map[string]any, n)
	for i := range out {
		out[i] = map[string]any{}
		for _, field := range f.Fields {
			if v, ok := field.ConcreteAt(i); ok {
				out[i][field.Name] = v
			} else {
				out[i][field.Name] = nil
			}
		}
	}
	return out
}

// id joins the values of fields of a row.
func id(row map[string]any, fields ...string) string {
	var parts []string
	for _, f := range fields {
		parts = append(parts, fmt.Sprint(row[f]))
	}
	return strings.Join(parts, "|")
}

// between reports where got is not among what must be there and what may be.
func between(t *testing.T, what string, got, must, may map[string]bool) {
	t.Helper()
	for _, k := range slices.Sorted(maps.Keys(must)) {
		if !got[k] {
			t.Errorf("%s: %.200q is missing", what, k)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(got)) {
		if !may[k] {
			t.Errorf("%s: %.200q is too much", what, k)
		}
	}
	if len(got) == 0 {
		t.Errorf("%s: there is nothing", what)
	}
}

// near says that two numbers are apart by at most share of the larger one.
func near(a, b, share float64) bool { return math.Abs(a-b) <= share*max(math.Abs(a), math.Abs(b)) }

// TestPast: there is such a time.
func TestPast(t *testing.T) { findPast(t) }
