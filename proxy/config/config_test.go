package config

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	commonconfig "github.com/prometheus/common/config"

	"github.com/spillwayproject/spillway/proxy/endpoint"
)

var update = flag.Bool("update", false, "write the golden files and the reference table anew")

var testNow = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func parse(t *testing.T, text string) *Config {
	t.Helper()
	cfg, err := parseAt([]byte(text), "/etc/spillway", testNow)
	if err != nil {
		t.Fatal(err)
	}
	if why, ok := refuses([]byte(text)); why != "" || !ok {
		t.Errorf("the schema refuses what is read: %s\n%s", why, text)
	}
	return cfg
}

const minimal = `groups: [{name: a, shards: [{replicas: [{url: "http://h:9090"}]}]}]
`

func TestBrokenFileNamesEveryProblem(t *testing.T) {
	cfg, err := Load("testdata/broken.yaml")
	var problems Problems
	if !errors.As(err, &problems) || cfg != nil {
		t.Fatalf("got %v, %v", cfg, err)
	}
	golden(t, "testdata/broken.golden", err.Error()+"\n")
	for i, p := range problems {
		if p.Line == 0 || p.Message == "" {
			t.Errorf("%v has no line or no message", p)
		}
		if i > 0 && p.Line < problems[i-1].Line {
			t.Errorf("%v comes after line %d", p, problems[i-1].Line)
		}
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Error("a password is in the message")
	}
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; run go test -update and review\ngot:\n%s", file, got)
	}
}

func TestMinimalFileHasEveryDefault(t *testing.T) {
	cfg := parse(t, minimal)
	for _, id := range endpointIDs {
		l := cfg.LimitsFor(id)
		v := reflect.ValueOf(l)
		for i := range v.NumField() {
			if n := v.Field(i); n.CanInt() && n.Int() <= 0 || n.IsZero() {
				t.Errorf("%s has a limit %s that is not finite: %+v", id, v.Type().Field(i).Name, l)
			}
		}
		if l.Unselective != UnselectiveRefuse {
			t.Errorf("%s: unselective is %s", id, l.Unselective)
		}
	}
	if cfg.Memory.Budget != 512<<20 || cfg.PartialResponse != PartialAbort || cfg.StrictParameters || cfg.UsageLog.Path != "" ||
		len(cfg.Hash) != 64 {
		t.Errorf("got %+v", cfg)
	}
	r := cfg.Groups[0].Shards[0].Replicas[0]
	if r.Type != TypePrometheus || r.HTTPClient.FollowRedirects || !r.HTTPClient.EnableHTTP2 {
		t.Errorf("got %#v", r)
	}
}

func TestEverythingServedIsRead(t *testing.T) {
	cfg := parse(t, `
groups:
  - name: jaguar
    labels: {cluster: jaguar, zone: 1}
    replica_labels: [prometheus_replica]
    from: -14d
    until: 2030-01-01T00:00:00Z
    heartbeat: up{job="node"}
    shards:
      - replicas:
          - url: http://10.0.0.3:9090/prometheus/
            headers: {x-scope-orgid: a}
            http_client: {basic_auth: {username: u, password_file: pw}, tls_config: {ca_file: /abs/ca.pem}}
        from: 2026-10-01T00:00:00Z
        until: -1h
limits: {timeout: 20s, max_series: 40_000, max_samples: 1000, max_response_bytes: 1.5MiB, max_range: 1w, metadata_range: 10m, max_query_bytes: 4096, unselective: allow,
  endpoints: {series: {timeout: 5s, max_series: 90000, unselective: refuse}}}
memory: {budget: 1GB}
usage_log: {path: usage.jsonl, max_size: 1MiB, max_files: 3}
strict_parameters: true
partial_response: warn
tenants: [{name: a, jwt_values: [research, 7]}]
jwt: {issuer: "https://i", audience: [a, b], claim: /a/b, jwks_url: "http://[::1]:1/keys", http_client: {tls_config: {ca_file: ca.pem}}}
`)
	if j := cfg.JWT; j.Client().TLSConfig.CAFile != "/etc/spillway/ca.pem" || j.Client().FollowRedirects || len(j.Audience) != 2 ||
		j.Claim != "/a/b" || cfg.Tenants[0].JWTValues[1] != "7" {
		t.Errorf("got %#v, %+v", j.Audience, cfg.Tenants)
	}
	g := cfg.Groups[0]
	r := g.Shards[0].Replicas[0]
	if g.Labels["zone"] != "1" || g.ReplicaLabels[0] != "prometheus_replica" || g.Heartbeat != `up{job="node"}` {
		t.Errorf("got %+v", g)
	}
	if string(r.Headers["X-Scope-Orgid"]) != "a" || r.HTTPClient.BasicAuth.PasswordFile != "/etc/spillway/pw" ||
		r.HTTPClient.TLSConfig.CAFile != "/abs/ca.pem" {
		t.Errorf("got %+v", r.HTTPClient)
	}
	if base, err := r.Base(); err != nil || base.String() != "http://10.0.0.3:9090/prometheus" {
		t.Errorf("base %s, %v", base, err)
	}
	from, until := g.Span(testNow)
	if from != testNow.AddDate(0, 0, -14).UnixMilli() || until != time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli() {
		t.Errorf("span %d, %d", from, until)
	}
	if f, u := g.ShardSpan(0, testNow); f != from || u != testNow.Add(-time.Hour).UnixMilli() {
		t.Errorf("shard span %d, %d", f, u)
	}
	want := Default().LimitsFor(endpoint.Query)
	want.Timeout, want.MaxSeries, want.MaxSamples, want.MaxResponseBytes = 20*time.Second, 40_000, 1000, 3<<19
	want.MaxRange, want.MetadataRange, want.MaxQueryBytes, want.Unselective = 7*24*time.Hour, 10*time.Minute, 4096, UnselectiveAllow
	if got := cfg.LimitsFor(endpoint.Query); got != want {
		t.Errorf("query: got %+v", got)
	}
	want.Timeout, want.Unselective = 5*time.Second, UnselectiveRefuse
	if got := cfg.LimitsFor(endpoint.Series); got != want {
		t.Errorf("series: got %+v", got)
	}
	if len(cfg.Notes) != 1 || cfg.Notes[0].Path != "limits.endpoints.series.max_series" {
		t.Errorf("notes: %v", cfg.Notes)
	}
	if cfg.UsageLog != (UsageLog{"/etc/spillway/usage.jsonl", 1 << 20, 3}) || cfg.Memory.Budget != 1<<30 || !cfg.StrictParameters ||
		cfg.PartialResponse != PartialWarn {
		t.Errorf("got %+v", cfg)
	}
}

func TestCeilingHoldsForBuiltInValues(t *testing.T) {
	cfg := parse(t, minimal+"limits: {timeout: 2s, max_series: 5, max_range: 1m}\n")
	for _, id := range endpointIDs {
		if l := cfg.LimitsFor(id); l.Timeout > 2*time.Second || l.MaxSeries > 5 || l.MaxRange > time.Minute ||
			l.MetadataRange > time.Minute {
			t.Errorf("%s is above the ceiling: %+v", id, l)
		}
	}
}

// problemRow is a file with one problem.
type problemRow struct{ name, text, path, message string }

// TestMetricsURL: where a server's own metrics are.
func TestMetricsURL(t *testing.T) {
	for _, tc := range []struct{ url, metrics, want string }{
		{"http://h:9090", "", "http://h:9090/metrics"},
		{"http://H:80/a/", "/metrics", "http://h/a/metrics"},
		{"http://h:9090/a", "/b/metrics", "http://h:9090/a/b/metrics"},
		{"http://h:9090/a", "http://h:9090/metrics", "http://h:9090/metrics"},
		{"http://h:9090", "none", ""},
	} {
		r := Replica{URL: tc.url, Metrics: tc.metrics}
		got, err := r.MetricsURL()
		if err != nil || (got == nil) != (tc.want == "") || got != nil && got.String() != tc.want {
			t.Errorf("%q of %q: %v, %v; want %q", tc.metrics, tc.url, got, err, tc.want)
		}
	}
}

// TestFoundServersAreWatched: what shards_from says of the servers' own metrics holds for each.
func TestFoundServersAreWatched(t *testing.T) {
	f := ShardsFrom{Metrics: "/a/metrics", MemoryLimit: 3 << 30}
	r := f.Replica("http://h:9090")
	if u, err := r.MetricsURL(); err != nil || u.String() != "http://h:9090/a/metrics" || r.MemoryLimit != 3<<30 {
		t.Errorf("%v, %d: %v", u, r.MemoryLimit, err)
	}
	r = (&ShardsFrom{}).Replica("http://h:9090")
	if u, err := r.MetricsURL(); err != nil || u.String() != "http://h:9090/metrics" || r.MemoryLimit != 0 {
		t.Errorf("by default %v, %d: %v", u, r.MemoryLimit, err)
	}
}

// problemRows are what has a rule of its own and is not in the broken file.
func problemRows() []problemRow {
	group := func(rest string) string {
		return "groups: [{name: a, shards: [{replicas: [{url: \"http://h:9090\"}]}], " + rest + "}]\n"
	}
	replica := func(rest string) string {
		return "groups: [{name: a, shards: [{replicas: [{" + rest + "}]}]}]\n"
	}
	jwt := func(rest string) string {
		return minimal + "tenants: [{name: a, jwt_values: [x]}]\njwt: {" + rest + "}\n"
	}
	deny := func(rest string) string { return minimal + "deny: [{name: a, reason: b, " + rest + "}]\n" }
	const unfilled = "values like ${file:…} and ${NAME} are not filled in here; "
	return []problemRow{
		{
			"metrics of servers that are found", "groups: [{name: a, shards_from: {files: [a.json], metrics: 'http://h:9090/metrics'}}]\n",
			"groups[0].shards_from.metrics", "write a path below the servers' addresses",
		},
		{
			"metrics of another host", replica("url: 'http://h:9090', metrics: 'http://other:9090/metrics'"),
			"groups[0].shards[0].replicas[0].metrics", "since credentials go along",
		},
		{
			"metrics of another scheme", replica("url: 'https://h:9090', metrics: 'http://h:9090/metrics'"),
			"groups[0].shards[0].replicas[0].metrics", "write a path below url",
		},
		{
			"metrics above its url", replica("url: 'http://h:9090/a', metrics: '/../metrics'"),
			"groups[0].shards[0].replicas[0].metrics", "write a path below url",
		},
		{
			"metrics with a query", replica("url: 'http://h:9090', metrics: '/metrics?a=b'"),
			"groups[0].shards[0].replicas[0].metrics", "write a path below url",
		},
		{
			"a password from elsewhere", replica("url: 'http://h:9090', http_client: {basic_auth: {username: a, password: '${file:/run/x}'}}"),
			"groups[0].shards[0].replicas[0].http_client.basic_auth.password", unfilled + "name the file by password_file",
		},
		{
			"a header from the environment", replica("url: 'http://h:9090', headers: {X-A: 'b ${ENV:C}'}"),
			"groups[0].shards[0].replicas[0].headers.X-A", unfilled + "write the value out",
		},
		{"a label from a variable", group("labels: {cluster: '${CLUSTER}'}"), "groups[0].labels.cluster", unfilled + "write the value out"},
		{"a path from elsewhere", minimal + "state_dir: ${file:x}\n", "state_dir", unfilled + "write the value out"},
		{
			"a token from a variable", minimal + "tenants: [{name: a, bearer_token: '${TOKEN}'}]\n",
			"tenants[0].bearer_token", unfilled + "name the file by bearer_token_file",
		},
		{
			"a tenant's name from a variable", minimal + "tenants: [{name: a, basic_auth: {username: '${USER}', password_bcrypt: x}}]\n",
			"tenants[0].basic_auth.username", unfilled + "write the value out",
		},
		{"deny without a reason", minimal + "deny: [{name: a, user: b}]\n", "deny[0].reason", "it is what those who are refused are told"},
		{"deny nothing", deny("shadow: true"), "deny[0]", "it names nothing to refuse"},
		{"deny by a broken regex", deny(`regex: "("`), "deny[0].regex", "missing closing"},
		{"deny by a broken selector", deny(`selector: "{"`), "deny[0].selector", "parse error"},
		{"deny until never", deny("user: c, until: -1h"), "deny[0].until", "a distance from now"},
		{"deny an endpoint that is none", deny("endpoint: query-range"), "deny[0].endpoint", "did you mean query_range?"},
		{"deny a tenant where there is none", deny("tenant: a"), "deny[0].tenant", "there are no tenants"},
		{"deny twice", minimal + "deny: [{name: a, reason: b, user: c}, {name: a, reason: b, user: d}]\n", "deny[1].name", "is taken by deny[0]"},
		{"deny by too many regexes", minimal + "deny:\n" + manyRegexes(), "deny", "21 rules have a regex"},
		{"jwt without issuer", jwt(`audience: [a], claim: c, jwks_file: f`), "jwt.issuer", "it is missing"},
		{"jwt without audience", jwt(`issuer: i, claim: c, jwks_file: f`), "jwt.audience", "1 to 100 names"},
		{"jwt with an empty audience", jwt(`issuer: i, audience: [""], claim: c, jwks_file: f`), "jwt.audience", "none of them empty"},
		{"jwt without claim", jwt(`issuer: i, audience: [a], jwks_file: f`), "jwt.claim", "it is missing"},
		{"jwt without keys", jwt(`issuer: i, audience: [a], claim: c`), "jwt", "give one of jwks_file and jwks_url"},
		{"jwt with keys twice", jwt(`issuer: i, audience: [a], claim: c, jwks_file: f, jwks_url: "https://h"`), "jwt", "give one of"},
		{"jwt over plain http", jwt(`issuer: i, audience: [a], claim: c, jwks_url: "http://h/keys"`), "jwt.jwks_url", "replaced on the way"},
		{"jwt with credentials", jwt(`issuer: i, audience: [a], claim: c, jwks_url: "https://u:p@h/keys"`), "jwt.jwks_url", "without credentials"},
		{"jwt client of a file", jwt(`issuer: i, audience: [a], claim: c, jwks_file: f, http_client: {proxy_url: "http://p"}`), "jwt.http_client", "it is for jwks_url"},
		{"jwt follows redirects", jwt(`issuer: i, audience: [a], claim: c, jwks_url: "https://h", http_client: {follow_redirects: true}`), "jwt.http_client.follow_redirects", "never followed"},
		{"jwt of nobody", minimal + "jwt: {issuer: i, audience: [a], claim: c, jwks_file: f}\n", "jwt", "no tenant has jwt_values"},
		{"jwt says nothing", minimal + "jwt: {}\n", "jwt", "it says nothing"},
		{"jwt_values without jwt", minimal + "tenants: [{name: a, jwt_values: [x]}]\n", "tenants[0].jwt_values", "no issuer"},
		{"jwt_values of two", minimal + "tenants: [{name: a, jwt_values: [x, y]}, {name: b, jwt_values: [y]}]\n", "tenants[1].jwt_values[0]", "the value is that of tenants[0].jwt_values[1] too"},
		{"jwt_values empty", minimal + "tenants: [{name: a, jwt_values: ['']}]\n", "tenants[0].jwt_values[0]", "of whoever has none"},
		{"empty", "", "", "the file is empty"},
		{"comment only", "# nothing\n", "", "the file is empty"},
		{"null", "~\n", "", "the file is empty"},
		{"list", "- a\n", "", "must be a mapping"},
		{"syntax", "groups: [\n", "", "not valid YAML"},
		{"tab", "groups:\n\t- a\n", "", "not valid YAML"},
		{"binary", "groups: \xff\xfe\n", "", "not UTF-8"},
		{"second document", minimal + "---\nlimits: {}\n", "", "second document"},
		{"anchor", "memory: &a {budget: 1MiB}\n" + minimal, "memory", "anchors"},
		{"alias", minimal + "memory: &a {budget: 1MiB}\nlimits: *a\n", "limits", "aliases"},
		{"merge key", minimal + "memory: &a {budget: 1MiB}\nlimits: {<<: *a}\n", `limits["<<"]`, "aliases"},
		{"tag", minimal + "memory: !!map {budget: 1MiB}\n", "memory", "tags"},
		{"key twice", minimal + "memory: {budget: 1MiB, budget: 2MiB}\n", "memory.budget", "stands twice"},
		{"key twice in http_client", replica(`url: "http://h", http_client: {enable_http2: true, enable_http2: false}`), "groups[0].shards[0].replicas[0].http_client.enable_http2", "stands twice"},
		{"list as key", minimal + "? [a]\n: b\n", "", "a key must be one word"},
		{"no groups", "limits: {}\n", "groups", "at least one group"},
		{"null groups", "groups:\n", "groups", "at least one group"},
		{"null value", minimal + "memory: {budget: }\n", "memory.budget", "has no value"},
		{"empty item", "groups:\n  -\n", "groups[0]", "the list item is empty"},
		{"list for mapping", minimal + "memory: [1]\n", "memory", "must be a mapping"},
		{"mapping for list", "groups: {name: a}\n", "groups", "must be a list"},
		{"mapping for word", minimal + "partial_response: {a: b}\n", "partial_response", "must be one value"},
		{"unknown with sibling", minimal + "limits: {max_serie: 5}\n", "limits.max_serie", "did you mean max_series?"},
		{"unknown from elsewhere", minimal + "budget: 5MiB\n", "budget", "did you mean memory.budget?"},
		{
			"key of limits in the wrong place", minimal + "max_series_touched: 5\n", "max_series_touched",
			"did you mean limits.max_series_touched?",
		},
		{"unknown entirely", minimal + "zzzzzzzz: 1\n", "zzzzzzzz", "the keys here are groups, limits"},
		{"endpoint path spelling", minimal + "limits: {endpoints: {status/tsdb: {timeout: 1s}}}\n", `limits.endpoints["status/tsdb"]`, "did you mean status_tsdb?"},
		{
			"endpoint unknown", minimal + "limits: {endpoints: {tail: {timeout: 1s}}}\n", "limits.endpoints.tail",
			"the endpoints are query, query_range",
		},
		{
			"endpoint zero", minimal + "limits: {endpoints: {series: {max_series: 0}}}\n", "limits.endpoints.series.max_series",
			"0 does not mean unlimited",
		},
		{"zero touched", minimal + "limits: {max_series_touched: 0}\n", "limits.max_series_touched", "0 does not mean unlimited"},
		{"zero duration", minimal + "limits: {timeout: 0s}\n", "limits.timeout", "0 does not mean unlimited"},
		{"negative number", minimal + "limits: {max_samples: -1}\n", "limits.max_samples", "0 does not mean unlimited"},
		{"zero bytes", minimal + "limits: {max_query_bytes: 0KiB}\n", "limits.max_query_bytes", "0 does not mean unlimited"},
		{"huge number", minimal + "limits: {max_series: 99999999999999999999}\n", "limits.max_series", "not a whole number"},
		{"huge bytes", minimal + "memory: {budget: 99999999TiB}\n", "memory.budget", "more bytes than any machine has"},
		{"fraction", minimal + "limits: {max_series: 1.5}\n", "limits.max_series", "not a whole number"},
		{"no unit", minimal + "limits: {timeout: 25}\n", "limits.timeout", "write 25s if seconds are meant"},
		{"inverted span", group("from: -1d, until: -2d"), "groups[0].from", "must lie before until"},
		{"equal span", group("from: -1d, until: -24h"), "groups[0].from", "must lie before until"},
		{"relative future", group("from: 5d"), "groups[0].from", "write -5d"},
		{"no such day", group("from: 2026-02-30T00:00:00Z"), "groups[0].from", "not a time"},
		{"far year", group("from: 1900-01-01T00:00:00Z"), "groups[0].from", "the year"},
		{"a group's partial_response", group(`partial_response: maybe`), "groups[0].partial_response", `"maybe" is neither abort nor warn`},
		{"empty heartbeat", group(`heartbeat: ""`), "groups[0].heartbeat", "is empty"},
		{"match-all heartbeat", group(`heartbeat: '{job=~".*"}'`), "groups[0].heartbeat", "matches everything"},
		{"long heartbeat", group(`heartbeat: '` + strings.Repeat("-", 5000) + `'`), "groups[0].heartbeat", "longer than 1024"},
		{"le", group("replica_labels: [le]"), "groups[0].replica_labels[0]", "belongs to the metric itself"},
		{"query in URL", replica(`url: "http://h/?a=b"`), "groups[0].shards[0].replicas[0].url", "query string"},
		{"fragment", replica(`url: "http://h/#a"`), "groups[0].shards[0].replicas[0].url", "fragment"},
		{"no host", replica(`url: "http:///x"`), "groups[0].shards[0].replicas[0].url", "host is missing"},
		{"no scheme", replica(`url: "localhost:9090"`), "groups[0].shards[0].replicas[0].url", "write http://localhost:9090"},
		{"other scheme", replica(`url: "unix:///x"`), "groups[0].shards[0].replicas[0].url", "use http or https"},
		{"port", replica(`url: "http://h:99999"`), "groups[0].shards[0].replicas[0].url", "the port 99999"},
		{"dots", replica(`url: "http://h/a/../b"`), "groups[0].shards[0].replicas[0].url", "must be plain"},
		{
			"line break in a header", replica(`url: "http://h", headers: {X-A: "a\r\nb"}`), "groups[0].shards[0].replicas[0].headers.X-A",
			"cannot carry",
		},
		{
			"bad header name", replica(`url: "http://h", headers: {"X A": b}`), `groups[0].shards[0].replicas[0].headers["X A"]`,
			"not a header name",
		},
		{"hop by hop", replica(`url: "http://h", headers: {transfer-encoding: b}`), "groups[0].shards[0].replicas[0].headers.transfer-encoding", "belongs to the connection"},
		{"authorization twice", replica(`url: "http://h", headers: {authorization: b}, http_client: {basic_auth: {username: a}}`), "groups[0].shards[0].replicas[0].headers.authorization", "keep one"},
		{"header twice", replica(`url: "http://h", headers: {X-A: b}, http_client: {http_headers: {x-a: {values: [c]}}}`), "groups[0].shards[0].replicas[0].headers.X-A", "keep one"},
		{"http_client unknown key", replica(`url: "http://h", http_client: {tls_config: {cafile: x}}`), "groups[0].shards[0].replicas[0].http_client.tls_config.cafile", "did you mean ca_file?"},
		{"http_client type", replica(`url: "http://h", http_client: {enable_http2: perhaps}`), "groups[0].shards[0].replicas[0].http_client", "cannot unmarshal"},
		{"http_client header", replica(`url: "http://h", http_client: {http_headers: {Accept: {values: [c]}}}`), "groups[0].shards[0].replicas[0].http_client.http_headers.Accept", "belongs to the connection"},
		{"shard after its group", "groups: [{name: a, until: 2020-01-01T00:00:00Z, shards: [{from: 2021-01-01T00:00:00Z, replicas: [{url: \"http://h\"}]}]}]\n", "groups[0].shards[0].from", "never be asked"},
		{"shard before its group", "groups: [{name: a, from: -1d, shards: [{until: -2d, replicas: [{url: \"http://h\"}]}]}]\n", "groups[0].shards[0].until", "never be asked"},
	}
}

// TestProblems gives one problem a row.
func TestProblems(t *testing.T) {
	for _, tc := range slices.Concat(problemRows(), hashmodRows(), kubernetesRows(), laneRows()) {
		t.Run(tc.name, func(t *testing.T) {
			_, err := parseAt([]byte(tc.text), ".", testNow)
			var problems Problems
			if !errors.As(err, &problems) {
				t.Fatalf("got %v", err)
			}
			for _, p := range problems {
				if p.Path == tc.path && strings.Contains(p.Message, tc.message) {
					return
				}
			}
			t.Errorf("want %s: …%s…, got:\n%v", tc.path, tc.message, err)
		})
	}
}

func TestOverlaps(t *testing.T) {
	for _, tc := range []struct {
		name, first, second string
		overlap             bool
	}{
		{"both open", "", "", true},
		{"relative, meeting", "from: -14d", "until: -14d", false},
		{"relative, apart", "from: -14d", "until: -15d", false},
		{"relative, over", "from: -14d", "until: -13d", true},
		{"absolute, meeting", "from: 2026-10-01T00:00:00Z", "until: 2026-10-01T00:00:00Z", false},
		{"absolute, over", "from: 2026-10-01T00:00:00Z", "until: 2026-10-02T00:00:00Z", true},
		{"mixed, over now", "from: -100d", "until: 2026-10-01T00:00:00Z", true},
		{"mixed, over one day", "from: 2026-10-01T00:00:00Z", "until: -100d", true},
		{"mixed, never again", "from: -1d", "until: 2026-10-01T00:00:00Z", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text := "groups:\n"
			for i, span := range []string{tc.first, tc.second} {
				text += fmt.Sprintf("  - {name: g%d, labels: {cluster: a}, shards: [{replicas: [{url: \"http://h%d\"}]}], %s}\n", i, i, span)
			}
			_, err := parseAt([]byte(text), ".", testNow)
			if got := err != nil; got != tc.overlap {
				t.Errorf("got %v", err)
			}
			if _, err := parseAt([]byte(strings.ReplaceAll(text, "labels: {cluster: a}, ", "")), ".", testNow); err != nil {
				t.Errorf("groups without labels: %v", err)
			}
		})
	}
}

func TestSameServerTwice(t *testing.T) {
	for _, tc := range []struct {
		a, b string
		same bool
	}{
		{"http://h:9090", "http://H:9090/", true},
		{"http://h", "http://h:80", true},
		{"https://h:443/x/", "https://h/x", true},
		{"http://h", "https://h", false},
		{"http://h/a", "http://h/b", false},
		{"http://h:443", "https://h", false},
		{"http://[::1]:80", "http://[::1]", true},
	} {
		_, err := parseAt(fmt.Appendf(nil, "groups: [{name: a, shards: [{replicas: [{url: %q}]}, {replicas: [{url: %q}]}]}]", tc.a, tc.b), ".", testNow)
		if got := err != nil; got != tc.same {
			t.Errorf("%s and %s: %v", tc.a, tc.b, err)
		}
	}
}

func TestLimitsJSON(t *testing.T) {
	cfg := parse(t, minimal+"limits: {timeout: 20s}\n")
	var got struct {
		Timeout          string                    `json:"timeout"`
		MaxSeries        int                       `json:"max_series"`
		MaxResponseBytes string                    `json:"max_response_bytes"`
		MaxRange         string                    `json:"max_range"`
		Endpoints        map[string]map[string]any `json:"endpoints"`
	}
	if err := json.Unmarshal(cfg.LimitsJSON(), &got); err != nil {
		t.Fatal(err)
	}
	if got.Timeout != "20s" || got.MaxSeries != 50000 || got.MaxResponseBytes != "64MiB" || got.MaxRange != "31d" ||
		len(got.Endpoints) != len(endpointIDs) || got.Endpoints["series"]["timeout"] != "10s" {
		t.Errorf("got %s", cfg.LimitsJSON())
	}
	first := string(cfg.LimitsJSON())
	for range 20 {
		if again := string(cfg.LimitsJSON()); again != first {
			t.Fatalf("the order changes:\n%s\n%s", first, again)
		}
	}
}

func TestFileTooLarge(t *testing.T) {
	file := filepath.Join(t.TempDir(), "large.yaml")
	if err := os.WriteFile(file, []byte(minimal), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, 100<<20); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(file); err == nil || !strings.Contains(err.Error(), "larger than 4MiB") {
		t.Errorf("got %v", err)
	}
}

// TestBombs feeds what makes careless readers of YAML grow: it must be refused without being
// expanded.
func TestBombs(t *testing.T) {
	var laughs strings.Builder
	laughs.WriteString("a0: &a0 [x, x]\n")
	for i := 1; i < 40; i++ {
		fmt.Fprintf(&laughs, "a%d: &a%d [*a%d, *a%d, *a%d]\n", i, i, i-1, i-1, i-1)
	}
	for name, text := range map[string]string{
		"billion laughs":          laughs.String(),
		"laughs in http_client":   "x: &x {a: b}\n" + `groups: [{name: a, shards: [{replicas: [{url: "http://h", http_client: {basic_auth: *x}}]}]}]`,
		"self-reference":          "groups: &g [*g]\n",
		"deep lists":              "groups: " + strings.Repeat("[", 9000),
		"deep lists, closed":      "groups: " + strings.Repeat("[", 9000) + strings.Repeat("]", 9000),
		"many unknown keys":       manyKeys(5000),
		"many groups":             "groups: [" + strings.Repeat("{name: a, labels: {a: b}}, ", 4000) + "]",
		"many replica labels":     "groups: [{name: a, replica_labels: [" + strings.Repeat("a, ", 20_000) + "]}]",
		"many empty replicas":     "groups: [{name: a, shards: [{replicas: [" + strings.Repeat("{}, ", 10_000) + "]}]}]",
		"one key of a megabyte":   strings.Repeat("k", 1<<20) + ": 1\n",
		"one value of a megabyte": "partial_response: " + strings.Repeat("v", 1<<20) + "\n",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseAt([]byte(text), ".", testNow)
			if err == nil {
				t.Error("it was taken")
			} else if len(err.Error()) > 128<<10 {
				t.Errorf("the answer has %d bytes", len(err.Error()))
			}
		})
	}
}

func manyKeys(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "k%d: 1\n", i)
	}
	return b.String()
}

func TestLoadErrors(t *testing.T) {
	if _, err := Load(filepath.Join(t.TempDir(), "none.yaml")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if _, err := Load(t.TempDir()); err == nil {
		t.Error("a folder was loaded")
	}
}

func TestCheckFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "pw"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := `groups: [{name: a, shards: [{replicas: [{url: "http://h", http_client: {basic_auth: {username: u, password_file: pw}, tls_config: {ca_file: ca.pem}, http_headers: {X-A: {files: [h]}}}}]}]}]`
	cfg, err := Parse([]byte(text), dir)
	if err != nil {
		t.Fatal(err)
	}
	var problems Problems
	if !errors.As(cfg.CheckFiles(), &problems) || len(problems) != 2 ||
		problems[0].Path != "groups[0].shards[0].replicas[0].http_client.http_headers.X-A.files[0]" || problems[1].Path != "groups[0].shards[0].replicas[0].http_client.tls_config.ca_file" {
		t.Errorf("got %v", problems)
	}
	if err := parse(t, minimal).CheckFiles(); err != nil {
		t.Error(err)
	}
	if err := parse(t, minimal+"drop_rules: {plan: /missing/plan.json}\n").CheckFiles(); !errors.As(err, &problems) || len(problems) != 1 ||
		problems[0].Path != "drop_rules.plan[0]" {
		t.Errorf("got %v", err)
	}
}

// TestDropRules: one plan needs no list, and paths start from the folder of the file.
func TestDropRules(t *testing.T) {
	for text, want := range map[string][]string{
		"":                                      nil,
		"drop_rules:\n":                         nil,
		"drop_rules: {}\n":                      nil,
		"drop_rules: {plan: plan.json}\n":       {"/etc/spillway/plan.json"},
		"drop_rules: {plan: [/a.json, b.json]}": {"/a.json", "/etc/spillway/b.json"},
	} {
		cfg, err := Parse([]byte(minimal+text), "/etc/spillway")
		if err != nil || !slices.Equal(cfg.DropRules.Plan, want) {
			t.Errorf("%q: %q, %v; want %q", text, cfg.DropRules.Plan, err, want)
		}
	}
	for text, want := range map[string]string{
		"drop_rules: {plan: }":                 "no plan is named",
		"drop_rules: {plan: []}":               "no plan is named",
		"drop_rules: {plan: {a: b}}":           "drop_rules.plan: must be a list, and is a mapping",
		"drop_rules: {plan: ''}":               "drop_rules.plan[0]: the path is empty",
		"drop_rules: plan.json":                "drop_rules: must be a mapping with the keys plan",
		"drop_rules: {plans: plan.json}":       "did you mean plan?",
		"drop_rules: {plan: [a.json, a.json]}": "drop_rules.plan[1]: the plan a.json is listed twice",
	} {
		if _, err := Parse([]byte(minimal+text), "/etc/spillway"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestBytes(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want Bytes
		out  string
	}{
		{"64MiB", 64 << 20, "64MiB"},
		{"64MB", 64 << 20, "64MiB"},
		{"1.5GiB", 3 << 29, "1536MiB"},
		{"4096", 4096, "4KiB"},
		{"100B", 100, "100B"},
		{"1000", 1000, "1000B"},
		{"0", 0, "0B"},
	} {
		if got, err := ParseBytes(tc.in); err != nil || got != tc.want || got.String() != tc.out {
			t.Errorf("%s: got %d %s, %v", tc.in, got, got, err)
		}
	}
	for _, in := range []string{"", "MiB", "-1MiB", "64 MiB", "64mib", "1e3KiB", "64M", "1..5MiB", "9EiB", "0x10", "NaN", "Inf", "64iB"} {
		if got, err := ParseBytes(in); err == nil {
			t.Errorf("%q was taken as %d", in, got)
		}
	}
}

func TestMoment(t *testing.T) {
	for in, want := range map[string]int64{
		"-14d":                      testNow.AddDate(0, 0, -14).UnixMilli(),
		"-1h30m":                    testNow.Add(-90 * time.Minute).UnixMilli(),
		"2026-10-01T00:00:00Z":      1790812800000,
		"2026-10-01T02:00:00+02:00": 1790812800000,
		"2026-10-01T00:00:00.5Z":    1790812800500,
	} {
		m, err := ParseMoment(in)
		if err != nil || m.At(testNow) != want {
			t.Errorf("%s: got %d, %v", in, m.At(testNow), err)
		}
		if again, err := ParseMoment(m.String()); err != nil || again.At(testNow) != want {
			t.Errorf("%s is spelled %s: %v", in, m, err)
		}
	}
	if from, until := Span(Moment{}, Moment{}, testNow); from != math.MinInt64 || until != math.MaxInt64 {
		t.Errorf("an open span is %d, %d", from, until)
	}
}

func TestDefaultHTTPClientIsNotShared(t *testing.T) {
	if commonconfig.DefaultHTTPClientConfig.FollowRedirects == defaultHTTPClient().FollowRedirects {
		t.Error("redirects are followed, or the library's default was changed")
	}
}

// manyRegexes are one rule with a regex more than there may be.
func manyRegexes() string {
	var b strings.Builder
	for i := range 21 {
		fmt.Fprintf(&b, "  - {name: r%d, reason: b, regex: a}\n", i)
	}
	return b.String()
}
