package live

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/data"
)

func testExperiments(t *testing.T, s *stage) {
	type about struct {
		state, team   string
		pods          int64
		gpus          float64
		created, seen time.Time // the first pod's creation, and when the last one stopped to run or wait
		must, here    bool      // here: the first pod is there at the end
	}
	want := map[string]*about{}
	for _, p := range s.pods {
		k := strings.Join([]string{p.Experiment, p.cluster, p.Namespace}, "|")
		stops := p.Removed
		if !p.Ended.IsZero() {
			stops = p.Ended
		}
		low, _ := marks(p.Created, stops, s.from, s.until)
		if _, high := marks(p.Created, p.Removed, s.from, s.until); high == 0 {
			continue
		}
		if want[k] == nil {
			want[k] = &about{state: "ended", team: p.Team, created: s.until}
		}
		w := want[k]
		w.must = w.must || low > 0
		switch p.phase(s.until) {
		case "Running":
			w.state = "running"
			w.gpus += float64(len(p.GPUs))
		case "Pending":
			if w.state == "ended" {
				w.state = "pending"
			}
		}
		if p.phase(s.until) != "" {
			w.pods++
		}
		if p.Created.Before(w.created) {
			w.created, w.here = p.Created, p.phase(s.until) != ""
		}
		if stops.After(w.seen) {
			w.seen = stops
		}
	}
	got, must, may := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for k, w := range want {
		may[k] = true
		if w.must {
			must[k] = true
		}
	}
	states := map[string]int{}
	last := time.Time{}
	for i, row := range s.rows(t, `{"queryType":"experiments"}`) {
		k := id(row, "experiment", "cluster", "namespace")
		got[k] = true
		w := want[k]
		if w == nil {
			continue
		}
		if row["state"] != w.state {
			t.Errorf("%.200q is %v, and in truth %s", k, row["state"], w.state)
		}
		states[w.state]++
		if team := w.team; row["team"] != team && (team != "" || row["team"] != "unassigned") {
			t.Errorf("%.200q is of team %q, and in truth of %q", k, row["team"], w.team)
		}
		if w.state != "ended" {
			if row["pods"] != w.pods || w.state == "running" && row["gpus"] != w.gpus {
				t.Errorf("%.200q has %v pods and %v GPUs, and in truth %d and %v", k, row["pods"], row["gpus"], w.pods, w.gpus)
			}
		} else if seen := row["seen"].(time.Time); w.pods == 0 && w.must &&
			(seen.After(w.seen.Add(late)) || seen.Before(w.seen.Add(-every-late))) {
			t.Errorf("%.200q was last seen at %s, and in truth at %s", k, seen, w.seen)
		}
		// Of pods that are gone it is known when a rule saw them first, in the window.
		low, high := w.created.Add(-time.Second), w.created.Add(time.Second)
		if !w.here {
			if s.from.After(low) {
				low = s.from
			}
			high = low.Add(2*every + late)
		}
		if created := row["created"].(time.Time); w.must && (created.Before(low) || created.After(high)) {
			t.Errorf("%.200q was created at %s, and in truth at %s", k, created, w.created)
		}
		seen := row["seen"].(time.Time)
		if i > 0 && seen.After(last) {
			t.Errorf("row %d, %.200q, was seen later than the one above it", i, k)
		}
		last = seen
	}
	between(t, "experiments", got, must, may)
	if states["running"] == 0 || states["ended"] == 0 {
		t.Errorf("states %v: something was not looked at", states)
	}
	rows := s.rows(t, `{"queryType":"experiments","search":"LLAMA","clusters":["`+small+`"]}`)
	if len(rows) != 1 || rows[0]["experiment"] != spread || rows[0]["cluster"] != small {
		t.Errorf("searching for part of a name in one cluster: %v", rows)
	}
}

func testStatus(t *testing.T, s *stage) {
	query := `{"queryType":"status","experiments":["` + spread + `"]}`
	want := func(at time.Time) map[string]float64 {
		out := map[string]float64{}
		for _, p := range s.of(spread) {
			for _, phase := range []string{"Running", "Pending", "Failed"} {
				out[p.cluster+"|"+phase] += 0
			}
			if phase := p.phase(at); phase != "" {
				out[p.cluster+"|"+phase]++
			}
		}
		return out
	}
	got := map[string]float64{}
	for _, f := range s.frames(t, query) {
		v, _ := f.Fields[0].FloatAt(0)
		got[f.Fields[0].Labels["cluster"]+"|"+f.Fields[0].Labels["phase"]] = v
		if f.Meta.Type != data.FrameTypeNumericMulti {
			t.Errorf("a frame of type %q", f.Meta.Type)
		}
	}
	if !maps.Equal(got, want(s.until)) {
		t.Errorf("at the end there are %v, and in truth %v", got, want(s.until))
	}
	compared, phases := 0, map[string]bool{}
	for _, f := range s.frames(t, strings.Replace(query, `"status"`, `"status","view":"over_time"`, 1)) {
		k := f.Fields[1].Labels["cluster"] + "|" + f.Fields[1].Labels["phase"]
		for i := range f.Fields[0].Len() {
			at := f.Fields[0].At(i).(time.Time)
			if !s.quiet(at) || at.Before(s.from) {
				continue
			}
			v, _ := f.Fields[1].FloatAt(i)
			if w := want(at)[k]; v != w {
				t.Errorf("%s at %s: %v pods, and in truth %v", k, at.UTC(), v, w)
			}
			if v > 0 {
				phases[k] = true
			}
			compared++
		}
	}
	if compared < 50 || len(phases) < 2 {
		t.Errorf("only %d points of %v were quiet enough to compare", compared, phases)
	}
}

func testPods(t *testing.T, s *stage) {
	rows := s.rows(t, `{"queryType":"pods"}`)
	truth, got, must, may := map[string]truePod{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, p := range s.pods {
		low, high := marks(p.Created, p.Removed, s.from, s.until)
		truth[p.UID] = p
		if low > 0 {
			must[p.UID] = true
		}
		if high > 0 {
			may[p.UID] = true
		}
	}
	gone, reused, restarted := 0, map[string]int{}, 0
	for _, row := range rows {
		uid := row["uid"].(string)
		if got[uid] {
			t.Errorf("pod %s has two rows", uid)
		}
		got[uid] = true
		p, ok := truth[uid]
		if !ok {
			continue
		}
		reused[id(row, "cluster", "namespace", "pod")]++
		if id(row, "experiment", "cluster", "namespace", "pod") != strings.Join([]string{p.Experiment, p.cluster, p.Namespace, p.Name},
			"|") {
			t.Errorf("%v is in truth %+v", row, p)
		}
		if created := row["created"].(time.Time); created.Sub(p.Created).Abs() > time.Second {
			t.Errorf("%s was created at %s, and in truth at %s", p.Name, created, p.Created)
		}
		phase := p.phase(s.until)
		if phase == "" {
			gone++
			switch {
			case p.Started.IsZero() || p.Removed.Before(s.from.Add(2*late)): // cancelled while it waited, or hardly seen
			case p.Failed && p.Removed.Sub(p.Ended) > 2*late && row["phase"] != "Failed",
				!p.Failed && p.Removed.Sub(p.Ended) > 2*late && row["phase"] != "Succeeded":
				t.Errorf("%s is gone as %v, and in truth failed: %v", p.Name, row["phase"], p.Failed)
			}
			continue
		}
		if row["phase"] != phase {
			t.Errorf("%s is %v, and in truth %s", p.Name, row["phase"], phase)
		}
		if phase == "Running" && (row["node"] != p.Node || row["gpus"] != float64(len(p.GPUs))) {
			t.Errorf("%s has %v GPUs on %v, and in truth %d on %s", p.Name, row["gpus"], row["node"], len(p.GPUs), p.Node)
		}
		if age := row["age"].(float64); math.Abs(age-s.until.Sub(p.Created).Seconds()) > 1 {
			t.Errorf("%s is %v s old, and in truth %s", p.Name, age, s.until.Sub(p.Created))
		}
		restarts := int64(0)
		for _, r := range p.Restarts {
			if !r.Until.After(s.until) {
				restarts++
			}
		}
		if row["restarts"] != restarts {
			t.Errorf("%s was started again %v times, and in truth %d", p.Name, row["restarts"], restarts)
		}
		if restarts > 0 {
			restarted++
			if row["reason"] != "OOMKilled" {
				t.Errorf("%s was started again because of %v, and in truth for lack of memory", p.Name, row["reason"])
			}
		}
	}
	between(t, "pods", got, must, may)
	if gone == 0 || slices.Max(slices.Collect(maps.Values(reused))) < 2 {
		t.Errorf("%d pods are gone and no name was used twice: something was not looked at", gone)
	}
	t.Logf("%d pods, %d of them gone, %d with containers that were started again", len(rows), gone, restarted)
}

func testPending(t *testing.T, s *stage) {
	want, got := map[string]bool{}, map[string]bool{}
	for _, p := range s.pods {
		if p.phase(s.until) == "Pending" {
			want[p.UID] = true
		}
	}
	for _, row := range s.rows(t, `{"queryType":"pending"}`) {
		uid := row["uid"].(string)
		got[uid] = true
		i := slices.IndexFunc(s.pods, func(p truePod) bool { return p.UID == uid })
		if i < 0 {
			continue
		}
		p := s.pods[i]
		if waited := row["waited"].(float64); math.Abs(waited-s.until.Sub(p.Created).Seconds()) > 1 {
			t.Errorf("%s waits for %v s, and in truth for %s", p.Name, waited, s.until.Sub(p.Created))
		}
		if (p.Scheduled.IsZero() || p.Scheduled.After(s.until)) &&
			(row["reason"] != "Unschedulable" || !strings.Contains(row["detail"].(string), fmt.Sprint(len(p.GPUs)))) {
			t.Errorf("%s waits for %v: %v; in truth there is no node for it with %d GPUs", p.Name, row["reason"], row["detail"], len(p.GPUs))
		}
	}
	between(t, "pods that wait", got, want, want)
}
