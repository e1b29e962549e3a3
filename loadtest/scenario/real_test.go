package scenario

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/internal/realprom/realpromtest"
	"github.com/spillwayproject/spillway/loadtest/bench"
	"github.com/spillwayproject/spillway/loadtest/report"
	"github.com/spillwayproject/spillway/proxy/config"
)

// TestKillerThroughSpillway is the incident, with the bounds that it must keep now: four real
// servers of 300,000 series, eight callers. Latency is printed and not judged, since other tests
// may have the CPUs.
func TestKillerThroughSpillway(t *testing.T) {
	out := t.TempDir()
	cmd := exec.CommandContext(t.Context(), realpromtest.Laboratory(t), "loadtest", "oom", "--series=300000", "--servers=4", "--callers=8",
		"--idle=20s", "--duration=20s", "--no-direct", "--out="+out, "--enforce=none", "--dir="+t.TempDir(),
		"--spillway="+realpromtest.Spillway(t)) // the program that users have, not the laboratory itself
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	t.Logf("%s\n%s", stderr.String(), stdout.String())
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(out, "oom.json"))
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Series, Buckets, Asked int
		Verdicts               []Verdict
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	// Of 300,000 series that were asked for; the simulated cluster comes to within 5 % of that.
	if got.Series < 285_000 || got.Buckets < got.Series/2 || got.Asked < 8 {
		t.Errorf("the storm was too small: %s", text)
	}
	kept := 0
	for _, v := range got.Verdicts {
		if v.Name == "latency" {
			continue
		}
		kept++
		if !v.Kept {
			t.Error(v.Text)
		}
	}
	if kept != 3 {
		t.Errorf("%d verdicts were judged, want servers, proxy and answers", kept)
	}
}

func byBytes(a, b Reply) int { return cmp.Compare(a.Bytes, b.Bytes) }

// TestBothSides runs everything once, small: the proxy and the callers in front of it, the servers
// asked directly, and what is written about it.
func TestBothSides(t *testing.T) {
	var said strings.Builder
	r, err := Run(t.Context(), Options{
		Spillway: realpromtest.Spillway(t), Series: 70_000, Servers: 2, Callers: 3, Idle: time.Second, Duration: 2 * time.Second,
		Everyday: 3 * time.Second, KeepFree: 256 << 20, Dir: t.TempDir(),
		Say: func(format string, args ...any) { said.WriteString(format + "\n") },
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*Side{r.Through, r.Direct} {
		a := s.Answers()
		if a.Asked == 0 || a.OK != a.Asked {
			t.Errorf("%s: %d of %d answered: %v", s.Name, a.OK, a.Asked, a.Outcomes)
		}
	}
	if n := len(r.Through.Processes); n != 3 {
		t.Errorf("%d processes were watched through Spillway, want two servers and the proxy", n)
	}
	if n := len(r.Direct.Processes); n != 1 {
		t.Errorf("%d processes were watched directly, want one server", n)
	}
	// The same series from two clusters, 1,000 from each, and a sentence about it; directly all of
	// one, which may be too large to be looked into (maxParsed).
	if through := r.Through.found(); through.parsed != len(r.Through.Replies) || through.most != 2000 || through.warned != through.parsed {
		t.Errorf("through %+v, want each answer with 2,000 series and a warning", through)
	}
	largest := slices.MaxFunc(r.Through.Replies, byBytes)
	for _, direct := range r.Direct.Replies {
		t.Logf("direct: %d bytes, %d series; through: at most %d bytes", direct.Bytes, direct.Found.Series, largest.Bytes)
		if direct.Bytes < 2*largest.Bytes || direct.Parsed && direct.Found.Series < 3000 {
			t.Errorf("direct: %+v, want all series of one server", direct)
		}
	}
	// How they stand to each other is the machine's affair: the runtime gives memory back as well.
	if h := r.Through.Rest; h.Started == 0 || h.Collected == 0 || h.InUse == 0 {
		t.Errorf("heights on the way to rest: %+v", r.Through.Rest)
	}
	dir := filepath.Join(t.TempDir(), "new")
	if err := r.Save(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"oom.html", "oom.svg", "oom.png", "oom.txt", "oom.json"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left, err := os.ReadDir(r.Options.Dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// startPeer starts a proxy for servers that are not there yet, on a port: a Spillway without lanes.
func startPeer(t *testing.T, port int) bench.Peer {
	file := filepath.Join(t.TempDir(), "peer.yaml")
	if err := config.WriteFile(file, proxyConfig([]string{fmt.Sprintf("http://127.0.0.1:%d", port)}, 0)); err != nil {
		t.Fatal(err)
	}
	p, at, _, err := realprom.StartProxy(t.Context(), realpromtest.Spillway(t), file, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	return bench.Peer{Name: "another", URL: at}
}

// TestStormThroughSpillway is the mixed storm, small: a server of 100,000 series, on-call people,
// and everything at once; then over a fresh server of which another proxy knew the port, whose
// memory is watched. How long on-call people wait is printed and not judged, since other tests may
// have the CPUs.
func TestStormThroughSpillway(t *testing.T) {
	ports, err := realprom.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	o := StormOptions{
		Port: ports[0], Peers: []bench.Peer{startPeer(t, ports[0])},
		Spillway: realpromtest.Spillway(t), Series: 100_000, Servers: 1, Idle: 5 * time.Second, Duration: 8 * time.Second,
		Tail: 2 * time.Second, Warm: 2 * time.Second, Everyday: 5 * time.Second,
		NoDirect: true, KeepFree: 256 << 20, Seed: 1, Dir: t.TempDir(), Say: t.Logf,
	}
	r, err := RunStorm(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	t.Log(text.String())
	came := map[string]int{}
	for _, q := range r.Through.Replies {
		came[q.Part]++
	}
	for _, p := range r.Options.Storm.Parts {
		if came[p.Name] == 0 && p.Rate >= 0.5 { // of what is rarer none may be due in so short a storm
			t.Errorf("nothing came of %s", p.Name)
		}
	}
	if n := len(r.Through.OnCall); n < 100 {
		t.Errorf("on-call people asked %d times, want ten a second", n)
	}
	for _, v := range r.Verdicts() {
		switch {
		// A small server's Go collects when its heap has doubled, and how much of that falls into
		// the idle stretch is chance; the bound itself is for large ones (make bench).
		case v.Name == "latency", v.Name == "servers":
			t.Log(v.Text)
		case !v.Kept:
			t.Error(v.Text)
		}
	}
	for _, p := range r.Through.Processes {
		m := r.Through.Memory(p)
		if growth := float64(m.Peak-m.Idle) / float64(max(m.Idle, 1)); p.Died != 0 || p.Role == report.Server && growth > 1 {
			t.Errorf("%s died after %s (%s), or grew by %.0f %%", p.Name, p.Died, p.Death, 100*growth)
		}
	}
	peer := r.Peers[0]
	if c := peer.onCall(false); c.asked == 0 || c.ok != c.asked {
		t.Errorf("through the peer %d of %d on-call queries had an answer before the storm: %v", c.ok, c.asked, c.bad)
	}
	p := peer.Processes
	if len(p) != 2 || p[1].Name != "another" || p[1].Died != 0 || peer.Memory(p[1]).Peak < 1<<20 || peer.Idle.Proxy <= 0 {
		t.Errorf("of the peer there are %+v; idle %s", p, peer.Idle)
	}
	select {
	case <-foreign(1 << 22).Done():
	default:
		t.Error("a process that is not there goes on")
	}
	if left, err := os.ReadDir(o.Dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
