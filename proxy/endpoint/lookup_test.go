package endpoint

import (
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

var everyMethod = []string{"GET", "POST", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "FOO", "get", "QUERY"}

// variants are spellings of path that are not canonical.
func variants(path string) []string {
	last := strings.LastIndexByte(path, '/')
	segment := path[last+1:]
	out := []string{
		"/" + path, path + "/", path + "//", strings.Replace(path, "/", "//", 1), path[:last] + "/" + path[last:],
		"/." + path, path + "/.", path[:last] + "/." + path[last:], path + "/..", "/x/.." + path, path[:last] + "/x/.." + path[last:],
		"/.." + path,
		"/%2e" + path, "/%2e%2e" + path, path[:last] + "/%2e" + path[last:], path[:last] + "/x/%2E%2E" + path[last:],
		path + "/%2e%2e" + path,
		path[:last] + "%2F" + segment, path[:last] + "%2f" + segment, path[:last] + "%252F" + segment, path[:last] + "%5c" + segment,
		path[:last] + "/\\" + segment,
		path + "%00", path + "%0a", path + "%0d%0aX:1", path + "%20", path + "%3F", path + "%23", path + "#x", path + "%09", "/%00" + path,
		path + ";x", path + ";x=1", path[:last] + ";x" + path[last:], "/;x" + path, path + "%3Bx",
		strings.ToUpper(path), path[:last+1] + strings.ToUpper(segment[:1]) + segment[1:],
		path[:last+1] + "%" + strings.ToUpper(hex(segment[0])) + segment[1:], path[:last+1] + "%" + hex(segment[0]) + segment[1:],
		path[:len(path)-1], path + "x", path + ".json", path + "/x", "/prometheus" + path, path + path, path + ",", path + "&", path + "=",
		path + "~", path + "*",
	}
	if rest, ok := strings.CutPrefix(path, "/api/v1/"); ok {
		out = append(out, "/api/"+rest, "/api/v2/"+rest, "/api/V1/"+rest, "/API/v1/"+rest, "/v1/"+rest, "/"+rest, "/api//v1/"+rest,
			"/api/v1//"+rest, "/api/./v1/"+rest,
			"/api/v1/./"+rest, "/api/v1/../v1/"+rest, "/api%2Fv1/"+rest, "/api/v1%2F"+rest, "/%61pi/v1/"+rest, "/api/%76%31/"+rest,
			"/api/v1/x/%2e%2e/"+rest)
	}
	return out
}

func hex(c byte) string { return string("0123456789abcdef"[c>>4]) + string("0123456789abcdef"[c&15]) }

// outside are paths that servers of this field have and Spillway does not.
var outside = []string{
	"/", "*", "", "//", "/api", "/api/", "/api/v1", "/api/v1/", "/api/v1/.", "/api/v1/..", "/api/v1//", "/api/v2/alerts", "/api/v2/status",
	"/api/v1/admin/tsdb/delete_series", "/api/v1/admin/tsdb/clean_tombstones", "/api/v1/admin/tsdb/snapshot", "/api/v1/write",
	"/api/v1/otlp/v1/metrics",
	"/api/v1/notifications/live", "/api/v1/scrape_pools/config",
	"/api/v1/targets/relabel_steps",
	"/api/v1/status/tsdb/blocks", "/api/v1/status/self_metrics", "/api/v1/status", "/api/v1/status/", "/api/v1/openapi.yaml",
	"/api/v1/search/metric_names",
	"/api/v1/search/label_names", "/api/v1/search/label_values", "/api/v1/label", "/api/v1/label/", "/api/v1/label//values",
	"/api/v1/label/job", "/api/v1/label/job/",
	"/api/v1/label/job/values/", "/api/v1/label/job/Values", "/api/v1/label/a/b/values", "/api/v1/label/a%2Fb/values",
	"/api/v1/label/./values", "/api/v1/label/../values",
	"/api/v1/label/%2e/values", "/api/v1/label/%2e%2e/values", "/api/v1/label/a%2e/values", "/api/v1/label/%6aob/values",
	"/api/v1/label/job%00/values",
	"/api/v1/label/job%252F/values", "/api/v1/label/job;x/values", "/api/v1/label/job/values;x", "/api/v1/label/job%0d%0aX:1/values",
	"/api/v1/label/job%5c/values",
	"/api/v1/label/{name}/value", "/api/v1/rules/ns", "/api/v1/stores", "/api/v1/export", "/api/v1/import", "/api/v1/series/delete",
	"/api/v1/sql", "/config/v1/rules", "/rules",
	"/-/reload", "/-/quit", "/-/healthy", "/-/ready", "/metrics", "/debug/pprof/", "/debug/pprof/heap", "/graph", "/federate/", "/Federate",
	"/consoles/index.html",
	"/api/spillway/v1/queries", "/alertmanager/api/v2/alerts", "/favicon.ico", "/api/v1/query/x", "/api/v1/queryrange",
	"/api/v1/query-range", "/api/v1/label_values",
	"http://example.com/api/v1/query", "https://example.com/federate", "example.com:443", "/http://example.com/api/v1/query",
	"/api/v1/%71uery", "/api/v1/query%3Fquery=up",
}

// request is as net/http hands it to a handler; nil where net/http refuses it before.
func request(method, target string) *http.Request {
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return nil
	}
	return &http.Request{Method: method, URL: u, RequestURI: target, Header: http.Header{}}
}

func TestOnlyCanonicalPathsAreServed(t *testing.T) {
	paths := slices.Clone(outside)
	for _, e := range Table {
		paths = append(paths, variants(strings.ReplaceAll(e.Path, "{name}", "job"))...)
	}
	canonical := map[string]bool{}
	for _, e := range Table {
		canonical[strings.ReplaceAll(e.Path, "{name}", "job")] = true
	}
	tried := 0
	for _, path := range paths {
		if canonical[path] {
			continue // the variant of one row is another row, such as targets/metadata without its segment
		}
		for _, method := range everyMethod {
			r := request(method, path)
			if r == nil {
				continue
			}
			tried++
			e, label, err := Lookup(r)
			if err == nil {
				t.Errorf("%s %s is served as %s %q", method, path, e.ID, label)
				continue
			}
			got := qerr.From(err)
			if got.Kind != qerr.NotFound || len(got.Message)+len(got.Advice) < 20 {
				t.Errorf("%s %s: %v %q", method, path, got.Kind, got.Message)
			}
			if req, err := Parse(r, Options{}); err == nil {
				t.Errorf("%s %s is parsed as %+v", method, path, req)
			}
		}
	}
	if tried < 5000 {
		t.Errorf("only %d paths and methods were tried", tried)
	}
}

func TestMethods(t *testing.T) {
	for _, e := range Table {
		path := strings.ReplaceAll(e.Path, "{name}", "job")
		for _, method := range everyMethod {
			r := request(method, path)
			r.Header.Set("X-HTTP-Method-Override", e.Methods[0])
			got, label, err := Lookup(r)
			if slices.Contains(e.Methods, method) {
				if err != nil || got.ID != e.ID || (label == "job") != (e.ID == LabelValues) {
					t.Errorf("%s %s: %v %q %v", method, path, got, label, err)
				}
				continue
			}
			if q := qerr.From(err); q == nil || q.Kind != qerr.MethodNotAllowed || !slices.Equal(q.Allow, e.Methods) {
				t.Errorf("%s %s: %v", method, path, err)
			}
		}
	}
}

func TestAdvice(t *testing.T) {
	for _, tc := range []struct{ path, want string }{
		{"/api/v1/query/", "ask for /api/v1/query,"},
		{"//api/v1//series", "ask for /api/v1/series,"},
		{"/Federate", "ask for /federate,"},
		{"/api/v1/admin/tsdb/snapshot", "admin API"},
		{"/api/v1/write", "only reads"},
		{"/-/quit", "lifecycle"},
		{"/api/v1/scrape_pools/config", "names of all pools are at /api/v1/scrape_pools"},
		{"/api/v1/targets/relabel_steps", "ask that one itself"},
		{"/api/v1/status/tsdb/blocks", "at /api/v1/status/tsdb"},
		{"/api/v1/status/self_metrics", "at /metrics of the admin listener"},
		{"/api/v1/notifications/live", "nothing to wait for"},
		{"/rules/ns", "no ruler"},
		{"/api/v2/alerts", "Alertmanager"},
		{"/api/v1/label/a%2fb/values", "U__"},
		{"/nonsense", "query_range"},
	} {
		_, _, err := Lookup(request("GET", tc.path))
		if e := qerr.From(err); !strings.Contains(e.Advice, tc.want) {
			t.Errorf("%s: %q", tc.path, e.Advice)
		}
	}
}

func TestLabelNames(t *testing.T) {
	for _, tc := range []struct{ segment, want string }{
		{"job", "job"},
		{"__name__", "__name__"},
		{"U__http_2e_status", "http.status"},
		{"http.status", "http.status"},
		{"%C3%A4", "\u00e4"},
		{"a%20b", "a b"},
		{"a:b", "a:b"},
		{"a%3Bb", "a;b"},
		{"U__a_2f_b", "a/b"},
		{"U__a_25_2f", "a%2f"},
		{"U___2e__2e_", ".."},
		{"U__unfinished_2", "U__unfinished_2"}, // Prometheus takes what it cannot unescape as it is
		{"U__a_10ffff_", "U__a_10ffff_"},       // more digits than Prometheus reads
		{"U__a%F4%8F%BF%BF", "a\U0010FFFF"},
		{"9", "9"},
	} {
		e, got, err := Lookup(request("GET", "/api/v1/label/"+tc.segment+"/values"))
		if err != nil || e.ID != LabelValues || got != tc.want {
			t.Errorf("%s: %q %v, want %q", tc.segment, got, err, tc.want)
			continue
		}
		// What we write is read as the same name by Prometheus' own rule.
		again, err := url.PathUnescape(encodeLabel(got))
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(again, "U__") {
			again = model.UnescapeName(again, model.ValueEncodingEscaping)
		}
		if again != got {
			t.Errorf("%q is written as %s, which Prometheus reads as %q", got, encodeLabel(got), again)
		}
	}
	for _, segment := range []string{"%ff", "a%C3", "U___0_", strings.Repeat("a", MaxLabelNameBytes+1)} {
		_, _, err := Lookup(request("GET", "/api/v1/label/"+segment+"/values"))
		if e := qerr.From(err); e == nil || e.Kind != qerr.BadData {
			t.Errorf("%s: %v", cut(segment, 20), err)
		}
	}
}

func FuzzLookup(f *testing.F) {
	for _, e := range Table {
		f.Add("GET", strings.ReplaceAll(e.Path, "{name}", "job"))
	}
	for _, path := range slices.Concat(outside, variants("/api/v1/label/job/values")) {
		f.Add("GET", path)
	}
	f.Add("GET", "/api/v1/label/U__a_2f_b/values")
	f.Fuzz(func(t *testing.T, method, target string) {
		r := request(method, target)
		if r == nil {
			return
		}
		e, label, err := Lookup(r)
		if err != nil {
			if e != nil || label != "" {
				t.Errorf("an error and %v %q", e, label)
			}
			if k := qerr.From(err).Kind; k != qerr.NotFound && k != qerr.MethodNotAllowed && k != qerr.BadData {
				t.Errorf("kind %s", k)
			}
			return
		}
		path, _, _ := strings.Cut(target, "?")
		if label == "" {
			if path != e.Path {
				t.Errorf("%q is served as %s", path, e.Path)
			}
			return
		}
		segment, prefixed := strings.CutPrefix(path, labelPrefix)
		segment, suffixed := strings.CutSuffix(segment, labelSuffix)
		if !prefixed || !suffixed || strings.ContainsAny(segment, "/;") || e.ID != LabelValues {
			t.Errorf("%q is served as label %q", path, label)
		}
		written := encodeLabel(label)
		if again, err := decodeLabel(written); err != nil || again != label {
			t.Errorf("label %q is written as %q and read as %q, %v", label, written, again, err)
		}
	})
}

// TestAllOfPrometheus: each path of the API of the Prometheus that Spillway is built with is
// served, or refused in words of its own: a new one wants a decision.
func TestAllOfPrometheus(t *testing.T) {
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/prometheus/prometheus").Output()
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "web", "api", "v1", "api.go"))
	if err != nil {
		t.Fatal(err)
	}
	paths := map[string]bool{}
	for _, m := range regexp.MustCompile(`\br\.(?:Get|Post|Put|Del)\("(/[^"]*)"`).FindAllStringSubmatch(string(source), -1) {
		paths["/api/v1"+strings.NewReplacer(":name", "job", "*path", "x").Replace(m[1])] = true
	}
	if len(paths) < 35 {
		t.Fatalf("only %d paths were found in api.go: is its way to register them another one now?", len(paths))
	}
	for path := range paths {
		if _, _, err := Lookup(request("GET", path)); err != nil {
			e := qerr.From(err)
			if e.Kind == qerr.NotFound && (e.Advice == "" || strings.HasPrefix(e.Advice, "Spillway serves")) {
				t.Errorf("%s is neither served nor refused in words of its own: %s", path, e.Advice)
			}
		}
	}
}
