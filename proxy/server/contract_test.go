package server

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/endpoint"
)

// getForm asks the rig's main listener by GET.
func (r *rig) getForm(path string, form url.Values, header ...string) *reply {
	r.t.Helper()
	return r.sendForm(http.MethodGet, r.url+path, form, "", header...)
}

// sendForm asks with the parameters in the URL, or as the body where they are given as one.
func (r *rig) sendForm(method, target string, form url.Values, body string, header ...string) *reply {
	r.t.Helper()
	if len(form) > 0 {
		target += "?" + form.Encode()
	}
	var rd io.Reader
	if body != "" {
		rd = strings.NewReader(body)
	}
	req, err := http.NewRequest(method, target, rd)
	if err != nil {
		r.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
		}
		req.Header.Set(header[i], header[i+1])
	}
	return r.ask(req)
}

// refusal is the error form as a client decodes it.
type refusal struct {
	Status, ErrorType, Error string
	Spillway                 *struct{ Bound, Value, Seen, Advice *string }
}

func decodeRefusal(t testing.TB, body []byte) refusal {
	t.Helper()
	var e refusal
	if err := json.Unmarshal(body, &e); err != nil {
		t.Fatalf("an error that is no JSON: %v: %.300s", err, body)
	}
	return e
}

// Every answer of the main listener carries the verdict; every error is a Prometheus error with the
// object spillway, whose four fields are always there.
func TestEveryAnswerCarriesItsVerdict(t *testing.T) {
	r := newRig(t, []rigGroup{{"jaguar", false, []int{1, 1}}}, "")
	now := time.Now()
	window := url.Values{"start": {stamp(now.Add(-time.Hour))}, "end": {stamp(now)}}
	with := func(kv ...string) url.Values {
		out := url.Values{}
		for k, v := range window {
			out[k] = v
		}
		for i := 0; i < len(kv); i += 2 {
			out.Add(kv[i], kv[i+1])
		}
		return out
	}
	q := func(text string) url.Values { return url.Values{"query": {text}} }
	for _, c := range []struct {
		name, method, path string
		form               url.Values
		header             []string
		status             int
		verdict, errorType string
		bound, allow       string
	}{
		{name: "home", path: "/", status: 200, verdict: "pass"},
		{name: "graph", path: "/graph", form: url.Values{"g0.expr": {"up == 0"}, "g0.tab": {"1"}}, status: 200, verdict: "pass"},
		{name: "healthy", path: "/-/healthy", status: 200, verdict: "pass"},
		{name: "ready", path: "/-/ready", status: 200, verdict: "pass"},
		{
			name: "ready by POST", method: "POST", path: "/-/ready", status: 405, verdict: "refuse", errorType: "bad_data",
			allow: "GET, HEAD",
		},
		{name: "nothing there", path: "/nope", status: 404, verdict: "refuse", errorType: "not_found"},
		{name: "no such API", path: "/api/v1/nope", status: 404, verdict: "refuse", errorType: "not_found"},
		{
			name: "admin API", method: "POST", path: "/api/v1/admin/tsdb/delete_series", status: 404, verdict: "refuse",
			errorType: "not_found",
		},
		{name: "lifecycle", method: "POST", path: "/-/quit", status: 404, verdict: "refuse", errorType: "not_found"},
		{name: "remote write", method: "POST", path: "/api/v1/write", status: 404, verdict: "refuse", errorType: "not_found"},
		{
			name: "method", method: "DELETE", path: "/api/v1/query", status: 405, verdict: "refuse", errorType: "bad_data",
			allow: "GET, POST",
		},
		{name: "query", path: "/api/v1/query", form: q("up"), status: 200, verdict: "pass"},
		{name: "no query", path: "/api/v1/query", status: 400, verdict: "refuse", errorType: "bad_data"},
		{name: "syntax", path: "/api/v1/query", form: q("up{"), status: 400, verdict: "refuse", errorType: "bad_data"},
		{
			name: "matches the empty string", path: "/api/v1/query", form: q(`{x=~".*"}`), status: 400, verdict: "refuse",
			errorType: "bad_data",
		},
		{
			name: "unselective", path: "/api/v1/query", form: q(`{le!=""}`), status: 422, verdict: "refuse", errorType: "execution",
			bound: "unselective",
		},
		{
			name: "emptied and unselective", path: "/api/v1/query", form: q(`{cluster="jaguar"}`), status: 422, verdict: "refuse",
			errorType: "execution", bound: "unselective",
		},
		{
			name: "unselective in federate", path: "/federate", form: url.Values{"match[]": {`{le!=""}`}}, status: 422, verdict: "refuse",
			errorType: "execution", bound: "unselective",
		},
		{
			name: "unselective in exemplars", path: "/api/v1/query_exemplars", form: with("query", `{le!=""}`), status: 422,
			verdict:   "refuse",
			errorType: "execution", bound: "unselective",
		},
		{
			name: "points", path: "/api/v1/query_range", form: url.Values{"query": {"up"}, "start": {"0"}, "end": {"11001"}, "step": {"1"}},
			status: 422, verdict: "refuse", errorType: "execution", bound: "max_points",
		},
		{name: "range", path: "/api/v1/query_range", form: url.Values{
			"query": {"up"}, "start": {"0"}, "end": {"3000000"},
			"step": {"3600"},
		}, status: 422, verdict: "refuse", errorType: "execution", bound: "max_range"},
		{
			name: "long text", method: "POST", path: "/api/v1/query", form: nil, status: 422, verdict: "refuse", errorType: "execution",
			bound: "max_query_bytes",
		},
		{
			name: "pre-scan", path: "/api/v1/query", form: q(strings.Repeat("-", 4000) + "1"), status: 422, verdict: "refuse",
			errorType: "execution", bound: "query_shape",
		},
		{name: "series without match", path: "/api/v1/series", status: 400, verdict: "refuse", errorType: "bad_data"},
		{name: "series", path: "/api/v1/series", form: with("match[]", "up"), status: 200, verdict: "pass"},
		{name: "killer", path: "/api/v1/series", form: url.Values{"match[]": {`{le!=""}`}}, status: 200, verdict: "clamp"},
		{name: "labels", path: "/api/v1/labels", status: 200, verdict: "clamp"},
		{
			name: "values", path: "/api/v1/label/instance/values",
			form: url.Values{"start": {stamp(now.Add(-10 * time.Minute))}, "end": {stamp(now)}}, status: 200, verdict: "pass",
		},
		{
			name: "too many fields", path: "/api/v1/query", form: q("up"), header: manyFields(70), status: 431, verdict: "refuse",
			errorType: "bad_data",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			method, body := c.method, ""
			if method == "" {
				method = http.MethodGet
			}
			if c.name == "long text" {
				body = url.Values{"query": {"up" + strings.Repeat(" ", 66<<10)}}.Encode()
			}
			got := r.sendForm(method, r.url+c.path, c.form, body, c.header...)
			if got.err != nil || got.status != c.status {
				t.Fatalf("want %d, got %s", c.status, got)
			}
			if v := got.header.Values(verdictHeader); len(v) != 1 || v[0] != c.verdict {
				t.Errorf("verdict %q, want %q", v, c.verdict)
			}
			if a := got.header.Get("Allow"); a != c.allow {
				t.Errorf("Allow %q, want %q", a, c.allow)
			}
			if c.status < 400 {
				return
			}
			e := decodeRefusal(t, got.body)
			if e.Status != "error" || e.ErrorType != c.errorType || e.Error == "" {
				t.Errorf("want a Prometheus error of the type %s: %s", c.errorType, got.body)
			}
			if s := e.Spillway; s == nil || s.Bound == nil || s.Value == nil || s.Seen == nil || s.Advice == nil {
				t.Errorf("bound, value, seen and advice are always there: %s", got.body)
			} else if *s.Bound != c.bound {
				t.Errorf("bound %q, want %q", *s.Bound, c.bound)
			} else if c.bound != "" && (*s.Value == "" || *s.Seen == "" || *s.Advice == "") {
				t.Errorf("a bound's refusal says its value, what was seen and what to do: %s", got.body)
			}
			if i := strings.Index(string(got.body), `"error":`); i < 0 || i > 100 {
				t.Errorf("the sentence does not stand early: %s", got.body)
			}
		})
	}
	r.idle()
}

func manyFields(n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("X-Field-%d", i), "x")
	}
	return out
}

// GET and POST answer alike, with the parameters in the URL, in the body, or in both.
func TestGetAndPostAlike(t *testing.T) {
	r := newRig(t, []rigGroup{{"jaguar", false, []int{1, 1}}, {"heron", false, []int{1}}}, "")
	for _, a := range askings() {
		e := endpoint.Get(a.id)
		if a.body != nil || !slices.Contains(e.Methods, http.MethodPost) {
			continue
		}
		if a.form.Get("query") != "" && a.id == endpoint.Query {
			a.form.Set("time", stamp(time.Now()))
		}
		byGet := r.sendForm(http.MethodGet, r.url+a.path, a.form, "")
		for name, got := range map[string]*reply{
			"body":          r.sendForm(http.MethodPost, r.url+a.path, nil, a.form.Encode()),
			"URL":           r.sendForm(http.MethodPost, r.url+a.path, a.form, ""),
			"both":          r.sendForm(http.MethodPost, r.url+a.path, a.form, a.form.Encode()),
			"other type":    r.sendForm(http.MethodPost, r.url+a.path, a.form, "", "Content-Type", "application/json"),
			"no type at it": r.sendForm(http.MethodPost, r.url+a.path, a.form, "", "Content-Type", ""),
		} {
			if byGet.status != 200 || got.status != 200 || string(got.body) != string(byGet.body) ||
				got.header.Get(verdictHeader) != byGet.header.Get(verdictHeader) {
				t.Errorf("%s, %s: GET %s, POST %s", a.name, name, byGet, got)
			}
		}
	}
	r.idle()
}

// A health check of Grafana needs no shard: it is answered while all of them are down.
func TestHealthQueryWithoutShards(t *testing.T) {
	r := newRig(t, []rigGroup{{"jaguar", false, []int{1, 2}}}, "")
	for _, s := range r.all() {
		s.Close()
	}
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		got := r.sendForm(method, r.url+"/api/v1/query", url.Values{"query": {"1+1"}, "time": {"4"}}, "")
		if got.status != 200 || string(got.message.Data) != `{"resultType":"scalar","result":[4,"2"]}` {
			t.Errorf("%s: %s", method, got)
		}
	}
	got := r.getForm("/api/v1/query", url.Values{"query": {"up"}})
	if got.status != 502 && got.status != 503 {
		t.Errorf("a query over shards that are down: %s", got)
	}
	for s, name := range r.names {
		if strings.Contains(string(got.body), s.Addr()) && strings.Contains(string(got.body), name) {
			return
		}
	}
	t.Errorf("no group and address in %s", got)
}

// Slow clients: a head that never ends is cut, a body that never ends is answered 408, also where
// nobody wants the body.
func TestSlowClients(t *testing.T) {
	heads := newRig(t, []rigGroup{{"jaguar", false, []int{1}}}, "", func(o *Options) { o.HeaderTimeout = 300 * time.Millisecond })
	r := newRig(t, []rigGroup{{"jaguar", false, []int{1}}}, "",
		func(o *Options) { o.HeaderTimeout, o.BodyTimeout = 10*patience, 400*time.Millisecond })
	for _, c := range []struct{ name, base, head, want string }{
		{"head", heads.url, "GET /api/v1/query?query=up HTTP/1.1\r\nHost: x\r\nX-A: ", ""},
		{"body of a query", r.url, "POST /api/v1/query HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\n\r\nquery=", "HTTP/1.1 408"},
		{"body of a read", r.url, "POST /api/v1/read HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc", "HTTP/1.1 408"},
		{"body for nobody", r.url, "POST /nope HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc", "HTTP/1.1 404"},
		{"body with a wrong method", r.url, "DELETE /api/v1/labels HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc", "HTTP/1.1 405"},
		{"body for a page", r.url, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nabc", "HTTP/1.1 405"},
		{"chunked body for a page", r.url, "GET /-/ready HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", "HTTP/1.1 200"},
		{"admin body", r.admin, "POST /-/reload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nabc", "HTTP/1.1 400"},
		{"admin body for nobody", r.admin, "POST /nope HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nabc", "HTTP/1.1 404"},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, err := net.Dial("tcp", strings.TrimPrefix(c.base, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(patience))
			if _, err := io.WriteString(conn, c.head); err != nil {
				t.Fatal(err)
			}
			all, err := io.ReadAll(conn) // and the connection is closed
			if ne, ok := err.(net.Error); ok && ne.Timeout() {
				t.Fatalf("still open after %s; so far %q", patience, all)
			}
			if !strings.HasPrefix(string(all), c.want) {
				t.Errorf("want %q, got %.200q", c.want, all)
			}
		})
	}
}

// Under a route prefix the API, the pages and nothing else is there; health is without it too.
func TestRoutePrefix(t *testing.T) {
	r := newRig(t, []rigGroup{{"jaguar", false, []int{1}}}, "", func(o *Options) { o.RoutePrefix = "/spill/way/" })
	for path, want := range map[string]int{
		"/spill/way/api/v1/query?query=up": 200, "/spill/way/": 200, "/spill/way": 200, "/spill/way/graph?g0.expr=up": 200,
		"/-/healthy": 200, "/-/ready": 200,
		"/spill/way/-/healthy": 200, "/spill/way/-/ready": 200, "/api/v1/query?query=up": 404, "/": 404,
		"/spill/wayapi/v1/query?query=up": 404, "/spill": 404,
		"/spill/way/label/a%2Fb": 404, "/spill/way/api/v1/label/__name__/values": 200, "/spill/way/federate?match[]=up": 200,
	} {
		got := r.getForm(path, nil)
		if got.status != want || got.header.Get(verdictHeader) == "" {
			t.Errorf("%s: want %d with a verdict, got %s", path, want, got)
		}
	}
	// By default it is the path of the external URL.
	for prefix, path := range map[string]string{"": "/behind/nginx", "/": "", "/own": "/own"} {
		r := newRig(t, []rigGroup{{"jaguar", false, []int{1}}}, "",
			func(o *Options) { o.RoutePrefix, o.ExternalURL = prefix, "https://metrics.example.org/behind/nginx/" })
		if got := r.getForm(path+"/api/v1/query", url.Values{"query": {"up"}}); got.status != 200 {
			t.Errorf("prefix %q: %s", prefix, got)
		}
		page := string(r.ask(r.request(t.Context(), asking{path: path + "/"})).body)
		if !strings.Contains(page, `href="`+path+`/-/ready"`) || path != "" && strings.Contains(page, `href="/-/`) {
			t.Errorf("prefix %q: a link leaves it: %s", prefix, page)
		}
	}
}

// The memory of all requests together is bounded: beyond memory.budget the answer is 429 with
// Retry-After, and later requests find all of it again.
func TestMemoryBudget(t *testing.T) {
	r := newRig(t, []rigGroup{{"jaguar", false, []int{1}}}, "memory: {budget: 1MiB}\nlimits: {timeout: 10s}\n")
	s := r.shards["jaguar"][0][0]
	if err := s.Set("", fakeshard.Route{Path: "/api/v1/series", Script: "generate 40MiB"}); err != nil {
		t.Fatal(err)
	}
	got := r.getForm("/api/v1/series", url.Values{"match[]": {"up"}})
	if got.status != 429 || got.header.Get("Retry-After") == "" {
		t.Errorf("want 429 with Retry-After, got %s", got)
	} else if e := decodeRefusal(t, got.body); e.ErrorType != "too_many_requests" || e.Spillway == nil ||
		*e.Spillway.Bound != "memory.budget" {
		t.Errorf("want the bound memory.budget: %s", got.body)
	}
	if got := r.getForm("/api/v1/query", url.Values{"query": {"up"}}); got.status != 200 {
		t.Errorf("afterwards: %s", got)
	}
	r.idle()
}

// Each request leaves one line, whatever became of it, in a file that nobody else can read.
func TestUsageContract(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "usage.jsonl")
	r := newRig(t, []rigGroup{{"jaguar", false, []int{1, 1}}}, fmt.Sprintf("usage_log: {path: %q}\n", path))
	s := r.shards["jaguar"][0][0]
	now := time.Now()
	r.getForm("/api/v1/query_range", url.Values{
		"query": {`sum by (job) (rate(up{job="fake"}[5m]))`}, "start": {stamp(now.Add(-time.Hour))},
		"end": {stamp(now)}, "step": {"60"},
	},
		"X-Grafana-User", "ada", "X-Dashboard-Uid", "d1", "X-Panel-Id", "7")
	r.getForm("/api/v1/query", url.Values{"query": {`{le!=""}`}})
	r.getForm("/api/v1/series", url.Values{"match[]": {"up"}}, "User-Agent", "prometheus-mcp/0.18.0 (https://github.com/prometheus/prometheus-mcp)")
	if err := s.Set("stall"); err != nil {
		t.Fatal(err)
	}
	seen := len(s.RequestsTo("/api/v1/query"))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+"/api/v1/query?query=up", nil)
	if err != nil {
		t.Fatal(err)
	}
	var leaving sync.WaitGroup
	leaving.Go(func() {
		if err := s.WaitSeen(ctx, "/api/v1/query", seen+1); err != nil {
			t.Error(err)
		}
		cancel()
	})
	if got := r.ask(req); got.err == nil {
		t.Errorf("the client should have left: %s", got)
	}
	leaving.Wait()
	if err := s.Set(""); err != nil {
		t.Fatal(err)
	}
	var lines []map[string]any
	r.eventually("four lines are written", func() bool {
		lines = nil
		data, _ := os.ReadFile(path) // not there yet, perhaps
		sc := bufio.NewScanner(strings.NewReader(string(data)))
		for sc.Scan() {
			var m map[string]any
			if err := json.Unmarshal(sc.Bytes(), &m); err != nil {
				return false
			}
			lines = append(lines, m)
		}
		return len(lines) == 4
	})
	if len(lines) != 4 {
		t.Fatalf("lines: %v", lines)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	for i, l := range lines {
		for _, key := range []string{
			"v", "time", "id", "tenant", "user", "dashboard", "panel", "rule", "endpoint", "query", "metrics", "matchers", "grouping", "le",
			"range_s", "step_s",
			"series", "samples", "bytes", "shard_s", "peak_bytes", "verdict", "bound",
		} {
			if _, ok := l[key]; !ok {
				t.Errorf("line %d lacks %s: %v", i, key, l)
			}
		}
		if l["v"] != 1.0 || l["id"] == "" {
			t.Errorf("line %d: %v", i, l)
		}
	}
	byEndpoint := map[string]map[string]any{}
	for _, l := range lines {
		byEndpoint[l["endpoint"].(string)+" "+l["verdict"].(string)] = l
	}
	if l := byEndpoint["query_range pass"]; l == nil || l["range_s"] != 3600.0 || l["step_s"] != 60.0 || l["shard_s"] == 0.0 ||
		fmt.Sprint(l["metrics"]) != "[up]" {
		t.Errorf("query_range: %v", l)
	}
	if l := byEndpoint["query refuse"]; l == nil || l["bound"] != "unselective" {
		t.Errorf("refused: %v", byEndpoint)
	}
	for _, l := range lines {
		if want := map[bool]string{true: "agent"}[l["endpoint"] == "series"]; l["purpose"] != want {
			t.Errorf("the purpose of %v is %q, want %q", l, l["purpose"], want)
		}
	}
	if byEndpoint["query pass"] == nil {
		t.Errorf("the client that left has no line: %v", byEndpoint)
	}
}
