package prove

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"go.yaml.in/yaml/v3"
)

// dice are decisions read from bytes: a fuzzer can change each of them.
type dice struct{ data []byte }

func (d *dice) roll(n int) int {
	if len(d.data) == 0 {
		return 0
	}
	v := int(d.data[0]) % n
	d.data = d.data[1:]
	return v
}

func pick(d *dice, from ...string) string { return from[d.roll(len(from))] }

var (
	labelNames  = []string{"__name__", "job", "le", "pod", "a", "aa", "b", "__tmp_x", "zone"}
	labelValues = []string{
		"", "x", "__name__", "X", "1", "1.0", "x;y", "up", "http_requests_total", "b",
		"long-" + strings.Repeat("v", memoBytes),
	}
	regexes = []string{
		"(.*)", "", "x", "(x|1)(;.*)?", "http_.+", "up|http_requests_total", "(.+);(.*)", "[a-b]+", "__tmp_.*",
		"__name__", "(a)(.*)", ".*;b", "1(\\.0)?",
	}
)

// randomConfig is one that Prometheus' loader may take or not.
func randomConfig(d *dice) *relabel.Config {
	c := relabel.DefaultRelabelConfig
	c.Action = []relabel.Action{
		relabel.Drop, relabel.Keep, relabel.Replace, relabel.LabelDrop, relabel.LabelKeep, relabel.LabelMap, relabel.HashMod,
		relabel.Lowercase, relabel.Uppercase,
		relabel.DropEqual, relabel.KeepEqual,
	}[d.roll(11)]
	if d.roll(4) > 0 || c.Action == relabel.Drop {
		c.Regex = relabel.MustNewRegexp(pick(d, regexes...))
	}
	if c.Action != relabel.LabelDrop && c.Action != relabel.LabelKeep {
		if d.roll(2) == 0 { // as most rules have it
			c.SourceLabels = model.LabelNames{model.MetricNameLabel}
		}
		for range d.roll(3) {
			c.SourceLabels = append(c.SourceLabels, model.LabelName(pick(d, labelNames...)))
		}
		if d.roll(5) == 0 {
			c.Separator = pick(d, "", "|", ";;")
		}
	}
	switch c.Action {
	case relabel.Replace:
		c.TargetLabel = pick(d, append([]string{"$1", "n_$1", "${1}"}, labelNames...)...)
		c.Replacement = pick(d, "$1", "", "x", "$2-$1", "http_requests_total")
	case relabel.LabelMap:
		c.Replacement = pick(d, "$1", "aa", "z$1", "b", "__name__")
	case relabel.HashMod:
		c.TargetLabel, c.Modulus = pick(d, labelNames...), 7
	case relabel.Lowercase, relabel.Uppercase, relabel.DropEqual, relabel.KeepEqual:
		c.TargetLabel = pick(d, labelNames...)
	}
	if c.Action == relabel.DropEqual || c.Action == relabel.KeepEqual {
		c.Regex = relabel.DefaultRelabelConfig.Regex
		c.Separator = relabel.DefaultRelabelConfig.Separator
	}
	return &c
}

func randomSeries(d *dice) labels.Labels {
	b := labels.NewBuilder(labels.EmptyLabels())
	for range 1 + d.roll(7) {
		b.Set(pick(d, labelNames...), pick(d, labelValues...))
	}
	return b.Labels()
}

// sameAsPrometheus runs series through a chain and through the real thing.
func sameAsPrometheus(t *testing.T, data []byte) {
	d := &dice{data}
	var configs []*relabel.Config
	for range 1 + d.roll(6) {
		if c := randomConfig(d); c.Validate(model.UTF8Validation) == nil {
			configs = append(configs, c)
		}
	}
	chain, err := NewChain(configs)
	if err != nil {
		t.Fatalf("Prometheus takes them: %v", err)
	}
	describe := func() string {
		text, _ := yaml.Marshal(configs)
		return string(text)
	}
	for range 12 { // what was remembered of the earlier ones is used for the later ones
		ls := randomSeries(d)
		lb := labels.NewBuilder(ls)
		keep := relabel.ProcessBuilder(lb, configs...)
		want := lb.Labels()
		got, kept, by := chain.Apply(ls)
		if kept != keep || kept && !labels.Equal(got, want) {
			t.Fatalf("%s\nis %v %s\nwant %v %s\nby\n%s", ls, kept, got, keep, want, describe())
		}
		if wantBy := actor(configs, ls); by != wantBy {
			t.Fatalf("%s becomes %s: by config %d, want %d of\n%s", ls, want, by, wantBy, describe())
		}
	}
}

// actor is the config that drops the series, or the first one that changes it, of those that leave
// it changed.
func actor(configs []*relabel.Config, ls labels.Labels) int {
	first := -1
	for i := range configs {
		lb := labels.NewBuilder(ls)
		if !relabel.ProcessBuilder(lb, configs[:i+1]...) {
			return i
		}
		if first < 0 && !labels.Equal(lb.Labels(), ls) {
			first = i
		}
	}
	lb := labels.NewBuilder(ls)
	if relabel.ProcessBuilder(lb, configs...); labels.Equal(lb.Labels(), ls) {
		return -1
	}
	return first
}

func FuzzChain(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(randomBytes(seed))
	}
	f.Fuzz(sameAsPrometheus)
}

func randomBytes(seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	data := make([]byte, 400)
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return data
}

// TestChainIsPrometheus: random configs over random series give what Prometheus' own relabelling
// gives.
func TestChainIsPrometheus(t *testing.T) {
	for seed := range uint64(1000) {
		sameAsPrometheus(t, randomBytes(seed))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// TestChainForgets: more values than are remembered change nothing, and are not all held.
func TestChainForgets(t *testing.T) {
	cfg := relabel.DefaultRelabelConfig
	cfg.Action, cfg.SourceLabels, cfg.Regex = relabel.Drop, model.LabelNames{"__name__", "pod"}, relabel.MustNewRegexp("a;.*7")
	c, err := NewChain([]*relabel.Config{&cfg})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 * memoEntries {
		_, kept, _ := c.Apply(labels.FromStrings("__name__", "a", "pod", fmt.Sprint(i)))
		if want := i%10 != 7; kept != want {
			t.Fatalf("pod %d: kept %v", i, kept)
		}
	}
	if n := len(c.steps[0].known); n > memoEntries {
		t.Errorf("%d values are remembered, at most %d may be", n, memoEntries)
	}
}

// TestChainRefuses what Prometheus' loader refuses, and says which.
func TestChainRefuses(t *testing.T) {
	good := relabel.DefaultRelabelConfig
	good.TargetLabel = "x"
	for name, cfg := range map[string]*relabel.Config{
		"metric_relabel_configs[1]: empty":                        nil,
		"metric_relabel_configs[1]: relabel action":               {},
		"metric_relabel_configs[1]: drop without a regex":         {Action: relabel.Drop},
		"metric_relabel_configs[1]: unknown action \"Drop\"":      {Action: "Drop"},
		"metric_relabel_configs[1]: relabel configuration for re": {Action: relabel.Replace},
	} {
		if _, err := NewChain([]*relabel.Config{&good, cfg}); err == nil || !strings.HasPrefix(err.Error(), name) {
			t.Errorf("got %v, want %s…", err, name)
		}
	}
}

// TestChainSeesRenames: what a config may have renamed is looked at again by those after it, also
// where only a value says which label is set.
func TestChainSeesRenames(t *testing.T) {
	for _, rename := range []*relabel.Config{
		config(t, relabel.Replace, "a", "(.*)", "$1", "gone"),
		config(t, relabel.Replace, "b", "(.*)", "__name__", "$1"),
		config(t, relabel.LabelMap, "", "b", "", "__name__"),
		config(t, relabel.Lowercase, "c", "(.*)", "__name__", "-"),
	} {
		chain, err := NewChain([]*relabel.Config{rename, config(t, relabel.Drop, "__name__", "gone", "", "-")})
		if err != nil {
			t.Fatal(err)
		}
		if out, kept, by := chain.Apply(labels.FromStrings("__name__", "m", "a", "__name__", "b", "gone", "c", "GONE")); kept || by != 1 {
			t.Errorf("%s keeps %s", rename.Action, out)
		}
	}
}
