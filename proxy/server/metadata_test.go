package server

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/internal/randseed"
	"github.com/spillwayproject/spillway/internal/tree"
)

// held are the label sets, as one Prometheus would have them, that any replica holds and that match
// one of the selectors; sampled are those of them with a sample in the window.
func (w *world) held(selectors [][]*labels.Matcher, from, until int64) (held, sampled map[string]labels.Labels) {
	held, sampled = map[string]labels.Labels{}, map[string]labels.Labels{}
	for _, g := range w.groups {
		for _, replicas := range g.shards {
			for _, d := range replicas {
				for _, s := range d.series {
					l := expected(g, s.lbls)
					if len(selectors) > 0 && !slices.ContainsFunc(selectors, func(ms []*labels.Matcher) bool { return matches(l, ms) }) {
						continue
					}
					held[l.String()] = l
					if slices.ContainsFunc(s.points, func(p point) bool { return p.t >= from && p.t <= until }) {
						sampled[l.String()] = l
					}
				}
			}
		}
	}
	return held, sampled
}

// Metadata over shards and replicas: everything with a sample in the window is in the answer,
// nothing is that no replica holds, sorted, each once.
func TestMetadataIsComplete(t *testing.T) {
	seed := randseed.Of(t, testSeed)
	w := makeWorld(t, seed)
	_, base := w.serve(t.Context())
	rng := rand.New(rand.NewPCG(seed, 3))
	selectors := []string{
		`up`, `{__name__="http_requests_total",code="500"}`, `{cluster="jaguar"}`, `up{cluster=~"ibis|heron"}`,
		`{__name__=~"up|mixed_in",cluster!="heron"}`, `{node=~"n[0-3]"}`,
		`mixed_in{x="1"}`, `{prometheus_replica="",job="node"}`, `{prometheus_replica="zz",job="node"}`, `up{cluster="nowhere"}`,
		`{le!=""}`, `nothing`, `up{node="n1"}`,
	}
	for range 60 {
		var texts []string
		for range rng.IntN(3) {
			texts = append(texts, selectors[rng.IntN(len(selectors))])
		}
		end := w.start.Add(time.Duration(rng.Int64N(int64(w.length))))
		start := end.Add(-time.Duration(rng.Int64N(int64(20 * time.Minute))))
		form := url.Values{"match[]": texts, "start": {stamp(start)}, "end": {stamp(end)}}
		var parsed [][]*labels.Matcher
		for _, text := range texts {
			ms, err := tree.Parser.ParseMetricSelector(text)
			if err != nil {
				t.Fatal(err)
			}
			parsed = append(parsed, ms)
		}
		held, sampled := w.held(parsed, start.UnixMilli(), end.UnixMilli())
		what := fmt.Sprintf("%v from %s to %s", texts, stamp(start), stamp(end))

		if len(texts) > 0 {
			var sets []map[string]string
			fetchData(t, base, "/api/v1/series", form, &sets)
			got := map[string]bool{}
			var last labels.Labels
			for i, set := range sets {
				l := labels.FromMap(set)
				if i > 0 && labels.Compare(last, l) >= 0 {
					t.Errorf("series %s: %s stands behind %s", what, l, last)
				}
				last = l
				got[l.String()] = true
				if _, ok := held[l.String()]; !ok {
					t.Errorf("series %s: %s is held by no replica", what, l)
				}
			}
			for key := range sampled {
				if !got[key] {
					t.Errorf("series %s: %s is missing", what, key)
				}
			}
		}
		names, heldNames := namesOf(sampled), namesOf(held)
		var list []string
		fetchData(t, base, "/api/v1/labels", form, &list)
		within(t, "labels "+what, list, names, heldNames)
		for _, label := range []string{"__name__", "node", "cluster", "prometheus_replica", "le", "x"} {
			fetchData(t, base, "/api/v1/label/"+label+"/values", form, &list)
			within(t, "values of "+label+" "+what, list, valuesOf(sampled, label), valuesOf(held, label))
		}
	}
}

// fetchData asks for metadata and decodes it; the answer must not have been cut.
func fetchData(t *testing.T, base, path string, form url.Values, into any) {
	t.Helper()
	code, body := ask(t, base, path, form)
	var env struct {
		Status   string
		Data     json.RawMessage
		Warnings []string
	}
	if err := json.Unmarshal(body, &env); err != nil || code != 200 || env.Status != "success" || string(env.Data) == "null" {
		t.Fatalf("%s %v: %d %.300s", path, form, code, body)
	}
	if len(env.Warnings) > 0 {
		t.Errorf("%s %v: warnings %q", path, form, env.Warnings)
	}
	if err := json.Unmarshal(env.Data, into); err != nil {
		t.Fatal(err)
	}
}

// within checks that a list is sorted, has each string once, has all of least, and nothing that is
// not in most.
func within(t *testing.T, what string, got, least, most []string) {
	t.Helper()
	if !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
		t.Errorf("%s: not sorted and distinct: %q", what, got)
	}
	for _, s := range least {
		if !slices.Contains(got, s) {
			t.Errorf("%s: %q is missing in %q", what, s, got)
		}
	}
	for _, s := range got {
		if !slices.Contains(most, s) {
			t.Errorf("%s: nobody holds %q", what, s)
		}
	}
}

func namesOf(sets map[string]labels.Labels) []string {
	var out []string
	for _, l := range sets {
		l.Range(func(l labels.Label) { out = append(out, l.Name) })
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func valuesOf(sets map[string]labels.Labels, name string) []string {
	var out []string
	for _, l := range sets {
		if v := l.Get(name); v != "" {
			out = append(out, v)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// In a range that ends before it starts nothing is found, as in Prometheus, and nobody is asked.
func TestBackwardsIsNowhere(t *testing.T) {
	t.Parallel()
	r := newRig(t, []rigGroup{{"heron", false, []int{1}}}, limits(ample))
	for _, path := range []string{"/api/v1/series", "/api/v1/labels", "/api/v1/label/job/values", "/api/v1/label/cluster/values"} {
		for _, match := range []string{"up", `{le!=""}`} {
			got := r.getForm(path, url.Values{"match[]": {match}, "start": {"1755003600"}, "end": {"1755000000"}})
			if got.err != nil || got.status != 200 || string(got.body) != `{"status":"success","data":[]}` {
				t.Errorf("%s of %s: %s", path, match, got)
			}
		}
		got := r.getForm(path, url.Values{"match[]": {`up{`}, "start": {"1755003600"}, "end": {"1755000000"}})
		if got.err != nil || got.status != 400 {
			t.Errorf("%s of what cannot be read: %s", path, got)
		}
	}
	if asked := r.asked(); len(asked) > 0 {
		t.Errorf("shards were asked: %q", asked)
	}
}
