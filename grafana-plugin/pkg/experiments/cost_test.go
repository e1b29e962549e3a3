package experiments

import (
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

func TestCost(t *testing.T) {
	w := worldOf(t, "gpus")
	const (
		prices = `{"prices":{"NVIDIA H100 80GB HBM3":2,"NVIDIA H200":3},"currency":"EUR"}`
		h100   = "NVIDIA H100 80GB HBM3"
	)
	for _, c := range []struct {
		name, settings, query, columns string
		want                           []string
		notice                         string
	}{
		{
			// 91, 51 and 36 minutes of two GPUs each; one of them is idle for 36 minutes. In us-1
			// the model's name comes from the node's labels, with dashes.
			"prices", prices, `"experiments":["llama"]`, "team experiment cluster model gpu_hours idle_gpu_hours idle_share cost",
			[]string{
				"vision | llama | eu-1 | " + h100 + " | 5.933 | 0.6 | 0.1011 | 11.87",
				"vision | llama | us-1 | NVIDIA-H200 | 3.033 | 0 | 0 | 9.1",
			},
			"",
		},
		{
			"no prices, no team", "", `"experiments":["tiny"]`, "team experiment cluster model gpu_hours idle_gpu_hours idle_share",
			[]string{"unassigned | tiny | eu-1 | " + h100 + " | 1.517 | 0 | 0"},
			"",
		},
		{
			"a model without a price", `{"prices":{"NVIDIA H200":3}}`, `"experiments":["llama"]`, "team experiment cluster model gpu_hours idle_gpu_hours idle_share cost",
			[]string{
				"vision | llama | eu-1 | " + h100 + " | 5.933 | 0.6 | 0.1011 | -",
				"vision | llama | us-1 | NVIDIA-H200 | 3.033 | 0 | 0 | 9.1",
			},
			"There is no price for " + h100 + ", so that its cost is left out; add it to the datasource's prices, or a price for default.",
		},
		{
			"everything else costs the default, and idle begins higher", `{"prices":{"default":1},"idleBelow":40}`, `"experiments":["llama"],"clusters":["eu-1"]`,
			"team experiment cluster model gpu_hours idle_gpu_hours idle_share cost",
			[]string{"vision | llama | eu-1 | " + h100 + " | 5.933 | 2.117 | 0.3567 | 5.933"},
			"",
		},
		{
			"as much as the limit is no idleness", `{"idleBelow":30}`, `"experiments":["llama"],"clusters":["eu-1"]`, "team experiment cluster model gpu_hours idle_gpu_hours idle_share",
			[]string{"vision | llama | eu-1 | " + h100 + " | 5.933 | 0.6 | 0.1011"},
			"",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := w.run(t, settingsOf(t, c.settings), `{"queryType":"cost",`+c.query+`}`, gpusFrom, gpusUntil)
			frames, err := cost(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			if got := columns(frames[0]); got != c.columns {
				t.Errorf("columns %s, want %s", got, c.columns)
			}
			equal(t, "rows", rows(t, frames[0]), c.want)
			if got := noticesOf(r); got != c.notice {
				t.Errorf("notices %q, want %q", got, c.notice)
			}
			if c.name == "prices" {
				golden(t, "cost", frames)
			}
		})
	}
	t.Run("total", func(t *testing.T) {
		frames, err := cost(t.Context(), w.run(t, settingsOf(t, prices), `{"queryType":"cost","experiments":["llama"],"view":"total"}`, gpusFrom, gpusUntil))
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "numbers", numbers(t, frames),
			[]string{"what=cost 20.97 currencyEUR", "what=gpu_hours 8.967 suffix: h", "what=idle_gpu_hours 0.6 suffix: h"})
		frames, err = cost(t.Context(), w.run(t, settingsOf(t, ""), `{"queryType":"cost","experiments":["llama"],"view":"total"}`, gpusFrom, gpusUntil))
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "numbers without prices", numbers(t, frames),
			[]string{"what=gpu_hours 8.967 suffix: h", "what=idle_gpu_hours 0.6 suffix: h"})
	})
}

// Parts of a card are idle for parts of an hour; of what is not measured nothing is, and a notice
// says how much that is.
func TestIdlePartsOfCards(t *testing.T) {
	w := worldOf(t, "shared")
	for _, c := range []struct{ experiment, want, notice string }{
		// A quarter of a card for a day, idle for six hours of it.
		{"quarter", "t | quarter | c | unknown | 6 | 1.5 | 0.25", ""},
		// Two of them on two cards, one of which is idle.
		{"two", "t | two | c | unknown | 12 | 6 | 0.5", ""},
		// Two whole cards, of which one is idle all the time.
		{"whole", "t | whole | c | unknown | 48 | 24 | 0.5", ""},
		// One pod of two is measured, and idle.
		{"half", "t | half | c | unknown | 48 | 24 | 0.5", "The use of 50 % of these GPU hours was not measured: GPUs beside measured ones of their pod count as these do, and none of the others as idle; the health check of the datasource says why."},
		// Of four GPUs of a pod three are measured, and one of these is idle.
		{"dark", "t | dark | c | unknown | 96 | 32 | 0.3333", "The use of 25 % of these GPU hours was not measured: GPUs beside measured ones of their pod count as these do, and none of the others as idle; the health check of the datasource says why."},
	} {
		r := w.run(t, settingsOf(t, ""), `{"queryType":"cost","experiments":["`+c.experiment+`"]}`, 0, 24*time.Hour)
		frames, err := cost(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		equal(t, c.experiment, rows(t, frames[0]), []string{c.want})
		if got := noticesOf(r); got != c.notice {
			t.Errorf("%s: notices %q, want %q", c.experiment, got, c.notice)
		}
	}
}

// A range that is cut into parts has the same hours: each sample counts once, also one that lies
// where two parts meet.
func TestHoursInParts(t *testing.T) {
	w := worldOf(t, "compare")
	for _, c := range []struct {
		experiment  string
		from, until time.Duration
		want        []string
	}{
		// 41 and 51 minutes; the range is three days, cut at 1440 and 2880 minutes after minute 61.
		{"twice", 0, 4100 * time.Minute, []string{"vision | twice | eu-1 | unknown | 1.533 | 0 | 0"}},
		// The first sample stands at the beginning of the range and is left out.
		{"twice", 60 * time.Minute, 100 * time.Minute, []string{"vision | twice | eu-1 | unknown | 0.6667 | 0 | 0"}},
		{"twice", 59*time.Minute + 59500*time.Millisecond, 100 * time.Minute, []string{"vision | twice | eu-1 | unknown | 0.6833 | 0 | 0"}},
		// Cut at minute 3020, which has a sample.
		{"twice", 140 * time.Minute, 3500 * time.Minute, []string{"vision | twice | eu-1 | unknown | 0.85 | 0 | 0"}},
	} {
		frames, err := cost(t.Context(),
			w.run(t, settingsOf(t, ""), `{"queryType":"cost","experiments":["`+c.experiment+`"]}`, c.from, c.until))
		if err != nil {
			t.Fatal(err)
		}
		equal(t, c.experiment, rows(t, frames[0]), c.want)
	}
}

func TestParts(t *testing.T) {
	at := func(h int) time.Time { return time.Unix(0, 0).Add(time.Duration(h) * time.Hour) }
	for _, c := range []struct{ from, until, size, want int }{
		{0, 0, 24, 0},
		{0, 1, 24, 1},
		{0, 24, 24, 1},
		{0, 25, 24, 2},
		{5, 77, 24, 3},
	} {
		got := parts(at(c.from), at(c.until), time.Duration(c.size)*time.Hour)
		if len(got) != c.want {
			t.Errorf("%v: %d parts", c, len(got))
		}
		end := at(c.from)
		for _, p := range got {
			if !p.from.Equal(end) || !p.until.After(p.from) || p.until.Sub(p.from) > time.Duration(c.size)*time.Hour {
				t.Errorf("%v: a part from %v to %v after %v", c, p.from, p.until, end)
			}
			end = p.until
		}
		if !end.Equal(at(c.until)) {
			t.Errorf("%v ends at %v", c, end)
		}
	}
}

// More samples than are looked at for idle hours make a longer step, and as much less of each.
func TestIdleHoursOfMany(t *testing.T) {
	r := &Run{Settings: settingsOf(t, "")}
	from := time.UnixMilli(0)
	for _, c := range []struct {
		held float64 // GPU hours
		want string
	}{
		{1, ":60s]"},
		{10e6 / 60, ":60s]"},
		{10e6/60 + 1, ":120s]"},
		{4000 * 31 * 24, ":1080s]"},
	} {
		_, step := r.idleHours(nil, "team", from, from.Add(time.Hour), c.held)
		if got := ":" + seconds(step) + "]"; got != c.want {
			t.Errorf("%v GPU hours: step %s, want %s", c.held, got, c.want)
		}
	}
}

func TestCurrencyUnit(t *testing.T) {
	for code, want := range map[string]string{"USD": "currencyUSD", "EUR": "currencyEUR", "AUD": "currency:AUD"} {
		if got := currencyUnit(code); got != want {
			t.Errorf("%s: %s, want %s", code, got, want)
		}
	}
	if strings.Contains(hoursUnit, "currency") {
		t.Error("hours are no money")
	}
}

// What was measured of a GPU a moment after its pod ended is not idle time of the pod: no more is
// idle than was held, and nothing of who held nothing.
func TestIdleWasHeld(t *testing.T) {
	r := &Run{Settings: settingsOf(t, "")}
	of := func(v float64) []prom.Series {
		return []prom.Series{{
			Labels: map[string]string{"team": "t", "experiment": "e", "cluster": "c", "node": "n"},
			Points: []prom.Point{{V: v}},
		}}
	}
	if rows := r.bill(of(1), of(1.5), nil); len(rows) != 1 || rows[0].hours != 1 || rows[0].idle != 1 {
		t.Errorf("1 GPU hour, of which 1.5 were measured to be idle: %+v", rows)
	}
	if rows := r.bill(nil, of(1), nil); len(rows) != 0 {
		t.Errorf("no GPU hours, and 1 idle: %+v", rows)
	}
}

// A node whose exporter is away at the end of the range has the model that DCGM told of before, and
// its price: its label, which spells the model otherwise, counts where DCGM said nothing in the
// range. Labels are asked for at its end alone where they are known.
func TestModelsOfLabelledNodes(t *testing.T) {
	settings := settingsOf(t, `{"prices":{"NVIDIA H100 80GB HBM3":2.5,"default":0.8}}`)
	r := worldOf(t, "labelled").run(t, settings, `{"queryType":"cost"}`, 0, 180*time.Minute)
	frames, err := r.Do(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "rows", rowsOf(t, frames[0], "experiment", "model", "gpu_hours", "cost"), []string{
		"away NVIDIA H100 80GB HBM3 24 60", "early NVIDIA H100 80GB HBM3 24 60", "never nvidia-h100-80gb 24 19.200000000000003",
	})
	for _, query := range r.executed {
		if strings.Contains(query, "last_over_time(node:gpu_model:info") && !strings.Contains(query, "model!=") {
			t.Errorf("asked %s", query)
		}
	}
	if got := noticesOf(r); strings.Contains(got, "model") {
		t.Errorf("notices %q", got)
	}
}
