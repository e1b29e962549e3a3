package experiments

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/data"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/model"
)

func TestExpand(t *testing.T) {
	q, s := model.Query{Experiments: []string{"llm"}, Teams: []string{"a", "b"}}, settingsOf(t, `{"idleBelow": 2.5}`)
	for _, tc := range []struct{ expr, want string }{
		{`up`, `up`},
		{`x{$__experiment}`, `x{team=~"a|b",experiment="llm"}`},
		{`x{${__experiment},gpu="0"}`, `x{team=~"a|b",experiment="llm",gpu="0"}`},
		{`rate(x[$__rate_interval]) + avg_over_time(y[$__interval:${__interval}])`, `rate(x[240s]) + avg_over_time(y[120s:120s])`},
		{`$__interval_ms $__range $__range_s $__range_ms`, `120000 3600s 3600 3600000`},
		{`label_replace(x, "a", "$1", "b", "(.+)$")`, `label_replace(x, "a", "$1", "b", "(.+)$")`},
		{`"$__" "${__" "$_x" "$"`, `"$__" "${__" "$_x" "$"`},
		{`"${__range"`, `"${__range"`},
		{`x < bool $__idle_below or x < ${__idle_below}`, `x < bool 2.5 or x < 2.5`},
	} {
		if got, err := expand(tc.expr, q, s, 2*time.Minute, time.Hour); err != nil || got != tc.want {
			t.Errorf("%s: %s, %v, want %s", tc.expr, got, err, tc.want)
		}
	}
	// A name is never read for macros, and a macro of ours is never part of a longer name.
	odd := model.Query{Experiments: []string{`$__interval"}`}}
	if got, err := expand(`x{$__experiment}`, odd, s, time.Minute, time.Hour); err != nil || got != `x{experiment="$__interval\"}"}` {
		t.Errorf("%s, %v", got, err)
	}
	if got, err := expand(`x{$__experiment}`, model.Query{}, s, time.Minute, time.Hour); err != nil || got != `x{experiment!=""}` {
		t.Errorf("nothing chosen: %s, %v", got, err)
	}
	for expr, says := range map[string]string{
		`x{$__experiments}`: "$__experiments is no macro", `x[$__intervals]`: "is no macro", `$__all`: "is no macro",
		"x{" + strings.Repeat(" ", maxExprBytes) + "}": "at most 65536",
	} {
		if _, err := expand(expr, q, s, time.Minute, time.Hour); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.40s: %v, want one with %q", expr, err, says)
		}
	}
	if got, err := expand(`[$__rate_interval]`, q, s, 10*time.Minute, time.Hour); err != nil || got != "[660s]" {
		t.Errorf("a long step: %s, %v", got, err)
	}
}

// FuzzExpand holds that names select themselves whatever they are: the matchers parse, and are
// those names'.
func FuzzExpand(f *testing.F) {
	f.Add(`x{$__experiment}`, "llm", "a")
	f.Add(`sum(x{${__experiment},a="$__range"})`, `"},x{`, "$__experiment")
	f.Add("$__", "\n", "")
	p := parser.NewParser(parser.Options{})
	s := settingsOf(f, "")
	f.Fuzz(func(t *testing.T, expr, one, two string) {
		q := model.Query{Experiments: []string{strings.ToValidUTF8(one, ""), strings.ToValidUTF8(two, "")}}
		if _, err := expand(expr, q, s, time.Minute, time.Hour); err != nil && !strings.HasPrefix(err.Error(), "expr: ") {
			t.Fatalf("%v", err)
		}
		got, err := expand(`x{$__experiment}`, q, s, time.Minute, time.Hour)
		if err != nil {
			return
		}
		e, err := p.ParseExpr(got)
		if err != nil {
			t.Fatalf("%s: %v", got, err)
		}
		for _, m := range e.(*parser.VectorSelector).LabelMatchers {
			if m.Name == "experiment" && (!m.Matches(q.Experiments[0]) || !m.Matches(q.Experiments[1]) ||
				m.Matches(q.Experiments[0]+"x") && q.Experiments[1] != q.Experiments[0]+"x") {
				t.Fatalf("%s does not select exactly %q", got, q.Experiments)
			}
		}
	})
}

func TestSeriesName(t *testing.T) {
	labels := map[string]string{"__name__": "up", "a": "<b>{{c}}", "c": "x\"y"}
	for format, want := range map[string]string{
		"":                 "up{a=\"<b>{{c}}\", c=\"x\\\"y\"}",
		"{{a}}":            "<b>{{c}}",
		"{{ c }} of {{d}}": "x\"y of ",
		"{{c":              "{{c",
		"c}}":              "c}}",
		"plain":            "plain",
	} {
		if got := seriesName(format, labels); got != want {
			t.Errorf("%q: %q, want %q", format, got, want)
		}
	}
	if got := seriesName("", map[string]string{"__name__": "up"}); got != "up" {
		t.Errorf("without labels: %q", got)
	}
	if got := seriesName("", nil); got != "{}" {
		t.Errorf("a number: %q", got)
	}
}

func TestPromQL(t *testing.T) {
	w := worldOf(t, "setup")
	ask := func(query string) data.Frames {
		return w.frames(t, settingsOf(t, ""), query, time.Hour, 100*time.Minute)
	}
	golden(t, "promql_range", ask(`{"queryType":"promql","expr":"sum by (cluster) (experiment:pod:gpus{$__experiment})","experiments":["e"],"clusters":["full","no-dcgm"],"legend":"{{cluster}}"}`))
	golden(t, "promql_instant", ask(`{"queryType":"promql","expr":"sum by (cluster) (last_over_time(experiment:pod:gpus{$__experiment}[$__range]))","instant":true}`))
	golden(t, "promql_empty", ask(`{"queryType":"promql","expr":"none{$__experiment}","clusters":["full"]}`))

	frames, err := w.run(t, settingsOf(t, `{"maxSeries":2}`), `{"queryType":"promql","expr":"experiment:pod:gpus","instant":true}`, time.Hour, 100*time.Minute).Do(t.Context())
	if err != nil || len(frames) != 2 || len(frames[0].Meta.Notices) != 1 || !strings.Contains(frames[0].Meta.Notices[0].Text, "are not shown: the query gives 7, and the datasource shows 2") {
		t.Errorf("%d frames, %v: %+v", len(frames), err, frames[0].Meta)
	}
	if _, err := w.run(t, settingsOf(t, ""), `{"queryType":"promql","expr":"experiment:pod:gpus[5m]","instant":true}`, time.Hour, 100*time.Minute).Do(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "last_over_time") {
		t.Errorf("a range of samples: %v", err)
	}
	if _, err := w.run(t, settingsOf(t, ""), `{"queryType":"promql","expr":"sum("}`, time.Hour,
		100*time.Minute).Do(t.Context()); err == nil || !strings.Contains(err.Error(), "parse error") {
		t.Errorf("a query that cannot be read: %v", err)
	}
}

// The number of GPUs at the top of the dashboard of an experiment is what runs: a run that was
// queued again has a row that has ended beside the one that runs. It is what was held last where
// nothing runs.
func TestGPUsOfAnExperiment(t *testing.T) {
	w := worldOf(t, "requeued")
	b, err := os.ReadFile(filepath.Join(repository, "grafana-plugin", "src", "dashboards", "experiment.json"))
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Type, Title string
			Targets     []json.RawMessage
		}
	}
	if err := json.Unmarshal(b, &board); err != nil {
		t.Fatal(err)
	}
	query := ""
	for _, p := range board.Panels {
		if p.Type == "stat" && p.Title == "GPUs" && len(p.Targets) == 1 {
			query = strings.NewReplacer(`"$cluster"`, "", `"$team"`, "", `"$experiment"`, `"e"`).Replace(string(p.Targets[0]))
		}
	}
	for _, c := range []struct {
		until time.Duration
		gpus  float64
	}{{20 * time.Minute, 8}, {40 * time.Minute, 8}, {60 * time.Minute, 16}, {90 * time.Minute, 16}} {
		frames := w.frames(t, settingsOf(t, ""), query, 0, c.until)
		sum := 0.0
		for _, f := range frames {
			for _, field := range f.Fields {
				if name := cmp.Or(field.Name, "Value"); name == "Value" || name == "gpus" {
					for i := range field.Len() {
						sum += field.At(i).(float64)
					}
				}
			}
		}
		if sum != c.gpus {
			t.Errorf("after %s it has %g GPUs, want %g", c.until, sum, c.gpus)
		}
	}
}

func TestNames(t *testing.T) {
	w := worldOf(t, "setup")
	for _, tc := range []struct{ query, label, want string }{
		{`{"clusters":["full","idle"]}`, "cluster", "full idle"},
		{`{"clusters":["full","idle"]}`, "team", "t"},
		{`{"clusters":["idle"]}`, "namespace", "ml"},
		{`{"clusters":["full"],"experiments":["e"]}`, "node", "n"},
		{`{"experiments":["other"]}`, "node", ""},
	} {
		got, err := w.run(t, settingsOf(t, ""), tc.query, 10*time.Minute, 100*time.Minute).Names(t.Context(), tc.label)
		if err != nil || got == nil || strings.Join(got, " ") != tc.want {
			t.Errorf("%s of %s: %q, %v, want %q", tc.label, tc.query, got, err, tc.want)
		}
	}
	list, err := w.run(t, settingsOf(t, ""), `{"clusters":["full","idle"],"search":"E"}`, 10*time.Minute,
		100*time.Minute).Recent(t.Context())
	if err != nil || len(list) != 2 || list[0] != (Listed{Name: "e", Team: "t", Cluster: "full", Namespace: "ml"}) ||
		list[1] != (Listed{Name: "e", Team: "t", Cluster: "idle", Namespace: "ml", State: "ended"}) {
		t.Errorf("%+v, %v", list, err)
	}
}
