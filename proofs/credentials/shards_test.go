package credentials

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/golang-jwt/jwt/v5"

	"github.com/spillwayproject/spillway/internal/testpki"
	"github.com/spillwayproject/spillway/proxy/server/servertest"
)

// way is one way of http_client to prove who asks.
type way struct {
	name string
	// replica is what stands beside the replica's url; %DIR% is the folder of files, %TOKENS% the
	// token endpoint.
	replica string
	files   map[string]string
	lets    func(*http.Request) bool
	// next are other files, and whom the shard lets in with them; nil is that nothing is in a file.
	next     map[string]string
	letsNext func(*http.Request) bool
}

func header(name, value string) func(*http.Request) bool {
	return func(r *http.Request) bool { return len(r.Header.Values(name)) == 1 && r.Header.Get(name) == value }
}

func basic(user, password string) func(*http.Request) bool {
	return header("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(user+":"+password)))
}

func one(name, text string) map[string]string { return map[string]string{name: text} }

// ways are all but those by certificates.
func ways() []way {
	bearer := func(word string) func(*http.Request) bool { return header("Authorization", "Bearer "+word) }
	return []way{
		{name: "basic_auth", replica: "http_client: {basic_auth: {username: u, password: p}}", lets: basic("u", "p")},
		{
			name: "basic_auth by password_file", replica: "http_client: {basic_auth: {username: u, password_file: %DIR%/p}}",
			files: one("p", "p0\n"), lets: basic("u", "p0"), next: one("p", "p1\n"), letsNext: basic("u", "p1"),
		},
		{
			name: "basic_auth by both files", replica: "http_client: {basic_auth: {username_file: %DIR%/u, password_file: %DIR%/p}}",
			files: map[string]string{"u": "u0", "p": "p0"}, lets: basic("u0", "p0"), next: one("u", "u1"), letsNext: basic("u1", "p0"),
		},
		{name: "authorization", replica: "http_client: {authorization: {credentials: word}}", lets: bearer("word")},
		{
			name: "authorization by another type", replica: "http_client: {authorization: {type: Token, credentials: word}}",
			lets: header("Authorization", "Token word"),
		},
		{
			name: "authorization by credentials_file", replica: "http_client: {authorization: {credentials_file: %DIR%/c}}",
			files: one("c", "c0\n"), lets: bearer("c0"), next: one("c", "c1\n"), letsNext: bearer("c1"),
		},
		{name: "bearer_token", replica: "http_client: {bearer_token: word}", lets: bearer("word")},
		{
			name: "bearer_token_file", replica: "http_client: {bearer_token_file: %DIR%/b}",
			files: one("b", "b0"), lets: bearer("b0"), next: one("b", "b1"), letsNext: bearer("b1"),
		},
		{
			name: "oauth2 by client_secret", replica: "http_client: {oauth2: {client_id: me, client_secret: s0, token_url: %TOKENS%, scopes: [read]}}",
			lets: bearer("for-s0-read"),
		},
		{
			name: "oauth2 by client_secret_file", replica: "http_client: {oauth2: {client_id: me, client_secret_file: %DIR%/s, token_url: %TOKENS%}}",
			files: one("s", "s0"), lets: bearer("for-s0-"), next: one("s", "s1"), letsNext: bearer("for-s1-"),
		},
		{
			name:    "oauth2 by jwt-bearer",
			replica: "http_client: {oauth2: {client_id: me, grant_type: 'urn:ietf:params:oauth:grant-type:jwt-bearer', client_certificate_key_file: %DIR%/k, token_url: %TOKENS%, claims: {lab: x}}}",
			files:   one("k", rsaKey()), lets: bearer("for-me-x"),
		},
		{
			name: "http_headers", replica: "http_client: {http_headers: {X-Key: {values: [a]}, X-Secret: {secrets: [b]}}}",
			lets: func(r *http.Request) bool { return header("X-Key", "a")(r) && header("X-Secret", "b")(r) },
		},
		{
			name: "http_headers by files", replica: "http_client: {http_headers: {X-Key: {files: [%DIR%/h]}}}",
			files: one("h", "h0"), lets: header("X-Key", "h0"), next: one("h", "h1"), letsNext: header("X-Key", "h1"),
		},
		{name: "headers", replica: "headers: {Authorization: Custom x, X-Scope-OrgID: a}", lets: header("Authorization", "Custom x")},
		{
			name: "basic_auth beside headers", replica: "headers: {X-Scope-OrgID: a}, http_client: {basic_auth: {username: u, password: p}}",
			lets: func(r *http.Request) bool { return basic("u", "p")(r) && header("X-Scope-OrgID", "a")(r) },
		},
	}
}

func rsaKey() string {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}))
}

// tokens is a token endpoint: the token says by what it was asked for. It answers with a redirect
// where one is given.
func tokens(t *testing.T, redirect string) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if redirect != "" {
			http.Redirect(w, r, redirect, http.StatusTemporaryRedirect)
			return
		}
		id, secret, _ := r.BasicAuth()
		token := "for-" + secret + "-" + r.FormValue("scope")
		if text := r.FormValue("assertion"); text != "" {
			claims := jwt.MapClaims{}
			if _, _, err := jwt.NewParser().ParseUnverified(text, claims); err != nil {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			id, token = fmt.Sprint(claims["iss"]), fmt.Sprintf("for-%v-%v", claims["sub"], claims["lab"])
		}
		if id != "me" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"access_token": token, "token_type": "Bearer", "expires_in": 3600})
	}))
	t.Cleanup(s.Close)
	return s
}

// over runs Spillway over a shard at url, with the way's settings.
func (w way) over(t *testing.T, url, dir, tokenURL string) string {
	t.Helper()
	for name, text := range w.files {
		write(t, dir, name, text)
	}
	more := strings.NewReplacer("%DIR%", dir, "%TOKENS%", tokenURL).Replace(w.replica)
	if more != "" {
		more = ", " + more
	}
	base, _ := servertest.Start(t, fmt.Sprintf("groups: [{name: heron, shards: [{replicas: [{url: %q%s}]}]}]\nlimits: {timeout: 20s, max_query_bytes: 64KiB}\n", url, more))
	return base
}

// TestWaysToShards: a shard that checks who asks is asked by whom it lets in; when what proves that
// is replaced, by the new one, without a reload; by nothing else.
func TestWaysToShards(t *testing.T) {
	for _, w := range ways() {
		t.Run(w.name, func(t *testing.T) {
			dir, c := t.TempDir(), newClient(t, nil)
			d := newDoor(t, w.lets, nil)
			base := w.over(t, d.srv.URL, dir, tokens(t, "").URL)
			if err := answered(c, base, ""); err != nil || d.refused.Load() > 0 {
				t.Fatalf("%d refused: %v", d.refused.Load(), err)
			}
			d.set(func() { d.lets = func(*http.Request) bool { return false } })
			if err := answered(c, base, ""); err == nil {
				t.Error("it is answered although the shard refuses")
			}
			if w.next == nil {
				return
			}
			for name, text := range w.next {
				write(t, dir, name, text)
			}
			d.set(func() { d.lets = w.letsNext })
			if !eventually(func() bool { return answered(c, base, "") == nil }) {
				t.Errorf("after the file has changed: %v", answered(c, base, ""))
			}
		})
	}
}

// TestNoCredentialFollowsARedirect: neither of a shard nor of a token endpoint.
func TestNoCredentialFollowsARedirect(t *testing.T) {
	var heard atomic.Int64
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		heard.Add(1)
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"access_token":"stolen","token_type":"Bearer","status":"success","data":[]}`)
	}))
	defer elsewhere.Close()
	for _, w := range ways() {
		t.Run(w.name, func(t *testing.T) {
			c := newClient(t, nil)
			ends := []string{""}
			if strings.Contains(w.replica, "oauth2") {
				ends = append(ends, elsewhere.URL)
			}
			for _, end := range ends {
				d := newDoor(t, w.lets, nil)
				d.redirect = elsewhere.URL
				base := w.over(t, d.srv.URL, t.TempDir(), tokens(t, end).URL)
				status, body, err := get(c, base+roads[0], "")
				if err != nil || status != http.StatusBadGateway {
					t.Errorf("tokens redirect to %q: %d %v %.300s", end, status, err, body)
				}
				if (d.let.Load() > 0) != (end == "") {
					t.Errorf("tokens redirect to %q: the shard was asked well %d times", end, d.let.Load())
				}
				for _, secret := range []string{"s0", "word", "p0"} {
					if strings.Contains(body, secret) {
						t.Errorf("the answer has the secret: %s", body)
					}
				}
			}
		})
	}
	if n := heard.Load(); n > 0 {
		t.Errorf("the other server was asked %d times", n)
	}
}

// TestCertificatesToShards: the shard's certificate is checked, and ours is shown; both, and who
// signs them, may be replaced.
func TestCertificatesToShards(t *testing.T) {
	ours, theirs, later := testpki.New(t, "ours"), testpki.New(t, "theirs"), testpki.New(t, "later")
	serves := func(by, clients *testpki.Authority) *tls.Config {
		cert, key := by.Issue("shard")
		pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
		if err != nil {
			t.Fatal(err)
		}
		return &tls.Config{
			MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ClientCAs: clients.Pool(),
			ClientAuth: tls.RequireAndVerifyClientCert,
		}
	}
	shows := func(by, trusted *testpki.Authority) map[string]string {
		cert, key := by.Issue("spillway")
		return map[string]string{"ca": trusted.PEM, "cert": cert, "key": key}
	}
	dir, c := t.TempDir(), newClient(t, nil)
	d := newDoor(t, func(r *http.Request) bool {
		return r.TLS != nil && r.TLS.PeerCertificates[0].Subject.CommonName == "spillway"
	}, serves(theirs, ours))
	w := way{replica: "http_client: {tls_config: {ca_file: %DIR%/ca, cert_file: %DIR%/cert, key_file: %DIR%/key}}", files: shows(ours, theirs)}
	base := w.over(t, d.srv.URL, dir, "")
	if err := answered(c, base, ""); err != nil {
		t.Fatal(err)
	}
	turn := func(what string, cfg *tls.Config, files map[string]string, want bool) {
		t.Helper()
		d.set(func() { d.tls = cfg })
		for name, text := range files {
			write(t, dir, name, text)
		}
		d.srv.CloseClientConnections()
		if want && !eventually(func() bool { return answered(c, base, "") == nil }) || !want && answered(c, base, "") == nil {
			t.Errorf("%s: %v", what, answered(c, base, ""))
		}
	}
	turn("both were replaced", serves(theirs, ours), shows(ours, theirs), true)
	turn("clients are signed by another one", serves(theirs, later), nil, false)
	turn("and so are we", serves(theirs, later), shows(later, theirs), true)
	turn("the shard is signed by another one", serves(later, later), nil, false)
	turn("and we trust that", serves(later, later), shows(later, later), true)
	inline := shows(ours, theirs)
	text := func(name string) string { return fmt.Sprintf("%q", inline[name]) }
	d.set(func() { d.tls = serves(theirs, ours) })
	w = way{replica: fmt.Sprintf("http_client: {basic_auth: {username: u, password: p}, tls_config: {ca: %s, cert: %s, key: %s}}", text("ca"), text("cert"), text("key"))}
	d.set(func() { d.lets = basic("u", "p") })
	if err := answered(c, w.over(t, d.srv.URL, dir, ""), ""); err != nil {
		t.Errorf("inline, beside basic_auth: %v", err)
	}
	w = way{replica: "http_client: {basic_auth: {username: u, password: p}, tls_config: {ca_file: %DIR%/ca}}", files: one("ca", later.PEM)}
	d.set(func() { d.lets = nil })
	if err := answered(c, w.over(t, d.srv.URL, dir, ""), ""); err == nil {
		t.Error("a shard whose certificate nobody has signed whom we trust is asked")
	}
}

// TestByProxy: proxy_url is asked for the shard, by our credentials for the shard.
func TestByProxy(t *testing.T) {
	var through atomic.Int64
	d := newDoor(t, func(r *http.Request) bool {
		if r.URL.Host != "shard.example:9090" {
			return false
		}
		through.Add(1)
		return basic("u", "p")(r)
	}, nil)
	w := way{replica: fmt.Sprintf("http_client: {proxy_url: %q, basic_auth: {username: u, password: p}}", d.srv.URL)}
	base := w.over(t, "http://shard.example:9090", t.TempDir(), "")
	if err := answered(newClient(t, nil), base, ""); err != nil || through.Load() == 0 {
		t.Errorf("%d requests went through: %v", through.Load(), err)
	}
}
