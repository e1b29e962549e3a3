package ruler

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"

	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/proxy/config"
)

// Manifest is kubernetes.yaml.
//
//go:embed kubernetes.yaml
var Manifest []byte

//go:embed spillway.yaml
var proxyConfig []byte

// Names are those of the group `rules` in spillway.yaml, patterns of all that the small servers
// store, for the configurations of rehearsals.
func Names() []string {
	c, err := config.Parse(proxyConfig, ".")
	if err != nil {
		panic("deploy/ruler/spillway.yaml, which tests have read: " + err.Error())
	}
	for _, g := range c.Groups {
		if g.Name == "rules" {
			return g.Names
		}
	}
	panic("deploy/ruler/spillway.yaml has no group rules")
}

const (
	startTimeout = time.Minute
)

// object is what is read of a Kubernetes object.
type object struct {
	Kind     string
	Metadata struct{ Name string }
	Data     map[string]string
	Spec     struct {
		Template struct {
			Spec struct {
				Containers []struct {
					Name string
					Args []string
				}
			}
		}
	}
}

// File returns the text of a file of the manifest's ConfigMap: query.yaml, remote-write.yaml,
// heartbeat.yaml, prometheus.yml.
func File(name string) (string, error) {
	objects, err := objects()
	if err != nil {
		return "", err
	}
	for _, o := range objects {
		if text, ok := o.Data[name]; o.Kind == "ConfigMap" && ok {
			return text, nil
		}
	}
	return "", fmt.Errorf("kubernetes.yaml: no ConfigMap has a file %s", name)
}

// Args returns the arguments of a container of the manifest: thanos-rule, prometheus.
func Args(container string) ([]string, error) {
	objects, err := objects()
	if err != nil {
		return nil, err
	}
	for _, o := range objects {
		for _, c := range o.Spec.Template.Spec.Containers {
			if c.Name == container {
				return c.Args, nil
			}
		}
	}
	return nil, fmt.Errorf("kubernetes.yaml: no container %s", container)
}

func objects() ([]object, error) {
	var out []object
	for d := yaml.NewDecoder(bytes.NewReader(Manifest)); ; {
		var o object
		err := d.Decode(&o)
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("kubernetes.yaml: %w", err)
		}
		out = append(out, o)
	}
}

// change returns args with the values of flags replaced, or the flags left out where the value is
// remove. A flag that args do not have is an error.
func change(args []string, values map[string]string) ([]string, error) {
	var out []string
	seen := map[string]bool{}
	for _, a := range args {
		name, _, _ := strings.Cut(a, "=")
		v, ok := values[name]
		if !ok {
			out = append(out, a)
			continue
		}
		if v != remove && !seen[name] {
			out = append(out, name+"="+v)
		}
		seen[name] = true
	}
	for name := range values {
		if !seen[name] {
			return nil, fmt.Errorf("kubernetes.yaml: flag %s is not there, but would have to be changed", name)
		}
	}
	return out, nil
}

const remove = "\x00"

// StoreOptions says how the small Prometheus is run.
type StoreOptions struct {
	// Name is the pod's name, the value of the label ruler_replica. It must not be empty.
	Name string
	// RuleFiles are globs of rule files with scope shard. Relative ones are of the working
	// directory.
	RuleFiles []string
	// Alertmanagers are base URLs, http://host:port. Empty: alerts go nowhere.
	Alertmanagers []string
	// Scrapes are host:port by job: spillway, thanos-rule, prometheus, alertmanager. A job that is
	// not here is not scraped; one that prometheus.yml lacks is an error.
	Scrapes map[string][]string
	// TimeScale divides the scrape and evaluation intervals; 0 is 1. They do not get shorter than
	// 100 ms.
	TimeScale float64
	// Dir is the data folder; empty is a temporary one.
	Dir string
}

// StartStore starts the manifest's Prometheus and returns when it is ready. ctx bounds the start;
// the server ends with Stop, which must be called.
func StartStore(ctx context.Context, o StoreOptions) (*realprom.Server, error) {
	if o.Name == "" {
		return nil, errors.New("the small Prometheus needs a name: its replica label")
	}
	conf, err := storeConfig(o)
	if err != nil {
		return nil, err
	}
	args, err := Args("prometheus")
	if err != nil {
		return nil, err
	}
	// realprom sets these three itself.
	if args, err = change(args, map[string]string{
		"--config.file": remove, "--storage.tsdb.path": remove,
		"--web.listen-address": remove,
	}); err != nil {
		return nil, err
	}
	return realprom.Start(ctx, realprom.Options{Config: conf, Dir: o.Dir, Flags: args, Env: []string{"POD_NAME=" + o.Name}})
}

// storeConfig is prometheus.yml of the manifest with the addresses and rule files of o.
func storeConfig(o StoreOptions) (string, error) {
	text, err := File("prometheus.yml")
	if err != nil {
		return "", err
	}
	var doc struct {
		Global        map[string]any   `yaml:"global"`
		RuleFiles     []string         `yaml:"rule_files"`
		Alerting      map[string]any   `yaml:"alerting"`
		ScrapeConfigs []map[string]any `yaml:"scrape_configs"`
	}
	d := yaml.NewDecoder(strings.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&doc); err != nil {
		return "", fmt.Errorf("prometheus.yml: %w", err)
	}
	if o.TimeScale > 1 {
		for _, k := range []string{"scrape_interval", "scrape_timeout", "evaluation_interval"} {
			v, err := model.ParseDuration(fmt.Sprint(doc.Global[k]))
			if err != nil {
				return "", fmt.Errorf("prometheus.yml: global.%s: %w", k, err)
			}
			doc.Global[k] = model.Duration(max(time.Duration(float64(v)/o.TimeScale).Truncate(time.Millisecond),
				100*time.Millisecond)).String()
		}
	}
	doc.RuleFiles = nil
	for _, f := range o.RuleFiles {
		abs, err := filepath.Abs(f)
		if err != nil {
			return "", fmt.Errorf("rule files %s: %w", f, err)
		}
		doc.RuleFiles = append(doc.RuleFiles, abs)
	}
	var managers []any
	if len(o.Alertmanagers) > 0 {
		var targets []string
		for _, u := range o.Alertmanagers {
			targets = append(targets, strings.TrimPrefix(u, "http://"))
		}
		managers = []any{map[string]any{"static_configs": []any{map[string]any{"targets": targets}}}}
	}
	doc.Alerting["alertmanagers"] = managers
	jobs := 0
	kept := doc.ScrapeConfigs[:0]
	for _, sc := range doc.ScrapeConfigs {
		targets, ok := o.Scrapes[fmt.Sprint(sc["job_name"])]
		if !ok {
			continue
		}
		jobs++
		statics, _ := sc["static_configs"].([]any)
		if len(statics) != 1 {
			return "", fmt.Errorf("prometheus.yml: job %v has not exactly one static_configs", sc["job_name"])
		}
		static, _ := statics[0].(map[string]any)
		static["targets"] = targets
		kept = append(kept, sc)
	}
	if jobs != len(o.Scrapes) {
		return "", fmt.Errorf("prometheus.yml has %d of the jobs %v", jobs, o.Scrapes)
	}
	doc.ScrapeConfigs = kept
	out, err := yaml.Marshal(doc)
	return string(out), err
}

// RuleOptions says how thanos rule is run.
type RuleOptions struct {
	// Name is the pod's name, the value of the label ruler_replica. It must not be empty.
	Name string
	// Query is the base URL of Spillway, Store that of the small Prometheus.
	Query, Store string
	// RuleFiles are globs of rule files with scope global; the heartbeat of the manifest comes by
	// itself. Relative ones are of the working directory.
	RuleFiles []string
	// Alertmanagers are base URLs, http://host:port. Empty: alerts go nowhere.
	Alertmanagers []string
	// TimeScale divides the evaluation interval, the resend delay, the outage tolerance and the
	// grace period; 0 is 1. They do not get shorter than 1 s, the first two than 200 ms.
	TimeScale float64
	// Dir is the data folder; empty is a temporary one.
	Dir string
	// TokenFile holds the bearer token of a tenant of Spillway, as whom it asks; empty: as nobody.
	TokenFile string
	// Args are added to the command line.
	Args []string
}

// Rule is a running thanos rule.
type Rule struct {
	*realprom.Process
	url  string
	temp string
}

// URL is where it serves HTTP, without a slash at the end.
func (r *Rule) URL() string { return r.url }

// Stop ends it as realprom.Process.Stop does, and removes what was temporary.
func (r *Rule) Stop() error { return errors.Join(r.Process.Stop(), os.RemoveAll(r.temp)) }

// StartRule starts the manifest's thanos rule and returns when it is ready. ctx bounds the start;
// the ruler ends with Stop, which must be called.
func StartRule(ctx context.Context, o RuleOptions) (_ *Rule, err error) {
	if o.Name == "" || o.Query == "" || o.Store == "" {
		return nil, fmt.Errorf("a ruler needs a name, a query URL and a store: %+v", o)
	}
	temp, err := os.MkdirTemp("", "ruler-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the ruler: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(temp))
		}
	}()
	args, err := ruleArgs(o, temp)
	if err != nil {
		return nil, err
	}
	thanos, err := realprom.Find("thanos")
	if err != nil {
		return nil, err
	}
	proc, at, err := realprom.StartOnPorts(ctx,
		realprom.PortOptions{Name: "thanos rule", Path: thanos, Ports: 2, Timeout: startTimeout, Args: func(at []string) []string {
			return append([]string{args[0], "--http-address=" + at[0], "--grpc-address=" + at[1]}, args[1:]...)
		}})
	if err != nil {
		return nil, err
	}
	return &Rule{Process: proc, url: "http://" + at[0], temp: temp}, nil
}

// scaledFlag is the duration that a flag has in the manifest, divided by scale, and at least so
// long.
func scaledFlag(args []string, flag string, scale float64, least time.Duration) (string, error) {
	for _, a := range args {
		if v, ok := strings.CutPrefix(a, flag+"="); ok {
			d, err := model.ParseDuration(v)
			if err != nil {
				return "", fmt.Errorf("kubernetes.yaml: %s: %w", flag, err)
			}
			return scaled(d, scale, least).String(), nil
		}
	}
	return "", fmt.Errorf("kubernetes.yaml: flag %s is not there", flag)
}

func scaled(d model.Duration, scale float64, least time.Duration) time.Duration {
	return max(time.Duration(float64(d)/scale).Truncate(time.Millisecond), least)
}

// scaledHeartbeat is heartbeat.yaml with its intervals divided by scale.
func scaledHeartbeat(scale float64) (string, error) {
	text, err := File("heartbeat.yaml")
	if err != nil || scale <= 1 {
		return text, err
	}
	var doc struct {
		Groups []struct {
			Name     string
			Interval model.Duration
			Rules    []map[string]string
		}
	}
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		return "", fmt.Errorf("heartbeat.yaml: %w", err)
	}
	for i := range doc.Groups {
		g := &doc.Groups[i]
		g.Interval = model.Duration(scaled(g.Interval, scale, 200*time.Millisecond))
	}
	out, err := yaml.Marshal(doc)
	if err != nil {
		return "", fmt.Errorf("heartbeat.yaml: %w", err)
	}
	return string(out), nil
}

// ruleArgs are the manifest's arguments with what o says in place, without addresses to listen on.
// Files are written under temp.
func ruleArgs(o RuleOptions, temp string) ([]string, error) {
	args, err := Args("thanos-rule")
	if err != nil {
		return nil, err
	}
	write, err := File("remote-write.yaml")
	if err != nil {
		return nil, err
	}
	const storeURL = "http://127.0.0.1:9090/"
	if !strings.Contains(write, storeURL) {
		return nil, fmt.Errorf("remote-write.yaml does not write to %s", storeURL)
	}
	write = strings.ReplaceAll(write, storeURL, o.Store+"/")
	query, err := File("query.yaml")
	if err != nil {
		return nil, err
	}
	const asked = "spillway-rules.monitoring.svc:9090"
	address, plain := strings.CutPrefix(o.Query, "http://")
	if !plain || !strings.Contains(query, asked) {
		return nil, fmt.Errorf("query.yaml does not ask %s, or the query URL %s is not http://", asked, o.Query)
	}
	query = strings.ReplaceAll(query, asked, address)
	if o.TokenFile != "" {
		const settings = "  http_config:\n"
		if !strings.Contains(query, settings) {
			return nil, errors.New("query.yaml has no http_config for a token")
		}
		query = strings.Replace(query, settings, fmt.Sprintf("%s    bearer_token_file: %q\n", settings, o.TokenFile), 1)
	}
	heartbeat, err := scaledHeartbeat(max(o.TimeScale, 1))
	if err != nil {
		return nil, err
	}
	values := map[string]string{
		"--query.config-file": filepath.Join(temp, "query.yaml"), "--rule-file": remove,
		"--http-address": remove, "--grpc-address": remove, "--alertmanagers.url": remove,
		"--remote-write.config-file": filepath.Join(temp, "remote-write.yaml"), "--label": fmt.Sprintf("ruler_replica=%q", o.Name),
		"--data-dir": o.Dir,
	}
	if o.Dir == "" {
		values["--data-dir"] = filepath.Join(temp, "data")
	}
	for flag, least := range map[string]time.Duration{
		"--eval-interval": 200 * time.Millisecond, "--resend-delay": 200 * time.Millisecond, "--for-outage-tolerance": time.Second,
		"--for-grace-period": time.Second,
	} {
		if values[flag], err = scaledFlag(args, flag, max(o.TimeScale, 1), least); err != nil {
			return nil, err
		}
	}
	if args, err = change(args, values); err != nil {
		return nil, err
	}
	for name, text := range map[string]string{"query.yaml": query, "remote-write.yaml": write, "heartbeat.yaml": heartbeat} {
		if err := os.WriteFile(filepath.Join(temp, name), []byte(text), 0o600); err != nil {
			return nil, fmt.Errorf("write %s: %w", name, err)
		}
	}
	args = append(args, "--rule-file="+filepath.Join(temp, "heartbeat.yaml"))
	for _, f := range o.RuleFiles {
		abs, err := filepath.Abs(f)
		if err != nil {
			return nil, fmt.Errorf("rule files %s: %w", f, err)
		}
		args = append(args, "--rule-file="+abs)
	}
	for _, u := range o.Alertmanagers {
		args = append(args, "--alertmanagers.url="+u)
	}
	return append(args, o.Args...), nil
}
