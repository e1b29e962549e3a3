package live

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/data"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/loadtest/cluster"
)

const prices = `{"prices":{"default":2},"currency":"EUR"}`

// TestTruth asks every type of query of real servers behind the real proxy and compares with what the models know to be so: a run spread over two clusters, two copies of kube-state-metrics,
// names of pods used again, runs that began and ended inside the window, faults.
func TestTruth(t *testing.T) {
	s := newStage(t, prices)
	for _, c := range []struct {
		name string
		test func(*testing.T, *stage)
	}{
		{"experiments", testExperiments},
		{"status", testStatus},
		{"pods", testPods},
		{"pending", testPending},
		{"nodes", testNodes},
		{"gpu_timeseries", testGPUTimeSeries},
		{"gpu_health", testGPUHealth},
		{"network", testNetwork},
		{"events", testEvents},
		{"cost", testCost},
		{"compare", testCompare},
		{"stragglers", testStragglers},
		{"promql", testPromQL},
		{"hostile", testHostile},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, s) })
	}
}

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
		} else if seen := row["seen"].(time.Time); w.pods == 0 && w.must && (seen.After(w.seen.Add(late)) || seen.Before(w.seen.Add(-every-late))) {
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
		if id(row, "experiment", "cluster", "namespace", "pod") != strings.Join([]string{p.Experiment, p.cluster, p.Namespace, p.Name}, "|") {
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
			case p.Failed && p.Removed.Sub(p.Ended) > 2*late && row["phase"] != "Failed", !p.Failed && p.Removed.Sub(p.Ended) > 2*late && row["phase"] != "Succeeded":
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
		if (p.Scheduled.IsZero() || p.Scheduled.After(s.until)) && (row["reason"] != "Unschedulable" || !strings.Contains(row["detail"].(string), fmt.Sprint(len(p.GPUs)))) {
			t.Errorf("%s waits for %v: %v; in truth there is no node for it with %d GPUs", p.Name, row["reason"], row["detail"], len(p.GPUs))
		}
	}
	between(t, "pods that wait", got, want, want)
}

func testNodes(t *testing.T, s *stage) {
	type about struct {
		pods     int64
		held     float64
		ready    string
		cordoned bool
	}
	want, may := map[string]*about{}, map[string]bool{}
	for _, p := range s.of(spread) {
		low, high := marks(p.Scheduled, p.Removed, s.from, s.until)
		if p.Scheduled.IsZero() || high == 0 {
			continue
		}
		k := p.cluster + "|" + p.Node
		may[k] = true
		if low == 0 {
			continue
		}
		if want[k] == nil {
			want[k] = &about{ready: "ready"}
		}
		if p.phase(s.until) == "Running" {
			want[k].pods++
			want[k].held += float64(len(p.GPUs))
		}
	}
	want[big+"|"+s.faults[string(cluster.NodeNotReady)].Target].ready = "not ready"
	want[big+"|"+s.faults[string(cluster.NodeCordoned)].Target].cordoned = true
	got, must := map[string]bool{}, map[string]bool{}
	for k := range want {
		must[k] = true
	}
	for _, row := range s.rows(t, `{"queryType":"nodes","experiments":["`+spread+`"]}`) {
		k := id(row, "cluster", "node")
		got[k] = true
		w := want[k]
		if w == nil {
			continue
		}
		if row["state"] != w.ready || row["cordoned"] != w.cordoned || row["gpus"] != 8.0 || row["gpus_held"] != w.held || row["pods"] != w.pods {
			t.Errorf("%v is in truth %+v", row, *w)
		}
		util, ok := row["util"].(float64)
		if truth := s.use(t, row["cluster"].(string), row["node"].(string)); !ok || math.Abs(util-truth) > 5 {
			t.Errorf("the GPUs of %s were used to %v %%, and in truth to %v", k, row["util"], truth)
		}
	}
	between(t, "nodes", got, must, may)
}

// gpus are the readings of one metric of the GPUs of a node, by index, as its page has them at a moment.
func (s *stage) gpus(t *testing.T, name, node, metric string, at time.Time) map[int]float64 {
	t.Helper()
	out := map[int]float64{}
	for _, tg := range s.models[name].Targets() {
		if tg.Job != cluster.JobDCGM || tg.Labels.Get("node") != node {
			continue
		}
		err := s.models[name].Series(tg, at, func(l labels.Labels, v float64, _ metricType) {
			if l.Get("__name__") != metric || l.Get("pod") == "" {
				return
			}
			gpu, err := strconv.Atoi(l.Get("gpu"))
			if err != nil {
				t.Fatal(err)
			}
			out[gpu] = v
		})
		if err != nil {
			t.Logf("%s does not answer at %s: %v", node, at, err)
		}
	}
	return out
}

// use is the mean use of a node's GPUs while the spread run had them, looked at every few minutes.
func (s *stage) use(t *testing.T, name, node string) float64 {
	t.Helper()
	sum, n := 0.0, 0.0
	for at := s.from.Add(every); !at.After(s.until); at = at.Add(5 * time.Minute) {
		for _, p := range s.of(spread) {
			if p.cluster != name || p.Node != node || p.phase(at) != "Running" {
				continue
			}
			for gpu, v := range s.gpus(t, name, node, "DCGM_FI_DEV_GPU_UTIL", at) {
				if slices.Contains(p.GPUs, gpu) && v <= 100 {
					sum, n = sum+v, n+1
				}
			}
		}
	}
	return sum / n
}

func testGPUTimeSeries(t *testing.T, s *stage) {
	got, must, may := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, p := range s.of(spread) {
		if p.Started.IsZero() {
			continue
		}
		low, high := marks(p.Started, p.Ended, s.from, s.until)
		for _, g := range p.GPUs {
			k := fmt.Sprintf("%s|%s|%d", p.cluster, p.Node, g)
			must[k], may[k] = must[k] || low > 2, may[k] || high > 0
		}
	}
	maps.DeleteFunc(must, func(_ string, v bool) bool { return !v })
	compared := 0
	for _, f := range s.frames(t, `{"queryType":"gpu_timeseries","metric":"util","groupBy":["cluster","node","gpu"],"experiments":["`+spread+`"]}`) {
		l := f.Fields[1].Labels
		k := l["cluster"] + "|" + l["node"] + "|" + l["gpu"]
		got[k] = true
		gpu, _ := strconv.Atoi(l["gpu"])
		for i := 0; i < f.Fields[0].Len(); i += 71 {
			at := f.Fields[0].At(i).(time.Time)
			if !s.quiet(at) {
				continue
			}
			v, _ := f.Fields[1].FloatAt(i)
			// The reading is up to a scrape and an evaluation older than the point; use moves a little meanwhile.
			low, high := math.Inf(1), math.Inf(-1)
			for back := time.Duration(0); back <= every+late; back += 15 * time.Second {
				if w, ok := s.gpus(t, l["cluster"], l["node"], "DCGM_FI_DEV_GPU_UTIL", at.Add(-back))[gpu]; ok && w <= 100 {
					low, high = min(low, w), max(high, w)
				}
			}
			if v < low-4 || v > high+4 {
				t.Errorf("%s at %s: %v %%, and in truth between %v and %v", k, at.UTC(), v, low, high)
			}
			compared++
		}
	}
	between(t, "GPUs", got, must, may)
	if compared < 20 {
		t.Errorf("only %d points were compared", compared)
	}
	// One GPU was held hot by a trouble until after the window.
	hot := s.faults[string(cluster.GPUHot)].Target
	frames := s.frames(t, `{"queryType":"gpu_timeseries","metric":"temp","groupBy":["node","gpu"],"clusters":["`+big+`"],"rank":"top","k":1}`)
	if len(frames) != 1 {
		t.Fatalf("the hottest GPU is %d", len(frames))
	}
	l, last := frames[0].Fields[1].Labels, frames[0].Fields[1].Len()-1
	if v, _ := frames[0].Fields[1].FloatAt(last); l["node"]+"/"+l["gpu"] != hot || v != 92 {
		t.Errorf("the hottest GPU is %v with %v °C at the end, and in truth %s with 92", l, v, hot)
	}
}

func testGPUHealth(t *testing.T, s *stage) {
	for _, name := range s.names() {
		got, must, may := map[string]bool{}, map[string]bool{}, map[string]bool{}
		for _, row := range s.rows(t, fmt.Sprintf(`{"queryType":"gpu_health","experiments":[%s]}`, quote(name))) {
			if strings.HasPrefix(row["fault"].(string), "Xid ") {
				k := id(row, "cluster", "node", "gpu", "fault")
				got[k] = true
				if row["class"] == "" || row["action"] == "" || row["text"] == "" {
					t.Errorf("%v says not what it is or what to do", row)
				}
				gpu, _ := strconv.Atoi(row["gpu"].(string))
				if g, err := s.models[row["cluster"].(string)].GPU(row["node"].(string), gpu); err != nil || g.UUID != row["UUID"] || g.Model != row["model"] {
					t.Errorf("%v is in truth %+v (%v)", row, g, err)
				}
			}
		}
		for _, p := range s.of(name) {
			if p.Started.IsZero() {
				continue
			}
			xids, err := s.models[p.cluster].Xids(p.Node, s.from.Add(-before), s.until)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range xids {
				held := slices.Contains(p.GPUs, x.GPU) && !x.At.Before(p.Started) && !x.At.After(p.Ended.Add(13*time.Minute))
				if !held {
					continue
				}
				k := fmt.Sprintf("%s|%s|%d|Xid %d", p.cluster, p.Node, x.GPU, x.Code)
				may[k] = true
				// What happened at the edges may be in the next step; a pod that was never seen with its GPU held nothing.
				low, _ := marks(p.Started, p.Ended, s.from, s.until)
				if !x.At.After(p.Ended) && low > 2 && x.At.After(s.from.Add(10*time.Minute)) && x.At.Before(s.until.Add(-10*time.Minute)) {
					must[k] = true
				}
			}
		}
		for k := range must {
			if !got[k] {
				t.Errorf("%.100q: %s is missing", name, k)
			}
		}
		for k := range got {
			if !may[k] {
				t.Errorf("%.100q: %s is too much", name, k)
			}
		}
		if name == spread {
			want := big + "|" + strings.Replace(s.faults[string(cluster.GPUXidFatal)].Target, "/", "|", 1) + "|Xid 95"
			if !must[want] || !got[want] {
				t.Errorf("the Xid that was staged, %s, is not there: %v", want, got)
			}
		}
	}
	classes := map[string]float64{}
	for _, f := range s.frames(t, `{"queryType":"gpu_health","view":"count","experiments":["`+spread+`"]}`) {
		v, _ := f.Fields[0].FloatAt(0)
		classes[f.Fields[0].Labels["class"]] = v
	}
	if classes["hard"] < 1 || classes["thermal"] < 1 || len(classes) < 8 {
		t.Errorf("counts by class: %v; in truth there are an Xid 95 and a hot GPU", classes)
	}
}

func testNetwork(t *testing.T, s *stage) {
	got, must, may := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, p := range s.of(spread) {
		if p.Scheduled.IsZero() {
			continue
		}
		low, high := marks(p.Scheduled, p.Removed, s.from, s.until)
		for _, direction := range []string{"received", "transmitted"} {
			k := p.cluster + "|" + p.Node + "|" + direction
			if low > 0 {
				must[k] = true
			}
			if high > 0 {
				may[k] = true
			}
		}
	}
	compared := 0
	for _, f := range s.frames(t, `{"queryType":"network","experiments":["`+spread+`"]}`) {
		l := f.Fields[1].Labels
		got[l["cluster"]+"|"+l["node"]+"|"+l["direction"]] = true
		metric := "node_infiniband_port_data_" + l["direction"] + "_bytes_total"
		for i := 20; i < f.Fields[0].Len(); i += 53 {
			at := f.Fields[0].At(i).(time.Time)
			v, _ := f.Fields[1].FloatAt(i)
			// The rate of five minutes that end at most an evaluation and a scrape before the point.
			low, high := math.Inf(1), math.Inf(-1)
			for back := time.Duration(0); back <= every+3*late; back += 15 * time.Second {
				until := at.Add(-back)
				rate := (s.counter(t, l["cluster"], l["node"], metric, until) - s.counter(t, l["cluster"], l["node"], metric, until.Add(-5*time.Minute))) / 300
				low, high = min(low, rate), max(high, rate)
			}
			if v < 0.97*low-1e6 || v > 1.03*high+1e6 {
				t.Errorf("%v at %s: %v bytes a second, and in truth between %v and %v", l, at.UTC(), v, low, high)
			}
			compared++
		}
	}
	between(t, "lines", got, must, may)
	if compared < 10 {
		t.Errorf("only %d points were compared", compared)
	}
}

// counter is the sum of a metric on a node's page of node_exporter.
func (s *stage) counter(t *testing.T, name, node, metric string, at time.Time) float64 {
	t.Helper()
	sum := 0.0
	for _, tg := range s.models[name].Targets() {
		if tg.Job != cluster.JobNode || tg.Labels.Get("node") != node {
			continue
		}
		if err := s.models[name].Series(tg, at, func(l labels.Labels, v float64, _ metricType) {
			if l.Get("__name__") == metric {
				sum += v
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	return sum
}

func testEvents(t *testing.T, s *stage) {
	rows := s.rows(t, `{"queryType":"events","experiments":["`+spread+`"]}`)
	seen := map[string]bool{}
	for _, row := range rows {
		if seen[id(row, "id")] || id(row, "id") == "" {
			t.Errorf("event %v is there twice, or has no id", row)
		}
		seen[id(row, "id")] = true
		if at := row["time"].(time.Time); at.Before(s.from.Add(-every)) && row["timeEnd"] == nil || at.After(s.until) {
			t.Errorf("event %v is outside the window", row)
		}
	}
	// has says that an event about all of these words begins within a step of a moment.
	has := func(at time.Time, words ...string) bool {
		return slices.ContainsFunc(rows, func(row map[string]any) bool {
			d := row["time"].(time.Time).Sub(at)
			all := strings.ToLower(fmt.Sprint(row["title"], " ", row["text"], " ", row["tags"]))
			return d > -2*time.Minute && d < 12*time.Minute && !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(all, strings.ToLower(w)) })
		})
	}
	x := s.faults[string(cluster.GPUXidFatal)]
	node, _, _ := strings.Cut(x.Target, "/")
	if !has(x.From, "xid 95", node) {
		t.Errorf("no event tells of Xid 95 on %s at %s: %v", node, x.From, rows)
	}
	ill := s.faults[string(cluster.NodeNotReady)]
	if !has(ill.From, ill.Target, "ready") {
		t.Errorf("no event tells that %s is not ready at %s: %v", ill.Target, ill.From, rows)
	}
	for _, p := range s.of(spread) { // the Xid ended some
		if p.Failed && p.Removed.Sub(p.Ended) > 2*late && p.Ended.After(s.from.Add(5*time.Minute)) && p.Ended.Before(s.until.Add(-5*time.Minute)) && !has(p.Ended, "fail") {
			t.Errorf("no event tells that pods failed at %s, %s among them", p.Ended, p.Name)
		}
	}
}

func testCost(t *testing.T, s *stage) {
	type sums struct{ low, high, idle, maybe float64 }
	want := map[string]*sums{}
	for _, p := range s.pods {
		if p.Started.IsZero() {
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
		low, high := marks(p.Started, p.Ended, s.from, s.until)
		want[k].low, want[k].high = want[k].low+hours(low), want[k].high+hours(high)
		if p.Gang == s.idle && p.cluster == small {
			want[k].idle, want[k].maybe = want[k].idle+hours(max(0, low-2)), want[k].maybe+hours(high)
			continue
		}
		// Others are idle while their container is dead, and while they wait for the gang.
		for _, r := range p.Restarts {
			_, n := marks(r.From, r.Until.Add(every), s.from, s.until)
			want[k].maybe += hours(n)
		}
		_, n := marks(p.Started, p.Started.Add(2*every), s.from, s.until)
		want[k].maybe += hours(n)
		for _, q := range s.of(p.Experiment) {
			if q.Gang == p.Gang && q.cluster == p.cluster && q.Attempt == p.Attempt && (q.Started.IsZero() || q.Started.After(p.Started.Add(every))) {
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
	if !near(total["gpu_hours"], hours, 1e-9) || !near(total["idle_gpu_hours"], idle, 1e-9) || !near(total["cost"], money, 1e-9) || hours == 0 || idle == 0 {
		t.Errorf("in all %v, and the table's sum is %v GPU hours, %v idle, cost %v", total, hours, idle, money)
	}
	t.Logf("%v GPU hours, %v of them idle", hours, idle)
}

func testCompare(t *testing.T, s *stage) {
	// The run, and one that began inside the window.
	second := ""
	for _, p := range s.pods {
		if p.Attempt == 0 && p.Started.After(s.from.Add(15*time.Minute)) && p.phase(s.until) == "Running" && p.Experiment != spread && len(p.GPUs) > 0 {
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
		// The summary is of the whole run, of which the servers have what was before the window too.
		since := s.from.Add(-before)
		var low, high float64
		var failed, mayFail, restarts int64
		clusters, peak := map[string]bool{}, 0.0
		began := s.until
		for _, p := range s.of(run) {
			if p.Started.IsZero() {
				continue
			}
			l, _ := marks(p.Started, p.Ended, since.Add(5*every), s.until)
			_, h := marks(p.Started, p.Ended, since.Add(-every), s.until)
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
			if p.Started.Before(began) {
				began = p.Started
			}
		}
		for at := since; !at.After(s.until); at = at.Add(every) {
			held := 0.0
			for _, p := range s.of(run) {
				if p.phase(at) == "Running" {
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

func testStragglers(t *testing.T, s *stage) {
	// The gang of the small cluster holds its GPUs and does nothing: it is behind the median of the run, of which it is the smaller part.
	got, must := map[string]bool{}, map[string]bool{}
	uuids := map[string]string{}
	for _, p := range s.of(spread) {
		if p.cluster == small && p.phase(s.until) == "Running" {
			for _, gpu := range p.GPUs {
				k := fmt.Sprintf("%s|%s|%d", p.cluster, p.Node, gpu)
				must[k] = true
				g, err := s.models[small].GPU(p.Node, gpu)
				if err != nil {
					t.Fatal(err)
				}
				uuids[k] = g.UUID
			}
		}
	}
	for _, row := range s.rows(t, `{"queryType":"stragglers","experiments":["`+spread+`"]}`) {
		k := id(row, "cluster", "node", "gpu")
		got[k] = true
		if row["UUID"] != uuids[k] || row["share"].(float64) > 0.2 || !near(row["share"].(float64)*row["median"].(float64), row["value"].(float64), 1e-6) && row["value"] != 0.0 {
			t.Errorf("%v; in truth its UUID is %q and it does nothing", row, uuids[k])
		}
	}
	between(t, "stragglers", got, must, must)
}

func testPromQL(t *testing.T, s *stage) {
	want := map[string]float64{}
	for _, p := range s.of(spread) {
		if p.phase(s.until) == "Running" {
			want[p.cluster] += float64(len(p.GPUs))
		}
	}
	got := map[string]float64{}
	for _, f := range s.frames(t, `{"queryType":"promql","expr":"sum by (cluster) (experiment:pod:gpus{$__experiment})","instant":true,"experiments":["`+spread+`"]}`) {
		for _, field := range f.Fields {
			if field.Labels != nil {
				v, _ := field.FloatAt(0)
				got[field.Labels["cluster"]] = v
			}
		}
	}
	if !maps.Equal(got, want) || len(want) != 2 {
		t.Errorf("GPUs by cluster %v, and in truth %v", got, want)
	}
}
