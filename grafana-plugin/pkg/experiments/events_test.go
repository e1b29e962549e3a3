package experiments

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// A gang that restarts at once is one event; what differs in anything but the name is another.
func TestGathered(t *testing.T) {
	at := time.UnixMilli(60_000).UTC()
	var list []event
	for i := range 7 {
		e := event{
			kind: "restart", at: at, cluster: "east", experiment: "x", what: "OOMKilled, exit code 137",
			names: []string{fmt.Sprintf("w-%d", 6-i)},
		}
		list = append(list, e, e) // seen twice: no second name
	}
	list = append(
		list,
		event{kind: "restart", at: at, cluster: "west", experiment: "x", what: "OOMKilled, exit code 137", names: []string{"w-9"}},
		event{kind: "restart", at: at, cluster: "east", experiment: "y", what: "OOMKilled, exit code 137", names: []string{"w-0"}},
		event{kind: "restart", at: at.Add(-time.Second), cluster: "east", experiment: "x", names: []string{"w-0"}},
		event{kind: "failed", at: at, cluster: "east", experiment: "x", what: "Error", names: []string{"w-1 on n"}},
	)
	want := []string{
		"A container started again | w-0 of x in east",
		"A pod failed (Error) | w-1 on n of x in east",
		"7 containers started again (OOMKilled, exit code 137) | w-0, w-1, w-2, w-3, w-4 and 2 more of x in east",
		"A container started again (OOMKilled, exit code 137) | w-0 of y in east",
		"A container started again (OOMKilled, exit code 137) | w-9 of x in west",
	}
	var got []string
	for _, e := range gathered(list) {
		title, text := e.words()
		got = append(got, title+" | "+text)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	slices.Reverse(list)
	for i, e := range gathered(list) {
		if title, text := e.words(); title+" | "+text != want[i] {
			t.Errorf("in another order: %s | %s", title, text)
		}
	}
}

func TestNewestEvents(t *testing.T) {
	r := &Run{}
	list := make([]event, maxEvents+3)
	for i := range list {
		list[i].at = time.UnixMilli(int64(i))
	}
	got := r.newest(list)
	if len(got) != maxEvents || got[0].at.UnixMilli() != 3 || len(r.notices) != 1 ||
		!strings.Contains(r.notices[0].Text, "3 of 503 events are left out, the oldest") {
		t.Errorf("%d events from %v, notices %v", len(got), got[0].at, r.notices)
	}
	if got := r.newest(list[:maxEvents]); len(got) != maxEvents || len(r.notices) != 1 {
		t.Errorf("%d events, notices %v", len(got), r.notices)
	}
}

// Steps stay under Prometheus' look-back and its 11,000 points at the longest range that the proxy
// allows; lots keep an answer small.
func TestEventStep(t *testing.T) {
	for _, c := range []struct{ length, step time.Duration }{
		{time.Hour, finest}, {24 * time.Hour, finest}, {7 * 24 * time.Hour, 61 * time.Second}, {31 * 24 * time.Hour, 268 * time.Second},
	} {
		r := &Run{From: time.UnixMilli(0), Until: time.UnixMilli(0).Add(c.length)}
		if got := r.eventStep(); got != c.step || got > 5*time.Minute || (c.length+got)/got+1 > 11_000 {
			t.Errorf("%s: step %s, want %s", c.length, got, c.step)
		}
		pods := make([]Pod, 1000)
		n := 0
		for _, lot := range lots(r, pods) {
			if n += len(lot); len(lot)*int(c.length/c.step) > pointsAtOnce {
				t.Errorf("%s: %d pods at once", c.length, len(lot))
			}
		}
		if n != len(pods) {
			t.Errorf("%s: %d of %d pods", c.length, n, len(pods))
		}
	}
}

// Names stand in events as they are: the front end escapes what Grafana shows as HTML.
func TestEventsArePlain(t *testing.T) {
	list := []event{{kind: "restart", at: time.UnixMilli(60_000), cluster: "a&b", experiment: "<e>", names: []string{"it's"}}}
	f := (&Run{}).eventFrames(list)[0]
	equal(t, "events", rowsOf(t, f, "title", "text", "tags"), []string{"A container started again it's of <e> in a&b restart,a&b,<e>"})
}

// A pod that failed before the range is seen as failed again when kube-state-metrics comes back:
// that is no failure of then. One that nobody can have seen before is.
func TestNoFailureAtTheEndOfAHole(t *testing.T) {
	for _, c := range []struct {
		from time.Duration
		want []string
	}{
		{45 * time.Minute, []string{"46m0s quick on a of e in d", "1h1m0s came on a of e in c", "1h15m0s new on a of e in c"}},
		{5 * time.Minute, []string{
			"20m0s old on a of e in c", "46m0s quick on a of e in d", "1h1m0s came on a of e in c", "1h15m0s new on a of e in c",
		}},
		{55 * time.Minute, []string{"1h15m0s new on a of e in c"}},
	} {
		f := worldOf(t, "hole").frames(t, settingsOf(t, ""), `{"queryType":"events"}`, c.from, 100*time.Minute)[0]
		equal(t, "failures since "+c.from.String(), rowsOf(t, f, "time", "text"), c.want)
	}
}
