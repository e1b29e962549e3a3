package scenario

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/effort"
	"github.com/spillwayproject/spillway/loadtest/bench"
	"github.com/spillwayproject/spillway/loadtest/report"
	"github.com/spillwayproject/spillway/loadtest/storm"
)

// stormed is a made-up result in which every bound was kept: directly a server is killed, through
// Spillway the servers go from 1,000 MiB to 1,200, and on-call's p99 from 100 ms to 140.
func stormed() *StormResult {
	const mb = 1 << 20
	process := func(name string, role report.Role, idle, peak int64) report.Process {
		rss := []report.Sample{{At: time.Second, Bytes: idle * mb}, {At: 15 * time.Second, Bytes: peak * mb}}
		return report.Process{Name: name, Role: role, RSS: rss}
	}
	side := func(name string, inStorm time.Duration) *StormSide {
		s := &StormSide{Run: report.Run{Name: name, Storm: report.Span{Begin: 10 * time.Second, End: 20 * time.Second}}}
		for i := range 200 {
			q := storm.Reply{Part: "on-call", Due: time.Duration(i) * 100 * time.Millisecond, Took: 100 * time.Millisecond, Outcome: "200"}
			if q.Due >= s.Storm.Begin {
				q.Took = inStorm
			}
			s.OnCall = append(s.OnCall, q)
		}
		s.Replies = []storm.Reply{
			{Part: "wall", Request: "a", Due: 11 * time.Second, Took: time.Second, Outcome: "200"},
			{Part: "wall", Request: "a", Due: 12 * time.Second, Verdict: storm.Refused, Outcome: "422 max_series"},
			{Part: "wall", Request: "a", Due: 13 * time.Second, Verdict: storm.Left, Outcome: "left"},
			{Part: "wall", Request: "a", Due: 14 * time.Second, Verdict: storm.Failed, Outcome: "connection lost"},
			{Part: "wall", Request: "a", Due: 14 * time.Second, Verdict: storm.Ended, Outcome: "the test ended"},
		}
		return s
	}
	r := &StormResult{
		Options: StormOptions{
			Storm: storm.Storm{
				Name: "mixed", About: "a wall", OnCall: storm.Part{Tenant: "oncall"},
				Parts: []storm.Part{{Name: "wall", Rate: 2, Burst: 3}},
			},
			Series: 100_000, Servers: 2, Idle: 10 * time.Second, Duration: 10 * time.Second, MemoryLimit: 3 << 30,
			ReplicaCalls: 2, ProcessCalls: 3, Seed: 1,
		},
		Machine: Machine{CPUs: 2, Memory: 8 << 30, OS: "linux/amd64"},
		Through: side("Through Spillway", 140*time.Millisecond),
		Direct:  side("Asked directly", 5*time.Second),
	}
	r.Through.Processes = []report.Process{
		process("prometheus-1", report.Server, 1000, 1200), process("prometheus-2", report.Server, 1000, 1010),
		process("spillway", report.Proxy, 50, 400),
	}
	r.Direct.Processes = []report.Process{
		process("prometheus-1", report.Server, 1000, 3000), process("prometheus-2", report.Server, 1000, 2000),
	}
	r.Direct.Processes[0].Died, r.Direct.Processes[0].Death = 16*time.Second, "out of memory"
	r.Through.Busy = Processors{Servers: 1.5, Proxy: 0.1, Callers: 0.4, Total: 2, Ready: Ready{Servers: 0.7, Proxy: 0.05, Callers: 0.2}}
	r.Through.forReport()
	r.Direct.forReport()
	return r
}

// TestStormVerdicts: each bound is kept just within it and broken just beyond it.
func TestStormVerdicts(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*StormResult)
		broken string
	}{
		{"all kept", func(*StormResult) {}, ""},
		{"just within the growth", func(r *StormResult) { r.Through.Processes[0].RSS[1].Bytes = 1250 << 20 }, ""},
		{"beyond the growth", func(r *StormResult) { r.Through.Processes[1].RSS[1].Bytes = 1251 << 20 }, "servers"},
		{"a server killed through Spillway", func(r *StormResult) { r.Through.Processes[1].Died = 16 * time.Second }, "servers"},
		{"stopped early", func(r *StormResult) { r.Through.Stopped = "no memory" }, "servers on-call latency"},
		{"stopped early directly", func(r *StormResult) { r.Direct.Stopped = "no memory" }, "killed"},
		{"a server that ended by itself directly", func(r *StormResult) { r.Direct.Processes[0].Death = "exit status 1" }, "killed"},
		{"Spillway itself ends", func(r *StormResult) { r.Through.Processes[2].Died = 16 * time.Second }, "servers"},
		{"Spillway's own memory is no server's", func(r *StormResult) { r.Through.Processes[2].RSS[1].Bytes = 9 << 30 }, ""},
		{"nobody killed directly", func(r *StormResult) { r.Direct.Processes[0].Died = 0 }, "killed"},
		{"not asked directly", func(r *StormResult) { r.Direct = nil }, ""},
		{"on-call lost a query in the storm", func(r *StormResult) { r.Through.OnCall[150].Verdict = storm.Failed }, "on-call"},
		{"on-call was refused", func(r *StormResult) { r.Through.OnCall[150].Verdict = storm.Refused }, "on-call"},
		{"on-call lost one before it", func(r *StormResult) { r.Through.OnCall[10].Verdict = storm.Failed }, ""},
		{"nobody asked in the storm", func(r *StormResult) { r.Through.OnCall = r.Through.OnCall[:100] }, "on-call latency"},
		{"slow, one of a hundred", func(r *StormResult) { r.Through.OnCall[150].Took = time.Minute }, ""},
		{"slow, two of a hundred", func(r *StormResult) {
			r.Through.OnCall[150].Took, r.Through.OnCall[151].Took = 151*time.Millisecond, 151*time.Millisecond
		}, "latency"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := stormed()
			tc.change(r)
			var broken []string
			for _, v := range r.Verdicts() {
				if !v.Kept {
					broken = append(broken, v.Name)
				}
			}
			if got := strings.Join(broken, " "); got != tc.broken {
				t.Errorf("broken are %q, want %q: %v", got, tc.broken, r.Verdicts())
			}
		})
	}
}

// TestStormReport: what became of each part, and of on-call people, is told and saved.
func TestStormReport(t *testing.T) {
	r := stormed()
	var text strings.Builder
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	squeezed := strings.Join(strings.Fields(text.String()), " ")
	for _, want := range []string{
		"Asked directly wall 6 5 1 1 1 1",                         // 2 arrivals of 3 a second; asked, ok, refused, failed, left
		"1 × the test ended",                                      // and is neither
		"Through Spillway before the storm 100 100 100 ms 100 ms", // asked, answered, p50, p99
		"in the storm 100 100 140 ms 140 ms",
		"1.40 times as long",
		"+20.0 %",
		"KEPT on-call: through Spillway 100 of 100",
		"spillway-lab loadtest storm --series=100000 --servers=2",
		"--replica-calls=2 --process-calls=3",
		"servers 1.50, proxy 0.10, callers 0.40); ready and without one: servers 0.70, proxy 0.05, callers 0.20",
	} {
		if !strings.Contains(squeezed, want) {
			t.Errorf("%s\nlacks %q", text.String(), want)
		}
	}
	dir := t.TempDir()
	if err := r.Save(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"storm.html", "storm.svg", "storm.png", "storm.txt"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	data, err := os.ReadFile(filepath.Join(dir, "storm.json"))
	if err != nil {
		t.Fatal(err)
	}
	var got struct{ Verdicts []Verdict }
	if err := json.Unmarshal(data, &got); err != nil || len(got.Verdicts) != 4 {
		t.Errorf("%s: %v", data, err)
	}
}

// TestStormPeers: a peer's run stands between both others, breaks no bound of Spillway's, and the
// command that repeats it names it.
func TestStormPeers(t *testing.T) {
	r := stormed()
	peer := stormed().Direct
	peer.Name, peer.Processes[1].Died = "Through promxy", 17*time.Second
	r.Peers = []*StormSide{peer}
	r.Options.Port, r.Options.Peers = 19400, []bench.Peer{{Name: "promxy", URL: "http://127.0.0.1:8082"}}
	var text strings.Builder
	if err := r.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	at := -1
	for _, want := range []string{"Asked directly", "Through promxy", "Through Spillway"} {
		next := strings.Index(text.String(), want)
		if next <= at {
			t.Errorf("%s\nhas %q at %d, after %d it should be", text.String(), want, next, at)
		}
		at = next
	}
	if want := "--port=19400 --peer=promxy=http://127.0.0.1:8082"; !strings.Contains(text.String(), want) {
		t.Errorf("%s\nlacks %q", text.String(), want)
	}
	for _, v := range r.Verdicts() {
		if !v.Kept {
			t.Errorf("broken by a peer: %s", v)
		}
	}
	o := StormOptions{Spillway: "x", Port: 80, Peers: []bench.Peer{{Name: "Spillway", URL: "http://127.0.0.1:1"}}}
	for _, want := range []string{"port: 80 to 81", `peer "Spillway"`} {
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if o.Port = 0; !strings.Contains(o.Validate().Error(), "peers need a port") {
		t.Errorf("peers without a port: %v", o.Validate())
	}
}

// TestProcessors: who had them is counted by the kernel, for as long as somebody was looked at.
func TestProcessors(t *testing.T) {
	before := (&fleet{}).usage()
	const work = 200 * time.Millisecond
	for began := effort.SoFar(); effort.SoFar()-began < work; { // however long a busy machine takes for it
	}
	after := (&fleet{}).usage()
	got := after.since(before)
	if had := got.Callers * after.at.Sub(before.at).Seconds(); had < work.Seconds()/2 || got.Total < got.Callers/2 ||
		got.Servers != 0 || got.Proxy != 0 {
		t.Errorf("%s of work in %s are %+v", work, after.at.Sub(before.at), got)
	}
}
