package localprom

import (
	"fmt"
	"math"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestParseLoad(t *testing.T) {
	for _, tc := range []struct{ name, text, want, err string }{
		{"in the order of time", "load 15s\n  b 1 2\n  a 3 4", "0 a 3; 0 b 1; 15000 a 4; 15000 b 2", ""},
		{
			"gaps, comments, two loads", "# x\nload 1m\n\n  a 1 _ 3\nload 30s\n  b 0+1x2", "0 a 1; 0 b 0; 30000 b 1; 60000 b 2; 120000 a 3",
			"",
		},
		{"labels", "load 1s\n {__name__=\"x y\",l=\"v\"} 1", `0 {__name__="x y", l="v"} 1`, ""},
		{"nothing", "", "", ""},
		{"no load", "a 1", "", "line 1: a series stands before the first load"},
		{"no step", "load\n a 1", "", "line 1: load needs a step"},
		{"zero step", "load 0s\n a 1", "", "greater than 0"},
		{"eval", "load 1s\n a 1\neval instant at 0 a", "", "line 3: eval is not understood here"},
		{"broken series", "load 1s\n a{ 1", "", "line 2: "},
		{"nhcb", "load_with_nhcb 1s\n a 1", "", "load_with_nhcb is not understood"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := ParseLoad(tc.text, time.UnixMilli(0))
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("error %v lacks %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var parts []string
			for _, s := range got {
				name := s.Labels.Get("__name__")
				if s.Labels.Len() > 1 {
					name = s.Labels.String()
				}
				parts = append(parts, fmt.Sprint(s.T, " ", name, " ", s.F))
			}
			if s := strings.Join(parts, "; "); s != tc.want {
				t.Errorf("got  %s\nwant %s", s, tc.want)
			}
		})
	}
}

func TestLoadTellsWhatIsTooOld(t *testing.T) {
	s := start(t, Options{})
	load(t, s, "load 15s\n  a 1", time.UnixMilli(0).Add(5*time.Hour))
	err := s.Load("load 15s\n  b{x=\"y\"} 1")
	if err == nil || !strings.Contains(err.Error(), `load {__name__="b", x="y"} at 1970-01-01T00:00:00Z: out of bounds`) {
		t.Errorf("error: %v", err)
	}
	if n := s.DB().Head().NumSeries(); n != 1 {
		t.Errorf("%d series in the head after a load that was rolled back", n)
	}
}

var manyTimes = regexp.MustCompile(`[xX][^a-zA-Z]*[0-9]{4}`)

func FuzzParseLoad(f *testing.F) {
	for _, seed := range []string{
		jobs, "load 15s\n  a 1 2 _ stale", "load 1m\n x{a=\"b\"} {{schema:1 sum:1 count:2 buckets:[1 1]}}",
		"load 1y\n a NaN Inf -Inf", "# c\n\nload 5ms\n{\"é\"} 1", "load 15s\n a 1+1x3",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1000 || manyTimes.MatchString(text) {
			return // 1x999999999 is a thousand million samples: this text is written by tests, not by strangers
		}
		samples, err := ParseLoad(text, time.UnixMilli(0))
		if err != nil {
			return
		}
		last := int64(math.MinInt64)
		for _, s := range samples {
			if s.T < last {
				t.Fatalf("%d comes after %d", s.T, last)
			}
			last = s.T
		}
	})
}
