package tenant

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/promql/parser"
	"golang.org/x/crypto/bcrypt"

	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/identity"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

func directory(t *testing.T, tenants ...config.Tenant) *Directory {
	t.Helper()
	d, err := New(&config.Config{Tenants: tenants}, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func request(t *testing.T, change func(*http.Request)) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://x/", nil)
	if err != nil {
		t.Fatal(err)
	}
	change(r)
	return r
}

// TestIdentify: who each request is from, and who is nobody.
func TestIdentify(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("t0ken\n")
	hash, err := bcrypt.GenerateFromPassword([]byte("pass"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	bob := config.TenantPassword{Username: "bob", PasswordBcrypt: config.Secret(hash)}
	d := directory(t, config.Tenant{Name: "a", BearerTokenFile: file}, config.Tenant{Name: "b", BasicAuth: bob})
	for _, c := range []struct {
		what, want string
		change     func(*http.Request)
	}{
		{"nothing", "", func(*http.Request) {}},
		{"the token", "a", func(r *http.Request) { r.Header.Set("Authorization", "bearer t0ken") }},
		{"another token", "", func(r *http.Request) { r.Header.Set("Authorization", "Bearer t0ken2") }},
		{"no token", "", func(r *http.Request) { r.Header.Set("Authorization", "Bearer ") }},
		{"two headers", "", func(r *http.Request) { r.Header["Authorization"] = []string{"Bearer t0ken", "Bearer t0ken"} }},
		{"the password", "b", func(r *http.Request) { r.SetBasicAuth("bob", "pass") }},
		{"the password again", "b", func(r *http.Request) { r.SetBasicAuth("bob", "pass") }},
		{"another password", "", func(r *http.Request) { r.SetBasicAuth("bob", "pas") }},
		{"another password again", "", func(r *http.Request) { r.SetBasicAuth("bob", "pas") }},
		{"somebody else's name", "", func(r *http.Request) { r.SetBasicAuth("bobp", "ass") }},
		{"nobody's name", "", func(r *http.Request) { r.SetBasicAuth("eve", "pass") }},
		{"the name of a tenant", "", func(r *http.Request) { r.SetBasicAuth("b", "pass") }},
		{"a longer password", "", func(r *http.Request) { r.SetBasicAuth("bob", "pass"+strings.Repeat("x", 80)) }},
		{"digest", "", func(r *http.Request) { r.Header.Set("Authorization", "Digest x") }},
	} {
		got, err := d.Identify(request(t, c.change))
		if got != nil && (got.Name != c.want || err != nil) || got == nil && (c.want != "" || qerr.From(err).Kind != qerr.Unauthorized) {
			t.Errorf("%s: %v, %v; want %q", c.what, got, err, c.want)
		}
	}
	byCert := directory(t, config.Tenant{Name: "c", ClientCertCN: "ruler"})
	for cn, want := range map[string]bool{"ruler": true, "eve": false, "": false} {
		cert := &x509.Certificate{Subject: pkix.Name{CommonName: cn}}
		verified := request(t, func(r *http.Request) { r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{cert}}} })
		if got, err := byCert.Identify(verified); (got != nil) != want || (err == nil) != want {
			t.Errorf("the certificate of %q: %v %v", cn, got, err)
		}
		shown := request(t, func(r *http.Request) { r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}} })
		if got, _ := byCert.Identify(shown); got != nil {
			t.Errorf("a certificate of %q that nobody has verified is %v", cn, got)
		}
	}
	twoWays(t, file, bob)
	// A token that is rotated holds within a second or so; one whose file is gone for a moment
	// stays.
	write("other")
	wait := func(word string) {
		t.Helper()
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			if got, _ := d.Identify(request(t, func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+word) })); got != nil {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s does not hold", word)
			}
		}
	}
	wait("other")
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	time.Sleep(tokenAge + 100*time.Millisecond)
	wait("other")
	// An empty file is nobody's token.
	write("")
	time.Sleep(tokenAge + 100*time.Millisecond)
	for _, word := range []string{"", "other", " "} {
		if got, _ := d.Identify(request(t, func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+word) })); got != nil {
			t.Errorf("%q is somebody", word)
		}
	}
	if got, err := (*Directory)(nil).Identify(request(t, func(*http.Request) {})); got != nil || err != nil {
		t.Errorf("without tenants: %v %v", got, err)
	}
}

// twoWays: a tenant's certificate beside an Authorization header is nobody, good or bad, another's
// or the same tenant's; one that is no tenant's says nothing.
func twoWays(t *testing.T, file string, bob config.TenantPassword) {
	t.Helper()
	both := directory(t, config.Tenant{Name: "a", BearerTokenFile: file}, config.Tenant{Name: "b", BasicAuth: bob},
		config.Tenant{Name: "c", ClientCertCN: "ruler"})
	for _, c := range []struct{ cn, header, want, says string }{
		{"ruler", "", "c", ""},
		{"ruler", "Bearer t0ken", "", "send one of them"},
		{"ruler", "Bearer other", "", "send one of them"},
		{"ruler", "Basic Ym9iOnBhc3M=", "", "send one of them"},
		{"ruler", "Digest x", "", "send one of them"},
		{"mesh", "Bearer t0ken", "a", ""},
		{"mesh", "Basic Ym9iOnBhc3M=", "b", ""},
		{"mesh", "Bearer other", "", "no tenant has this token"},
		{"mesh", "", "", "common name"},
		{"", "Bearer t0ken", "a", ""},
	} {
		got, err := both.Identify(request(t, func(r *http.Request) {
			chain := []*x509.Certificate{{Subject: pkix.Name{CommonName: c.cn}}}
			r.TLS = &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{chain}}
			if c.header != "" {
				r.Header.Set("Authorization", c.header)
			}
		}))
		if got != nil && got.Name != c.want || got == nil && (c.want != "" || !strings.Contains(qerr.From(err).Message, c.says)) {
			t.Errorf("certificate of %q and %q: %v, %v", c.cn, c.header, got, err)
		}
	}
}

// TestGuessing: many wrong passwords at once are checked one by one, who is known is not held up,
// and what is remembered is bounded.
func TestGuessing(t *testing.T) {
	hash, err := bcrypt.GenerateFromPassword([]byte("pass"), bcrypt.DefaultCost)
	if err != nil {
		t.Fatal(err)
	}
	d := directory(t, config.Tenant{Name: "b", BasicAuth: config.TenantPassword{Username: "bob", PasswordBcrypt: config.Secret(hash)}})
	ask := func(password string) error {
		_, err := d.Identify(request(t, func(r *http.Request) { r.SetBasicAuth("bob", password) }))
		return err
	}
	if err := ask("pass"); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	kinds := make([]qerr.Kind, 64)
	for i := range kinds {
		wg.Go(func() { kinds[i] = qerr.From(ask(strings.Repeat("x", i+1))).Kind })
	}
	for range 100 {
		if err := ask("pass"); err != nil {
			t.Errorf("who is known is held up: %v", err)
		}
	}
	wg.Wait()
	for _, k := range kinds {
		if k != qerr.Unauthorized && k != qerr.Overloaded {
			t.Errorf("a wrong password is %v", k)
		}
	}
	for i := range 3 * maxKnown {
		d.words.learn([32]byte{byte(i), byte(i >> 8)}, false)
	}
	if n := len(d.words.seen[false]); n > maxKnown {
		t.Errorf("%d wrong passwords are remembered", n)
	}
	if !d.words.seen[true][d.words.keyOf("bob", string(hash), "pass")] {
		t.Error("wrong ones have pushed out the right one")
	}
}

// TestEnforce: the matchers are in every selector, wherever it stands.
func TestEnforce(t *testing.T) {
	d := directory(t, config.Tenant{Name: "r", Matchers: []string{`{namespace=~"research-.+"}`, `{cluster!="secret"}`}})
	tenant := d.all[0]
	const with = `cluster!="secret",namespace=~"research-.+"`
	p := parser.NewParser(parser.Options{EnableExperimentalFunctions: true})
	for in, want := range map[string]string{
		`up`:                                   `up{` + with + `}`,
		`1 + 1`:                                `1 + 1`,
		`sum by (x) (rate(a{b="c"}[5m]))`:      `sum by (x) (rate(a{b="c",` + with + `}[5m]))`,
		`a offset 1h or b @ 5`:                 `a{` + with + `} offset 1h or b{` + with + `} @ 5.000`,
		`max_over_time(rate(a[1m])[1h:1m])`:    `max_over_time(rate(a{` + with + `}[1m])[1h:1m])`,
		`a * on (x) group_left (y) b{z!~"1"}`:  `a{` + with + `} * on (x) group_left (y) b{` + with + `,z!~"1"}`,
		`absent(up{namespace="production"})`:   `absent(up{` + with + `,namespace="production"})`,
		`label_replace(a, "b", "$1", "c", "")`: `label_replace(a{` + with + `}, "b", "$1", "c", "")`,
	} {
		expr, err := p.ParseExpr(in)
		if err != nil {
			t.Fatal(err)
		}
		got, err := tenant.Enforce(&endpoint.Request{ID: endpoint.Query, Query: in}, expr, nil)
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		w, err := p.ParseExpr(want)
		if err != nil {
			t.Fatal(err)
		}
		g, err := p.ParseExpr(got.Query)
		if err != nil || sorted(g) != sorted(w) {
			t.Errorf("%s is %s, want %s (%v)", in, got.Query, want, err)
		}
	}
	// What absent() makes labels of stays a label.
	for _, c := range []struct{ matchers, query, want string }{
		{`{namespace=~"r.+"}`, `absent(up{job="x",namespace="r1"})`, `absent(up{namespace=~"r.+",job="x",namespace="r1"})`},
		{`{namespace="r1"}`, `absent(up{job="x",namespace="r1"})`, `absent(up{job="x",namespace="r1"})`},
		{`{namespace="r1"}`, `absent(up{namespace!="b",namespace="r1"})`, `absent(up{namespace!="b",namespace="r1"})`},
		{`{namespace="r1"}`, `absent(up{namespace="r1",namespace="r1"})`, `absent(up{namespace="r1",namespace="r1"})`},
	} {
		expr, err := p.ParseExpr(c.query)
		if err != nil {
			t.Fatal(err)
		}
		tenant := directory(t, config.Tenant{Name: "r", Matchers: []string{c.matchers}}).all[0]
		got, err := tenant.Enforce(&endpoint.Request{ID: endpoint.Query}, expr, nil)
		if err != nil || got.Query != c.want {
			t.Errorf("with %s %s is %v, want %s (%v)", c.matchers, c.query, got, c.want, err)
		}
	}
	// What info() wants labels of is narrowed where it is read; where nothing is evaluated every
	// selector is one of series.
	for id, want := range map[endpoint.ID]string{
		endpoint.Query:          `sum(info(up{` + with + `}, {x="y"}))`,
		endpoint.QueryRange:     `sum(info(up{` + with + `}, {x="y"}))`,
		endpoint.QueryExemplars: `sum(info(up{` + with + `}, {` + with + `,x="y"}))`,
	} {
		const in = `sum(info(up, {x="y"}))`
		expr, err := p.ParseExpr(in)
		if err != nil {
			t.Fatal(err)
		}
		got, err := tenant.Enforce(&endpoint.Request{ID: id, Query: in}, expr, nil)
		if err != nil {
			t.Fatal(err)
		}
		w, err := p.ParseExpr(want)
		if err != nil {
			t.Fatal(err)
		}
		if g, err := p.ParseExpr(got.Query); err != nil || sorted(g) != sorted(w) {
			t.Errorf("%s: %s, want %s (%v)", id, got.Query, want, err)
		}
	}
	for _, id := range []endpoint.ID{endpoint.Labels, endpoint.LabelValues, endpoint.Series, endpoint.Federate} {
		for in, want := range map[string]string{
			"":   `{namespace=~"research-.+",cluster!="secret"}`,
			`up`: `{__name__="up",namespace=~"research-.+",cluster!="secret"}`,
		} {
			req := &endpoint.Request{ID: id}
			var selectors [][]*labels.Matcher
			if in != "" {
				req.Match = []string{in}
				selectors = append(selectors, []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, "__name__", in)})
			}
			got, err := tenant.Enforce(req, nil, selectors)
			if err != nil || len(got.Match) != 1 || got.Match[0] != want {
				t.Errorf("%s %q: %v %v, want %s", id, in, got, err, want)
			}
		}
	}
	negative := directory(t, config.Tenant{Name: "n", Matchers: []string{`{namespace!="x"}`}}).all[0]
	if got := negative.selector(nil); got != `{namespace!="x",__name__!=""}` {
		t.Errorf("a selector that selects nothing: %s", got)
	}
	read := &prompb.ReadRequest{Queries: []*prompb.Query{{Matchers: []*prompb.LabelMatcher{{Name: "a", Value: "b"}}}, {}}}
	got, err := tenant.Enforce(&endpoint.Request{ID: endpoint.Read, ReadQuery: read}, nil, nil)
	if err != nil || len(got.ReadQuery.Queries[0].Matchers) != 3 || len(got.ReadQuery.Queries[1].Matchers) != 2 ||
		len(read.Queries[0].Matchers) != 1 {
		t.Errorf("remote read: %v %v of %v", got, err, read)
	}
	for _, e := range endpoint.Table {
		_, err := tenant.Enforce(&endpoint.Request{ID: e.ID}, nil, nil)
		if forbidden := err != nil && qerr.From(err).Kind == qerr.Forbidden; err != nil && !forbidden || forbidden != e.Whole {
			t.Errorf("%s: %v", e.ID, err)
		}
	}
}

// sorted is an expression with the matchers of its selectors in order.
func sorted(e parser.Expr) string {
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if vs, ok := n.(*parser.VectorSelector); ok {
			for i := range vs.LabelMatchers {
				for j := range i {
					if vs.LabelMatchers[i].String() < vs.LabelMatchers[j].String() {
						vs.LabelMatchers[i], vs.LabelMatchers[j] = vs.LabelMatchers[j], vs.LabelMatchers[i]
					}
				}
			}
		}
		return nil
	})
	return e.String()
}

// TestCheck: a selector without the matchers is a fault, whoever forgot them.
func TestCheck(t *testing.T) {
	tenant := directory(t, config.Tenant{Name: "r", Matchers: []string{`{namespace="a"}`}}).all[0]
	own, other := labels.MustNewMatcher(labels.MatchEqual, "namespace", "a"), labels.MustNewMatcher(labels.MatchNotEqual, "namespace", "a")
	for _, c := range []struct {
		id        endpoint.ID
		selectors [][]*labels.Matcher
		fine      bool
	}{
		{endpoint.Query, [][]*labels.Matcher{{own}}, true},
		{endpoint.Query, nil, true}, // a number
		{endpoint.Query, [][]*labels.Matcher{{own}, {other}}, false},
		{endpoint.Labels, nil, false},
		{endpoint.Read, nil, false},
		{endpoint.Federate, [][]*labels.Matcher{{}}, false},
		{endpoint.Rules, nil, true},
	} {
		if err := tenant.Check(&endpoint.Request{ID: c.id}, c.selectors); (err == nil) != c.fine {
			t.Errorf("%s %v: %v", c.id, c.selectors, err)
		}
	}
	ofA, ofB := labels.FromStrings("namespace", "a"), labels.FromStrings("namespace", "b")
	if !tenant.Sees(ofA) || tenant.Sees(ofB) || tenant.Sees(labels.EmptyLabels()) {
		t.Error("sees what is not its own, or not what is")
	}
}

// TestMaySet: on whose behalf a tenant asks is believed as far as it is configured.
func TestMaySet(t *testing.T) {
	said := identity.Caller{Tenant: "x", User: "u", Dashboard: "d", Panel: "p", Rule: "r", Alert: true, Claimed: true}
	got := directory(t, config.Tenant{Name: "a", MaySet: []string{"X-Grafana-User", "X-Panel-Id"}}).all[0].Caller(said)
	if want := (identity.Caller{Tenant: "a", User: "u", Panel: "p"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := (*Tenant)(nil).Caller(said); got != said {
		t.Errorf("without tenants: %+v", got)
	}
}

// TestSeesNothingUnlabelled: what lacks a label of the matchers is nobody's, though they fit an
// empty value.
func TestSeesNothingUnlabelled(t *testing.T) {
	tenant := directory(t, config.Tenant{Name: "r", Matchers: []string{`{namespace!~"infra-.*"}`}}).all[0]
	for namespace, want := range map[string]bool{"research": true, "infra-a": false, "": false} {
		if got := tenant.Sees(labels.FromStrings("namespace", namespace, "alertname", "x")); got != want {
			t.Errorf("namespace %q: %v", namespace, got)
		}
	}
}
