package config

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"time"

	commonconfig "github.com/prometheus/common/config"

	"github.com/spillwayproject/spillway/internal/clip"
	"github.com/spillwayproject/spillway/internal/plainfile"
	"github.com/spillwayproject/spillway/proxy/endpoint"
)

// MaxFileBytes is the largest configuration file that is read.
const MaxFileBytes = 4 << 20

// The values of partial_response.
const (
	// PartialAbort answers with an error that names the failed shard.
	PartialAbort = "abort"
	// PartialWarn answers with what the other shards hold, and a warning.
	PartialWarn = "warn"
)

// The values of limits.unselective.
const (
	// RewritesOff looks for no rewrites of what is refused.
	RewritesOff = "off"
	// UnselectiveRefuse refuses queries with a selector that selects nothing in particular.
	UnselectiveRefuse = "refuse"
	// UnselectiveAllow lets them run under the other limits.
	UnselectiveAllow = "allow"
)

// The types of replica.
const (
	// TypePrometheus is a Prometheus server, and the default.
	TypePrometheus = "prometheus"
	// TypeThanos is a Thanos Query, which serves finished answers and no series to compute with.
	TypeThanos = "thanos"
)

// Config is the file, with defaults filled in. Treat it as immutable.
type Config struct {
	// Groups are the series of one cluster, region or tenant each; at least one.
	Groups []Group `yaml:"groups" is:"required max=1000"`
	// Limits are the bounds of all requests; ask LimitsFor for those of one endpoint.
	Limits LimitsSection `yaml:"limits"`
	// Memory bounds what all requests together hold.
	Memory Memory `yaml:"memory"`
	// Tenants are those who may ask; with none, everybody may.
	Tenants []Tenant `yaml:"tenants" is:"filled max=1000"`
	// JWT is whose signed tokens make a tenant known.
	JWT JWT `yaml:"jwt"`
	// Lanes are who gets what share of the places at the shards, first match wins; ask
	// LanesInForce.
	Lanes []Lane `yaml:"lanes" is:"filled max=16"`
	// UsageLog is where each request leaves a line.
	UsageLog UsageLog `yaml:"usage_log"`
	// DropRules are the plans of the drop rules that the servers apply.
	DropRules DropRules `yaml:"drop_rules"`
	// Deny are rules that refuse requests.
	Deny []DenyRule `yaml:"deny" is:"filled max=1000"`
	// StateDir is a folder in which Spillway keeps what outlives its process; empty is none. After
	// Load it is absolute or relative to the working directory.
	StateDir string `yaml:"state_dir" is:"filled"`
	// StrictParameters answers an unknown request parameter with 400 instead of dropping it.
	StrictParameters bool `yaml:"strict_parameters"`
	// PartialResponse is PartialAbort or PartialWarn, for requests that do not choose themselves.
	PartialResponse string `yaml:"partial_response" default:"abort" is:"one=abort|warn"`

	// Hash is the SHA-256 of the file's bytes, in hex. Equal files have equal hashes; the contents
	// of files that http_client refers to are not part of it.
	Hash string `yaml:"-"`
	// Notes are remarks that do not keep the file from being used, such as an override above the
	// ceiling.
	Notes Problems `yaml:"-"`
}

func (Config) meaning() map[string]string {
	return map[string]string{
		"groups":    "The series of one cluster, region or tenant each. At least one.",
		"limits":    "The bounds of one request, each the ceiling for all endpoints.",
		"tenants":   "Who may ask, and what; see [tenants.md](tenants.md). Without it everybody who reaches the listener may ask everything.",
		"jwt":       "Whose signed tokens make a tenant known; see [tenants.md](tenants.md#tokens-of-an-issuer).",
		"lanes":     "Classes of callers, each with its own share of the places at the shards; see [lanes.md](lanes.md).",
		"memory":    "What all requests together may hold.",
		"usage_log": "One line for each request, see [usage-log.md](usage-log.md). Without it none is written.",
		"drop_rules": "What the servers' drop rules take away, so that a query for it is told; see " +
			"[drop-rules-report.md](drop-rules-report.md#warnings-for-dropped-metrics).",
		"deny": "Requests that are refused by rule; see [deny-rules.md](deny-rules.md).",
		"state_dir": "A folder of Spillway's own, relative to the configuration file, in which it keeps what outlives its process: " +
			"rules of the admin API, and which requests are under way; see [deny-rules.md](deny-rules.md). Without it these " +
			"are lost when it ends. It is read at the start, not at a reload.",
		"strict_parameters": "Whether an unknown request parameter is answered with 400. Otherwise it is dropped and counted.",
		"partial_response": "What becomes of a request when a shard fails: `abort` answers with an error that names it, `warn` with what " +
			"the others hold and a warning; remote read and federate, which have no place for one, and Grafana's alert rules " +
			"(`FromAlert`, `X-Rule-Uid`), which do not look at it, stay at `abort`. " +
			"`partial_response=` on a request goes before.",
	}
}

// Group is the series of one cluster, region or tenant.
type Group struct {
	// Name is unique; it appears in errors, logs and metrics.
	Name string `yaml:"name" is:"required pattern=^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$"`
	// Labels are on every series of the group. Matchers on them choose groups and are never sent.
	// May be empty.
	Labels map[string]string `yaml:"labels"`
	// ReplicaLabels are removed from every series.
	ReplicaLabels []string `yaml:"replica_labels"`
	// From is where the group's samples begin, inclusive.
	From Moment `yaml:"from"`
	// Until is where they end, exclusive.
	Until Moment `yaml:"until"`
	// ShardBy are labels that keep series together: series that have all of them, with equal
	// values, are on one shard. Empty means no such promise.
	ShardBy []string `yaml:"shard_by" is:"filled"`
	// Hashmod tells which shard holds a value of a label; with the zero value that is not known.
	Hashmod Hashmod `yaml:"hashmod" is:"filled"`
	// Names are anchored regular expressions, at most MaxNames: each of the group's series has a
	// name that one of them matches. Empty means no such promise.
	Names []string `yaml:"names" is:"filled max=1000"`
	// Heartbeat is a selector by which a replica is seen to be whole; empty is none.
	Heartbeat string `yaml:"heartbeat" is:"filled"`
	// PartialResponse is PartialAbort or PartialWarn for the group's shards; empty is what the key
	// of the whole file says.
	PartialResponse string `yaml:"partial_response" is:"filled one=abort|warn"`
	// Shards are disjoint slices of the group; at least one, or ShardsFrom.
	Shards []Shard `yaml:"shards" is:"filled"`
	// ShardsFrom is where they are looked up instead.
	ShardsFrom ShardsFrom `yaml:"shards_from"`
}

func (Group) meaning() map[string]string {
	return map[string]string{
		"name": "Unique; errors, logs and metrics call the group by it. Up to 63 letters, digits, `_`, `-`, `.`.",
		"labels": "Labels that are on every series of the group, whatever the servers say. Matchers on them choose groups and are " +
			"never sent. May be empty. Two groups with the same labels must not overlap in time.",
		"replica_labels": "Labels by which replicas differ. They are never in an answer.",
		"from":           "Where the group's samples begin, inclusive: a time, or a distance from now such as `-14d`.",
		"until":          "Where they end, exclusive.",
		"heartbeat":      "A selector, such as `up`, by which a replica is seen to be whole.",
		"partial_response": "`abort` or `warn`, as the key of the same name beside `groups`, for the shards of this group; without it, what " +
			"that one says. So an archive far away may be missing from an answer, with a warning, while the shards at hand may not.",
		"shard_by": "Labels whose series stand together: those that have all of them, with equal values, are on one shard of the " +
			"group at any one time. Joins and aggregations that keep these labels may then run on the shards. It is a " +
			"promise about the servers; see [trust.md](trust.md#which-shard-holds-what).",
		"hashmod": "Which shard holds what, as Prometheus' relabel action `hashmod` computes it. With it every shard has a `hash`. " +
			"A request for certain values of the label goes to their shards only, for as long as the servers are seen to " +
			"keep the rule; see [trust.md](trust.md#which-shard-holds-what).",
		"names": "Regular expressions, anchored at both ends: every series of the group has a name that one of them matches. " +
			"Requests for other metrics leave the group out, for as long as its servers are seen to keep to it. For groups " +
			"that have no labels, such as that of what a ruler records; see [trust.md](trust.md#which-shard-holds-what).",
		"shards":      "Disjoint slices of the group's series. At least one, unless there is `shards_from`.",
		"shards_from": "Where the shards are looked up while Spillway runs; see [discovery.md](discovery.md).",
	}
}

// Span is the group's own time [from, until) in milliseconds for a request that arrived at now.
func (g *Group) Span(now time.Time) (from, until int64) { return Span(g.From, g.Until, now) }

// ShardSpan is the time for which the i-th shard answers: its own span within the group's. It is
// empty where until <= from.
func (g *Group) ShardSpan(i int, now time.Time) (from, until int64) {
	from, until = g.Span(now)
	f, u := Span(g.Shards[i].From, g.Shards[i].Until, now)
	return max(from, f), min(until, u)
}

// Hashmod is the rule by which series were given to the shards of a group, as Prometheus' relabel
// action hashmod computes it: a series with the label is on the shard whose Hash is the MD5 of the
// label's value, its last eight bytes as a big-endian number, modulo Modulus. Series without the
// label may be anywhere.
type Hashmod struct {
	// Labels are the source labels; exactly one, since that is what can be checked on the shards.
	Labels []string `yaml:"labels" is:"required max=1"`
	// Modulus is from 1 to MaxModulus; 0 where there is no rule.
	Modulus int `yaml:"modulus" unit:"modulus" is:"required max=65536"`
}

func (Hashmod) meaning() map[string]string {
	return map[string]string{
		"labels":  "The source label: exactly one, on the stored series.",
		"modulus": "By how much the hash is divided, at most 65536.",
	}
}

// MaxNames is how many patterns of names a group may have, or a shard.
const MaxNames = 1000

// MaxModulus is the largest modulus of hashmod: more shards than one proxy can ask.
const MaxModulus = 1 << 16

// Hash is the number of a shard under its group's hashmod. The zero value is none.
type Hash struct {
	// N is from 0 to the modulus, exclusive.
	N uint64
	// Set tells whether the file gave it.
	Set bool
}

// String spells the number as the file does; empty where it is not set.
func (h Hash) String() string {
	if !h.Set {
		return ""
	}
	return strconv.FormatUint(h.N, 10)
}

// Shard is a disjoint slice of a group.
type Shard struct {
	// Replicas are servers that hold copies of the slice; at least one, all of one type.
	Replicas []Replica `yaml:"replicas" is:"required"`
	// Hash is the shard's number under the group's hashmod; set where that is.
	Hash Hash `yaml:"hash"`
	// Names are anchored regular expressions, at most MaxNames: every series of the group whose
	// name one of them matches is on this shard, and on no other one of the group. Empty means no
	// such promise.
	Names []string `yaml:"names" is:"filled max=1000"`
	// From is where the slice begins, inclusive; within the group's own span.
	From Moment `yaml:"from"`
	// Until is where it ends, exclusive.
	Until Moment `yaml:"until"`
}

func (Shard) meaning() map[string]string {
	return map[string]string{
		"hash": "The shard's number under `hashmod`, from 0, below the modulus. Two shards have the same one only where their " +
			"times do not overlap.",
		"names": "Regular expressions, anchored at both ends: every series of the group whose name one of them matches is on this shard, in its time, " +
			"and on no other one of the group, as those of kube-state-metrics are that one shard scrapes. Requests for such metrics go to this shard alone, " +
			"for as long as the others are seen to have none; see [trust.md](trust.md#which-shard-holds-what).",
		"replicas": "Servers that hold copies of the slice. At least one, all of one type.",
		"from":     "Where the slice begins, inclusive, within the group's own span.",
		"until":    "Where it ends, exclusive.",
	}
}

// Replica is one server.
type Replica struct {
	// URL is the server's address as the file spells it, with its path prefix if it has one; http
	// or https.
	URL string `yaml:"url" is:"required pattern=^[Hh][Tt][Tt][Pp][Ss]?://"`
	// Type is what kind of server it is: TypePrometheus or TypeThanos.
	Type string `yaml:"type" default:"prometheus" is:"one=prometheus|thanos"`
	// Headers are set on every request to it, names in canonical form.
	Headers map[string]Secret `yaml:"headers"`
	// HTTPClient is its authentication, TLS and proxy; file paths are absolute or relative to the
	// working directory. Redirects are never followed.
	HTTPClient commonconfig.HTTPClientConfig `yaml:"http_client"`
	// Metrics is where its own metrics are: a path below URL, a whole URL of the same host and
	// port, or MetricsNone.
	Metrics string `yaml:"metrics" default:"/metrics" is:"filled"`
	// MemoryLimit is how much memory it may hold; 0 is what it says itself (GOMEMLIMIT).
	MemoryLimit Bytes `yaml:"memory_limit"`
}

// MetricsNone is the Metrics of a server whose own metrics are not to be read.
const MetricsNone = "none"

// metricsPath is where a server's own metrics are unless Metrics says otherwise.
const metricsPath = "/metrics"

// NamesMetrics tells whether Metrics is another page than where every server has its metrics, so
// that it is known to be the server's own.
func (r *Replica) NamesMetrics() bool { return r.Metrics != "" && r.Metrics != metricsPath }

// isPath tells whether a text is a path below another one, and no more.
func isPath(at string) bool {
	return strings.HasPrefix(at, "/") && !strings.ContainsAny(at, "?#") && !strings.Contains(at+"/", "/../")
}

// MetricsURL is where the server's own metrics are; nil where they are not to be read. The error
// says what is wrong with Metrics.
func (r *Replica) MetricsURL() (*url.URL, error) {
	if r.Metrics == MetricsNone {
		return nil, nil
	}
	base, err := r.Base()
	if err != nil {
		return nil, err
	}
	at := cmp.Or(r.Metrics, metricsPath)
	if isPath(at) {
		return base.JoinPath(at), nil
	}
	u, err := parseURL(at)
	if err != nil || u.Scheme != base.Scheme || u.Host != base.Host {
		return nil, fmt.Errorf("write a path below url, such as /metrics, a whole URL with the scheme, host and port of url, since credentials go along, or %s", MetricsNone)
	}
	return u, nil
}

func (Replica) meaning() map[string]string {
	return map[string]string{
		"url": "The server's address, http or https, up to but without `/api/v1`. No credentials, query string or fragment. " +
			"One server stands in one place only.",
		"type": "What kind of server it is: `prometheus`, or `thanos` for a Thanos Query, which can answer what one shard " +
			"answers alone or in part and no more; see [thanos.md](thanos.md).",
		"headers": "Headers for every request to the server. Printed as stars. Not those of the connection, nor those that " +
			"Spillway writes itself.",
		"http_client": "Authentication, TLS and proxy, as [Prometheus spells " +
			"them](https://prometheus.io/docs/prometheus/latest/configuration/configuration/#http_config). Paths are " +
			"relative to the configuration file. `follow_redirects: true` and the keys `*_ref` are refused.",
		"metrics": "Where its own metrics are, which tell its memory and its limit: a path below `url`, a whole URL with the scheme, host and port of `url`, or " +
			"`none`; see [shards.md](shards.md#memory). A server without them is asked like one that is well.",
		"memory_limit": "How much memory it may hold, where it does not say so itself by GOMEMLIMIT, or where that is more: that of its container, say.",
	}
}

// Base is the replica's address parsed and normalised: lower-case host, no default port, no
// trailing slash. Two URLs of one server have equal bases.
func (r *Replica) Base() (*url.URL, error) { return parseURL(r.URL) }

func (r *Replica) setDefaults() {
	fill(reflect.ValueOf(r).Elem())
	r.HTTPClient = defaultHTTPClient()
}

// Memory bounds what all requests together hold.
type Memory struct {
	// Budget is the most bytes that requests may hold together; beyond it they are answered 429.
	Budget Bytes `yaml:"budget" default:"512MiB"`
}

func (Memory) meaning() map[string]string {
	return map[string]string{
		"budget": "The most bytes that requests hold together, and one of them half of it; beyond it they are answered 429.",
	}
}

// UsageLog is where each request leaves a line.
type UsageLog struct {
	// Path is the file; empty writes none. After Load it is absolute or relative to the working
	// directory.
	Path string `yaml:"path" is:"required"`
	// MaxSize is the size at which a new file is begun.
	MaxSize Bytes `yaml:"max_size" default:"256MiB"`
	// MaxFiles is how many files are kept, the open one included.
	MaxFiles int `yaml:"max_files" default:"8" is:"max=1000"`
}

func (UsageLog) meaning() map[string]string {
	return map[string]string{
		"path":      "The file, mode 0600, relative to the configuration file. Needed where `usage_log` stands.",
		"max_size":  "The size at which a new file is begun, at least 1KiB.",
		"max_files": "How many files are kept, the open one included, at most 1000.",
	}
}

// DropRules are the plans of the drop rules that the servers apply, so that a query for what they
// drop is told so.
type DropRules struct {
	// Plan are the files; with none, no query is told anything. After Load they are absolute or
	// relative to the working directory.
	Plan Paths `yaml:"plan" is:"filled max=100"`
}

func (DropRules) meaning() map[string]string {
	return map[string]string{
		"plan": "The plan that `spillway relabel plan` has written, relative to the configuration file; a list where several " +
			"are in force, at most 100. It is read at the start and at every reload.",
	}
}

// Paths are files: in the file one path, or a list of them.
type Paths []string

// Default is the configuration of an empty file: every limit at its default, which is in its
// field's tag default, and no groups.
func Default() *Config {
	c := &Config{Limits: LimitsSection{Endpoints: map[endpoint.ID]Limits{}}}
	fill(reflect.ValueOf(c).Elem())
	return c
}

// fill sets the fields of a struct to their defaults.
func fill(v reflect.Value) {
	for _, f := range fieldsOf(v.Type()) {
		fv := v.FieldByIndex(f.index)
		switch {
		case f.def != "":
			if err := setScalar(f.def, fv, f.unit); err != nil {
				panic("the default of " + f.key + ": " + err.Error())
			}
		case fv.Kind() == reflect.Struct && !isScalarType(fv.Type()) && fv.Type() != httpClientType:
			fill(fv)
		}
	}
}

// Load reads and checks the file. Where its content is wrong, the error is Problems. Paths in the
// file are relative to the folder it is in.
func Load(path string) (*Config, error) {
	data, err := read(path)
	if err != nil {
		return nil, err
	}
	return Parse(data, filepath.Dir(path))
}

func read(path string) ([]byte, error) {
	f, err := plainfile.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	defer f.Close()
	return readFrom(f)
}

func readFrom(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	return data, nil
}

// Parse is Load for bytes that were read already; dir is what relative paths in them start from.
// The error is Problems.
func Parse(data []byte, dir string) (*Config, error) { return parseAt(data, dir, time.Now()) }

// parseAt is Parse with the clock given: whether two spans overlap may depend on it where one is
// relative and one is not.
func parseAt(data []byte, dir string, now time.Time) (*Config, error) {
	cfg, d, problems := decode(data, dir, now)
	if d != nil {
		problems = d.problems.sorted(d.over)
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return cfg, nil
}

// decode reads as much of the configuration as can be read, with all that is wrong with it in the
// decoder; without one, nothing could be read, and the problems say why.
func decode(data []byte, dir string, now time.Time) (*Config, *decoder, Problems) {
	root, problems := readTree(data)
	if root == nil {
		return nil, nil, problems.sorted(0)
	}
	d := newDecoder(problems)
	cfg := Default()
	d.config(root, cfg)
	v := &validator{decoder: d, dir: dir, now: now}
	v.config(cfg)
	sum := sha256.Sum256(data)
	cfg.Hash = hex.EncodeToString(sum[:])
	cfg.Notes = v.notes.sorted(0)
	return cfg, d, nil
}

// defaultHTTPClient is the field's own default without redirects: a redirect would carry
// credentials to a server that the file does not name.
func defaultHTTPClient() commonconfig.HTTPClientConfig {
	c := commonconfig.DefaultHTTPClientConfig
	c.FollowRedirects = false
	return c
}

// badPort tells whether a port is written and cannot be.
func badPort(port string) bool {
	if port == "" {
		return false
	}
	n, err := strconv.Atoi(port)
	return err != nil || n < 1 || n > 65535
}

// notInHost tells whether a character cannot stand in a host's name or address. Names in other
// scripts may be resolved somewhere.
func notInHost(r rune) bool {
	return r < 0x80 && !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-._~:%", r))
}

// parseURL checks and normalises a replica's address.
func parseURL(s string) (*url.URL, error) {
	if !strings.Contains(s, "://") {
		if strings.Contains(s, "@") { // perhaps a password, which a message must not repeat
			return nil, errors.New("the scheme is missing; write it like http://10.0.0.1:9090")
		}
		return nil, fmt.Errorf("the scheme is missing; write http://%s", clip.Text(s, 100))
	}
	u, err := url.Parse(s)
	if err != nil && strings.Contains(s, "${") {
		return nil, errors.New("variables are not filled in here; write the address out, or have the file filled in first (envsubst)")
	}
	if err != nil {
		return nil, errors.New("not a URL; write it like http://10.0.0.1:9090") // the error of url.Parse repeats what may be a password
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("the scheme %q is not served; use http or https", clip.Text(u.Scheme, 20))
	case u.Hostname() == "":
		return nil, errors.New("the host is missing; write it like http://10.0.0.1:9090")
	case strings.ContainsAny(u.Hostname(), "${}") || strings.Contains(u.Path, "${"):
		return nil, fmt.Errorf("variables are not filled in here, and %s is no address; write it out, or have the file filled in first (envsubst)", clip.Text(u.Host+u.Path, 100))
	case strings.ContainsFunc(u.Hostname(), notInHost):
		return nil, fmt.Errorf("%q is no name or address of a host; write it like http://10.0.0.1:9090", clip.Text(u.Hostname(), 100))
	case u.User != nil:
		return nil, errors.New("a URL must not carry credentials, since it is printed; put them under http_client.basic_auth")
	case u.RawQuery != "" || u.ForceQuery:
		return nil, errors.New("a URL must not carry a query string; Spillway writes its own parameters")
	case strings.Contains(s, "#"):
		return nil, errors.New("a URL must not carry a fragment")
	case badPort(u.Port()):
		return nil, fmt.Errorf("the port %s is not between 1 and 65535", clip.Text(u.Port(), 20))
	}
	path := strings.TrimRight(u.Path, "/")
	if strings.Contains(path+"/", "/../") || strings.Contains(path+"/", "/./") || strings.Contains(path, "//") {
		return nil, errors.New("the path must be plain, without . and .. and empty parts")
	}
	if strings.HasSuffix(path, "/api/v1") || strings.HasSuffix(path, "/api") {
		return nil, errors.New("the URL must end before /api; Spillway adds /api/v1/… itself")
	}
	host, port := strings.ToLower(u.Hostname()), u.Port()
	if port == "80" && u.Scheme == "http" || port == "443" && u.Scheme == "https" {
		port = ""
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port != "" {
		host += ":" + port
	}
	return &url.URL{Scheme: u.Scheme, Host: host, Path: path}, nil
}
