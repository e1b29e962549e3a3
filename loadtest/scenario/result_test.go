package scenario

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/loadtest/report"
	"github.com/spillwayproject/spillway/proxy/config"
)

const mb = 1 << 20

// measured is a run through Spillway: idle for ten seconds, then a storm.
func measured(serverIdle, serverPeak, proxyPeak int64) *Side {
	line := func(name string, role report.Role, idle, peak int64) report.Process {
		return report.Process{Name: name, Role: role, RSS: []report.Sample{
			{At: 0, Bytes: idle},
			{At: 5 * time.Second, Bytes: idle - mb},
			{At: 11 * time.Second, Bytes: peak},
			{At: 20 * time.Second, Bytes: idle},
		}}
	}
	return &Side{Run: report.Run{
		Name: "Through Spillway", Storm: report.Span{Begin: 10 * time.Second, End: 20 * time.Second},
		Processes: []report.Process{
			line("prometheus-1", report.Server, 500*mb, 500*mb),
			line("prometheus-2", report.Server, serverIdle, serverPeak), line("spillway", report.Proxy, 40*mb, proxyPeak),
		},
	}}
}

func TestVerdicts(t *testing.T) {
	fine := Reply{
		Request: report.Request{Took: 40 * time.Millisecond, Outcome: "200", OK: true, Bytes: 900}, Ask: "GET", Status: 200,
		Parsed: true, Found: Found{Series: 1000, Warnings: []string{"cut"}},
	}
	slow, refused, huge := fine, fine, fine
	slow.Took = 2 * time.Second
	refused.OK, refused.Outcome, refused.Parsed = false, "429", false
	huge.Parsed, huge.Bytes = false, 100*mb
	dead := measured(500*mb, 520*mb, 60*mb)
	dead.Processes[1].Died, dead.Processes[1].Death = 20*time.Second, "out of memory"
	for _, tc := range []struct {
		name    string
		series  int
		side    *Side
		replies []Reply
		broken  string // names, in order
		says    string
	}{
		{"all kept", 300_000, measured(500*mb, 596*mb, 128*mb), []Reply{fine, fine}, "", "+96.0 MiB; allowed are 96 MiB"},
		{"server just over", 300_000, measured(500*mb, 596*mb+1, 60*mb), []Reply{fine}, "servers", "allowed are 96 MiB"},
		{"a million: a tenth", 1_000_000, measured(1500*mb, 1650*mb, 60*mb), []Reply{fine}, "", "+150.0 MiB; allowed are 150 MiB, 10 %"},
		{"a million: more", 1_000_000, measured(1500*mb, 1651*mb, 60*mb), []Reply{fine}, "servers", "10 %"},
		{"proxy over", 300_000, measured(500*mb, 500*mb, 129*mb), []Reply{fine}, "proxy", "129.0 MiB; allowed are 128 MiB"},
		{"a dead server", 300_000, dead, []Reply{fine}, "servers", "1 died"},
		{"refused", 300_000, measured(500*mb, 500*mb, 60*mb), []Reply{fine, refused}, "answers", "1 of 2 are of use"},
		{"not bounded", 300_000, measured(500*mb, 500*mb, 60*mb), []Reply{fine, huge}, "answers", "no bounded answer"},
		{"nobody asked", 300_000, measured(500*mb, 500*mb, 60*mb), nil, "answers latency", "0 of 0"},
		{"slow", 300_000, measured(500*mb, 500*mb, 60*mb), []Reply{fine, slow}, "latency", "all within 2s"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, r := range tc.replies {
				tc.side.Requests = append(tc.side.Requests, r.Request)
			}
			tc.side.Replies = tc.replies
			r := &Result{
				Options: Options{Series: tc.series}.withDefaults(),
				Data:    Data{Series: tc.series, Buckets: tc.series / 2, Blocks: 3}, Machine: Machine{CPUs: 2}, Through: tc.side,
			}
			var broken, all []string
			for _, v := range r.Verdicts() {
				if !v.Kept {
					broken = append(broken, v.Name)
				}
				all = append(all, v.String())
			}
			if got := strings.Join(broken, " "); got != tc.broken {
				t.Errorf("broken: %q, want %q", got, tc.broken)
			}
			if text := strings.Join(all, "\n"); !strings.Contains(text, tc.says) {
				t.Errorf("%q is not said:\n%s", tc.says, text)
			}
			if err := r.Report().Validate(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestOptions(t *testing.T) {
	if err := (Options{Spillway: "x"}).Validate(); err != nil {
		t.Errorf("defaults: %v", err)
	}
	err := Options{
		Series: 1, Servers: 65, Callers: 1001, Idle: time.Millisecond, Duration: time.Hour, Patience: 1, MemoryLimit: 1,
		KeepFree: -1,
	}.Validate()
	for _, want := range []string{
		"binary", "series: 1", "servers: 65", "callers: 1001", "idle: 1ms", "duration: 1h", "patience",
		"memory limit", "kept free",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not named: %v", want, err)
		}
	}
}

// TestEveryScenario: what stands in the table can be asked and told.
func TestEveryScenario(t *testing.T) {
	for name, s := range All {
		if s.Name != name || !strings.Contains(s.Title, "%d") || len(s.Asks) == 0 {
			t.Errorf("%s: %+v", name, s)
		}
		for _, a := range s.Asks {
			if _, err := a.request(t.Context(), "http://127.0.0.1:9090"); err != nil || a.Name == "" || a.Check == nil {
				t.Errorf("%s: %s: %v", name, a.Name, err)
			}
		}
	}
}

// TestProxyConfig: the proxy takes its configuration, and every bound in it is the default.
func TestProxyConfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "spillway.yaml")
	if err := config.WriteFile(file, proxyConfig([]string{"http://127.0.0.1:1", "http://127.0.0.1:2"}, 0)); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Groups) != 2 || len(c.Notes) != 0 {
		t.Errorf("%d groups, notes %v", len(c.Groups), c.Notes)
	}
}

// TestWatch: a real process is seen, with the highest memory since the last look, and its end is
// noticed.
func TestWatch(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	said := make(signal, 1)
	p, err := realprom.StartProcess(realprom.ProcessOptions{Path: exe, Env: []string{childVar + "=1"}, Log: said})
	if err != nil {
		t.Fatal(err)
	}
	<-said // it holds its memory then
	w := watch([]member{{name: "child", role: report.Server, proc: p}}, 1<<62, func(err error) {
		if !strings.Contains(err.Error(), "nearly out of memory") {
			t.Error(err)
		}
		p.Kill()
	})
	<-p.Done()
	got := w.stop()[0]
	if got.RSS[0].Bytes < 64*mb || got.Died == 0 || got.Death != "ended by itself" {
		t.Errorf("%+v", got)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
}

// signal is a writer that tells of its first write.
type signal chan struct{}

func (s signal) Write(b []byte) (int, error) {
	select {
	case s <- struct{}{}:
	default:
	}
	return len(b), nil
}

func TestResting(t *testing.T) {
	samples := func(bytes ...int64) []report.Sample {
		var out []report.Sample
		for i, b := range bytes {
			out = append(out, report.Sample{At: time.Duration(i) * time.Second, Bytes: b})
		}
		return out
	}
	for _, tc := range []struct {
		name string
		rss  []report.Sample
		want bool
	}{
		{"flat", samples(100*mb, 100*mb, 100*mb, 101*mb), true},
		{"falling", samples(400*mb, 300*mb, 200*mb, 100*mb), false},
		{"fell long ago", samples(900*mb, 100*mb, 100*mb, 100*mb), true},
		{"two percent of much", samples(1000*mb, 1000*mb, 1015*mb, 1000*mb), true},
		{"more", samples(1000*mb, 1000*mb, 1030*mb, 1000*mb), false},
	} {
		w := &watcher{began: time.Now().Add(-3500 * time.Millisecond), processes: []report.Process{{RSS: tc.rss}}}
		if got := w.resting(3 * time.Second); got != tc.want {
			t.Errorf("%s: %t", tc.name, got)
		}
	}
	if w := (&watcher{began: time.Now()}); w.resting(time.Second) {
		t.Error("at rest before anything was seen")
	}
}

func TestNumber(t *testing.T) {
	text := []byte("VmPeak:\t  99 kB\nVmHWM:\t  1234 kB\ninactive_file 77\nx -1\ny\n")
	for key, want := range map[string]int64{"VmHWM:": 1234, "inactive_file ": 77, "x ": -1, "y": -1, "absent": -1} {
		got, ok := number(text, key)
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("%q: %d, want %d", key, got, want)
		}
	}
	if free, err := available(); err != nil || free <= 0 {
		t.Errorf("available: %d, %v", free, err)
	}
}
