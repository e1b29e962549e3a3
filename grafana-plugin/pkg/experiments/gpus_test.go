package experiments

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/data"
)

// Frames of the world gpus.load are those of its first 100 minutes, unless a test says otherwise.
const (
	gpusFrom  = 0 * time.Minute
	gpusUntil = 100 * time.Minute
)

// rows are the rows of a table as text: numbers with four digits, times in minutes of the world,
// nothing as "-".
func rows(t testing.TB, f *data.Frame) []string {
	t.Helper()
	n, err := f.RowLen()
	if err != nil {
		t.Fatal(err)
	}
	out := make([]string, n)
	for i := range out {
		var cells []string
		for _, field := range f.Fields {
			v, ok := field.ConcreteAt(i)
			if !ok {
				v = "-"
			}
			switch v := v.(type) {
			case float64:
				cells = append(cells, fmt.Sprintf("%.4g", v))
			case time.Time:
				cells = append(cells, fmt.Sprintf("%gm", time.Duration(v.UnixNano()).Minutes()))
			default:
				cells = append(cells, fmt.Sprint(v))
			}
		}
		out[i] = strings.Join(cells, " | ")
	}
	return out
}

// columns are the names of a table's fields.
func columns(f *data.Frame) string {
	var out []string
	for _, field := range f.Fields {
		out = append(out, field.Name)
	}
	return strings.Join(out, " ")
}

// lines are time series as text: the labels and legend of each, the number of points and the first
// and last of them.
func lines(t testing.TB, frames data.Frames) []string {
	t.Helper()
	var out []string
	for _, f := range frames {
		if len(f.Fields) == 0 {
			continue
		}
		times, vs := values[time.Time](t, f, "Time"), values[float64](t, f, "Value")
		at := func(i int) string {
			return fmt.Sprintf("%gm %.4g", time.Duration(times[i].UnixNano()).Minutes(), vs[i])
		}
		v := f.Fields[1]
		out = append(out, fmt.Sprintf("%s %q %s: %d from %s to %s", v.Labels, v.Config.DisplayNameFromDS, v.Config.Unit, len(vs), at(0),
			at(len(vs)-1)))
	}
	return out
}

// numbers are the frames of numeric-multi as text.
func numbers(t testing.TB, frames data.Frames) []string {
	t.Helper()
	var out []string
	for _, f := range frames {
		if len(f.Fields) > 0 {
			out = append(out, fmt.Sprintf("%s %.4g %s", f.Fields[0].Labels, values[float64](t, f, "Value")[0], f.Fields[0].Config.Unit))
		}
	}
	return out
}

func equal(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestGPUTimeSeries(t *testing.T) {
	w := worldOf(t, "gpus")
	for _, c := range []struct {
		name, settings, query string
		want                  []string
		notice                string
	}{
		{
			"of an experiment in two clusters", "", `{"experiments":["llama"]}`,
			[]string{`experiment=llama "llama" percent: 91 from 10m 81 to 100m 65.67`},
			"",
		},
		{
			"one cluster", "", `{"experiments":["llama"],"clusters":["us-1"],"metric":"util","groupBy":["cluster","cluster"]}`,
			[]string{`cluster=us-1 "us-1" percent: 91 from 10m 93 to 100m 93`},
			"",
		},
		{
			"no team", "", `{"experiments":["tiny"],"groupBy":["team"]}`,
			[]string{`team=unassigned "unassigned" percent: 91 from 10m 50 to 100m 50`},
			"",
		},
		{
			"the highest two", "", `{"experiments":["llama"],"groupBy":["cluster","node","gpu"],"rank":"top","k":2}`,
			[]string{
				`cluster=us-1, gpu=0, node=gpu-a "us-1 gpu-a GPU 0" percent: 91 from 10m 94 to 100m 94`,
				`cluster=us-1, gpu=1, node=gpu-a "us-1 gpu-a GPU 1" percent: 91 from 10m 92 to 100m 92`,
			},
			"",
		},
		{
			// Matchers of the three lines by node and GPU also select GPU 0 of gpu-a.
			"the lowest three", "", `{"experiments":["llama"],"clusters":["eu-1"],"groupBy":["node","gpu"],"rank":"bottom","k":3}`,
			[]string{
				`gpu=1, node=gpu-a "gpu-a GPU 1" percent: 91 from 10m 30 to 100m 30`,
				`gpu=0, node=gpu-c "gpu-c GPU 0" percent: 36 from 65m 88 to 100m 88`,
				`gpu=1, node=gpu-c "gpu-c GPU 1" percent: 36 from 65m 0 to 100m 0`,
			},
			"",
		},
		{
			"more than may be drawn", `{"maxSeries":1}`, `{"experiments":["llama"],"groupBy":["cluster"]}`,
			[]string{`cluster=us-1 "us-1" percent: 91 from 10m 93 to 100m 93`},
			"1 of 2 series are shown, those with the highest average; group by fewer labels, choose fewer experiments, or raise the datasource's maxSeries.",
		},
		{
			"another metric", "", `{"experiments":["llama"],"metric":"temp","groupBy":["gpu"],"rank":"top","k":1}`,
			[]string{`gpu=0 "GPU 0" celsius: 91 from 10m 70 to 100m 70`},
			"",
		},
		{
			"a hostile name selects itself", "", `{"experiments":["evil.*|\"<b>{}\n$__experiment"]}`,
			[]string{`experiment=evil.*|"<b>{}` + "\n" + `$__experiment "evil.*|\"<b>{}\n$__experiment" percent: 91 from 10m 10 to 100m 10`},
			"",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			frames, err := gpuTimeSeries(t.Context(),
				w.run(t, settingsOf(t, c.settings), `{"queryType":"gpu_timeseries",`+c.query[1:], gpusFrom, gpusUntil))
			if err != nil {
				t.Fatal(err)
			}
			equal(t, "lines", lines(t, frames), c.want)
			for _, f := range frames {
				if f.Meta.Type != data.FrameTypeTimeSeriesMulti {
					t.Errorf("a frame of type %s", f.Meta.Type)
				}
			}
			r := w.run(t, settingsOf(t, c.settings), `{"queryType":"gpu_timeseries",`+c.query[1:], gpusFrom, gpusUntil)
			if _, err := gpuTimeSeries(t.Context(), r); err != nil {
				t.Fatal(err)
			}
			if got := noticesOf(r); got != c.notice {
				t.Errorf("notices %q, want %q", got, c.notice)
			}
		})
	}
}

func noticesOf(r *Run) string {
	var out []string
	for _, n := range r.notices {
		out = append(out, n.Text)
	}
	return strings.Join(out, "\n")
}

// Of a range longer than lookPoints intervals the mean is one of so many points, and the steps of
// the lines are longer.
func TestLongRanges(t *testing.T) {
	w := worldOf(t, "gpus")
	r := w.run(t, settingsOf(t, ""), `{"queryType":"gpu_timeseries","experiments":["llama"],"clusters":["us-1"]}`, -24*time.Hour, gpusUntil)
	frames, err := gpuTimeSeries(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "lines", lines(t, frames), []string{`experiment=llama "llama" percent: 6 from 15.4m 93 to 92.4m 93`})
	if q := strings.Join(r.executed, "\n"); !strings.Contains(q, "[92400s:257s]") {
		t.Errorf("queries without a subquery of 360 points:\n%s", q)
	}
}

func TestStragglers(t *testing.T) {
	w := worldOf(t, "gpus")
	all := []string{
		"eu-1 | gpu-c | 1 | GPU-eu-c1 | llama-w-1 | 0 | 89 | 0",
		"eu-1 | gpu-a | 1 | GPU-eu-a1 | llama-w-0 | 30 | 89.65 | 0.3346",
	}
	for _, c := range []struct {
		name, settings, query string
		until                 time.Duration
		want                  []string
		notice                string
	}{
		{"of both clusters", "", `"experiments":["llama"]`, gpusUntil, all, ""},
		{"each experiment by itself", "", `"experiments":["llama","tiny"]`, gpusUntil, all, ""},
		{"not so far below", `{"stragglerBelow":0.2}`, `"experiments":["llama"]`, gpusUntil, all[:1], ""},
		{"one row", "", `"experiments":["llama"],"limit":1`, gpusUntil, all[:1], "1 of 2 GPUs are left out; choose fewer experiments, or raise the query's limit or the datasource's maxRows."},
		{
			// At minute 70 gpu-c was held for six minutes of 61.
			"came a moment ago", "", `"experiments":["llama"]`, 70 * time.Minute,
			[]string{"eu-1 | gpu-a | 1 | GPU-eu-a1 | llama-w-0 | 30 | 89.98 | 0.3334"},
			"2 GPUs are left out, which were held for less than 25 % of the time that others of their experiment were.",
		},
		{"none", "", `"experiments":["tiny"]`, gpusUntil, nil, "No GPU is below 80 % of the median of its experiment."},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := w.run(t, settingsOf(t, c.settings), `{"queryType":"stragglers",`+c.query+`}`, gpusFrom, c.until)
			frames, err := stragglers(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := columns(frames[0]), "cluster node gpu UUID pod value median share"; got != want {
				t.Errorf("columns %s, want %s", got, want)
			}
			equal(t, "rows", rows(t, frames[0]), c.want)
			if got := noticesOf(r); got != c.notice {
				t.Errorf("notices %q, want %q", got, c.notice)
			}
		})
	}
}
