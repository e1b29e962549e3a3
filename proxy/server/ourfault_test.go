package server

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOurOwnFaults: what is wrong with the certificates and files that Spillway itself asks with is
// told as that, and not as the server's breaking the connection.
func TestOurOwnFaults(t *testing.T) {
	ours, other := newAuthority(t, "ours"), newAuthority(t, "another")
	cert := ours.issue("server")
	other.issue("client")
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"status":"success","data":{"resultType":"vector","result":[]}}`))
	})
	serve := func(config *tls.Config) string {
		s := httptest.NewUnstartedServer(handler)
		s.TLS = config
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		s.StartTLS()
		t.Cleanup(s.Close)
		return s.URL
	}
	plain := httptest.NewServer(handler)
	t.Cleanup(plain.Close)
	open := serve(&tls.Config{Certificates: []tls.Certificate{cert}})
	strict := serve(&tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ours.Pool()})
	secret := filepath.Join(t.TempDir(), "token")
	ca := filepath.Join(ours.dir, "ca.pem")
	for _, tc := range []struct {
		name, url, client string
		token             string // in the file, while Spillway runs; "-" is none
		want, advice      string
	}{
		{"another authority", open, "tls_config: {ca_file: " + filepath.Join(other.dir, "ca.pem") + "}", "", "shows a certificate that Spillway does not trust: x509: ", "ca_file"},
		{"another name", open, "tls_config: {ca_file: " + ca + ", server_name: elsewhere}", "", "shows a certificate that Spillway does not trust: x509: ", "server_name"},
		{"no client certificate", strict, "tls_config: {ca_file: " + ca + "}", "", "ends the TLS handshake with Spillway: certificate required", "cert_file"},
		{"another client certificate", strict, fmt.Sprintf("tls_config: {ca_file: %s, cert_file: %s, key_file: %s}", ca, filepath.Join(other.dir, "client.pem"), filepath.Join(other.dir, "client.key")), "", "ends the TLS handshake with Spillway: ", "cert_file"},
		{
			"no TLS", "https://" + strings.TrimPrefix(plain.URL, "http://"), "tls_config: {ca_file: " + ca + "}", "", "does not speak TLS",
			"http://",
		},
		{"a token that has gone", open, "authorization: {credentials_file: " + secret + "}\n            tls_config: {ca_file: " + ca + "}", "-", "Spillway cannot read token, which it needs to ask ", "may read them"},
		{
			"a broken token", plain.URL, "authorization: {credentials_file: " + secret + "}", "one\ntwo",
			"have a character that no header may have", "one line",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := os.WriteFile(secret, []byte("token"), 0o600); err != nil {
				t.Fatal(err)
			}
			_, base := startProxy(t, t.Context(), fmt.Sprintf(`
groups:
  - name: heron
    shards:
      - replicas:
        - url: %q
          http_client:
            %s
`, tc.url, tc.client))
			switch tc.token {
			case "":
			case "-":
				if err := os.Remove(secret); err != nil {
					t.Fatal(err)
				}
			default:
				if err := os.WriteFile(secret, []byte(tc.token), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			code, body := ask(t, base, "/api/v1/query", url.Values{"query": {"up"}})
			text := string(body)
			if code != http.StatusBadGateway || !strings.Contains(text, tc.want) || !strings.Contains(text, tc.advice) {
				t.Errorf("%d %s, want %q and advice with %q", code, text, tc.want, tc.advice)
			}
			if strings.Contains(text, "broke the connection") || strings.Contains(text, filepath.Dir(secret)) {
				t.Errorf("it blames the server, or tells a path: %s", text)
			}
		})
	}
}
