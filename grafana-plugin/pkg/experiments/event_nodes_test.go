package experiments

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

// hiding answers as another does, but for queries of a metric, of which it has nothing; gauges are
// the nodes whose gauges of Xids were asked for over a range.
type hiding struct {
	prom.Asker
	metric string

	mu     sync.Mutex
	gauges []string
}

func (h *hiding) Instant(ctx context.Context, query string, at time.Time) (prom.Answer, error) {
	if h.metric != "" && strings.Contains(query, h.metric) {
		return prom.Answer{}, nil
	}
	return h.Asker.Instant(ctx, query, at)
}

func (h *hiding) Range(ctx context.Context, query string, from, until time.Time, step time.Duration) (prom.Answer, error) {
	a, err := h.Asker.Range(ctx, query, from, until, step)
	if strings.Contains(query, "DCGM_FI_DEV_XID_ERRORS") {
		h.mu.Lock()
		for _, s := range a.Series {
			h.gauges = append(h.gauges, s.Labels["node"])
		}
		h.mu.Unlock()
	}
	return a, err
}

// TestXidEvents: what rules recorded of the gauges tells which of them are read over the range, and
// the events are those that all of them tell.
func TestXidEvents(t *testing.T) {
	w := worldOf(t, "xids")
	const from, until = 90 * time.Minute, 299 * time.Minute
	events := func(metric string) (found, gauges []string) {
		h := &hiding{Asker: w.asker, metric: metric}
		r := w.run(t, settingsOf(t, ""), `{"queryType":"events","experiments":["x"]}`, from, until)
		r.asker = h
		frames, err := r.Do(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(h.gauges)
		return rowsOf(t, frames[0], "time", "title", "text"), h.gauges
	}
	all, gauges := events("node:gpu_seen:count")
	equal(t, "gauges that are read where rules say nothing", gauges,
		[]string{"again", "blank", "came", "late", "lost", "new", "now", "old", "other"})
	some, gauges := events("")
	equal(t, "events", some, all)
	equal(t, "gauges that are read", gauges, []string{"again", "came", "late", "lost", "new", "now", "other"})
	var nodes []string
	for _, e := range all {
		_, after, _ := strings.Cut(e, "of node ")
		name, _, _ := strings.Cut(after, " ")
		nodes = append(nodes, name)
	}
	equal(t, "nodes with events", slices.Sorted(slices.Values(nodes)), []string{"again", "lost", "new", "now", "other"})
}

// Where it is known who held which GPU, an Xid is of those who held that one: on a node that is
// shared the others are left out.
func TestXidEventsOfOthers(t *testing.T) {
	w := worldOf(t, "gpus")
	for experiment, want := range map[string][]string{
		"llama": {
			"30m0s GPU 0 of node gpu-a in eu-1. " + ClassApp.Action(),
			"1h3m0s GPU 0 of node gpu-b in eu-1. " + ClassHard.Action(),
		},
		"tiny": {"40m0s GPU 2 of node gpu-a in eu-1. " + ClassApp.Action()},
	} {
		var got []string
		f := w.frames(t, settingsOf(t, ""), `{"queryType":"events","experiments":["`+experiment+`"]}`, gpusFrom, gpusUntil)[0]
		for _, l := range rowsOf(t, f, "time", "text", "tags") {
			if e, _, ok := strings.Cut(l, " xid,"); ok {
				got = append(got, e)
			}
		}
		equal(t, "Xids of "+experiment, got, want)
	}
}

// An Xid of the kernel's log has no GPU: it is of who was on the node, also where it is known who
// held which GPU.
func TestXidEventsOfTheKernel(t *testing.T) {
	f := worldOf(t, "kernel").frames(t, settingsOf(t, ""), `{"queryType":"events","experiments":["e"]}`, 0, 60*time.Minute)[0]
	x, _ := XidOf("79")
	equal(t, "Xids", rowsOf(t, f, "time", "title", "text"), []string{"30m0s Xid 79: " + x.Name + " On node n in c. " + x.Class.Action()})
}

// holders answers who held the GPUs of the nodes n000 and so on that it is asked for: ours-0 GPU 0,
// other-0 GPU 1. It notes of how many points of nodes with eight GPUs each question is.
type holders struct {
	scripted
	points []int
}

func (h *holders) Range(_ context.Context, query string, from, until time.Time, step time.Duration) (prom.Answer, error) {
	var a prom.Answer
	for _, n := range regexp.MustCompile(`n\d{3}`).FindAllString(query, -1) {
		for gpu, of := range []string{"ours", "other"} {
			s := one(1, "cluster", "c", "node", n, "gpu", strconv.Itoa(gpu), "namespace", "ml", "pod", of+"-0", "experiment", of)
			s.Points[0].T = until.UnixMilli()
			a.Series = append(a.Series, s)
		}
	}
	h.points = append(h.points, len(a.Series)/2*8*int(1+until.Sub(from)/step))
	return a, nil
}

// Who held the cards of many nodes over a week is asked in questions of pointsAtOnce, each of which
// tells of its own nodes.
func TestHoldersOfManyCards(t *testing.T) {
	h := &holders{}
	r := hourly(t, h, "", `{"queryType":"events","experiments":["ours"]}`)
	r.Until = r.From.Add(7 * 24 * time.Hour)
	there, at := presence{}, r.Until.UnixMilli()
	var faults []*fault
	var want []string
	for i := range 600 {
		n := node{"c", fmt.Sprintf("n%03d", i)}
		there[n] = [][2]int64{{0, at}}
		want = append(want, n.name+" 0")
		for _, gpu := range []string{"0", "1"} {
			points, came := []prom.Point{{T: at, V: 1}}, [][2]int64{{at - 1, at}}
			faults = append(faults, &fault{node: n, gpu: gpu, name: "79", points: points, came: came})
		}
	}
	found, err := r.ofOurCards(t.Context(), faults, there)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range found {
		if len(f.points) > 0 {
			got = append(got, f.node.name+" "+f.gpu)
		}
	}
	slices.Sort(got)
	equal(t, "cards", got, want)
	if most := slices.Max(h.points); most > pointsAtOnce || len(h.points) > 5 {
		t.Errorf("%d questions, of %d points at most", len(h.points), most)
	}
}

// TestPresence: what happens on a node belongs to who was there, or had left it eventGrace before
// at most: a pod is evicted minutes after its node went silent.
func TestPresence(t *testing.T) {
	n := node{"c", "n"}
	there := presence{n: {{1_000_000, 2_000_000}}}
	grace := eventGrace.Milliseconds()
	for _, c := range []struct {
		name string
		node node
		at   [2]int64
		want bool
	}{
		{"before", n, [2]int64{900_000, 999_999}, false},
		{"from before until it came", n, [2]int64{900_000, 1_000_000}, true},
		{"meanwhile", n, [2]int64{1_500_000, 1_500_000}, true},
		{"soon after", n, [2]int64{2_000_000 + grace, 2_000_000 + grace}, true},
		{"too late", n, [2]int64{2_000_001 + grace, 2_000_001 + grace}, false},
		{"elsewhere", node{"c", "m"}, [2]int64{1_500_000, 1_500_000}, false},
	} {
		if got := there.overlaps(c.node, c.at[0], c.at[1]); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
