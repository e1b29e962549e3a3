package report

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/spillwayproject/spillway/relabel"
	"github.com/spillwayproject/spillway/relabel/propose"
	"github.com/spillwayproject/spillway/relabel/prove"
	"github.com/spillwayproject/spillway/relabel/uses"
)

var update = flag.Bool("update", false, "write the golden files anew")

func saving(series int64) propose.Saving {
	return propose.Saving{
		Series: series, SamplesPerSecond: float64(series) / 30, BytesPerDay: series * 2880 * 17 / 10,
		MemoryBytes: series * 4096,
	}
}

// samplePlan is a cluster of a few hundred nodes as somebody could have it.
func samplePlan() *relabel.Plan {
	p := &relabel.Plan{
		Version: relabel.Version, Made: time.Date(2026, 11, 21, 20, 15, 0, 0, time.UTC), Owner: "platform",
		Inputs: relabel.Inputs{
			Sources: []string{"pages of scrapes/: 1,204 files"},
			Uses:    map[string]int{"dashboard": 1412, "rule": 233, "query": 4077, "keep": 3, "autoscaler": 2},
			Window:  "720h0m0s", Covered: "611h12m0s", From: time.Date(2026, 10, 27, 0, 0, 0, 0, time.UTC),
			To: time.Date(2026, 11, 21, 11, 0, 0, 0, time.UTC), Risk: "high",
		},
		Warnings: []string{
			"The usage log reaches back 25 days, less than the window of 30: what is asked once a month may not be in it.",
			"keep.yaml: process_* (owner ada) has expired on 2026-11-01 and keeps nothing any more.",
		},
	}
	type m struct {
		name            string
		series, dropped int64
		uses            int
	}
	for _, j := range []struct {
		job     string
		metrics int
		rest    int64
		gone    int64
		top     []m
	}{
		{"kubelet", 214, 61000, 48000, []m{
			{"container_tasks_state", 96000, 96000, 0},
			{"container_memory_failures_total", 88000, 88000, 0},
			{"container_network_transmit_bytes_total", 41000, 0, 9},
			{"container_network_receive_bytes_total", 41000, 0, 9},
			{"container_memory_working_set_bytes", 24000, 0, 41},
			{"container_cpu_usage_seconds_total", 24000, 0, 57},
			{"container_fs_writes_total", 22000, 22000, 0},
			{"container_fs_reads_total", 22000, 22000, 0},
			{"kubelet_runtime_operations_duration_seconds_bucket", 21600, 16200, 4},
			{"container_spec_memory_limit_bytes", 18000, 0, 3},
		}},
		{"apiserver", 188, 22000, 19500, []m{
			{"apiserver_request_duration_seconds_bucket", 141000, 112800, 6},
			{"apiserver_request_body_size_bytes_bucket", 38000, 38000, 0},
			{"etcd_request_duration_seconds_bucket", 36000, 0, 2},
			{"apiserver_request_sli_duration_seconds_bucket", 33000, 12100, 12},
			{"apiserver_watch_events_sizes_bucket", 9000, 9000, 0},
			{"apiserver_request_total", 8400, 2100, 17},
		}},
		{"kube-state-metrics", 172, 38000, 30100, []m{
			{"kube_pod_status_reason", 42000, 33600, 2},
			{"kube_pod_status_phase", 42000, 0, 14},
			{"kube_pod_container_status_waiting_reason", 31000, 0, 5},
			{"kube_pod_tolerations", 25000, 25000, 0},
			{"kube_pod_labels", 8400, 0, 12},
		}},
		{"node-exporter", 341, 44000, 37100, []m{
			{"node_cpu_seconds_total", 51200, 0, 26},
			{"node_scrape_collector_duration_seconds", 19200, 19200, 0},
			{"node_cpu_guest_seconds_total", 12800, 12800, 0},
			{"node_filesystem_avail_bytes", 6400, 0, 21},
		}},
		{"dcgm-exporter", 64, 9600, 4000, []m{{"DCGM_FI_DEV_GPU_UTIL", 3200, 0, 33}, {"DCGM_FI_DEV_NVLINK_BANDWIDTH_L0", 3200, 3200, 0}}},
		{
			"cilium-agent", 120, 14000, 9900,
			[]m{{"cilium_k8s_client_api_latency_time_seconds_bucket", 12100, 12100, 0}, {"cilium_forward_count_total", 3100, 0, 4}},
		},
		{"coredns", 41, 2100, 1000, []m{{"coredns_dns_request_duration_seconds_bucket", 4800, 0, 8}}},
		{"prometheus", 230, 2900, 2400, []m{{"prometheus_http_request_duration_seconds_bucket", 1300, 1300, 0}}},
	} {
		job := relabel.Job{Job: j.job, Metrics: j.metrics}
		stored, dropped := j.rest, j.gone
		for _, t := range j.top {
			job.Top = append(job.Top, relabel.Metric{Name: t.name, Series: t.series, Dropped: t.dropped, Uses: t.uses})
			stored, dropped = stored+t.series, dropped+t.dropped
		}
		job.Stored, job.Dropped = saving(stored), saving(dropped)
		p.Jobs = append(p.Jobs, job)
		p.Stored = p.Stored.Add(job.Stored)
		p.Dropped = p.Dropped.Add(job.Dropped)
	}
	slices.SortFunc(p.Jobs, func(a, b relabel.Job) int { return strings.Compare(a.Job, b.Job) })
	last := &uses.Use{
		Kind: uses.Dashboard, File: "dashboards/apiserver.json", Line: 418,
		Where: "dashboard API server, panel Latency by verb", Query: "x", Owner: "ada", Last: time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC),
		Count: 412,
	}
	p.Rules = []propose.Rule{
		{
			ID: "kubelet/names/1", Kind: propose.Names, Risk: propose.Low, Job: "kubelet", Saves: saving(276000),
			Metrics: []string{
				"container_fs_reads_total", "container_fs_writes_total", "container_memory_failures_total",
				"container_tasks_state",
			},
			Evidence: propose.Evidence{Text: "No dashboard, rule, autoscaler or logged query of the last 30 days names them."},
		},
		{
			ID: "apiserver/buckets/1", Kind: propose.Buckets, Risk: propose.High, Job: "apiserver", Saves: saving(112800),
			Metrics: []string{"apiserver_request_duration_seconds_bucket"}, Label: "le",
			Values: []string{"0.005", "0.025", "0.15", "0.25", "0.35", "0.45", "0.7", "0.9", "1.25", "1.75"}, QuantileError: 2.5,
			Evidence: propose.Evidence{Text: "Every use asks for quantiles, or for the edges 0.1, 1, 5 and 30, which stay.", LastUse: last},
		},
		{
			ID: "kube-state-metrics/slice/1", Kind: propose.Slice, Risk: propose.Medium, Job: "kube-state-metrics", Saves: saving(33600),
			Metrics: []string{"kube_pod_status_reason"}, Label: "reason",
			Values:   []string{"NodeAffinity", "NodeLost", "Shutdown", "UnexpectedAdmissionError"},
			Evidence: propose.Evidence{Text: "Every use of it selects reason=\"Evicted\"."},
		},
		{
			ID: "kube-state-metrics/label/1", Kind: propose.Label, Risk: propose.Medium, Job: "kube-state-metrics",
			Metrics: []string{"kube_pod_labels"}, Label: "label_pod_template_hash",
			Evidence: propose.Evidence{Text: "No answer depends on it, and no two of 8,400 series are equal without it."},
		},
	}
	for i := range p.Rules {
		r := &p.Rules[i]
		configs, err := propose.Configs(r.Kind, r.Metrics, r.Label, r.Values)
		if err != nil {
			panic(err)
		}
		r.Relabel = configs
	}
	p.Refused = []propose.Refusal{
		{
			Kind: propose.Label, Job: "dcgm-exporter", Metrics: []string{"DCGM_FI_DEV_GPU_TEMP"}, Label: "pod", Saves: saving(0),
			Reason:   "without pod, 1,204 series would be one with another",
			Examples: []string{`DCGM_FI_DEV_GPU_TEMP{UUID="GPU-1", pod="train-0"}`, `DCGM_FI_DEV_GPU_TEMP{UUID="GPU-1", pod="train-1"}`},
			Instead:  "- record: job_gpu:DCGM_FI_DEV_GPU_TEMP:max\n  expr: max without (pod) (DCGM_FI_DEV_GPU_TEMP)",
		},
		{
			Kind: propose.Names, Job: "node-exporter", Metrics: []string{"node_hwmon_temp_celsius"}, Saves: saving(9600),
			Reason:  "the alert NodeHot selects sensor=\"temp9\", which no series has today: it may wait for one",
			Instead: "name it in keep.yaml, or mend the alert",
		},
	}
	p.Proof = prove.Proof{
		Series: p.Stored.Series, Dropped: p.Dropped.Series, Changed: 8400,
		Steps: []prove.Step{
			{Name: "exact", Checked: p.Stored.Series},
			{Name: "collisions", Checked: 8400},
			{Name: "uses", Checked: 5727},
			{Name: "twice", Checked: p.Stored.Series},
			{Name: "savings", Checked: 4},
			{Name: "replay", Checked: 1981},
		},
		Replay: &prove.Replay{
			Series: 60210, After: 24012, Queries: 1981, Equal: 1670, Rounded: 32, Within: 31, Empty: 240, Failed: 8,
			Parts: 3, Skipped: map[string]int64{"MetricsQL, which Prometheus' engine does not know": 41},
		},
	}
	return p
}

func render(t testing.TB, p *relabel.Plan) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := HTML(p, &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestGolden: the page of a plan has the same bytes every time, and changes only if somebody looks
// at it.
func TestGolden(t *testing.T) {
	got := render(t, samplePlan())
	for range 5 {
		if again := render(t, samplePlan()); !bytes.Equal(got, again) {
			t.Fatal("the same plan has two pages")
		}
	}
	path := filepath.Join("testdata", "sample.html")
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s is not what it was; if it is meant to change, look at it in a browser, light and dark, narrow and wide, and run the test with -update", path)
	}
	text := words(t, got)
	for _, s := range []string{
		"of all series can go", "container_tasks_state and 3 other metrics", "kubelet/names/1", "(dashboards/apiserver.json:418), last on 2026-11-20", "412 times, by ada", "1,204 series would be one with another",
		"max without (pod)", "1,670 equal answers", "41 uses were not asked: MetricsQL", "The usage log reaches back 25 days",
		"4,077 logged queries", "risk high", "action: drop",
	} {
		if !strings.Contains(strings.Join(strings.Fields(text), " "), strings.Join(strings.Fields(s), " ")) && !strings.Contains(text, s) {
			t.Errorf("the page does not say %q", s)
		}
	}
}

// words is the text that a reader sees, and the titles.
func words(t testing.TB, page []byte) string {
	t.Helper()
	root, err := html.Parse(bytes.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for n := range root.Descendants() {
		if n.Type == html.TextNode && n.Parent.Data != "style" {
			b.WriteString(n.Data + " ")
		}
	}
	return b.String()
}

// allowed are the elements of the page with the attributes that each may have.
var allowed = map[string]string{
	"html": "lang", "head": "", "meta": "charset name content", "title": "", "style": "", "body": "", "header": "", "main": "",
	"footer": "", "nav": "", "section": "id",
	"h1": "", "h2": "", "h3": "", "p": "class", "span": "class", "a": "href", "i": "class", "b": "", "s": "", "em": "", "small": "",
	"strong": "", "code": "", "pre": "class", "ul": "class", "li": "",
	"dl": "class", "dt": "", "dd": "", "div": "class", "figure": "", "table": "class", "thead": "", "tbody": "", "tr": "", "th": "class",
	"td": "class colspan", "details": "class open", "summary": "",
	"svg": "class width height x y role aria-label aria-hidden", "rect": "class width height x y rx", "text": "class x y",
}

// harmless says that a page has only what it is meant to have: no script, no handler, nothing from
// elsewhere.
func harmless(t testing.TB, page []byte) {
	t.Helper()
	root, err := html.Parse(bytes.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	for n := range root.Descendants() {
		switch n.Type {
		case html.ElementNode:
			attributes, ok := allowed[n.Data]
			if !ok {
				t.Fatalf("the page has an element %s", n.Data)
			}
			for _, a := range n.Attr {
				if !slices.Contains(strings.Fields(attributes), a.Key) {
					t.Fatalf("the page has an attribute %s of %s", a.Key, n.Data)
				}
				if a.Key == "href" && !regexp.MustCompile(`^#[a-z]+$`).MatchString(a.Val) {
					t.Fatalf("the page links to %s", a.Val)
				}
			}
		case html.CommentNode:
			t.Fatalf("the page has a comment: %s", n.Data)
		}
	}
	for _, s := range []string{"@import", "url(", "http:", "https:"} {
		if strings.Contains(style, s) {
			t.Errorf("the style has %s", s)
		}
	}
}

// hostile are names as an exporter that somebody else writes could have them.
var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onload='x`, `</title></style></svg><b>`, `{{.Owner}}`,
	"line\nbreak\r\n", "\u202egnitirw", "\x00\x1b[31m", "\xff\xfe",
	`javascript:alert(1)`, `]]>`, `<!--`, `-->`, `&lt;b&gt;`, strings.Repeat("ü", 300), "\u200b", " ", `--format`, "#", ": - ", `\u{202e}`,
}

// TestHostileNames: whatever a plan's texts are, they are shown and do nothing.
func TestHostileNames(t *testing.T) {
	for _, name := range hostile {
		p := samplePlan()
		p.Owner, p.Warnings, p.Inputs.Sources = name, []string{name}, []string{name}
		p.Inputs.Risk, p.Inputs.Covered, p.Inputs.Window, p.Inputs.Uses = name, name, name, map[string]int{name: 3}
		for i := range p.Jobs {
			p.Jobs[i].Job = fmt.Sprint(name, i)
			for k := range p.Jobs[i].Top {
				p.Jobs[i].Top[k].Name = fmt.Sprint(name, k)
			}
		}
		for i := range p.Rules {
			r := &p.Rules[i]
			r.ID, r.Job, r.Evidence = name, name,
				propose.Evidence{Text: name, LastUse: &uses.Use{File: name, Line: 1, Where: name, Owner: name, Query: name}}
			if r.Label != "le" {
				r.Metrics = []string{name}
			}
			if r.Values != nil && r.Label != "le" {
				r.Values = []string{name}
			}
			r.Relabel = nil
			if _, err := propose.Configs(r.Kind, r.Metrics, r.Label, r.Values); err != nil {
				r.Metrics = []string{"x"} // such a rule is not made
				if r.Values != nil {
					r.Values = []string{"x"}
				}
			}
		}
		for i := range p.Refused {
			r := &p.Refused[i]
			r.Job, r.Metrics, r.Label, r.Reason, r.Instead, r.Examples = name, []string{name, name}, name, name, name, []string{name, name}
		}
		p.Proof.Steps = append(p.Proof.Steps, prove.Step{Name: name})
		p.Proof.Replay.Differences = []prove.Difference{{Where: name, Query: name, Before: name, After: name}}
		page := render(t, p)
		harmless(t, page)
		if text := words(t, page); !strings.Contains(text, strings.TrimSpace(visible(name))) {
			t.Errorf("%q is not shown as %q", name, visible(name))
		}
		for _, r := range string(page) {
			if r == 0x202e || r == 0x200b || r == 0 || r == 0x1b {
				t.Errorf("%q: the page has the character %U", name, r)
			}
		}
	}
}

// FuzzHTML: no text of a plan gets out of its place.
func FuzzHTML(f *testing.F) {
	for _, name := range hostile {
		f.Add(name, int64(7), int64(3))
	}
	f.Fuzz(func(t *testing.T, name string, series, dropped int64) {
		series &= 1<<50 - 1
		dropped &= 1<<50 - 1
		p := &relabel.Plan{
			Owner: name, Warnings: []string{name}, Stored: propose.Saving{Series: series}, Dropped: propose.Saving{Series: dropped},
			Jobs: []relabel.Job{{
				Job: name, Stored: propose.Saving{Series: series}, Dropped: propose.Saving{Series: dropped},
				Top: []relabel.Metric{{Name: name, Series: series / 2, Dropped: dropped}},
			}},
			Refused: []propose.Refusal{{
				Kind: propose.Kind(name), Metrics: []string{name}, Reason: name, Instead: name,
				Examples: []string{name},
			}},
		}
		page := render(t, p)
		harmless(t, page)
		if strings.Contains(string(page), "NaN") && !strings.Contains(name, "NaN") ||
			strings.Contains(string(page), "ZgotmplZ") && !strings.Contains(name, "ZgotmplZ") {
			t.Fatal("the page has something that is no number, or that the template refused")
		}
	})
}

// TestEmpty: a plan of nothing has a page too.
func TestEmpty(t *testing.T) {
	page := render(t, &relabel.Plan{})
	harmless(t, page)
	text := words(t, page)
	for _, s := range []string{"Nothing is stored", "The plan has no rules.", "Nothing was refused.", "There was no replay"} {
		if !strings.Contains(text, s) {
			t.Errorf("the page does not say %q", s)
		}
	}
	if strings.Contains(text, "NaN") {
		t.Error("the page has a share of nothing")
	}
}

// TestNoRates: saved pages and some APIs do not say how often they are scraped, and a zero that is
// not known is not shown as one.
func TestNoRates(t *testing.T) {
	p := samplePlan()
	p.Stored.SamplesPerSecond, p.Stored.BytesPerDay, p.Dropped.SamplesPerSecond, p.Dropped.BytesPerDay = 0, 0, 0, 0
	for i := range p.Rules {
		p.Rules[i].Saves.SamplesPerSecond, p.Rules[i].Saves.BytesPerDay = 0, 0
	}
	text := words(t, render(t, p))
	if strings.Contains(text, "Samples a second") || strings.Contains(text, "a day on disk") ||
		!strings.Contains(text, "is not known: nothing that was read tells") {
		t.Error("the page has rates that nobody knows")
	}
}

// TestBounds: however large a plan is, the page stays one that a browser opens, and says what it
// leaves out.
func TestBounds(t *testing.T) {
	p := samplePlan()
	one := p.Rules[0]
	one.Relabel = nil
	one.Metrics = nil
	for i := range 3000 {
		one.Metrics = append(one.Metrics, fmt.Sprintf("metric_number_%d_total", i))
	}
	p.Rules = nil
	for i := range 2000 {
		r := one
		r.ID = fmt.Sprintf("job/names/%d", i)
		if i > 0 {
			r.Metrics = one.Metrics[:3]
		}
		p.Rules = append(p.Rules, r)
	}
	for range 5000 {
		p.Refused = append(p.Refused, p.Refused[0])
		p.Jobs = append(p.Jobs, p.Jobs[0])
	}
	page := render(t, p)
	if len(page) > 6<<20 {
		t.Errorf("the page has %d bytes", len(page))
	}
	text := words(t, page)
	for _, s := range []string{"1,600 rules that save less are in the plan and not on this page", "and 2,800 more, which the plan lists", "4,948 smaller jobs are in the plan", "4,802 more are in the plan"} {
		if !strings.Contains(text, s) {
			t.Errorf("the page does not say %q", s)
		}
	}
}

// TestSquarify: the parts fill the whole, none overlaps another, and each has its share of the
// area.
func TestSquarify(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 300 {
		areas := make([]float64, 1+rng.IntN(40))
		total := 0.0
		for i := range areas {
			areas[i] = 1 + rng.ExpFloat64()*1000
			total += areas[i]
		}
		slices.SortFunc(areas, func(a, b float64) int { return int(min(max(b-a, -1), 1)) })
		in := box{10, 20, 100 + rng.Float64()*900, 50 + rng.Float64()*400}
		out := squarify(areas, in)
		if len(out) != len(areas) {
			t.Fatalf("round %d: %d parts of %d", round, len(out), len(areas))
		}
		for i, b := range out {
			if want := in.w * in.h * areas[i] / total; b.w*b.h < want*0.999-0.01 || b.w*b.h > want*1.001+0.01 {
				t.Fatalf("round %d: part %d has the area %g, want %g", round, i, b.w*b.h, want)
			}
			if b.x < in.x-0.01 || b.y < in.y-0.01 || b.x+b.w > in.x+in.w+0.01 || b.y+b.h > in.y+in.h+0.01 {
				t.Fatalf("round %d: part %d is at %+v, outside of %+v", round, i, b, in)
			}
			for k, o := range out[:i] {
				if min(b.x+b.w, o.x+o.w)-max(b.x, o.x) > 0.01 && min(b.y+b.h, o.y+o.h)-max(b.y, o.y) > 0.01 {
					t.Fatalf("round %d: parts %d and %d overlap", round, k, i)
				}
			}
		}
	}
}

func TestNumbers(t *testing.T) {
	for _, tc := range []struct{ got, want string }{
		{count(0), "0"},
		{count(999), "999"},
		{count(1000), "1,000"},
		{count(12345678), "12,345,678"},
		{count(-1234), "-1,234"},
		{rate(0), "0"},
		{rate(1.25), "1.3"},
		{rate(4161.7), "4,162"},
		{size(0), "0 B"},
		{size(1536), "1.5 KiB"},
		{size(300 << 20), "300 MiB"},
		{size(5 << 40), "5.0 TiB"},
		{share(0, 0), "0 %"},
		{share(1, 1e6), "< 0.1 %"},
		{share(1e6-1, 1e6), "> 99.9 %"},
		{share(1, 3), "33.3 %"},
		{share(2, 2), "100 %"},
		{percent(1, 3), "33.33%"},
		{percent(5, 3), "100%"},
		{percent(1, 0), "0%"},
		{visible("a\u202eb\n\xff"), `a\u{202e}b\n\xff`},
		{visible("grün ok"), "grün ok"},
		{clip("grün", 3), "gr…"},
	} {
		if tc.got != tc.want {
			t.Errorf("%q, want %q", tc.got, tc.want)
		}
	}
}
