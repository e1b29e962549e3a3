package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage/remote"

	"github.com/spillwayproject/spillway/internal/randseed"
)

// series of one server with the value v and so many samples before and after the boundary; the
// servers of a boundary hold samples on both sides of it, as they do where a re-sharding did not
// delete anything.
func runsOf(v float64, names []string, from, until time.Time, phase time.Duration) []storedSeries {
	var out []storedSeries
	for i, name := range names {
		s := storedSeries{lbls: labels.FromStrings("__name__", "m_total", "node", name, "job", "x")}
		for at := from.Add(phase); at.Before(until); at = at.Add(15 * time.Second) {
			s.points = append(s.points, point{t: at.UnixMilli(), f: v + float64(i) + at.Sub(from).Seconds()*(v+1)})
		}
		if len(s.points) > 0 {
			out = append(out, s)
		}
	}
	return out
}

// cutSeries keeps the samples in [from, until), and labels as one Prometheus would hold them.
func cutSeries(in []storedSeries, from, until time.Time, cluster string) []storedSeries {
	var out []storedSeries
	for _, s := range in {
		b := labels.NewBuilder(s.lbls)
		if cluster != "" {
			b.Set("cluster", cluster)
		}
		c := storedSeries{lbls: b.Labels()}
		for _, p := range s.points {
			if p.t >= from.UnixMilli() && p.t < until.UnixMilli() {
				c.points = append(c.points, p)
			}
		}
		if len(c.points) > 0 {
			out = append(out, c)
		}
	}
	return out
}

// joinSeries merges series of equal label sets; samples are in order of time as long as parts
// follow each other.
func joinSeries(lists ...[]storedSeries) []storedSeries {
	byLabels := map[string]*storedSeries{}
	var order []string
	for _, l := range lists {
		for _, s := range l {
			key := s.lbls.String()
			if byLabels[key] == nil {
				byLabels[key] = &storedSeries{lbls: s.lbls}
				order = append(order, key)
			}
			byLabels[key].points = append(byLabels[key].points, s.points...)
		}
	}
	var out []storedSeries
	for _, k := range order {
		s := *byLabels[k]
		slices.SortFunc(s.points, func(a, b point) int { return int(a.t - b.t) })
		out = append(out, s)
	}
	return out
}

// Groups and shards that begin or end in time: every road takes from each server what lies in its
// own span, and nothing else.
func TestEpochsAreExact(t *testing.T) {
	seed := randseed.Of(t, testSeed)
	rng := rand.New(rand.NewPCG(seed, 3))
	now := time.Now().Truncate(time.Second)
	begin, boundary := now.Add(-80*time.Minute), now.Add(-40*time.Minute)
	never := now.Add(1000 * time.Hour)
	rfc := boundary.UTC().Format(time.RFC3339)
	// "gone" is on the old server only, "came" on the new one only; both have samples on both sides
	// of the boundary.
	old := runsOf(1, []string{"a", "b", "gone"}, begin, now, 3*time.Second)
	young := runsOf(5, []string{"a", "b", "came"}, begin, now, 0)
	// after the boundary on the old server: in no answer
	ghostOld := storedSeries{lbls: labels.FromStrings("__name__", "ghost_old", "node", "g")}
	ghostNew := storedSeries{lbls: labels.FromStrings("__name__", "ghost_new", "node", "g")} // before it on the new one
	for at := range int64(40) {
		ghostOld.points = append(ghostOld.points, point{t: boundary.Add(time.Duration(at+1) * 30 * time.Second).UnixMilli(), f: 1})
		ghostNew.points = append(ghostNew.points, point{t: boundary.Add(-time.Duration(40-at) * 30 * time.Second).UnixMilli(), f: 1})
	}
	old, young = append(old, ghostOld), append(young, ghostNew)
	// A stale marker just before the boundary belongs to the old server, and to the answer.
	for i := range old {
		if old[i].lbls.Get("node") == "gone" {
			for j := range old[i].points {
				if p := &old[i].points[j]; p.t >= boundary.Add(-20*time.Second).UnixMilli() && p.t < boundary.UnixMilli() {
					p.f = staleNaN()
				}
			}
		}
	}
	minTime := time.UnixMilli(0)
	for _, c := range []struct {
		name, config string // two %q: the old and the young server
		cluster      string
		reference    []storedSeries
	}{
		{
			"groups",
			"groups:\n  - {name: history, labels: {cluster: jaguar}, until: " + rfc + ", shards: [{replicas: [{url: %q}]}]}\n  - {name: jaguar, labels: {cluster: jaguar}, from: " + rfc + ", shards: [{replicas: [{url: %q}]}]}\n",
			"jaguar", joinSeries(cutSeries(old, minTime, boundary, "jaguar"), cutSeries(young, boundary, never, "jaguar")),
		},
		{
			"shards",
			"groups:\n  - name: jaguar\n    labels: {cluster: jaguar}\n    shards:\n      - {until: " + rfc + ", replicas: [{url: %q}]}\n      - {from: " + rfc + ", replicas: [{url: %q}]}\n",
			"jaguar", joinSeries(cutSeries(old, minTime, boundary, "jaguar"), cutSeries(young, boundary, never, "jaguar")),
		},
		{
			"shards without labels",
			"groups:\n  - name: jaguar\n    shards:\n      - {until: " + rfc + ", replicas: [{url: %q}]}\n      - {from: " + rfc + ", replicas: [{url: %q}]}\n",
			"", joinSeries(cutSeries(old, minTime, boundary, ""), cutSeries(young, boundary, never, "")),
		},
		{
			// The old shard goes on: what both hold comes from the younger one from its beginning
			// on.
			"later from supplies",
			"groups:\n  - name: jaguar\n    labels: {cluster: jaguar}\n    shards:\n      - {replicas: [{url: %q}]}\n      - {from: " + rfc + ", replicas: [{url: %q}]}\n",
			"jaguar", supplied(cutSeries(old, minTime, never, "jaguar"), cutSeries(young, boundary, never, "jaguar"), boundary),
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := promShard(t, labels.EmptyLabels(), old), promShard(t, labels.EmptyLabels(), young)
			ref := promShard(t, labels.EmptyLabels(), c.reference)
			s, base := startProxy(t, t.Context(), fmt.Sprintf(c.config, a.URL(), b.URL()))
			exprs := []string{
				`m_total`, `{__name__=~"m_total|ghost_.*"}`, `rate(m_total[3m])`, `sum(rate(m_total[5m]))`, `count_over_time(m_total[10m])`,
				`sum by (node) (m_total)`, `m_total offset 7m`,
				`max_over_time(sum(m_total)[6m:30s])`, `ghost_old`, `ghost_new`, `absent(m_total{node="gone"})`, `changes(m_total[20m])`,
				`m_total @ ` + stamp(boundary), `last_over_time(m_total[30s])`,
				`timestamp(m_total)`, `m_total{node="a"} - on (node) m_total{node="a"} offset 1m`, `count(m_total)`, `resets(m_total[15m])`,
			}
			if c.cluster != "" {
				exprs = append(exprs, `count by (cluster) (m_total{cluster="jaguar"})`, `m_total{cluster=~"jag.*",node="b"}`,
					`sum without (cluster) (m_total)`)
			}
			modes := [2]float64{plans(t, s, "pass"), plans(t, s, "raw")}
			compared := 0
			for _, expr := range exprs {
				for i := range 8 {
					at := boundary.Add(time.Duration(rng.Int64N(int64(70*time.Minute))) - 35*time.Minute).Truncate(time.Millisecond)
					switch i {
					case 0:
						at = boundary
					case 1:
						at = boundary.Add(-time.Millisecond)
					case 2:
						at = now
					}
					form, path := url.Values{"query": {expr}, "time": {stamp(at)}}, "/api/v1/query"
					if i%2 == 1 {
						path, form = "/api/v1/query_range",
							url.Values{"query": {expr}, "start": {stamp(at.Add(-8 * time.Minute))}, "end": {stamp(at)}, "step": {"17"}}
					}
					code, body := ask(t, base, path, form)
					got, msg := fromJSON(t, body)
					_, body = ask(t, ref.URL(), path, form)
					want, refMsg := fromJSON(t, body)
					if code != 200 || want == nil {
						t.Errorf("%s at %s: %d %s, reference %s", expr, stamp(at), code, msg, refMsg)
						continue
					}
					compared += len(want)
					if diff := compare(got, want, 1e-12); diff != "" {
						t.Errorf("%s at %s (boundary %s, %s): %s", expr, stamp(at), stamp(boundary), path, diff)
					}
				}
			}
			if p, r := plans(t, s, "pass")-modes[0], plans(t, s, "raw")-modes[1]; compared < 100 || r == 0 ||
				p == 0 && c.name != "later from supplies" {
				t.Errorf("compared %d series, %v passed, %v raw: too few", compared, p, r)
			}

			// Remote read and federation.
			name := labels.MustNewMatcher(labels.MatchRegexp, "__name__", "m_total|ghost_.*")
			for _, w := range [][2]time.Time{
				{begin, now},
				{boundary.Add(-time.Minute), boundary.Add(time.Minute)},
				{boundary, now},
				{begin, boundary},
			} {
				if got, want := readText(t, base, w[0], w[1], name), readText(t, ref.URL(), w[0], w[1], name); got != want {
					t.Errorf("read of %s to %s:\n%.600s\nwant\n%.600s", stamp(w[0]), stamp(w[1]), got, want)
				}
			}
			match := url.Values{"match[]": {`{__name__=~"m_total|ghost_.*"}`, `m_total{node="a"}`}}
			if got, want := federatedText(t, base, match), federatedText(t, ref.URL(), match); got != want {
				t.Errorf("federate:\n%s\nwant\n%s", got, want)
			}

			// Metadata: windows that end before the boundary, begin at it, and cross it.
			for _, w := range [][2]time.Time{
				{begin, boundary.Add(-time.Millisecond)},
				{boundary, now},
				{boundary.Add(-10 * time.Minute), boundary.Add(10 * time.Minute)},
			} {
				form := url.Values{"match[]": {`{__name__=~"m_total|ghost_old|ghost_new"}`}, "start": {stamp(w[0])}, "end": {stamp(w[1])}}
				if c.name == "later from supplies" {
					continue // lists are unions: what supplies the samples does not matter
				}
				text := dataOf(t, ref.URL(), "/api/v1/series", form)
				if got, want := sortedJSON(t, dataOf(t, base, "/api/v1/series", form)), sortedJSON(t, text); got != want {
					t.Errorf("series of %s to %s: %s, want %s", stamp(w[0]), stamp(w[1]), got, want)
				}
				// A server's head lists names and values of all its time; what has a sample in the
				// window is among them.
				var sets []map[string]string
				if err := json.Unmarshal([]byte(text), &sets); err != nil {
					t.Fatal(err)
				}
				for _, set := range sets {
					for name, value := range set {
						if got := dataOf(t, base, "/api/v1/label/"+name+"/values", form); !strings.Contains(got, fmt.Sprintf("%q", value)) {
							t.Errorf("values of %s from %s to %s lack %s: %s", name, stamp(w[0]), stamp(w[1]), value, got)
						}
						if got := dataOf(t, base, "/api/v1/labels", form); !strings.Contains(got, fmt.Sprintf("%q", name)) {
							t.Errorf("labels from %s to %s lack %s: %s", stamp(w[0]), stamp(w[1]), name, got)
						}
					}
				}
			}
		})
	}
}

func staleNaN() float64 {
	return math.Float64frombits(value.StaleNaN)
}

// supplied is what two shards of overlapping spans hold together: of a series that both have, the
// older one's samples before the younger one's beginning.
func supplied(old, young []storedSeries, from time.Time) []storedSeries {
	has := map[string]bool{}
	for _, s := range young {
		has[s.lbls.String()] = true
	}
	var both, alone []storedSeries
	for _, s := range old {
		if has[s.lbls.String()] {
			both = append(both, s)
		} else {
			alone = append(alone, s)
		}
	}
	return joinSeries(cutSeries(both, time.UnixMilli(0), from, ""), alone, young)
}

// readText is what a remote read answers, as text: label sets sorted, samples in their order.
// Staleness markers are shown.
func readText(t *testing.T, base string, from, until time.Time, ms ...*labels.Matcher) string {
	t.Helper()
	q, err := remote.ToQuery(from.UnixMilli(), until.UnixMilli(), ms, nil)
	if err != nil {
		t.Fatal(err)
	}
	body, err := (&prompb.ReadRequest{
		Queries:               []*prompb.Query{q},
		AcceptedResponseTypes: []prompb.ReadRequest_ResponseType{prompb.ReadRequest_SAMPLES},
	}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, base+"/api/v1/read", bytes.NewReader(snappy.Encode(nil, body)))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("Content-Encoding", "snappy")
	req.Header.Set("X-Prometheus-Remote-Read-Version", "0.1.0")
	client := newClient(t)
	defer client.CloseIdleConnections() // a server takes so many connections and no more
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("read: %v %d %.300s", err, resp.StatusCode, raw)
	}
	plain, err := snappy.Decode(nil, raw)
	if err != nil {
		t.Fatal(err)
	}
	var out prompb.ReadResponse
	if err := out.Unmarshal(plain); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, r := range out.Results {
		for _, ts := range r.Timeseries {
			var b strings.Builder
			for _, l := range ts.Labels {
				fmt.Fprintf(&b, "%s=%q ", l.Name, l.Value)
			}
			for _, s := range ts.Samples {
				fmt.Fprintf(&b, "%v@%d ", s.Value, s.Timestamp)
			}
			fmt.Fprintf(&b, "%d histograms", len(ts.Histograms))
			lines = append(lines, b.String())
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func federatedText(t *testing.T, base string, form url.Values) string {
	t.Helper()
	client := newClient(t)
	defer client.CloseIdleConnections()
	resp, err := client.Get(base + "/federate?" + form.Encode())
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("federate: %v %d %.300s", err, resp.StatusCode, body)
	}
	lines := strings.Split(strings.TrimSpace(string(body)), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// dataOf is the data of a GET, as the server wrote it.
func dataOf(t *testing.T, base, path string, form url.Values) string {
	t.Helper()
	client := newClient(t)
	defer client.CloseIdleConnections()
	resp, err := client.Get(base + path + "?" + form.Encode())
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var env struct{ Data json.RawMessage }
	if err := json.NewDecoder(resp.Body).Decode(&env); err != nil || resp.StatusCode != 200 {
		t.Fatalf("%s: %v %d", path, err, resp.StatusCode)
	}
	return string(env.Data)
}

func sortedJSON(t *testing.T, text string) string {
	t.Helper()
	var sets []map[string]string
	if err := json.Unmarshal([]byte(text), &sets); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, s := range sets {
		out = append(out, labels.FromMap(s).String())
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// Two shards that hold an equal label set for the same time contradict the configuration. Their up
// does not show it here; where an answer does, the series is merged, with a warning that names both
// shards.
func TestEqualSeriesOnTwoShards(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	data := runsOf(1, []string{"a", "b"}, now.Add(-20*time.Minute), now, time.Second)
	a, b := promShard(t, labels.EmptyLabels(), data), promShard(t, labels.EmptyLabels(), data[1:])
	_, base := startProxy(t, t.Context(), fmt.Sprintf("groups:\n  - name: jaguar\n    labels: {cluster: jaguar}\n    shards:\n      - {replicas: [{url: %q}]}\n      - {replicas: [{url: %q}]}\n", a.URL(), b.URL()))
	for _, path := range []string{"/api/v1/query", "/api/v1/query_range"} {
		form := url.Values{"query": {`m_total`}, "start": {stamp(now.Add(-time.Minute))}, "end": {stamp(now)}, "step": {"15"}}
		code, body := ask(t, base, path, form)
		if code != 200 || strings.Count(string(body), `"node":"b"`) != 1 || strings.Count(string(body), `"metric"`) != 2 {
			t.Errorf("%s: want each series once: %d %s", path, code, body)
		}
		if text := string(body); !strings.Contains(text, "held by two shards") || !strings.Contains(text, "jaguar[0]") ||
			!strings.Contains(text, "jaguar[1]") {
			t.Errorf("%s: want a warning that names both: %s", path, body)
		}
		form.Set("query", `m_total{node="a"}`)
		if code, body := ask(t, base, path, form); code != 200 || strings.Contains(string(body), "warnings") {
			t.Errorf("%s: a query that the collision does not touch: %d %s", path, code, body)
		}
	}
	form := url.Values{"match[]": {"m_total"}, "start": {stamp(now.Add(-time.Minute))}, "end": {stamp(now)}}
	if got := sortedJSON(t, dataOf(t, base, "/api/v1/series", form)); strings.Count(got, "\n") != 1 {
		t.Errorf("series: %s", got)
	}
}

// Two stored series that become equal once the group's labels replace stored ones: refused on every
// road that evaluates, naming both.
func TestStoredLabelsThatCollide(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	var data []storedSeries
	for _, stored := range []string{"one", "two"} {
		s := storedSeries{lbls: labels.FromStrings("__name__", "m_total", "cluster", stored, "node", "a")}
		for at := now.Add(-10 * time.Minute); at.Before(now); at = at.Add(15 * time.Second) {
			s.points = append(s.points, point{t: at.UnixMilli(), f: 1})
		}
		data = append(data, s)
	}
	a := promShard(t, labels.EmptyLabels(), data)
	_, base := startProxy(t, t.Context(), fmt.Sprintf("groups: [{name: jaguar, labels: {cluster: jaguar}, shards: [{replicas: [{url: %q}]}]}]\n", a.URL()))
	for _, expr := range []string{`m_total`, `sum(m_total)`, `count(m_total{cluster="jaguar"})`} {
		code, body := ask(t, base, "/api/v1/query", url.Values{"query": {expr}})
		e := decodeRefusal(t, body)
		if code != 422 || e.Spillway == nil || *e.Spillway.Bound != "label_collision" || !strings.Contains(e.Error, "one") ||
			!strings.Contains(e.Error, "two") {
			t.Errorf("%s: want label_collision naming both: %d %s", expr, code, body)
		}
	}
	if code, body := ask(t, base, "/api/v1/query", url.Values{"query": {`m_total{cluster="one"}`}}); code != 200 ||
		!strings.Contains(string(body), `"result":[]`) {
		t.Errorf("a stored value of a group's label selects nothing: %d %s", code, body)
	}
}
