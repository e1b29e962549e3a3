package config

import (
	"strings"
	"testing"
)

// TestLineOfBrokenYAML: the line that is named is the one to be mended, or the one where begins
// what nothing ends, not where the mapping around it began.
func TestLineOfBrokenYAML(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		text string
		line int
	}{
		"indented too little":  {"groups:\n  - name: a\n   shards: []\n", 3},
		"indented too much":    {"groups:\n  - name: a\n    shards: []\n      x: y\nlimits: {}\n", 4},
		"a value too many":     {"limits: {}\ngroups:\n- name: a: b\n", 3},
		"a quotation open":     {"groups:\n  - name: \"a\n    shards: []\nlimits: {}\n", 2},
		"a bracket open":       {"groups:\n  - name: a\n    shards: [{replicas: [{url: \"http://x\"}]\nlimits: {}\n", 3},
		"of several lines":     {"groups: [\n  {name: a},\n  {name: b}\n]\nlimits:\n  timeout 3s\n  range: 1d\n", 7},
		"the first":            {"}\n", 1},
		"without an end":       {"limits: {}\n a", 2},
		"more than are looked": {strings.Repeat("\n", 3000) + "a: b: c\n", 3001},
	} {
		_, err := Parse([]byte(tc.text), ".")
		problems, ok := err.(Problems)
		if !ok || len(problems) != 1 || problems[0].Line != tc.line || !strings.Contains(problems[0].Message, "not valid YAML") {
			t.Errorf("%s: %v, want line %d\n%s", name, err, tc.line, strings.TrimLeft(tc.text, "\n"))
		}
	}
}
