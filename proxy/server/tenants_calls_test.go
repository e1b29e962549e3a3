package server

import (
	rand1 "math/rand"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/cortexproject/promqlsmith"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage/remote"
)

// call is a request as either tenant may send it: ME and YOU in it are their names.
type call struct {
	kind         string
	method, path string
	in           [2][]string // key=value, not encoded, in their order: in the URL, and in the body
	read         []*prompb.Query
	explain      string
	query        string // which a server with the tenant's own series answers alike; empty where that is not looked at
}

// selectors look for everything: by name, by what is the other's, and by what is nobody's.
var selectors = []string{
	`requests_total`, `requests_total{namespace="YOU-1"}`, `requests_total{owner="YOU"}`, `requests_total{namespace=~".*"}`,
	`{__name__=~".+",job="j"}`, `temperature{owner!="ME"}`, `temperature`, `{mark=~"cana.yYOU"}`, `{__name__=~"cana.y.*_only"}`,
	`up`, `target_info`, `orphan`, `latency_seconds_bucket{le="+Inf"}`, `latency_seconds_bucket`, `requests_total{mark="canaryME"}`,
	`requests_total{namespace="shared"}`, `{namespace="ME-1"}`, `live`, `hits_total`, `canaryME_only`, `{owner=~"ME|YOU"}`,
	`requests_total{namespace="ME-1"}`,
}

// shapes are expressions over two selectors, A and B.
var shapes = []string{
	`A`, `sum(A)`, `count(A)`, `count by (namespace) (A)`, `sum by (mark, path) (A)`, `A or B`, `B or A`, `A unless on (instance) B`,
	`A and on (job, instance) B`, `sum(rate(A[5m]))`, `max_over_time(sum(A)[10m:1m])`, `count_over_time(count(A)[10m:1m])`,
	`sum_over_time(A[10m:2m])`, `A offset 10m`, `count(A offset 5m)`, `absent(A)`, `label_replace(A, "x", "$1", "mark", "(.*)")`,
	`count_values("v", A)`, `scalar(count(A))`, `A * on (job, instance, namespace, shard) group_left (data) B`,
	`A * on (instance, shard) group_left (mark) B`, `count(A * on (instance) group_left (data) max by (instance, data) (B))`,
	`A @ end()`, `info(A)`, `info(A, {data=~".+"})`, `count by (data) (info(up, {data=~".+"}))`,
	`histogram_quantile(0.9, sum by (le, owner) (rate(A[5m])))`, `A > bool on (instance, shard) group_right (mark) B`,
	`quantile(0.5, A)`, `-A`, `stddev(A)`, `time() + sum(A)`, `count(A) / on () count(B)`, `sum(last_over_time(A[20m]))`,
	`sum without (mark) (A)`, `group by (__name__) (A)`, `sum(A) or sum(B)`, `count(A unless B)`, `count(A or B)`,
}

// calls makes requests of all kinds, in turn, and each at random.
type calls struct {
	rng   *rand.Rand
	until time.Time
	smith *promqlsmith.PromQLSmith
	kinds []func() *call
	next  int
}

func newCalls(d *divided, seed uint64) *calls {
	g := &calls{rng: rand.New(rand.NewPCG(seed, 7)), until: d.until}
	var sets []labels.Labels
	for _, who := range []string{red, blue} {
		for _, name := range []string{"requests_total", "temperature", "up", "target_info"} {
			sets = append(sets, labels.FromStrings("__name__", name, "namespace", who+"-1", "owner", who, "job", "j", "instance", "i0"))
		}
	}
	g.smith = promqlsmith.New(rand1.New(rand1.NewSource(int64(seed))), sets, promqlsmith.WithMaxDepth(3),
		promqlsmith.WithEnableOffset(true), promqlsmith.WithEnableVectorMatching(true))
	g.kinds = []func() *call{
		g.query, g.query, g.query, g.query, g.smithed, g.exemplars, g.lists, g.lists, g.lists, g.federate, g.remoteRead, g.documents,
		g.documents, g.documents, g.pages,
	}
	return g
}

func (g *calls) one(of []string) string { return of[g.rng.IntN(len(of))] }

func (g *calls) expr() string {
	return strings.NewReplacer("A", g.one(selectors), "B", g.one(selectors)).Replace(g.one(shapes))
}

// call is the next one, with its parameters in any order, in the URL and the body.
func (g *calls) call() *call {
	if g.next%len(g.kinds) == 0 {
		g.rng.Shuffle(len(g.kinds), func(i, j int) { g.kinds[i], g.kinds[j] = g.kinds[j], g.kinds[i] })
	}
	c := g.kinds[g.next%len(g.kinds)]()
	g.next++
	g.rng.Shuffle(len(c.in[0]), func(i, j int) { c.in[0][i], c.in[0][j] = c.in[0][j], c.in[0][i] })
	c.method = http.MethodGet
	switch e := byPath(c.path); {
	case c.read != nil:
		c.method = http.MethodPost
	case e != nil && slices.Contains(e.Methods, http.MethodPost) && g.rng.IntN(2) == 0:
		c.method = http.MethodPost
		n := g.rng.IntN(len(c.in[0]) + 1)
		c.in[0], c.in[1] = c.in[0][:n], c.in[0][n:]
	}
	return c
}

// asked is a query of the text, at once or over a range.
func (g *calls) asked(kind, text string) *call {
	c := &call{kind: kind, path: "/api/v1/query", query: text, in: [2][]string{{"query=" + text, "time=" + stamp(g.until)}}}
	if g.rng.IntN(3) == 0 {
		c.path = "/api/v1/query_range"
		c.in[0] = []string{"query=" + text, "start=" + stamp(g.until.Add(-10*time.Minute)), "end=" + stamp(g.until), "step=120"}
	}
	return c
}

func (g *calls) query() *call {
	c := g.asked("query", g.expr())
	if g.rng.IntN(8) == 0 {
		c.explain, c.query = g.one([]string{explainPlan, explainRun}), ""
	}
	if strings.HasPrefix(c.query, "absent(") {
		c.query = "" // it makes a label of the tenant's own matcher, owner="ME", too
	}
	if g.rng.IntN(8) == 0 { // of now, where what was scraped and recorded is
		c.path, c.query = "/api/v1/query", ""
		c.in[0] = c.in[0][:1]
	}
	return c
}

// smithed is a query of promqlsmith's, over names that both tenants have.
func (g *calls) smithed() *call {
	text := `sum(requests_total)`
	func() {
		defer func() { _ = recover() }() // it cuts label values in the middle of a rune
		if e := g.smith.WalkInstantQuery(); e != nil {
			text = e.String()
		}
	}()
	c := g.asked("smith", text)
	c.query = "" // ties and orders are another test's
	return c
}

func (g *calls) exemplars() *call {
	text := g.one([]string{
		`hits_total`, `A`, `A + B`, `sum(rate(hits_total[5m])) / sum(B)`, `hits_total or A`, `{__name__=~"hit.+",job!="x"}`,
	})
	text = strings.NewReplacer("A", g.one(selectors), "B", g.one(selectors)).Replace(text)
	return &call{kind: "exemplars", path: "/api/v1/query_exemplars", in: [2][]string{{
		"query=" + text, "start=" + stamp(g.until.Add(-time.Hour)), "end=" + stamp(g.until.Add(time.Hour)),
	}}}
}

// matches are up to most selectors, and at least least.
func (g *calls) matches(least, most int) (out []string) {
	for range least + g.rng.IntN(most-least+1) {
		out = append(out, "match[]="+g.one(selectors))
	}
	return out
}

func (g *calls) lists() *call {
	least, path := 0, g.one([]string{"/api/v1/series", "/api/v1/labels", "/api/v1/label/", "/api/v1/search/"})
	kind := path[len("/api/v1/"):]
	listed := []string{"mark", "namespace", "__name__", "path", "data", "owner", "trace_id", "canaryME_name", "rule"}
	var more []string
	switch path {
	case "/api/v1/series":
		least = 1
	case "/api/v1/label/":
		path += g.one(listed) + "/values"
	case "/api/v1/search/":
		path += g.one([]string{"metric_names", "label_names", "label_values"})
		more = map[string][]string{
			"/api/v1/search/metric_names": {"include_metadata=true"}, "/api/v1/search/label_values": {"label=" + g.one(listed)},
		}[path]
		more = append(more, g.one([]string{
			"include_score=true", "search[]=canary", "search[]=YOU", "fuzz_alg=jarowinkler", "sort_by=alpha",
		}))
	}
	c := &call{kind: kind, path: path, in: [2][]string{append(g.matches(least, 3), more...)}}
	if g.rng.IntN(2) == 0 {
		c.in[0] = append(c.in[0], "start="+stamp(g.until.Add(-time.Hour)), "end="+stamp(g.until.Add(time.Minute)))
	}
	if g.rng.IntN(4) == 0 {
		c.in[0] = append(c.in[0], "limit=2")
	}
	return c
}

func (g *calls) federate() *call {
	return &call{kind: "federate", path: "/federate", in: [2][]string{g.matches(1, 3)}}
}

func (g *calls) remoteRead() *call {
	c := &call{kind: "read", path: "/api/v1/read"}
	for range 1 + g.rng.IntN(3) {
		ms, err := parser.NewParser(parser.Options{}).ParseMetricSelector(g.one(selectors))
		if err != nil {
			panic(err)
		}
		q, err := remote.ToQuery(g.until.Add(-10*time.Minute).UnixMilli(), g.until.UnixMilli(), ms, nil)
		if err != nil {
			panic(err)
		}
		c.read = append(c.read, q)
	}
	return c
}

func (g *calls) documents() *call {
	path := g.one([]string{
		"/api/v1/rules", "/api/v1/rules", "/api/v1/alerts", "/api/v1/metadata", "/api/v1/metadata", "/api/v1/targets",
		"/api/v1/targets/metadata", "/api/v1/status/tsdb", "/api/v1/status/config", "/api/v1/status/flags",
		"/api/v1/status/runtimeinfo", "/api/v1/status/buildinfo", "/api/v1/status/walreplay", "/api/v1/features",
		"/api/v1/scrape_pools", "/api/v1/alertmanagers", "/api/v1/notifications",
	})
	c := &call{kind: strings.TrimPrefix(path, "/api/v1/"), path: path}
	switch path {
	case "/api/v1/rules":
		filters := [][]string{nil, {"type=alert"}, {"type=record"}, {"rule_name[]=Blue", "rule_name[]=Red"}, {"group_limit=1"}}
		c.in[0] = slices.Clone(filters[g.rng.IntN(len(filters))])
	case "/api/v1/metadata":
		filters := [][]string{nil, nil, {"metric=live"}, {"metric=hits"}, {"limit=1"}, {"limit_per_metric=1"}}
		c.in[0] = slices.Clone(filters[g.rng.IntN(len(filters))])
	case "/api/v1/targets/metadata":
		c.in[0] = []string{"metric=live"}
	}
	return c
}

func (g *calls) pages() *call {
	switch g.rng.IntN(4) {
	case 0:
		return &call{kind: "page", path: "/graph", in: [2][]string{{"g0.expr=" + g.expr()}}}
	case 1:
		return &call{kind: "page", path: "/"}
	case 2:
		return &call{kind: "text", path: "/api/v1/format_query", in: [2][]string{{"query=" + g.expr()}}}
	default:
		return &call{kind: "text", path: "/api/v1/parse_query", in: [2][]string{{"query=" + g.expr()}}}
	}
}
