package experiments

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

// busy answers as a site with so many experiments does, each in a namespace of its own, the first
// ones of which are there at the end of the range. Others are called as one of them in the
// namespace of another.
type busy struct{ live, ended, pods int }

var experimentOf = regexp.MustCompile(`experiment="e-(\d+)"`)

func (b busy) answer(query string) prom.Answer {
	var a prom.Answer
	add := func(i int, value float64, more ...string) {
		a.Series = append(a.Series, one(value, append(more, "cluster", "c", "namespace", fmt.Sprintf("n-%d", i),
			"experiment", fmt.Sprintf("e-%d", i), "team", "t")...))
	}
	if strings.Contains(query, " @ ") {
		for _, found := range experimentOf.FindAllStringSubmatch(query, -1) {
			i := 0
			if _, err := fmt.Sscan(found[1], &i); err == nil {
				add(i, 8)
			}
		}
		return a
	}
	past := strings.Contains(query, "_over_time(timestamp(experiment:pods:count")
	switch {
	case strings.Contains(query, nodesCounted):
	case strings.Contains(query, "kube_pod_created"):
		for i := range b.live {
			add(i, 600, "pod", fmt.Sprintf("p-%d", i), "uid", fmt.Sprintf("u-%d", i))
		}
	case strings.HasPrefix(query, "group by (cluster, namespace, pod"):
		for i := range b.live {
			add(i, 1, "pod", fmt.Sprintf("p-%d", i), "uid", fmt.Sprintf("u-%d", i))
			add(i, 1, "pod", "other", "uid", "other")
			a.Series[len(a.Series)-1].Labels["experiment"] = "e-0"
		}
	case strings.Contains(query, "kube_"), strings.HasPrefix(query, "group by"):
	default:
		for i := range b.live + b.ended {
			if past || i < b.live {
				value := float64(max(b.pods, 1))
				if strings.Contains(query, "timestamp(") { // of the ended ones the first were seen last
					value = 1_000_000 - float64(i)
				}
				add(i, value, "phase", "Running")
			}
		}
	}
	return a
}

// A table of many experiments is there, in however many namespaces they are; where there are too
// many for all details, those that were seen last have them.
func TestManyExperiments(t *testing.T) {
	for _, c := range []struct {
		busy
		detailed int
		says     string
	}{
		{busy{live: 250}, 250, ""},
		{busy{live: 250, pods: 100}, 250, "more than the 20000 pods that are looked at: for 50 of them, created and state may be wrong"},
		{busy{live: 40, ended: 960}, 1000, ""},
		{busy{ended: 2000}, 2000, ""},
		{busy{ended: 10_000}, 5000, "experiments that have ended are left out"},
	} {
		r := hourly(t, scripted(c.answer), `{"maxRows":10000}`, `{"queryType":"experiments"}`)
		r.From, r.Until = time.Unix(400_000, 0).UTC(), time.Unix(1_000_060, 0).UTC()
		frames, err := r.Do(t.Context())
		if err != nil {
			t.Errorf("%+v: %v", c.busy, err)
			continue
		}
		if n := c.live + c.ended; frames[0].Rows() != n {
			t.Errorf("%+v: %d rows", c.busy, frames[0].Rows())
		}
		detailed := 0
		for _, row := range rowsOf(t, frames[0], "experiment", "pods", "gpus") {
			if !strings.HasSuffix(row, " - -") {
				detailed++
			}
		}
		if detailed < c.detailed || c.says != "" && detailed == c.ended {
			t.Errorf("%+v: %d have their pods and GPUs", c.busy, detailed)
		}
		if got := noticesOf(r); (got != "") != (c.says != "") || !strings.Contains(got, c.says) {
			t.Errorf("%+v: notices %q", c.busy, got)
		}
		if c.live > 0 {
			first := rowsOf(t, frames[0], "experiment", "namespace", "state", "created")[:1]
			equal(t, "the first", first, []string{"e-0 n-0 running 10m0s"})
		}
		t.Logf("%+v: %d queries", c.busy, len(r.executed))
	}
}

// Nor does the table of pods that wait end where their queues are in many namespaces.
func TestQueuesOfManyNamespaces(t *testing.T) {
	var pods []prom.Series
	for i := range 250 {
		pods = append(pods, one(1, "cluster", "c", "namespace", fmt.Sprintf("n-%d", i), "pod", "p", "uid", fmt.Sprintf("u-%d", i),
			"experiment", "e", "label_kueue_x_k8s_io_queue_name", "q", "name", "q"))
	}
	r := hourly(t, scripted(func(query string) prom.Answer {
		switch {
		case strings.Contains(query, "kueue_local_queue_pending_workloads"), strings.Contains(query, "experiment:pod:info"),
			strings.Contains(query, "kube_pod_status_phase"), strings.Contains(query, "kube_pod_labels"):
			return of(pods...)
		}
		return of()
	}), "", `{"queryType":"pending"}`)
	frames, err := r.Do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rows := rowsOf(t, frames[0], "detail")
	const want = "Kueue has not let it in from the queue q, in which 1 workloads wait."
	if len(rows) != len(pods) || rows[0] != want || rows[249] != want {
		t.Errorf("%d rows, such as %q", len(rows), rows[0])
	}
}
