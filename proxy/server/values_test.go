package server

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
)

// valuesAt is a query's result in a form that can be compared: by label set, by time.
type valuesAt map[string]map[int64]string

func fromResult(v any) valuesAt {
	out := valuesAt{}
	put := func(l string, t int64, val string) {
		if out[l] == nil {
			out[l] = map[int64]string{}
		}
		out[l][t] = val
	}
	switch v := v.(type) {
	case promql.Vector:
		for _, s := range v {
			if s.H != nil {
				put(s.Metric.String(), s.T, s.H.String())
			} else {
				put(s.Metric.String(), s.T, number(s.F))
			}
		}
	case promql.Matrix:
		for _, s := range v {
			for _, p := range s.Floats {
				put(s.Metric.String(), p.T, number(p.F))
			}
			for _, p := range s.Histograms {
				put(s.Metric.String(), p.T, p.H.String())
			}
		}
	case promql.Scalar:
		put("scalar", v.T, number(v.V))
	}
	return out
}

func number(f float64) string {
	if math.IsNaN(f) {
		return "NaN"
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}

// ask queries the proxy. Histograms are compared by count and sum in text form of the reference, so
// they are kept as raw JSON here.
func ask(t testing.TB, base, path string, form url.Values) (code int, body []byte) {
	t.Helper()
	resp, err := http.PostForm(base+path, form)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, body
}

func fromJSON(t testing.TB, body []byte) (valuesAt, string) {
	t.Helper()
	var env struct {
		Status, Error string
		Data          struct {
			ResultType string
			Result     json.RawMessage
		}
	}
	if err := json.Unmarshal(body, &env); err != nil {
		t.Fatalf("%v: %.300s", err, body)
	}
	if env.Status != "success" {
		return nil, env.Error
	}
	out := valuesAt{}
	if env.Data.ResultType == "scalar" {
		var pair []any
		if err := json.Unmarshal(env.Data.Result, &pair); err != nil {
			t.Fatal(err)
		}
		f, _ := strconv.ParseFloat(pair[1].(string), 64)
		out["scalar"] = map[int64]string{ms(pair[0]): number(f)}
		return out, ""
	}
	var list []struct {
		Metric     map[string]string
		Value      []any
		Values     [][]any
		Histogram  []any
		Histograms [][]any
	}
	if err := json.Unmarshal(env.Data.Result, &list); err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		key := labels.FromMap(s.Metric).String()
		if out[key] != nil {
			t.Errorf("%s stands twice", key)
		}
		out[key] = map[int64]string{}
		add := func(p []any) {
			if len(p) != 2 {
				return
			}
			switch v := p[1].(type) {
			case string:
				f, err := strconv.ParseFloat(v, 64)
				if err != nil {
					t.Fatal(err)
				}
				out[key][ms(p[0])] = number(f)
			case map[string]any:
				out[key][ms(p[0])] = fmt.Sprintf("histogram count=%v sum=%v", v["count"], v["sum"])
			}
		}
		add(s.Value)
		add(s.Histogram)
		for _, p := range s.Values {
			add(p)
		}
		for _, p := range s.Histograms {
			add(p)
		}
	}
	return out, ""
}

func ms(v any) int64 { return int64(math.Round(v.(float64) * 1000)) }

// compare says how two answers differ; tolerance is relative.
func compare(got, want valuesAt, tolerance float64) string {
	for key, points := range want {
		g, ok := got[key]
		if !ok {
			return "missing " + key
		}
		for t, w := range points {
			v, ok := g[t]
			if !ok {
				return fmt.Sprintf("%s: no value at %d, want %s", key, t, w)
			}
			if v == w || strings.HasPrefix(v, "histogram ") && strings.HasPrefix(w, "{count:") && histogramsAgree(v, w) {
				continue
			}
			a, err1 := strconv.ParseFloat(v, 64)
			b, err2 := strconv.ParseFloat(w, 64)
			if err1 != nil || err2 != nil || math.Abs(a-b) > tolerance*math.Max(math.Abs(a), math.Abs(b)) {
				return fmt.Sprintf("%s at %d: got %s, want %s", key, t, v, w)
			}
		}
		if len(g) != len(points) {
			return fmt.Sprintf("%s: %d points, want %d", key, len(g), len(points))
		}
	}
	for key := range got {
		if _, ok := want[key]; !ok {
			return "unexpected " + key
		}
	}
	return ""
}

// histogramsAgree compares count and sum of the JSON form with the engine's text form.
func histogramsAgree(js, text string) bool {
	var count, sum string
	if _, err := fmt.Sscanf(js, "histogram count=%s sum=%s", &count, &sum); err != nil {
		return false
	}
	return histogramNumber(text, "count:") == parse(count) && histogramNumber(text, "sum:") == parse(sum)
}

func histogramNumber(text, key string) float64 {
	_, rest, _ := strings.Cut(text, key)
	rest, _, _ = strings.Cut(rest, ",")
	rest = strings.TrimSuffix(rest, "}")
	return parse(rest)
}

// parse rounds to what the text form shows.
func parse(s string) float64 {
	f, _ := strconv.ParseFloat(s, 64)
	f, _ = strconv.ParseFloat(strconv.FormatFloat(f, 'g', 6, 64), 64)
	return f
}
