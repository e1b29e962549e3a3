package relabel_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/internal/realprom/realpromtest"
	"github.com/spillwayproject/spillway/relabel/emit"
	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/verify"
)

// sample_limit counts what is left after relabelling: with the rules, a target passes a limit that
// it would break without them. A real server shows it.
func TestTrap13SampleLimit(t *testing.T) {
	if _, err := realprom.Find("prometheus"); err != nil {
		t.Skipf("no Prometheus to ask: %v", err)
	}
	page := strings.ReplaceAll(strings.TrimLeft(web, "\n"), "\t", "")
	src := pages(t, map[string]string{"web/1": web})
	p := plan(t, src, queries(`sum by (pod) (http_requests_total)`))
	if p.Dropped.Series == 0 {
		t.Fatal("nothing goes")
	}
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		_, _ = w.Write([]byte(page))
	}))
	defer target.Close()
	address, err := url.Parse(target.URL)
	if err != nil {
		t.Fatal(err)
	}
	job := func(name string) string {
		return fmt.Sprintf("- job_name: %s\n  sample_limit: %d\n  static_configs:\n  - targets: [%s]\n", name, p.Stored.Series-p.Dropped.Series, address.Host)
	}
	merged, _, err := emit.Merge(p, []byte("global:\n  scrape_interval: 1s\nscrape_configs:\n"+job("web")+job("untouched")))
	if err != nil {
		t.Fatal(err)
	}
	server := realpromtest.Start(t, realprom.Options{Config: string(merged)})
	// A scrape may time out on a machine that is busy, and succeeds then later.
	wait(t, server.URL(), fmt.Sprintf(`scrape_samples_post_metric_relabeling{job="web"} == %d and on () up{job="web"} == 1 and on () up{job="untouched"} == 0`, p.Stored.Series-p.Dropped.Series))
}

// wait asks until there is an answer.
func wait(t *testing.T, server, query string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/api/v1/query?query="+url.QueryEscape(query), nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		var answer struct {
			Data struct {
				Result []any `json:"result"`
			} `json:"data"`
		}
		err = json.NewDecoder(response.Body).Decode(&answer)
		_ = response.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if len(answer.Data.Result) > 0 {
			http.DefaultClient.CloseIdleConnections()
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s never holds", query)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// Rules must be on all shards at once, or the proxy merges series that one has and the other has
// not: shards with the same jobs get the same bytes, from a plan made of all of them, which keeps
// what any of them needs.
func TestTrap18Shards(t *testing.T) {
	one, two := pages(t, map[string]string{"j/1": "a 1\nb 1\nunused 1\n"}),
		pages(t, map[string]string{"j/2": "a{code=\"500\"} 1\nc 1\nunused 1\n"})
	both := inventory.Join(one, two)
	p := plan(t, both, queries(`a{code="500"}`, "b", "c"))
	expect(t, both, p, "j a", "j unused", "j unused")
	config := func(target string) []byte {
		return fmt.Appendf(nil, "scrape_configs:\n- job_name: j\n  static_configs:\n  - targets: [%s]\n", target)
	}
	first, _, err := emit.Merge(p, config("shard-1:1"))
	if err != nil {
		t.Fatal(err)
	}
	second, _, err := emit.Merge(p, config("shard-2:1"))
	if err != nil {
		t.Fatal(err)
	}
	if got := bytes.ReplaceAll(second, []byte("shard-2:1"), []byte("shard-1:1")); !bytes.Equal(first, got) {
		t.Errorf("one shard:\n%s\nthe other:\n%s", first, second)
	}
	bare := "scrape_configs:\n- job_name: j\n  static_configs:\n  - targets: [shard-2:1]\n"
	dir := t.TempDir()
	same := []string{write(t, filepath.Join(dir, "1.yml"), string(first)), write(t, filepath.Join(dir, "2.yml"), string(second))}
	differ := []string{same[0], write(t, filepath.Join(dir, "3.yml"), bare)}
	for _, files := range [][]string{same, differ} {
		result, err := verify.Check(t.Context(), verify.Options{Prometheus: files, Uses: queries("b"), Source: both, Now: now})
		if err != nil {
			t.Fatal(err)
		}
		if found := slices.ContainsFunc(result.Findings,
			func(f verify.Finding) bool { return f.Check == verify.CheckDiffers }); found != (files[1] == differ[1]) {
			t.Errorf("%q: %+v", files, result.Findings)
		}
	}
}
