package scenario

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spillwayproject/spillway/loadtest/report"
	"github.com/spillwayproject/spillway/loadtest/storm"
)

// The bounds that a mixed storm through Spillway must keep.
const (
	// stormGrowth is how far a server's memory may rise above its highest of the idle stretch, as a
	// part of that.
	stormGrowth = 0.25
	// stormLatency is how much longer on-call people may wait in the storm than before it, at the
	// 99th percentile.
	stormLatency = 1.5
)

// Verdicts judge both runs: "killed" (directly, at least one server is), "servers", "on-call" and
// "latency" (through Spillway).
func (r *StormResult) Verdicts() (all []Verdict) {
	if r.Direct != nil {
		dead := r.Direct.dead()
		all = append(all, Verdict{Name: "killed", Kept: dead > 0, Text: fmt.Sprintf(
			"asked directly, %d of %d servers were killed at their limit; without one the storm would prove nothing", dead, r.Options.Servers,
		)})
	}
	all = append(all, r.stormServers(), r.stormOnCall(), r.stormLatency())
	for i := range all {
		side := r.Through
		if all[i].Name == "killed" {
			side = r.Direct
		}
		if side.Stopped != "" { // what a whole storm would have done is not known
			all[i].Kept = false
			all[i].Text += "; it was stopped early: " + side.Stopped
		}
	}
	return all
}

// dead is how many servers the storm had killed at their limit.
func (s *StormSide) dead() (n int) {
	for _, p := range s.Processes {
		if p.Role == report.Server && p.Died >= s.Storm.Begin && p.Death == outOfMemory {
			n++
		}
	}
	return n
}

func (r *StormResult) stormServers() Verdict {
	v := Verdict{Name: "servers", Kept: true}
	var worst float64
	var idle, peak int64
	for _, p := range r.Through.Processes {
		if p.Died != 0 {
			v.Kept = false
		}
		if p.Role != report.Server {
			continue
		}
		m := r.Through.Memory(p)
		if part := float64(m.Peak-m.Idle) / float64(max(m.Idle, 1)); part > worst || idle == 0 {
			worst, idle, peak = part, m.Idle, m.Peak
		}
	}
	v.Kept = v.Kept && worst <= stormGrowth
	v.Text = fmt.Sprintf("servers: through Spillway %d of %d were killed; the one that grew most went from %.0f MiB to %.0f, %+.1f %%; allowed are %.0f %%",
		r.Through.dead(), r.Options.Servers, mebibytes(idle), mebibytes(peak), 100*worst, 100*stormGrowth)
	return v
}

func (r *StormResult) stormOnCall() Verdict {
	c := r.Through.onCall(true)
	text := fmt.Sprintf("on-call: through Spillway %d of %d queries had an answer in the storm", c.ok, c.asked)
	if len(c.bad) > 0 {
		text += " (" + strings.Join(c.bad, ", ") + ")"
	}
	return Verdict{Name: "on-call", Kept: c.asked > 0 && c.ok == c.asked, Text: text}
}

func (r *StormResult) stormLatency() Verdict {
	before, in := r.Through.onCall(false), r.Through.onCall(true)
	ratio := in.p99.Seconds() / max(before.p99.Seconds(), 1e-6)
	return Verdict{
		Name: "latency", Kept: before.asked > 0 && in.asked > 0 && ratio <= stormLatency,
		Text: fmt.Sprintf("latency: on-call's p99 through Spillway was %s in the storm and %s before it, %.2f times as long (p50 %s and %s); allowed are %.1f times",
			ms(in.p99), ms(before.p99), ratio, ms(in.p50), ms(before.p50), stormLatency),
	}
}

func ms(d time.Duration) string {
	if d >= 10*time.Second {
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return fmt.Sprintf("%.0f ms", d.Seconds()*1e3)
}

// stretch is what on-call people had before the storm or in it.
type stretch struct {
	asked, ok     int
	p50, p99, max time.Duration
	bad           []string // outcomes other than answers, with their numbers, the most frequent first
}

// onCall sums up what was due before the storm, or in it, of all requests or of those of a name.
// What failed counts with the time that it took to fail.
func (s *StormSide) onCall(inStorm bool, names ...string) stretch {
	var all []storm.Reply
	for _, q := range s.OnCall {
		if (q.Due >= s.Storm.Begin) == inStorm && (len(names) == 0 || slices.Contains(names, q.Request)) {
			all = append(all, q)
		}
	}
	return sumUp(all)
}

func sumUp(all []storm.Reply) (c stretch) {
	var run report.Run
	bad := map[string]int{}
	for _, q := range all {
		if q.Verdict == storm.Ended {
			continue
		}
		ok := q.Verdict == storm.OK
		run.Requests = append(run.Requests, report.Request{Took: q.Took, OK: ok})
		if !ok {
			bad[q.Outcome]++
		}
	}
	a := run.Answers()
	c = stretch{asked: a.Asked, ok: a.OK, p50: a.P50, p99: a.P99, max: a.Max}
	for name, n := range bad {
		c.bad = append(c.bad, fmt.Sprintf("%d × %s", n, name))
	}
	slices.SortFunc(c.bad, func(a, b string) int {
		x, y := bad[after(a)], bad[after(b)]
		return cmp.Or(cmp.Compare(y, x), cmp.Compare(a, b))
	})
	return c
}

func after(s string) string { _, rest, _ := strings.Cut(s, " × "); return rest }

// partTable is what became of each part, directly and through Spillway.
func (r *StormResult) partTable() report.Table {
	t := report.Table{
		Name:  "The storm, by part",
		Head:  []string{"", "part", "a second", "asked", "ok", "refused", "failed", "left", "p50", "p99", "what was not an answer"},
		Right: []bool{false, false, true, true, true, true, true, true, true, true, false},
	}
	for _, s := range r.sides() {
		name := s.Name
		for _, p := range r.Options.Storm.Parts {
			var of []storm.Reply
			var count [5]int
			for _, q := range s.Replies {
				if q.Part == p.Name {
					of = append(of, q)
					count[q.Verdict]++
				}
			}
			c := sumUp(of)
			if count[storm.Ended] > 0 {
				c.bad = append(c.bad, fmt.Sprintf("%d × the test ended", count[storm.Ended]))
			}
			t.Rows = append(t.Rows, []string{
				name, p.Name, fmt.Sprintf("%.3g", p.Rate*float64(p.Burst)), fmt.Sprint(len(of)),
				fmt.Sprint(count[storm.OK]), fmt.Sprint(count[storm.Refused]),
				fmt.Sprint(count[storm.Failed]), fmt.Sprint(count[storm.Left]),
				ms(c.p50), ms(c.p99), strings.Join(c.bad[:min(len(c.bad), 4)], ", "),
			})
			name = ""
		}
	}
	return t
}

// onCallTable is what on-call people had.
func (r *StormResult) onCallTable() report.Table {
	t := report.Table{
		Name:  "On-call queries",
		Head:  []string{"", "", "asked", "answered", "p50", "p99", "slowest", "what was not an answer"},
		Right: []bool{false, false, true, true, true, true, true, false},
	}
	for _, s := range r.sides() {
		for i, name := range []string{"before the storm", "in the storm"} {
			c := s.onCall(i == 1)
			who := s.Name
			if i == 1 {
				who = ""
			}
			t.Rows = append(t.Rows, []string{
				who, name, fmt.Sprint(c.asked), fmt.Sprint(c.ok), ms(c.p50), ms(c.p99), ms(c.max), strings.Join(c.bad, ", "),
			})
		}
		for _, q := range r.Options.Storm.OnCall.Requests {
			c := s.onCall(true, q.Name)
			t.Rows = append(t.Rows, []string{
				"", "  " + q.Name, fmt.Sprint(c.asked), fmt.Sprint(c.ok), ms(c.p50), ms(c.p99), ms(c.max), strings.Join(c.bad, ", "),
			})
		}
	}
	return t
}

// sides are all runs, directly first and through Spillway last, as they are drawn.
func (r *StormResult) sides() (all []*StormSide) {
	for _, s := range append(append([]*StormSide{r.Direct}, r.Peers...), r.Through) {
		if s != nil {
			all = append(all, s)
		}
	}
	return all
}

// Report is the result for those who look at it.
func (r *StormResult) Report() *report.Report {
	o := r.Options
	rep := &report.Report{
		Title: "The " + o.Storm.Name + " storm on Prometheus servers",
		Lead: fmt.Sprintf("Prometheus servers: %d, of %s series each. For %s only on-call people ask; then, for %s, comes what took servers down: %s. Through a proxy a request reaches every server that it concerns; directly, one server each, in turn.",
			o.Servers, thousands(r.Data.Series), o.Idle, o.Duration, o.Storm.About),
		Limit: o.MemoryLimit, LimitName: "memory limit of a server", LatencyName: "on-call, longest of a second",
		Tables: []report.Table{r.onCallTable(), r.partTable()},
	}
	for _, s := range r.sides() {
		rep.Runs = append(rep.Runs, s.Run)
	}
	for _, v := range r.Verdicts() {
		rep.Notes = append(rep.Notes, v.String())
	}
	for _, s := range r.sides() {
		if s.Stopped != "" {
			rep.Notes = append(rep.Notes, s.Name+" was stopped early: "+s.Stopped+".")
		}
		rep.Notes = append(rep.Notes, fmt.Sprintf("%s, processors in use, of %d: %s before the storm, %s in it.", s.Name, r.Machine.CPUs, s.Idle, s.Busy))
		if s == r.Through {
			rep.Notes = append(rep.Notes, fmt.Sprintf("On-call's queries waited %s in the storm, all together, for places at servers.", ms(s.Waited)))
		}
	}
	told := " and knows it (GOMEMLIMIT)"
	if o.LimitUntold {
		told = " and does not know it"
	}
	rep.Notes = append(rep.Notes, fmt.Sprintf("Latency counts from when a request was due. Real Prometheus servers, head and %d blocks; %d CPUs shared by callers, servers and proxy, %s of memory free, %s. A server is killed at %s of resident memory%s. Repeat it: %s",
		r.Data.Blocks, r.Machine.CPUs, gib(r.Machine.Memory), r.Machine.OS, gib(o.MemoryLimit), told, r.Command()))
	return rep
}

// Command repeats the test.
func (r *StormResult) Command() string {
	o := r.Options
	text := fmt.Sprintf("spillway-lab loadtest storm --series=%d --servers=%d --idle=%s --duration=%s --memory-limit=%dMiB --seed=%d",
		o.Series, o.Servers, o.Idle, o.Duration, o.MemoryLimit>>20, o.Seed)
	if o.LimitUntold {
		text += " --no-tell-limit"
	}
	if o.NoDirect {
		text += " --no-direct"
	}
	if len(o.Peers) > 0 {
		text += fmt.Sprintf(" --port=%d", o.Port)
	}
	for _, p := range o.Peers {
		text += fmt.Sprintf(" --peer=%s=%s", p.Name, p.URL)
	}
	if all := storm.Builtin(); o.Storm.Name != all.Name {
		text += " --storm=FILE"
	} else if len(o.Storm.Parts) < len(all.Parts) {
		for _, p := range o.Storm.Parts {
			text += fmt.Sprintf(" --only=%q", p.Name)
		}
	}
	return text + fmt.Sprintf(" --replica-calls=%d --process-calls=%d", o.ReplicaCalls, o.ProcessCalls)
}

// WriteText writes the result for a terminal.
func (r *StormResult) WriteText(w io.Writer) error { return r.Report().WriteText(w) }

// Save writes storm.html, storm.svg, storm.png, storm.txt and storm.json (verdicts and sums) into
// dir.
func (r *StormResult) Save(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("save the result: %w", err)
	}
	rep := r.Report()
	for _, ext := range []string{".html", ".svg", ".png", ".txt"} {
		if err := rep.Save(filepath.Join(dir, "storm"+ext)); err != nil {
			return err
		}
	}
	text, err := json.MarshalIndent(struct {
		Series   int       `json:"series"`
		Servers  int       `json:"servers"`
		OnCall   int       `json:"on_call"`
		Asked    int       `json:"asked"`
		Verdicts []Verdict `json:"verdicts"`
	}{r.Data.Series, r.Options.Servers, len(r.Through.OnCall), len(r.Through.Replies), r.Verdicts()}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "storm.json"), append(text, '\n'), 0o666); err != nil {
		return fmt.Errorf("save the result: %w", err)
	}
	return nil
}
