package relabel_test

import (
	"fmt"
	"strings"
	"testing"
)

// A used name that is neither stored nor recorded may be that of a rule that was not given, or of
// what is not scraped yet.
func TestUnknownNames(t *testing.T) {
	const told = "neither stored nor recorded"
	src := pages(t, map[string]string{"j/1": "used 1\nunused 1\n"})
	p := plan(t, src, queries("used", "up", "ALERTS", "wrong_m", "wrong_m > 5"))
	text := strings.Join(p.Warnings, "\n")
	if strings.Count(text, told) != 1 || !strings.Contains(text, "wrong_m (") || !strings.Contains(text, "and 1 more") ||
		strings.Contains(text, " used (") || strings.Contains(text, " up (") || len(p.Rules) != 1 {
		t.Errorf("warnings %q", p.Warnings)
	}
	if strings.Contains(strings.Join(p.Alarms, "\n"), "wrong_m") {
		t.Errorf("alarms %q", p.Alarms)
	}
	if p = plan(t, src, queries("used")); strings.Contains(strings.Join(p.Warnings, "\n"), told) {
		t.Errorf("warnings %q", p.Warnings)
	}
	many := []string{"used"}
	for i := range 3000 {
		many = append(many, fmt.Sprintf("wrong_%d", i))
	}
	p = plan(t, src, queries(many...))
	if text := strings.Join(p.Warnings, "\n"); !strings.Contains(text, "3000 names") || len(text) > 8000 {
		t.Errorf("warnings of %d bytes: %.500s", len(text), text)
	}
}
