package cluster

import (
	"math"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery/targetgroup"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"github.com/prometheus/prometheus/scrape"
	"github.com/prometheus/prometheus/tsdb"
)

// accountingRelabelling makes a label traffic of the comment of an iptables rule
// and drops the rules without; go_ stands for what an allow-list leaves out.
const accountingRelabelling = `
- source_labels: [__name__, rule]
  regex: 'iptables_rule_(?:bytes|packets)_total;.*\btraffic=([a-z-]+).*'
  target_label: traffic
- source_labels: [__name__, traffic]
  regex: 'iptables_rule_(?:bytes|packets)_total;'
  action: drop
- regex: rule
  action: labeldrop
- source_labels: [__name__]
  regex: 'go_.*'
  action: drop
`

// Prometheus' own scrape manager, fed from /sd, stores for a page what a
// back-fill of the same moment stores: same labels (exported_node, le="1.0",
// no empty labels), same values, same up and scrape_samples_…, and the same
// after relabelling.
func TestScrapeStoresWhatBackfillStores(t *testing.T) {
	for name, rules := range map[string]string{"as it is": " []", "relabelled": accountingRelabelling} {
		t.Run(name, func(t *testing.T) { scrapeAndBackfill(t, rules) })
	}
}

func scrapeAndBackfill(t *testing.T, rules string) {
	m := mustNew(t, Options{Seed: 8, Nodes: 2, APIServers: 1, Exporters: AllExporters})
	srv := httptest.NewServer(m.Handler(func() time.Time { return testUntil }))
	defer srv.Close()

	opts := tsdb.DefaultOptions()
	db, err := tsdb.Open(t.TempDir(), promslog.NewNopLogger(), nil, opts, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	cfg, err := config.Load("global: {scrape_interval: 2s, scrape_timeout: 2s}\nscrape_configs:\n- job_name: sim\n  honor_timestamps: true\n  metric_relabel_configs:"+strings.ReplaceAll(rules, "\n", "\n  ")+"\n", promslog.NewNopLogger())
	if err != nil {
		t.Fatal(err)
	}
	mgr, err := scrape.NewManager(&scrape.Options{DiscoveryReloadInterval: model.Duration(10 * time.Millisecond)}, promslog.NewNopLogger(),
		nil, db, nil, prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	if err := mgr.ApplyConfig(cfg); err != nil {
		t.Fatal(err)
	}
	groups := []*targetgroup.Group{}
	for i := range m.targets {
		g := m.sdGroup(&m.targets[i], strings.TrimPrefix(srv.URL, "http://"))
		ls := model.LabelSet{}
		for k, v := range g.Labels {
			ls[model.LabelName(k)] = model.LabelValue(v)
		}
		groups = append(groups, &targetgroup.Group{
			Targets: []model.LabelSet{{model.AddressLabel: model.LabelValue(g.Targets[0])}},
			Labels:  ls, Source: g.Labels["__metrics_path__"],
		})
	}
	tsets := make(chan map[string][]*targetgroup.Group)
	done := make(chan error, 1)
	go func() { done <- mgr.Run(tsets) }()
	tsets <- map[string][]*targetgroup.Group{"sim": groups}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.Now().Add(time.Minute)
	for {
		<-tick.C
		up, bad := 0, ""
		for _, tg := range mgr.TargetsActive()["sim"] {
			switch tg.Health() {
			case scrape.HealthGood:
				up++
			case scrape.HealthBad:
				if err := tg.LastError(); err != nil {
					bad = tg.URL().String() + ": " + err.Error()
				}
			}
		}
		if up == len(m.targets) {
			break
		}
		if time.Now().After(deadline) {
			mgr.Stop()
			<-done
			t.Fatalf("%d of %d targets are up; %s", up, len(m.targets), bad)
		}
	}
	mgr.Stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}

	q, err := db.Querier(math.MinInt64, math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	scraped := readQuerier(t, q)

	// One millisecond at an interval of one millisecond: one scrape of each target.
	j, err := m.newJob(BackfillOptions{
		From: testUntil, Until: testUntil.Add(time.Millisecond), Interval: time.Millisecond,
		MetricRelabel: func(string) []*relabel.Config { return cfg.ScrapeConfigs[0].MetricRelabelConfigs },
	})
	if err != nil {
		t.Fatal(err)
	}
	b := labels.NewScratchBuilder(24)
	n := 0
	for i := range j.targets {
		var ownSeries []entry
		j.walk(i, func(s *series, mk made) {
			l := storedLabels(s, j.extra[i], &b)
			n++
			got, ok := scraped[l.String()]
			if !ok {
				t.Fatalf("the server did not store %s", l)
			}
			if mk == notMade {
				if want := s.curve.at(testUntil.UnixMilli()); math.Float64bits(got[0].v) != math.Float64bits(want) {
					t.Fatalf("%s: server stored %v, back-fill %v", l, got[0].v, want)
				}
				return
			}
			if mk != madeDuration && mk != madeAdded {
				ownSeries = append(ownSeries, entry{lset: l, made: mk})
			}
		})
		for k := range ownSeries {
			if want, got := j.scrapes[i].made(&ownSeries[k], 0), scraped[ownSeries[k].lset.String()][0].v; got != want {
				t.Fatalf("%s: server stored %v, back-fill %v", ownSeries[k].lset, got, want)
			}
		}
	}
	if n != len(scraped) {
		t.Errorf("the server has %d series, the back-fill %d", len(scraped), n)
	}
	if _, ok := scraped[labels.FromStrings("__name__", "iptables_rule_bytes_total", "chain", "FORWARD", "table", "mangle", "traffic",
		"internet-out",
		"job", JobIPTables, "instance", "10.0.1.0:9455", "node", "gpu-00000").String()]; ok != (rules == accountingRelabelling) {
		t.Errorf("a series with the label traffic is there: %v", ok)
	}
	t.Logf("%d targets, %d series equal", len(j.targets), n)
}
