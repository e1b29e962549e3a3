package identity

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func request(headers ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/api/v1/query", nil)
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return r
}

func TestFromRequest(t *testing.T) {
	for _, tc := range []struct {
		name    string
		headers []string
		want    Caller
	}{
		{"nobody", nil, Caller{}},
		{
			"dashboard",
			[]string{"X-Grafana-User", "ada", "X-Dashboard-Uid", "d1", "X-Panel-Id", "7"},
			Caller{User: "ada", Dashboard: "d1", Panel: "7", Claimed: true},
		},
		{"alert", []string{"FromAlert", "true", "X-Rule-Uid", "r1"}, Caller{Rule: "r1", Alert: true, Claimed: true}},
		{"not an alert", []string{"FromAlert", "false"}, Caller{}},
		{"first counts", []string{"X-Grafana-User", "ada", "X-Grafana-User", "eve"}, Caller{User: "ada", Claimed: true}},
		{"taking stock", []string{"User-Agent", "spillway-relabel/1.2.3"}, Caller{Inventory: true}},
		{
			"taking stock for somebody",
			[]string{"User-Agent", "spillway-relabel/1.2.3", "X-Dashboard-Uid", "d1"},
			Caller{Dashboard: "d1", Claimed: true},
		},
		{
			"an agent",
			[]string{"User-Agent", "prometheus-mcp/0.18.0 (https://github.com/prometheus/prometheus-mcp)"},
			Caller{Agent: "prometheus-mcp"},
		},
		{
			"an agent for somebody",
			[]string{"User-Agent", "mcp-grafana/0.7.0", "X-Grafana-User", "ada"},
			Caller{User: "ada", Claimed: true, Agent: "mcp-grafana"},
		},
		{"a ruler", []string{"User-Agent", "thanos-rule"}, Caller{Ruler: true}},
		{"no ruler", []string{"User-Agent", "thanos-rule-syncer"}, Caller{}},
		{"no agent", []string{"User-Agent", "prometheus-mcp-else/1"}, Caller{}},
		{"an agent without a version", []string{"User-Agent", "mcp-grafana"}, Caller{}},
		{"an agent behind another", []string{"User-Agent", "Go-http-client/1.1 mcp-grafana/1"}, Caller{}},
		{"another tool", []string{"User-Agent", "spillway-relabeller/1.2.3"}, Caller{}},
		{"empty", []string{"X-Grafana-User", " "}, Caller{}},
		{"other spellings and other headers", []string{
			"X_Grafana_User", "eve", "X-Scope-OrgID", "eve", "X-Forwarded-User", "eve", "X-Forwarded-For", "1.2.3.4", "Forwarded",
			"for=eve", "X-Real-IP", "1.2.3.4",
			"X-Request-Id", "eve", "X-Rule-Name", "eve", "Authorization", "Basic ZXZlOmV2ZQ==",
		}, Caller{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := FromRequest(request(tc.headers...)); got != tc.want {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestClean(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"plain", "ada", "ada"},
		{"trimmed", "  ada lovelace\t", "ada lovelace"},
		{"other scripts", "Зоя 田中", "Зоя 田中"},
		{"line breaks", "a\r\nb\x00c", "abc"},
		{"terminal escape", "\x1b[31mred", "[31mred"},
		{"direction marks", "a\u202eb\u200fc", "abc"},
		{"line separator", "a\u2028b", "ab"},
		{"not UTF-8", "a\xff\xfeb", "ab"},
		{"latin-1", "Jos\xe9", "Jos"},
		{"long", strings.Repeat("x", 300), strings.Repeat("x", MaxBytes)},
		{"cut at a rune", strings.Repeat("x", MaxBytes-1) + "田", strings.Repeat("x", MaxBytes-1)},
		{"megabytes", strings.Repeat("田", 1<<20), strings.Repeat("田", MaxBytes/3)},
		{"nothing that prints", "\x00\x01\u202e", ""},
		{"space behind what is taken out", "\x00 a \x00", "a"},
	} {
		if got := Clean(tc.in); got != tc.want {
			t.Errorf("%s: got %q", tc.name, got)
		}
	}
}

func FuzzClean(f *testing.F) {
	for _, s := range []string{"ada", "a\r\nb", "\xff", "a\u202eb", strings.Repeat("田", 100), " \u00a0x\u3000", "\u0300a"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := Clean(s)
		if len(got) > MaxBytes || !utf8.ValidString(got) || Clean(got) != got || got != strings.TrimSpace(got) {
			t.Fatalf("%q became %q", s, got)
		}
		if i := strings.IndexFunc(got, func(r rune) bool { return !unicode.IsGraphic(r) }); i >= 0 {
			t.Fatalf("%q became %q, which does not print", s, got)
		}
		// What net/http lets through must survive as a header again, for whoever passes it on.
		r := request()
		r.Header[HeaderUser] = []string{s}
		if c := FromRequest(r); c.User != got || c.Claimed != (got != "") {
			t.Fatalf("%q became %+v", s, c)
		}
	})
}

func TestContext(t *testing.T) {
	if got := From(t.Context()); got != (Request{}) {
		t.Errorf("got %+v", got)
	}
	want := Request{ID: NewID(), Tenant: "research"}
	if got := From(With(t.Context(), want)); got != want {
		t.Errorf("got %+v", got)
	}
}

func TestNewID(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		id := NewID()
		if len(id) != 16 || seen[id] {
			t.Fatalf("got %q", id)
		}
		seen[id] = true
	}
}

func TestLogValue(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	log.Info("x", "caller", Caller{User: "ada", Panel: "7", Alert: true, Claimed: true})
	if !strings.Contains(out.String(), "caller.user=ada caller.panel=7 caller.alert=true caller.claimed=true\n") {
		t.Errorf("got %s", out.String())
	}
}

// TestPeer: who has the connection counts, whatever the headers claim.
func TestPeer(t *testing.T) {
	for at, want := range map[string]string{
		"192.0.2.7:4711": "192.0.2.7", "[2001:db8::1]:80": "2001:db8::1", "[::ffff:192.0.2.7]:80": "192.0.2.7",
		"[fe80::1%eth0]:80": "fe80::1%eth0", "": "", "@": "",
	} {
		r := request("X-Forwarded-For", "203.0.113.9", "Forwarded", "for=203.0.113.9", "X-Real-IP", "203.0.113.9", "X-Grafana-User", "eve")
		if r.RemoteAddr = at; Peer(r) != want {
			t.Errorf("%q is the peer %q, want %q", at, Peer(r), want)
		}
	}
}

// TestHolder: one machine has one share, though it may choose among 2^64 addresses of IPv6, and
// Peer still tells them apart.
func TestHolder(t *testing.T) {
	for at, want := range map[string]string{
		"192.0.2.7:4711": "192.0.2.7", "[::ffff:192.0.2.7]:80": "192.0.2.7", "192.0.2.8:4711": "192.0.2.8",
		"[2001:db8:0:1::1]:80": "2001:db8:0:1::/64", "[2001:db8:0:1:ffff::2]:81": "2001:db8:0:1::/64",
		"[2001:db8:0:2::1]:80": "2001:db8:0:2::/64",
		"[fe80::1%eth0]:80":    "fe80::/64", "[::1]:80": "::/64", "": "", "@": "",
	} {
		r := request("X-Forwarded-For", "203.0.113.9")
		if r.RemoteAddr = at; HolderOf(r) != want {
			t.Errorf("%q takes from the share of %q, want %q", at, HolderOf(r), want)
		}
	}
	if p := Holder(netip.Addr{}); p.IsValid() {
		t.Errorf("nobody is %s", p)
	}
}
