package live

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/relabel"
	"github.com/prometheus/prometheus/storage"

	"github.com/spillwayproject/spillway/alerts"
	"github.com/spillwayproject/spillway/grafana-plugin/pkg/experiments"
	"github.com/spillwayproject/spillway/grafana-plugin/pkg/model"
	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
	"github.com/spillwayproject/spillway/internal/localprom"
	"github.com/spillwayproject/spillway/loadtest/cluster"
)

// drops is a metric relabeling that takes labels away.
func drops(labels string) []*relabel.Config {
	c := relabel.DefaultRelabelConfig
	c.Action, c.Regex = relabel.LabelDrop, relabel.MustNewRegexp(labels)
	return []*relabel.Config{&c}
}

// everything is a query of each type and view, about all experiments unless it compares.
func everything(names []string) []string {
	var out []string
	for _, kind := range model.QueryTypes {
		more := ""
		switch kind {
		case model.Compare:
			more = fmt.Sprintf(`,"experiments":[%s,%s]`, quote(names[0]), quote(names[1]))
		case model.PromQL:
			continue // the user's own: an empty answer is an answer
		}
		views := model.Views[kind]
		if len(views) == 0 {
			views = []string{""}
		}
		for _, v := range views {
			if v != "" {
				v = `,"view":"` + v + `"`
			}
			out = append(out, `{"queryType":"`+string(kind)+`"`+v+more+`}`)
		}
	}
	return out
}

// TestMissing takes one thing away after the other. No query is answered with nothing and no word:
// it says what is missing and how it is mended, or, where there is just nothing to show, that.
func TestMissing(t *testing.T) {
	until := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	from := until.Add(-time.Hour)
	m, err := cluster.New(cluster.Options{Seed: 7, Cluster: small, Nodes: 4, Start: until.Add(-10 * 24 * time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, p := range m.Pods(from, until) {
		if !p.Started.IsZero() && p.Started.Before(until.Add(-20*time.Minute)) && p.Ended.After(from.Add(20*time.Minute)) &&
			!slices.Contains(names, p.Experiment) {
			names = append(names, p.Experiment)
		}
	}
	if len(names) < 2 {
		t.Fatalf("only %q run: choose another seed", names)
	}
	onlyJob := func(job, labels string) func(string) []*relabel.Config {
		return func(j string) []*relabel.Config {
			if j != job {
				return nil
			}
			return drops(labels)
		}
	}
	all := "experiments status pods nodes gpu_timeseries gpu_health network pending events cost compare stragglers"
	for _, c := range []struct {
		name string
		o    Options
		// says is what errors of the queries of these types must have in them, upper and lower case
		// alike.
		types string
		says  []string
	}{
		{"nothing is missing", Options{Rules: alerts.Global(), ShardRules: alerts.Shard()}, "", nil},
		{"nothing is there", Options{Jobs: []string{cluster.JobScheduler}}, all, []string{"kube-state-metrics"}},
		{"no allow-list", Options{
			Rules: alerts.Global(), ShardRules: alerts.Shard(),
			Relabel: onlyJob(cluster.JobKubeStateMetrics, "label_.+"),
		}, all, []string{"--metric-labels-allowlist", "pods="}},
		{"no recording rules", Options{}, all, []string{"mixin render"}},
		{"no DCGM", Options{
			Rules: alerts.Global(), ShardRules: alerts.Shard(),
			Jobs: []string{cluster.JobKubeStateMetrics, cluster.JobNode},
		}, "gpu_timeseries stragglers", []string{"dcgm"}},
		{"DCGM without pods", Options{
			Rules: alerts.Global(), ShardRules: alerts.Shard(),
			Relabel: onlyJob(cluster.JobDCGM, "(exported_)?(pod|namespace|container)"),
		}, "gpu_timeseries stragglers", []string{"pod"}},
		{"no node_exporter", Options{
			Rules: alerts.Global(), ShardRules: alerts.Shard(),
			Jobs: []string{cluster.JobKubeStateMetrics, cluster.JobDCGM},
		}, "network", []string{"node_exporter"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.Dir, c.o.From, c.o.Until, c.o.Clusters = t.TempDir(), from.Add(-before), until.Add(every), []Cluster{{Model: m}}
			w, err := Write(t.Context(), c.o)
			if err != nil {
				t.Fatal(err)
			}
			asker := newClient(t, local(t, w))
			failed := map[string]bool{}
			for _, query := range everything(names) {
				err := speaks(t, asker, query, from, until)
				if err == nil {
					continue
				}
				q, _ := model.ParseQuery("A", "", []byte(query))
				failed[string(q.Type)] = true
				var missing *experiments.SetupError
				if !errors.As(err, &missing) || len(missing.Findings) == 0 {
					t.Errorf("%s: %v says nothing of what is not set up", query, err)
					continue
				}
				for _, f := range missing.Findings {
					if f.Missing == "" || f.Fix == "" {
						t.Errorf("%s: the finding %+v lacks what is missing or how to mend it", query, f)
					}
				}
				if c.types == "" {
					t.Errorf("%s: %v, and nothing is missing", query, err)
				}
				for _, say := range c.says {
					if slices.Contains(strings.Fields(c.types), string(q.Type)) &&
						!strings.Contains(strings.ToLower(err.Error()), strings.ToLower(say)) {
						t.Errorf("%s: %v does not speak of %s", query, err, say)
					}
				}
			}
			for _, kind := range strings.Fields(c.types) {
				if !failed[kind] {
					t.Errorf("%s did not say that something is missing", kind)
				}
			}
		})
	}
	t.Run("no permission", func(t *testing.T) {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"status":"error","errorType":"forbidden","error":"team vision may not read cluster ibis"}`))
		}))
		defer server.Close()
		asker := newClient(t, server.URL)
		for _, query := range everything(names) {
			var refusal *prom.Refusal
			if err := speaks(t, asker, query, from, until); !errors.As(err, &refusal) || refusal.Status != http.StatusForbidden ||
				!strings.Contains(err.Error(), "team vision may not read cluster ibis") {
				t.Errorf("%s: %v does not say that it is forbidden, and by whom", query, err)
			}
		}
	})
}

// speaks answers a query and returns its error. An answer without rows and without a notice is an
// error of the test.
func speaks(t *testing.T, asker prom.Asker, query string, from, until time.Time) error {
	t.Helper()
	q, err := model.ParseQuery("A", "", []byte(query))
	if err != nil {
		t.Fatal(err)
	}
	settings, err := model.ParseSettings([]byte(prices))
	if err != nil {
		t.Fatal(err)
	}
	frames, err := experiments.NewRun(asker, settings, q, from, until).Do(t.Context())
	if err != nil {
		return err
	}
	rows, notices := 0, 0
	for _, f := range frames {
		if n, err := f.RowLen(); err == nil {
			rows += n
		}
		if f.Meta != nil {
			notices += len(f.Meta.Notices)
		}
	}
	if rows == 0 && notices == 0 {
		t.Errorf("%s: nothing, and nothing says why", query)
	}
	if frames[0].Meta == nil || frames[0].Meta.ExecutedQueryString == "" {
		t.Errorf("%s: it is not told what was asked", query)
	}
	return nil
}

// local is one server of this process that has all that the world's servers have, each cluster
// under its name, as the proxy shows it. It ends with the test.
func local(t *testing.T, w *World) string {
	t.Helper()
	start := func(o localprom.Options) *localprom.Shard {
		o.DisableWAL, o.Retention = true, oneBlock
		s, err := localprom.Start(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		return s
	}
	var all together
	for _, c := range w.clusters {
		var blocks []string
		for shard := range c.Shards {
			blocks = append(blocks, w.path(folder(c.name(), shard, 0)))
		}
		all = append(all, named{start(localprom.Options{Blocks: blocks}).Storage(), c.name()})
	}
	if w.recorded {
		all = append(all, start(localprom.Options{Blocks: []string{w.path(recordedFolder)}}).Storage())
	}
	return start(localprom.Options{Read: samplesOnly{all}}).URL()
}

// samplesOnly is a storage without chunks, which only remote read asks for.
type samplesOnly struct{ storage.Queryable }

func (samplesOnly) ChunkQuerier(_, _ int64) (storage.ChunkQuerier, error) {
	return nil, errors.ErrUnsupported
}
