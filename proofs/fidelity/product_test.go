package fidelity

import (
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"

	"github.com/spillwayproject/spillway/internal/localprom"
	"github.com/spillwayproject/spillway/internal/seamref"
	"github.com/spillwayproject/spillway/proxy/server/servertest"
)

var served = flag.Int("fidelity.served", 1, "how many worlds are served to Spillway itself, over HTTP")

// asked is a server that is asked over HTTP. Its data lie later than the world's by a whole number
// of five minutes.
type asked struct {
	url    string
	later  int64
	client *http.Client
}

func (a asked) get(t testing.TB, path string, form url.Values) (out map[string]map[int64]float64) {
	t.Helper()
	res, err := a.client.PostForm(a.url+path, form)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var body struct {
		Error string
		Data  struct {
			Result []struct {
				Metric map[string]string
				Value  []any
				Values [][]any
			}
		}
	}
	if err := json.NewDecoder(res.Body).Decode(&body); err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d %s %v", form.Get("query"), res.StatusCode, body.Error, err)
	}
	out = map[string]map[int64]float64{}
	for _, s := range body.Data.Result {
		if s.Value != nil {
			s.Values = append(s.Values, s.Value)
		}
		points := map[int64]float64{}
		for _, p := range s.Values {
			f, err := strconv.ParseFloat(p[1].(string), 64)
			if err != nil {
				t.Fatal(err)
			}
			points[int64(math.Round(p[0].(float64)*1000))-a.later] = f
		}
		out[labels.FromMap(s.Metric).String()] = points
	}
	return out
}

func (a asked) at(t int64) string { return strconv.FormatFloat(float64(t+a.later)/1000, 'f', 3, 64) }

func (a asked) ranges(t testing.TB, expr string, step int64) map[string]map[int64]float64 {
	t.Helper()
	return a.get(t, "/api/v1/query_range",
		url.Values{"query": {expr}, "start": {a.at(first)}, "end": {a.at(last)}, "step": {strconv.FormatInt(step/1000, 10)}})
}

func (a asked) instants(t testing.TB, expr string) map[string]map[int64]float64 {
	t.Helper()
	out := map[string]map[int64]float64{}
	for at := firstInstant; at < last; at += instantBy {
		for key, points := range a.get(t, "/api/v1/query", url.Values{"query": {expr}, "time": {a.at(at)}}) {
			if out[key] == nil {
				out[key] = map[int64]float64{}
			}
			out[key][at] = points[at]
		}
	}
	return out
}

// holding is a Prometheus that holds what a replica has seen.
func holding(t testing.TB, r *replica, name string, later int64) *localprom.Shard {
	t.Helper()
	p, err := localprom.Start(t.Context(), localprom.Options{
		DisableWAL: true, BlockDuration: 24 * time.Hour, ExternalLabels: labels.FromStrings("replica", name),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := p.Append(func(app storage.Appender) error {
		for _, s := range r.seen {
			for i, x := range s.samples {
				f := s.values[i]
				switch {
				case x.Marker:
					f = math.Float64frombits(value.StaleNaN)
				case s.lbls.Get("__name__") == "started":
					f += float64(later) / 1000
				}
				if _, err := app.Append(0, s.lbls, x.T+later, f); err != nil {
					return fmt.Errorf("%s: %w", s.lbls, err)
				}
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return p
}

// held are servers that hold what the pairs of a world have seen, shard by shard.
type held struct {
	shards [][]string // URLs
	later  int64
}

func (h held) asked(t testing.TB, url string) asked {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	return asked{url, h.later, client}
}

// hold gives each replica of the pairs a server of its own. As the operator's, no two have the same
// external label, of different shards neither.
func (st *staged) hold(t testing.TB) held {
	t.Helper()
	const bucket = 300_000
	// All of it is past, as far as heartbeats know.
	h := held{later: (time.Now().UnixMilli() - 2*bucket - origin - length) / bucket * bucket}
	for n, pair := range st.pairs {
		var urls []string
		for i, r := range pair {
			urls = append(urls, holding(t, r, fmt.Sprintf("%c%d", 'a'+i, n), h.later).URL())
		}
		h.shards = append(h.shards, urls)
	}
	return h
}

// spillway is Spillway in front of the servers. heartbeat is the line of its configuration.
func (h held) spillway(t testing.TB, heartbeat string) asked {
	t.Helper()
	var cfg strings.Builder
	fmt.Fprintf(&cfg, "limits: {timeout: 2m}\ngroups:\n  - name: all\n    replica_labels: [replica]\n%s    shards:\n", heartbeat)
	for _, urls := range h.shards {
		cfg.WriteString("      - replicas:\n")
		for _, url := range urls {
			fmt.Fprintf(&cfg, "          - {url: %q}\n", url)
		}
	}
	base, _ := servertest.Start(t, cfg.String())
	return h.asked(t, base)
}

// TestServed: Spillway itself, asked over HTTP about servers that hold what the pairs have seen.
// Without a heartbeat everything is spliced, and it gets wrong what the rules get wrong, number for
// number. With one it comes near to that: a replica that lacks no more than chance explains counts
// as whole, so that a gap of few scrapes stays. Every second world has two shards. Peers are asked
// the same of the same servers, and none may be nearer to the truth: it would have the better rule.
func TestServed(t *testing.T) {
	rows := [2][]row{} // of worlds with one shard, and with two
	for seed := range uint64(*served) {
		shards := int(seed%2) + 1
		t.Run(fmt.Sprintf("world %d of %d shards", seed+1, shards), func(t *testing.T) {
			st := stage(t, seed, shards)
			floor := st.floor(t)
			base := float64(floor.artefacts()) / float64(len(st.never))
			rules := st.judge(t, local(st.spliced(seamref.Rules{})))
			h := st.hold(t)
			spliced, whole := st.judge(t, h.spillway(t, "")), st.judge(t, h.spillway(t, "    heartbeat: up\n"))
			got := []row{{"the rules", rules, 1}, {"Spillway without a heartbeat", spliced, 1}, {"Spillway with one", whole, 1}}
			for _, p := range peers {
				s := st.judge(t, p.serve(t, h))
				got = append(got, row{p.name, s, 1})
				if s.artefacts() < whole.artefacts() {
					t.Errorf("%s has %d artefacts, Spillway %d", p.name, s.artefacts(), whole.artefacts())
				}
			}
			for _, s := range got {
				t.Logf("%s: %d artefacts, %.2f times the floor: %+v", s.name, s.artefacts(), float64(s.artefacts())/base, s.score)
			}
			if spliced != rules {
				t.Errorf("what is spliced has %+v, the rules %+v", spliced, rules)
			}
			if a := float64(whole.artefacts()); a > 3.5*base || a > 1.5*float64(rules.artefacts()) {
				t.Errorf("%d artefacts; three and a half times the floor, %.0f, are allowed, and one and a half times the %d of the rules",
					whole.artefacts(), 3.5*base, rules.artefacts())
			}
			if whole.falseAlerts+whole.lostAlerts > 0 {
				t.Errorf("%d false alerts and %d lost ones, which no replica that never fails has", whole.falseAlerts, whole.lostAlerts)
			}
			rows[shards-1] = summed(rows[shards-1],
				append([]row{{"a replica that never fails (the floor)", floor, float64(len(st.never))}}, got...))
		})
	}
	var table strings.Builder
	for i, of := range rows {
		if of != nil {
			fmt.Fprintf(&table, "Shards: %d; worlds: %d.\n\n%s\n", i+1, (*served+1-i)/2, tabled(of))
		}
	}
	t.Logf("\n%s", table.String())
	if *update && len(peers) > 0 && !t.Failed() {
		write(t, "served", "\n"+table.String())
	}
}

// summed are the rows of several worlds.
func summed(all, more []row) []row {
	if all == nil {
		return more
	}
	for i := range all {
		all[i].add(more[i].score)
	}
	return all
}
