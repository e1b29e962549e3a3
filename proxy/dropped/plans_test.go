package dropped_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	promrelabel "github.com/prometheus/prometheus/model/relabel"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/proxy/dropped"
	"github.com/spillwayproject/spillway/relabel"
	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/propose"
	"github.com/spillwayproject/spillway/relabel/uses"
)

func TestVersion(t *testing.T) {
	if dropped.Version != relabel.Version {
		t.Errorf("plans have version %d, and this package reads %d", relabel.Version, dropped.Version)
	}
}

// cluster is a small world: pages of two jobs, and queries about them.
type cluster struct {
	source  inventory.Source
	queries []string
}

// verbs and codes are the values of the world's two labels; codes are on every series, verbs on
// some.
var (
	jobs  = []string{"api", "node"}
	verbs = []string{"", "GET", "PUT", "WATCH"}
	codes = []string{"200", "404", "500"}
)

func makeCluster(t *testing.T, seed uint64) *cluster {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 11))
	dir := t.TempDir()
	var names []string
	pages := map[string]*strings.Builder{}
	for i := range 12 {
		name := fmt.Sprintf("m%d_total", i)
		names = append(names, name)
		for _, job := range jobs {
			if pages[job] == nil {
				pages[job] = &strings.Builder{}
			}
			if rng.IntN(3) == 0 {
				continue
			}
			fmt.Fprintf(pages[job], "# TYPE %s counter\n", name)
			for _, code := range codes[:1+rng.IntN(3)] {
				more := ""
				if i%2 == 0 {
					more = fmt.Sprintf(",uid=\"of-%s\"", code) // says nothing that code does not say
				}
				for _, verb := range verbs[:1+rng.IntN(4)] {
					if verb != "" {
						fmt.Fprintf(pages[job], "%s{code=%q,verb=%q%s} 1\n", name, code, verb, more)
					} else {
						fmt.Fprintf(pages[job], "%s{code=%q%s} 1\n", name, code, more)
					}
				}
			}
		}
	}
	for _, job := range jobs {
		fmt.Fprintf(pages[job], "# TYPE mh_seconds histogram\n")
		for _, le := range []string{"0.5", "1", "2", "4", "8", "16", "30", "60", "+Inf"} {
			fmt.Fprintf(pages[job], "mh_seconds_bucket{le=%q} 1\n", le)
		}
		fmt.Fprintf(pages[job], "mh_seconds_sum 1\nmh_seconds_count 1\n")
	}
	for job, page := range pages {
		if err := os.MkdirAll(filepath.Join(dir, job), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, job, "a.prom"), []byte(page.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	source, err := inventory.Pages(dir)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{source: source}
	pick := func(list []string) string { return list[rng.IntN(len(list))] }
	for range 2 + rng.IntN(8) {
		var matchers []string
		if rng.IntN(2) == 0 {
			matchers = append(matchers, pick([]string{`verb="GET"`, `verb!="WATCH"`, `verb=~"GET|PUT"`, `verb!~"|PUT"`, `verb!=""`}))
		}
		if rng.IntN(3) == 0 {
			matchers = append(matchers, pick([]string{`code="200"`, `code!="500"`, `code=~"[45].."`}))
		}
		if rng.IntN(3) == 0 {
			matchers = append(matchers, pick([]string{`job="api"`, `job="node"`, `job=~"api|node"`}))
		}
		selector := pick(names) + "{" + strings.Join(matchers, ",") + "}"
		if rng.IntN(10) == 0 {
			selector = `{__name__=~"m[0-3]_total"}`
		}
		c.queries = append(c.queries, pick([]string{
			"%s", "sum(rate(%s[5m]))", "sum by (code) (%s)", "sum by (verb) (rate(%s[5m]))",
			"sum by (uid) (rate(%s[5m]))", "count(%s) > 3",
		}))
		c.queries[len(c.queries)-1] = fmt.Sprintf(c.queries[len(c.queries)-1], selector)
	}
	for _, q := range []string{"histogram_quantile(0.9, sum by (le) (rate(mh_seconds_bucket[5m])))", `sum(rate(mh_seconds_bucket{le=~"30(\\.0)?"}[5m]))`, `mh_seconds_bucket{le="1.0",job="api"}`} {
		if rng.IntN(3) > 0 {
			c.queries = append(c.queries, q)
		}
	}
	return c
}

func (c *cluster) plan(t *testing.T, risk propose.Risk) (*relabel.Plan, *dropped.Set) {
	t.Helper()
	set := &uses.Set{}
	for i, q := range c.queries {
		set.Add(&uses.Use{Kind: uses.Listed, Where: fmt.Sprintf("query %d", i), Query: q})
	}
	p, err := relabel.Make(t.Context(), relabel.Options{
		Source: c.source, Uses: set, Propose: propose.Options{Risk: risk},
		Owner: "platform", Now: time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC),
	})
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := p.Write(&b); err != nil {
		t.Fatal(err)
	}
	s, err := dropped.Read(bytes.NewReader(b.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	return p, s
}

func ask(t *testing.T, s *dropped.Set, query string) dropped.Found {
	t.Helper()
	e, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	asked := dropped.Asked{Expr: e}
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			asked.Selectors = append(asked.Selectors, v.LabelMatchers)
		}
		return nil
	})
	return s.Look(asked)
}

// TestPlans makes plans of random worlds, and holds the messages against what Prometheus' own
// relabelling does with the rules: a selector for one series has a message if and only if that
// series goes. A use that the plan was made from has no warning, and no message at all where only
// its matchers on job keep it from what goes.
func TestPlans(t *testing.T) {
	gone, kept, elsewhere := 0, 0, 0
	kinds := map[propose.Kind]int{}
	for seed := range uint64(60) {
		c := makeCluster(t, seed)
		p, s := c.plan(t, []propose.Risk{propose.Medium, propose.High}[seed%2])
		elsewhere += len(p.Elsewhere)
		for _, r := range p.Rules {
			kinds[r.Kind]++
			if r.Kind != propose.Label {
				continue
			}
			for _, name := range r.Metrics { // whoever needs the label is told, whatever the series
				for _, q := range []string{`%s{job=%q,%s="x"}`, `max by (a, %[3]s) (rate(%[1]s{job=%[2]q}[5m]))`} {
					if q = fmt.Sprintf(q, name, r.Job, r.Label); len(ask(t, s, q).Warnings) == 0 {
						t.Errorf("seed %d: rule %s takes %s, and %s has no warning", seed, r.ID, r.Label, q)
					}
				}
			}
		}
		err := c.source.Scan(context.Background(), func(series *inventory.Series) error {
			ls, name := series.Labels, series.Labels.Get("__name__")
			if !strings.HasPrefix(name, "m") {
				return nil
			}
			drops := false
			for _, r := range p.Rules {
				if r.Job != ls.Get("job") {
					continue
				}
				if !promrelabel.ProcessBuilder(labels.NewBuilder(ls), r.Relabel...) {
					drops = true
				}
			}
			exact := fmt.Sprintf("%s{job=%q", name, ls.Get("job"))
			for _, label := range []string{"code", "verb", "le"} {
				if !slices.ContainsFunc(p.Rules, func(r propose.Rule) bool { // a label that is gone cannot be asked for
					return r.Kind == propose.Label && r.Label == label && r.Job == ls.Get("job") && slices.Contains(r.Metrics, name)
				}) {
					exact += fmt.Sprintf(",%s=%q", label, ls.Get(label))
				}
			}
			exact += "}"
			found := ask(t, s, exact)
			if drops != (len(found.Warnings) > 0) || len(found.Infos) > 0 {
				t.Errorf("seed %d: %s goes: %v; messages %q %q\nqueries %q", seed, exact, drops, found.Warnings, found.Infos, c.queries)
			}
			if drops {
				gone++
			} else {
				kept++
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range c.queries {
			found := ask(t, s, q)
			if n := len(found.Warnings) + len(found.Infos); n > 0 {
				t.Errorf("seed %d: the plan was made from %s, and it has the messages %q %q\nqueries %q", seed, q, found.Warnings, found.Infos, c.queries)
			}
		}
	}
	if elsewhere == 0 || gone < 100 || kept < 100 || kinds[propose.Names] == 0 || kinds[propose.Slice] == 0 || kinds[propose.Label] == 0 ||
		kinds[propose.Buckets] == 0 {
		t.Errorf("%d series went and %d stayed, by rules %v, and of %d metrics another job kept something: the worlds are too plain", gone, kept, kinds, elsewhere)
	}
}
