package prove

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/prometheus/common/model"

	"github.com/spillwayproject/spillway/relabel/propose"
	"github.com/spillwayproject/spillway/relabel/uses"
)

var (
	seed   = flag.Uint64("seed", 1, "of the first world of TestScanAndReplayAgree")
	rounds = flag.Uint64("rounds", 3, "how many worlds TestScanAndReplayAgree makes")
)

// TestScanAndReplayAgree: over random series, queries and rules, what the scan lets pass changes no
// answer. The scan reasons about needs; the replay asks Prometheus' engine.
func TestScanAndReplayAgree(t *testing.T) {
	var passed, failed, found, nonempty int64
	for s := *seed; s < *seed+*rounds; s++ {
		r := rand.New(rand.NewPCG(s, 6))
		w := randomWorld(r)
		set := new(uses.Set)
		for i := range 1 + r.IntN(12) {
			set.Add(&uses.Use{Where: fmt.Sprintf("query %d", i), Query: randomQuery(r, 3)})
		}
		all := randomRules(t, r, w)
		rules := all
		for len(rules) > 0 { // what is left must pass together
			proof := proveIn(t, w, set, rules)
			var left []propose.Rule
			for _, rule := range rules {
				if _, no := proof.Failed[rule.ID]; !no {
					left = append(left, rule)
				}
			}
			if len(left) == len(rules) {
				break
			}
			rules = left
		}
		passed += int64(len(rules))
		failed += int64(len(all) - len(rules))
		out := play(t, w, set, rules, ReplayOptions{})
		nonempty += out.Equal + out.Rounded
		for _, d := range out.Differences {
			t.Errorf("seed %d: %s: %s\nbefore %s\nafter %s\nrules %s", s, d.Where, d.Query, d.Before, d.After, ids(rules))
		}
		if s == *seed { // and what it refuses changes some
			found += play(t, w, set, all, ReplayOptions{}).Different
		}
	}
	t.Logf("%d rules passed, %d failed, %d answers with series, %d changed by all rules", passed, failed, nonempty, found)
	if passed == 0 || failed == 0 || nonempty == 0 || found == 0 {
		t.Error("this compares nothing")
	}
}

func ids(rules []propose.Rule) string {
	var out []string
	for _, r := range rules {
		out = append(out, fmt.Sprintf("%s %q", r.ID, r.Values))
	}
	return strings.Join(out, ", ")
}

func one(r *rand.Rand, from ...string) string { return from[r.IntN(len(from))] }

// randomWorld has counters, gauges and histograms of two jobs. In some of them zone follows from
// pod, so that one of the two can go.
func randomWorld(r *rand.Rand) *world {
	w := &world{}
	follows := r.IntN(2) == 0
	for _, job := range []string{"a", "b"} {
		for _, instance := range []string{"x", "y"} {
			on := fmt.Sprintf("job=%q,instance=%q", job, instance)
			for _, name := range []string{"c_total", "d_total", "e", "f", "g"} {
				for pod := range 3 {
					zone := pod % 2
					if !follows {
						zone = r.IntN(2)
					}
					kind := model.MetricTypeGauge
					if strings.HasSuffix(name, "_total") {
						kind = model.MetricTypeCounter
					}
					w.add(kind, fmt.Sprintf("%s{%s,pod=\"p%d\",zone=\"z%d\",id=\"%s%d\"}", name, on, pod, zone, instance, pod))
				}
			}
			for _, le := range []string{"0.5", "1.0", "2.0", "5.0", "+Inf"} {
				w.add(model.MetricTypeHistogram, fmt.Sprintf("h_bucket{%s,le=%q}", on, le))
			}
		}
	}
	return w
}

// randomQuery is an expression that has a vector for its value.
func randomQuery(r *rand.Rand, depth int) string {
	names := func() string {
		var out []string
		for _, n := range []string{"job", "pod", "zone", "id", "instance"} {
			if r.IntN(3) == 0 {
				out = append(out, n)
			}
		}
		return strings.Join(out, ",")
	}
	if depth == 0 || r.IntN(6) == 0 {
		matchers := ""
		for range r.IntN(3) {
			matchers += fmt.Sprintf("%s%s%q,", one(r, "job", "pod", "zone"), one(r, "=", "!=", "=~", "!~"),
				one(r, "a", "b", "p0", "p1", "z0", "", "p0|p1", ".+"))
		}
		switch r.IntN(4) {
		case 0:
			return fmt.Sprintf("rate(%s{%s}[5m])", one(r, "c_total", "d_total"), matchers)
		case 1:
			return fmt.Sprintf("max_over_time(%s{%s}[5m])", one(r, "e", "f"), matchers)
		}
		return fmt.Sprintf("%s{%s}", one(r, "c_total", "e", "f"), matchers)
	}
	inner := func() string { return randomQuery(r, depth-1) }
	switch r.IntN(10) {
	case 0, 1, 2:
		return fmt.Sprintf("%s %s (%s) (%s)", one(r, "sum", "count", "min", "avg", "group"), one(r, "by", "by", "without"), names(),
			inner())
	case 3:
		if r.IntN(5) == 0 {
			return fmt.Sprintf("limit_ratio by (%s) (0.5, %s)", names(), inner())
		}
		return fmt.Sprintf("%s %s (%s) (%d, %s)", one(r, "topk", "bottomk", "limitk", "quantile"), one(r, "by", "without"), names(),
			1+r.IntN(2), inner())
	case 4:
		return fmt.Sprintf("(%s %s %s (%s) %s)", inner(), one(r, "+", "and", "or", "unless", ">"), one(r, "on", "ignoring"), names(),
			inner())
	case 5:
		return fmt.Sprintf("histogram_quantile(0.9, sum by (le,%s) (rate(h_bucket[5m])))", one(r, "job", "instance"))
	case 6:
		return fmt.Sprintf(`sum(rate(h_bucket{le=~"%s"}[5m]))`, one(r, "0.5", "1|1.0", "5.0|\\\\+Inf"))
	case 7:
		return fmt.Sprintf("absent(%s)", inner())
	case 8:
		return fmt.Sprintf(`count_values by (%s) ("v", %s)`, names(), inner())
	}
	return fmt.Sprintf("-(%s)", inner())
}

func randomRules(t *testing.T, r *rand.Rand, w *world) (out []propose.Rule) {
	for _, job := range []string{"a", "b"} {
		for _, name := range []string{"c_total", "d_total", "e", "f", "g"} {
			switch r.IntN(4) {
			case 0:
				out = append(out, ruleOf(t, w, propose.Names, job, []string{name}, ""))
			case 1:
				out = append(out, ruleOf(t, w, propose.Slice, job, []string{name}, "pod", fmt.Sprintf("p%d", r.IntN(3))))
			default:
				out = append(out, ruleOf(t, w, propose.Label, job, []string{name}, one(r, "pod", "zone", "id")))
			}
		}
		out = append(out, ruleOf(t, w, propose.Buckets, job, []string{"h_bucket"}, "le", one(r, "0.5", "1.0", "2.0")))
	}
	return out
}
