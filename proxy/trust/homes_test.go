package trust

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/internal/randseed"
)

// homesOf are those of shards with these patterns, in words.
func homesOf(t testing.TB, shards ...string) *Homes {
	t.Helper()
	of := make([]*Names, len(shards))
	for i, text := range shards {
		n, err := NewNames(strings.Fields(text))
		if err != nil {
			t.Fatal(err)
		}
		of[i] = n
	}
	return NewHomes(of)
}

// TestHomesHold: a shard is named only where each name that the matchers select is of one.
func TestHomesHold(t *testing.T) {
	h := homesOf(t, "", "kube_(pod|node)_.+ both", "", "probe_.+ both ended")
	eq := func(v string) *labels.Matcher {
		return labels.MustNewMatcher(labels.MatchEqual, model.MetricNameLabel, v)
	}
	re := func(v string) *labels.Matcher {
		return labels.MustNewMatcher(labels.MatchRegexp, model.MetricNameLabel, v)
	}
	node := labels.MustNewMatcher(labels.MatchEqual, "node", "a")
	all := func(int) bool { return true }
	for _, tc := range []struct {
		name   string
		ms     []*labels.Matcher
		covers func(int) bool
		want   []int // nil: not known
	}{
		{"a name", []*labels.Matcher{node, eq("kube_pod_info")}, all, []int{1}},
		{"another shard's", []*labels.Matcher{eq("probe_success")}, all, []int{3}},
		{"a part of a name", []*labels.Matcher{eq("kube_pod_")}, all, nil},
		{"nobody's", []*labels.Matcher{eq("up")}, all, nil},
		{"names of one", []*labels.Matcher{re("kube_pod_info|kube_node_info")}, all, []int{1}},
		{"names of two", []*labels.Matcher{re("kube_pod_info|probe_success")}, all, []int{1, 3}},
		{"one that is nobody's", []*labels.Matcher{re("kube_pod_info|up")}, all, nil},
		{"one that is nobody's and is excluded", []*labels.Matcher{re("kube_pod_info|up"), re("kube_.+")}, all, []int{1}},
		{"one of two shards", []*labels.Matcher{eq("both")}, all, nil},
		{"one of two shards, at one's time", []*labels.Matcher{eq("both")}, func(i int) bool { return i == 3 }, []int{3}},
		{"not at its time", []*labels.Matcher{eq("kube_pod_info")}, func(i int) bool { return i != 1 }, nil},
		{"a pattern", []*labels.Matcher{re("kube_pod_.+")}, all, nil},
		{"a pattern beside a name", []*labels.Matcher{re("kube_.+"), eq("kube_pod_info")}, all, []int{1}},
		{"names that exclude each other", []*labels.Matcher{eq("kube_pod_info"), eq("up")}, all, []int{}},
		{"a name or none", []*labels.Matcher{re("kube_pod_info|")}, all, nil},
		{"any but a name", []*labels.Matcher{labels.MustNewMatcher(labels.MatchNotEqual, model.MetricNameLabel, "up")}, all, nil},
		{"another label", []*labels.Matcher{node}, all, nil},
		{"nothing", nil, all, nil},
	} {
		got, known := h.Hold(tc.ms, tc.covers)
		if known != (tc.want != nil) || !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, %t, want %v", tc.name, got, known, tc.want)
		}
	}
	if homesOf(t, "", "") != nil {
		t.Error("shards without names have homes")
	}
}

// TestHomesLoseNothing: whatever matcher selects a series of a metric that a shard has alone, that
// shard is among those that hold it.
func TestHomesLoseNothing(t *testing.T) {
	seed := randseed.Of(t, 0)
	rnd := rand.New(rand.NewPCG(seed, 4))
	words := []string{"a", "b", "ab", "a:b", "A", "é", "a.", "[ab]+", "(?i)b", "a|b", "a:.*", ".+b"}
	known := 0
	for range 2000 {
		h := homesOf(t, words[rnd.IntN(len(words))], "", words[rnd.IntN(len(words))])
		value := words[rnd.IntN(len(words))] + []string{"", "|ab", "|a:b", "|"}[rnd.IntN(4)]
		m, err := labels.NewMatcher(labels.MatchType(rnd.IntN(4)), model.MetricNameLabel, value)
		if err != nil {
			continue
		}
		at, ok := h.Hold([]*labels.Matcher{m}, func(int) bool { return true })
		if !ok {
			continue
		}
		known++
		for _, name := range []string{"a", "b", "ab", "aab", "a:b", "A", "B", "é", "ax", "a|b", ""} {
			if !m.Matches(name) {
				continue
			}
			of := slices.IndexFunc(h.of, func(o home) bool { return o.names.Has(name) })
			if of < 0 || !slices.Contains(at, h.of[of].shard) {
				t.Fatalf("seed %d: %s selects %q, which is not on %v alone", seed, m, name, at)
			}
		}
	}
	if known < 100 {
		t.Errorf("seed %d: of only %d matchers it is known", seed, known)
	}
}

// TestHomesWrong: who has another shard's metric is told which pattern says so, and of whom.
func TestHomesWrong(t *testing.T) {
	h := homesOf(t, "kube_.+", "probe_.+ kube_own", "")
	called := func(i int) string { return []string{"jaguar[0]", "jaguar[1]", "jaguar[2]"}[i] }
	wrong := h.Wrong(slices.Collect(h.Others(2)), called)
	if why := wrong("kube_apiserver_x"); why != `it holds the metric kube_apiserver_x, and the pattern "kube_.+" says that shard jaguar[0] alone has it; write that pattern narrower` {
		t.Error(why)
	}
	if why := wrong("probe_x"); !strings.Contains(why, "jaguar[1]") {
		t.Error(why)
	}
	for _, name := range []string{"up", "", "kube_"} {
		if why := wrong(name); why != "" {
			t.Errorf("%q: %s", name, why)
		}
	}
	if why := h.Wrong([]int{1}, called)("kube_pod"); why != "" {
		t.Errorf("of another time: %s", why)
	}
	if p := h.Promise(0); p == h.Promise(2) || p == "" || homesOf(t, "a", "").Promise(0) != "" {
		t.Errorf("the promise of the first is %q", p)
	}
}

// TestHomesPromiseIsShort: each shard has one, of what all others have. It is another one for
// another pattern, and for another shard that has it.
func TestHomesPromiseIsShort(t *testing.T) {
	long := strings.Repeat("team_exporter_(pod|node|namespace)_.+ ", 50)
	seen := map[string]string{}
	for _, patterns := range [][]string{
		{"", long + "a", long + "b"},
		{"", long + "a", long + "c"},
		{"", long + "b", long + "a"},
		{"", long + "a", ""},
		{"", "", long + "a"},
	} {
		p := homesOf(t, patterns...).Promise(0)
		if len(p) > 100 {
			t.Errorf("%d bytes", len(p))
		}
		if was, ok := seen[p]; ok {
			t.Errorf("the promises of %.80q and %.80q are one", was, patterns)
		}
		seen[p] = strings.Join(patterns, ", ")
	}
}
