package policy

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

// TestDashboardsAndAlertsPass: no query of the dashboards and rules that Spillway brings meets a
// bound on what a text may ask for, over the ranges that people look at.
func TestDashboardsAndAlertsPass(t *testing.T) {
	variables := []struct {
		re   *regexp.Regexp
		with string
	}{
		{regexp.MustCompile(`\$\{?__(rate_interval|interval|range)(:\w+)?\}?`), "5m"},
		{regexp.MustCompile(`\$\{?__(range|interval)_(s|ms)\}?`), "300"},
		{regexp.MustCompile(`\[\$\{?\w+(:\w+)?\}?\]`), "[5m]"},
		{regexp.MustCompile(`\$\{?\w+(:\w+)?\}?`), "1"},
	}
	expressions := regexp.MustCompile(`(?m)"expr": ("(?:[^"\\]|\\.)*")`)
	rules := regexp.MustCompile(`(?m)^\s*(?:- )?expr: (?:\|-?\n((?:\s{6,}.*\n)+)|(.*))`)
	var texts []string
	dashboards, _ := filepath.Glob("../../dashboards/*.json")
	for _, name := range dashboards {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range expressions.FindAllSubmatch(data, -1) {
			var text string
			if err := json.Unmarshal(m[1], &text); err != nil {
				t.Fatal(err)
			}
			for _, v := range variables {
				text = v.re.ReplaceAllString(text, v.with)
			}
			texts = append(texts, text)
		}
	}
	files, _ := filepath.Glob("../../alerts/*/*.yaml")
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range rules.FindAllSubmatch(data, -1) {
			texts = append(texts, string(m[1])+string(m[2]))
		}
	}
	unread, leaves := 0, 0
	for _, text := range texts {
		for _, hours := range []int{1, 24, 7 * 24} {
			width := time.Duration(hours) * time.Hour
			d, err := Decide(rangeQuery(text, width, max(15*time.Second, width/2000)), testLimits(), nil, now)
			var e *qerr.Error
			switch {
			case errors.As(err, &e) && e.Bound == "":
				unread++
			case err != nil:
				t.Errorf("over %s: %v: %.300s", model.Duration(width), err, text)
			default:
				leaves = max(leaves, len(d.Selectors))
			}
		}
	}
	t.Logf("%d texts, %d of them unread; at most %d selectors", len(texts), unread/3, leaves)
	if len(texts) < 500 || unread > 3*len(texts)/10 {
		t.Errorf("only %d texts, of which %d cannot be read", len(texts), unread/3)
	}
}
