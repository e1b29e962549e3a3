package ruler

import (
	"bytes"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	promconfig "github.com/prometheus/prometheus/config"
	_ "github.com/prometheus/prometheus/discovery/dns" // is in the manifest
	"github.com/prometheus/prometheus/model/labels"
	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"

	"github.com/spillwayproject/spillway/alerts"
	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/internal/recording"
	"github.com/spillwayproject/spillway/proxy/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestFiles gives every file to the program that reads it.
func TestFiles(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("POD_NAME", "ruler-0")
	text, err := File("prometheus.yml")
	if err != nil {
		t.Fatal(err)
	}
	heartbeat, err := File("heartbeat.yaml")
	if err != nil {
		t.Fatal(err)
	}
	// The promtool of the tests is built without discovery: Prometheus' own code reads the whole
	// file, and promtool the rest.
	if _, err := promconfig.Load(text, slog.New(slog.DiscardHandler)); err != nil {
		t.Errorf("prometheus.yml: %v", err)
	}
	text = withoutDiscovery(t, text)
	for name, text := range map[string]string{"prometheus.yml": text, "heartbeat.yaml": heartbeat} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		// Only the syntax: the rule files are not where a pod has them.
		{"check", "config", "--syntax-only", filepath.Join(dir, "prometheus.yml")},
		{"check", "rules", "--lint-fatal", filepath.Join(dir, "heartbeat.yaml")},
	} {
		if out, _, err := realprom.Promtool(t.Context(), args...); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}

// TestNoRulesOverRemoteRead: no Prometheus of ours evaluates rules over remote_read. What it cannot
// read this way is empty to its rules and no error: a shard that is lost ends what fires, and
// absent() fires.
func TestNoRulesOverRemoteRead(t *testing.T) {
	read := 0
	err := filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(path) != ".yml" && filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		read++
		if err == nil && bytes.Contains(text, []byte("rule_files:")) && bytes.Contains(text, []byte("remote_read:")) {
			t.Errorf("%s evaluates rules over remote_read, for which a shard that is lost is empty", path)
		}
		return err
	})
	if err != nil || read < 10 {
		t.Errorf("%d files read: %v", read, err)
	}
}

// withoutDiscovery is a Prometheus' configuration without dns_sd_configs.
func withoutDiscovery(t *testing.T, text string) string {
	t.Helper()
	var doc map[string]any
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	for _, sc := range doc["scrape_configs"].([]any) {
		delete(sc.(map[string]any), "dns_sd_configs")
	}
	b, err := yaml.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestRuleFilesExist: what the small Prometheus loads is what the ConfigMap of alerts/shard holds.
func TestRuleFilesExist(t *testing.T) {
	text, err := File("prometheus.yml")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		RuleFiles []string `yaml:"rule_files"`
	}
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil || len(doc.RuleFiles) == 0 {
		t.Fatalf("%v, %v", doc, err)
	}
	for _, f := range doc.RuleFiles {
		name, ok := strings.CutPrefix(f, "/etc/rules/shard/")
		if _, err := os.Stat(filepath.Join("../../alerts/shard", name)); !ok || err != nil {
			t.Errorf("%s: %v", f, err)
		}
	}
}

// TestProxyConfig reads the proxy's file and holds what docs/ruler.md says of it.
func TestProxyConfig(t *testing.T) {
	c, err := config.Load("spillway.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, g := range c.Groups {
		if g.Name != "rules" {
			continue
		}
		found = true
		if len(g.Labels) != 0 {
			t.Errorf("the group of the rules sets %v: it would stand on the recorded series of all clusters", g.Labels)
		}
		if len(g.ReplicaLabels) != 1 || g.ReplicaLabels[0] != "ruler_replica" {
			t.Errorf("replica_labels are %v", g.ReplicaLabels)
		}
		if len(g.Shards) != 1 || len(g.Shards[0].Replicas) != 2 {
			t.Error("two small servers are two replicas of one shard")
		}
		checkNames(t, g.Names)
		heartbeat, err := File("heartbeat.yaml")
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(heartbeat, "record: "+g.Heartbeat+"\n") {
			t.Errorf("heartbeat is %q, which no rule records", g.Heartbeat)
		}
	}
	if !found {
		t.Error("no group rules")
	}
	if c.PartialResponse != config.PartialAbort {
		t.Error("partial answers are on: rules would be evaluated over a part")
	}
	if c.Limits.MaxSeries < 7500*8 {
		t.Errorf("max_series is %d: less than one series for each of 7,500 x 8 GPUs", c.Limits.MaxSeries)
	}
}

// servedReads is how many remote reads a Prometheus serves at once,
// --storage.remote.read-concurrent-limit.
const servedReads = 10

// TestReadSlotsFit: all Spillways that the small Prometheus scrapes, as many as the chart starts,
// with the read_slots of this one, ask a server for no more remote reads than it serves, its own
// and others' beside.
func TestReadSlotsFit(t *testing.T) {
	c, err := config.Load("spillway.yaml")
	if err != nil {
		t.Fatal(err)
	}
	proxies := 0
	// Those of people, and the ruler's.
	for _, file := range []string{"../helm/spillway/values.yaml", "../helm/spillway/ci/ruler-values.yaml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var values struct {
			Replicas int `yaml:"replicaCount"`
		}
		if err := yaml.Unmarshal(text, &values); err != nil || values.Replicas == 0 {
			t.Fatal(file, err)
		}
		if values.Replicas < 2 {
			t.Errorf("%s starts %d Spillway: with its node everything that asks through it is blind until another one runs, minutes later", file, values.Replicas)
		}
		proxies += values.Replicas
	}
	if proxies < 2 {
		t.Fatalf("%d Spillways are started", proxies)
	}
	if n := proxies * c.Limits.ReadSlots; n > servedReads-2 {
		t.Errorf("%d Spillways with read_slots: %d ask for %d remote reads at once; a server has %d, of which two are for others", proxies, c.Limits.ReadSlots, n, servedReads)
	}
}

// checkNames: the group has all that rulers record, and nothing of what shards have.
func checkNames(t *testing.T, patterns []string) {
	t.Helper()
	if !slices.Equal(patterns, Names()) {
		t.Errorf("Names are %q, the file has %q", Names(), patterns)
	}
	all, err := labels.NewFastRegexMatcher(strings.Join(patterns, "|"))
	if err != nil {
		t.Fatal(err)
	}
	recorded := func(files fs.FS) (names []string) {
		t.Helper()
		paths, err := fs.Glob(files, "*.yaml")
		if err != nil || len(paths) == 0 {
			t.Fatal(paths, err)
		}
		for _, path := range paths {
			text, err := fs.ReadFile(files, path)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(`(?m)^ +(?:- )?record: (\S+)$`).FindAllStringSubmatch(string(text), -1) {
				names = append(names, m[1])
			}
		}
		return names
	}
	global, shard := recorded(alerts.Global()), recorded(recording.Without(alerts.Shard(), "spillway.yaml"))
	if len(global) < 100 || len(shard) < 30 {
		t.Fatalf("%d global and %d shards' rules", len(global), len(shard))
	}
	for _, name := range global {
		if !all.MatchString(name) {
			t.Errorf("rulers record %s, which no pattern of names matches", name)
		}
	}
	for _, name := range append(shard, "kube_node_info", "DCGM_FI_DEV_GPU_UTIL", "container_cpu_usage_seconds_total",
		"apiserver_request_total", "etcd_server_has_leader", "node_load1", "up2") {
		if all.MatchString(name) {
			t.Errorf("shards have %s, which a pattern of names matches", name)
		}
	}
}

// TestManifestFlags holds what the deployment depends on.
func TestManifestFlags(t *testing.T) {
	args, err := Args("thanos-rule")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(args, "\n")
	for _, want := range []string{
		"--query.http-method=POST", "--alert.label-drop=ruler_replica", `--label=ruler_replica="$(POD_NAME)"`,
		"--restore-ignored-label=ruler_replica",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("thanos rule lacks %s", want)
		}
	}
	if args, err = Args("prometheus"); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(strings.Join(args, "\n"), "--web.enable-remote-write-receiver") {
		t.Error("the small Prometheus takes no remote write")
	}
	text = strings.Join(args, "\n")
	if !strings.Contains(text, "--config.auto-reload\n") || strings.Contains(text, "lifecycle") {
		t.Error("changed rules do not reach the small Prometheus, or whoever reaches it may end it")
	}
}

// TestManifestShape: every document is an object, in one namespace, and what containers mount is
// there.
func TestManifestShape(t *testing.T) {
	kinds := map[string]int{}
	for d := yaml.NewDecoder(bytes.NewReader(Manifest)); ; {
		var o struct {
			APIVersion string `yaml:"apiVersion"`
			Kind       string
			Metadata   struct{ Name, Namespace string }
			Spec       struct {
				Template struct {
					Spec struct {
						Containers []struct {
							Name         string
							VolumeMounts []struct{ Name string } `yaml:"volumeMounts"`
							Resources    struct{ Limits map[string]string }
						}
						Volumes []struct{ Name string }
					}
				}
				VolumeClaimTemplates []struct{ Metadata struct{ Name string } } `yaml:"volumeClaimTemplates"`
				Unhealthy            string                                     `yaml:"unhealthyPodEvictionPolicy"`
			}
		}
		err := d.Decode(&o)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		kinds[o.Kind]++
		if o.APIVersion == "" || o.Metadata.Name == "" || o.Metadata.Namespace != "monitoring" {
			t.Errorf("%s %q: apiVersion %q, namespace %q", o.Kind, o.Metadata.Name, o.APIVersion, o.Metadata.Namespace)
		}
		if o.Kind == "PodDisruptionBudget" && o.Spec.Unhealthy != "AlwaysAllow" {
			t.Error("a pod that is not ready is one that no drain of its node may evict")
		}
		volumes := map[string]bool{}
		for _, v := range o.Spec.Template.Spec.Volumes {
			volumes[v.Name] = true
		}
		for _, v := range o.Spec.VolumeClaimTemplates {
			volumes[v.Metadata.Name] = true
		}
		for _, c := range o.Spec.Template.Spec.Containers {
			if c.Resources.Limits["memory"] == "" {
				t.Errorf("container %s has no memory limit", c.Name)
			}
			for _, m := range c.VolumeMounts {
				if !volumes[m.Name] {
					t.Errorf("container %s mounts %s, which is not there", c.Name, m.Name)
				}
			}
		}
	}
	for _, k := range []string{"ConfigMap", "Service", "PodDisruptionBudget", "StatefulSet"} {
		if kinds[k] != 1 {
			t.Errorf("%d objects of kind %s, want 1", kinds[k], k)
		}
	}
}

func TestChange(t *testing.T) {
	got, err := change([]string{"rule", "--a=1", "--b=2", "--b=3", "--c"}, map[string]string{"--a": "9", "--b": remove})
	if err != nil || strings.Join(got, " ") != "rule --a=9 --c" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := change([]string{"rule"}, map[string]string{"--a": "9"}); err == nil {
		t.Error("a flag that is not there is changed in silence")
	}
}

func TestOptionsRefused(t *testing.T) {
	if _, err := StartStore(t.Context(), StoreOptions{}); err == nil {
		t.Error("a store without a name starts")
	}
	if _, err := StartRule(t.Context(), RuleOptions{Name: "a"}); err == nil {
		t.Error("a ruler without a proxy starts")
	}
	if _, err := storeConfig(StoreOptions{Name: "a", Scrapes: map[string][]string{"nobody": {"127.0.0.1:1"}}}); err == nil {
		t.Error("an unknown job is left out in silence")
	}
}
