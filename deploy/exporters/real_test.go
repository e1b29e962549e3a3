package exporters

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/realprom"
)

// TestNodeExporterRuns gives the flags to a real node_exporter and reads its page: the collectors
// are those that are named, and what the rules read is there, but for hardware that this machine
// lacks.
func TestNodeExporterRuns(t *testing.T) {
	bin, err := realprom.Find("node_exporter")
	if err != nil {
		t.Skipf("%v: the flags are not tried on a real node_exporter", err)
	}
	port, err := realprom.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	args := []string{"--web.listen-address=" + address, "--collector.textfile.directory=" + t.TempDir()}
	var named []string
	for _, f := range Flags(NodeExporter) {
		// The machine's own folders, not a mount of them; and not its port.
		if !strings.HasPrefix(f, "--path.") && !strings.HasPrefix(f, "--web.listen-address=") &&
			!strings.HasPrefix(f, "--collector.textfile.directory=") {
			args = append(args, f)
		}
		if c, ok := strings.CutPrefix(f, "--collector."); ok && !strings.ContainsAny(c, ".=") && c != "disable-defaults" {
			named = append(named, c)
		}
	}
	p, err := realprom.StartProcess(realprom.ProcessOptions{Path: bin, Args: args})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := p.WaitReady(ctx, "http://"+address+"/"); err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	page, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	working := map[string]bool{}
	var have []string
	for _, m := range regexp.MustCompile(`(?m)^node_scrape_collector_success\{collector="(\w+)"\} ([01])`).FindAllSubmatch(page, -1) {
		have = append(have, string(m[1]))
		working[string(m[1])] = string(m[2]) == "1"
	}
	slices.Sort(named)
	slices.Sort(have)
	if !slices.Equal(named, have) {
		t.Errorf("collectors are %v, want %v", have, named)
	}
	uses, _, _ := rules(t)
	seen := map[string]bool{}
	for _, u := range uses {
		if !strings.HasPrefix(u.metric, "node_") || strings.Contains(u.metric, ":") || seen[u.metric] {
			continue
		}
		seen[u.metric] = true
		if regexp.MustCompile(`(?m)^` + u.metric + `[ {]`).Match(page) {
			continue
		}
		collector := "sysctl"
		for _, c := range collectors {
			if strings.HasPrefix(u.metric, c.prefix) {
				collector = c.collector
			}
		}
		switch {
		// What a network namespace, a container or a machine without the hardware does not show.
		case collector == "infiniband", collector == "sysctl" && !working["sysctl"], collector == "lnstat", collector == "arp",
			collector == "diskstats":
			t.Logf("%s is not to be seen on this machine (collector %s, success %v)", u.metric, collector, working[collector])
		default:
			t.Errorf("%s is not on the page of a real node_exporter with our flags (collector %s, success %v)", u.metric, collector, working[collector])
		}
	}
	if len(seen) == 0 {
		t.Error("no rule reads node_exporter: the rules were not read")
	}
	if n := strings.Count(string(page), "\n"); n > 5000 {
		t.Errorf("the page has %d lines", n)
	}
}

// TestKubeStateMetricsTakesFlags: the real program reads all flags and only then misses its
// cluster.
func TestKubeStateMetricsTakesFlags(t *testing.T) {
	bin, err := realprom.Find("kube-state-metrics")
	if err != nil {
		t.Skipf("%v: the flags are not tried on a real kube-state-metrics", err)
	}
	ask := func(more ...string) string {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		out, err := exec.CommandContext(ctx, bin, append(append(Flags(KubeStateMetrics), "--kubeconfig=/nonexistent/kubeconfig",
			"--host=127.0.0.1", "--port=0"), more...)...).CombinedOutput()
		if err == nil {
			t.Fatalf("it runs without a cluster:\n%s", out)
		}
		return string(out)
	}
	if out := ask(); !strings.Contains(out, "/nonexistent/kubeconfig") || strings.Contains(out, "unknown flag") {
		t.Errorf("kube-state-metrics says:\n%s", out)
	}
	if out := ask("--no-such-flag"); !strings.Contains(out, "unknown flag") {
		t.Errorf("an unknown flag passes:\n%s", out)
	}
}
