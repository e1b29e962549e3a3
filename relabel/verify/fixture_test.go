package verify_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/relabel"
	"github.com/spillwayproject/spillway/relabel/emit"
	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/propose"
	"github.com/spillwayproject/spillway/relabel/uses"
	"github.com/spillwayproject/spillway/relabel/verify"
)

var now = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// pages is what an apiserver of the fixture says: two histograms with integer and other edges, and
// what nobody looks at.
func pages(t testing.TB) inventory.Source {
	t.Helper()
	var b strings.Builder
	for _, h := range []string{"apiserver_request_duration_seconds", "apiserver_request_sli_duration_seconds"} {
		fmt.Fprintf(&b, "# TYPE %s histogram\n", h)
		for _, verb := range []string{"GET", "LIST", "POST"} {
			for i, le := range []string{
				"0.1", "0.15", "0.25", "0.5", "0.9", "1", "1.25", "2.5", "5", "15", "25", "30", "50", "60",
				"+Inf",
			} {
				fmt.Fprintf(&b, "%s_bucket{verb=%q,scope=\"cluster\",le=%q} %d\n", h, verb, le, i+1)
			}
			fmt.Fprintf(&b, "%s_sum{verb=%q,scope=\"cluster\"} 1\n%s_count{verb=%q,scope=\"cluster\"} 15\n", h, verb, h, verb)
		}
	}
	b.WriteString("# TYPE etcd_debugging_store_reads_total counter\netcd_debugging_store_reads_total{action=\"get\"} 1\netcd_debugging_store_reads_total{action=\"list\"} 1\n")
	b.WriteString("# TYPE rest_client_transport_cache_entries gauge\nrest_client_transport_cache_entries 1\n")
	b.WriteString("# TYPE unused_total counter\nunused_total{a=\"1\"} 1\nunused_total{a=\"2\"} 1\n")
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "apiserver"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "apiserver", "10.0.0.1%3A6443.prom"), []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	src, err := inventory.Pages(dir)
	if err != nil {
		t.Fatal(err)
	}
	return src
}

func check(t testing.TB, o verify.Options) *verify.Result {
	t.Helper()
	o.Now = now
	r, err := verify.Check(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func textOf(t testing.TB, r *verify.Result) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.Text(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// find gives the findings of one kind at FILE:LINE.
func find(r *verify.Result, check, file string, line int) []verify.Finding {
	var out []verify.Finding
	for _, f := range r.Findings {
		if f.Check == check && f.File == file && f.Line == line {
			out = append(out, f)
		}
	}
	return out
}

var fixture = verify.Options{
	Prometheus: []string{"testdata/handwritten.yml"}, Rules: []string{"testdata/rules"},
	Dashboards: []string{"testdata/dashboards"},
}

// F1: the list takes the bucket that a burn-rate rule of the same bundle needs. F2: on Prometheus 3
// the same list takes none of its integer edges. Both are found without a single stored series, and
// with them; those of Prometheus 3 show that this server loses nothing by F1.
func TestHandwrittenList(t *testing.T) {
	for _, stored := range []bool{false, true} {
		t.Run(fmt.Sprintf("stored=%v", stored), func(t *testing.T) {
			o := fixture
			if stored {
				o.Source = pages(t)
			}
			r := check(t, o)
			text := textOf(t, r)
			if r.State != verify.Faulty {
				t.Errorf("state %q\n%s", r.State, text)
			}
			f1 := find(r, verify.CheckLost, "testdata/rules/burnrate.yaml", 8)
			severity := map[bool]verify.Severity{false: verify.Broken, true: verify.Doubtful}[stored]
			if len(f1) != 1 || f1[0].Severity != severity || f1[0].RuleFile != "testdata/handwritten.yml" || f1[0].RuleLine != 12 ||
				!strings.Contains(f1[0].Text, `le="30"`) {
				t.Errorf("F1: %+v\n%s", f1, text)
			}
			f2 := find(r, verify.CheckLe, "testdata/handwritten.yml", 12)
			if len(f2) != 1 || f2[0].Severity != verify.Broken || !strings.Contains(f2[0].Text, "le=15, 25, 30, 50 is stored as 15.0, 25.0, 30.0, 50.0") || !strings.Contains(f2[0].Advice, `15(\.0)?`) {
				t.Errorf("F2: %+v\n%s", f2, text)
			}
			if d := find(r, verify.CheckDot, "testdata/handwritten.yml", 12); len(d) != 1 || d[0].Severity != verify.Doubtful {
				t.Errorf("the unescaped dots: %+v\n%s", d, text)
			}
			lost := find(r, verify.CheckLost, "testdata/dashboards/apiserver.json", 8)
			if len(lost) != 1 || lost[0].Severity != verify.Broken || lost[0].RuleLine != 8 || stored != (lost[0].Series > 0) {
				t.Errorf("the panel on a name that a wildcard takes: %+v\n%s", lost, text)
			}
			fewer := find(r, verify.CheckLost, "testdata/dashboards/apiserver.json", 5)
			if len(fewer) != 1 || fewer[0].Severity != verify.Doubtful || !strings.Contains(fewer[0].Text, "fewer buckets") {
				t.Errorf("the quantile: %+v\n%s", fewer, text)
			}
			if len(r.Findings) != 5 || len(r.Unchecked) > 0 {
				t.Errorf("something else:\n%s", text)
			}
			t.Log("\n" + text)
		})
	}
}

// What we make ourselves passes: planned from the same pages and uses, merged into the same file in
// place of the hand-written list.
func TestOursPasses(t *testing.T) {
	for _, risk := range []propose.Risk{propose.Low, propose.Medium, propose.High} {
		t.Run(string(risk), func(t *testing.T) {
			ctx := context.Background()
			set := new(uses.Set)
			if err := uses.Rules(set, "testdata/rules"); err != nil {
				t.Fatal(err)
			}
			if err := uses.Dashboards(set, "testdata/dashboards"); err != nil {
				t.Fatal(err)
			}
			src := pages(t)
			plan, err := relabel.Make(ctx, relabel.Options{Source: src, Uses: set, Propose: propose.Options{Risk: risk}, Now: now})
			if err != nil {
				t.Fatal(err)
			}
			if len(plan.Rules) == 0 {
				t.Fatal("the plan has no rules")
			}
			merged, _, err := emit.Merge(plan, []byte("scrape_configs:\n  - job_name: apiserver\n    static_configs:\n      - targets: ['10.0.0.1:6443']\n"))
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "prometheus.yml")
			if err := os.WriteFile(file, merged, 0o600); err != nil {
				t.Fatal(err)
			}
			for _, source := range []inventory.Source{nil, src} {
				o := fixture
				o.Prometheus, o.Source = []string{file}, source
				r := check(t, o)
				if r.State != verify.OK {
					t.Errorf("%s\n%s", textOf(t, r), merged)
				}
				if risk != propose.High && len(r.Findings) > 0 {
					t.Errorf("a doubt:\n%s\n%s", textOf(t, r), merged)
				}
			}
		})
	}
}

func TestJSONAndTextAreStable(t *testing.T) {
	var first string
	for range 5 {
		o := fixture
		o.Source = pages(t)
		r := check(t, o)
		var b bytes.Buffer
		if err := r.JSON(&b); err != nil {
			t.Fatal(err)
		}
		var back verify.Result
		if err := json.Unmarshal(b.Bytes(), &back); err != nil || back.State != r.State || len(back.Findings) != len(r.Findings) {
			t.Errorf("%v %+v", err, back)
		}
		if text := b.String() + textOf(t, r); first == "" {
			first = text
		} else if text != first {
			t.Fatalf("other bytes:\n%s\n%s", text, first)
		}
	}
}
