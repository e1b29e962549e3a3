package exporters

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/realprom"
)

// nodePage is the page of a real node_exporter with these arguments.
func nodePage(t *testing.T, bin string, args []string) []byte {
	t.Helper()
	port, err := realprom.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	p, err := realprom.StartProcess(realprom.ProcessOptions{Path: bin, Args: append([]string{"--web.listen-address=" + address}, args...)})
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
	return page
}

// mounts are those of a root file system that is written to, three disks that the kernel has made
// read-only, one that ext4 has shut down in an emergency (Linux 6.15), and a root that is verified
// and was never written to.
const mounts = `22 1 259:1 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p1 rw,errors=remount-ro
30 22 259:2 / /var/lib/kubelet rw,relatime shared:2 - ext4 /dev/nvme1n1 ro,errors=remount-ro
31 22 259:3 / /data ro,relatime shared:3 - ext4 /dev/nvme2n1 ro,errors=remount-ro
32 22 259:4 / /scratch rw,relatime shared:4 - ext4 /dev/nvme3n1 rw,errors=remount-ro,emergency_ro
33 22 259:5 / /xfs ro,relatime shared:5 - xfs /dev/nvme4n1 ro,attr2,inode64,noquota
34 22 253:0 / /verified ro,relatime shared:6 - ext4 /dev/dm-0 ro,seclabel
`

// TestNodeExporterSeesReadOnly: the node_exporter that is built for tests sees what
// NodeFilesystemReadOnly is about. Those before 1.12 do not.
func TestNodeExporterSeesReadOnly(t *testing.T) {
	bin, err := realprom.Find("node_exporter")
	if err != nil {
		t.Skipf("%v: the file systems are not tried on a real node_exporter", err)
	}
	proc := t.TempDir()
	if err := os.Mkdir(filepath.Join(proc, "1"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(proc, "1", "mountinfo"), []byte(mounts), 0o600); err != nil {
		t.Fatal(err)
	}
	page := nodePage(t, bin, []string{"--collector.disable-defaults", "--collector.filesystem", "--path.procfs=" + proc})
	got := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^node_filesystem_readonly\{.*mountpoint="([^"]*)"\} ([01])`).FindAllSubmatch(page, -1) {
		got[string(m[1])] = string(m[2])
	}
	want := map[string]string{"/": "0", "/var/lib/kubelet": "1", "/data": "1", "/scratch": "1", "/xfs": "1", "/verified": "1"}
	if !maps.Equal(got, want) {
		t.Errorf("read-only are %v, want %v", got, want)
	}
	// Whose word counts is told by its version.
	v := regexp.MustCompile(`(?m)^node_exporter_build_info\{.*version="([^"]*)"\} 1$`).FindSubmatch(page)
	if v == nil {
		t.Fatal("the page does not tell its version")
	}
	if text, pinned := string(v[1]), pinnedNodeExporter(t); text != pinned {
		t.Errorf("it says that it is %q, and is %q", text, pinned)
	}
}

// pinnedNodeExporter is the version that is built for tests.
func pinnedNodeExporter(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile("../../tools/exporters/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`github.com/prometheus/node_exporter v([0-9.]+)`).FindSubmatch(b)
	if m == nil {
		t.Fatal("tools/exporters/go.mod has no node_exporter")
	}
	return string(m[1])
}

// TestNodeExporterVersion: the node_exporter that is built for tests is the one whose page the
// facts were taken from, and the settings and their page ask for one whose word the rules take.
func TestNodeExporterVersion(t *testing.T) {
	pinned := pinnedNodeExporter(t)
	facts, err := os.ReadFile("../../alerts/metrics.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(facts), "node_exporter-"+pinned+".tsv") {
		t.Errorf("the facts are not those of node_exporter %s", pinned)
	}
	_, _, text := rules(t)
	known := regexp.MustCompile(`node_exporter_build_info\{[^}]*version!~"([^"]*)"`).FindStringSubmatch(text)
	if known == nil {
		t.Fatal("no rule looks at the version of node_exporter")
	}
	takes := regexp.MustCompile("^(?:" + known[1] + ")$")
	for v, want := range map[string]bool{
		pinned: true, "1.12.0": true, "v1.12.1": true, "1.13.0-rc.0": true, "1.99.0": true, "2.0.0": true, "10.1.0": true,
		"0.18.1": true, "1.1.2": true, "1.2.0": true, "1.5.0": true, "1.8.2": true, "v1.10.0": true,
		"": false, "unknown": false, "1.9.0": false, "1.9.1": false, "1.10.1": false, "1.10.2": false, "1.11.1": false, "1.11.12": false,
	} {
		if takes.MatchString(v) != want {
			t.Errorf("%s takes %q: %v, want %v", known[1], v, !want, want)
		}
	}
	page, err := os.ReadFile("../../docs/exporters.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"node-exporter.flags": NodeExporter, "docs/exporters.md": string(page)} {
		if !strings.Contains(text, "1.12 or later") {
			t.Errorf("%s does not say which node_exporter it takes", name)
		}
	}
}

// TestNodeExporterRuns gives the flags to a real node_exporter and reads its page: the collectors
// are those that are named, and what the rules read is there, but for hardware that this machine
// lacks.
func TestNodeExporterRuns(t *testing.T) {
	bin, err := realprom.Find("node_exporter")
	if err != nil {
		t.Skipf("%v: the flags are not tried on a real node_exporter", err)
	}
	args := []string{"--collector.textfile.directory=" + t.TempDir()}
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
	page := nodePage(t, bin, args)
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
