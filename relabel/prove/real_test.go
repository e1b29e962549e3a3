package prove

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"go.yaml.in/yaml/v3"

	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/internal/realprom/realpromtest"
	"github.com/spillwayproject/spillway/relabel/propose"
)

// page is what a target says: integer buckets and quantiles as old clients write them.
const page = `# TYPE request_seconds histogram
request_seconds_bucket{verb="GET",le="0.9"} 1
request_seconds_bucket{verb="GET",le="15"} 2
request_seconds_bucket{verb="GET",le="30"} 3
request_seconds_bucket{verb="GET",le="60"} 3
request_seconds_bucket{verb="GET",le="+Inf"} 4
request_seconds_sum{verb="GET"} 12
request_seconds_count{verb="GET"} 4
# TYPE gc_seconds summary
gc_seconds{quantile="0"} 1
gc_seconds{quantile="1"} 2
gc_seconds_sum 3
gc_seconds_count 4
# TYPE rows gauge
rows{pod="a",namespace="x",uid="1"} 1
rows{pod="b",namespace="x",uid="2"} 2
rows{namespace="x",uid="3"} 3
rows{pod="",namespace="y",uid="4"} 4
# TYPE go_threads gauge
go_threads 7
go_threads_total 8
goXthreads 9
`

var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// TestRealServer: what a real Prometheus stores of a page that it scrapes with
// metric_relabel_configs is what Chain makes of what it stores without. That holds for buckets,
// whose edges it spells its own way first (trap 6); for __tmp_ labels, which stay (trap 9); for up
// and scrape_…, which no config sees (trap 12); and for sample_limit, which counts what is left
// (trap 13).
func TestRealServer(t *testing.T) {
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		fmt.Fprint(w, page)
	}))
	defer target.Close()
	var configs []*relabel.Config
	for _, r := range []struct {
		kind    propose.Kind
		metrics []string
		label   string
		values  []string
	}{
		{propose.Names, []string{"gc_seconds_sum", "go_threads"}, "", nil},
		{propose.Buckets, []string{"request_seconds_bucket"}, "le", []string{"0.9", "15.0", "60.0"}},
		{propose.Slice, []string{"rows"}, "pod", []string{"", "b"}},
		{propose.Label, []string{"rows"}, "uid", nil},
	} {
		of, err := propose.Configs(r.kind, r.metrics, r.label, r.values)
		if err != nil {
			t.Fatal(err)
		}
		configs = append(configs, of...)
	}
	configs = append(configs,
		config(t, relabel.Drop, "__name__", "up|scrape_.*", "", "-"),
		config(t, relabel.Replace, "__name__", "gc_.*", "__tmp_gc", "1"),
		config(t, relabel.Drop, "__name__ quantile", "gc_seconds;0", "", "-"), // misses: it is 0.0
	)
	text, err := yaml.Marshal(map[string]any{"metric_relabel_configs": configs})
	if err != nil {
		t.Fatal(err)
	}
	// What Chain leaves of the page's 18 series, by hand.
	const left = 10
	job := func(name, more string) string {
		return fmt.Sprintf("- job_name: %s\n  static_configs: [{targets: [%q]}]\n%s", name, strings.TrimPrefix(target.URL, "http://"), more)
	}
	indented := "  " + strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "\n  ") + "\n"
	server := realpromtest.Start(t, realprom.Options{
		Config: "global: {scrape_interval: 3s, scrape_timeout: 3s}\nscrape_configs:\n" + job("before", "") + job("after", indented+fmt.Sprintf("  sample_limit: %d\n", left)) +
			job("limited", indented+fmt.Sprintf("  sample_limit: %d\n", left-1)),
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	chain, err := NewChain(configs)
	if err != nil {
		t.Fatal(err)
	}
	// A scrape may time out on a machine that is busy, and nothing is there until the next one.
	scraped := func() bool {
		for _, up := range []string{`up{job="before"} == 1`, `up{job="after"} == 1`, `up{job="limited"}`} {
			if len(ask(ctx, t, server.URL(), up)) != 1 {
				return false
			}
		}
		return true
	}
	var before, after []labels.Labels
	for {
		if scraped() {
			before, after = keptBy(ctx, t, server.URL(), "before"), keptBy(ctx, t, server.URL(), "after")
			if scraped() { // still
				break
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	var want []string
	for _, ls := range before {
		if out, kept, _ := chain.Apply(ls); kept {
			want = append(want, out.String())
		}
	}
	var got []string
	for _, ls := range after {
		got = append(got, ls.String())
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the server stores\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	all := strings.Join(got, "\n")
	for _, s := range []string{`le="30.0"`, `__tmp_gc="1"`, `quantile="0.0"`, `"goXthreads"`, `"go_threads_total"`} {
		if !strings.Contains(all, s) {
			t.Errorf("%s is missing from\n%s", s, all)
		}
	}
	for _, s := range []string{`le="15`, `"go_threads"`, `uid=`} {
		if strings.Contains(all, s) {
			t.Errorf("%s is in\n%s", s, all)
		}
	}
	if len(before) != 18 || len(got) != left {
		t.Errorf("%d series before and %d after", len(before), len(got))
	}
	if n := len(ask(ctx, t, server.URL(), `up{job="limited"} == 1`)); n != 0 {
		t.Errorf("the job whose limit is passed is up")
	}
}

// keptBy is what the server has of a job, but for what it writes itself, without the job.
func keptBy(ctx context.Context, t *testing.T, server, job string) []labels.Labels {
	t.Helper()
	all := ask(ctx, t, server, fmt.Sprintf(`{job=%q,__name__!~"up|scrape_.*"}`, job))
	for i, ls := range all {
		all[i] = labels.NewBuilder(ls).Del("job").Labels()
	}
	return all
}

// ask is the labels of an instant vector.
func ask(ctx context.Context, t *testing.T, server, query string) []labels.Labels {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/api/v1/query?query="+url.QueryEscape(query), nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var out struct {
		Data struct {
			Result []struct{ Metric labels.Labels }
		}
	}
	if err := json.NewDecoder(res.Body).Decode(&out); err != nil {
		t.Fatal(err)
	}
	var list []labels.Labels
	for _, s := range out.Data.Result {
		list = append(list, s.Metric)
	}
	return list
}
