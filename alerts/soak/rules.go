package soak

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

// Rules are the rule files of both places where rules run.
type Rules struct{ Global, Shard fs.FS }

// unseen are the files whose alerts are about servers that the simulator does not have, with what
// is missing. None of them is evaluated.
var unseen = map[string]string{
	"spillway.yaml":    "the proxy, its ruler and Alertmanager",
	"remediation.yaml": "the remediation controller",
	"relabel.yaml":     "the runs of spillway relabel",
	"canary.yaml":      "the runs of spillway mixin canary",
	"watchdog.yaml":    "nothing: it fires always, to show that alerts arrive",
}

// controlPlane are the files whose alerts are about the control plane and Prometheus servers: their
// series are the most of a small cluster's, so that they are evaluated only where Options.All says
// so.
var controlPlane = []string{
	"apiserver.yaml", "certificates.yaml", "controlplane.yaml", "dns.yaml", "etcd.yaml", "prometheus.yaml",
}

// place says where a group comes from.
type place struct{ file, group string }

// known is one rule of the files.
type known struct {
	rulefmt.Rule
	group *ruleGroup
	expr  parser.Expr
}

// ruleGroup is a group with the rules that are evaluated, in the order of the file.
type ruleGroup struct {
	place
	interval, offset time.Duration
	limit            int
	rules            []*known
}

// plan is what a soak evaluates.
type plan struct {
	groups []*ruleGroup
	// names are the families that come from exporters, sorted.
	names []string
	// reach is how far back rules look, by each family that they read.
	reach map[string]time.Duration
}

// chosen are the alerts that are wanted for their own sake.
func (o *Options) chosen(r *known) bool {
	if r.Alert == "" || !slices.Contains(o.Severities, r.Labels["severity"]) {
		return false
	}
	return unseen[r.group.file] == "" && (o.All || !slices.Contains(controlPlane, r.group.file))
}

// plan reads the files and keeps the chosen alerts and all that is recorded for them, and for what
// is recorded for those.
func (o *Options) plan() (*plan, error) {
	groups, err := o.Rules.read()
	if err != nil {
		return nil, err
	}
	recorded := map[string][]*known{}
	var work, alerts []*known
	for _, g := range groups {
		for _, r := range g.rules {
			if r.Record != "" {
				recorded[r.Record] = append(recorded[r.Record], r)
			} else if unseen[g.file] == "" {
				alerts = append(alerts, r)
			}
			if o.chosen(r) {
				work = append(work, r)
			}
		}
	}
	if len(work) == 0 {
		return nil, errors.New("no alert has one of the severities: nothing to judge")
	}
	p := &plan{reach: map[string]time.Duration{}}
	names, keep := map[string]bool{"up": true}, map[*known]bool{}
	for len(work) > 0 {
		r := work[0]
		if work = work[1:]; keep[r] {
			continue
		}
		keep[r] = true
		p.look(r.expr)
		for _, s := range parser.ExtractSelectors(r.expr) {
			name := metricName(s)
			switch from := recorded[name]; {
			case name == "":
				return nil, fmt.Errorf("%s: a selector names no family, so that nobody knows what it needs: %s", r.Alert+r.Record, r.Expr)
			case name == "ALERTS" || name == "ALERTS_FOR_STATE":
				work = append(work, matching(alerts, s)...)
			case len(from) > 0:
				work = append(work, from...)
			default:
				names[name] = true
			}
		}
	}
	for _, g := range groups {
		g.rules = slices.DeleteFunc(g.rules, func(r *known) bool { return !keep[r] })
		if len(g.rules) > 0 {
			p.groups = append(p.groups, g)
		}
	}
	for n := range names {
		p.reach[n] += 0
		p.names = append(p.names, n)
	}
	slices.Sort(p.names)
	return p, nil
}

// matching are the alerts that a selector of ALERTS may mean, as far as their fixed labels say.
func matching(alerts []*known, s []*labels.Matcher) []*known {
	var out []*known
	for _, r := range alerts {
		fits := true
		for _, m := range s {
			switch v, fixed := r.Labels[m.Name]; {
			case m.Name == labels.AlertName:
				fits = fits && m.Matches(r.Alert)
			case fixed:
				fits = fits && m.Matches(v)
			}
		}
		if fits {
			out = append(out, r)
		}
	}
	return out
}

func metricName(s []*labels.Matcher) string {
	for _, m := range s {
		if m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual {
			return m.Value
		}
	}
	return ""
}

// look notes how far back an expression looks, offsets and subqueries added up.
func (p *plan) look(e parser.Expr) {
	parser.Inspect(e, func(n parser.Node, path []parser.Node) error {
		v, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		far := v.OriginalOffset
		for _, up := range path {
			switch up := up.(type) {
			case *parser.MatrixSelector:
				far += up.Range
			case *parser.SubqueryExpr:
				far += up.Range + up.OriginalOffset
			}
		}
		name := metricName(v.LabelMatchers)
		p.reach[name] = max(p.reach[name], far)
		return nil
	})
}

// read parses the files of both places, those of shards first, each place by name.
func (r Rules) read() ([]*ruleGroup, error) {
	var out []*ruleGroup
	p := parser.NewParser(parser.Options{})
	for _, where := range []struct {
		dir   string
		files fs.FS
	}{{"shard", r.Shard}, {"global", r.Global}} {
		if where.files == nil {
			return nil, fmt.Errorf("rules.%s: no files", where.dir)
		}
		names, err := fs.Glob(where.files, "*.yaml")
		if err != nil {
			return nil, fmt.Errorf("rules.%s: %w", where.dir, err)
		}
		for _, name := range names {
			text, err := fs.ReadFile(where.files, name)
			if err != nil {
				return nil, fmt.Errorf("rules.%s: %w", where.dir, err)
			}
			var file rulefmt.RuleGroups
			if err := yaml.Unmarshal(text, &file); err != nil {
				return nil, fmt.Errorf("read %s/%s: %w", where.dir, name, err)
			}
			for _, g := range file.Groups {
				at := &ruleGroup{
					place: place{name, g.Name}, limit: g.Limit,
					interval: cmp.Or(time.Duration(g.Interval), defaultInterval),
				}
				if g.QueryOffset != nil {
					at.offset = time.Duration(*g.QueryOffset)
				}
				for _, x := range g.Rules {
					expr, err := p.ParseExpr(x.Expr)
					if err != nil {
						return nil, fmt.Errorf("%s/%s: %s: %w", where.dir, name, x.Alert+x.Record, err)
					}
					at.rules = append(at.rules, &known{x, at, expr})
				}
				out = append(out, at)
			}
		}
	}
	return out, nil
}
