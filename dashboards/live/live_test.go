package live

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/prometheus/prometheus/model/relabel"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/dashboards"
	"github.com/spillwayproject/spillway/internal/realprom/realpromtest"
	mixin "github.com/spillwayproject/spillway/jsonnet"
	"github.com/spillwayproject/spillway/loadtest/cluster"
	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/relabeltest"
)

var (
	all    = flag.Bool("live.all", false, "stages every trouble that a panel names; without it three of them")
	only   = flag.String("live.only", "", "stages these troubles, with commas between them")
	update = flag.Bool("update", false, "writes docs/dashboards-by-trouble.md anew")
)

// short are the troubles of `make test`: a device, a part of the control plane, the fleet.
var short = []cluster.Kind{cluster.GPUXidFatal, cluster.EtcdFsyncSlow, cluster.NodeNotReady}

// ofProxy are dashboards of series that only a running proxy has: see TestScraped.
var ofProxy = []string{"proxy"}

func facts(t *testing.T) Facts {
	t.Helper()
	f, err := mixin.Panels()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func names() []string {
	return slices.DeleteFunc(dashboards.Names(), func(n string) bool { return slices.Contains(ofProxy, n) })
}

func load(t *testing.T, name string) *dashboards.Dashboard {
	t.Helper()
	d, err := dashboards.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestDashboards asks every query of every dashboard in the quiet hour and with troubles staged.
func TestDashboards(t *testing.T) { testDashboards(t, nil) }

// TestDashboardsAfterDropRules is the same with drop rules on the servers behind the proxy, made
// from all that the mixin looks at: the reference has everything, and no panel sees a difference.
func TestDashboardsAfterDropRules(t *testing.T) {
	testDashboards(t, func(blocks []string) (map[string][]*relabel.Config, error) {
		var sources []inventory.Source
		for _, dir := range blocks {
			src, err := inventory.Blocks(dir)
			if err != nil {
				return nil, err
			}
			sources = append(sources, src)
		}
		return relabeltest.Configs(relabeltest.Plan(t, "../..", big, inventory.Join(sources...), time.Now())), nil
	})
}

func testDashboards(t *testing.T, drop func([]string) (map[string][]*relabel.Config, error)) {
	f := facts(t)
	kinds := short
	switch {
	case *only != "":
		kinds = nil
		for _, k := range strings.Split(*only, ",") {
			kinds = append(kinds, cluster.Kind(k))
		}
	case *all:
		kinds = Kinds(f)
	}
	bin := realpromtest.Spillway(t)
	began := time.Now()
	p, err := MakePast(t.Context(), Options{Dir: t.TempDir(), Troubles: kinds, Drop: drop, Say: func(format string, args ...any) {
		t.Logf("%5.1fs  "+format, append([]any{time.Since(began).Seconds()}, args...)...)
	}})
	if err != nil {
		t.Fatal(err)
	}
	s, err := Serve(t.Context(), p, bin)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}()
	t.Logf("%5.1fs  servers are up", time.Since(began).Seconds())
	t.Run("quiet", func(t *testing.T) {
		var table strings.Builder
		w := tabwriter.NewWriter(&table, 2, 0, 2, ' ', 0)
		for _, name := range names() {
			t.Run(name, func(t *testing.T) { checkQuiet(t, s, p, load(t, name), f[name], drop != nil, w) })
		}
		_ = w.Flush()
		t.Logf("series of each panel and its budget:\n%s", table.String())
	})
	by := shown(f)
	for _, staged := range p.Staged {
		t.Run(string(staged.Kind), func(t *testing.T) {
			for name, titles := range by[staged.Kind] {
				if slices.Contains(names(), name) {
					checkTrouble(t, s, staged, load(t, name), titles, f[name], drop != nil)
				}
			}
		})
	}
	t.Logf("%5.1fs  done", time.Since(began).Seconds())
}

// look opens a dashboard.
func look(t *testing.T, source Source, d *dashboards.Dashboard, from, to time.Time, cluster string, prefer ...string) []Asked {
	t.Helper()
	v, err := Look(t.Context(), source, d, from, to, cluster, prefer...)
	if err != nil {
		t.Errorf("dashboard %s: %v", d.Name, err)
		return nil
	}
	qs, err := v.Questions()
	if err != nil {
		t.Errorf("dashboard %s: %v", d.Name, err)
	}
	return qs
}

// checkQuiet: with nothing wrong every query answers without a note and, but for panels that say
// why, with something; as many series as the panel may have at most; the proxy gives the same; and
// with one cluster chosen the other might as well not be there.
func checkQuiet(t *testing.T, s *Servers, p *Past, d *dashboards.Dashboard, facts map[string]mixin.PanelFacts, dropped bool,
	table *tabwriter.Writer,
) {
	from, to := p.Quiet.Add(-quiet), p.Quiet
	series, filled := map[string]int{}, map[string]bool{}
	for _, q := range look(t, s.Reference, d, from, to, everything) {
		a := ask(t, s.Reference, q)
		if a == nil {
			continue
		}
		if len(a.Notes) > 0 {
			t.Errorf("%s: the reference notes %q\n%s", q.Where, a.Notes, q.Question.Expr)
		}
		if a.OnlyNaN() {
			t.Errorf("%s: there is no number in the answer\n%s", q.Where, q.Question.Expr)
		}
		switch {
		case q.Panel != nil:
			series[q.Panel.Title] += len(a.Series)
			filled[q.Panel.Title] = filled[q.Panel.Title] || !a.Empty()
			if a.Empty() && facts[q.Panel.Title].Quiet == "" {
				t.Errorf("%s is empty, and does not say why\n%s", q.Where, q.Question.Expr)
			}
		case q.Variable != nil && a.Empty():
			t.Errorf("%s is empty\n%s", q.Where, q.Question.Expr)
		}
		if dropped && countsWhatIsStored(q.Question.Expr) {
			continue
		}
		same(t, s, q, a)
	}
	for _, title := range slices.Sorted(maps.Keys(series)) {
		budget := facts[title].Budget
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\n", d.Name, title, series[title], budget)
		if series[title] > budget {
			t.Errorf("panel %q returns %d series, of %d that it may", title, series[title], budget)
		}
	}
	// The calm twin has the big cluster only.
	alone := look(t, s.Calm, d, from, to, everything)
	for i, q := range look(t, s.Reference, d, from, to, big) {
		if i >= len(alone) || q.Variable != nil && q.Variable.Name == "cluster" {
			continue
		}
		if q.Variable != nil { // whose values are those of a whole block, troubles that come later among them: ask for the hour's
			q.Question, alone[i].Question = inRange(q.Question), inRange(alone[i].Question)
		}
		a, b := ask(t, s.Reference, q), ask(t, s.Calm, alone[i])
		if a == nil || b == nil {
			continue
		}
		if diff := differ(b, a, q.Question.Expr, false); diff != "" {
			t.Errorf("%s: with %s chosen, %s has a part in the answer: %s\n%s", q.Where, big, small, diff, q.Question.Expr)
		}
	}
}

// countsWhatIsStored: the panel is about how many series a server keeps, which is what drop rules
// are to change.
func countsWhatIsStored(expr string) bool {
	return strings.Contains(expr, "scrape_samples_post_metric_relabeling") || strings.Contains(expr, "scrape_series_added")
}

// inRange asks for a variable's values by a query, which looks at samples.
func inRange(q Question) Question {
	return Question{
		Expr: fmt.Sprintf("group by (%s) (last_over_time((%s)[%ds:1m]))", q.Label, q.Expr, int(q.To.Sub(q.From).Seconds())),
		From: q.From, To: q.To,
	}
}

// struckBy are the nodes, GPUs and other things that a trouble is on: the parts of its target, the
// nodes of an experiment, or, where the target is a share of the fleet, nodes that it made not
// ready.
func struckBy(t *testing.T, s *Servers, staged Staged) []string {
	t.Helper()
	expr := fmt.Sprintf(`experiment:pod:info{cluster="%s", experiment="%s", node!=""}`, big, staged.Target)
	if staged.Kind == cluster.NodeNotReady {
		expr = fmt.Sprintf(`kube_node_status_condition{cluster="%s", condition="Ready", status="true"} == 0`, big)
	}
	a, err := s.Reference.Ask(t.Context(), Question{Expr: expr, From: staged.From, To: staged.Until.Add(-interval)})
	if err != nil {
		t.Fatal(err)
	}
	var nodes []string
	for _, x := range a.Series {
		nodes = append(nodes, x.Labels["node"])
	}
	if staged.Kind != cluster.NodeNotReady {
		return append(parts(staged.Target), nodes...)
	}
	if len(nodes) == 0 {
		t.Fatalf("%s of %s left all nodes ready", staged.Kind, staged.Target)
	}
	return nodes
}

// checkTrouble: the panels answer otherwise than those of the calm twin, and the proxy as the
// reference.
func checkTrouble(t *testing.T, s *Servers, staged Staged, d *dashboards.Dashboard, titles []string, facts map[string]mixin.PanelFacts,
	dropped bool,
) {
	t.Helper()
	from, to := staged.From, staged.Until.Add(-interval)
	struck := struckBy(t, s, staged)
	ill := look(t, s.Reference, d, from, to, big, struck...)
	well := look(t, s.Calm, d, from, to, big, struck...)
	if len(ill) != len(well) {
		t.Errorf("dashboard %s: %d queries, and %d in calm", d.Name, len(ill), len(well))
		return
	}
	changed, filled := map[string]bool{}, map[string]bool{}
	for i, q := range ill {
		if q.Panel == nil || !slices.Contains(titles, q.Panel.Title) {
			continue
		}
		a, b := ask(t, s.Reference, q), ask(t, s.Calm, well[i])
		if a == nil || b == nil {
			continue
		}
		if len(a.Notes) > 0 {
			t.Errorf("%s: the reference notes %q\n%s", q.Where, a.Notes, q.Question.Expr)
		}
		filled[q.Panel.Title] = filled[q.Panel.Title] || !a.Empty()
		changed[q.Panel.Title] = changed[q.Panel.Title] || b.Differs(a, noticed) != ""
		if !dropped || !countsWhatIsStored(q.Question.Expr) {
			equal := same
			if slices.Contains(byPhase, staged.Kind) {
				equal = patched
			}
			equal(t, s, q, a)
		}
	}
	for _, title := range titles {
		switch {
		case !changed[title]:
			t.Errorf("dashboard %s: panel %q is the same with and without %s of %s", d.Name, title, staged.Kind, staged.Target)
		case facts[title].Quiet != "" && !filled[title]:
			t.Errorf("dashboard %s: panel %q is empty with %s of %s too", d.Name, title, staged.Kind, staged.Target)
		}
	}
}

// byPhase are the troubles in which a target answers some scrapes and not others: which of them a
// replica saw is up to when it scrapes.
var byPhase = []cluster.Kind{cluster.PrometheusOOMLoop}

// noticed is how far a value must be from that of the calm twin to be a change: one can see it.
const noticed = 0.02

// parts are a target's names, for the variables that have one of them.
func parts(target string) []string { return append(strings.Split(target, "/"), target) }

func ask(t *testing.T, s Source, q Asked) *Answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a, err := s.Ask(ctx, q.Question)
	if err != nil {
		t.Errorf("%s: %v", q.Where, err)
		return nil
	}
	return a
}

// same asks the proxy too. The proxy may read either replica of a shard: on a busy machine it
// passes over one that keeps it waiting, for as long as it does. The other one scraped at other
// moments, so its answer is as right, and another one: it must be that of one choice of replicas,
// for all of the answer.
func same(t *testing.T, s *Servers, q Asked, want *Answer) {
	t.Helper()
	diff := ""
	for range 5 { // the proxy can change over in the middle of a query
		var got *Answer
		var all []*Answer
		if got, all, diff = compare(t, s, q, want); diff == "" || got == nil {
			return
		}
		if len(all) == 0 {
			return // a reference that does not answer was told
		}
		select {
		case <-time.After(2 * time.Second):
		case <-t.Context().Done():
		}
	}
	t.Errorf("%s: %s and %s differ: %s; and so do all other choices of replicas\n%s", q.Where, s.Reference.name, s.Proxy.name, diff, q.Question.Expr)
}

// compare asks the proxy once, and those references that it takes to explain the answer. It gives
// all answers where none of them does.
func compare(t *testing.T, s *Servers, q Asked, want *Answer) (got *Answer, all []*Answer, diff string) {
	t.Helper()
	if got = ask(t, s.Proxy, q); got == nil {
		return nil, nil, ""
	}
	if len(got.Notes) > 0 {
		t.Errorf("%s: the proxy notes %q\n%s", q.Where, got.Notes, q.Question.Expr)
	}
	if diff = differ(want, got, q.Question.Expr, true); diff == "" {
		return got, nil, ""
	}
	others, err := s.Choices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	all = []*Answer{want}
	for _, other := range others {
		a := ask(t, other, q)
		if a == nil {
			return got, nil, diff
		}
		if differ(a, got, q.Question.Expr, true) == "" {
			t.Logf("%s: the proxy's answer is that of %s", q.Where, other.name)
			return got, nil, ""
		}
		all = append(all, a)
	}
	return got, all, diff
}

// patched is same where replicas have not scraped the same, so that the proxy reads each of a
// shard's series from either, where that one is whole: each point of each series that the query
// reads is that of a choice of replicas.
func patched(t *testing.T, s *Servers, q Asked, want *Answer) {
	t.Helper()
	if _, all, diff := compare(t, s, q, want); diff == "" || len(all) == 0 {
		return
	}
	expr, err := parser.NewParser(parser.Options{ExperimentalDurationExpr: true}).ParseExpr(q.Question.Expr)
	if err != nil {
		t.Fatal(err)
	}
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if v, ok := node.(*parser.VectorSelector); ok {
			leaf := q
			leaf.Question.Expr = v.String()
			read := ask(t, s.Reference, leaf)
			if read == nil {
				return nil
			}
			if got, all, diff := compare(t, s, leaf, read); diff != "" && len(all) > 0 {
				if where := got.outside(all); where != "" {
					t.Errorf("%s: the proxy and all references differ: %s\n%s", q.Where, where, leaf.Question.Expr)
				}
			}
		}
		return nil
	})
	t.Logf("%s: the proxy read each series from either replica", q.Where)
}

// differ says where b is not a, apart from what two right answers may differ in: topk takes either
// of two equal series, and sums over shards are added up in another order.
func differ(a, b *Answer, expr string, sums bool) string {
	relative, ties := tolerance(expr)
	if !sums {
		relative = 0
	}
	diff := a.Differs(b, relative)
	if diff != "" && ties && slices.Equal(a.last(), b.last()) {
		return ""
	}
	return diff
}

func TestChoices(t *testing.T) {
	got := fmt.Sprint(slices.Collect(choices(2, 3)))
	if want := "[[1 0] [2 0] [0 1] [1 1] [2 1] [0 2] [1 2] [2 2]]"; got != want {
		t.Errorf("choices are %s, want %s", got, want)
	}
}

// TestTable: docs/dashboards-by-trouble.md is what the mixin says.
func TestTable(t *testing.T) {
	var b bytes.Buffer
	if err := WriteTable(&b, facts(t)); err != nil {
		t.Fatal(err)
	}
	const page = "../../docs/dashboards-by-trouble.md"
	if *update {
		if err := os.WriteFile(page, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	now, err := os.ReadFile(page)
	if err != nil || !bytes.Equal(now, b.Bytes()) {
		t.Errorf("%s is not what the dashboards say (%v); run: go test ./dashboards/live -run TestTable -update", page, err)
	}
}

// TestStaged: every kind that a panel names is one that can be staged, and every panel that is
// empty while all is well names one.
func TestStaged(t *testing.T) {
	f := facts(t)
	for _, k := range Kinds(f) {
		if _, ok := caseOf(k); !ok {
			t.Errorf("a panel names the trouble %s, which nobody knows how to stage: see stage.go", k)
		}
	}
	for at := range Elsewhere {
		name, title, _ := strings.Cut(at, ": ")
		if f[name][title].Quiet == "" || len(f[name][title].Trouble) > 0 {
			t.Errorf("%s is said to be shown elsewhere, and is no panel that is empty without a trouble", at)
		}
	}
	for name, panels := range f {
		for title, p := range panels {
			if p.Quiet != "" && len(p.Trouble) == 0 && Elsewhere[name+": "+title] == "" {
				t.Errorf("dashboard %s: panel %q is empty while all is well, and no trouble is named that fills it", name, title)
			}
		}
	}
}
