package adopt

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/internal/localprom"
	"github.com/spillwayproject/spillway/internal/realkube"
	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/internal/realprom/realpromtest"
	simulated "github.com/spillwayproject/spillway/loadtest/cluster"
)

var genuine = flag.Bool("genuine", false, "adopt three fleets of a genuine API server (./tools/build.sh kubernetes)")

func TestMain(m *testing.M) { realpromtest.Main(m) }

// blocks are the TSDB blocks of a load.
func blocks(t *testing.T, text string, begin time.Time) string {
	t.Helper()
	s, err := localprom.Start(t.Context(), localprom.Options{DisableWAL: true, BlockDuration: 24 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.LoadAt(text, begin); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := s.DB().Snapshot(dir, true); err != nil {
		t.Fatal(err)
	}
	return dir
}

// demo are the blocks of the half hour of a cluster like that of `make demo`, of the targets that
// are kept, with labels on each series.
func demo(t *testing.T, begin time.Time, more labels.Labels, keep func(simulated.Target) bool) string {
	t.Helper()
	m, err := simulated.New(simulated.Options{
		Seed: 1, Cluster: "jaguar", Nodes: 4, APIServers: 1, Start: begin.Add(-24 * time.Hour).Truncate(time.Hour),
		Exporters: simulated.AllExporters,
	})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	_, err = m.Backfill(t.Context(), dir, simulated.BackfillOptions{
		From: begin, Until: begin.Add(30 * time.Minute), Interval: 30 * time.Second, Keep: keep, ExternalTargetLabels: more,
		BlockRange: 24 * time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// populate writes the fleet's objects, and starts its servers as their pods.
func (p *plane) populate(f *fleet, begin time.Time) {
	t := p.t
	t.Helper()
	if err := p.Namespace(p.ctx, f.namespace, ""); err != nil {
		t.Fatal(err)
	}
	for _, o := range fixture(t, filepath.Join("testdata/fleets", f.file+".yaml")) {
		p.post(o)
	}
	parts := make([][]string, f.parts)
	for i := range parts {
		parts[i] = []string{
			blocks(t, load(i, f.parts, ""), begin),
			demo(t, begin, labels.EmptyLabels(), func(target simulated.Target) bool { return partOf(target.Instance, f.parts) == i }),
		}
	}
	for _, s := range f.servers {
		port, err := realprom.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		realpromtest.Start(t, realprom.Options{
			Config: f.conf(s), ExternalLabels: labels.FromMap(s.external), Blocks: parts[s.part],
			Flags: []string{fmt.Sprintf("--web.listen-address=%s:%d", p.addr, port)},
		})
		for _, o := range f.placed(s, p.addr, port) {
			p.post(o)
		}
	}
}

// least makes a service account with the rights that adopt says it needs and no others, and returns
// a kubeconfig of it.
func (p *plane) least() string {
	p.t.Helper()
	var rules []any
	for _, r := range append(slices.Clone(Reads), Writes...) {
		rules = append(rules, map[string]any{"apiGroups": []any{r.Group}, "resources": []any{r.Resource}, "verbs": r.Verbs})
	}
	role, err := json.Marshal(map[string]any{"kind": "ClusterRole", "metadata": map[string]any{"name": "adopt"}, "rules": rules})
	if err != nil {
		p.t.Fatal(err)
	}
	token, err := p.ServiceAccount(p.ctx, "default", "adopt")
	if err != nil {
		p.t.Fatal(err)
	}
	for _, o := range []string{string(role), `{"kind":"ClusterRoleBinding","metadata":{"name":"adopt"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole",
	  "name":"adopt"},"subjects":[{"kind":"ServiceAccount","namespace":"default","name":"adopt"}]}`} {
		if err := p.Create(p.ctx, "rbac.authorization.k8s.io/v1", o); err != nil {
			p.t.Fatal(err)
		}
	}
	cfg := api.NewConfig()
	cfg.Clusters["c"] = &api.Cluster{Server: p.API(), CertificateAuthority: p.CertFile()}
	cfg.AuthInfos["u"] = &api.AuthInfo{Token: token}
	cfg.Contexts["c"] = &api.Context{Cluster: "c", AuthInfo: "u"}
	cfg.CurrentContext = "c"
	file := filepath.Join(p.t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*cfg, file); err != nil {
		p.t.Fatal(err)
	}
	return file
}

// TestGenuineFleets: three fleets, each in a genuine API server with real Prometheus servers behind
// it, are adopted by the built program with no more rights than the page lists; Spillway, started
// from the configuration that was applied, answers as one Prometheus that has everything; and after
// --undo the API server's objects are what they were.
func TestGenuineFleets(t *testing.T) {
	if !*genuine {
		t.Skip("a real API server that takes minutes to build: make test-full runs it, by -genuine")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	control, err := realkube.Start(ctx, realkube.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := control.Stop(); err != nil {
			t.Error(err)
		}
	}()
	p := &plane{control, t, ctx, machineAddress(t)}
	p.define()
	kubeconfig := p.least()
	for i := range fleets {
		f := &fleets[i]
		t.Run(f.file, func(t *testing.T) {
			one := *p
			one.t = t
			one.adopts(f, kubeconfig)
		})
	}
}

// run runs the program and returns what it printed.
func (p *plane) run(code int, args ...string) string {
	p.t.Helper()
	var out bytes.Buffer
	cmd := exec.CommandContext(p.ctx, realpromtest.Spillway(p.t), append([]string{"adopt"}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var exit *exec.ExitError
	got := 0
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else if err != nil {
		p.t.Fatal(err)
	}
	if got != code {
		p.t.Fatalf("adopt %v: exit code %d:\n%s", args, got, &out)
	}
	return out.String()
}

func (p *plane) adopts(f *fleet, kubeconfig string) {
	t := p.t
	end := time.Now().Add(-30 * time.Second).Truncate(15 * time.Second)
	begin := end.Add(-30 * time.Minute)
	p.populate(f, begin)
	realpromtest.Spillway(t) // built before time is taken
	before := p.dump()
	file := filepath.Join(t.TempDir(), "spillway.yaml")
	args := []string{"--kubeconfig=" + kubeconfig, "--namespace=" + f.namespace, "--look-in=" + f.namespace, "--out=" + file, "--hashmod"}

	said := p.run(0, args...)
	t.Logf("%s", said)
	if after := p.dump(); !equal(t, before, after) {
		t.Fatal("without --apply something has changed")
	}
	if said := p.run(0, append(args, "--via=direct")...); !strings.Contains(said, "proven against the servers") {
		t.Errorf("at the pods' own addresses: %s", said)
	}
	node := p.node(f.namespace)
	defer node.stop()
	if len(f.only) > 0 {
		said := p.run(1, append(args, "--apply", "--image=registry.example.org/spillway:0.1.0")...)
		if after := p.dump(); !strings.Contains(said, "name those that belong behind one, each by --only") || !equal(t, before, after) {
			t.Errorf("several servers without their names: %s", said)
		}
	}
	args = append(args, f.only...)
	begun := time.Now()
	said = p.run(0, append(args, "--apply", "--image=registry.example.org/spillway:0.1.0")...)
	took := time.Since(begun)
	t.Logf("--apply took %s", took.Round(10*time.Millisecond))
	if took > time.Minute {
		t.Errorf("--apply took %s, at most a minute is promised", took)
	}
	if !strings.Contains(said, "changed "+f.source) {
		t.Errorf("no change of %s in:\n%s", f.source, said)
	}
	if !strings.Contains(said, "its pods (1) reach all servers") {
		t.Errorf("whether Spillway reaches the servers was not asked:\n%s", said)
	}
	text := p.applied(f.namespace)
	for _, want := range f.config {
		if !strings.Contains(text, want) {
			t.Errorf("the configuration lacks %q:\n%s", want, text)
		}
	}
	for _, no := range f.lacks {
		if strings.Contains(text, no) {
			t.Errorf("the configuration has %q:\n%s", no, text)
		}
	}
	p.compare(f, node, begin)

	p.run(0, append(args, "--apply", "--image=registry.example.org/spillway:0.1.1")...) // again, which is an upgrade
	undo := []string{"--kubeconfig=" + kubeconfig, "--namespace=" + f.namespace, "--undo"}
	if f.restart != "" {
		if said := p.run(1, undo...); !strings.Contains(said, f.restart) {
			t.Errorf("what reads its data source at its start is not to be restarted:\n%s", said)
		}
	}
	t.Logf("%s", p.run(0, undo...))
	node.stop()
	if after := p.dump(); !equal(t, before, after) {
		t.Error("--undo has not left the objects as they were")
	}
	said = p.run(1, undo...)
	if !strings.Contains(said, "adopt has changed nothing") {
		t.Errorf("a second --undo says: %s", said)
	}
}

// equal compares two dumps.
func equal(t *testing.T, before, after map[string]string) bool {
	t.Helper()
	same := true
	for name, text := range before {
		if after[name] != text {
			t.Errorf("%s\nbefore: %s\nafter: %s", name, text, after[name])
			same = false
		}
	}
	for name := range after {
		if _, ok := before[name]; !ok {
			t.Errorf("%s is new", name)
			same = false
		}
	}
	return same
}
