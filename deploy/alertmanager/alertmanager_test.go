package alertmanager

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestCheckConfig(t *testing.T) {
	if err := Check(t.Context(), Config); err != nil {
		t.Fatal(err)
	}
	if err := Check(t.Context(), bytes.Replace(Config, []byte("receiver: critical"), []byte("receiver: criticle"), 1)); err == nil {
		t.Error("a route to a receiver that is not there passes")
	}
}

// TestManifestLetsSickPodsGo: a pod that is not ready is evicted when its node is drained.
func TestManifestLetsSickPodsGo(t *testing.T) {
	text, err := os.ReadFile("kubernetes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range strings.Split(string(text), "\n---\n") {
		if strings.Contains(doc, "kind: PodDisruptionBudget") && !strings.Contains(doc, "\n  unhealthyPodEvictionPolicy: AlwaysAllow\n") {
			t.Errorf("it stays:\n%s", doc)
		}
	}
}

// TestManifestNamesItsAddress: Alertmanager finds an address of its own only where it is a private
// one of IPv4. The flags of the manifest that are about its cluster start the program, over both
// families.
func TestManifestNamesItsAddress(t *testing.T) {
	text, err := os.ReadFile("kubernetes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	flags := regexp.MustCompile(`(?m)^ +- (--cluster\.(?:listen|advertise)-address=.+)$`).FindAllStringSubmatch(string(text), -1)
	if len(flags) != 2 || strings.Count(string(text), "[$(POD_IP)]:9094") != 2 ||
		!strings.Contains(string(text), "valueFrom: {fieldRef: {fieldPath: status.podIP}}") {
		t.Fatalf("the manifest has %q", flags)
	}
	program, err := Find("prometheus-alertmanager", "alertmanager")
	if err != nil {
		t.Fatal(err)
	}
	for _, ip := range []string{"127.0.0.1", "::1"} {
		if l, err := net.Listen("tcp", net.JoinHostPort(ip, "0")); err != nil {
			t.Logf("this machine does not have %s: %v", ip, err)
			continue
		} else if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		args := []string{"--config.file=alertmanager.yml", "--storage.path=" + t.TempDir(), "--web.listen-address=127.0.0.1:0"}
		for _, f := range flags {
			args = append(args, strings.NewReplacer("$(POD_IP)", ip, ":9094", ":0").Replace(f[1]))
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		cmd := exec.CommandContext(ctx, program, args...)
		log, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var said strings.Builder
		for lines := bufio.NewScanner(log); lines.Scan(); {
			fmt.Fprintln(&said, lines.Text())
			if strings.Contains(lines.Text(), "Waiting for gossip to settle") {
				said.Reset()
				break
			}
		}
		cancel()
		_ = cmd.Wait() // it was ended
		if said.Len() > 0 {
			t.Errorf("%q: %s", args, said.String())
		}
	}
}

// TestRoutes asks amtool which receivers get an alert.
func TestRoutes(t *testing.T) {
	amtool, err := Find("amtool")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ labels, want string }{
		{"alertname=KubeAPIThrottlingSevere severity=critical cluster=jaguar", "critical"},
		{"alertname=KubeAPIThrottling severity=warning cluster=jaguar", "warning"},
		{"alertname=GPUAllocatedIdle severity=info cluster=jaguar namespace=research-a", "info"},
		{"alertname=GPUXidFatal severity=auto cluster=jaguar node=gpu-00001 gpu=3", "remediation"},
		{"alertname=Watchdog severity=info", "deadmansswitch"},
		{"alertname=Watchdog severity=critical cluster=jaguar", "deadmansswitch"},
		{"alertname=Watchdog", "deadmansswitch"},
		// The receiver that fails may be the one of its severity.
		{"alertname=AlertmanagerNotificationsFailing severity=critical cluster=jaguar integration=pagerduty", "two-roads"},
		// Where that is a program nobody is woken.
		{"alertname=AlertmanagerNotificationsFailing severity=warning cluster=jaguar integration=webhook", "warning"},
		// Nothing is lost, and nothing pages by mistake.
		{"alertname=SomebodyElses", "warning"},
		{"alertname=SomebodyElses severity=page", "warning"},
		{"alertname=SomebodyElses severity=CRITICAL", "warning"},
	} {
		out, err := exec.CommandContext(t.Context(), amtool,
			append([]string{"config", "routes", "test", "--config.file=alertmanager.yml"}, strings.Fields(c.labels)...)...).Output()
		if err != nil {
			t.Fatalf("%s: %v", c.labels, err)
		}
		if got := strings.TrimSpace(string(out)); got != c.want {
			t.Errorf("%s goes to %q, want %q", c.labels, got, c.want)
		}
	}
}

// TestAutoNeverReachesPeople reads the file: what gets severity auto is one webhook, and no route
// goes on to a second receiver.
func TestAutoNeverReachesPeople(t *testing.T) {
	var conf struct {
		Route     struct{ Routes []map[string]any }
		Receivers []map[string]any
	}
	if err := yaml.Unmarshal(Config, &conf); err != nil {
		t.Fatal(err)
	}
	for _, r := range conf.Route.Routes {
		if r["continue"] != nil {
			t.Errorf("route to %v continues: an alert would reach two receivers", r["receiver"])
		}
	}
	for _, r := range conf.Receivers {
		if r["name"] != "remediation" {
			continue
		}
		if keys := slices.Sorted(maps.Keys(r)); !slices.Equal(keys, []string{"name", "webhook_configs"}) {
			t.Errorf("remediation has %v: only a webhook belongs there", keys)
		}
		return
	}
	t.Error("no receiver remediation")
}

// TestTwoRoads: what says that a receiver fails goes by two roads, each of which another receiver
// has too.
func TestTwoRoads(t *testing.T) {
	var conf struct{ Receivers []map[string]any }
	if err := yaml.Unmarshal(Config, &conf); err != nil {
		t.Fatal(err)
	}
	roads := map[string][]string{}
	for _, r := range conf.Receivers {
		name, _ := r["name"].(string)
		for key := range r {
			if key != "name" {
				roads[name] = append(roads[name], key)
			}
		}
	}
	both := append(slices.Clone(roads["critical"]), roads["warning"]...)
	slices.Sort(both)
	if got := slices.Sorted(slices.Values(roads["two-roads"])); len(got) < 2 || !slices.Equal(got, both) {
		t.Errorf("two-roads has %v, not %v", got, both)
	}
}

// TestNamesExist: an alert that an inhibition names is one that the rules have. One that was
// renamed would silence nothing, without a word.
func TestNamesExist(t *testing.T) {
	files, err := filepath.Glob("../../alerts/*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^\s*-? ?alert: ['"]?(\w+)`).FindAllSubmatch(text, -1) {
			have[string(m[1])] = true
		}
	}
	if len(have) < 20 {
		t.Fatalf("../../alerts holds %d alerts: run make generate", len(have))
	}
	var conf struct {
		InhibitRules []struct {
			Source []string `yaml:"source_matchers"`
			Target []string `yaml:"target_matchers"`
		} `yaml:"inhibit_rules"`
		Route struct{ Routes []struct{ Matchers []string } }
	}
	if err := yaml.Unmarshal(Config, &conf); err != nil {
		t.Fatal(err)
	}
	var matchers []string
	for _, r := range conf.InhibitRules {
		matchers = append(append(matchers, r.Source...), r.Target...)
	}
	for _, r := range conf.Route.Routes {
		matchers = append(matchers, r.Matchers...)
	}
	named := 0
	for _, m := range matchers {
		g := regexp.MustCompile(`^alertname(=|!=|=~|!~)"(.*)"$`).FindStringSubmatch(m)
		if g == nil {
			continue
		}
		for _, name := range strings.Split(g[2], "|") {
			named++
			re, err := regexp.Compile("^(?:" + name + ")$")
			if err != nil {
				t.Fatal(err)
			}
			if !slices.ContainsFunc(slices.Collect(maps.Keys(have)), re.MatchString) {
				t.Errorf("%s: there is no alert %s", m, name)
			}
		}
	}
	if named == 0 {
		t.Error("no alert is named: the matchers were not read")
	}
}
