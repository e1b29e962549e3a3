package experiments

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/data"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

const minute = time.Minute

// The frames of experiments, status, pods, pending and events in the world of testdata/pods.load,
// which says at its top what happens in it.
func TestPodFrames(t *testing.T) {
	w := worldOf(t, "pods")
	settings := settingsOf(t, `{"links": [{"title": "W&B", "url": "https://wandb.example/runs?group=${experiment}&team=${team}"}]}`)
	for _, c := range []struct {
		name, query string
		from, until time.Duration
	}{
		{"experiments", `{"queryType": "experiments"}`, 5 * minute, 120 * minute},
		{"experiments_search", `{"queryType": "experiments", "search": "LLA", "clusters": ["east"]}`, 5 * minute, 120 * minute},
		{"experiments_past", `{"queryType": "experiments"}`, 5 * minute, 40 * minute},
		{"status", `{"queryType": "status", "experiments": ["llama"]}`, 5 * minute, 120 * minute},
		{"status_over_time", `{"queryType": "status", "experiments": ["llama"], "view": "over_time"}`, 0, 120 * minute},
		{"pods", `{"queryType": "pods", "experiments": ["llama", "bert"]}`, 5 * minute, 120 * minute},
		{"pods_waiting", `{"queryType": "pods", "experiments": ["image", "queued", "prep"]}`, 5 * minute, 120 * minute},
		{"pending", `{"queryType": "pending"}`, 5 * minute, 120 * minute},
		{"events", `{"queryType": "events", "experiments": ["llama"]}`, 5 * minute, 120 * minute},
	} {
		t.Run(c.name, func(t *testing.T) { golden(t, c.name, w.frames(t, settings, c.query, c.from, c.until)) })
	}
}

// rowsOf are the rows of a table with the named fields, joined by spaces.
func rowsOf(t testing.TB, f *data.Frame, fields ...string) []string {
	t.Helper()
	out := make([]string, f.Rows())
	for i := range out {
		var parts []string
		for _, name := range fields {
			field, at := f.FieldByName(name)
			if at < 0 {
				t.Fatalf("no field %q", name)
			}
			parts = append(parts, text(field, i))
		}
		out[i] = strings.Join(parts, " ")
	}
	return out
}

// text is a value as these tests write it: times as minutes since the world's beginning.
func text(f *data.Field, i int) string {
	v, ok := f.ConcreteAt(i)
	if !ok {
		return "-"
	}
	if at, ok := v.(time.Time); ok {
		return at.Sub(time.UnixMilli(0)).String()
	}
	if s, ok := v.(string); ok && s == "" {
		return `""`
	}
	return fmt.Sprint(v)
}

func TestExperiments(t *testing.T) {
	w := worldOf(t, "pods")
	for _, c := range []struct {
		name, query string
		from, until time.Duration
		want        []string
	}{
		{
			"all of two hours", `{"queryType": "experiments"}`, 5 * minute, 120 * minute,
			[]string{
				"queued nlp east nlp pending 1 0 1h50m0s 2h0m0s",
				"image nlp east nlp pending 1 0 1h45m0s 2h0m0s",
				"llama nlp west nlp pending 1 0 1h40m0s 2h0m0s",
				"prep nlp east nlp running 1 0 1h30m0s 2h0m0s",
				"llama nlp east nlp running 2 16 10m0s 2h0m0s", // created with its first attempt, whose pods are gone
				"bert unassigned west vision ended 1 4 20m0s 1h9m0s",
				"old infra east infra ended 1 2 6m0s 29m0s", // older than the range, as a notice says
			},
		},
		{"before the second attempt", `{"queryType": "experiments", "clusters": ["east"]}`, 30 * minute, 52 * minute, []string{"llama nlp east nlp ended 2 16 10m0s 52m0s"}},
		{
			"by team", `{"queryType": "experiments", "teams": ["infra"]}`, 5 * minute, 120 * minute,
			[]string{"old infra east infra ended 1 2 6m0s 29m0s"},
		},
		{"no pods with GPUs, gone, by name", `{"queryType": "experiments", "experiments": ["prep"]}`, 60 * minute, 119 * minute, []string{"prep nlp east nlp running 1 0 1h30m0s 1h59m0s"}},
		{"part of a name", `{"queryType": "experiments", "search": "ERT"}`, 5 * minute, 120 * minute, []string{"bert unassigned west vision ended 1 4 20m0s 1h9m0s"}},
		{
			"limit", `{"queryType": "experiments", "limit": 1}`, 5 * minute, 120 * minute,
			[]string{"queued nlp east nlp pending 1 0 1h50m0s 2h0m0s"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			frames := w.frames(t, settingsOf(t, ""), c.query, c.from, c.until)
			got := rowsOf(t, frames[0], "experiment", "team", "cluster", "namespace", "state", "pods", "gpus", "created", "seen")
			if !slices.Equal(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
			older := strings.Contains(strings.Join(notices(frames[0]), ""), "1 experiments that have ended were there when the time range began")
			if want := strings.Contains(strings.Join(c.want, ""), "old infra"); older != want {
				t.Errorf("a notice of older ones: %v, want %v", older, want)
			}
			if strings.Contains(c.query, "limit") &&
				!strings.Contains(strings.Join(notices(frames[0]), ""), "6 of 7 experiments are left out") {
				t.Errorf("notices: %q", notices(frames[0]))
			}
		})
	}
}

func TestStatus(t *testing.T) {
	w := worldOf(t, "pods")
	for _, c := range []struct {
		query string
		until time.Duration
		want  []string
	}{
		{
			`{"queryType": "status", "experiments": ["llama"]}`, 120 * minute,
			[]string{"east Running 2", "east Pending 0", "east Failed 0", "west Running 0", "west Pending 1", "west Failed 0"},
		},
		{
			`{"queryType": "status", "experiments": ["llama", "bert"]}`, 52 * minute,
			[]string{
				"east Running 0", "east Pending 0", "east Failed 1", "east Succeeded 1", "west Running 1", "west Pending 0",
				"west Failed 0",
			},
		},
	} {
		var got []string
		for _, f := range w.frames(t, settingsOf(t, ""), c.query, 0, c.until) {
			l := f.Fields[0].Labels
			got = append(got, l["cluster"]+" "+l["phase"]+" "+text(f.Fields[0], 0))
			if f.Meta.Type != data.FrameTypeNumericMulti {
				t.Errorf("type %s", f.Meta.Type)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s at %s: %q, want %q", c.query, c.until, got, c.want)
		}
	}
}

func TestStatusOverTime(t *testing.T) {
	w := worldOf(t, "pods")
	got := map[string]map[time.Duration]float64{}
	for _, f := range w.frames(t, settingsOf(t, ""), `{"queryType": "status", "experiments": ["llama"], "view": "over_time"}`, 0, 120*minute) {
		l := f.Fields[1].Labels
		at := map[time.Duration]float64{}
		for i, v := range values[float64](t, f, "Value") {
			at[f.Fields[0].At(i).(time.Time).Sub(time.UnixMilli(0))] = v
		}
		got[l["cluster"]+" "+l["phase"]] = at
	}
	// In steps of 72 s; the two attempts have the same pod names, and no pod is counted at 55 to 56
	// minutes.
	for _, c := range []struct {
		series string
		at     time.Duration
		want   float64
		there  bool
	}{
		{"east Running", 24 * minute, 2, true},
		{"east Failed", 24 * minute, 0, true},
		{"east Failed", 54 * minute, 1, true},
		{"east Succeeded", 54 * minute, 1, true},
		{"east Running", 54 * minute, 0, true},
		{"east Running", 55*minute + 12*time.Second, 0, false},
		{"east Running", 60 * minute, 2, true}, // once, though two kube-state-metrics say it
		{"west Pending", 90 * minute, 0, false},
		{"west Pending", 120 * minute, 1, true},
		{"west Running", 120 * minute, 0, true},
	} {
		if v, ok := got[c.series][c.at]; v != c.want || ok != c.there {
			t.Errorf("%s at %s: %v, %v; want %v, %v", c.series, c.at, v, ok, c.want, c.there)
		}
	}
	if len(got) != 7 {
		t.Errorf("%d series", len(got))
	}
}

func TestPods(t *testing.T) {
	w := worldOf(t, "pods")
	f := w.frames(t, settingsOf(t, ""), `{"queryType": "pods"}`, 5*minute, 120*minute)[0]
	want := []string{
		`queued queued-0 f0 "" Pending "" - 0 8 1h50m0s 600`,
		"image image-0 g0 n1 Pending ImagePullBackOff - 0 1 1h45m0s 900",
		`llama llama-w-2 c2 "" Pending Unschedulable - 0 4 1h40m0s 1200`,
		"llama llama-w-0 b0 n1 Running OOMKilled 137 1 8 56m0s 3840",
		`llama llama-w-1 b1 n3 Running "" - 0 8 56m0s 3840`,
		`prep prep-0 e0 n1 Running "" - 0 0 1h30m0s 1800`,
		// What is gone, with its last phase; the names of the first attempt are in use again.
		"llama llama-w-1 a1 n2 Failed Evicted - 0 8 10m0s 2640",
		`llama llama-w-0 a0 n1 Succeeded "" - 0 8 10m0s 2640`,
		"bert bert-0 d0 m2 Succeeded Completed - 0 4 20m0s 3240",
		`old old-0 h0 n4 Gone "" - 3 2 0s 1740`,
	}
	got := rowsOf(t, f, "experiment", "pod", "uid", "node", "phase", "reason", "exit_code", "restarts", "gpus", "created", "age")
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	phases := values[string](t, f, "phase")
	if !slices.IsSortedFunc(phases, func(a, b string) int { return slices.Index(podOrder, a) - slices.Index(podOrder, b) }) ||
		phases[0] != "Failed" {
		t.Errorf("order of phases: %q", phases)
	}
}

func TestPending(t *testing.T) {
	w := worldOf(t, "pods")
	f := w.frames(t, settingsOf(t, ""), `{"queryType": "pending"}`, 5*minute, 120*minute)[0]
	want := []string{
		"llama-w-2 1h40m0s 1200 Unschedulable The scheduler found no node with 4 free GPUs that fits: all are full, tainted, cordoned, or not what its selectors and affinities ask for.",
		"image-0 1h45m0s 900 ImagePullBackOff Container main: its image cannot be pulled on node n1. Look at its name and tag, the pull secret, and whether the registry answers.",
		"queued-0 1h50m0s 600 Waits in a Kueue queue Kueue has not let it in from the queue big, in which 7 workloads wait.",
	}
	if got := rowsOf(t, f, "pod", "since", "waited", "reason", "detail"); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	// On a node, no container has said anything yet.
	f = w.frames(t, settingsOf(t, ""), `{"queryType": "pending", "experiments": ["llama"]}`, 5*minute, 57*minute)[0]
	want = []string{"llama-w-0 ContainerCreating", "llama-w-1 ContainerCreating"}
	if got := rowsOf(t, f, "pod", "reason"); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if d := values[string](t, f, "detail")[0]; d != "The scheduler put it on node n1 at 00:57:00 UTC; the kubelet there has not begun to start its containers." {
		t.Error(d)
	}
}

// A pod that has succeeded holds nothing any more, whatever it asked for.
func TestPodsThatEnded(t *testing.T) {
	f := worldOf(t, "pods").frames(t, settingsOf(t, ""), `{"queryType": "pods", "experiments": ["bert"]}`, 5*minute, 72*minute)[0]
	equal(t, "pods", rowsOf(t, f, "pod", "phase", "gpus"), []string{"bert-0 Succeeded 0"})
}

func TestPendingNone(t *testing.T) {
	f := worldOf(t, "pods").frames(t, settingsOf(t, ""), `{"queryType": "pending", "experiments": ["prep"]}`, 5*minute, 120*minute)[0]
	if f.Rows() != 0 || len(f.Fields) != 10 || !strings.Contains(strings.Join(notices(f), ""), "There are no pods that wait") {
		t.Errorf("%d rows, %d fields, %q", f.Rows(), len(f.Fields), notices(f))
	}
}

func TestEvents(t *testing.T) {
	w := worldOf(t, "pods")
	f := w.frames(t, settingsOf(t, ""), `{"queryType": "events", "experiments": ["llama"]}`, 5*minute, 120*minute)[0]
	want := []string{
		"50m0s - A pod was evicted llama-w-1 on n2 of llama in east failed,east,llama",
		"56m0s - Attempt 1 began JobSet llama of llama in east started its pods again. jobset,east,llama",
		"1h1m0s - Xid 79: GPU has fallen off the bus GPU 0 of node n1 in east. " + ClassDead.Action() + " xid,east,n1",
		"1h20m0s - A container started again (OOMKilled, exit code 137) llama-w-0 on n1 of llama in east restart,east,llama",
		"1h25m0s 1h32m0s Node n3 was not ready For 7m0s, in east. node,east,n3",
		"1h35m0s - Xid 94: contained ECC error GPU 2 of node n3 in east. " + ClassSoft.Action() + " xid,east,n3",
		"1h40m0s - Attempt 1 began JobSet llama of llama in west started its pods again. jobset,west,llama",
	}
	if got := rowsOf(t, f, "time", "timeEnd", "title", "text", "tags"); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	ids := values[string](t, f, "id")
	if len(slices.Compact(slices.Sorted(slices.Values(ids)))) != len(ids) {
		t.Errorf("ids are not unique: %q", ids)
	}
	// Seen from the middle of the outage it goes on.
	f = w.frames(t, settingsOf(t, ""), `{"queryType": "events", "experiments": ["llama"]}`, 84*minute, 88*minute)[0]
	if got := rowsOf(t, f, "time", "timeEnd", "title"); !slices.Equal(got, []string{"1h25m0s 1h28m0s Node n3 is not ready"}) {
		t.Errorf("%q", got)
	}
	// What changes at the range's very begin is one, though the sample before it stands a minute
	// earlier.
	f = w.frames(t, settingsOf(t, ""), `{"queryType": "events", "experiments": ["llama"]}`, 80*minute, 84*minute)[0]
	if got := rowsOf(t, f, "time", "title"); !slices.Equal(got, []string{"1h20m0s A container started again (OOMKilled, exit code 137)"}) {
		t.Errorf("at the begin: %q", got)
	}
	// What was so before the range, and stays, is no event of it.
	f = w.frames(t, settingsOf(t, ""), `{"queryType": "events", "experiments": ["llama"]}`, 62*minute, 78*minute)[0]
	if f.Rows() != 0 || !strings.Contains(strings.Join(notices(f), ""), "There are no events") {
		t.Errorf("%q, %q", rowsOf(t, f, "time", "title"), notices(f))
	}
}

func TestLinks(t *testing.T) {
	s := settingsOf(t, `{"links": [{"title": "W&B", "url": "https://wandb.example/${team}?g=${experiment}"},
		{"title": "ns", "url": "https://x.example/?n=${namespace}&from=${__from}"}], "podDashboard": "-", "gpuDashboard": "g"}`)
	all := experimentLinks(s, allFields)
	if len(all.Links) != 2 || all.Links[0].URL != "https://wandb.example/${__data.fields.team:percentencode}?g=${__data.fields.experiment:percentencode}" ||
		all.Links[1].URL != "https://x.example/?n=${__data.fields.namespace:percentencode}&from=${__from}" || !all.Links[0].TargetBlank {
		t.Errorf("%+v", all)
	}
	if some := experimentLinks(s, map[string]string{"experiment": "experiment", "team": "team"}); len(some.Links) != 1 ||
		some.Links[0].Title != "W&B" {
		t.Errorf("a table without namespace: %+v", some)
	}
	runs := experimentLinks(s, map[string]string{"experiment": "run", "team": "team"})
	if len(runs.Links) != 1 || runs.Links[0].URL != "https://wandb.example/${__data.fields.team:percentencode}?g=${__data.fields.run:percentencode}" {
		t.Errorf("a table of runs: %+v", runs)
	}
	if c := experimentLinks(s, nil); c != nil {
		t.Errorf("no fields: %+v", c)
	}
	if podLink(s) != nil {
		t.Error(`"-" makes a link`)
	}
	const gpu = "/d/g?${__url_time_range}&var-cluster=${__data.fields.cluster:percentencode}&var-node=${__data.fields.node:percentencode}&var-gpu=${__data.fields.gpu:percentencode}"
	if got := gpuLink(s).Links[0].URL; got != gpu {
		t.Error(got)
	}
	own := settingsOf(t, `{"podDashboard": "p"}`)
	const cluster, namespace = "&var-cluster=${__data.fields.cluster:percentencode}", "&var-namespace=${__data.fields.namespace:percentencode}"
	const pod = "&var-pod=${__data.fields.pod:percentencode}"
	if got := podLink(own).Links[0].URL; got != "/d/p?${__url_time_range}"+cluster+namespace+pod {
		t.Error(got)
	}
	if got := podOnlyLink(own).Links[0].URL; got != "/d/p?${__url_time_range}"+cluster+pod {
		t.Error(got)
	}
	if got := nodeLink(s).Links[0].URL; !strings.HasPrefix(got, "/d/spillway-node?") {
		t.Error(got)
	}
}

// When pods were first and last there: bert's from 20 to 74 minutes.
func TestSight(t *testing.T) {
	w := worldOf(t, "pods")
	r := w.run(t, settingsOf(t, ""), `{"queryType": "pods", "experiments": ["bert"]}`, 5*minute, 120*minute)
	pods, err := r.PodsIn(t.Context())
	if err != nil || len(pods) != 1 {
		t.Fatal(pods, err)
	}
	first, err := r.sight(t.Context(), pods, "min")
	if err != nil || first[pods[0].key()] != 20*60 {
		t.Errorf("%v, %v", first, err)
	}
	last, err := r.sight(t.Context(), pods, "max")
	if err != nil || last[pods[0].key()] != 74*60 {
		t.Errorf("%v, %v", last, err)
	}
}

// The worst cause of several containers counts, in whatever order they come.
func TestCauses(t *testing.T) {
	is := func(container, reason string) prom.Series {
		return prom.Series{Labels: map[string]string{"pod": "p", "container": container, "reason": reason}, Points: []prom.Point{{V: 1}}}
	}
	steps := []struct {
		add  func(causes)
		want string
	}{
		{func(m causes) { m.add([]prom.Series{is("a", "Completed")}, ofLastTerminated) }, "Completed"},
		{func(m causes) { m.add([]prom.Series{is("a", "Completed")}, ofTerminated) }, "Completed"},
		{func(m causes) { m.add([]prom.Series{is("b", "ContainerCreating")}, ofWaiting) }, "ContainerCreating"},
		{func(m causes) { m.add([]prom.Series{is("a", "OOMKilled")}, ofLastTerminated) }, "OOMKilled"},
		{func(m causes) { m.take(podKey{name: "p"}, cause{ofUnschedulable, "Unschedulable", ""}) }, "Unschedulable"},
		{func(m causes) { m.add([]prom.Series{is("a", "Error")}, ofTerminated) }, "Error"},
		{func(m causes) {
			m.add([]prom.Series{is("b", "ImagePullBackOff"), is("a", "CrashLoopBackOff")}, ofWaiting)
		}, "CrashLoopBackOff"},
		{func(m causes) { m.add([]prom.Series{is("", "Evicted")}, ofStatus) }, "Evicted"},
	}
	up, down := causes{}, causes{}
	for i, s := range steps {
		s.add(up)
		if got := up[podKey{name: "p"}].reason; got != s.want {
			t.Errorf("step %d: %s, want %s", i, got, s.want)
		}
	}
	for _, s := range slices.Backward(steps) {
		s.add(down)
	}
	if got := down[podKey{name: "p"}].reason; got != "Evicted" {
		t.Errorf("the other way round: %s", got)
	}
}
