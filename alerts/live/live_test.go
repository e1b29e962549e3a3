package live

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/realprom/realpromtest"
	mixin "github.com/spillwayproject/spillway/jsonnet"
	"github.com/spillwayproject/spillway/loadtest/cluster"
	"github.com/spillwayproject/spillway/relabel"
	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/relabeltest"
)

var (
	all      = flag.Bool("live.all", false, "stages every trouble of the table, with all replicas up and with one down; without it those of `make test`")
	interval = flag.Duration("live.interval", time.Second, "scrape interval")
	drop     = flag.Bool("live.relabel", false, "gives every server the drop rules that are made from the mixin's own use")
	only     = flag.String("live.only", "", "stages only the cases of these names, with commas between them")
)

const (
	// timeScale divides every duration of the rules.
	timeScale = 30
	// settle is how long everything runs before it is judged: a range of five minutes is ten
	// seconds, and what the ruler records is read after at most fifteen more.
	settle = 20 * time.Second
	// patience bounds the wait for one wave's alerts beyond the length of its cases.
	patience = 45 * time.Second
	// lasting is how long consequences may go on after the end of a trouble: the ranges of rules,
	// and until Alertmanager has been told.
	lasting = 45 * time.Second
	// starved is the number of scrapes given up in one wave from which its result counts for
	// nothing; tries is how often a wave is staged then.
	starved, tries = 10, 3
	// afterwards is how long is watched for strays once every wanted alert has come.
	afterwards = 12 * time.Second
)

// values stand in place of the mixin's defaults. Groups are evaluated each two seconds: each second
// would be hundreds of queries a second on two cores. Shares of a fleet of twelve nodes are coarse:
// one node is eight per cent of it, so what is a fleet begins higher.
var values = map[string]any{
	"timeScale":          timeScale,
	"evaluationInterval": "1m",
	"thresholds": map[string]any{"fleet": map[string]any{
		"notReady": 0.25, "unreachable": 0.25, "gpuUnhealthy": 0.25,
		"gpuUnmeasured": 0.25, "gpuHotNodesShare": 0.25,
	}},
}

// rendered is the mixin for the rig.
func rendered(t *testing.T, values map[string]any) Rules {
	t.Helper()
	var o mixin.Options
	if values != nil {
		text, err := json.Marshal(values)
		if err != nil {
			t.Fatal(err)
		}
		o.Config = filepath.Join(t.TempDir(), "values.json")
		if err := os.WriteFile(o.Config, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files, err := mixin.Render(o)
	if err != nil {
		t.Fatal(err)
	}
	r := Rules{Global: map[string][]byte{}, Shard: map[string][]byte{}}
	for name, b := range files {
		if base, ok := strings.CutPrefix(name, "alerts/global/"); ok {
			r.Global[base] = b
		}
		if base, ok := strings.CutPrefix(name, "alerts/shard/"); ok {
			r.Shard[base] = b
		}
	}
	return r
}

// start starts the rig and ends it with the test; what its processes logged is printed if the test
// failed.
func start(t *testing.T, o Options) *Rig {
	t.Helper()
	bin := realpromtest.Spillway(t)
	began := time.Now()
	o.Dir, o.Spillway = t.TempDir(), bin
	o.Say = func(format string, args ...any) {
		t.Helper()
		t.Logf("%6.1fs  "+format, append([]any{time.Since(began).Seconds()}, args...)...)
	}
	r, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := r.Stop()
		if t.Failed() {
			t.Logf("logs of the processes:\n%s", r.Tail(25))
		}
		if err != nil {
			t.Error(err)
		}
	})
	return r
}

// TestTroublesRaiseTheirAlerts stages the troubles of the table on real servers: with all replicas
// up, with one down, and then takes a whole shard away.
func TestTroublesRaiseTheirAlerts(t *testing.T) {
	plan := waves(Cases)
	if !*all {
		plan = [][]Case{slices.DeleteFunc(slices.Clone(Cases), func(c Case) bool { return !c.Short })}
	}
	if *only != "" {
		names := strings.Split(*only, ",")
		plan = [][]Case{slices.DeleteFunc(slices.Clone(Cases), func(c Case) bool { return !slices.Contains(names, c.Name) })}
		if len(plan[0]) != len(names) {
			t.Fatalf("%d of these cases are in the table: %q", len(plan[0]), names)
		}
	}
	o := Options{
		Rules: rendered(t, values), TimeScale: timeScale, Interval: *interval, Quiet: time.Hour,
		Cluster: cluster.Options{Exporters: cluster.AllExporters},
	}
	if *drop {
		o.Drop = func(blocks string) (*relabel.Plan, error) {
			src, err := inventory.Blocks(blocks)
			if err != nil {
				return nil, err
			}
			return relabeltest.Plan(t, "../..", clusterName, src, time.Now()), nil
		}
	}
	r := start(t, o)
	j := &Judge{record: r.Record, quietAfter: lasting, timeScale: timeScale}
	if now := time.Now(); slices.ContainsFunc(r.World.Model().Experiments(now, now),
		func(e cluster.Experiment) bool { return e.Team == "" }) {
		j.expect(staged{Case: teamless, from: now, until: now.Add(2 * time.Hour)})
	}
	j.expect(staged{Case: starting, from: time.Now(), until: time.Now().Add(2 * time.Hour)})
	j.expect(staged{Case: beginning, from: time.Now(), until: time.Now().Add(settle)})
	time.Sleep(settle)
	r.remember(t, patience)

	both := func(what string, shift int) {
		for i, w := range plan {
			what := fmt.Sprintf("%s, wave %d", what, i+1)
			for try := 1; ; try++ {
				before := r.World.GivenUp()
				problems := runWave(t, r, j, what, w, shift+2*try)
				missed := r.World.GivenUp() - before
				if missed > starved && try < tries && len(problems) > 0 {
					t.Logf("%s: %d scrapes were given up, so the machine is too busy to tell; once more. It would have been:\n%s", what, missed, strings.Join(problems, "\n"))
					continue
				}
				for _, p := range problems {
					t.Errorf("%s (%d scrapes were given up): %s", what, missed, p)
				}
				break
			}
		}
	}
	both("all replicas up", 0)
	r.KillReplica(1, 0)
	j.expect(staged{Case: replicaDown, from: time.Now(), until: time.Now().Add(time.Hour)})
	both("one replica down", 1)

	from := time.Now()
	r.KillReplica(1, 1)
	gone := staged{Case: shardDown, from: from, until: from.Add(time.Hour)}
	j.expect(gone)
	ctx, cancel := context.WithTimeoutCause(t.Context(), patience, errors.New("the shard's own alert took too long"))
	defer cancel()
	if err := j.wait(ctx, []staged{gone}); err != nil {
		t.Errorf("one shard down: %v", err)
	}
	time.Sleep(afterwards)
	report(t, r, "one shard down", from)
	if strays := j.Strays(from); len(strays) > 0 {
		t.Errorf("one shard down: nobody expected these alerts:\n%s", lines(strays))
	}
}

// runWave stages cases together, waits for their alerts and a little longer, and returns what is
// wrong. shift moves them to other nodes.
func runWave(t *testing.T, r *Rig, j *Judge, what string, cases []Case, shift int) (problems []string) {
	t.Helper()
	from := time.Now().Add(time.Second)
	var on []staged
	end := from
	for n, c := range cases {
		s, err := r.World.stage(c, (n+shift)%r.World.Options().Nodes, from)
		if err != nil {
			problems = append(problems, err.Error())
			continue
		}
		on = append(on, s)
		if s.until.After(end) {
			end = s.until
		}
	}
	j.expect(on...)
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Until(end)+patience, errors.New("time is up"))
	defer cancel()
	if err := j.wait(ctx, on); err != nil {
		problems = append(problems, err.Error())
		for _, s := range on {
			for _, name := range s.missing(r.Record.Since(s.from)) {
				problems = append(problems, name+":\n"+r.tell(name))
			}
		}
	}
	time.Sleep(afterwards)
	// The next wave, and the same one again, must find the alerts gone.
	time.Sleep(max(0, time.Until(end)))
	r.settled(t, cases, lasting)
	report(t, r, what, from)
	if strays := j.Strays(from); len(strays) > 0 {
		problems = append(problems, "nobody expected these alerts:\n"+lines(strays))
	}
	return problems
}

// settled waits until nothing fires that the cases wanted. What else a trouble brings may go on,
// and is expected (Judge): the gauge of the last Xid keeps its alert for as long as the wave lasts.
func (r *Rig) settled(t *testing.T, cases []Case, atMost time.Duration) {
	t.Helper()
	deadline := time.After(atMost)
	for {
		changed := r.Record.changed()
		firing := slices.DeleteFunc(r.Record.Firing(), func(n Notification) bool {
			return !slices.ContainsFunc(cases, func(c Case) bool { return slices.Contains(c.Want, n.Name()) })
		})
		if len(firing) == 0 {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Logf("still firing after %s:\n%s", atMost, lines(firing))
			return
		}
	}
}

// remember waits until each replica has recorded every card as one that was there before. A group
// of five minutes is evaluated at an offset that Prometheus draws from its file's path, so that is
// ten to twenty-four seconds after the start; a card that is lost sooner is not missed by design.
func (r *Rig) remember(t *testing.T, atMost time.Duration) {
	t.Helper()
	const query = `count(gpu:seen:bool) - (count(gpu:seen:bool and on (cluster, node, UUID) gpu:settled:bool) or vector(0))`
	ctx, cancel := context.WithTimeoutCause(t.Context(), atMost, errors.New("not every card was recorded as settled"))
	defer cancel()
	client := &http.Client{}
	defer client.CloseIdleConnections()
	for _, urls := range r.Replicas {
		for _, url := range urls {
			for {
				v, err := asker{url, client}.instant(ctx, query, time.Now())
				if err == nil && len(v) == 1 && v[0].Value == 0 {
					break
				}
				select {
				case <-ctx.Done():
					t.Fatalf("%s: %v: %v, %v", url, context.Cause(ctx), v, err)
				case <-time.After(200 * time.Millisecond):
				}
			}
		}
	}
}

func report(t *testing.T, r *Rig, what string, from time.Time) {
	t.Helper()
	for _, n := range r.Record.Since(from) {
		if n.Name() != always {
			r.opts.Say("%s: after %.1fs %s", what, n.At.Sub(from).Seconds(), n)
		}
	}
}

func lines(ns []Notification) string {
	var b strings.Builder
	for _, n := range ns {
		fmt.Fprintf(&b, "  %s\n", n)
	}
	return b.String()
}

// tell is what the ruler and the Prometheus servers say about an alert.
func (r *Rig) tell(alert string) string {
	var b strings.Builder
	servers := []string{r.Ruler}
	for _, urls := range r.Replicas {
		servers = append(servers, urls[:]...)
	}
	client := &http.Client{Timeout: 5 * time.Second}
	defer client.CloseIdleConnections()
	for _, url := range servers {
		res, err := client.Get(url + "/api/v1/rules?type=alert")
		if err != nil {
			fmt.Fprintf(&b, "  %v\n", err)
			continue
		}
		var answer struct {
			Data struct {
				Groups []struct {
					Rules []map[string]any
				}
			}
		}
		err = json.NewDecoder(io.LimitReader(res.Body, 64<<20)).Decode(&answer)
		res.Body.Close()
		if err != nil {
			fmt.Fprintf(&b, "  %s: %v\n", url, err)
			continue
		}
		for _, g := range answer.Data.Groups {
			for _, rule := range g.Rules {
				if rule["name"] == alert {
					fmt.Fprintf(&b, "  %s: state %v, health %v, error %v, took %v s, alerts %v\n    %v\n", url, rule["state"], rule["health"], rule["lastError"], rule["evaluationTime"], rule["alerts"], rule["query"])
				}
			}
		}
	}
	return b.String()
}
