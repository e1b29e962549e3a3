package live

import (
	"context"
	"errors"
	"flag"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/loadtest/cluster"
)

var gone = flag.Bool("live.gone", false, "takes each scrape job out of service discovery, one after the other")

// goneWithin is in what time of the rules it must fire that a job is gone. What is no faster in the
// rig than elsewhere is added: discovery asks every two seconds, and what the ruler records is read
// after at most fifteen.
const goneWithin, own = 10 * time.Minute / timeScale, 20 * time.Second

// besideGone are the alerts that come as well, and rightly, when a job is no longer discovered. All
// others are false.
var besideGone = map[string]map[string]string{
	cluster.JobAPIServer: {"KubeAPIServerNotMeasured": "that is what it says"},
	cluster.JobDCGM:      {"FleetGPUExporterMissing": "that is what it says", "GPUExporterMissing": "of each node"},
	cluster.JobKubeStateMetrics: {
		"KubeStateMetricsIncomplete": "that is what it says", "FleetUnseen": "that too, until Alertmanager holds it back",
	},
}

// TestScrapeJobsGone takes each job of the cluster out of service discovery, on real servers:
// within ten minutes of the rules' time it is told by its name, and nothing is told that is not so.
func TestScrapeJobsGone(t *testing.T) {
	if !*gone {
		t.Skip("takes 20 minutes; `make test-full` runs it, with -live.gone")
	}
	r := start(t, Options{
		Rules: rendered(t, values), TimeScale: timeScale, Interval: *interval, Quiet: 90 * time.Minute,
		Cluster: cluster.Options{Exporters: cluster.AllExporters},
	})
	var jobs []string
	for _, x := range r.World.Model().Targets() {
		if !slices.Contains(jobs, x.Job) {
			jobs = append(jobs, x.Job)
		}
	}
	if *only != "" {
		jobs = strings.Split(*only, ",")
	}
	j := &Judge{record: r.Record, quietAfter: lasting, timeScale: timeScale}
	for _, c := range []Case{teamless, starting, replicaDown} {
		j.expect(staged{Case: c, from: time.Now(), until: time.Now().Add(2 * time.Hour)})
	}
	// Two replicas hear of a job's end a second or two apart, which is a minute of the rules' time:
	// what they read would be compared and evaluated from series for all of the run.
	for s := range shards {
		r.KillReplica(s, 1)
	}
	// What is usual is looked at once an hour.
	time.Sleep(settle + 70*time.Minute/timeScale)
	for _, job := range jobs {
		want := "ScrapeJobGone"
		if job == cluster.JobPrometheus { // the rig's own servers are of it too, and stay
			want = "ScrapeTargetsGone"
		}
		from := time.Now()
		r.World.Hide(job)
		s := staged{
			Case:   Case{Name: job + " gone", Want: []string{want}, On: By("job"), Beside: besideGone[job]},
			target: job, from: from, until: from.Add(patience),
		}
		j.expect(s)
		ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errors.New("time is up"))
		if err := j.wait(ctx, []staged{s}); err != nil {
			t.Errorf("%v\n%s", err, r.tell(want))
		}
		cancel()
		for _, n := range r.Record.Since(from) {
			if n.Name() != want || !s.names(n) {
				continue
			}
			fired, told := n.StartsAt.Sub(from), n.At.Sub(from)
			t.Logf("%s: fires after %.1f s, of which %.0f are ten minutes of the rules' and %.0f the rig's own; told after %.1f (%s)",
				job, fired.Seconds(), goneWithin.Seconds(), own.Seconds(), told.Seconds(), n.Severity())
			if fired > goneWithin+own {
				t.Errorf("%s: fires after %s", job, fired.Round(time.Second))
			}
			break
		}
		time.Sleep(afterwards)
		report(t, r, job, from)
		r.World.Hide("")
		for end := time.Now().Add(lasting); time.Now().Before(end) && slices.ContainsFunc(r.Record.Firing(), func(n Notification) bool {
			_, beside := s.Beside[n.Name()]
			return beside || n.Name() == want
		}); {
			time.Sleep(time.Second)
		}
		if strays := j.Strays(from); len(strays) > 0 {
			t.Errorf("%s is gone, and nobody expected these alerts:\n%s", job, lines(strays))
		}
	}
}
