package cost

import "testing"

// TestHeldByGroups: an aggregation has no more groups than its labels have combinations of values,
// where these are known and stored series have them.
func TestHeldByGroups(t *testing.T) {
	values := func(label string) (int64, bool) {
		n, ok := map[string]int64{"job": 50, "le": 20, "pod": 1 << 30}[label]
		return n, ok
	}
	g := Grid{Steps: 1}
	for query, few := range map[string]bool{
		"sum by (job) (rate(x[5m]))":                                     true,
		"histogram_quantile(0.9, sum by (le, job) (rate(x[5m])))":        true,
		"sum by (job) (sum by (job, le) (x))":                            true,
		"sum by (job) (x) / on (job) sum by (job) (y)":                   true,
		"sum by (pod) (x)":                                               false,
		"sum by (job, region) (x)":                                       false, // nobody knows
		"sum without (job) (x)":                                          false,
		"topk by (job) (5, x)":                                           false,
		`count_values by (job) ("v", x)`:                                 false,
		`sum by (job) (label_replace(x, "job", "$1", "pod", "(.*)"))`:    false,
		`sum by (job) (label_join(x, "job", "-", "pod", "le"))`:          false,
		`sum by (le) (count_values by (job) ("le", x))`:                  false,
		`sum by (job) (max by (job) (label_join(x, "job", "-", "pod")))`: false,
	} {
		e := parsed(t, query)
		all, by := Held(e, g, floats(100_000), nil), HeldBy(e, g, floats(100_000), nil, values)
		if by > all || (by < all-100_000*200) != few {
			t.Errorf("%s: %d bytes where nothing is known of values, %d where it is", query, all, by)
		}
	}
}
