package config

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	commonconfig "github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/relabel"

	"github.com/spillwayproject/spillway/internal/clip"
)

// ShardsFrom is where the shards of a group are looked up while Spillway runs. With the zero value
// they are not looked up but listed in the file.
type ShardsFrom struct {
	// Files are patterns of files in the form of Prometheus' file_sd, at most 100. After Load they
	// are absolute or relative to the working directory.
	Files Paths `yaml:"files" is:"filled max=100"`
	// DNSSRV are names of SRV records, at most 100.
	DNSSRV Paths `yaml:"dns_srv" is:"filled max=100"`
	// HTTP is the URL of a list in the form of Prometheus' http_sd.
	HTTP string `yaml:"http_sd" is:"filled"`
	// Kubernetes are API servers in which they are found, at most 10.
	Kubernetes []KubernetesSD `yaml:"kubernetes_sd_configs" is:"filled max=10"`
	// RefreshInterval is how often they are looked up; 0 is DefaultRefreshInterval.
	RefreshInterval time.Duration `yaml:"refresh_interval"`
	// Keep is how long a server that is no longer found is still asked; 0 is DefaultKeep.
	Keep time.Duration `yaml:"keep"`
	// Relabel turns the labels of what is found into those that say where it belongs.
	Relabel []Relabel `yaml:"relabel_configs"`
	// Type is what kind of servers they are, as Replica.Type; empty is TypePrometheus.
	Type string `yaml:"type" is:"one=prometheus|thanos"`
	// Headers are set on every request to them, as Replica.Headers.
	Headers map[string]Secret `yaml:"headers"`
	// HTTPClient is for all of them, as Replica.HTTPClient; the list of HTTP is read with it too.
	HTTPClient commonconfig.HTTPClientConfig `yaml:"http_client"`
	// Metrics is where their own metrics are: a path below each one's URL, or MetricsNone.
	Metrics string `yaml:"metrics" is:"filled"`
	// MemoryLimit is how much memory each of them may hold, as Replica.MemoryLimit.
	MemoryLimit Bytes `yaml:"memory_limit"`
}

// The defaults of ShardsFrom.
const (
	DefaultRefreshInterval = 30 * time.Second
	DefaultKeep            = 15 * time.Minute
)

func (ShardsFrom) meaning() map[string]string {
	return map[string]string{
		"files": "Files, or patterns of files, in the form of Prometheus' `file_sd_configs`, relative to the configuration file; what is " +
			"written there holds at once, or by `refresh_interval` at the latest.",
		"dns_srv": "Names of DNS SRV records. What stands under one name is one shard, unless `relabel_configs` say something else.",
		"http_sd": "The URL of a list in the form of Prometheus' `http_sd_configs`.",
		"kubernetes_sd_configs": "API servers of Kubernetes, at most 10, as [Prometheus spells " +
			"them](https://prometheus.io/docs/prometheus/latest/configuration/configuration/#kubernetes_sd_config), " +
			"but for the client's settings, which stand under `http_client`.",
		"refresh_interval": "How often they are looked up; 30s where it is absent. Kubernetes tells of changes at once.",
		"keep": "How long a server that is no longer found is asked all the same, so that one answer of a confused discovery " +
			"takes nothing away; 15m where it is absent.",
		"relabel_configs": "As [Prometheus spells them](https://prometheus.io/docs/prometheus/latest/configuration/configuration/#relabel_config). " +
			"They end with the labels `__spillway_shard__` and the others of [discovery.md](discovery.md).",
		"type":         "What kind of servers they are, as `type` of a replica.",
		"headers":      "Headers for every request to them, as `headers` of a replica.",
		"http_client":  "Authentication, TLS and proxy for all of them, as `http_client` of a replica, and for the list of `http_sd`.",
		"metrics":      "Where their own metrics are, as `metrics` of a replica: a path below each one's address, or `none`; `/metrics` where it is absent.",
		"memory_limit": "How much memory each of them may hold, as `memory_limit` of a replica.",
	}
}

// Set tells whether the shards are looked up.
func (f *ShardsFrom) Set() bool { return !reflect.ValueOf(*f).IsZero() }

// Replica is the server at url, with the settings that hold for all of them.
func (f *ShardsFrom) Replica(url string) Replica {
	var r Replica
	r.setDefaults()
	r.URL, r.Headers = url, f.Headers
	if f.Type != "" {
		r.Type = f.Type
	}
	if !reflect.ValueOf(f.HTTPClient).IsZero() {
		r.HTTPClient = f.HTTPClient
	}
	if f.Metrics != "" {
		r.Metrics = f.Metrics
	}
	r.MemoryLimit = f.MemoryLimit
	return r
}

// Relabel is a rule of relabelling, as Prometheus has it.
type Relabel struct {
	SourceLabels []string `yaml:"source_labels"`
	Separator    string   `yaml:"separator" default:";"`
	Regex        string   `yaml:"regex" default:"(.*)"`
	Modulus      int      `yaml:"modulus" unit:"modulus" is:"max=65536"`
	TargetLabel  string   `yaml:"target_label"`
	Replacement  string   `yaml:"replacement" default:"$1"`
	Action       string   `yaml:"action" default:"replace" is:"one=replace|keep|drop|hashmod|labelmap|labeldrop|labelkeep|lowercase|uppercase|keepequal|dropequal"`
}

func (Relabel) meaning() map[string]string {
	return map[string]string{
		"source_labels": "Labels whose values are joined.",
		"separator":     "What stands between them.",
		"regex":         "What they are matched with, anchored at both ends.",
		"modulus":       "By how much `hashmod` divides, at most 65536.",
		"target_label":  "The label that is written.",
		"replacement":   "What is written.",
		"action":        "What is done, in lower case.",
	}
}

func (r *Relabel) setDefaults() { fill(reflect.ValueOf(r).Elem()) }

// Rule is the rule as Prometheus applies it.
func (r *Relabel) Rule() (*relabel.Config, error) {
	regex, err := relabel.NewRegexp(r.Regex)
	if err != nil {
		return nil, err
	}
	if actions := byKey(fieldsOf(reflect.TypeFor[Relabel]()), "action").rules["one"]; !slices.Contains(strings.Split(actions, "|"),
		r.Action) {
		return nil, fmt.Errorf("%q is no action; write one of %s", clip.Text(r.Action, 40), strings.ReplaceAll(actions, "|", ", "))
	}
	c := &relabel.Config{
		Separator: r.Separator, Regex: regex, Modulus: uint64(r.Modulus), TargetLabel: r.TargetLabel,
		Replacement: r.Replacement, Action: relabel.Action(r.Action), NameValidationScheme: model.UTF8Validation,
	}
	for _, name := range r.SourceLabels {
		c.SourceLabels = append(c.SourceLabels, model.LabelName(name))
	}
	return c, c.Validate(model.UTF8Validation)
}

// shardsFrom checks where a group's shards are looked up.
func (v *validator) shardsFrom(g *Group, path string) {
	f := &g.ShardsFrom
	path += ".shards_from"
	if !v.has(path) || v.wrong[path] {
		return
	}
	ways := 0
	for _, given := range []bool{len(f.Files) > 0, len(f.DNSSRV) > 0, f.HTTP != "", len(f.Kubernetes) > 0} {
		if given {
			ways++
		}
	}
	if ways != 1 && !v.blank[path] {
		v.problem(path, "%d ways of looking up are given; give one of files, dns_srv, http_sd and kubernetes_sd_configs, and another group for another", ways)
	}
	if v.blank[path] || reflect.ValueOf(*f).IsZero() {
		v.problem(path, "it says nothing; give files, dns_srv, http_sd or kubernetes_sd_configs, or list the shards under shards")
		return
	}
	if v.has(path[:len(path)-len("_from")]) {
		v.problem(path, "the group has shards too; either list them, or have them looked up")
	}
	v.lookedUp(f.Files, path+".files")
	v.lookedUp(f.DNSSRV, path+".dns_srv")
	if len(f.Kubernetes) > 10 {
		v.problem(path+".kubernetes_sd_configs", "%d are more than are looked up (10)", len(f.Kubernetes))
	}
	for i := range f.Kubernetes {
		v.kubernetes(&f.Kubernetes[i], path+".kubernetes_sd_configs["+strconv.Itoa(i)+"]")
	}
	for i, file := range f.Files {
		f.Files[i] = commonconfig.JoinDir(v.dir, file)
	}
	if f.HTTP != "" && !plainURL(f.HTTP) {
		v.problem(path+".http_sd", "it is no http or https URL without credentials; write one such as http://10.0.0.1:8080/shards, and credentials under http_client")
	}
	if f.Type != "" && !servedType(f.Type) {
		v.problem(path+".type", "%q is no type of server; write prometheus or thanos", clip.Text(f.Type, 40))
	}
	if m := f.Metrics; m != "" && m != MetricsNone && !isPath(m) {
		v.problem(path+".metrics", "write a path below the servers' addresses, such as /metrics, or %s", MetricsNone)
	}
	if len(f.Relabel) > 100 {
		v.problem(path+".relabel_configs", "%d rules are more than are applied (100)", len(f.Relabel))
	}
	for i := range f.Relabel {
		if _, err := f.Relabel[i].Rule(); err != nil {
			v.problem(path+".relabel_configs["+strconv.Itoa(i)+"]", "%s", clip.Text(err.Error(), 200))
		}
	}
	r := Replica{Headers: f.Headers, HTTPClient: f.HTTPClient}
	v.headers(&r, path)
	f.Headers = r.Headers
	f.HTTPClient.SetDirectory(v.dir)
}

// lookedUp checks a list of names of one kind.
func (v *validator) lookedUp(names Paths, path string) {
	if len(names) > 100 {
		v.problem(path, "%d names are more than are looked up (100)", len(names))
	}
	for i, name := range names {
		if name == "" || slices.Index(names, name) < i {
			v.problem(path+"["+strconv.Itoa(i)+"]", "the name is empty, or stands twice")
		}
	}
}

// plainURL tells whether it is an http or https URL without credentials.
func plainURL(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil
}

// WithShards is the configuration with shards in the groups whose ShardsFrom is set, by the name of
// the group. It is checked as a file that lists them would be; the error is Problems, without
// lines. Its Hash is that of the file and of the shards; its Notes are the file's, and then those
// about the shards.
func (c *Config) WithShards(found map[string][]Shard) (*Config, error) {
	out := *c
	out.Groups = slices.Clone(c.Groups)
	sum := sha256.New()
	fmt.Fprintln(sum, c.Hash)
	for i := range out.Groups {
		g := &out.Groups[i]
		if !g.ShardsFrom.Set() {
			g.Shards = slices.Clone(g.Shards)
			for j := range g.Shards {
				g.Shards[j].Replicas = slices.Clone(g.Shards[j].Replicas)
			}
			continue
		}
		g.Shards = found[g.Name]
		for _, s := range g.Shards {
			fmt.Fprintln(sum, g.Name, s.Hash, s.From, s.Until)
			for _, r := range s.Replicas {
				fmt.Fprintln(sum, r.URL)
			}
		}
	}
	d := newDecoder(nil)
	v := &validator{decoder: d, now: time.Now()}
	v.config(&out)
	if len(d.problems) > 0 {
		return nil, d.problems.sorted(d.over)
	}
	out.Notes = slices.Clone(c.Notes)
	for _, n := range v.notes.sorted(0) {
		if !slices.ContainsFunc(c.Notes, func(own Problem) bool { return own.Path == n.Path }) {
			out.Notes = append(out.Notes, n)
		}
	}
	if len(found) > 0 {
		out.Hash = hex.EncodeToString(sum.Sum(nil))
	}
	return &out, nil
}
