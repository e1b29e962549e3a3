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
	return a.get(t, "/api/v1/query_range", url.Values{"query": {expr}, "start": {a.at(first)}, "end": {a.at(last)}, "step": {strconv.FormatInt(step/1000, 10)}})
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
	p, err := localprom.Start(t.Context(), localprom.Options{DisableWAL: true, BlockDuration: 24 * time.Hour, ExternalLabels: labels.FromStrings("replica", name)})
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

// serve gives the pairs of a world, as servers of their own, to Spillway. heartbeat is the line of
// its configuration.
func (st *staged) serve(t testing.TB, heartbeat string) asked {
	t.Helper()
	const bucket = 300_000
	later := (time.Now().UnixMilli() - 2*bucket - origin - length) / bucket * bucket // all of it is past, as far as heartbeats know
	var cfg strings.Builder
	fmt.Fprintf(&cfg, "limits: {timeout: 2m}\ngroups:\n  - name: all\n    replica_labels: [replica]\n%s    shards:\n", heartbeat)
	for _, pair := range st.pairs {
		cfg.WriteString("      - replicas:\n")
		for i, r := range pair {
			fmt.Fprintf(&cfg, "          - {url: %q}\n", holding(t, r, string(rune('a'+i)), later).URL())
		}
	}
	base, _ := servertest.Start(t, cfg.String())
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	return asked{base, later, client}
}

// TestServed: Spillway itself, asked over HTTP about servers that hold what the pairs have seen.
// Without a heartbeat everything is spliced, and it gets wrong what the rules get wrong, number for
// number. With one it comes near to that: a replica that lacks no more than chance explains counts
// as whole, so that a gap of few scrapes stays. Every second world has two shards.
func TestServed(t *testing.T) {
	for seed := range uint64(*served) {
		shards := int(seed%2) + 1
		t.Run(fmt.Sprintf("world %d of %d shards", seed+1, shards), func(t *testing.T) {
			st := stage(t, seed, shards)
			base := float64(st.floor(t).artefacts()) / float64(len(st.never))
			rules := st.judge(t, local(st.spliced(seamref.Rules{})))
			spliced, whole := st.judge(t, st.serve(t, "")), st.judge(t, st.serve(t, "    heartbeat: up\n"))
			for _, s := range []struct {
				name string
				score
			}{{"the rules", rules}, {"without a heartbeat", spliced}, {"with one", whole}} {
				t.Logf("%s: %d artefacts, %.2f times the floor: %+v", s.name, s.artefacts(), float64(s.artefacts())/base, s.score)
			}
			if spliced != rules {
				t.Errorf("what is spliced has %+v, the rules %+v", spliced, rules)
			}
			if a := float64(whole.artefacts()); a > 3.5*base || a > 1.5*float64(rules.artefacts()) {
				t.Errorf("%d artefacts; three and a half times the floor, %.0f, are allowed, and one and a half times the %d of the rules", whole.artefacts(), 3.5*base, rules.artefacts())
			}
			if whole.falseAlerts+whole.lostAlerts > 0 {
				t.Errorf("%d false alerts and %d lost ones, which no replica that never fails has", whole.falseAlerts, whole.lostAlerts)
			}
		})
	}
}
