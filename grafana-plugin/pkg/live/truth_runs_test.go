package live

import (
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"
	"time"
)

func testCost(t *testing.T, s *stage) {
	type sums struct{ low, high, idle, maybe float64 }
	want := map[string]*sums{}
	for _, p := range s.pods {
		if p.Scheduled.IsZero() {
			continue
		}
		g, err := s.models[p.cluster].GPU(p.Node, p.GPUs[0])
		if err != nil {
			t.Fatal(err)
		}
		team := p.Team
		if team == "" {
			team = "unassigned"
		}
		k := strings.Join([]string{team, p.Experiment, p.cluster, g.Model}, "|")
		if want[k] == nil {
			want[k] = &sums{}
		}
		hours := func(n int) float64 { return float64(n*len(p.GPUs)) * every.Hours() }
		low, high := marks(p.Scheduled, p.over(), s.from, s.until) // it holds them while it pulls its image
		want[k].low, want[k].high = want[k].low+hours(low), want[k].high+hours(high)
		if p.Started.IsZero() {
			want[k].maybe += hours(high)
			continue
		}
		low, _ = marks(p.Started, p.Ended, s.from, s.until)
		if p.Gang == s.idle && p.cluster == small {
			want[k].idle, want[k].maybe = want[k].idle+hours(max(0, low-2)), want[k].maybe+hours(high)
			continue
		}
		// Others are idle while their container is dead, and while they wait for the gang.
		for _, r := range p.Restarts {
			_, n := marks(r.From, r.Until.Add(every), s.from, s.until)
			want[k].maybe += hours(n)
		}
		_, n := marks(p.Scheduled, p.Started.Add(2*every), s.from, s.until)
		want[k].maybe += hours(n)
		for _, q := range s.of(p.Experiment) {
			if q.Gang == p.Gang && q.cluster == p.cluster && q.Attempt == p.Attempt &&
				(q.Started.IsZero() || q.Started.After(p.Started.Add(every))) {
				want[k].maybe += hours(high) // half of the gang waits: the others do nothing
				break
			}
		}
	}
	got, must, may := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for k, w := range want {
		must[k], may[k] = w.low > 0, w.high > 0
	}
	maps.DeleteFunc(must, func(_ string, v bool) bool { return !v })
	var hours, idle, money float64
	for _, row := range s.rows(t, `{"queryType":"cost"}`) {
		k := id(row, "team", "experiment", "cluster", "model")
		got[k] = true
		h, i := row["gpu_hours"].(float64), row["idle_gpu_hours"].(float64)
		hours, idle, money = hours+h, idle+i, money+row["cost"].(float64)
		w := want[k]
		if w == nil {
			continue
		}
		const rounding = 1e-6
		if h < w.low-rounding || h > w.high+rounding {
			t.Errorf("%.200q: %v GPU hours, and in truth between %v and %v", k, h, w.low, w.high)
		}
		if i < w.idle-rounding || i > w.maybe+rounding {
			t.Errorf("%.200q: %v idle GPU hours, and in truth between %v and %v", k, i, w.idle, w.maybe)
		}
		if !near(row["cost"].(float64), 2*h, 1e-9) || !near(row["idle_share"].(float64), i/h, 1e-9) {
			t.Errorf("%v: the cost is not two a GPU hour, or the share not that of the hours", row)
		}
	}
	between(t, "costs", got, must, may)
	total := map[string]float64{}
	for _, f := range s.frames(t, `{"queryType":"cost","view":"total"}`) {
		v, _ := f.Fields[0].FloatAt(0)
		total[f.Fields[0].Labels["what"]] = v
	}
	if !near(total["gpu_hours"], hours, 1e-9) || !near(total["idle_gpu_hours"], idle, 1e-9) || !near(total["cost"], money, 1e-9) ||
		hours == 0 || idle == 0 {
		t.Errorf("in all %v, and the table's sum is %v GPU hours, %v idle, cost %v", total, hours, idle, money)
	}
	t.Logf("%v GPU hours, %v of them idle", hours, idle)
}

func testCompare(t *testing.T, s *stage) {
	// The run, and one that began inside the window.
	second := ""
	for _, p := range s.pods {
		if p.Attempt == 0 && p.Started.After(s.from.Add(15*time.Minute)) && p.phase(s.until) == "Running" && p.Experiment != spread &&
			len(p.GPUs) > 0 {
			second = p.Experiment
			break
		}
	}
	both := fmt.Sprintf(`[%s,%s]`, quote(spread), quote(second))
	first := map[string]time.Time{}
	for _, f := range s.frames(t, `{"queryType":"compare","experiments":`+both+`}`) {
		run := f.Fields[1].Labels["run"]
		first[run] = f.Fields[0].At(0).(time.Time)
	}
	for _, run := range []string{spread, second} {
		if d := first[run].Sub(s.from); d < -2*time.Minute || d > 3*time.Minute {
			t.Errorf("%.100q begins %s after the panel's beginning", run, d)
		}
	}
	rows := s.rows(t, `{"queryType":"compare","view":"summary","experiments":`+both+`}`)
	if len(rows) != 2 {
		t.Fatalf("%d rows for two runs", len(rows))
	}
	for _, row := range rows {
		run := row["run"].(string)
		// The summary is of the whole run, of which the servers have what was before the window
		// too.
		since := s.from.Add(-before)
		var low, high float64
		var failed, mayFail, restarts int64
		clusters, peak := map[string]bool{}, 0.0
		began := s.until
		for _, p := range s.of(run) {
			if p.Scheduled.IsZero() {
				continue
			}
			l, _ := marks(p.Scheduled, p.over(), since.Add(5*every), s.until)
			_, h := marks(p.Scheduled, p.over(), since.Add(-every), s.until)
			if h == 0 {
				continue
			}
			if p.Failed && p.Ended.Before(s.until) {
				mayFail++
				if p.Ended.After(since.Add(5*every)) && p.Removed.Sub(p.Ended) > late {
					failed++
				}
			}
			for _, r := range p.Restarts {
				if r.Until.Before(s.until) && l > 0 {
					restarts++
				}
			}
			low, high = low+float64(l*len(p.GPUs))*every.Hours(), high+float64(h*len(p.GPUs))*every.Hours()
			clusters[p.cluster] = true
			if !p.Started.IsZero() && p.Started.Before(began) {
				began = p.Started
			}
		}
		for at := since; !at.After(s.until); at = at.Add(every) {
			held := 0.0
			for _, p := range s.of(run) {
				if !p.Scheduled.IsZero() && !at.Before(p.Scheduled) && at.Before(p.over()) {
					held += float64(len(p.GPUs))
				}
			}
			peak = max(peak, held)
		}
		if h := row["gpu_hours"].(float64); h < low-1e-6 || h > high+1e-6 {
			t.Errorf("%.100q: %v GPU hours, and in truth between %v and %v", run, h, low, high)
		}
		for c := range clusters {
			if !strings.Contains(fmt.Sprint(row["clusters"]), c) {
				t.Errorf("%.100q ran in %v, and the row says %v", run, clusters, row["clusters"])
			}
		}
		if f := row["failures"].(int64); f < failed || f > mayFail {
			t.Errorf("%.100q: %d pods failed, and in truth %d to %d", run, f, failed, mayFail)
		}
		if row["restarts"] != restarts {
			t.Errorf("%.100q: containers were started again %v times, and in truth %d", run, row["restarts"], restarts)
		}
		if util, truth := row["mean_util"].(float64), s.use(t, s.of(run), since, 2*every); math.Abs(util-truth) > 3 {
			t.Errorf("the GPUs of %.100q were used to %v %%, and in truth to %v", run, util, truth)
		}
		if row["gpus"] != peak {
			t.Errorf("%.100q held %v GPUs at most, and in truth %v", run, row["gpus"], peak)
		}
		if run == second {
			if started, ok := row["started"].(time.Time); !ok || started.Sub(began).Abs() > every+late {
				t.Errorf("%.100q began at %v, and in truth at %s", run, row["started"], began)
			}
			if row["ended"] != nil {
				t.Errorf("%.100q runs, and the row says that it ended at %v", run, row["ended"])
			}
		}
	}
}
