package recording

import (
	"fmt"
	"slices"
	"testing"
	"testing/fstest"
	"time"
)

// TestCircle: one rule reads what another one recorded a minute ago, and that one reads the first.
// What comes after them is evaluated after them.
func TestCircle(t *testing.T) {
	s := filled(t)
	f, err := New(Options{Rules: fstest.MapFS{"a.yaml": {Data: []byte(`groups:
  - name: circle
    interval: 1m
    rules:
      - record: after
        expr: second + 100
      - record: sum
        expr: (last_over_time(sum[5m]) or vector(0)) + first
      - record: first
        expr: (second offset 1m or vector(0)) + 1
      - record: second
        expr: first * 2
`)}}, Query: FromEngine(s.Engine(), s.Storage()), Append: s.Storage()})
	if err != nil {
		t.Fatal(err)
	}
	st := Stats{}
	for _, part := range [][2]time.Duration{{0, 3 * time.Minute}, {3 * time.Minute, 6 * time.Minute}} {
		got, err := f.Fill(t.Context(), zero.Add(part[0]), zero.Add(part[1]))
		if err != nil {
			t.Fatal(err)
		}
		st.Rules, st.Steps, st.Samples = got.Rules, st.Steps+got.Steps, st.Samples+got.Samples
	}
	if st != (Stats{Rules: 4, Steps: 24, Samples: 24}) {
		t.Errorf("%+v", st)
	}
	first, sum := 1.0, 0.0
	for minute := range 6 {
		at := time.Duration(minute) * time.Minute
		sum += first
		want := []string{
			fmt.Sprintf(`{__name__="after"} %g`, 2*first+100), fmt.Sprintf(`{__name__="first"} %g`, first),
			fmt.Sprintf(`{__name__="second"} %g`, 2*first), fmt.Sprintf(`{__name__="sum"} %g`, sum),
		}
		if got := series(t, s, `{__name__=~"after|first|second|sum"}`, at); !slices.Equal(got, want) {
			t.Errorf("after %s: %q, want %q", at, got, want)
		}
		first = 2*first + 1
	}
}
