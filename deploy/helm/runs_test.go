package helm

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/spillwayproject/spillway/internal/cli"
	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// said is a log that one goroutine writes and another reads.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// volume is a folder as the kubelet mounts a Secret: each file is a link through ..data, which is
// a link that is replaced as a whole.
type volume struct{ dir string }

func (v volume) write(t *testing.T, version, name, text string) {
	t.Helper()
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.MkdirAll(filepath.Join(v.dir, version), 0o755))
	must(os.WriteFile(filepath.Join(v.dir, version, name), []byte(text), 0o600))
	must(os.Symlink(version, filepath.Join(v.dir, "..new")))
	must(os.Rename(filepath.Join(v.dir, "..new"), filepath.Join(v.dir, "..data")))
	if _, err := os.Lstat(filepath.Join(v.dir, name)); err != nil {
		must(os.Symlink(filepath.Join("..data", name), filepath.Join(v.dir, name)))
	}
}

var listens = regexp.MustCompile(`^(--web\.(?:([a-z]+)-)?listen-address=)(?:127\.0\.0\.1)?:(\d+)$`)

// listensAt waits until the log says where the program listens, and gives the port of each listener
// by what the log calls it.
func listensAt(t *testing.T, log *said, names ...string) map[string]string {
	t.Helper()
	ports := map[string]string{}
	eventually(t, log, "where it listens", func() bool {
		for _, line := range strings.Split(log.String(), "\n") {
			if !strings.Contains(line, `msg="Spillway is ready"`) {
				continue
			}
			for _, f := range strings.Fields(line) {
				if name, address, _ := strings.Cut(f, "="); slices.Contains(names, name) {
					_, ports[name], _ = net.SplitHostPort(address) // of a listener
				}
			}
		}
		return len(ports) == len(names)
	})
	return ports
}

// TestPodRuns starts the program with the arguments and the configuration of the chart, on ports
// of this machine that nobody else has: what probes and the ServiceMonitor ask is answered on the
// ports they name, a change of the mounted file is taken up, and SIGTERM's way out ends within the
// grace period.
func TestPodRuns(t *testing.T) {
	shard := fakeshard.Start(t, fakeshard.Config{Series: []map[string]string{{"__name__": "up", "job": "a"}}})
	values := valuesOf(t, ciFiles(t)["minimal"])
	servers := func(group string) {
		values["config"] = map[string]any{"groups": []any{map[string]any{
			"name": group, "labels": map[string]any{"cluster": group},
			"shards": []any{map[string]any{"replicas": []any{map[string]any{"url": "http://" + shard.Addr()}}}},
		}}}
	}
	servers("first")
	values["serviceMonitor"] = map[string]any{"enabled": true}
	all, err := render(values)
	if err != nil {
		t.Fatal(err)
	}
	mount, state := volume{t.TempDir()}, t.TempDir()
	here := func(text string) string { // the pod's folder of its own
		if !strings.Contains(text, "state_dir: /var/lib/spillway-state\n") {
			t.Errorf("no state_dir in %s", text)
		}
		return strings.Replace(text, "/var/lib/spillway-state", state, 1)
	}
	text, _ := configOf(all)
	text = here(text)
	mount.write(t, "..1", "spillway.yaml", text)
	pod := deployment(all).Spec.Template.Spec
	called := map[int32]string{} // what the log calls who listens on a port of the pod
	args := []string{}
	for _, a := range pod.Containers[0].Args {
		if m := listens.FindStringSubmatch(a); m != nil {
			var port int32
			fmt.Sscan(m[3], &port)
			called[port] = cmp.Or(m[2], "address")
			a = m[1] + "127.0.0.1:0"
		}
		args = append(args, strings.Replace(a, pod.Containers[0].VolumeMounts[0].MountPath, mount.dir, 1))
	}
	var log said
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() {
		ended <- cli.Spillway.Run(ctx, context.Background(), append(args, "--config.auto-reload-interval=100ms"), &log, &log)
	}()
	defer func() {
		stop()
		select {
		case code := <-ended:
			if code != 0 {
				t.Errorf("it ends with %d:\n%s", code, log.String())
			}
		case <-time.After(time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second):
			t.Error("it is killed")
		}
	}()
	ports := listensAt(t, &log, slices.Collect(maps.Values(called))...)
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	answers := func(port int32, path string) error {
		r, err := client.Get("http://127.0.0.1:" + ports[called[port]] + path)
		if err != nil {
			return err
		}
		defer r.Body.Close()
		if r.StatusCode != http.StatusOK {
			return fmt.Errorf("port %d, %s: %s", port, path, r.Status)
		}
		return nil
	}
	byName := map[string]int32{}
	for _, p := range pod.Containers[0].Ports {
		byName[p.Name] = p.ContainerPort
	}
	eventually(t, &log, "the startup probe", func() bool {
		get := pod.Containers[0].StartupProbe.HTTPGet
		return answers(byName[get.Port.StrVal], get.Path) == nil
	})
	endpoint := find[*monitoringv1.ServiceMonitor](t, all, "spillway").Spec.Endpoints[0]
	service := find[*corev1.Service](t, all, "spillway-metrics").Spec.Ports
	for _, p := range service {
		if p.Name == endpoint.Port {
			if err := answers(byName[p.TargetPort.StrVal], endpoint.Path); err != nil {
				t.Error(err)
			}
		}
	}
	for _, probe := range []*corev1.Probe{pod.Containers[0].LivenessProbe, pod.Containers[0].ReadinessProbe} {
		get := probe.HTTPGet
		eventually(t, &log, get.Path, func() bool { return answers(byName[get.Port.StrVal], get.Path) == nil })
	}
	servers("second")
	if all, err = render(values); err != nil {
		t.Fatal(err)
	}
	text, _ = configOf(all)
	mount.write(t, "..2", "spillway.yaml", here(text))
	eventually(t, &log, "the change", func() bool { return strings.Contains(log.String(), `by="file change" result=reloaded`) })
}

func eventually(t *testing.T, log *said, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s does not come about:\n%s", what, log.String())
		}
	}
}
