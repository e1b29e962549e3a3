package experiments

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/data"
)

// TestShortRanges: a panel that is shorter than the interval at which rules record, whose range has
// no recorded sample in it, shows what a longer one shows of that time.
func TestShortRanges(t *testing.T) {
	const from, until = 100*time.Minute + 15*time.Second, 100*time.Minute + 45*time.Second
	settings := settingsOf(t, "")
	for _, c := range []struct {
		world, query string
		rows         int
	}{
		{"gpus", `{"queryType":"pods","experiments":["llama"]}`, 3},
		{"gpus", `{"queryType":"nodes","experiments":["llama"]}`, 3},
		{"gpus", `{"queryType":"stragglers","experiments":["llama"]}`, 2},
		{"gpus", `{"queryType":"gpu_health","experiments":["llama"]}`, 3},
		{"gpus", `{"queryType":"cost","experiments":["llama"]}`, 2},
		{"gpus", `{"queryType":"gpu_timeseries","experiments":["llama"],"groupBy":["cluster","node","gpu"]}`, 6},
		{"gpus", `{"queryType":"network","experiments":["llama"]}`, 1},
		{"pods", `{"queryType":"experiments","search":"llama"}`, 1},
		{"pods", `{"queryType":"status","view":"over_time"}`, 1},
	} {
		frames := worldOf(t, c.world).frames(t, settings, c.query, from, until)
		rows := 0
		for _, f := range frames {
			if frames[0].Meta.Type != data.FrameTypeTimeSeriesMulti {
				rows += f.Rows()
				continue
			}
			if len(f.Fields) == 0 {
				continue // the frame of no lines
			}
			// Drawn within the panel.
			inside := slices.ContainsFunc(values[time.Time](t, f, "Time"), func(at time.Time) bool {
				return !at.Before(time.UnixMilli(0).Add(from)) && !at.After(time.UnixMilli(0).Add(until))
			})
			if inside {
				rows++
			}
		}
		if rows < c.rows || strings.Contains(c.query, "llama") && c.world == "gpus" && !strings.Contains(c.query, "network") &&
			rows != c.rows {
			t.Errorf("%s: %d rows or lines, want %d; %q", c.query, rows, c.rows, notices(frames[0]))
		}
	}
	// Half a minute of six GPUs.
	f := worldOf(t, "gpus").frames(t, settings, `{"queryType":"cost","view":"total","experiments":["llama"]}`, from, until)
	for _, n := range f {
		hours, err := n.Fields[0].FloatAt(0)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]float64{"gpu_hours": 6 * 0.5 / 60, "idle_gpu_hours": 0.5 / 60}[n.Fields[0].Labels["what"]]
		if math.Abs(hours-want) > 1e-9 {
			t.Errorf("%s is %v, want %v", n.Fields[0].Labels["what"], hours, want)
		}
	}
}
