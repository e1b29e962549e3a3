package tenant

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// The keys of an issuer, one of each kind, made once.
var (
	rsaKey   = sync.OnceValue(func() *rsa.PrivateKey { return must(rsa.GenerateKey(rand.Reader, 2048)) })
	ecKey    = sync.OnceValue(func() *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) })
	edKey    = sync.OnceValue(func() ed25519.PrivateKey { _, k, err := ed25519.GenerateKey(rand.Reader); return must(k, err) })
	otherKey = sync.OnceValue(func() ed25519.PrivateKey { _, k, err := ed25519.GenerateKey(rand.Reader); return must(k, err) })
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// public is the set of keys as an issuer publishes it.
func public(keys ...jose.JSONWebKey) []byte {
	return must(json.Marshal(jose.JSONWebKeySet{Keys: keys}))
}

func jwk(key crypto.Signer, kid string) jose.JSONWebKey {
	return jose.JSONWebKey{Key: key.Public(), KeyID: kid, Use: "sig"}
}

// signed is a token of the claims; a kid that is empty is not named.
func signed(alg jose.SignatureAlgorithm, key any, kid string, claims map[string]any) string {
	signer := must(jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: jose.JSONWebKey{Key: key, KeyID: kid}}, nil))
	return must(must(signer.Sign(must(json.Marshal(claims)))).CompactSerialize())
}

// claims are good ones, with changes; a nil value takes one away.
func claims(change map[string]any) map[string]any {
	now := time.Now()
	out := map[string]any{
		"iss": "https://id.example.org", "aud": "spillway", "sub": "me", "exp": now.Add(time.Hour).Unix(), "iat": now.Unix(),
		"groups": "research",
	}
	maps.Copy(out, change)
	maps.DeleteFunc(out, func(_ string, v any) bool { return v == nil })
	return out
}

// issued is a directory of two tenants that are known by tokens, and one that has a token in a
// file.
func issued(t testing.TB, jwt config.JWT) *Directory {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("static"), 0o600); err != nil {
		t.Fatal(err)
	}
	jwt.Issuer, jwt.Audience = "https://id.example.org", []string{"spillway", "https://spillway.example.org"}
	if jwt.Claim == "" {
		jwt.Claim = "groups"
	}
	d, err := New(&config.Config{JWT: jwt, Tenants: []config.Tenant{
		{Name: "research", JWTValues: []string{"research", "ml"}},
		{Name: "oncall", JWTValues: []string{"oncall"}},
		{Name: "static", BearerTokenFile: file},
	}}, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

func keyFile(t testing.TB, set []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "jwks.json")
	if err := os.WriteFile(file, set, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// shown is who the token makes known.
func shown(t testing.TB, d *Directory, token string) (string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://x/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	got, err := d.Identify(r)
	if got == nil {
		return "", err
	}
	return got.Name, err
}

func encode(v any) string { return base64.RawURLEncoding.EncodeToString(must(json.Marshal(v))) }

// TestJWT: whose each token is, and which is nobody's, and why.
func TestJWT(t *testing.T) {
	d := issued(t, config.JWT{JWKSFile: keyFile(t, public(jwk(rsaKey(), "r"), jwk(ecKey(), "e"), jwk(edKey(), "d")))})
	now := time.Now()
	with := func(kv ...any) string {
		change := map[string]any{}
		for i := 0; i < len(kv); i += 2 {
			change[kv[i].(string)] = kv[i+1]
		}
		return signed(jose.EdDSA, edKey(), "d", claims(change))
	}
	good := with()
	head, rest, _ := strings.Cut(good, ".")
	body, tail, _ := strings.Cut(rest, ".")
	tail = "." + tail
	// What a library that believes the header would take: the public key as a secret.
	der := must(x509.MarshalPKIXPublicKey(rsaKey().Public()))
	hs := func(secret []byte) string {
		text := encode(map[string]string{"alg": "HS256", "kid": "r"}) + "." + encode(claims(nil))
		mac := hmac.New(sha256.New, secret)
		mac.Write([]byte(text))
		return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
	}
	own := jose.JSONWebKey{Key: otherKey().Public(), KeyID: "d"}
	embedded := must(jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: otherKey()},
		(&jose.SignerOptions{}).WithHeader("kid", "d").WithHeader("jwk", own)))
	for _, c := range []struct {
		what, token, want string
		err               error
	}{
		{"a good one", good, "research", nil},
		{"again", good, "research", nil},
		{"RSA", signed(jose.RS256, rsaKey(), "r", claims(nil)), "research", nil},
		{"RSA, padded", signed(jose.PS512, rsaKey(), "r", claims(nil)), "research", nil},
		{"ECDSA", signed(jose.ES256, ecKey(), "e", claims(nil)), "research", nil},
		{"another value of the tenant", with("groups", "ml"), "research", nil},
		{"another tenant", with("groups", "oncall"), "oncall", nil},
		{"a list", with("groups", []string{"staff", "oncall"}), "oncall", nil},
		{"two values of one tenant", with("groups", []string{"ml", "research"}), "research", nil},
		{"one of several audiences", with("aud", []string{"x", "https://spillway.example.org"}), "research", nil},
		{"a clock that is ahead a little", with("nbf", now.Add(leeway/2).Unix(), "iat", now.Add(leeway/2).Unix()), "research", nil},
		{"the token of a file", "static", "static", nil},

		{"two tenants", with("groups", []string{"research", "oncall"}), "", errSeveral},
		{"nobody's", with("groups", "eve"), "", errNobody},
		{"nobody's list", with("groups", []string{}), "", errNobody},
		{"an empty value", with("groups", ""), "", errNobody},
		{"no claim", with("groups", nil), "", errNoValue},
		{"a number", with("groups", 7), "", errNoValue},
		{"a list of numbers", with("groups", []any{"research", 7}), "", errNoValue},
		{"an object", with("groups", map[string]any{"research": true}), "", errNoValue},
		{"another audience", with("aud", "other"), "", errAudience},
		{"no audience", with("aud", nil), "", errAudience},
		{"another issuer", with("iss", "https://id.example.org/"), "", errIssuer},
		{"no issuer", with("iss", nil), "", errIssuer},
		{"expired", with("exp", now.Add(-time.Second).Unix()), "", errExpired},
		{"long expired", with("exp", now.Add(-time.Hour).Unix()), "", errExpired},
		{"no exp", with("exp", nil), "", errNoExpiry},
		{"exp that is no number", with("exp", "tomorrow"), "", errClaims},
		{"nbf ahead", with("nbf", now.Add(2*leeway).Unix()), "", errEarly},
		{"iat ahead", with("iat", now.Add(2*leeway).Unix()), "", errEarly},
		{"alg none", encode(map[string]string{"alg": "none", "kid": "d"}) + "." + body + ".", "", errNoJWT},
		{"no signature", head + "." + body + ".", "", errSignature},
		{"HS256 with the DER as secret", hs(der), "", errNoJWT},
		{"HS256 with the PEM", hs(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})), "", errNoJWT},
		{"HS256 with the modulus", hs(rsaKey().N.Bytes()), "", errNoJWT},
		{"another's signature", signed(jose.EdDSA, otherKey(), "d", claims(nil)), "", errSignature},
		{"another's key in the token", must(must(embedded.Sign(must(json.Marshal(claims(nil))))).CompactSerialize()), "", errSignature},
		{"an unknown kid", signed(jose.EdDSA, edKey(), "x", claims(nil)), "", errKey},
		{"no kid", signed(jose.EdDSA, edKey(), "", claims(nil)), "", errNoKid},
		{"a kid of another kind", signed(jose.EdDSA, edKey(), "r", claims(nil)), "", errSignature},
		{"other claims", head + "." + encode(claims(map[string]any{"groups": "oncall"})) + tail, "", errSignature},
		{"no JWT", "a.b.c", "", errNoJWT},
		{"a token of nobody", "x", "", errToken},
		{"encrypted", "a.b.c.d.e", "", errToken},
		{"huge", with("pad", strings.Repeat("x", maxJWT)), "", errLong},
		{"huge, and no JWT", strings.Repeat("x", maxJWT+1), "", errLong},
	} {
		got, err := shown(t, d, c.token)
		if got != c.want || fmt.Sprint(err) != fmt.Sprint(c.err) {
			t.Errorf("%s: %q, %v; want %q, %v", c.what, got, err, c.want, c.err)
		}
		if err == nil {
			continue
		}
		if kind := qerr.From(err).Kind; kind != qerr.Unauthorized {
			t.Errorf("%s: %s", c.what, kind)
		}
		told := strings.Join(d.Challenge(err), "\n")
		if want := `Bearer realm="Spillway", error="invalid_token", error_description="` + qerr.From(err).Message + `"`; told != want {
			t.Errorf("%s: a client is told %s", c.what, told)
		}
	}
	if told := d.Challenge(qerr.New(qerr.Unauthorized, "nothing was sent")); told[0] != `Bearer realm="Spillway"` {
		t.Errorf("who sends nothing is told %s", told)
	}
}

// TestClaimPointer: the claim may stand inside others, and a name with dots and slashes is a name.
func TestClaimPointer(t *testing.T) {
	roles := map[string]any{"realm_access": map[string]any{"roles": []string{"x", "oncall"}, "a/b~": "ml"}, "https://x/groups": "research"}
	for claim, want := range map[string]string{
		"/realm_access/roles": "oncall", "/realm_access/a~1b~0": "research", "https://x/groups": "research", "/groups": "research",
		"realm_access.roles": "", "/realm_access": "", "/realm_access/roles/0": "", "/": "", "/no/such": "",
	} {
		d := issued(t, config.JWT{JWKSFile: keyFile(t, public(jwk(edKey(), "d"))), Claim: claim})
		if got, err := shown(t, d, signed(jose.EdDSA, edKey(), "d", claims(roles))); got != want {
			t.Errorf("%s: %q, %v; want %q", claim, got, err, want)
		}
	}
}

// TestRemembered: a token that was verified is taken until it expires, from a memory that is
// bounded, and another set of keys forgets it.
func TestRemembered(t *testing.T) {
	file := keyFile(t, public(jwk(edKey(), "")))
	d := issued(t, config.JWT{JWKSFile: file})
	var ahead atomic.Int64
	d.issuer.now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	token := signed(jose.EdDSA, edKey(), "", claims(nil))
	for range 3 {
		if got, err := shown(t, d, token); got != "research" {
			t.Fatalf("%q, %v", got, err)
		}
	}
	set := d.issuer.keys.set
	if n := len(set.verified); n != 1 {
		t.Errorf("%d tokens are remembered", n)
	}
	for sum := range set.verified {
		if sum == sha256.Sum256([]byte(token)) {
			t.Error("a token is remembered by a hash that anybody can compute")
		}
	}
	ahead.Store(int64(time.Hour))
	if got, err := shown(t, d, token); got != "" || err != errExpired {
		t.Errorf("expired since: %q, %v", got, err)
	}
	for i := range 3 * maxVerified {
		set.learn([32]byte{byte(i), byte(i >> 8), 1}, d.all[0], time.Now().Add(time.Hour), time.Now())
	}
	if n := len(set.verified); n > maxVerified {
		t.Errorf("%d tokens are remembered", n)
	}
	// A key that is no longer among the issuer's signs nothing any more, remembered or not.
	ahead.Store(0)
	if got, err := shown(t, d, token); got != "research" {
		t.Fatalf("%q, %v", got, err)
	}
	if err := os.WriteFile(file, public(jwk(otherKey(), "")), 0o600); err != nil {
		t.Fatal(err)
	}
	turned(t, d, token, "", errSignature)
	turned(t, d, signed(jose.EdDSA, otherKey(), "", claims(nil)), "research", nil)
	// What cannot be used, or is away, changes nothing.
	for _, broken := range []string{"", "{", `{"keys":[]}`} {
		if err := os.WriteFile(file, []byte(broken), 0o600); err != nil {
			t.Fatal(err)
		}
		time.Sleep(tokenAge + 50*time.Millisecond)
		if got, err := shown(t, d, signed(jose.EdDSA, otherKey(), "", claims(nil))); got != "research" {
			t.Errorf("%q: %q, %v", broken, got, err)
		}
	}
}

// turned waits until the token is that of want.
func turned(t *testing.T, d *Directory, token, want string, wantErr error) {
	t.Helper()
	var got string
	var err error
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if got, err = shown(t, d, token); got == want && fmt.Sprint(err) == fmt.Sprint(wantErr) {
			return
		}
	}
	t.Fatalf("%q, %v; want %q, %v", got, err, want, wantErr)
}

// keyServer answers with a set of keys that changes, and counts how often it was asked.
type keyServer struct {
	*httptest.Server
	asked atomic.Int64
	serve atomic.Pointer[http.HandlerFunc]
}

func newKeyServer(t *testing.T) *keyServer {
	s := &keyServer{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		(*s.serve.Load())(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *keyServer) will(h http.HandlerFunc) { s.serve.Store(&h) }

func (s *keyServer) answers(set []byte) {
	s.will(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(set) })
}

// TestKeysOfURL: keys that turn are found by the kid that nobody knows, at most once in a while;
// the last good ones stay while the server is down, answers nonsense, or hangs, and no request
// waits long.
func TestKeysOfURL(t *testing.T) {
	s := newKeyServer(t)
	s.will(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	d := issued(t, config.JWT{JWKSURL: s.URL})
	ring := d.issuer.keys
	old, turnedTo := signed(jose.EdDSA, edKey(), "1", claims(nil)), signed(jose.EdDSA, otherKey(), "2", claims(nil))
	for range 3 {
		got, err := shown(t, d, old)
		if e := qerr.From(err); got != "" || e.Kind != qerr.Unavailable || e.RetryAfter == 0 {
			t.Errorf("no keys yet: %q, %v", got, err)
		}
	}
	if n := s.asked.Load(); n != 1 {
		t.Errorf("a server that is down was asked %d times at once", n)
	}
	if !d.KeysRead().IsZero() {
		t.Error("keys that were never read have a time")
	}
	ring.pause = 50 * time.Millisecond
	s.answers(public(jwk(edKey(), "1")))
	turned(t, d, old, "research", nil)
	if d.KeysRead().IsZero() {
		t.Error("keys that were read have no time")
	}
	ring.pause = time.Hour
	before := s.asked.Load()
	for range 20 { // looked for a moment ago
		if got, err := shown(t, d, turnedTo); got != "" || err != errKey {
			t.Fatalf("an unknown kid: %q, %v", got, err)
		}
	}
	if n := s.asked.Load() - before; n != 0 {
		t.Errorf("unknown kids had the server asked %d times", n)
	}
	ring.pause = 0
	s.answers(public(jwk(edKey(), "1"), jwk(otherKey(), "2")))
	turned(t, d, turnedTo, "research", nil) // at once, not after keysAge
	turned(t, d, old, "research", nil)
	s.answers(public(jwk(otherKey(), "2")))
	ring.age = 0
	turned(t, d, old, "", errKey)
	// The server is hostile, or down, and what was read last goes on holding.
	for what, h := range map[string]http.HandlerFunc{
		"down":     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
		"nonsense": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") },
		"endless": func(w http.ResponseWriter, _ *http.Request) {
			for range 10000 {
				if _, err := w.Write(make([]byte, 1<<12)); err != nil {
					return
				}
			}
		},
		"hanging": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	} {
		s.will(h)
		before := s.asked.Load()
		for end := time.Now().Add(10 * time.Second); s.asked.Load() == before && time.Now().Before(end); {
			began := time.Now()
			if got, err := shown(t, d, turnedTo); got != "research" {
				t.Fatalf("%s: %q, %v", what, got, err)
			}
			if took := time.Since(began); took >= keysPatience { // as long as a server that hangs is waited for
				t.Errorf("%s: who has keys waited %s", what, took)
			}
		}
		if s.asked.Load() == before {
			t.Errorf("%s: nobody asked", what)
		}
		var took time.Duration
		for range 3 { // the shortest of three: what is waited for too long each time is no busy machine's doing
			began := time.Now()
			if got, err := shown(t, d, old); got != "" || err != errKey {
				t.Errorf("%s: an unknown kid: %q, %v", what, got, err)
			}
			if took = time.Since(began); took <= 2*keysPatience {
				break
			}
		}
		if took > 2*keysPatience {
			t.Errorf("%s: an unknown kid waited %s each time", what, took)
		}
	}
}

// TestKeysFollowNoRedirect: neither credentials nor trust go elsewhere.
func TestKeysFollowNoRedirect(t *testing.T) {
	elsewhere := newKeyServer(t)
	elsewhere.answers(public(jwk(edKey(), "1")))
	s := newKeyServer(t)
	s.will(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
	})
	d := issued(t, config.JWT{JWKSURL: s.URL})
	if got, err := shown(t, d, signed(jose.EdDSA, edKey(), "1", claims(nil))); got != "" || qerr.From(err).Kind != qerr.Unavailable {
		t.Errorf("%q, %v", got, err)
	}
	if n := elsewhere.asked.Load(); n != 0 || s.asked.Load() != 1 {
		t.Errorf("the redirect was followed %d times", n)
	}
}

// TestKeysOutliveAReload: a new configuration does not ask again for the keys that the old one has,
// and maps them to its own tenants.
func TestKeysOutliveAReload(t *testing.T) {
	s := newKeyServer(t)
	s.answers(public(jwk(edKey(), "1")))
	d := issued(t, config.JWT{JWKSURL: s.URL})
	token := signed(jose.EdDSA, edKey(), "1", claims(nil))
	if got, err := shown(t, d, token); got != "research" {
		t.Fatalf("%q, %v", got, err)
	}
	cfg := &config.Config{JWT: d.issuer.cfg, Tenants: []config.Tenant{{Name: "new", JWTValues: []string{"research"}}}}
	next, err := New(cfg, d, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(next.Close)
	d.Close()
	if got, err := shown(t, next, token); got != "new" || s.asked.Load() != 1 {
		t.Errorf("%q, %v, asked %d times", got, err, s.asked.Load())
	}
}

// TestKeysThatAReloadCutOff: keys that the old configuration was still waiting for are asked for at
// once by the new one.
func TestKeysThatAReloadCutOff(t *testing.T) {
	s := newKeyServer(t)
	asked, goOn := make(chan struct{}, 8), make(chan struct{})
	s.will(func(w http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-goOn
		_, _ = w.Write(public(jwk(edKey(), "1")))
	})
	d := issued(t, config.JWT{JWKSURL: s.URL})
	token := signed(jose.EdDSA, edKey(), "1", claims(nil))
	first := make(chan error, 1)
	go func() {
		_, err := d.Identify(request(t, func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }))
		first <- err
	}()
	<-asked
	cfg := &config.Config{JWT: d.issuer.cfg, Tenants: []config.Tenant{{Name: "new", JWTValues: []string{"research"}}}}
	next, err := New(cfg, d, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(next.Close)
	close(goOn)
	if got, err := shown(t, next, token); got != "new" {
		t.Errorf("%q, %v", got, err)
	}
	if err := <-first; err != nil {
		t.Error(err)
	}
}

// TestParseKeys: which sets are taken, and with how many keys.
func TestParseKeys(t *testing.T) {
	small := must(rsa.GenerateKey(rand.Reader, 1024))
	ones := base64.RawURLEncoding.EncodeToString([]byte(strings.Repeat("\xff", 5000)))
	huge := fmt.Sprintf(`{"kty":"RSA","kid":"h","e":"AQAB","n":%q}`, ones)
	zeros := strings.Repeat("A", 42) + "E"
	off := fmt.Sprintf(`{"kty":"EC","crv":"P-256","kid":"e","x":%q,"y":%q}`, zeros, zeros)
	oaep := strings.Replace(string(must(jwk(rsaKey(), "r").MarshalJSON())), `{`, `{"alg":"RSA-OAEP",`, 1)
	raw := func(keys ...string) []byte { return []byte(`{"keys":[` + strings.Join(keys, ",") + `]}`) }
	one := string(must(jwk(edKey(), "1").MarshalJSON()))
	enc := jwk(rsaKey(), "enc")
	enc.Use = "enc"
	many := make([]string, maxKeys+1)
	for i := range many {
		many[i] = one
	}
	for _, c := range []struct {
		what string
		set  []byte
		want int
		err  string
	}{
		{"one of each", public(jwk(rsaKey(), "r"), jwk(ecKey(), "e"), jwk(edKey(), "d")), 3, ""},
		{"unknown kinds", raw(one, `{"kty":"LWE","kid":"x"}`, `{"kty":"OKP","crv":"X25519","kid":"y","x":"AAAA"}`, `7`, `{}`), 1, ""},
		{"secrets for signing", raw(one, `{"kty":"oct","kid":"s","k":"c2VjcmV0"}`), 1, ""},
		{"only secrets", raw(`{"kty":"oct","kid":"s","k":"c2VjcmV0"}`), 0, "of 1 keys none is"},
		{"for encrypting", public(enc, jwk(edKey(), "1")), 1, ""},
		{"another algorithm", raw(one, oaep), 1, ""},
		{"a short and a huge one", raw(one, string(must(jwk(small, "s").MarshalJSON())), huge), 1, ""},
		{"a point off the curve", raw(one, off), 1, ""},
		{"the same kid twice", public(jwk(edKey(), "1"), jwk(otherKey(), "1")), 0, "the same kid"},
		{"two without", public(jwk(edKey(), ""), jwk(otherKey(), "")), 0, "the same kid"},
		{"a private key", public(jose.JSONWebKey{Key: edKey(), KeyID: "1"}), 0, "its private half"},
		{"too many", raw(many...), 0, "more than are looked at"},
		{"none", raw(), 0, "none is"},
		{"no set", []byte(`[]`), 0, "no JSON Web Key Set"},
		{"nothing", nil, 0, "no JSON Web Key Set"},
	} {
		keys, err := parseKeys(c.set)
		if len(keys) != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %d keys, %v; want %d, %q", c.what, len(keys), err, c.want, c.err)
		}
	}
	if _, err := readKeys(strings.NewReader(strings.Repeat("x", maxKeySet+1))); err == nil {
		t.Error("more than 1 MiB is read")
	}
}

// FuzzJWT: whatever is shown, only what the issuer has signed makes anybody known.
func FuzzJWT(f *testing.F) {
	d := issued(f, config.JWT{JWKSFile: keyFile(f, public(jwk(rsaKey(), "r"), jwk(ecKey(), "e"), jwk(edKey(), "d")))})
	payload := encode(map[string]any{"iss": "https://id.example.org", "aud": "spillway", "exp": 1 << 33, "groups": "research"})
	body := must(base64.RawURLEncoding.DecodeString(payload))
	for alg, key := range map[jose.SignatureAlgorithm]jose.JSONWebKey{
		jose.RS256: {Key: rsaKey(), KeyID: "r"}, jose.ES256: {Key: ecKey(), KeyID: "e"}, jose.EdDSA: {Key: edKey(), KeyID: "d"},
	} {
		signer := must(jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, nil))
		good := must(must(signer.Sign(body)).CompactSerialize())
		f.Add(good)
		parts := strings.Split(good, ".")
		f.Add(encode(map[string]string{"alg": "none", "kid": "d"}) + "." + parts[1] + ".")
		critical := encode(map[string]any{"alg": string(alg), "kid": "d", "crit": []string{"b64"}, "b64": false})
		f.Add(critical + "." + parts[1] + "." + parts[2])
		f.Add(parts[0] + "." + encode(map[string]any{"iss": "https://id.example.org", "groups": "oncall"}) + "." + parts[2])
	}
	f.Add(strings.Repeat("[", 1000) + ".." + strings.Repeat("e30", 1000))
	f.Fuzz(func(t *testing.T, token string) {
		got, err := d.issuer.tenant(t.Context(), token)
		if (got == nil) == (err == nil) {
			t.Fatalf("%v and %v", got, err)
		}
		if err != nil {
			if qerr.From(err).Kind != qerr.Unauthorized {
				t.Fatalf("%q: %v", token, err)
			}
			return
		}
		said := must(base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1]))
		if got.Name != "research" || string(said) != string(body) {
			t.Fatalf("%q is %s, which nobody has signed", token, got.Name)
		}
	})
}

// FuzzKeys: whatever an issuer publishes, no key is kept that nothing may be verified with.
func FuzzKeys(f *testing.F) {
	f.Add(public(jwk(ecKey(), "e"), jwk(edKey(), "d")))
	f.Add([]byte(`{"keys":[{"kty":"RSA","n":"AQAB","e":"AQAB"},{"kty":"oct","k":"AA"},{"kty":"OKP","crv":"Ed25519","x":""}]}`))
	f.Fuzz(func(t *testing.T, set []byte) {
		keys, err := parseKeys(set)
		if (len(keys) == 0) != (err != nil) || len(keys) > maxKeys {
			t.Fatalf("%d keys, %v", len(keys), err)
		}
		for _, key := range keys {
			if !key.IsPublic() || !key.Valid() {
				t.Fatalf("%v", key)
			}
		}
	})
}
