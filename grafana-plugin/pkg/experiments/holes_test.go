package experiments

import (
	"testing"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/data"
)

// Grafana draws a line over a hole unless the field of times says how far points are apart: each
// line of each type has that, and no two of its points are nearer, or all would stand alone.
func TestLinesTellTheirStep(t *testing.T) {
	for _, c := range []struct {
		world, query string
		interval     time.Duration
		from, until  time.Duration
		want         time.Duration
	}{
		{"gpus", `{"queryType":"gpu_timeseries"}`, time.Minute, 0, 100 * time.Minute, time.Minute},
		{"gpus", `{"queryType":"gpu_timeseries"}`, 15 * time.Second, 0, 20 * time.Minute, time.Minute},
		{"gpus", `{"queryType":"gpu_timeseries","groupBy":["node"]}`, 7 * time.Minute, 0, 100 * time.Minute, 7 * time.Minute},
		{"gpus", `{"queryType":"network"}`, time.Minute, 0, 100 * time.Minute, time.Minute},
		{"gpus", `{"queryType":"network"}`, 15 * time.Second, 0, 20 * time.Minute, 15 * time.Second},
		{"gpus", `{"queryType":"promql","expr":"experiment:gpu:util"}`, 15 * time.Second, 0, 20 * time.Minute, 15 * time.Second},
		{"pods", `{"queryType":"status","view":"over_time"}`, time.Minute, 0, 30 * time.Minute, time.Minute},
		{"compare", `{"queryType":"compare","experiments":["new","old","twice"]}`, 15 * time.Second, compareFrom, compareUntil, time.Minute},
		{"compare", `{"queryType":"compare","experiments":["new","old","twice"]}`, 7 * time.Minute, compareFrom, compareUntil, 7 * time.Minute},
	} {
		r := worldOf(t, c.world).run(t, settingsOf(t, ""), c.query, c.from, c.until)
		r.Interval = c.interval
		frames, err := r.Do(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range frames {
			if f.Meta.Type != data.FrameTypeTimeSeriesMulti || len(f.Fields) == 0 {
				t.Errorf("%s: a frame of type %s with %d fields", c.query, f.Meta.Type, len(f.Fields))
				continue
			}
			if config := f.Fields[0].Config; config == nil || config.Interval != float64(c.want.Milliseconds()) {
				t.Errorf("%s each %s: the times' config is %+v, want an interval of %s", c.query, c.interval, config, c.want)
			}
			at := values[time.Time](t, f, "Time")
			for i := 1; i < len(at); i++ {
				if d := at[i].Sub(at[i-1]); d < c.want || d%c.want != 0 {
					t.Fatalf("%s each %s: points are %s apart, want %s", c.query, c.interval, d, c.want)
				}
			}
		}
	}
}
