package experiments

import (
	"strings"
	"testing"
	"time"
)

func TestNetwork(t *testing.T) {
	w := worldOf(t, "gpus")
	for _, c := range []struct {
		name, settings, query string
		want                  []string
		notice                string
	}{
		{"recorded", "", `"experiments":["llama"],"clusters":["eu-1"]`, []string{
			`cluster=eu-1, direction=received, node=gpu-a "eu-1 gpu-a received" Bps: 101 from 0m 300 to 100m 300`,
			`cluster=eu-1, direction=transmitted, node=gpu-a "eu-1 gpu-a transmitted" Bps: 101 from 0m 150 to 100m 150`,
			`cluster=eu-1, direction=received, node=gpu-c "eu-1 gpu-c received" Bps: 101 from 0m 100 to 100m 100`,
			`cluster=eu-1, direction=transmitted, node=gpu-c "eu-1 gpu-c transmitted" Bps: 101 from 0m 50 to 100m 50`,
		}, ""},
		{"the node with the least", "", `"experiments":["llama"],"rank":"bottom","k":1`, []string{
			`cluster=eu-1, direction=received, node=gpu-c "eu-1 gpu-c received" Bps: 101 from 0m 100 to 100m 100`,
			`cluster=eu-1, direction=transmitted, node=gpu-c "eu-1 gpu-c transmitted" Bps: 101 from 0m 50 to 100m 50`,
		}, ""},
		{"more than may be drawn", `{"maxSeries":3}`, `"experiments":["llama"]`, []string{
			`cluster=eu-1, direction=received, node=gpu-a "eu-1 gpu-a received" Bps: 101 from 0m 300 to 100m 300`,
			`cluster=eu-1, direction=transmitted, node=gpu-a "eu-1 gpu-a transmitted" Bps: 101 from 0m 150 to 100m 150`,
		}, "1 of 3 nodes are shown, those with the highest average; group by fewer labels, choose fewer experiments, or raise the datasource's maxSeries."},
		// Not recorded: 600 and 60 bytes a minute on two interfaces; those of InfiniBand and the
		// loopback do not count.
		{"raw", "", `"experiments":["tiny"],"view":"ethernet"`, []string{
			`cluster=eu-1, direction=received, node=gpu-a "eu-1 gpu-a received" Bps: 100 from 1m 2.2 to 100m 11`,
			`cluster=eu-1, direction=transmitted, node=gpu-a "eu-1 gpu-a transmitted" Bps: 100 from 1m 4.4 to 100m 22`,
		}, ""},
		{"without DCGM's signs for no value", "", `"experiments":["llama"],"view":"nvlink"`, []string{
			`cluster=us-1, direction=received, node=gpu-a "us-1 gpu-a received" Bps: 101 from 0m 1e+10 to 100m 1e+10`,
			`cluster=us-1, direction=transmitted, node=gpu-a "us-1 gpu-a transmitted" Bps: 101 from 0m 1.4e+10 to 100m 1.4e+10`,
		}, ""},
		{"errors, none too", "", `"experiments":["llama"],"view":"errors"`, []string{
			`cluster=eu-1, direction=link down, node=gpu-a "eu-1 gpu-a link down" cps: 100 from 1m 0 to 100m 0`,
			`cluster=eu-1, direction=link recovered, node=gpu-a "eu-1 gpu-a link recovered" cps: 100 from 1m 0.04 to 100m 0.2`,
			`cluster=eu-1, direction=received, node=gpu-a "eu-1 gpu-a received" cps: 100 from 1m 0 to 100m 0`,
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := w.run(t, settingsOf(t, c.settings), `{"queryType":"network",`+c.query+`}`, gpusFrom, gpusUntil)
			frames, err := network(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "lines", lines(t, frames), c.want)
			if got := noticesOf(r); got != c.notice {
				t.Errorf("notices %q, want %q", got, c.notice)
			}
			if c.name == "raw" && !strings.Contains(strings.Join(r.executed, "\n"), "node:ethernet_received_bytes:rate5m") {
				t.Error("the recorded series were not asked for first")
			}
		})
	}
}

// Of the nodes of which nothing is recorded the raw rates are drawn, also beside others.
func TestNetworkRecordedInOneCluster(t *testing.T) {
	w := worldOf(t, "wired")
	frames := w.frames(t, settingsOf(t, ""), `{"queryType":"network","experiments":["e"],"view":"ethernet"}`, 10*minute, 60*minute)
	equal(t, "lines", lines(t, frames), []string{
		`cluster=eu-1, direction=received, node=e "eu-1 e received" Bps: 51 from 10m 20 to 60m 20`,
		`cluster=eu-1, direction=transmitted, node=e "eu-1 e transmitted" Bps: 51 from 10m 10 to 60m 10`,
		`cluster=us-1, direction=received, node=u "us-1 u received" Bps: 51 from 10m 100 to 60m 100`,
		`cluster=us-1, direction=transmitted, node=u "us-1 u transmitted" Bps: 51 from 10m 50 to 60m 50`,
	})
	r := w.run(t, settingsOf(t, ""), `{"queryType":"network","experiments":["e"],"view":"ethernet"}`, 10*minute, 60*minute)
	if _, err := network(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	for _, q := range r.executed {
		if strings.Contains(q, "node_network_") && strings.Contains(q, `"us-1"`) {
			t.Errorf("what is recorded is asked for raw: %s", q)
		}
	}
}

// The traffic of a GPU that pods share counts once, though each of them has a series of it.
func TestNetworkOfSharedGPU(t *testing.T) {
	frames := worldOf(t, "timesliced").frames(t, settingsOf(t, ""), `{"queryType":"network","experiments":["e"],"view":"nvlink"}`, 10*minute, 60*minute)
	equal(t, "lines", lines(t, frames), []string{
		`cluster=c, direction=received, node=n "c n received" Bps: 51 from 10m 5e+09 to 60m 5e+09`,
		`cluster=c, direction=transmitted, node=n "c n transmitted" Bps: 51 from 10m 7e+09 to 60m 7e+09`,
	})
}

// A link that went down between two points of a long range is seen at the later one, and its node
// is among those with most errors.
func TestErrorsBetweenPoints(t *testing.T) {
	w := worldOf(t, "errors")
	r := w.run(t, settingsOf(t, ""), `{"queryType":"network","experiments":["e"],"view":"errors","rank":"top","k":1}`, 0, 4*24*time.Hour)
	r.MaxPoints = 10
	frames, err := network(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, f := range frames {
		l := f.Fields[1].Labels
		if l["node"] != "bad" {
			t.Errorf("%v has most errors", l)
		}
		times, vs := values[time.Time](t, f, "Time"), values[float64](t, f, "Value")
		for i, v := range vs {
			if v == 0 {
				continue
			}
			seen++
			if at := time.Duration(times[i].UnixNano()); l["direction"] != "link down" || at < 31*time.Hour || at > 31*time.Hour+r.Step() {
				t.Errorf("%v at %s: %v", l, at, v)
			}
		}
	}
	if seen != 1 {
		t.Errorf("the error is seen at %d points", seen)
	}
}

// An error minutes before the end of a week ranks its node, though the looks of a ranking stand at
// multiples of their step, and the last of them was before it.
func TestErrorsAfterTheLastLook(t *testing.T) {
	const query = `{"queryType":"network","experiments":["e"],"view":"errors","rank":"top","k":1}`
	for _, f := range worldOf(t, "lasterrors").frames(t, settingsOf(t, ""), query, 12*time.Minute, 10092*time.Minute) {
		if l := f.Fields[1].Labels; l["node"] != "bad" {
			t.Errorf("%v has most errors", l)
		}
	}
}
