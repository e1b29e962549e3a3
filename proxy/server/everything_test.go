package server

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/internal/randseed"
	"github.com/spillwayproject/spillway/internal/tree"
)

var everythingRequests = flag.Int("everything.requests", 200, "random requests of TestEverything and TestEveryDocument, over random topologies")

// perFleet is how many requests one topology is asked.
const perFleet = 50

// everything is a fleet being asked.
type everything struct {
	*fleet
	s       *Server
	base    string
	client  *http.Client
	ref     *reference
	counts  map[string]int // what was compared
	metrics []string
}

// TestEverything asks random topologies for series, labels, values, exemplars, federation and
// remote read, and compares each answer with what was written into the servers. Values may lie
// between two bounds where Prometheus itself is not exact: a head lists labels of all its time, and
// series by chunks. So for these everything with a sample in the window must be there, and nothing
// may be that no server holds which was to be asked.
func TestEverything(t *testing.T) {
	seed := randseed.Of(t, testSeed)
	counts := map[string]int{}
	for i := 0; i*perFleet < *everythingRequests; i++ {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			f := newFleet(t, rng)
			e := &everything{fleet: f, client: newClient(t), ref: &reference{}, counts: counts}
			for _, fam := range fleetFamilies {
				e.metrics = append(e.metrics, fam.name)
			}
			e.s, e.base = f.serve(t.Context())
			e.s.observe = e.ref.observe
			for range min(perFleet, *everythingRequests-i*perFleet) {
				switch n := rng.IntN(100); {
				case n < 25:
					e.checkSeries()
				case n < 40:
					e.checkLabels()
				case n < 60:
					e.checkValues()
				case n < 70:
					e.checkExemplars()
				case n < 82:
					e.checkFederate()
				default:
					e.checkRead()
				}
			}
			if t.Failed() {
				t.Logf("the topology, seed %d: %s", seed, f)
			}
		})
	}
	t.Logf("compared: %v", counts)
}

// selector is a random selector and what kind of bound it falls under.
type selector struct {
	text     string
	matchers []*labels.Matcher
	class    string // named, other, unselective
}

// selector makes one. It never makes one that Prometheus rejects, where all matchers match the
// empty string.
func (e *everything) selector(named bool) selector {
	metric := e.metrics[e.rng.IntN(len(e.metrics))]
	node := e.nodes[e.rng.IntN(len(e.nodes))]
	parts := []string{fmt.Sprintf("__name__=%q", metric)}
	switch n := e.rng.IntN(10); {
	case n == 0:
		parts = []string{fmt.Sprintf(`__name__=~%q`, regexp.QuoteMeta(metric)+"|"+regexp.QuoteMeta(e.metrics[e.rng.IntN(len(e.metrics))]))}
	case n == 1 && !named:
		parts = []string{fmt.Sprintf("node=%q", node)}
	case n == 2 && !named:
		parts = []string{`job=~"api|gp.*"`}
	case n == 3 && !named:
		parts = []string{`le!=""`}
	case n == 4 && !named:
		parts = []string{`__name__=~".+"`}
	case n == 5 && !named:
		parts = []string{`cluster=~".+"`}
	}
	more := []string{
		fmt.Sprintf("node=%q", node), fmt.Sprintf("node!=%q", node), fmt.Sprintf(`node=~"%s|%s"`, node, e.nodes[e.rng.IntN(len(e.nodes))]),
		`code="500"`, `code=""`, `gpu=~"0|1"`,
		`cluster="jaguar"`, `cluster!="ibis"`, `cluster=~"jaguar|heron"`, `cluster=""`, `cluster="stored"`, `cluster!~"j.*"`, `region="eu"`,
		`region=""`, `prometheus_replica=""`,
		`prometheus_replica="zz"`, `prometheus_replica!="a"`, `"rack.unit"=""`, `"rack.unit"="7"`, `"http.method"="GET"`,
		`"größe"!="klein"`, `x=~"[12]"`, `nothing="here"`,
	}
	for range []int{0, 0, 1, 1, 2}[e.rng.IntN(5)] {
		parts = append(parts, more[e.rng.IntN(len(more))])
	}
	out := selector{text: "{" + strings.Join(parts, ",") + "}"}
	var err error
	if out.matchers, err = tree.Parser.ParseMetricSelector(out.text); err != nil {
		e.t.Fatalf("%s: %v", out.text, err)
	}
	out.class = "unselective"
	for _, m := range out.matchers {
		switch {
		case e.owned(m.Name) || m.Matches("") || m.Type == labels.MatchNotEqual || m.Type == labels.MatchNotRegexp || m.Value == ".+":
		case m.Name == "__name__":
			out.class = "named"
		case out.class == "unselective":
			out.class = "other"
		}
	}
	return out
}

// question is a random request for metadata.
type listing struct {
	form      url.Values
	selectors []selector
	class     string // the strictest
	start     int64
	hasStart  bool
	end       int64
	hasEnd    bool
	limit     int
}

// list makes a request: windows with both ends, one or none, some beyond now; with limits or
// without.
func (e *everything) list(needMatch bool) *listing {
	l := &listing{form: url.Values{}, class: "named"}
	n := e.rng.IntN(3)
	if needMatch {
		n++
	}
	for range n {
		s := e.selector(false)
		l.selectors = append(l.selectors, s)
		l.form.Add("match[]", s.text)
		if s.class == "unselective" || s.class == "other" && l.class == "named" {
			l.class = s.class
		}
	}
	if n == 0 {
		l.class = "other"
	}
	now := time.Now().UnixMilli()
	l.end = e.start.UnixMilli() + e.rng.Int64N(e.length.Milliseconds())
	l.start = l.end - e.rng.Int64N((25 * time.Minute).Milliseconds())
	l.hasStart, l.hasEnd = e.rng.IntN(4) > 0, e.rng.IntN(4) > 0
	switch e.rng.IntN(10) {
	case 0: // promtool's now ± 9999h
		l.start, l.end = now-(9999*time.Hour).Milliseconds(), now+(9999*time.Hour).Milliseconds()
		if l.class == "named" {
			l.start = now - (300 * time.Hour).Milliseconds() // max_range is another test's
			l.end = now + time.Hour.Milliseconds()
		}
	case 1: // one instant
		l.start = l.end
	}
	if l.hasStart {
		l.form.Set("start", msText(l.start))
	}
	if l.hasEnd {
		l.form.Set("end", msText(l.end))
	}
	if e.rng.IntN(4) == 0 {
		l.limit = 1 + e.rng.IntN(12)
		l.form.Set("limit", strconv.Itoa(l.limit))
	}
	return l
}

func msText(ms int64) string { return strconv.FormatFloat(float64(ms)/1000, 'f', 3, 64) }

// window is what has to be searched: the caller's range where a metric is named, else
// metadata_range before its end, or before now where that is earlier. The proxy's now lies between
// before and after, so the window is the part that both agree on. narrowed tells that it must say
// so.
func (e *everything) window(l *listing, before, after int64) (from, until int64, narrowed bool) {
	until = before
	if l.hasEnd {
		until = min(l.end, before)
	}
	latest := after
	if l.hasEnd {
		latest = min(l.end, after)
	}
	from = latest - e.narrow.Milliseconds()
	if !l.hasStart {
		return from, until, false
	}
	if l.class == "named" {
		return l.start, until, false
	}
	return max(from, l.start), until, l.start < from
}

// bounds are the label sets that must be in the answer and those that may be.
func (e *everything) bounds(selectors []selector, from, until int64) (least, most map[string]labels.Labels) {
	least, most = map[string]labels.Labels{}, map[string]labels.Labels{}
	for _, g := range e.groups {
		for _, s := range g.shards {
			first, last := s.span()
			lo, hi := max(from, first), min(until, last)
			// What is asked is a window too early or too late by the time that the request took, at
			// most.
			if max(from-1000, first) > min(until+1000, last) {
				continue
			}
			inner := [2]int64{lo, hi}
			if g.heartbeat && len(s.replicas) > 1 { // a whole replica answers alone, and scrapes at another moment than the other one
				inner[0] += 2 * e.interval.Milliseconds()
				inner[1] -= 2 * e.interval.Milliseconds()
			}
			for _, srv := range s.replicas {
				for _, one := range srv.series {
					l := g.shown(one.lbls)
					if len(selectors) > 0 && !slices.ContainsFunc(selectors, func(s selector) bool { return matches(l, s.matchers) }) {
						continue
					}
					most[l.String()] = l
					if slices.ContainsFunc(one.points, func(p point) bool { return p.t >= inner[0] && p.t <= inner[1] }) {
						least[l.String()] = l
					}
				}
			}
		}
	}
	return least, most
}

// listed is an answer of data, warnings and verdict.
type listed struct {
	data     json.RawMessage
	warnings []string
	cut      bool
	verdict  string
}

// fetch asks by GET or by POST.
func (e *everything) fetch(path string, form url.Values) (listed, bool) {
	e.t.Helper()
	if e.rng.IntN(2) == 0 {
		return e.fetchGet(path, form)
	}
	req, err := http.NewRequest(http.MethodPost, e.base+path, strings.NewReader(form.Encode()))
	if err != nil {
		e.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return e.send(req, form)
}

func (e *everything) fetchGet(path string, form url.Values) (listed, bool) {
	e.t.Helper()
	req, err := http.NewRequest(http.MethodGet, e.base+path+"?"+form.Encode(), nil)
	if err != nil {
		e.t.Fatal(err)
	}
	return e.send(req, form)
}

func (e *everything) send(req *http.Request, form url.Values) (listed, bool) {
	e.t.Helper()
	resp, err := e.client.Do(req)
	if err != nil {
		e.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		e.t.Fatal(err)
	}
	var env struct {
		Status   string
		Data     json.RawMessage
		Warnings []string
	}
	if err := json.Unmarshal(body, &env); err != nil || resp.StatusCode != 200 || env.Status != "success" || string(env.Data) == "null" {
		e.t.Errorf("%s %v: %v %d %.500s", req.URL.Path, form, err, resp.StatusCode, body)
		return listed{}, false
	}
	out := listed{data: env.Data, warnings: env.Warnings, verdict: resp.Header.Get(verdictHeader)}
	out.cut = slices.ContainsFunc(env.Warnings, func(w string) bool { return strings.Contains(w, "truncated") })
	return out, true
}

// judge compares a sorted list of strings with its bounds, under the limit: at most so many, a
// warning exactly where something may be missing.
func (e *everything) judge(what string, l *listing, got listed, list, least, most []string, narrowed bool) {
	e.t.Helper()
	rest := slices.DeleteFunc(slices.Clone(got.warnings), func(w string) bool { return strings.Contains(w, "truncated") })
	isSearched := func(w string) bool { return strings.Contains(w, "the request has no start") }
	if said := slices.ContainsFunc(rest, isSearched); said != (!l.hasStart && len(list) == 0) {
		e.t.Errorf("%s: has a start %v, %d found, warnings %q", what, l.hasStart, len(list), got.warnings)
	}
	rest = slices.DeleteFunc(rest, isSearched)
	if said := slices.ContainsFunc(rest, func(w string) bool { return strings.Contains(w, "narrowed the range") }); said != narrowed &&
		!e.onTheEdge(l) {
		e.t.Errorf("%s: narrowed %v, warnings %q", what, narrowed, got.warnings)
	} else if len(rest) > 1 || len(rest) == 1 && !said {
		e.t.Errorf("%s: warnings %q", what, got.warnings)
	}
	if l.limit > 0 && len(list) > l.limit {
		e.t.Errorf("%s: %d of at most %d", what, len(list), l.limit)
	}
	for i, s := range list {
		if _, ok := slices.BinarySearch(most, s); !ok {
			e.t.Errorf("%s: nobody holds %q", what, s)
		}
		if i > 0 && slices.Contains(list[:i], s) {
			e.t.Errorf("%s: %q stands twice", what, s)
		}
	}
	if got.cut {
		// A shard is asked for so many names of which some may be those that its group owns.
		spare := 0
		if strings.HasPrefix(what, "labels ") {
			spare = 4
		}
		if len(list) < l.limit-spare || len(most)+spare <= l.limit {
			e.t.Errorf("%s: cut at %d of at most %d, limit %d", what, len(list), len(most), l.limit)
		}
		return
	}
	for _, s := range least {
		if !slices.Contains(list, s) {
			e.t.Errorf("%s: %q is missing, and the answer does not say that it was cut", what, s)
		}
	}
}

// onTheEdge tells whether the time that the request takes decides about narrowing.
func (e *everything) onTheEdge(l *listing) bool {
	end := time.Now().UnixMilli()
	if l.hasEnd {
		end = min(end, l.end)
	}
	d := end - e.narrow.Milliseconds() - l.start
	return d > -2000 && d < 2000
}

func (e *everything) checkSeries() {
	l := e.list(true)
	before := time.Now().UnixMilli()
	got, ok := e.fetch("/api/v1/series", l.form)
	if !ok {
		return
	}
	from, until, narrowed := e.window(l, before, time.Now().UnixMilli())
	var sets []map[string]string
	if err := json.Unmarshal(got.data, &sets); err != nil {
		e.t.Errorf("series %v: %v", l.form, err)
		return
	}
	var list []string
	var last labels.Labels
	for i, set := range sets {
		one := labels.FromMap(set)
		if i > 0 && labels.Compare(last, one) >= 0 {
			e.t.Errorf("series %v: %s stands behind %s", l.form, one, last)
		}
		last = one
		list = append(list, one.String())
	}
	least, most := e.bounds(l.selectors, from, until)
	e.judge(fmt.Sprintf("series %v", l.form), l, got, list, keysOf(least), keysOf(most), narrowed)
	e.counts["series"]++
	e.counts["sets of series"] += len(list)
}

func (e *everything) checkLabels() {
	l := e.list(false)
	before := time.Now().UnixMilli()
	got, ok := e.fetch("/api/v1/labels", l.form)
	if !ok {
		return
	}
	from, until, narrowed := e.window(l, before, time.Now().UnixMilli())
	list := e.sortedList(fmt.Sprintf("labels %v", l.form), got.data)
	least, most := e.bounds(l.selectors, from, until)
	e.judge(fmt.Sprintf("labels %v", l.form), l, got, list, namesOf(least), namesOf(most), narrowed)
	e.counts["labels"]++
}

func (e *everything) checkValues() {
	l := e.list(false)
	name := []string{
		"__name__", "node", "cluster", "region", "prometheus_replica", "rack.unit", "http.method", "größe", "le", "x", "job",
		"nothing",
	}[e.rng.IntN(12)]
	segment := name
	if !model.LegacyValidation.IsValidLabelName(name) || e.rng.IntN(8) == 0 {
		segment = model.EscapeName(name, model.ValueEncodingEscaping)
	}
	path := "/api/v1/label/" + segment + "/values"
	before := time.Now().UnixMilli()
	got, ok := e.fetch(path, l.form)
	if !ok {
		return
	}
	from, until, narrowed := e.window(l, before, time.Now().UnixMilli())
	what := fmt.Sprintf("values of %s %v", name, l.form)
	list := e.sortedList(what, got.data)
	least, most := e.bounds(l.selectors, from, until)
	e.judge(what, l, got, list, valuesOf(least, name), valuesOf(most, name), narrowed)
	e.counts["values"]++
}

func (e *everything) sortedList(what string, data json.RawMessage) []string {
	e.t.Helper()
	var list []string
	if err := json.Unmarshal(data, &list); err != nil {
		e.t.Errorf("%s: %v", what, err)
	}
	if !slices.IsSorted(list) {
		e.t.Errorf("%s: not sorted: %q", what, list)
	}
	return list
}

func keysOf(m map[string]labels.Labels) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
