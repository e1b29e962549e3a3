package inventory

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
)

// TestCollectCounts compares with a count that holds everything, on series in random order.
func TestCollectCounts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	type value struct{ job, name, label, value string }
	var src fixed
	series, values := map[[2]string]int64{}, map[value]int64{}
	for i := range 20000 {
		job, name := fmt.Sprintf("job%d", r.IntN(3)), fmt.Sprintf("name%d", r.IntN(4))
		b := labels.NewBuilder(labels.FromStrings("__name__", name, "job", job, "id", fmt.Sprint(i)))
		if r.IntN(2) == 0 {
			b.Set("Upper", fmt.Sprint(r.IntN(5)))
		}
		if r.IntN(3) == 0 {
			b.Set("many", fmt.Sprint(r.IntN(MaxValues)))
		}
		s := Series{Labels: b.Labels(), Type: model.MetricTypeUnknown}
		if name == "name1" {
			s.Interval = 15 * time.Second
		}
		src = append(src, s)
		series[[2]string{job, name}]++
		s.Labels.Range(func(l labels.Label) { values[value{job, name, l.Name, l.Value}]++ })
	}
	var calls []int64
	inv, err := Collect(t.Context(), src, func(n int64) { calls = append(calls, n) })
	if err != nil {
		t.Fatal(err)
	}
	if len(calls) == 0 || calls[len(calls)-1] != 20000 || inv.Series != 20000 || len(inv.Metrics) != 12 {
		t.Errorf("%d series, %d metrics, progress %v", inv.Series, len(inv.Metrics), calls)
	}
	var rate float64
	for i, m := range inv.Metrics {
		if i > 0 && !(inv.Metrics[i-1].Job < m.Job || inv.Metrics[i-1].Job == m.Job && inv.Metrics[i-1].Name < m.Name) {
			t.Errorf("%s %s stands at the wrong place", m.Job, m.Name)
		}
		if inv.Metric(m.Job, m.Name) != m {
			t.Errorf("%s %s is not found", m.Job, m.Name)
		}
		if m.Series != series[[2]string{m.Job, m.Name}] {
			t.Errorf("%s %s has %d series", m.Job, m.Name, m.Series)
		}
		if m.Name == "name1" {
			rate += float64(m.Series) / 15
		}
		for name, l := range m.Labels {
			var total, distinct int64
			for v, n := range values {
				if v.job != m.Job || v.name != m.Name || v.label != name {
					continue
				}
				total += n
				distinct++
				if l.Values != nil && l.Values[v.value] != n {
					t.Errorf("%v: %d, want %d", v, l.Values[v.value], n)
				}
			}
			if l.Series != total || (l.Values == nil) != (distinct > MaxValues) || l.Values != nil && l.Distinct != distinct ||
				float64(l.Distinct) < 0.95*float64(distinct) || float64(l.Distinct) > 1.05*float64(distinct) {
				t.Errorf("%s %s %s: %d series, %d values (known %v); want %d and %d", m.Job, m.Name, name, l.Series, l.Distinct, l.Values != nil, total, distinct)
			}
		}
	}
	if diff := inv.SamplesPerSecond - rate; diff > 1e-6 || diff < -1e-6 {
		t.Errorf("%g samples a second, want %g", inv.SamplesPerSecond, rate)
	}
	if inv.Metric("job0", "none") != nil || inv.Metric("", "") != nil {
		t.Error("a metric that is not there is found")
	}
	known := inv.Known()
	if !known("name0", "id") || !known("name0", "Upper") || known("name0", "none") || known("none", "id") {
		t.Error("Known is wrong")
	}

	r.Shuffle(len(src), func(i, j int) { src[i], src[j] = src[j], src[i] })
	again, err := Collect(t.Context(), src, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range again.Metrics { // sums of floats depend on the order by their last bit
		if old := inv.Metric(m.Job, m.Name); old.SamplesPerSecond-m.SamplesPerSecond < 1e-9 &&
			m.SamplesPerSecond-old.SamplesPerSecond < 1e-9 {
			m.SamplesPerSecond = old.SamplesPerSecond
		}
	}
	again.SamplesPerSecond = inv.SamplesPerSecond
	if !reflect.DeepEqual(again, inv) {
		t.Error("another order gives another inventory")
	}
}

// TestCollectKeepsNothing: the strings of a series are good during the call only, so none of them
// may stay.
func TestCollectKeepsNothing(t *testing.T) {
	src := reused{n: 1000}
	inv, err := Collect(t.Context(), src, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(inv.Metrics) != 1 || inv.Metrics[0].Name != "m" || inv.Metrics[0].Job != "j" {
		t.Fatalf("got %+v", inv.Metrics)
	}
	l := inv.Metrics[0].Labels["v"]
	if l == nil || l.Distinct != 7 || l.Series != 1000 {
		t.Fatalf("got %+v", l)
	}
	for i := range 7 {
		if n := l.Values[fmt.Sprint(i)]; n != int64(1000/7) && n != int64(1000/7)+1 {
			t.Errorf("value %d: %d series", i, n)
		}
	}
}

func TestTypesOfAMetric(t *testing.T) {
	one := func(job string, typ model.MetricType, native bool) Series {
		return Series{Labels: labels.FromStrings("__name__", "m", "job", job, "i", fmt.Sprint(typ, native)), Type: typ, Native: native}
	}
	inv, err := Collect(t.Context(), fixed{
		one("a", model.MetricTypeUnknown, false), one("a", model.MetricTypeGauge, false), one("a", "", false),
		one("b", model.MetricTypeCounter, false), one("b", model.MetricTypeGauge, false), one("b", model.MetricTypeCounter, true),
		one("", model.MetricTypeGauge, false),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for job, want := range map[string]model.MetricType{
		"a": model.MetricTypeGauge, "b": model.MetricTypeUnknown,
		"": model.MetricTypeGauge,
	} {
		if m := inv.Metric(job, "m"); m.Type != want || m.Native != (job == "b") {
			t.Errorf("job %q: %s, native %v", job, m.Type, m.Native)
		}
	}
	if _, err := Collect(t.Context(), fixed{{Labels: labels.FromStrings("a", "b")}}, nil); err == nil {
		t.Error("a series without a name is taken")
	}
}

func TestJoin(t *testing.T) {
	a := fixed{{Labels: labels.FromStrings("__name__", "a"), Type: model.MetricTypeGauge}, {Labels: labels.FromStrings("__name__", "b")}}
	b := fixed{{Labels: labels.FromStrings("__name__", "c")}, {Labels: labels.FromStrings("__name__", "a"), Type: model.MetricTypeCounter}}
	j := Join(a, Join(b, fixed{}))
	sameLines(t, read(t, j), []string{`{__name__="a"} gauge`, `{__name__="b"} `, `{__name__="c"} `})
	if _, ok := j.(Sampled); ok {
		t.Error("sources without samples have some together")
	}
	inv, err := Collect(t.Context(), j, nil)
	if err != nil || !reflect.DeepEqual(inv.Sources, []string{"0 series", "2 series"}) {
		t.Errorf("got %v and %v", inv.Sources, err)
	}
}

// TestJoinedSamples: of two folders that have a page of one target, the first one's samples count.
func TestJoinedSamples(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	write(t, a, "j/x.prom", "m 1\n")
	write(t, b, "j/x.prom", "m 2\nn 3\n")
	var sources []Source
	for _, dir := range []string{a, b} {
		src, err := Pages(dir)
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, src)
	}
	j := Join(sources...)
	got := map[string]float64{}
	err := j.(Sampled).Samples(t.Context(), time.Hour, func(labels.Labels) bool { return true },
		func(s *Series, floats []promql.FPoint, _ []promql.HPoint) error {
			got[s.Labels.Get("__name__")] += floats[0].F
			return nil
		})
	if err != nil || !reflect.DeepEqual(got, map[string]float64{"m": 1, "n": 3}) {
		t.Errorf("got %v and %v", got, err)
	}
	if _, ok := Join(j, fixed{}).(Sampled); ok || len(read(t, j)) != 2 || !strings.Contains(j.String(), ", ") ||
		Join(sources[0]) != sources[0] {
		t.Error("the sources are not put together as promised")
	}
}
