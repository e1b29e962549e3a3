package server

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// TestSignedTokens: a token of the issuer is its tenant's on the road and on the pages; one that is
// not good is 401 with the reason, a huge one costs nothing, and no token stands in the log.
func TestSignedTokens(t *testing.T) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	set, err := json.Marshal(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: public, KeyID: "1"}}})
	if err != nil {
		t.Fatal(err)
	}
	keys := filepath.Join(t.TempDir(), "jwks.json")
	if err := os.WriteFile(keys, set, 0o600); err != nil {
		t.Fatal(err)
	}
	key := jose.SigningKey{Algorithm: jose.EdDSA, Key: jose.JSONWebKey{Key: private, KeyID: "1"}}
	signer, err := jose.NewSigner(key, nil)
	if err != nil {
		t.Fatal(err)
	}
	token := func(audience string, until time.Time) string {
		signed, err := signer.Sign(fmt.Appendf(nil, `{"iss":"i","aud":%q,"exp":%d,"groups":["x","research"]}`, audience, until.Unix()))
		if err != nil {
			t.Fatal(err)
		}
		text, err := signed.CompactSerialize()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	shard := fakeshard.Start(t, fakeshard.Config{Series: []map[string]string{{"__name__": "up", "namespace": "a"}}})
	log := &logbook{}
	s, url := startProxy(t, t.Context(), fmt.Sprintf(`groups: [{name: g, shards: [{replicas: [{url: %q}]}]}]
tenants: [{name: research, jwt_values: [research], matchers: ['{namespace="a"}']}]
jwt: {issuer: i, audience: [spillway], claim: groups, jwks_file: %s}
`, shard.URL(), keys), func(o *Options) { o.Logger = slog.New(log) })
	client := newClient(t)
	now := time.Now()
	good, late, other := token("spillway", now.Add(time.Hour)), token("spillway", now.Add(-time.Minute)), token("x", now.Add(time.Hour))
	for _, c := range []struct {
		token  string
		status int
		told   string
	}{
		{good, 200, ""},
		{good, 200, ""},
		{late, 401, `Bearer realm="Spillway", error="invalid_token", error_description="the token has expired; get a new one"`},
		{other, 401, `Bearer realm="Spillway", error="invalid_token", error_description="the token is for another audience"`},
		{good + strings.Repeat("x", 17<<10), 401, `Bearer realm="Spillway", error="invalid_token", error_description="the token is longer than 16 KiB"`},
		{good + strings.Repeat("x", 1<<20), 431, ""},
		{"", 401, `Bearer realm="Spillway"`},
	} {
		for _, path := range []string{"/api/v1/query?query=up", "/"} {
			r, err := http.NewRequestWithContext(context.Background(), http.MethodGet, url+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if c.token != "" {
				r.Header.Set("Authorization", "Bearer "+c.token)
			}
			got := (&rig{t: t, client: client}).ask(r)
			if got.status != c.status || got.header.Get("WWW-Authenticate") != c.told {
				t.Errorf("%s with %.20s… of %d bytes: %s %v", path, c.token, len(c.token), got, got.header)
			}
		}
	}
	if (&rig{t: t, s: s}).metric("spillway_jwks_read_timestamp_seconds") < 1e9 {
		t.Error("the metric does not tell when the keys were read")
	}
	for _, line := range log.atLeast(slog.LevelDebug) {
		if strings.Contains(line, good[:40]) {
			t.Errorf("a token is in the log: %s", line)
		}
	}
}
