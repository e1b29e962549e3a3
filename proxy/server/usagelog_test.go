package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/proxy/usage"
)

// TestUsageShare: long lines that a caller may leave in the usage log are bounded, also by requests
// that are refused and under as many names as it can think of. Each request has its line.
func TestUsageShare(t *testing.T) {
	path := filepath.Join(t.TempDir(), "usage.jsonl")
	r := newRig(t, []rigGroup{{"jaguar", false, []int{1}}}, fmt.Sprintf("usage_log: {path: %q, max_size: 1MiB, max_files: 1}\n", path))
	const asked = 80
	for i := range asked {
		query := fmt.Sprintf(`{le!="%d",a!="%s"}`, i, strings.Repeat("x", 8<<10))
		if got := r.getForm("/api/v1/query", url.Values{"query": {query}}, "X-Grafana-User", fmt.Sprint("user", i)); got.status/100 != 4 {
			t.Fatalf("got %s", got)
		}
	}
	r.eventually("every request is accounted for", func() bool { return r.metric("spillway_usage_log_lines_total") == asked })
	if short := r.metric("spillway_usage_log_shortened_total"); short < asked/2 || short == asked { // two shares, where the hour ended
		t.Errorf("%v of %d lines are short", short, asked)
	}
}

// TestPlansAreNoUse: of a query of which the plan alone was asked the usage log says so, refused or
// not. One that was run is a use.
func TestPlansAreNoUse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "usage.jsonl")
	r := newRig(t, []rigGroup{{"jaguar", false, []int{1}}}, fmt.Sprintf("usage_log: {path: %q}\n", path))
	explain := func(query, more string) string {
		return r.admin + adminAPI + "explain?query=" + url.QueryEscape(query) + more
	}
	r.sendForm("GET", explain("sum(planned)", ""), nil, "")
	r.sendForm("GET", explain(`{le!=""}`, ""), nil, "")
	r.getForm("/api/v1/query", url.Values{"query": {"planned"}}, explainHeader, explainPlan)
	r.sendForm("GET", explain("run", "&analyze=1"), nil, "")
	r.getForm("/api/v1/query", url.Values{"query": {"run"}}, explainHeader, explainRun)
	r.getForm("/api/v1/query", url.Values{"query": {"run"}})
	r.eventually("every request is accounted for", func() bool { return r.metric("spillway_usage_log_lines_total") == 6 })
	var text []byte
	r.eventually("every line is written", func() bool {
		var err error
		if text, err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
		return bytes.Count(text, []byte("\n")) == 6
	})
	for line := range bytes.Lines(text) {
		var rec usage.Record
		if err := json.Unmarshal(line, &rec); err != nil {
			t.Fatal(err)
		}
		if want := map[bool]string{false: usage.Explain}[rec.Query == "run"]; rec.Purpose != want {
			t.Errorf("the purpose of %q is %q, want %q", rec.Query, rec.Purpose, want)
		}
	}
}
