package shard

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	commonconfig "github.com/prometheus/common/config"

	"github.com/spillwayproject/spillway/proxy/config"
)

func TestSpan(t *testing.T) {
	now := time.Date(2026, 10, 15, 0, 0, 0, 0, time.UTC)
	day := 24 * time.Hour
	abs := func(at time.Time) config.Moment { return config.Moment{Abs: at, Set: true} }
	rel := func(d time.Duration) config.Moment { return config.Moment{Rel: -d, Set: true} }
	for _, tc := range []struct {
		name                string
		gFrom, gUntil       config.Moment
		sFrom, sUntil       config.Moment
		wantFrom, wantUntil int64
	}{
		{name: "unbounded", wantFrom: math.MinInt64, wantUntil: math.MaxInt64},
		{name: "the group's", gFrom: rel(14 * day), wantFrom: now.Add(-14 * day).UnixMilli(), wantUntil: math.MaxInt64},
		{
			name: "the shard's within it", gFrom: rel(14 * day), sFrom: abs(now.Add(-day)), wantFrom: now.Add(-day).UnixMilli(),
			wantUntil: math.MaxInt64,
		},
		{
			name: "the group's is narrower", gFrom: rel(day), gUntil: rel(time.Hour), sFrom: rel(9 * day),
			wantFrom:  now.Add(-day).UnixMilli(),
			wantUntil: now.Add(-time.Hour).UnixMilli(),
		},
		{
			name: "empty", gFrom: rel(day), sUntil: rel(2 * day), wantFrom: now.Add(-day).UnixMilli(),
			wantUntil: now.Add(-2 * day).UnixMilli(),
		},
	} {
		s := &Shard{Group: &Group{From: tc.gFrom, Until: tc.gUntil}, From: tc.sFrom, Until: tc.sUntil}
		if from, until := s.Span(now); from != tc.wantFrom || until != tc.wantUntil {
			t.Errorf("%s: [%d, %d), want [%d, %d)", tc.name, from, until, tc.wantFrom, tc.wantUntil)
		}
	}
}

// TestUpstreamKey: everything that decides how a server is reached is in the key, secrets (which
// print as stars) included.
func TestUpstreamKey(t *testing.T) {
	base := func() config.Replica {
		return config.Replica{URL: "http://a:9090", Type: config.TypePrometheus, HTTPClient: commonconfig.DefaultHTTPClientConfig}
	}
	key := func(change func(*config.Replica)) string {
		t.Helper()
		r := base()
		change(&r)
		k, err := upstreamKey(&r)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	auth := func(secret string) func(*config.Replica) {
		return func(r *config.Replica) {
			r.HTTPClient.Authorization = &commonconfig.Authorization{Credentials: commonconfig.Secret(secret)}
		}
	}
	basic := func(secret string) func(*config.Replica) {
		return func(r *config.Replica) {
			r.HTTPClient.BasicAuth = &commonconfig.BasicAuth{Username: "u", Password: commonconfig.Secret(secret)}
		}
	}
	header := func(secret string) func(*config.Replica) {
		return func(r *config.Replica) {
			r.HTTPClient.HTTPHeaders = &commonconfig.Headers{Headers: map[string]commonconfig.Header{
				"X": {Secrets: []commonconfig.Secret{commonconfig.Secret(secret)}},
			}}
		}
	}
	changes := []func(*config.Replica){
		func(*config.Replica) {},
		func(r *config.Replica) { r.URL = "http://b:9090" },
		func(r *config.Replica) { r.URL = "http://a:9090/prometheus" },
		func(r *config.Replica) { r.Headers = map[string]config.Secret{"X-Scope-Orgid": "a"} },
		func(r *config.Replica) { r.Headers = map[string]config.Secret{"X-Scope-Orgid": "b"} },
		auth("a"), auth("b"), basic("a"), basic("b"), header("a"), header("b"),
		func(r *config.Replica) { r.HTTPClient.TLSConfig.InsecureSkipVerify = true },
		func(r *config.Replica) { r.HTTPClient.BearerToken = "a" },
		func(r *config.Replica) { r.HTTPClient.OAuth2 = &commonconfig.OAuth2{ClientSecret: "a"} },
	}
	seen := map[string]int{}
	for i, c := range changes {
		k := key(c)
		if j, ok := seen[k]; ok {
			t.Errorf("changes %d and %d give the same key", i, j)
		}
		seen[k] = i
		if k != key(c) {
			t.Errorf("change %d gives two keys", i)
		}
	}
	if key(func(r *config.Replica) { r.URL = "http://A:9090/" }) != key(func(*config.Replica) {}) {
		t.Error("two spellings of one server give two keys")
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 10, 15, 0, 0, 0, 0, time.UTC)
	for in, want := range map[string]time.Duration{
		"": 0, "3": 3 * time.Second, "-3": 0, "99999999": time.Hour, "soon": 0, "1e9": 0,
		now.Add(5 * time.Second).Format("Mon, 02 Jan 2006 15:04:05 GMT"): 5 * time.Second,
		now.Add(-time.Hour).Format("Mon, 02 Jan 2006 15:04:05 GMT"):      0,
	} {
		if got := retryAfter(in, now); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

func TestMargin(t *testing.T) {
	for _, d := range []time.Duration{time.Millisecond, 50 * time.Millisecond, time.Second, 25 * time.Second, time.Hour} {
		if m := margin(d); m <= 0 || m > d/4 || m > 500*time.Millisecond {
			t.Errorf("margin of %s is %s", d, m)
		}
	}
}

// TestOtherStores: that a server reads from other stores is seen in its configuration, however
// large that is, and nothing else is taken for it.
func TestOtherStores(t *testing.T) {
	large := "scrape_configs:\n" + strings.Repeat("- job_name: remote_read\n", smallPage/20)
	for text, want := range map[string]bool{
		"global:\n  scrape_interval: 1m\n":                                               false,
		"global:\n  scrape_interval: 1m\nremote_read:\n- url: http://127.0.0.1:1/read\n": true,
		"remote_read:\n- url: http://127.0.0.1:1/read\nglobal:\n  external_labels: {}\n": true,
		"global:\n  external_labels:\n    remote_read: x\nremote_write:\n- url: x\n":     false,
		"global: {}\n" + large:                              false,
		"global: {}\n" + large + "remote_read:\n- url: x\n": true,
	} {
		data, err := json.Marshal(map[string]string{"yaml": text})
		if err != nil {
			t.Fatal(err)
		}
		if g, err := globalSettings(data); err != nil || g.Elsewhere != want {
			t.Errorf("%.60q: %v, %v", text, g.Elsewhere, err)
		}
	}
}

// FuzzExternalLabels: whatever stands in status/config, the reader returns.
func FuzzExternalLabels(f *testing.F) {
	f.Add(`{"yaml":"global:\n  external_labels:\n    cluster: a\n    n: 1\n"}`)
	f.Add(`{"yaml":"a: &a [*a]"}`)
	f.Add(`{"yaml":"global: []"}`)
	f.Add(`[]`)
	f.Fuzz(func(t *testing.T, text string) {
		g, err := globalSettings([]byte(text))
		if err == nil && g.ExternalLabels == nil {
			t.Error("neither labels nor an error")
		}
		if err != nil && strings.Contains(err.Error(), "panic") {
			t.Error(err)
		}
	})
}
