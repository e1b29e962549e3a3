package config

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/proxy/endpoint"
)

func written(t *testing.T, c *Config) string {
	t.Helper()
	var out bytes.Buffer
	if err := Write(&out, c); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// sameMeaning compares what two files mean: nothing and an empty list are one, and a time is the
// same in every zone. Hash and Notes are of the files themselves.
func sameMeaning(a, b *Config) bool {
	strip := func(c *Config) *Config {
		out := *c
		out.Hash, out.Notes = "", nil
		return &out
	}
	return alike(reflect.ValueOf(strip(a)), reflect.ValueOf(strip(b)))
}

func alike(a, b reflect.Value) bool {
	if t, ok := a.Interface().(time.Time); ok {
		return t.Equal(b.Interface().(time.Time))
	}
	switch a.Kind() {
	case reflect.Pointer:
		return a.IsNil() == b.IsNil() && (a.IsNil() || alike(a.Elem(), b.Elem()))
	case reflect.Struct:
		for i := range a.NumField() {
			if a.Type().Field(i).IsExported() && !alike(a.Field(i), b.Field(i)) {
				return false
			}
		}
		return a.NumField() > 0 && (a.Type().Field(0).IsExported() || reflect.DeepEqual(a.Interface(), b.Interface()))
	case reflect.Slice:
		for i := range min(a.Len(), b.Len()) {
			if !alike(a.Index(i), b.Index(i)) {
				return false
			}
		}
		return a.Len() == b.Len()
	case reflect.Map:
		for _, k := range a.MapKeys() {
			if other := b.MapIndex(k); !other.IsValid() || !alike(a.MapIndex(k), other) {
				return false
			}
		}
		return a.Len() == b.Len()
	default:
		return reflect.DeepEqual(a.Interface(), b.Interface())
	}
}

// special has what prometheus/common spells its own way, and words that YAML would take for
// something else.
const special = `
groups:
  - name: "1"
    labels: {a: "true", b: "null", c: "1e3", d: " x ", e: "a\nb\n", f: "#", g: "2026-10-01", h: "ü: {"}
    shards:
      - replicas:
          - url: http://h1
            headers: {X-A: "", X-B: "***"}
            http_client: {enable_http2: false, no_proxy: a, proxy_url: "http://p", tls_config: {min_version: TLS12, max_version: TLS13, insecure_skip_verify: true}, basic_auth: {}}
          - url: http://h2
            http_client:
              oauth2:
                {client_id: "1", token_url: "http://t?a=b", grant_type: "urn:ietf:params:oauth:grant-type:jwt-bearer", claims: {a: 1, b: [x, {c: "2"}]}, scopes: [s], tls_config: {ca_file: /c}, client_certificate_key: k}
          - {url: "http://h3", http_client: {authorization: {type: Token, credentials_file: /c}, http_headers: {X-C: {files: [/h], values: ["1"]}, X-D: {}}}}
`

// TestWriteIsReadAgain: what is written means the same, secrets included, and written once more it
// is the same text.
func TestWriteIsReadAgain(t *testing.T) {
	texts := []string{minimal, secretive, spelled, special, minimal + `limits: {timeout: 90s, max_range: 90d, read_slots: 3, endpoints: {series: {max_series: 7}, query: {}}}
usage_log: {path: /x, max_size: 1MiB}
strict_parameters: true
partial_response: warn
drop_rules: {plan: [/plan.json, /b.json]}
`}
	files, err := filepath.Glob("../../docs/examples/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(data))
	}
	for _, text := range texts {
		first := parse(t, text)
		out := written(t, first)
		second := parse(t, out)
		if !sameMeaning(first, second) {
			t.Errorf("of\n%s\nis written\n%s", text, out)
		}
		if again := written(t, second); again != out {
			t.Errorf("written\n%s\nthen\n%s", out, again)
		}
	}
}

// TestSameMeaning: the comparison that the tests of Write rest on tells configurations apart.
func TestSameMeaning(t *testing.T) {
	base := parse(t, secretive)
	if !sameMeaning(base, parse(t, secretive+"\nmemory: {budget: 512MiB}\n")) {
		t.Error("a default makes a difference")
	}
	for old, instead := range map[string]string{
		"{X-Key: hunter2}": "{X-Key: hunter3}", "client_secret: hunter2": "client_secret: x", "url: http://h4": "url: http://h5",
		"{credentials: hunter2}": "{credentials: x}", "name: a": "name: b",
		"http://p:hunter2@proxy": "http://p:hunter3@proxy", "{X-P: [hunter2]}": "{X-P: [x]}", "secrets: [hunter2]": "secrets: [x]",
		"key: hunter2": "key: x", "endpoint_params: {p: hunter2}": "endpoint_params: {}",
	} {
		other := strings.Replace(secretive, old, instead, 1)
		if other == secretive || sameMeaning(base, parse(t, other)) {
			t.Errorf("%s for %s makes no difference", instead, old)
		}
	}
	if sameMeaning(base, parse(t, secretive+"\nlimits: {endpoints: {series: {timeout: 1s}}}\n")) {
		t.Error("an override makes no difference")
	}
}

// TestWriteOnlyWhatDiffers is how a file looks that a program has made: as one would write it.
func TestWriteOnlyWhatDiffers(t *testing.T) {
	c := Default()
	c.Groups = []Group{
		{
			Name: "jaguar", Labels: map[string]string{"cluster": "jaguar"}, ReplicaLabels: []string{"prometheus_replica"}, Heartbeat: "up",
			ShardBy: []string{"node"}, Hashmod: Hashmod{Labels: []string{"node"}, Modulus: 2},
			Shards: []Shard{
				{Hash: Hash{N: 0, Set: true}, Replicas: Replicas("http://10.0.0.1:9090", "http://10.0.0.2:9090")},
				{Hash: Hash{N: 1, Set: true}, Names: []string{"kube_pod_.+"}, Replicas: Replicas("http://10.0.0.3:9090")},
			},
		},
		{Name: "rules", Names: []string{"cluster:.+", "ALERTS"}, Shards: []Shard{{Replicas: Replicas("http://10.0.0.9:9090")}}},
	}
	c.Limits.MaxSeries, c.Limits.MaxRange = 250_000, 32*24*time.Hour
	c.Limits.Endpoints[endpoint.Series] = Limits{Timeout: time.Second}
	c.Memory.Budget = 2 << 30
	const want = `groups:
  - name: jaguar
    labels: {cluster: jaguar}
    replica_labels: [prometheus_replica]
    shard_by: [node]
    hashmod: {labels: [node], modulus: 2}
    heartbeat: up
    shards:
      - replicas: [{url: 'http://10.0.0.1:9090'}, {url: 'http://10.0.0.2:9090'}]
        hash: 0
      - replicas: [{url: 'http://10.0.0.3:9090'}]
        hash: 1
        names: [kube_pod_.+]
  - name: rules
    names: ['cluster:.+', ALERTS]
    shards:
      - replicas: [{url: 'http://10.0.0.9:9090'}]
limits:
  max_series: 250000
  max_range: 32d
  endpoints: {series: {timeout: 1s}}
memory: {budget: 2GiB}
`
	if got := written(t, c); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	file := filepath.Join(t.TempDir(), "spillway.yaml")
	if err := WriteFile(file, c); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != want {
		t.Errorf("the file has %s, %v", data, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// TestWriteRefuses: a file that Load would refuse is not made.
func TestWriteRefuses(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"at least one group is needed": func(c *Config) { c.Groups = nil },
		"must lie before until": func(c *Config) {
			c.Groups[0].From = Moment{Rel: -time.Hour, Set: true}
			c.Groups[0].Until = c.Groups[0].From
		},
		"whole milliseconds":        func(c *Config) { c.Limits.Timeout = time.Microsecond },
		"0 does not mean unlimited": func(c *Config) { c.Limits.MaxSeries = 0 },
		"is no type of server":      func(c *Config) { c.Groups[0].Shards[0].Replicas = []Replica{{URL: "http://h"}} },
	} {
		c := Default()
		c.Groups = []Group{{Name: "a", Shards: []Shard{{Replicas: Replicas("http://h")}}}}
		change(c)
		file := filepath.Join(t.TempDir(), "spillway.yaml")
		if err := WriteFile(file, c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
		if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: a file is there: %v", want, err)
		}
	}
}
