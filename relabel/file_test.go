package relabel_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/relabel"
	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/propose"
	"github.com/spillwayproject/spillway/relabel/prove"
	"github.com/spillwayproject/spillway/relabel/uses"
)

// written is a plan with a rule of every kind that changes no answer, and its bytes.
func written(t testing.TB, src inventory.Source) (*relabel.Plan, []byte) {
	t.Helper()
	p, err := relabel.Make(t.Context(), relabel.Options{
		Source: src, Uses: queries(`sum by (pod) (http_requests_total)`, `latency_seconds_bucket{code="200",le="1"}`), Now: now,
		Propose: propose.Options{Risk: propose.High},
	})
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := p.Write(&text); err != nil {
		t.Fatal(err)
	}
	return p, text.Bytes()
}

func TestReadGivesWhatWasWritten(t *testing.T) {
	p, text := written(t, pages(t, map[string]string{"web/1": web, "web/2": web}))
	back, err := relabel.Read(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[propose.Kind]bool{}
	for i, r := range back.Rules {
		kinds[r.Kind] = true
		if len(r.Relabel) != len(p.Rules[i].Relabel) {
			t.Fatalf("%s: %d configs, want %d", r.ID, len(r.Relabel), len(p.Rules[i].Relabel))
		}
		for j, c := range r.Relabel {
			want := p.Rules[i].Relabel[j]
			if c.Regex.String() != want.Regex.String() || c.Action != want.Action || c.Separator != want.Separator ||
				!slices.Equal(c.SourceLabels, want.SourceLabels) {
				t.Errorf("%s: %+v, want %+v", r.ID, c, want)
			}
		}
	}
	if len(kinds) != 4 {
		t.Errorf("kinds %v: too few to say anything", kinds)
	}
	var again bytes.Buffer
	if err := back.Write(&again); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(text, again.Bytes()) {
		t.Errorf("%s\nand read and written:\n%s", text, &again)
	}
}

func TestReadRefuses(t *testing.T) {
	_, text := written(t, pages(t, map[string]string{"web/1": web}))
	for _, test := range []struct{ name, text, want string }{
		{"no JSON", "plan", "no plan"},
		{"another file", `{"title":"dashboard"}`, "version is 0"},
		{"a newer plan", strings.Replace(string(text), `"version": 1`, `"version": 2`, 1), "version is 2"},
		{"a metric more", strings.Replace(string(text), `"unused_a_total"`, `"http_requests_total"`, 1), "changed after it was made"},
		{"a field more", strings.Replace(string(text), `"version": 1,`, `"version": 1, "more": 1,`, 1), "unknown field"},
		{"something behind it", string(text) + "{}", "after top-level value"},
		{"half of it", string(text[:len(text)/2]), "no plan"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.text == string(text) {
				t.Fatal("nothing was changed")
			}
			if p, err := relabel.Read(strings.NewReader(test.text)); err == nil || p != nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want an error that says %q", err, test.want)
			}
		})
	}
}

func FuzzRead(f *testing.F) {
	p := &relabel.Plan{Version: relabel.Version, Made: now, Rules: []propose.Rule{
		{
			ID: "j/names/1", Kind: propose.Names, Risk: propose.Low, Job: "j", Metrics: []string{"a", "b.c", "d\ne"},
			Saves: propose.Save(3, 0.1),
		},
		{
			ID: "j/slice/code/1", Kind: propose.Slice, Risk: propose.Medium, Job: "j", Metrics: []string{"e"}, Label: "code",
			Values: []string{"", "200"}, Saves: propose.Save(3, 0.1),
		},
	}}
	var text bytes.Buffer
	if err := p.Write(&text); err != nil {
		f.Fatal(err)
	}
	f.Add(text.Bytes())
	f.Add([]byte(`{"version":1}`))
	f.Add([]byte(`{"version":1,"rules":[{}],"checksum":""}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := relabel.Read(bytes.NewReader(text))
		if err != nil {
			return
		}
		var first, second bytes.Buffer
		if err := p.Write(&first); err != nil {
			t.Fatal(err)
		}
		back, err := relabel.Read(&first)
		if err != nil {
			t.Fatalf("what was written is refused: %v", err)
		}
		if err := back.Write(&second); err != nil {
			t.Fatal(err)
		}
	})
}

func TestDiff(t *testing.T) {
	src := pages(t, map[string]string{"web/1": web})
	old, _ := written(t, src)
	updated, err := relabel.Make(t.Context(), relabel.Options{
		Source: src, Uses: queries(`sum by (pod) (http_requests_total)`, `latency_seconds_bucket{code="200",le=~"1|30"}`, "unused_b_total",
			"sum by (pod, uid) (http_requests_total)"), Now: now,
		Propose: propose.Options{Risk: propose.High},
	})
	if err != nil {
		t.Fatal(err)
	}
	d, err := relabel.Diff(t.Context(), old, updated, src)
	if err != nil {
		t.Fatal(err)
	}
	want := []relabel.MetricDifference{
		{Job: "web", Name: "http_requests_total", GainedLabels: []string{"uid"}, LostLabels: nil},
		{Job: "web", Name: "latency_seconds_bucket", Gained: 1}, // le 30 of code 200; that of 500 goes as before
		{Job: "web", Name: "unused_b_total", Gained: 1},
	}
	if !slices.EqualFunc(d.Metrics, want, func(a, b relabel.MetricDifference) bool {
		return a.Job == b.Job && a.Name == b.Name && a.Lost == b.Lost && a.Gained == b.Gained && slices.Equal(a.LostLabels, b.LostLabels) &&
			slices.Equal(a.GainedLabels, b.GainedLabels)
	}) {
		t.Errorf("metrics %+v, want %+v", d.Metrics, want)
	}
	if d.Series != 19 || d.Gained.Series != 2 || d.Lost.Series != 0 || d.Empty() {
		t.Errorf("%+v", d)
	}
	back, err := relabel.Diff(t.Context(), updated, old, src)
	if err != nil || back.Lost != d.Gained || back.Gained != d.Lost {
		t.Errorf("backwards: %+v, %v", back, err)
	}
	changes := map[string]string{}
	for _, r := range d.Rules {
		changes[r.ID] = r.Change
		if r.ID == "web/names/1" && !slices.Equal(r.Removed, []string{"unused_b_total"}) {
			t.Errorf("%+v", r)
		}
	}
	if changes["web/names/1"] != "changed" || changes["web/buckets/1"] != "changed" || changes["web/label/uid"] != "removed" {
		t.Errorf("rules: %+v", d.Rules)
	}
	rules, err := relabel.Diff(t.Context(), old, updated, nil)
	if err != nil || rules.Series != 0 || len(rules.Metrics) != 0 || len(rules.Rules) != len(d.Rules) {
		t.Errorf("without series: %+v, %v", rules, err)
	}
}

// TestReplayIsTheLastWord: a use whose needs were read wrongly passes every look at series, and not
// the replay, which asks the query itself. The rule that changes its answer is refused.
func TestReplayIsTheLastWord(t *testing.T) {
	src := pages(t, map[string]string{"web/1": web})
	set := queries("sum(http_requests_total)")
	needs, _ := uses.Needs("sum(http_requests_total)")
	set.Add(&uses.Use{
		Kind: uses.Dashboard, Where: "dashboard Wrong", Query: "sum(unused_a_total) + sum(http_requests_total)",
		Needs: needs,
	})
	p, err := relabel.Make(t.Context(),
		relabel.Options{Source: src, Uses: set, Now: now, Replay: true, ReplayOptions: prove.ReplayOptions{Dir: t.TempDir()}})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range p.Rules {
		if slices.Contains(r.Metrics, "unused_a_total") {
			t.Errorf("%s takes %q", r.ID, r.Metrics)
		}
	}
	i := slices.IndexFunc(p.Refused, func(r propose.Refusal) bool { return strings.Contains(r.Reason, "dashboard Wrong") })
	if i < 0 || len(p.Refused[i].Examples) != 3 || p.Refused[i].Saves.Series == 0 {
		t.Errorf("refused: %+v", p.Refused)
	}
	if p.Proof.Replay == nil || len(p.Proof.Replay.Differences) != 0 {
		t.Errorf("the replay of what is left: %+v", p.Proof.Replay)
	}
}
