package server

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	versioncollector "github.com/prometheus/client_golang/prometheus/collectors/version"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/policy"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/shard"
)

var update = flag.Bool("update", false, "write docs/metrics.md anew")

const metricsPage = "../../docs/metrics.md"

// labelValues says what a label's values are: text for the page, and the set where it is closed. A
// metric's own entry, metric/label, goes before the label's.
var labelValues = map[string]struct {
	text string
	set  []string
}{
	"endpoint":                              {"the `endpoint` names of [endpoints.md](endpoints.md), or `none` for what is in no table", append(endpointIDs(), "none")},
	"verdict":                               closed("pass", "clamp", "refuse"),
	"outcome":                               closed(append([]string{"success"}, kindLabels()...)...),
	"spillway_shard_requests_total/outcome": closed(append([]string{"ok", "cut", "silent"}, kindLabels()...)...),
	"bound":                                 {"the names of [bounds](bounds/README.md)", policy.Bounds()},
	"spillway_rewrites_total/outcome":       closed("tried", "estimated", "remembered", "none", "busy"),
	"spillway_denied_requests_total/mode":   closed("refused", "shadow"),
	"spillway_deny_rules/source":            closed("config", "api", "crash"),
	"mode":                                  closed("pass", "splice", "push", "mixed", "stretches", "parcels", "raw", "local"),
	"cause":                                 closed(planCauses()...),
	"listener":                              closed("main", "admin", "metrics"),
	"of":                                    closed("series", "samples"),
	"known":                                 closed("yes", "no"),
	"state":                                 closed("up", "down", "misconfigured", "unknown"),
	"class":                                 closed("heavy", "unselective"),
	"spillway_group_sick/kind":              closed(shard.SickKinds()...),
	"spillway_discovery_servers/state":      closed("found", "kept", "awaited"),
	"spillway_shard_shed_total/reason":      closed("wide", "unselective"),
	"spillway_shard_health/state":           closed("unknown", "sound", "busy", "sick"),
	"spillway_duplicate_series_total/shard": {"the shard, as errors name it", nil},
	"spillway_duplicate_series_total/other": {"the other shard, likewise", nil},
	"rule":                                  {"IDs of the plans that `drop_rules` names, such as `node/names/1`", nil},
	"group":                                 {"names of the configuration", nil},
	"lane":                                  {"names of the configuration, and `default`", nil},
	"shard":                                 {"the shard's place in its group, from 0", nil},
	"replica":                               {"host:port", nil},
	"hash":                                  {"12 hexadecimal digits; one series at a time", nil},
	"branch":                                {"of the build", nil},
	"revision":                              {"of the build", nil},
	"version":                               {"Spillway's own", nil},
	"tags":                                  {"of the build", nil},
	"goversion":                             {"of the build", nil},
	"goos":                                  {"of the build", nil},
	"goarch":                                {"of the build", nil},
}

func closed(set ...string) (v struct {
	text string
	set  []string
},
) {
	v.text, v.set = "`"+strings.Join(set, "`, `")+"`", set
	return v
}

func kindLabels() []string {
	var out []string
	for _, k := range qerr.Kinds() {
		out = append(out, k.String())
	}
	return out
}

func planCauses() []string {
	var out []string
	for _, c := range plan.Causes() {
		out = append(out, string(c))
	}
	return out
}

func endpointIDs() []string {
	var out []string
	for i := range endpoint.Table {
		out = append(out, string(endpoint.Table[i].ID))
	}
	return out
}

// metricRow is a metric as its collector describes it.
type metricRow struct {
	name, kind, help string
	labels           []string
}

// unit follows from the name, as Prometheus' naming rules want it.
func (f metricRow) unit() string {
	base := strings.TrimSuffix(f.name, "_total")
	switch {
	case strings.HasSuffix(base, "_timestamp_seconds"):
		return "seconds since 1970"
	case strings.HasSuffix(base, "_seconds"):
		return "seconds"
	case strings.HasSuffix(base, "_bytes"):
		return "bytes"
	case f.kind == "histogram" && strings.HasSuffix(base, "_ratio"): // of two amounts, of which either may be the larger
		return "ratio"
	case strings.HasSuffix(base, "_ratio"):
		return "0 to 1"
	case f.kind == "gauge" && slices.ContainsFunc([]string{
		"_info", "_successful", "_open", "_state", "_whole", "_sick", "_lagging",
		"_silent", "_trusted", "_working",
	}, func(s string) bool { return strings.HasSuffix(base, s) }):
		return "0 or 1"
	default:
		return "count"
	}
}

// row is the family's line of the page.
func (f metricRow) row() string {
	var labels []string
	for _, l := range f.labels {
		v, ok := labelValues[f.name+"/"+l]
		if !ok {
			v, ok = labelValues[l]
		}
		if !ok {
			v.text = "MISSING: say in metricsdoc_test.go what its values are"
		}
		labels = append(labels, "`"+l+"`: "+v.text)
	}
	if labels == nil {
		labels = []string{"none"}
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s | %s |", f.name, f.kind, f.unit(), strings.Join(labels, "<br>"), f.help)
}

// watching remembers what is registered.
type watching struct {
	prometheus.Registerer
	all []prometheus.Collector
}

// Register implements prometheus.Registerer.
func (w *watching) Register(c prometheus.Collector) error {
	w.all = append(w.all, c)
	return w.Registerer.Register(c)
}

// MustRegister implements prometheus.Registerer.
func (w *watching) MustRegister(cs ...prometheus.Collector) {
	w.all = append(w.all, cs...)
	w.Registerer.MustRegister(cs...)
}

var (
	// A Desc shows its parts only where it prints itself.
	descName   = regexp.MustCompile(`fqName: ("(?:[^"\\]|\\.)*")`)
	descHelp   = regexp.MustCompile(`help: ("(?:[^"\\]|\\.)*")`)
	descConst  = regexp.MustCompile(`constLabels: \{([^}]*)\}`)
	descLabels = regexp.MustCompile(`variableLabels: \{([^}]*)\}`)
	constName  = regexp.MustCompile(`([a-z_]+)="`)
)

// describe takes a Desc apart.
func describe(t *testing.T, d *prometheus.Desc) metricRow {
	t.Helper()
	text := d.String()
	part := func(re *regexp.Regexp) string {
		m := re.FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("a Desc prints itself in another form than this test reads: %s", text)
		}
		return m[1]
	}
	quoted := func(re *regexp.Regexp) string {
		s, err := strconv.Unquote(part(re))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return s
	}
	f := metricRow{name: quoted(descName), help: quoted(descHelp)}
	for _, m := range constName.FindAllStringSubmatch(part(descConst), -1) {
		f.labels = append(f.labels, m[1])
	}
	for l := range strings.SplitSeq(part(descLabels), ",") {
		if l = strings.TrimSpace(l); l != "" {
			f.labels = append(f.labels, l)
		}
	}
	return f
}

// metricKind is a collector's type and, where it has labels, brings one series of it to life, so
// that Gather shows it.
func metricKind(t *testing.T, c prometheus.Collector, f metricRow) string {
	t.Helper()
	some := make([]string, len(f.labels))
	for i := range some {
		some[i] = "some"
	}
	switch c := c.(type) {
	case *prometheus.CounterVec:
		c.WithLabelValues(some...)
		return "counter"
	case *prometheus.GaugeVec:
		c.WithLabelValues(some...)
		return "gauge"
	case *prometheus.HistogramVec:
		c.WithLabelValues(some...)
		return "histogram"
	case prometheus.Histogram:
		return "histogram"
	case prometheus.Counter: // every Gauge is a Counter by its methods, not the reverse
		if _, ok := c.(prometheus.Gauge); ok {
			return "gauge"
		}
		return "counter"
	default: // a GaugeFunc, and collectors of gauges and counters; Gather decides below
		if strings.HasSuffix(f.name, "_total") {
			return "counter"
		}
		return "gauge"
	}
}

// describedMetrics are all metrics of a new server over one group with a heartbeat, sorted, and
// their registry, in which each has a series.
func describedMetrics(t *testing.T) ([]metricRow, *prometheus.Registry) {
	t.Helper()
	cfg, err := config.Parse([]byte(`{state_dir: state, groups: [{name: main, heartbeat: up, names: [up], shard_by: [node], hashmod: {labels: [node], modulus: 1}, shards: [{hash: 0, names: [x], replicas: [{url: "http://127.0.0.1:1"}, {url: "http://127.0.0.1:2"}]}]}]}`), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	w := &watching{Registerer: reg}
	web := filepath.Join(t.TempDir(), "web.yml")
	writeText(t, web, "http_server_config: {http2: false}\n")
	s, err := New(Options{Config: cfg, Registerer: w, Gatherer: reg, WebConfigFile: web})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.end()
		s.state.Load().retire()
	})
	s.state.Load().top.Start(s.background)                    // the gauges of replicas speak of a topology that runs
	w.MustRegister(versioncollector.NewCollector("spillway")) // as the command does
	var out []metricRow
	for _, c := range w.all {
		ch := make(chan *prometheus.Desc, 64)
		c.Describe(ch)
		close(ch)
		for d := range ch {
			f := describe(t, d)
			f.kind = metricKind(t, c, f)
			out = append(out, f)
		}
	}
	slices.SortFunc(out, func(a, b metricRow) int { return strings.Compare(a.name, b.name) })
	return out, reg
}

// plannedMetrics are those that an alert or a dashboard waits for.
var plannedMetrics = map[string]string{}

const metricsHead = `# Metrics

Served at ` + "`/metrics`" + ` of the admin listener, and alone where ` + "`--web.metrics-listen-address`" + ` says, beside those of the Go runtime and the process (` + "`go_…`, `process_…`" + `). Labels are bounded: by the configuration (groups,
shards, replicas, drop rules), by the endpoint table, or by the sets below. No label holds anything that a client sent.

This page is compared with the running code by a test, in both directions; ` + "`go test ./proxy/server -run TestMetricsPage -update`" + ` writes it anew.

| name | type | unit | labels and their values | meaning |
|---|---|---|---|---|
`

const metricsPlanned = `
## Planned

Metrics that are decided on and not there yet. A dashboard or an alert must not use them.

`

// metricsText is docs/metrics.md as it should be.
func metricsText(all []metricRow) string {
	var b strings.Builder
	b.WriteString(metricsHead)
	for _, f := range all {
		b.WriteString(f.row() + "\n")
	}
	b.WriteString(metricsPlanned)
	if len(plannedMetrics) == 0 {
		b.WriteString("None at the moment.\n")
	}
	for _, name := range slices.Sorted(maps.Keys(plannedMetrics)) {
		fmt.Fprintf(&b, "- `%s`: %s\n", name, plannedMetrics[name])
	}
	return b.String()
}

// TestMetricsPage compares the registry with the page: every metric is a row, every row a metric,
// and type, labels and help are equal.
func TestMetricsPage(t *testing.T) {
	all, reg := describedMetrics(t)
	gathered, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, mf := range gathered {
		i := slices.IndexFunc(all, func(f metricRow) bool { return f.name == mf.GetName() })
		if i < 0 {
			t.Errorf("%s is gathered and described by no collector", mf.GetName())
			continue
		}
		f := all[i]
		if got := strings.ToLower(mf.GetType().String()); got != f.kind {
			t.Errorf("%s is a %s; the test took it for a %s", f.name, got, f.kind)
		}
		var have []string
		for _, l := range mf.Metric[0].Label {
			have = append(have, l.GetName())
		}
		want := slices.Sorted(slices.Values(f.labels))
		if !slices.Equal(have, want) || mf.GetHelp() != f.help {
			t.Errorf("%s has the labels %v and help %q; described are %v and %q", f.name, have, mf.GetHelp(), want, f.help)
		}
	}
	if len(gathered) != len(all) {
		t.Errorf("%d families are described and %d gathered", len(all), len(gathered))
	}
	want := metricsText(all)
	if strings.Contains(want, "MISSING:") {
		t.Error("a label's values are described nowhere; see labelValues in metricsdoc_test.go")
	}
	if *update {
		if err := os.WriteFile(metricsPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(metricsPage)
	if err != nil {
		t.Fatal(err)
	}
	diff := func(a, b, what string) {
		lines := strings.Split(b, "\n")
		for l := range strings.SplitSeq(a, "\n") {
			if !slices.Contains(lines, l) {
				t.Errorf("%s: %s", what, l)
			}
		}
	}
	if string(have) != want {
		diff(want, string(have), "missing from docs/metrics.md (run with -update)")
		diff(string(have), want, "in docs/metrics.md and nowhere else (run with -update)")
		if !t.Failed() {
			t.Error("the lines of docs/metrics.md are in another order (run with -update)")
		}
	}
}

// TestMetricsLint holds names and helps against the rules of Prometheus.
func TestMetricsLint(t *testing.T) {
	_, reg := describedMetrics(t)
	problems, err := testutil.GatherAndLint(reg)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// TestMetricsValues asks a running proxy well and badly, and compares the values of its labels with
// the sets that the page gives.
func TestMetricsValues(t *testing.T) {
	r := newRig(t, []rigGroup{{name: "jaguar", replicas: []int{1, 2}}, {name: "heron", replicas: []int{1}}},
		"usage_log: {path: usage.jsonl}\n")
	for _, a := range askings() {
		if got := r.ask(r.request(t.Context(), a)); got.status != 200 {
			t.Errorf("%s: %v", a.name, got)
		}
	}
	for _, path := range []string{"/api/v1/nothing", "/api/v1/query?query=%7Ble!=%22%22%7D", "/api/v1/query?query=)", "/api/v1/query_range?query=up&start=0&end=100000&step=1", "/api/v1/query?query=1", "/api/v1/series?match[]=up&surprise=1"} {
		r.ask(r.request(t.Context(), asking{path: path}))
	}
	if err := r.shards["heron"][0][0].Set("status 500; send nothing"); err != nil {
		t.Fatal(err)
	}
	r.ask(r.request(t.Context(), asking{path: "/api/v1/query?query=up"}))
	r.ask(r.request(t.Context(), asking{path: "/api/v1/query?query=up&partial_response=true"}))
	r.idle()
	mfs, err := r.s.opts.Gatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, mf := range mfs {
		for _, m := range mf.Metric {
			for _, l := range m.Label {
				v, ok := labelValues[mf.GetName()+"/"+l.GetName()]
				if !ok {
					v = labelValues[l.GetName()]
				}
				if v.set != nil && !slices.Contains(v.set, l.GetValue()) {
					t.Errorf("%s has %s=%q, which docs/metrics.md does not know: say it in labelValues, then -update", mf.GetName(), l.GetName(), l.GetValue())
				}
			}
		}
	}
	if r.metric("spillway_refusals_total", "bound=unselective") == 0 || r.metric("spillway_partial_answers_total") == 0 ||
		r.metric("spillway_requests_total", "endpoint=none") == 0 {
		t.Error("the requests were not counted as they should")
	}
}
