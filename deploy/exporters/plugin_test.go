package exporters

import (
	"bufio"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

// notOurs are metrics that the plugin shows where they are, and that no exporter here has: Kueue's
// controller has them.
var notOurs = map[string]bool{"kueue_local_queue_pending_workloads": true}

// Everything that the plugin asks for is exported by what stands here, or recorded by a rule;
// labels of pods are let through.
func TestPluginIsServed(t *testing.T) {
	f, err := os.Open("../../relabel/testdata/experiment.promql")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	_, recorded, _ := rules(t)
	e := newExporter(t)
	allowed := strings.Join(Flags(KubeStateMetrics), "\n")
	allowed = snake.ReplaceAllString(allowed, "_")
	p := parser.NewParser(parser.Options{})
	reported := map[string]bool{}
	queries, raw, series, names := 0, 0, 0, 0
	bad := func(format string, name string) {
		if !reported[name] {
			reported[name] = true
			t.Errorf(format, name)
		}
	}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		queries++
		expr, err := p.ParseExpr(strings.ReplaceAll(line, "[$range", "[1h"))
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
			sel, ok := n.(*parser.VectorSelector)
			switch {
			case !ok || notOurs[sel.Name]:
			case strings.Contains(sel.Name, ":"):
				if series++; !recorded[sel.Name] {
					bad("%s is recorded by no rule", sel.Name)
				}
			default:
				raw++
				if why := e.missing(sel.Name, e.owner(sel.Name)); why != "" {
					bad("%s: "+why, sel.Name)
				}
			}
			return nil
		})
		for _, l := range regexp.MustCompile(`\blabel_[a-z0-9_]+\b`).FindAllString(line, -1) {
			if l == "label_replace" || l == "label_join" {
				continue
			}
			if names++; !strings.Contains(allowed, "_"+strings.TrimPrefix(l, "label_")+"_") {
				bad("%s is not in --metric-labels-allowlist", l)
			}
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if queries < 100 || raw < 50 || series < 100 || names < 10 {
		t.Errorf("%d queries name %d exported series, %d recorded ones and %d labels: the file was not read", queries, raw, series, names)
	}
}
