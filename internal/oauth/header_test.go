package oauth

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	commonconfig "github.com/prometheus/common/config"
)

// endless answers /endless with a header that has no end, /token with a token, and everything else
// with a header of 40 KiB and a body of 2 MiB.
func endless(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/endless":
		c, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer c.Close()
		_, err = io.WriteString(c, "HTTP/1.1 200 OK\r\n")
		for err == nil {
			_, err = io.WriteString(c, strings.Repeat("a:\r\n", 1024))
		}
	case "/token":
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"access_token":"t","token_type":"Bearer","expires_in":3600}`)
	default:
		w.Header().Set("Long", strings.Repeat("x", 40<<10))
		_, _ = w.Write(make([]byte, 2<<20))
	}
}

// counting is a connection that counts what is read of it.
type counting struct {
	net.Conn
	n *atomic.Int64
}

func (c counting) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// TestEndlessHeader: an answer whose header has no end fails after a bounded part of it, whatever
// the client is configured to send; long bodies are read, and the connection is used again.
func TestEndlessHeader(t *testing.T) {
	plain, secret := httptest.NewServer(http.HandlerFunc(endless)), httptest.NewTLSServer(http.HandlerFunc(endless))
	defer plain.Close()
	defer secret.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secret.Certificate().Raw})
	if err := os.WriteFile(ca, text, 0o600); err != nil {
		t.Fatal(err)
	}
	tls := commonconfig.TLSConfig{CA: string(text)}
	password := &commonconfig.BasicAuth{Username: "u", Password: "p"}
	token := func(path string) *commonconfig.OAuth2 {
		return &commonconfig.OAuth2{ClientID: "c", ClientSecret: "s", TokenURL: plain.URL + path}
	}
	for name, tc := range map[string]struct {
		url, path string // path is the one that fails
		cfg       commonconfig.HTTPClientConfig
	}{
		"a password":           {plain.URL, "/endless", commonconfig.HTTPClientConfig{BasicAuth: password}},
		"TLS":                  {secret.URL, "/endless", commonconfig.HTTPClientConfig{TLSConfig: tls}},
		"TLS, of a file":       {secret.URL, "/endless", commonconfig.HTTPClientConfig{TLSConfig: commonconfig.TLSConfig{CAFile: ca}}},
		"TLS and a password":   {secret.URL, "/endless", commonconfig.HTTPClientConfig{TLSConfig: tls, BasicAuth: password}},
		"oauth2":               {plain.URL, "/endless", commonconfig.HTTPClientConfig{OAuth2: token("/token")}},
		"the token endpoint's": {plain.URL, "/", commonconfig.HTTPClientConfig{OAuth2: token("/endless")}},
	} {
		t.Run(name, func(t *testing.T) {
			var read, dialled atomic.Int64
			rt, err := RoundTripper(tc.cfg, "test", func(ctx context.Context, network, addr string) (net.Conn, error) {
				c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
				dialled.Add(1)
				return counting{c, &read}, err
			})
			if err != nil {
				t.Fatal(err)
			}
			defer rt.(interface{ CloseIdleConnections() }).CloseIdleConnections()
			ask := func(path string) (int64, error) {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, tc.url+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := rt.RoundTrip(req)
				if err != nil {
					return 0, err
				}
				defer resp.Body.Close()
				return io.Copy(io.Discard, resp.Body)
			}
			for range 2 {
				if tc.path == "/" {
					break // nothing is answered without a token
				}
				if n, err := ask("/"); n != 2<<20 || err != nil {
					t.Fatalf("a long body: %d bytes, %v", n, err)
				}
			}
			if n := dialled.Load(); n > 1 && tc.cfg.OAuth2 == nil {
				t.Errorf("%d connections for two calls one after the other", n)
			}
			before := read.Load()
			if _, err := ask(tc.path); !errors.Is(err, errHeader) {
				t.Errorf("a header without an end: %v", err)
			}
			if n := read.Load() - before; n > 3*maxHeader { // a token is asked for in two ways
				t.Errorf("%d bytes of it were read", n)
			}
		})
	}
}
