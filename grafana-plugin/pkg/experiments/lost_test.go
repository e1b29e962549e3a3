package experiments

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

// Where nothing is seen of a cluster any more, nobody knows whether what was there then has ended;
// what ended before has.
func TestLostCluster(t *testing.T) {
	w := worldOf(t, "lost")
	const said = `Nothing is seen in cluster "dark" since 1970-01-01 02:00:00 UTC`
	for _, until := range []time.Duration{140 * minute, 200 * minute} {
		r := w.run(t, settingsOf(t, ""), `{"queryType":"experiments"}`, 10*minute, until)
		frames, err := r.Do(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "experiments", rowsOf(t, frames[0], "experiment", "cluster", "state", "gpus", "seen"), []string{
			"e dark unknown 8 2h0m0s", "f light ended 8 2h0m0s", "done dark ended 8 1h0m0s",
		})
		if got := noticesOf(r); !strings.Contains(got, said) || strings.Contains(got, "light") {
			t.Errorf("notices of experiments: %q", got)
		}
		r = w.run(t, settingsOf(t, ""), `{"queryType":"pods"}`, 10*minute, until)
		if frames, err = r.Do(t.Context()); err != nil {
			t.Fatal(err)
		}
		equal(t, "pods", rowsOf(t, frames[0], "pod", "phase", "gpus"), []string{
			"p-0 Unknown 8", "p-2 Succeeded 0", "p-1 Gone 8", "q-0 Gone 8",
		})
		if got := noticesOf(r); !strings.Contains(got, said) || strings.Contains(got, "light") {
			t.Errorf("notices of pods: %q", got)
		}
		r = w.run(t, settingsOf(t, ""), `{"queryType":"compare","view":"summary","experiments":["e","f","done"]}`, 10*minute, until)
		if frames, err = r.Do(t.Context()); err != nil {
			t.Fatal(err)
		}
		equal(t, "runs", rowsOf(t, frames[0], "run", "ended", "duration"), []string{"e - 6000", "f 2h0m0s 6000", "done 1h0m0s 2400"})
		if got := noticesOf(r); !strings.Contains(got, said) || strings.Contains(got, "light") {
			t.Errorf("notices of runs: %q", got)
		}
	}
	// Before that, and where a list is chosen from.
	f := w.frames(t, settingsOf(t, ""), `{"queryType":"experiments"}`, 10*minute, 110*minute)[0]
	equal(t, "before", rowsOf(t, f, "experiment", "state"), []string{"e running", "f running", "done ended"})
	list, err := w.run(t, settingsOf(t, ""), `{"queryType":"experiments","experiments":["e"]}`, 10*minute, 140*minute).Recent(t.Context())
	if err != nil || len(list) != 1 || list[0].State != unknown {
		t.Errorf("%+v, %v", list, err)
	}
}

// Whatever is asked, a cluster that was lost in the range or before it is named, where what is
// chosen ran in it; an alert is not evaluated without it.
func TestWhateverIsAskedOfALostCluster(t *testing.T) {
	w := worldOf(t, "dark")
	const said = `Nothing is seen in cluster "dark"`
	for _, query := range []string{
		`"status"`, `"status","view":"over_time"`, `"pending"`, `"pods"`, `"experiments"`, `"nodes"`, `"cost"`, `"cost","view":"total"`,
		`"promql","expr":"sum(experiment:pods:count{$__experiment}) > 1e9"`, `"promql","instant":true,"expr":"up{${__experiment}}"`,
	} {
		for _, c := range []struct {
			from, until time.Duration
			chosen      string
			lost        bool
		}{
			{30 * minute, 140 * minute, "", true},
			{150 * minute, 200 * minute, "", true},
			{150 * minute, 200 * minute, `,"experiments":["e"]`, true},
			{150 * minute, 200 * minute, `,"experiments":["f"]`, false},
			{150 * minute, 200 * minute, `,"clusters":["light"]`, false},
			{30 * minute, 110 * minute, "", false},
		} {
			r := w.run(t, settingsOf(t, ""), `{"queryType":`+query+c.chosen+`}`, c.from, c.until)
			_, err := r.Do(t.Context())
			if got := noticesOf(r); err != nil || strings.Contains(got, said) != c.lost || strings.Count(got, "Nothing is seen") > 1 ||
				strings.Contains(got, "empty") {
				t.Errorf("%s%s until %s: %v, notices %q", query, c.chosen, c.until, err, got)
			}
			r = w.run(t, settingsOf(t, ""), `{"queryType":`+query+c.chosen+`}`, c.from, c.until)
			r.Alert = true
			if _, err := r.Do(t.Context()); (err != nil) != c.lost || err != nil && !strings.Contains(err.Error(), said) {
				t.Errorf("an alert on %s%s until %s: %v", query, c.chosen, c.until, err)
			}
		}
	}
}

// bounded asks as another one does, and refuses what looks back further than a proxy lets one.
type bounded struct {
	prom.Asker
	most time.Duration
}

func (b bounded) Instant(ctx context.Context, query string, at time.Time) (prom.Answer, error) {
	for _, found := range rangesOf.FindAllStringSubmatch(query, -1) {
		if d, err := time.ParseDuration(found[1] + found[2]); err != nil || d > b.most {
			return prom.Answer{}, &prom.Refusal{Status: http.StatusUnprocessableEntity, Bound: "max_range"}
		}
	}
	return b.Asker.Instant(ctx, query, at)
}

// Where the proxy does not let one look back a day, an alert over less is evaluated, and what was
// lost in its own range is told. Pods of a day are asked for where a cluster was lost in it alone.
func TestLostWhereADayIsRefused(t *testing.T) {
	w := worldOf(t, "dark")
	for _, c := range []struct {
		from, until time.Duration
		lost        bool
	}{{90 * minute, 110 * minute, false}, {110 * minute, 140 * minute, true}} {
		r := w.run(t, settingsOf(t, ""), `{"queryType":"status"}`, c.from, c.until)
		r.Alert, r.asker = true, bounded{w.asker, time.Hour}
		_, err := r.Do(t.Context())
		if (err != nil) != c.lost || err != nil && !strings.Contains(err.Error(), `Nothing is seen in cluster "dark"`) {
			t.Errorf("until %s: %v", c.until, err)
		}
	}
	for until, asked := range map[time.Duration]bool{110 * minute: false, 140 * minute: true} {
		r := w.run(t, settingsOf(t, ""), `{"queryType":"status"}`, until-10*minute, until)
		if _, err := r.Do(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := strings.Join(r.executed, "\n")
		if strings.Contains(got, `experiment:pods:count{cluster=~"dark|empty"}[86400s]`) != asked ||
			strings.Contains(got, "experiment:pods:count[86400s]") {
			t.Errorf("until %s: asked\n%s", until, got)
		}
	}
}
