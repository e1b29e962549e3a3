package server

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/internal/localprom"
	"github.com/spillwayproject/spillway/proxy/endpoint"
)

// canary stands in every name and value that is not the tenant's.
const canary = "canary"

// tenantWorld is two shards that hold a tenant's series and those of others, and a proxy that
// knows the tenant, one that may see everything, and nobody else.
type tenantWorld struct {
	t      *testing.T
	s      *Server
	url    string
	client *http.Client
	config string
}

func newTenantWorld(t *testing.T, limits ...string) *tenantWorld {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"research", "all"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("token-of-"+name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text := "groups:\n  - name: jaguar\n    labels: {cluster: jaguar}\n    shards:\n"
	rules := `groups:
  - name: mine
    interval: 1s
    rules:
      - {alert: Mine, expr: 'requests_total{namespace="research-a"} >= 0', labels: {namespace: research-a}}
      - {record: 'research:requests:sum', expr: 'sum(requests_total)', labels: {namespace: research-a}}
  - name: canary_group
    interval: 1s
    rules:
      - {alert: canaryAlert, expr: 'canary_metric >= 0', labels: {severity: canary}}
      - {alert: EachNamespace, expr: 'sum by (namespace) (requests_total) >= 0'}
      - {record: 'canary:sum', expr: 'sum(canary_metric)'}
`
	ruleFile := filepath.Join(dir, "rules.yaml")
	if err := os.WriteFile(ruleFile, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		opts := localprom.Options{DisableWAL: true, Config: "rule_files: [" + ruleFile + "]"}
		if i == 0 {
			opts.Features = []string{"search-api"}
		}
		p, err := localprom.Start(t.Context(), opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Close() })
		var b strings.Builder
		b.WriteString("load 15s\n")
		for _, ns := range []string{"research-a", "research-b"} {
			fmt.Fprintf(&b, "  requests_total{namespace=%q,shard=\"s%d\",path=\"/\"} 0+1x240\n", ns, i)
			fmt.Fprintf(&b, "  up{namespace=%q,shard=\"s%d\",instance=\"i\",job=\"j\"} 1x240\n", ns, i)
		}
		fmt.Fprintf(&b, "  requests_total{namespace=\"canary-b\",shard=\"s%d\",path=\"/canary\"} 0+1000x240\n", i)
		fmt.Fprintf(&b, "  canary_metric{namespace=\"canary-b\",shard=\"s%d\"} 7x240\n", i)
		fmt.Fprintf(&b, "  up{namespace=\"canary-b\",shard=\"s%d\",instance=\"i\",job=\"j\"} 1x240\n", i)
		fmt.Fprintf(&b, "  target_info{instance=\"i\",job=\"j\",data=\"canary\",shard=\"s%d\"} 1x240\n", i)
		fmt.Fprintf(&b, "  canary_without{shard=\"s%d\"} 1x240\n", i)
		if err := p.LoadAt(b.String(), time.Now().Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
		text += fmt.Sprintf("      - {replicas: [{url: %q}]}\n", p.URL())
	}
	text += fmt.Sprintf(`tenants:
  - {name: research, bearer_token_file: %s/research, matchers: ['{namespace=~"research-.+"}'], limits: {%s}}
  - {name: all, bearer_token_file: %s/all}
`, dir, strings.Join(append([]string{"max_range: 2h"}, limits...), ", "), dir)
	w := &tenantWorld{t: t, client: newClient(t), config: text}
	w.s, w.url = startProxy(t, t.Context(), text)
	return w
}

// ask asks as somebody; an empty name is nobody.
func (w *tenantWorld) ask(who, method, path string, form url.Values, body []byte) *reply {
	w.t.Helper()
	target := w.url + path
	var r *http.Request
	var err error
	switch {
	case body != nil:
		r, err = http.NewRequestWithContext(context.Background(), method, target, strings.NewReader(string(body)))
	case method == http.MethodPost:
		r, err = http.NewRequestWithContext(context.Background(), method, target, strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	default:
		r, err = http.NewRequestWithContext(context.Background(), method, target+"?"+form.Encode(), nil)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	if who != "" {
		r.Header.Set("Authorization", "Bearer token-of-"+who)
	}
	rig := &rig{t: w.t, client: w.client}
	return rig.ask(r)
}

// tenantQueries are expressions over what the tenant has and has not.
func tenantQueries() []string {
	inner := []string{
		`requests_total`, `{__name__=~".+"}`, `requests_total{namespace="canary-b"}`, `requests_total{namespace=~".*"}`,
		`canary_metric`, `{namespace!="x",__name__!=""}`, `up`, `target_info`,
		`{__name__="requests_total",path!~"x"}`, `canary_without`,
	}
	var out []string
	for i, a := range inner {
		b := inner[(i+3)%len(inner)]
		out = append(out, a, `sum(`+a+`)`, `count by (namespace) (`+a+`)`, `count by (__name__, path) (`+a+`)`, a+` or `+b,
			a+` unless on (x) `+b, a+` and on () `+b,
			`sum(rate(`+a+`[5m]))`, `max_over_time(sum(`+a+`)[10m:1m])`, `last_over_time(`+a+`[30m:5m])`, a+` offset 10m`,
			`absent(`+a+`)`, `absent_over_time(`+a+`[5m])`,
			`label_replace(`+a+`, "x", "$1", "namespace", "(.*)")`, `label_join(`+a+`, "x", "-", "namespace", "path")`, `topk(5,
			`+a+`)`, `count_values("v", `+a+`)`, `sort_desc(`+a+`)`,
			`scalar(count(`+a+`))`, `vector(1) * on () group_left (namespace) `+a,
			`up * on (instance, job) group_left (data) `+b, `-`+a, `(`+a+`)`, a+` @ end()`, `info(`+a+`)`,
			`quantile(0.5, `+a+`) + on () group_right () `+b, `histogram_quantile(0.9, `+a+`)`, `group(`+a+`) by (namespace)`,
			a+` > bool `+b, `stddev(`+a+`)`,
		)
	}
	return append(out, `1+1`, `time()`, `vector(1)`)
}

// leaks is the first of what a tenant gets to see that is not its own; empty where nothing is.
func (w *tenantWorld) leaks(sum bool) string {
	now := time.Now()
	window := url.Values{"start": {stamp(now.Add(-30 * time.Minute))}, "end": {stamp(now)}}
	with := func(base url.Values, kv ...string) url.Values {
		out := url.Values{}
		for k, v := range base {
			out[k] = v
		}
		for i := 0; i < len(kv); i += 2 {
			out.Add(kv[i], kv[i+1])
		}
		return out
	}
	// What the caller itself wrote may stand in an error.
	look := func(path string, form url.Values, got *reply) string {
		text := string(got.body)
		for _, values := range form {
			for _, v := range values {
				text = strings.ReplaceAll(text, v, "")
				for _, word := range []string{`namespace="canary-b"`, "canary_metric", "canary_without"} {
					if strings.Contains(v, word) {
						text = strings.ReplaceAll(strings.ReplaceAll(text, word, ""), strings.ReplaceAll(word, `"`, `\"`), "")
						text = strings.ReplaceAll(text, `"namespace":"canary-b"`, "") // absent() says what it was asked
					}
				}
			}
		}
		switch {
		case got.status >= 500 || got.err != nil:
			return fmt.Sprintf("%s %v: %s", path, form, got)
		case strings.Contains(text, canary):
			return fmt.Sprintf("%s %v: status %d: %.600s", path, form, got.status, text)
		}
		return ""
	}
	try := func(path string, form url.Values) string {
		methods := []string{http.MethodGet}
		if e := byPath(path); e != nil {
			methods = e.Methods
		}
		for _, m := range methods {
			if m == http.MethodPost && path == "/api/v1/read" {
				continue
			}
			if s := look(path, form, w.ask("research", m, path, form, nil)); s != "" {
				return m + " " + s
			}
		}
		return ""
	}
	for i, q := range tenantQueries() {
		for _, c := range []struct {
			path string
			form url.Values
		}{
			{"/api/v1/query", with(nil, "query", q)},
			{"/api/v1/query_range", with(window, "query", q, "step", "60")},
			{"/api/v1/query_exemplars", with(window, "query", q)},
		} {
			if c.path != "/api/v1/query" && i%3 != 0 {
				continue
			}
			if s := try(c.path, c.form); s != "" {
				return s
			}
		}
	}
	for _, m := range []string{
		"", `requests_total`, `{namespace="canary-b"}`, `{__name__=~".+"}`, `canary_metric`, `{le!=""}`, `up`, `{namespace!~"research-.*"}`,
	} {
		form := with(window)
		if m != "" {
			form = with(window, "match[]", m)
		}
		for _, path := range []string{
			"/api/v1/series", "/api/v1/labels", "/federate", "/api/v1/label/namespace/values", "/api/v1/label/__name__/values",
			"/api/v1/label/path/values", "/api/v1/label/data/values",
		} {
			if s := try(path, form); s != "" {
				return s
			}
		}
		if s := try("/api/v1/series", with(window, "match[]", `requests_total`, "match[]", cmpOr(m, "up"))); s != "" {
			return s
		}
		for _, kv := range [][]string{
			{}, {"search[]", "a", "sort_by", "score"}, {"search[]", "can", "fuzz_alg", "jarowinkler", "fuzz_threshold", "1"},
		} {
			for path, more := range map[string][]string{
				"metric_names": {"include_metadata", "true"}, "label_names": nil, "label_values": {"label", "namespace"},
			} {
				if s := try("/api/v1/search/"+path, with(with(form, kv...), more...)); s != "" {
					return s
				}
			}
		}
	}
	for _, path := range []string{
		"/api/v1/rules", "/api/v1/alerts", "/api/v1/metadata", "/api/v1/targets", "/api/v1/targets/metadata",
		"/api/v1/scrape_pools", "/api/v1/alertmanagers", "/api/v1/notifications",
		"/api/v1/status/buildinfo", "/api/v1/status/tsdb", "/api/v1/status/flags",
		"/api/v1/status/config", "/api/v1/status/runtimeinfo", "/api/v1/status/walreplay", "/api/v1/features", "/",
	} {
		if s := try(path, nil); s != "" {
			return s
		}
	}
	for _, m := range []*labels.Matcher{
		labels.MustNewMatcher(labels.MatchEqual, "__name__", "requests_total"),
		labels.MustNewMatcher(labels.MatchRegexp, "namespace", ".+"),
		labels.MustNewMatcher(labels.MatchEqual, "cluster", "jaguar"),
	} {
		req := readRequest(now.Add(-10*time.Minute), now, labels.MustNewMatcher(labels.MatchNotEqual, "__name__", ""), m)
		got := w.ask("research", http.MethodPost, "/api/v1/read", nil, req)
		if got.status == 200 {
			if plain, err := snappy.Decode(nil, got.body); err == nil {
				got.body = plain
			}
		}
		if s := look("/api/v1/read "+m.String(), nil, got); s != "" {
			return s
		}
	}
	if !sum {
		return ""
	}
	// Sums have no labels to be known by: four series of the tenant's, and nothing of the others'.
	for _, q := range []string{
		`count(requests_total)`, `count(requests_total or canary_metric)`, `max_over_time(count(requests_total)[10m:1m])`,
	} {
		if got := w.ask("research", http.MethodGet, "/api/v1/query", with(nil, "query", q), nil); !strings.Contains(string(got.body),
			`"4"`) {
			return fmt.Sprintf("%s: %s", q, got)
		}
		if got := w.ask("all", http.MethodGet, "/api/v1/query", with(nil, "query", q), nil); strings.Contains(string(got.body), `"4"`) {
			return fmt.Sprintf("who may see everything sees a part: %s: %s", q, got)
		}
	}
	return ""
}

func cmpOr(a, b string) string {
	if a == "" {
		return b
	}
	return a
}

func byPath(path string) *endpoint.Endpoint {
	i := slices.IndexFunc(endpoint.Table, func(e endpoint.Endpoint) bool { return e.Path == path })
	if i < 0 {
		return nil
	}
	return &endpoint.Table[i]
}

// TestTenantsSeeOnlyTheirs asks all endpoints for everything as a tenant that sees a part:
// no byte of what others have is in any answer, error or warning, and sums are of its own.
func TestTenantsSeeOnlyTheirs(t *testing.T) {
	w := newTenantWorld(t)
	if s := w.leaks(true); s != "" {
		t.Error(s)
	}
	for _, c := range []struct {
		path, want string
	}{
		{"/api/v1/rules", `"name":"Mine"`},
		{"/api/v1/alerts", `"alertname":"Mine"`},
		{"/api/v1/label/namespace/values", `"research-a","research-b"`},
		{"/api/v1/search/label_values?label=namespace&search[]=e", `{"results":[{"value":"research-a"},{"value":"research-b"}]}`},
		{"/api/v1/query?query=count(up)", `"4"`},
		{"/api/v1/query?query=1%2B1&time=4", `"2"`},
	} {
		path, query, _ := strings.Cut(c.path, "?")
		form, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		eventually := time.Now().Add(30 * time.Second) // until rules were evaluated
		for {
			got := w.ask("research", http.MethodGet, path, form, nil)
			if got.status == 200 && strings.Contains(string(got.body), c.want) {
				break
			}
			if time.Now().After(eventually) {
				t.Errorf("%s: %s, want %s", c.path, got, c.want)
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	if s := w.leaks(false); s != "" { // now that there are alerts
		t.Error(s)
	}
	now := time.Now()
	long := url.Values{"query": {"up"}, "start": {stamp(now.Add(-3 * time.Hour))}, "end": {stamp(now)}, "step": {"60"}}
	if got := w.ask("research", http.MethodGet, "/api/v1/query_range", long, nil); got.status != 422 {
		t.Errorf("beyond the tenant's max_range: %s", got)
	}
	for _, path := range []string{"/api/v1/targets", "/api/v1/scrape_pools", "/api/v1/alertmanagers"} {
		if got := w.ask("research", http.MethodGet, path, nil, nil); got.status != 403 {
			t.Errorf("%s: %s", path, got)
		}
	}
}

// TestNobodyIsAnswered: where there are tenants, every path but health is 401 for who is none,
// with what to send.
func TestNobodyIsAnswered(t *testing.T) {
	w := newTenantWorld(t)
	for _, who := range []string{"", "eve"} {
		for _, e := range endpoint.Table {
			path := strings.Replace(e.Path, "{name}", "job", 1)
			for _, m := range e.Methods {
				got := w.ask(who, m, path, url.Values{"query": {"up"}, "match[]": {"up"}}, nil)
				asked := strings.Contains(got.header.Get("WWW-Authenticate"), "Bearer")
				if got.status != 401 || !asked || !strings.Contains(string(got.body), `"errorType":"unauthorized"`) {
					t.Errorf("%s %s as %q: %s %v", m, path, who, got, got.header)
				}
			}
		}
		for path, want := range map[string]int{"/": 401, "/graph": 401, "/-/healthy": 200, "/-/ready": 200} {
			if got := w.ask(who, http.MethodGet, path, nil, nil); got.status != want {
				t.Errorf("%s as %q: %d, want %d", path, who, got.status, want)
			}
		}
	}
	// A handler that is served by something else than our listener knows nobody either.
	rec := httptest.NewRecorder()
	w.s.mainHandler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/api/v1/query?query=up", nil))
	if rec.Code != 401 {
		t.Errorf("without our listener: %d: %s", rec.Code, rec.Body)
	}
	// The operator is no tenant, and asks what he likes.
	if _, err := w.s.ask(httptest.NewRequest(http.MethodGet, "/", nil), Question{Query: "sum(requests_total)"}, true); err != nil {
		t.Errorf("the operator: %v", err)
	}
}

// TestNarrowedIsTheSameQuery: what the matchers of a tenant cannot be written into without making
// it another query is refused; absent() keeps the label that the caller asks for.
func TestNarrowedIsTheSameQuery(t *testing.T) {
	w := newTenantWorld(t)
	for query, want := range map[string]string{
		"up offset (2m) @ end() - 1":                      "plain durations",
		"rate(up[60.0004])":                               "plain durations",
		`rate(up{z="",a=""}[1m + 1m]) > 5m or vector(1)`:  `"status":"success"`,
		`absent(nothing{job="x",namespace="research-a"})`: `"metric":{"job":"x","namespace":"research-a"}`,
	} {
		got := w.ask("research", http.MethodGet, "/api/v1/query", url.Values{"query": {query}}, nil)
		if !strings.Contains(string(got.body), want) || (got.status == 400) != (want == "plain durations") {
			t.Errorf("%s: %s", query, got)
		}
	}
}

// TestGraphOfATenant: the page's table and plot are of what the tenant may see.
func TestGraphOfATenant(t *testing.T) {
	w := newTenantWorld(t)
	form := url.Values{"g0.expr": {"sum by (namespace) (requests_total)"}}
	for who, all := range map[string]bool{"research": false, "all": true} {
		got := w.ask(who, http.MethodGet, "/graph", form, nil)
		mine, theirs := strings.Contains(string(got.body), "research-a"), strings.Contains(string(got.body), "canary-b")
		if got.status != 200 || !mine || theirs != all {
			t.Errorf("as %s: %s", who, got)
		}
	}
}

// TestTenantsAreNotReloadedAway: a file that is cut off before its tenants opens nothing, nor does
// it tell a tenant what drop rules took from others.
func TestTenantsAreNotReloadedAway(t *testing.T) {
	w := newTenantWorld(t)
	dir := t.TempDir()
	file, plan := filepath.Join(dir, "spillway.yaml"), filepath.Join(dir, "plan.json")
	writeText(t, plan, droppedPlan(time.Now().Add(-time.Hour), "canary_secret_total"))
	writeText(t, file, w.config+"drop_rules: {plan: "+plan+"}\n")
	w.s, w.url = startProxy(t, t.Context(), w.config+"drop_rules: {plan: "+plan+"}\n", func(o *Options) { o.ConfigFile = file })
	form := url.Values{"query": {`{__name__=~"canary_secret_.+"}`}}
	for who, told := range map[string]bool{"research": false, "all": true} {
		got := w.ask(who, http.MethodGet, "/api/v1/query", form, nil)
		if is := strings.Contains(string(got.body), "canary_secret_total is dropped"); got.status != 200 || is != told {
			t.Errorf("as %s: %s", who, got)
		}
	}
	open, _, _ := strings.Cut(w.config, "tenants:")
	writeText(t, file, open)
	if err := w.s.Reload(); err == nil || !strings.Contains(err.Error(), "no tenants any more") {
		t.Errorf("a file without its tenants is loaded: %v", err)
	}
	if got := w.ask("", http.MethodGet, "/api/v1/status/config", nil, nil); got.status != http.StatusUnauthorized {
		t.Errorf("nobody is answered: %s", got)
	}
}

// TestGraphTellsNoCounts: the page's plan is made for the tenant too: how many series others have
// is not in it, although a bound counts them.
func TestGraphTellsNoCounts(t *testing.T) {
	w := newTenantWorld(t)
	w.s, w.url = startProxy(t, t.Context(), w.config+"limits: {max_series_touched: 1}\n")
	counted := func(who string) bool {
		form := url.Values{"g0.expr": {`sum(canary_metric{namespace=~"canary-b|x"})`}}
		got := w.ask(who, http.MethodGet, "/graph", form, nil)
		if got.status != 200 {
			t.Errorf("as %s: %s", who, got)
		}
		return strings.Contains(string(got.body), "would select 2 series")
	}
	r := &rig{t: t, s: w.s}
	r.eventually("who may see them is told", func() bool { return counted("all") })
	if counted("research") {
		t.Error("a tenant is told how many series of others there are")
	}
}
