package thanos

import (
	"maps"
	"slices"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

// TestStoreMatch: the selector is one that Prometheus' parser takes, and means what it is to mean;
// and of addresses none is taken for a longer one.
func TestStoreMatch(t *testing.T) {
	ms, err := parser.NewParser(parser.Options{}).ParseMetricSelector(storeMatch([]string{"a:1", `b"\:2`}))
	if err != nil {
		t.Fatal(err)
	}
	for addr, want := range map[string]bool{"a:1": false, `b"\:2`: false, "a:10": true, "c:1": true} {
		got := true
		for _, m := range ms {
			got = got && m.Name == "__address__" && m.Matches(addr)
		}
		if got != want {
			t.Errorf("%s matches: %t", addr, got)
		}
	}
	text := "receive series from Addr: 10.0.0.1:10901 MinTime: 0; Addr: 10.0.0.2:1"
	if got := slices.Sorted(maps.Keys(SpokenOf(text, []string{
		"10.0.0.1:1090", "10.0.0.1:10901", "10.0.0.2:1",
		"10.0.0.3:1",
	}))); !slices.Equal(got, []string{"10.0.0.1:10901", "10.0.0.2:1"}) {
		t.Errorf("it speaks of %q", got)
	}
}
