package thanos

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/internal/realprom/realpromtest"
	"github.com/spillwayproject/spillway/proxy/server/servertest"
)

const (
	shards, replicas = 2, 2
	// perShard is what a shard scrapes: so many targets of job node and one of job api.
	perShard = 2
	targets  = shards * (perShard + 1)
	// probes is how often Spillway looks at a Thanos Query and its stores, and half a second.
	probes = 6 * time.Second
)

// process is a program that can be killed, hung and started again at the same addresses.
type process struct {
	name  string
	path  string
	args  []string
	addrs []string // host:port that it listens on, HTTP first
	p     *realprom.Process
	hung  bool
}

func (s *process) start(t *testing.T) {
	t.Helper()
	p, err := realprom.StartProcess(realprom.ProcessOptions{Path: s.path, Args: s.args})
	if err != nil {
		t.Fatal(err)
	}
	s.p = p
}

func (s *process) ready(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, fmt.Errorf("%s was not ready after a minute", s.name))
	defer cancel()
	if err := s.p.WaitReady(ctx, "http://"+s.addrs[0]+"/-/ready"); err != nil {
		t.Fatal(err)
	}
}

func (s *process) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(s.p.PID(), sig); err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
	s.hung = sig == syscall.SIGSTOP
}

// world is what one topology is.
type world struct {
	parts map[string]*process // by part.name
	bases []string            // of the Thanos Queries
	url   string              // Spillway's
}

// launch adds a program that listens on so many ports.
func (w *world) launch(t *testing.T, name, binary string, ports int, args func(at []string) []string) *process {
	t.Helper()
	path, err := realprom.Find(binary)
	if err != nil {
		t.Fatal(err)
	}
	s := &process{name: name, path: path, addrs: freeAddrs(t, ports)}
	s.args = args(s.addrs)
	s.start(t)
	t.Cleanup(func() {
		if s.hung {
			s.signal(t, syscall.SIGCONT)
		}
		s.p.Kill()
		if t.Failed() {
			t.Logf("log of %s at %v ends with:\n%s", s.name, s.addrs, tail(s.p.Log(), 1500))
		}
	})
	w.parts[name] = s
	return s
}

// freeAddrs are addresses that nobody listens on, and that nobody is given while the program that
// has them is away: they lie below the ports that Linux gives to connections and to listeners that
// do not care.
func freeAddrs(t *testing.T, n int) (out []string) {
	t.Helper()
	ports, err := realprom.FreePorts(n)
	if err != nil {
		t.Fatal(err)
	}
	for _, port := range ports {
		out = append(out, fmt.Sprintf("127.0.0.1:%d", port))
	}
	return out
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

// labelsOf are the external labels as the operator writes them: of a shard's replicas, and of
// shards, only prometheus_replica differs.
func labelsOf(top topology, shard, replica int) string {
	name := fmt.Sprintf("prometheus-k8s-shard-%d-%d", shard, replica)
	if shard == 0 {
		name = fmt.Sprintf("prometheus-k8s-%d", replica)
	}
	out := fmt.Sprintf("prometheus: monitoring/k8s, prometheus_replica: %s", name)
	if top.shardLabel {
		out += fmt.Sprintf(`, prometheus_shard: "%d"`, shard)
	}
	return out
}

// build starts a topology, and Spillway when all that it has to know of it can be known. It calls
// built when all runs, or cannot.
func build(t *testing.T, top topology, built func()) *world {
	t.Helper()
	defer built()
	w := &world{parts: map[string]*process{}}
	exporter := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		name := "temperature_" + strings.TrimPrefix(req.URL.Path, "/shard-")
		rw.Header().Set("Content-Type", "text/plain; version=0.0.4")
		fmt.Fprintf(rw, "# TYPE %s gauge\n%s 41\n", name, name)
	}))
	t.Cleanup(exporter.Close)
	dir, target := t.TempDir(), strings.TrimPrefix(exporter.URL, "http://")
	var stores []string
	for s := range shards {
		var jobs strings.Builder
		for n := range perShard {
			fmt.Fprintf(&jobs, "      - {targets: [%q], labels: {instance: node-%d-%d}}\n", target, s, n)
		}
		rules := filepath.Join(dir, fmt.Sprintf("rules-%d.yml", s))
		if err := os.WriteFile(rules, fmt.Appendf(nil, "groups:\n  - {name: group-%d, rules: [{alert: rule-%d, expr: vector(0) > 1}]}\n", s, s), 0o600); err != nil {
			t.Fatal(err)
		}
		for r := range replicas {
			file := filepath.Join(dir, fmt.Sprintf("prometheus-%d-%d.yml", s, r))
			text := fmt.Sprintf(`global:
  scrape_interval: 1s
  external_labels: {%s}
rule_files: [%q]
scrape_configs:
  - job_name: node
    metrics_path: /shard-%d
    static_configs:
%s  - job_name: api
    metrics_path: /shard-%d
    static_configs:
      - {targets: [%q], labels: {instance: api-%d}}
`, labelsOf(top, s, r), rules, s, jobs.String(), s, target, s)
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			prom := w.launch(t, part{prometheus, s, r}.name(), "prometheus", 1, func(at []string) []string {
				return []string{
					"--config.file=" + file, "--storage.tsdb.path=" + filepath.Join(dir, fmt.Sprintf("data-%d-%d", s, r)),
					"--web.listen-address=" + at[0],
				}
			})
			prom.ready(t)
			side := w.launch(t, part{sidecar, s, r}.name(), "thanos", 2, func(at []string) []string {
				return []string{
					"sidecar", "--prometheus.url=http://" + prom.addrs[0],
					"--tsdb.path=" + filepath.Join(dir, fmt.Sprintf("sidecar-%d-%d", s, r)),
					"--http-address=" + at[0], "--grpc-address=" + at[1],
				}
			})
			stores = append(stores, side.addrs[1])
		}
	}
	for _, p := range w.parts {
		p.ready(t)
	}
	var lines []string
	for i := range top.queries {
		query := w.launch(t, fmt.Sprintf("thanos-query-%d", i), "thanos", 2, func(at []string) []string {
			args := []string{
				"query", "--query.replica-label=prometheus_replica", "--http-address=" + at[0], "--grpc-address=" + at[1],
				"--store.sd-dns-resolver=golang", // the other one does not know localhost
			}
			for _, s := range stores {
				if top.dns {
					s = "dns+localhost:" + s[strings.LastIndex(s, ":")+1:]
				}
				args = append(args, "--endpoint="+s)
			}
			return args
		})
		query.ready(t)
		base := "http://" + query.addrs[0]
		w.bases = append(w.bases, base)
		lines = append(lines, fmt.Sprintf("{url: %q, type: thanos}", base))
		waitFor(t, "Thanos Query has all targets of all replicas", func() bool {
			a, err := ask(t.Context(), base, question{path: "/api/v1/query?query=count(up==1)&dedup=false&partial_response=false"}, time.Now())
			return err == nil && a.status == http.StatusOK && strings.Contains(a.body, fmt.Sprintf(`"%d"`, targets*replicas))
		})
	}
	w.url, _ = servertest.Start(t, fmt.Sprintf("groups:\n  - name: jaguar\n    labels: {prometheus: monitoring/k8s}\n    replica_labels: [prometheus_replica]\n    shards: [{replicas: [%s]}]\n", strings.Join(lines, ", ")))
	w.settle(t)
	return w
}

// settle waits until each Thanos Query calls all stores healthy, Spillway has had the time to see
// it, and every question has been answered as it ought to be, three times in a row: else the next
// case would strike a world that has lost something already. gRPC takes up to two minutes to dial
// again what was away for long.
func (w *world) settle(t *testing.T) {
	t.Helper()
	for _, base := range w.bases {
		waitFor(t, "Thanos Query calls all stores healthy", func() bool {
			a, err := ask(t.Context(), base, question{path: "/api/v1/stores"}, time.Now())
			return err == nil && strings.Count(a.body, `"lastError":null`) == shards*replicas
		})
	}
	time.Sleep(probes)
	good := 0
	waitFor(t, "all is well", func() bool {
		for _, q := range questions {
			a, err := ask(t.Context(), w.url, q, time.Now())
			if err != nil || judge(q, a) != fine {
				good = 0
				return false
			}
		}
		good++
		return good >= 3
	})
}

// waitFor asks until it is so: health checks are seconds apart.
func waitFor(t *testing.T, what string, so func() bool) {
	t.Helper()
	deadline := time.Now().Add(3 * time.Minute)
	for !so() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not after three minutes", what)
		}
		time.Sleep(200 * time.Millisecond)
	}
}

func TestMain(m *testing.M) { realpromtest.Main(m) }
