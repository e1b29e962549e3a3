package live

import (
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/alerts"
	"github.com/spillwayproject/spillway/internal/localprom"
	"github.com/spillwayproject/spillway/loadtest/cluster"
)

func TestNeeded(t *testing.T) {
	one := fstest.MapFS{
		"a.yaml": {Data: []byte(`
groups:
  - name: used
    interval: 30s
    rules:
      - {record: "want:a:sum", expr: "sum(dep:b:max) + up", labels: {x: "y"}}
      - {record: "other:c:sum", expr: "up"}
      - {alert: Never, expr: "other:c:sum > 1"}
  - name: unused
    rules: [{record: "other:d:sum", expr: "want:a:sum"}]
`)},
		"b.yaml": {Data: []byte(`{groups: [{name: not, rules: [{record: "other:e:sum", expr: "up"}]}]}`)},
	}
	two := fstest.MapFS{"c.yaml": {Data: []byte(`
groups:
  - name: deps
    rules:
      - {record: "dep:b:max", expr: "max(dep:f:max)"}
      - {record: "dep:f:max", expr: "max(dep:b:max offset 1h)"}
`)}}
	got, err := Needed(t.TempDir(), func(r string) bool { return strings.HasPrefix(r, "want:") }, one, two)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"a.yaml: want:a:sum", "c.yaml: dep:b:max dep:f:max"} {
		names, err := fs.Glob(got[i], "*")
		if err != nil {
			t.Fatal(err)
		}
		name, records, _ := strings.Cut(want, ": ")
		if !slices.Equal(names, []string{name}) {
			t.Errorf("the files are %q", names)
			continue
		}
		text, err := fs.ReadFile(got[i], name)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range strings.Fields(records) {
			if !strings.Contains(string(text), r) {
				t.Errorf("%s lacks %s:\n%s", name, r, text)
			}
		}
		if strings.Contains(string(text), "other:") || strings.Contains(string(text), "unused") ||
			i == 0 && !strings.Contains(string(text), "interval: 30s") {
			t.Errorf("%s has what nobody needs, or lacks its interval:\n%s", name, text)
		}
	}
	if _, err := Needed(t.TempDir(), func(string) bool { return true }, fstest.MapFS{"x.yaml": {Data: []byte(`{groups: [{name: n, rules: [{record: "a:b", expr: "sum("}]}]}`)}}); err == nil || !strings.Contains(err.Error(), "x.yaml: a:b") {
		t.Errorf("an expression that is none: %v", err)
	}
	// Of the mixin's own rules: what GPUs are joined with is recorded from what each shard's server
	// records.
	rules, err := Needed(t.TempDir(), func(r string) bool { return strings.HasPrefix(r, "experiment:") }, alerts.Global(), alerts.Shard())
	if err != nil {
		t.Fatal(err)
	}
	if files, _ := fs.Glob(rules[0], "*.yaml"); !slices.Contains(files, "experiment-rules.yaml") ||
		!slices.Contains(files, "gpu-rules.yaml") || len(files) > 4 {
		t.Errorf("experiment: is recorded from %q", files)
	}
}

// TestNamed: with one label more the order of series is another, and a matcher of it chooses the
// cluster.
func TestNamed(t *testing.T) {
	s, err := localprom.Start(t.Context(), localprom.Options{DisableWAL: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := s.Load("load 1m\n  m 1\n  m{b=\"1\"} 2\n  m{z=\"1\"} 3"); err != nil {
		t.Fatal(err)
	}
	both := together{named{s.Storage(), "two"}, named{s.Storage(), "one"}}
	for matcher, want := range map[string]string{
		`one|two`: `{__name__="m", b="1", cluster="one"} {__name__="m", b="1", cluster="two"} {__name__="m", cluster="one"} {__name__="m", cluster="one", z="1"} {__name__="m", cluster="two"} {__name__="m", cluster="two", z="1"}`,
		`two`:     `{__name__="m", b="1", cluster="two"} {__name__="m", cluster="two"} {__name__="m", cluster="two", z="1"}`,
		`three`:   ``,
	} {
		q, err := both.Querier(0, time.Hour.Milliseconds())
		if err != nil {
			t.Fatal(err)
		}
		set := q.Select(t.Context(), true, nil, labels.MustNewMatcher(labels.MatchEqual, "__name__", "m"),
			labels.MustNewMatcher(labels.MatchRegexp, "cluster", matcher))
		var got []string
		for set.Next() {
			got = append(got, set.At().Labels().String())
		}
		if set.Err() != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %v, %s", matcher, set.Err(), strings.Join(got, " "))
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestTwoOfOneName(t *testing.T) {
	m, err := cluster.New(cluster.Options{Nodes: 1})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	_, err = Write(t.Context(), Options{
		Dir: t.TempDir(), From: now.Add(-time.Minute), Until: now,
		Clusters: []Cluster{{Model: m}, {Model: m}},
	})
	if err == nil || !strings.Contains(err.Error(), `two clusters are called "sim"`) {
		t.Errorf("two clusters of one name: %v", err)
	}
}
