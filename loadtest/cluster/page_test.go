package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"go.uber.org/goleak"
)

type metricType = model.MetricType

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func parsePage(t testing.TB, page []byte, contentType string) (map[string]float64, map[string]metricType) {
	t.Helper()
	p, err := textparse.New(page, contentType, labels.NewSymbolTable(), textparse.ParserOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out, types := map[string]float64{}, map[string]metricType{}
	helps := map[string]int{}
	for {
		e, err := p.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("parse: %v", err)
		}
		switch e {
		case textparse.EntryType:
			n, typ := p.Type()
			if _, twice := types[string(n)]; twice {
				t.Fatalf("family %s has two TYPE lines", n)
			}
			types[string(n)] = typ
		case textparse.EntryHelp:
			n, h := p.Help()
			if helps[string(n)]++; helps[string(n)] > 1 || len(h) == 0 {
				t.Fatalf("family %s: help is empty or repeated", n)
			}
		case textparse.EntrySeries:
			_, ts, v := p.Series()
			if ts != nil {
				t.Fatal("a page has timestamps")
			}
			var l labels.Labels
			p.Labels(&l)
			l = l.WithoutEmpty() // as the server does before it stores them
			if _, twice := out[l.String()]; twice {
				t.Fatalf("%s is there twice", l)
			}
			out[l.String()] = v
		}
	}
	return out, types
}

// Every page is read without error by Prometheus' own parser, and is what
// Series says, label for label and bit for bit.
func TestPagesParse(t *testing.T) {
	for _, d := range []Detail{Lean, Full} {
		m := mustNew(t, Options{Seed: 11, Nodes: 2, Detail: d, CustomResources: 1, APIServers: 1})
		pages, lines := 0, 0
		for _, tg := range m.Targets() {
			var buf bytes.Buffer
			if err := m.WritePage(&buf, tg, testUntil); err != nil {
				t.Fatal(err)
			}
			parsed, types := parsePage(t, buf.Bytes(), ContentType)
			n := 0
			err := m.Series(tg, testUntil, func(l labels.Labels, v float64, typ metricType) {
				n++
				got, ok := parsed[l.String()]
				if !ok {
					t.Fatalf("%s/%s: the page lacks %s", tg.Job, tg.Instance, l)
				}
				if math.Float64bits(got) != math.Float64bits(v) {
					t.Fatalf("%s: page says %v, Series %v", l, got, v)
				}
				name := l.Get(model.MetricNameLabel)
				if types[name] == "" && types[familyName(name)] != typ {
					t.Fatalf("%s: type %s is not the page's", l, typ)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			if n != len(parsed) {
				t.Fatalf("%s/%s: %d series, page has %d", tg.Job, tg.Instance, n, len(parsed))
			}
			pages, lines = pages+1, lines+n
		}
		t.Logf("detail %d: %d pages, %d series", d, pages, lines)
	}
}

// The same options give the same bytes in any order of calls; others do not.
func TestDeterminism(t *testing.T) {
	o := Options{Seed: 5, Nodes: 4}
	a, b := mustNew(t, o), mustNew(t, o)
	o.Seed = 6
	other := mustNew(t, o)
	page := func(m *Model, i int, at time.Time) string {
		var buf bytes.Buffer
		if err := m.WritePage(&buf, m.Targets()[i], at); err != nil && !errors.Is(err, ErrDown) {
			t.Fatal(err)
		}
		return buf.String()
	}
	times := []time.Time{testUntil, testUntil.Add(-9 * time.Hour), testUntil.Add(31 * time.Minute)}
	same := 0
	for i := range a.Targets() {
		first := page(a, i, times[0])
		for k := range times {
			n := (k + 1) % len(times)
			if page(a, i, times[n]) != page(b, i, times[n]) {
				t.Fatalf("%s differs at %s", a.Targets()[i].Job, times[n])
			}
		}
		if page(a, i, times[0]) != first {
			t.Fatalf("%s: asking about other times changed the page", a.Targets()[i].Job)
		}
		if page(other, i, times[0]) == first {
			same++
		}
	}
	if same > 0 {
		t.Errorf("%d pages are the same under another seed", same)
	}
}

func TestHandler(t *testing.T) {
	down := Trouble{Kind: NodeDown, Target: "gpu-00001", From: testUntil.Add(-time.Minute), Until: testUntil.Add(time.Minute)}
	m := mustNew(t, Options{Nodes: 2, Troubles: []Trouble{down}})
	h := m.Handler(func() time.Time { return testUntil })
	get := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w
	}
	w := get("/sd")
	var groups []sdGroup
	if err := json.Unmarshal(w.Body.Bytes(), &groups); err != nil {
		t.Fatal(err)
	}
	if len(groups) != len(m.Targets()) {
		t.Fatalf("%d groups for %d targets", len(groups), len(m.Targets()))
	}
	for i, g := range groups {
		w := get(g.Labels["__metrics_path__"])
		want := http.StatusOK
		if g.Labels["node"] == "gpu-00001" {
			want = http.StatusServiceUnavailable
		}
		if w.Code != want {
			t.Fatalf("%v: %d %s", g, w.Code, w.Body)
		}
		if want == http.StatusOK {
			if n, _ := parsePage(t, w.Body.Bytes(), w.Header().Get("Content-Type")); len(n) == 0 {
				t.Errorf("%v: empty page", g)
			}
		}
		if tg := m.Targets()[i]; g.Labels["job"] != tg.Job || g.Labels["instance"] != tg.Instance ||
			g.Labels["node"] != tg.Labels.Get("node") {
			t.Errorf("%v is not %v", g, tg)
		}
	}
	if w := get("/scrape/nothing/here"); w.Code != http.StatusNotFound {
		t.Errorf("unknown target: %d", w.Code)
	}
}

func TestPageRefuses(t *testing.T) {
	m := mustNew(t, Options{Nodes: 1})
	if err := m.WritePage(io.Discard, Target{Job: "x"}, testUntil); err == nil {
		t.Error("unknown target: no error")
	}
	if err := m.WritePage(io.Discard, m.Targets()[0], m.Options().Start.Add(-time.Second)); err == nil {
		t.Error("before the start: no error")
	}
	if err := m.WritePage(failingWriter{}, m.Targets()[0], testUntil); err == nil {
		t.Error("failing writer: no error")
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func FuzzCanonicalFloat(f *testing.F) {
	for _, s := range []string{"1", "0.5", "+Inf", "1e-05", "2.592e+06", "0", "-3", "100000"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if len(s) > 30 || s == "" || strings.Trim(s, "0123456789.e+-Inf") != "" {
			t.Skip("not a le value")
		}
		page := "# TYPE x histogram\nx_bucket{le=\"" + s + "\"} 1\n"
		p, err := textparse.New([]byte(page), ContentType, nil, textparse.ParserOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for {
			e, err := p.Next()
			if err != nil {
				return
			}
			if e == textparse.EntrySeries {
				var l labels.Labels
				p.Labels(&l)
				fl := &family{typ: "histogram"}
				se := &series{fam: fl, pairs: []string{"le", s}}
				if got := se.stored(0); got != l.Get("le") {
					t.Errorf("le %q: %q, Prometheus stores %q", s, got, l.Get("le"))
				}
			}
		}
	})
}

func FuzzSchemaLine(f *testing.F) {
	f.Add("a_total\tcounter\t1\t# 3\tx{a|b}\tHelp.")
	f.Add("h_seconds\thistogram\t2\th 1,0.1,1\t@r:group,resource le{1|+Inf}\tHelp.")
	f.Add("x\tgauge\t1\t~ 1,2\tl{}\t")
	f.Add("\t\t\t\t\t")
	f.Fuzz(func(_ *testing.T, line string) {
		_, _ = parseSchemaLine(line) // an error or a family, never a panic
	})
}
