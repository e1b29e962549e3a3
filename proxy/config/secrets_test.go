package config

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const secretive = `groups:
  - name: a
    shards:
      - replicas:
          - url: http://h1
            headers: {X-Key: hunter2}
            http_client:
              basic_auth: {username: u, password: hunter2}
              proxy_url: http://p:hunter2@proxy:3128
              proxy_connect_header: {X-P: [hunter2]}
              http_headers: {X-Other: {values: [hunter2], secrets: [hunter2]}}
              tls_config: {key: hunter2, cert: c}
          - url: http://h2
            http_client:
              oauth2: {client_id: i, client_secret: hunter2, token_url: "http://u:hunter2@t", endpoint_params: {p: hunter2}}
          - url: http://h3
            http_client: {authorization: {credentials: hunter2}}
          - url: http://h4
            http_client: {bearer_token: hunter2}
tenants: [{name: a, jwt_values: [a]}]
jwt: {issuer: i, audience: [a], claim: c, jwks_url: "https://h5", http_client: {basic_auth: {username: u, password: hunter2}, http_headers: {X-K: {values: [hunter2]}}}}
`

func TestSecretsAreNeverPrinted(t *testing.T) {
	cfg := parse(t, secretive)
	r := cfg.Groups[0].Shards[0].Replicas[0]
	var printed strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		for _, v := range []any{cfg, cfg.Groups, cfg.Groups[0], r, &r, r.Headers, r.Headers["X-Key"], cfg.JWT, &cfg.JWT} {
			fmt.Fprintf(&printed, verb+"\n", v)
		}
	}
	for _, v := range []any{cfg, cfg.Groups, r, r.Headers, cfg.JWT} {
		j, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		y, err := yaml.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		printed.Write(j)
		printed.Write(y)
		slog.New(slog.NewJSONHandler(&printed, nil)).Info("x", "v", v)
		slog.New(slog.NewTextHandler(&printed, nil)).Info("x", "v", v)
	}
	printed.Write(cfg.Redacted())
	for line := range strings.Lines(printed.String()) {
		if strings.Contains(line, "hunter2") || strings.Contains(line, "68756e74657232") {
			t.Errorf("a secret in %.200s", line)
		}
	}
	for _, want := range []string{"X-Key: '***'", "password: '***'", "http://h1", "username: u", "client_id: i", "https://h5"} {
		if !strings.Contains(string(cfg.Redacted()), want) {
			t.Errorf("%s is missing in\n%s", want, cfg.Redacted())
		}
	}
	if string(r.Headers["X-Key"]) != "hunter2" || r.HTTPClient.BasicAuth.Password != "hunter2" ||
		r.HTTPClient.HTTPHeaders.Headers["X-Other"].Values[0] != "hunter2" {
		t.Error("printing changed the configuration")
	}
}

// TestSecretsAreNotInProblems puts a secret where it does not belong: the message must say so
// without it.
func TestSecretsAreNotInProblems(t *testing.T) {
	for _, replica := range []string{
		`url: "u:hunter2@h:9090"`,
		`url: "http://u:hunter2@h:9090"`,
		`url: "http://u:hunter2@h:x"`,
		`url: "http://h", headers: hunter2`,
		`url: "http://h", headers: [hunter2]`,
		`url: "http://h", headers: {X-A: "hunter2\n"}`,
		`url: "http://h", headers: {X-A: [hunter2]}`,
		`url: "http://h", http_client: hunter2`,
		`url: "http://h", http_client: {basic_auth: hunter2}`,
		`url: "http://h", http_client: {basic_auth: {password: [hunter2]}}`,
		`url: "http://h", http_client: {bearer_token: {a: hunter2}}`,
		`url: "http://h", http_client: {proxy_url: "http://u:hunter2@%zz"}`,
		`url: "http://h", http_client: {tls_config: {key: hunter2}}`,
		`url: "http://h", http_client: {authorization: {type: basic, credentials: hunter2}}`,
		`url: "http://h", http_client: {http_headers: {X-A: {secrets: hunter2}}}`,
	} {
		_, err := parseAt([]byte("groups: [{name: a, shards: [{replicas: [{"+replica+"}]}]}]\n"), ".", testNow)
		if err == nil {
			t.Errorf("%s was taken", replica)
		} else if strings.Contains(err.Error(), "hunter") {
			t.Errorf("%s: %v", replica, err)
		}
	}
}

// TestRedactedKeepsWhatIsNotSecret: an http_client that cannot be printed would be one row of
// stars.
func TestRedactedKeepsWhatIsNotSecret(t *testing.T) {
	cfg, err := Load("../../docs/examples/regions.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ca_file: ../../docs/examples/tls/ca.pem", "min_version: TLS12", "password_file: ../../docs/examples/secrets/eu-password", "X-Scope-Orgid: '***'"} {
		if !strings.Contains(cfg.String(), want) {
			t.Errorf("%s is missing in\n%s", want, cfg)
		}
	}
}

// TestRedactedLoads shows that what is printed is a configuration of the same meaning, where
// nothing in it is secret.
func TestRedactedLoads(t *testing.T) {
	first := parse(t, minimal+"limits: {timeout: 90s, max_range: 90d, endpoints: {series: {max_series: 7}}}\nusage_log: {path: /x}\nstrict_parameters: true\ndrop_rules: {plan: /plan.json}\n")
	second := parse(t, first.String())
	if first.String() != second.String() {
		t.Errorf("got\n%s\nthen\n%s", first, second)
	}
}
