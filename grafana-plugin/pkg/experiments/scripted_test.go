package experiments

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/model"
	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

// Of many pods several questions are asked, and what they count is added up.
func TestStatusOfMany(t *testing.T) {
	const n = 2000
	pods := make([]prom.Series, n)
	for i := range pods {
		pods[i] = one(1, "cluster", "c", "namespace", "n", "pod", fmt.Sprintf("w-%d", i), "uid",
			fmt.Sprintf("5f3c2b1a-%04d-4abc-8def-0123456789ab", i), "experiment", "e")
	}
	r := hourly(t, scripted(func(query string) prom.Answer {
		if strings.Contains(query, "experiment:pod:info") {
			return of(pods...)
		}
		return of(one(float64(strings.Count(query, "5f3c2b1a-")), "cluster", "c", "phase", "Running"))
	}), "", `{"queryType":"status","view":"over_time"}`)
	frames, err := r.Do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "lines", lines(t, frames), []string{
		`cluster=c, phase=Failed "c Failed" : 1 from 0m 0 to 0m 0`, `cluster=c, phase=Pending "c Pending" : 1 from 0m 0 to 0m 0`,
		`cluster=c, phase=Running "c Running" : 1 from 0m 2000 to 0m 2000`,
	})
	if len(r.executed) < 3 {
		t.Errorf("all %d pods fit into %d questions", n, len(r.executed)-1)
	}
}

// What was held and not measured is told, and so is what was looked at only now and then.
func TestCostNotices(t *testing.T) {
	labels := []string{"team", "t", "experiment", "e", "cluster", "c", "node", "n"}
	for _, c := range []struct {
		held     float64
		idle     []prom.Series
		measured float64
		notice   string
	}{
		{60, []prom.Series{one(30, labels...)}, 1, ""},
		{60, []prom.Series{one(30, labels...)}, 0.96, ""},
		{
			60,
			[]prom.Series{one(30, labels...)},
			0.75,
			"The use of 25 % of these GPU hours was not measured: GPUs beside measured ones of their pod count as these do, and none of the others as idle; the health check of the datasource says why.",
		},
		{
			60, nil, 0,
			"The use of these GPUs was not measured (there is no experiment:gpu:util), so that none of them counts as idle; the health check of the datasource says why.",
		},
		{1e9, []prom.Series{one(1, labels...)}, 1, "Idle GPU hours are an estimate from one look each 1h40m; choose a shorter time or fewer experiments for all of them."},
	} {
		r := hourly(t, scripted(func(query string) prom.Answer {
			switch {
			case strings.Contains(query, "clamp_max"):
				return of(one(c.measured))
			case strings.Contains(query, "experiment:gpu:util"):
				return of(c.idle...)
			case strings.Contains(query, "experiment:pod:gpus"):
				return of(one(c.held, labels...))
			}
			return of()
		}), "", `{"queryType":"cost"}`)
		if _, err := r.Do(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := noticesOf(r); got != c.notice {
			t.Errorf("%v samples: notices %q, want %q", c.held, got, c.notice)
		}
	}
}

// unmeasured refuses what is asked for a notice, as a proxy does that looks back 31 days.
type unmeasured struct {
	scripted
	refused string // what is in such a question; clamp_max where it is empty

	mu    sync.Mutex // questions are asked side by side
	asked string     // the last one refused
}

func (u *unmeasured) Instant(ctx context.Context, query string, at time.Time) (prom.Answer, error) {
	if strings.Contains(query, cmp.Or(u.refused, "clamp_max")) {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.asked = query
		return prom.Answer{}, &prom.Failure{Status: http.StatusUnprocessableEntity, Message: "too far back"}
	}
	return u.scripted.Instant(ctx, query, at)
}

// The cost of more than 31 days is told, whatever becomes of the question for a notice, which looks
// back no further.
func TestCostOfMonths(t *testing.T) {
	labels := []string{"team", "t", "experiment", "e", "cluster", "c", "node", "n"}
	u := &unmeasured{scripted: func(query string) prom.Answer { return of(one(60, labels...)) }}
	r := hourly(t, u, "", `{"queryType":"cost"}`)
	r.From = r.Until.Add(-60 * 24 * time.Hour)
	frames, err := r.Do(t.Context())
	if err != nil || len(frames) != 1 || frames[0].Rows() == 0 {
		t.Errorf("%d frames: %v", len(frames), err)
	}
	if !strings.Contains(u.asked, "[2678400s:") {
		t.Errorf("asked %s", u.asked)
	}
}

// An alert is not evaluated where it cannot be asked how much was measured, or how often the rules
// were evaluated.
func TestAlertOnCostOfUnknownUse(t *testing.T) {
	labels := []string{"team", "t", "experiment", "e", "cluster", "c", "node", "n"}
	for _, refused := range []string{"clamp_max", "count_over_time"} {
		for _, alert := range []bool{false, true} {
			r := hourly(t, &unmeasured{refused: refused, scripted: func(query string) prom.Answer {
				if strings.Contains(query, " unless ") { // no cluster is lost, no node replaced
					return prom.Answer{}
				}
				return of(one(60, labels...))
			}}, "", `{"queryType":"cost"}`)
			r.Alert = alert
			if _, err := r.Do(t.Context()); (err != nil) != alert || alert && !strings.Contains(err.Error(), "too far back") {
				t.Errorf("%s, alert %t: %v", refused, alert, err)
			}
		}
	}
}

// months is an asker of 60 days of one node, which has gone; its model is known of the time until
// 31 days before the end. It refuses what looks back further than the proxy lets one.
type months struct {
	end  time.Time
	dark bool // what is asked of models in the past fails
}

var rangesOf = regexp.MustCompile(`\[(\d+)(ms|s)[:\]]`)

func (m months) Instant(_ context.Context, query string, at time.Time) (prom.Answer, error) {
	for _, found := range rangesOf.FindAllStringSubmatch(query, -1) {
		if d, err := time.ParseDuration(found[1] + found[2]); err != nil || d > mostBack {
			return prom.Answer{}, &prom.Refusal{Status: http.StatusUnprocessableEntity, Bound: "max_range"}
		}
	}
	past := strings.Contains(query, "last_over_time")
	switch {
	case strings.Contains(query, "experiment:pod:gpus"):
		return of(one(60, "team", "t", "experiment", "e", "cluster", "c", "node", "n")), nil
	case !past || !strings.Contains(query, "model"):
		return of(), nil
	case m.dark:
		return prom.Answer{}, &prom.Failure{Status: http.StatusBadGateway, Message: "the archive is away"}
	case at.Equal(m.end.Add(-mostBack)) && strings.Contains(query, "node:gpu_model:info"):
		return of(one(1, "cluster", "c", "node", "n", "model", "H100")), nil
	}
	return of(), nil
}

func (m months) Range(context.Context, string, time.Time, time.Time, time.Duration) (prom.Answer, error) {
	return of(), nil
}

// Over months too the models of nodes that have gone are known. Where they cannot be asked for, the
// rest of the bill is there; an alert gets none that has no price for it.
func TestModelsOfMonths(t *testing.T) {
	for _, c := range []struct {
		dark  bool
		model string
	}{{false, "H100"}, {true, unknownModel}} {
		r := hourly(t, months{time.UnixMilli(3_600_000), c.dark}, `{"prices":{"H100":2}}`, `{"queryType":"cost"}`)
		r.From = r.Until.Add(-60 * 24 * time.Hour)
		frames, err := r.Do(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "models", rowsOf(t, frames[0], "model"), []string{c.model})
		if got := noticesOf(r); strings.Contains(got, "models") != c.dark || c.dark && !strings.Contains(got, "the archive is away") {
			t.Errorf("%s: notices %q", c.model, got)
		}
		r = hourly(t, months{time.UnixMilli(3_600_000), c.dark}, `{"prices":{"H100":2}}`, `{"queryType":"cost","view":"total"}`)
		r.From, r.Alert = r.Until.Add(-60*24*time.Hour), true
		if _, err := r.Do(t.Context()); (err != nil) != c.dark {
			t.Errorf("%s: an alert: %v", c.model, err)
		}
	}
}

// A node's model is DCGM's word, the first by name of several; where there is none, that of the
// node's labels.
func TestModels(t *testing.T) {
	r := hourly(t, scripted(func(query string) prom.Answer {
		models := []prom.Series{
			one(1, "cluster", "c", "node", "mixed", "model", "label"), one(1, "cluster", "c", "node", "labelled", "model", "label"),
		}
		for _, m := range []string{"B", "A", "C"} {
			models = append(models, one(1, "cluster", "c", "node", "mixed", "modelName", m))
		}
		return of(models...)
	}), "", `{"queryType":"cost"}`)
	got, err := r.models(t.Context(), map[node]bool{{"c", "mixed"}: true, {"c", "labelled"}: true, {"c", "none"}: true})
	if err != nil || got[node{"c", "mixed"}].name() != "A" || got[node{"c", "labelled"}].name() != "label" ||
		got[node{"c", "none"}].name() != "" {
		t.Errorf("%v, %v", got, err)
	}
}

// Why pods wait: an init container's trouble before what the others wait for, and whose queue holds
// a pod back.
func TestPendingReasons(t *testing.T) {
	pod := func(name string, more ...string) prom.Series {
		return one(1, append([]string{"cluster", "c", "namespace", "n", "pod", name, "uid", "u-" + name, "experiment", "e"}, more...)...)
	}
	r := hourly(t, scripted(func(query string) prom.Answer {
		for _, c := range []struct {
			metric string
			series []prom.Series
		}{
			{"experiment:pod:info", []prom.Series{pod("a", "node", "m"), pod("b"), pod("c")}},
			{"kube_pod_status_phase", []prom.Series{pod("a"), pod("b"), pod("c")}},
			{"kube_pod_init_container_status_waiting_reason", []prom.Series{pod("a", "container", "fetch", "reason", "ErrImagePull")}},
			{"kube_pod_container_status_waiting_reason", []prom.Series{pod("a", "container", "main", "reason", "PodInitializing")}},
			{"kube_pod_labels", []prom.Series{pod("b", "label_volcano_sh_queue_name", "v")}},
		} {
			if strings.Contains(query, c.metric+"{") || strings.Contains(query, c.metric+")") {
				return of(c.series...)
			}
		}
		return of()
	}), "", `{"queryType":"pending"}`)
	frames, err := r.Do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "pods that wait", rowsOf(t, frames[0], "pod", "reason", "detail"), []string{
		"a ErrImagePull Init container fetch: its image cannot be pulled on node m. Look at its name and tag, the pull secret, and whether the registry answers.",
		"b Waits in a Volcano queue Volcano has not let it in from the queue v.",
		"c NotScheduled The scheduler has not tried it yet, or something holds it back: a scheduling gate, or a scheduler of its own that is not running.",
	})
}

// Of two nodes that are equally well the one stands first that nobody is scheduled on any more.
func TestCordonedFirst(t *testing.T) {
	on := func(n string, v float64) prom.Series {
		return one(v, "cluster", "c", "namespace", "n", "pod", "p-"+n, "uid", "u-"+n, "experiment", "e", "node", n)
	}
	r := hourly(t, scripted(func(query string) prom.Answer {
		switch {
		case strings.Contains(query, "experiment:pod:info"), strings.Contains(query, "node:ready:max"):
			return of(on("a", 1), on("b", 1))
		case strings.Contains(query, "kube_node_spec_unschedulable"):
			return of(on("a", 0), on("b", 1))
		}
		return of()
	}), "", `{"queryType":"nodes"}`)
	frames, err := r.Do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "nodes", rowsOf(t, frames[0], "node", "state", "cordoned"), []string{"b ready true", "a ready false"})
}

// Of equally bad Xids the latest counts, of others the worst.
func TestWorstXid(t *testing.T) {
	n := node{"c", "n"}
	xid := func(number int64, c Class, minute int64) fault {
		return fault{node: n, xid: number, class: c, points: []prom.Point{{T: 0, V: 1}, {T: minute * 60_000, V: 1}}}
	}
	for _, c := range []struct {
		xids []fault
		want int64
	}{
		{[]fault{xid(48, ClassHard, 10), xid(95, ClassHard, 20), xid(119, ClassHard, 5)}, 95},
		{[]fault{xid(13, ClassApp, 50), xid(79, ClassDead, 1), xid(95, ClassHard, 20)}, 79},
		{[]fault{xid(95, ClassHard, 20), xid(48, ClassHard, 20)}, 48},
	} {
		rows := map[node]*nodeRow{n: {node: n}}
		worstXid(rows, c.xids)
		if got := rows[n].xid; got == nil || *got != c.want {
			t.Errorf("%v of %+v, want %d", got, c.xids, c.want)
		}
	}
}

// Two kube-state-metrics do not agree for a moment: what comes later in a pod's life counts, in
// whatever order they answer.
func TestPhaseOf(t *testing.T) {
	k := podKey{name: "p"}
	for _, c := range []struct{ phases, want string }{
		{"Running Pending", "Running"},
		{"Pending Running", "Running"},
		{"Failed Running", "Failed"},
		{"Unknown", "Unknown"},
		{"Succeeded Running Pending", "Succeeded"},
	} {
		var series []prom.Series
		for _, phase := range strings.Fields(c.phases) {
			series = append(series, one(1, "pod", "p", "phase", phase))
		}
		if got := phaseOf(series)[k]; got != c.want {
			t.Errorf("%s: %s, want %s", c.phases, got, c.want)
		}
	}
}

func TestFindStragglers(t *testing.T) {
	type gpu struct {
		namespace, gpu, pod string
		sum, count, median  float64
	}
	for _, c := range []struct {
		name  string
		gpus  []gpu
		want  []string
		still int
	}{
		{"at the limit", []gpu{{"n", "0", "p", 500, 10, 100}, {"n", "1", "p", 1000, 10, 100}, {"n", "2", "p", 1000, 10, 100}}, nil, 0},
		{
			"below it",
			[]gpu{{"n", "0", "p", 499, 10, 100}, {"n", "1", "p", 1000, 10, 100}, {"n", "2", "p", 1000, 10, 100}},
			[]string{"0 p 49.9 100 0.499"},
			0,
		},
		{"one name in two namespaces is two experiments", []gpu{
			{"a", "0", "p", 900, 10, 90},
			{"a", "1", "p", 900, 10, 90},
			{"a", "2", "p", 900, 10, 90},
			{"b", "3", "q", 400, 10, 40},
			{"b", "4", "q", 400, 10, 40},
		}, nil, 0},
		{"with the pod that had it longest", []gpu{
			{"n", "0", "a", 10, 1, 100},
			{"n", "0", "b", 90, 9, 100},
			{"n", "0", "c", 20, 2, 100},
			{"n", "1", "p", 1200, 12, 100},
			{"n", "2", "p", 1200, 12, 100},
		}, []string{"0 b 10 100 0.1"}, 0},
		{
			"equal ones, each at its own times",
			[]gpu{{"n", "0", "p", 400, 10, 94}, {"n", "1", "p", 400, 10, 94}, {"n", "2", "p", 420, 10, 94}},
			nil, 0,
		},
		{
			"seldom at work, one of them half as much",
			[]gpu{{"n", "0", "p", 190, 10, 4.5}, {"n", "1", "p", 400, 10, 4.5}, {"n", "2", "p", 400, 10, 4.5}},
			[]string{"0 p 19 40 0.475"},
			0,
		},
		{
			"most of them never at work at a time",
			[]gpu{{"n", "0", "p", 40, 10, 0}, {"n", "1", "p", 100, 10, 0}, {"n", "2", "p", 100, 10, 0}},
			[]string{"0 p 4 10 0.4"},
			0,
		},
		{"idle ones", []gpu{{"n", "0", "p", 0, 10, 0}, {"n", "1", "p", 0, 10, 0}, {"n", "2", "p", 10, 10, 0}}, nil, 0},
		{"one held alone, before the first step", []gpu{
			{"n", "9", "a", 0, 10, 0},
			{"n", "0", "p", 40, 10, 9},
			{"n", "1", "p", 90, 10, 9},
			{"n", "2", "p", 90, 10, 9},
		}, []string{"0 p 4 9 0.4444"}, 1},
		{"attempts that hung, each on nodes of its own", []gpu{
			{"n", "5", "a", 0, 10, 0},
			{"n", "6", "a", 0, 10, 0},
			{"n", "7", "b", 0, 10, 0},
			{"n", "8", "b", 0, 10, 0},
			{"n", "0", "p", 40, 10, 9},
			{"n", "1", "p", 90, 10, 9},
			{"n", "2", "p", 90, 10, 9},
		}, []string{"0 p 4 9 0.4444"}, 4},
		{"one that loaded while all others waited for it", []gpu{
			{"n", "9", "a", 20, 10, 0},
			{"n", "0", "p", 90, 10, 9},
			{"n", "1", "p", 90, 10, 9},
			{"n", "2", "p", 90, 10, 9},
		}, nil, 1},
		{"dead among those at work", []gpu{
			{"n", "0", "p", 0, 10, 9},
			{"n", "1", "p", 90, 10, 9},
			{"n", "2", "p", 90, 10, 9},
		}, []string{"0 p 0 9 0"}, 0},
		{"dead among those that work in bursts", []gpu{
			{"n", "0", "p", 0, 10, 0},
			{"n", "1", "p", 90, 10, 0},
			{"n", "2", "p", 90, 10, 0},
		}, []string{"0 p 0 9 0"}, 0},
	} {
		r := &Run{Settings: settingsOf(t, `{"stragglerBelow":0.5}`)}
		var sums, counts []prom.Series
		for _, g := range c.gpus {
			labels := []string{
				"cluster", "c", "namespace", g.namespace, "experiment", "e", "node", "m", "gpu", g.gpu, "UUID", "U" + g.gpu,
				"pod", g.pod,
			}
			sums = append(sums, one(g.sum, labels...), one(g.median*g.count, append(labels, "median", "yes")...))
			counts = append(counts, one(g.count, labels...))
		}
		rows, short, still := r.findStragglers(sums, counts)
		var got []string
		for _, s := range rows {
			got = append(got, fmt.Sprintf("%s %s %g %g %.4g", s.gpu, s.pod, s.value, s.median, s.share))
		}
		if !slices.Equal(got, c.want) || short != 0 || still != c.still {
			t.Errorf("%s: %q, want %q; %d were held too short, %d while nothing was done, want %d", c.name, got, c.want, short, still, c.still)
		}
	}
}

// Lines without a number come last, whichever end is asked for.
func TestPickNaN(t *testing.T) {
	means := []prom.Series{
		one(math.NaN(), "node", "a"), one(1, "node", "b"), one(3, "node", "c"), one(math.NaN(), "node", "d"),
		one(2, "node", "e"),
	}
	for rank, want := range map[string]string{"top": "c e b a", "bottom": "b e c a"} {
		r := &Run{Settings: settingsOf(t, ""), Query: model.Query{Rank: rank, K: 4}}
		var got []string
		for _, s := range r.pick(means, []string{"node"}, 200, "series") {
			got = append(got, s.Labels["node"])
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %s", rank, got, want)
		}
	}
}

// Pods that changed are looked at in so many lots, and a notice counts the others; faults on more
// nodes than are looked at are counted, too.
func TestNoticesOfWhatIsLeftOut(t *testing.T) {
	var pods []Pod
	var changed []prom.Series
	for i := range 1100 {
		p := Pod{Cluster: "c", Namespace: "n", Name: fmt.Sprintf("w-%d", i), UID: fmt.Sprintf("u%d", i)}
		pods = append(pods, p)
		changed = append(changed, one(1, "cluster", "c", "namespace", "n", "pod", p.Name, "uid", p.UID))
	}
	r := hourly(t, scripted(func(string) prom.Answer { return of(changed...) }), "", `{"queryType":"events"}`)
	r.Until = r.From.Add(31 * 24 * time.Hour)
	got, err := r.changing(t.Context(), pods, restartsOf)
	if most := maxLots * len(lots(r, pods)[0]); err != nil || len(got) != most || most >= len(pods) ||
		noticesOf(r) != fmt.Sprintf("%d of 1100 pods that restarted or failed are not looked at; choose a shorter time or fewer experiments.", len(pods)-most) {
		t.Errorf("%d pods, %v, notices %q", len(got), err, noticesOf(r))
	}
	var faults []fault
	for i := range maxFaultyNodes + 2 {
		faults = append(faults, fault{node: node{"c", fmt.Sprintf("n%03d", i)}, name: "hot", points: []prom.Point{{T: 60_000, V: 1}}})
	}
	r = hourly(t, scripted(func(string) prom.Answer { return of() }), "", `{"queryType":"gpu_health"}`)
	_, err = r.ours(t.Context(), faults)
	if err != nil || noticesOf(r) != "2 faults are left out: more than 500 nodes have any; choose a shorter time or fewer experiments." {
		t.Errorf("%v, notices %q", err, noticesOf(r))
	}
}

// Without uids pods are told apart by name and namespace, and everything about them is found.
func TestWithoutUIDs(t *testing.T) {
	w := worldOf(t, "plain")
	f := w.frames(t, settingsOf(t, ""), `{"queryType":"pods"}`, minute, 30*minute)[0]
	equal(t, "pods", rowsOf(t, f, "pod", "namespace", "uid", "phase", "reason", "exit_code", "restarts"), []string{
		`w-0 n "" Running OOMKilled 137 1`, `w-1 n "" Running "" - 0`,
	})
	f = w.frames(t, settingsOf(t, ""), `{"queryType":"events"}`, minute, 30*minute)[0]
	// Why it ended is seen a scrape after it was started again.
	equal(t, "events", rowsOf(t, f, "time", "title", "text"), []string{"10m0s A container started again (OOMKilled, exit code 137) w-0 on a of x in c"})
	f = w.frames(t, settingsOf(t, ""), `{"queryType":"gpu_health"}`, minute, 30*minute)[0]
	equal(t, "faults", rowsOf(t, f, "node", "gpu", "model", "pod", "fault", "class", "value", "since", "text"), []string{
		`a 0 M w-0 PCIe replays link 12 10m0s 12 retries a minute on the bus between the GPU and its host.`,
		`a "" "" w-0 not measured unmeasured 2 10m0s GPUs of the node that dcgm-exporter says nothing of: 2.`,
	})
}
