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
)

// The bounds that a storm through Spillway must keep.
const (
	// serverGrowth is how far a server's memory may rise above its highest of the idle stretch;
	// from largeServer series on, largeGrowth of that height.
	serverGrowth = 96 << 20
	largeServer  = 1_000_000
	largeGrowth  = 0.10
	// proxyMemory is the most that the proxy may use.
	proxyMemory = 128 << 20
	// answerTime is how long a caller should wait at most.
	answerTime = time.Second
)

// A Verdict is one bound and whether it was kept.
type Verdict struct {
	// Name of the bound: "servers", "proxy", "answers", "latency".
	Name string `json:"name"`
	Kept bool   `json:"kept"`
	// Text is the sentence with the numbers.
	Text string `json:"text"`
}

// allowedGrowth is how far a server may rise above idle, in bytes. Where the series are meant to be
// a million, 2 % fewer are a million too.
func (r *Result) allowedGrowth(idle int64) int64 {
	if r.Options.Series >= largeServer {
		return int64(float64(idle) * largeGrowth)
	}
	return serverGrowth
}

// Verdicts judge the run through Spillway.
func (r *Result) Verdicts() []Verdict {
	return []Verdict{r.serverVerdict(), r.proxyVerdict(), r.answerVerdict(), r.latencyVerdict()}
}

func (r *Result) serverVerdict() Verdict {
	v := Verdict{Name: "servers", Kept: true}
	var worst, worstGrowth, worstAllowed int64
	dead := 0
	first := true
	for _, p := range r.Through.Processes {
		if p.Role != report.Server {
			continue
		}
		m := r.Through.Memory(p)
		growth, allowed := m.Peak-m.Idle, r.allowedGrowth(m.Idle)
		if p.Died != 0 {
			dead++
		}
		v.Kept = v.Kept && p.Died == 0 && growth <= allowed
		if room := allowed - growth; first || room < worst {
			first, worst, worstGrowth, worstAllowed = false, room, growth, allowed
		}
	}
	rule := fmt.Sprintf("%d MiB", worstAllowed>>20)
	if r.Options.Series >= largeServer {
		rule += fmt.Sprintf(", %.0f %%", 100*largeGrowth)
	}
	v.Text = fmt.Sprintf("servers: the most that one grew above its highest idle memory is %+.1f MiB; allowed are %s", mebibytes(worstGrowth), rule)
	if dead > 0 {
		v.Text += fmt.Sprintf("; %d died", dead)
	}
	return v
}

func (r *Result) proxyVerdict() Verdict {
	v := Verdict{Name: "proxy", Text: "proxy: it was not watched"}
	for _, p := range r.Through.Processes {
		if p.Role == report.Proxy {
			m := r.Through.Memory(p)
			peak := max(m.Idle, m.Peak)
			v.Kept = p.Died == 0 && peak <= proxyMemory
			v.Text = fmt.Sprintf("proxy: its highest memory is %.1f MiB; allowed are %d MiB", mebibytes(peak), proxyMemory>>20)
			if p.Died != 0 {
				v.Text += "; it died: " + p.Death
			}
		}
	}
	return v
}

func (r *Result) answerVerdict() Verdict {
	a := r.Through.Answers()
	f := r.Through.found()
	v := Verdict{Name: "answers", Kept: a.Asked > 0 && a.OK == a.Asked && f.parsed == a.Asked}
	v.Text = fmt.Sprintf("answers: %d of %d are of use", a.OK, a.Asked)
	if f.parsed > 0 {
		series := fmt.Sprint(f.most)
		if f.fewest != f.most {
			series = fmt.Sprintf("%d to %d", f.fewest, f.most)
		}
		v.Text += fmt.Sprintf(", with %s series, %d of them with a warning that says what was left out", series, f.warned)
	}
	if large := a.Asked - f.parsed; !v.Kept && large > 0 && a.OK == a.Asked {
		v.Text += fmt.Sprintf("; %d are larger than %d MiB, which is no bounded answer", large, maxParsed>>20)
	}
	return v
}

func (r *Result) latencyVerdict() Verdict {
	a := r.Through.Answers()
	return Verdict{
		Name: "latency", Kept: a.Asked > 0 && a.Max < answerTime,
		Text: fmt.Sprintf("latency: half of the answers within %s, 99 %% within %s, all within %s; the aim is %s (load, servers and proxy share %d CPUs)",
			a.P50.Round(time.Millisecond), a.P99.Round(time.Millisecond), a.Max.Round(time.Millisecond), answerTime, r.Machine.CPUs),
	}
}

func mebibytes(b int64) float64 { return float64(b) / (1 << 20) }

// found sums up what answers held.
type found struct {
	parsed, warned, fewest, most int
	warnings                     []string // distinct
}

func (s *Side) found() found {
	var f found
	seen := map[string]bool{}
	for _, r := range s.Replies {
		if !r.OK || !r.Parsed {
			continue
		}
		if f.parsed == 0 || r.Found.Series < f.fewest {
			f.fewest = r.Found.Series
		}
		f.parsed++
		f.most = max(f.most, r.Found.Series)
		if len(r.Found.Warnings) > 0 {
			f.warned++
		}
		for _, w := range r.Found.Warnings {
			if !seen[w] {
				seen[w] = true
				f.warnings = append(f.warnings, w)
			}
		}
	}
	slices.Sort(f.warnings)
	return f
}

// Report is the result for those who look at it.
func (r *Result) Report() *report.Report {
	o := r.Options
	rep := &report.Report{
		Title: fmt.Sprintf(o.Scenario.Title, o.Callers),
		Lead: fmt.Sprintf("%d Prometheus servers hold %s series each, %s of them buckets. %d callers at once ask, over and over, for %s. Through Spillway each question reaches all %d servers; directly, one server has the callers.",
			o.Servers, thousands(r.Data.Series), thousands(r.Data.Buckets), o.Callers, askText(o.Scenario.Asks), o.Servers),
		Limit: o.MemoryLimit, LimitName: "memory limit of a server",
	}
	for _, s := range []*Side{r.Direct, r.Through} {
		if s != nil {
			rep.Runs = append(rep.Runs, s.Run)
		}
	}
	for _, v := range r.Verdicts() {
		rep.Notes = append(rep.Notes, v.String())
	}
	if f := r.Through.found(); len(f.warnings) > 0 {
		rep.Notes = append(rep.Notes, "The answers' warnings: "+strings.Join(f.warnings, " / "))
	}
	for _, s := range []*Side{r.Direct, r.Through} {
		if s == nil {
			continue
		}
		if s.Stopped != "" {
			rep.Notes = append(rep.Notes, s.Name+" was stopped early: "+s.Stopped+".")
		}
		rep.Notes = append(rep.Notes, s.byAsk())
	}
	told := " and knows it (GOMEMLIMIT)"
	if o.LimitUntold {
		told = " and does not know it"
	}
	rest := r.Through.Rest
	rep.Notes = append(rep.Notes, fmt.Sprintf("The largest server had %d MiB when it was ready, %d MiB after a collection, %d MiB after everyday queries; then the idle stretch began.",
		rest.Started>>20, rest.Collected>>20, rest.InUse>>20))
	rep.Notes = append(rep.Notes, fmt.Sprintf("Prometheus 3.15, head and %d blocks; %d CPUs shared by load, servers and proxy, %s of memory free, %s. A server is killed at %s of resident memory%s. Repeat it: %s",
		r.Data.Blocks, r.Machine.CPUs, gib(r.Machine.Memory), r.Machine.OS, gib(o.MemoryLimit), told, r.Command()))
	return rep
}

// String is the verdict for a terminal.
func (v Verdict) String() string {
	if v.Kept {
		return "KEPT    " + v.Text
	}
	return "BROKEN  " + v.Text
}

// Command repeats the test.
func (r *Result) Command() string {
	o := r.Options
	untold := ""
	if o.LimitUntold {
		untold = " --no-tell-limit"
	}
	return fmt.Sprintf("spillway-lab loadtest %s --series=%d --servers=%d --callers=%d --idle=%s --duration=%s --patience=%s", o.Scenario.Name, o.Series, o.Servers, o.Callers, o.Idle, o.Duration, o.Patience) + untold
}

func askText(asks []Ask) string {
	var names []string
	for _, a := range asks {
		names = append(names, a.Name)
	}
	text := asks[0].Path
	if m := asks[0].Params.Get("match[]"); m != "" {
		text += "?match[]=" + m
	}
	return text + " (" + strings.Join(names, "; ") + ")"
}

// byAsk is a line with the outcomes of each kind of request.
func (s *Side) byAsk() string {
	type tally struct {
		asked, ok int
		slowest   time.Duration
		largest   int64
	}
	by := map[string]*tally{}
	for _, r := range s.Replies {
		t := by[r.Ask]
		if t == nil {
			t = &tally{}
			by[r.Ask] = t
		}
		t.asked++
		if r.OK {
			t.ok++
		}
		t.slowest, t.largest = max(t.slowest, r.Took), max(t.largest, r.Bytes)
	}
	var parts []string
	for name, t := range by {
		parts = append(parts, fmt.Sprintf("%s: %d of %d answered, slowest %.2f s, largest %.1f MiB", name, t.ok, t.asked, t.slowest.Seconds(), mebibytes(t.largest)))
	}
	slices.SortFunc(parts, cmp.Compare)
	return s.Name + ", by request. " + strings.Join(parts, ". ") + "."
}

func gib(b int64) string { return fmt.Sprintf("%.1f GiB", float64(b)/(1<<30)) }

func thousands(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// WriteText writes the result for a terminal.
func (r *Result) WriteText(w io.Writer) error { return r.Report().WriteText(w) }

// Save writes oom.html, oom.svg, oom.png, oom.txt and oom.json (verdicts and sums) into dir, named
// after the scenario.
func (r *Result) Save(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("save the result: %w", err)
	}
	rep := r.Report()
	for _, ext := range []string{".html", ".svg", ".png", ".txt"} {
		if err := rep.Save(filepath.Join(dir, r.Options.Scenario.Name+ext)); err != nil {
			return err
		}
	}
	text, err := json.MarshalIndent(struct {
		Series   int       `json:"series"`
		Buckets  int       `json:"buckets"`
		Servers  int       `json:"servers"`
		Callers  int       `json:"callers"`
		Asked    int       `json:"asked"`
		Verdicts []Verdict `json:"verdicts"`
	}{r.Data.Series, r.Data.Buckets, r.Options.Servers, r.Options.Callers, len(r.Through.Replies), r.Verdicts()}, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, r.Options.Scenario.Name+".json"), append(text, '\n'), 0o666); err != nil {
		return fmt.Errorf("save the result: %w", err)
	}
	return nil
}
