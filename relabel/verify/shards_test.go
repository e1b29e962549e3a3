package verify_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/verify"
)

// What a hash takes is on another server only where one that has it was given.
func TestShardsThatAreNotGiven(t *testing.T) {
	shard := func(modulus int, rule string) string {
		return withRules(t, fmt.Sprintf("- {source_labels: [pod], modulus: %d, target_label: __tmp_h, action: hashmod}\n- {source_labels: [__tmp_h], %s}\n"+
			"- {regex: __tmp_h, action: labeldrop}", modulus, rule))
	}
	const zero, other = "regex: '0', action: keep", "regex: '0', action: drop"
	for name, c := range map[string]struct {
		files []string
		text  string
	}{
		"one":               {[]string{shard(10, zero)}, "keeps 1 of 10 parts"},
		"one by what goes":  {[]string{shard(10, "regex: '[1-9]', action: drop")}, "keeps 1 of 10 parts"},
		"twice the same":    {[]string{shard(2, zero), shard(2, zero)}, "keeps 1 of 2 parts"},
		"both":              {[]string{shard(2, zero), shard(2, other)}, ""},
		"another modulus":   {[]string{shard(2, zero), shard(3, other)}, "parts"},
		"what keeps it all": {[]string{shard(2, "regex: '.', action: keep")}, ""},
	} {
		for _, src := range []inventory.Source{nil, series(t, "a_m pod=a", "a_m pod=b")} {
			r := check(t, verify.Options{Prometheus: c.files, Uses: queries(t, "a_m > 0"), Source: src})
			told := 0
			for _, f := range r.Findings {
				if f.Check == verify.CheckShards {
					told++
					if f.Severity != verify.Doubtful || f.RuleLine != 5 || !strings.Contains(f.Text, c.text) ||
						!strings.Contains(f.String(), "Give the files of all servers") {
						t.Errorf("%s: %s", name, f.String())
					}
				}
			}
			if (told > 0) != (c.text != "") {
				t.Errorf("%s:\n%s", name, textOf(t, r))
			}
		}
	}
}
