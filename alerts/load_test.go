package alerts_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

// newParser reads expressions as promtool and the servers do.
func newParser() parser.Parser { return parser.NewParser(parser.Options{}) }

// ruleAt is a rule and where it stands.
type ruleAt struct {
	scope, file, group string
	rulefmt.Rule
	expr parser.Expr
}

func (r ruleAt) name() string { return r.Alert + r.Record }

// where is the rule as messages name it.
func (r ruleAt) where() string { return fmt.Sprintf("%s (alerts/%s/%s)", r.name(), r.scope, r.file) }

// rulesOf are all rules of the committed files.
func rulesOf(t testing.TB) []ruleAt {
	t.Helper()
	files, err := filepath.Glob("*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	files = slices.DeleteFunc(files, func(f string) bool { return filepath.Dir(f) != "global" && filepath.Dir(f) != "shard" })
	if len(files) == 0 {
		t.Fatal("there are no rule files; run make generate")
	}
	p := newParser()
	var out []ruleAt
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var groups rulefmt.RuleGroups
		if err := yaml.Unmarshal(b, &groups); err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		for _, g := range groups.Groups {
			for _, r := range g.Rules {
				at := ruleAt{scope: filepath.Dir(f), file: filepath.Base(f), group: g.Name, Rule: r}
				if at.expr, err = p.ParseExpr(r.Expr); err != nil {
					t.Fatalf("%s: %v", at.where(), err)
				}
				out = append(out, at)
			}
		}
	}
	return out
}

// alertsOf are the alerts among rulesOf.
func alertsOf(t testing.TB) []ruleAt {
	t.Helper()
	return slices.DeleteFunc(rulesOf(t), func(r ruleAt) bool { return r.Alert == "" })
}

// caseFile is a file of promtool's rule tests. Fields that no test here looks at are left to
// promtool.
type caseFile struct {
	path       string
	RuleFiles  []string       `yaml:"rule_files"`
	Interval   model.Duration `yaml:"evaluation_interval"`
	GroupOrder []string       `yaml:"group_eval_order"`
	Tests      []ruleCase     `yaml:"tests"`
}

type ruleCase struct {
	Name           string            `yaml:"name"`
	Interval       model.Duration    `yaml:"interval"`
	ExternalLabels map[string]string `yaml:"external_labels"`
	Input          []struct {
		Series, Values string
	} `yaml:"input_series"`
	Alerts []struct {
		At   model.Duration `yaml:"eval_time"`
		Name string         `yaml:"alertname"`
		Want []struct {
			Labels map[string]string `yaml:"exp_labels"`
		} `yaml:"exp_alerts"`
	} `yaml:"alert_rule_test"`
	Queries []struct {
		Expr string
	} `yaml:"promql_expr_test"`
}

// rules are the rule files of f by path, globs resolved.
func (f *caseFile) rules(t testing.TB) []string {
	t.Helper()
	var out []string
	for _, r := range f.RuleFiles {
		found, err := filepath.Glob(filepath.Join(filepath.Dir(f.path), r))
		if err != nil {
			t.Fatal(err)
		}
		if len(found) == 0 {
			t.Errorf("%s: rule_files: %s is not there", f.path, r)
		}
		out = append(out, found...)
	}
	return out
}

// caseFiles are all of tests/*.yaml. A file that is no YAML is an error, not the end: the others
// can be looked at.
func caseFiles(t testing.TB) []*caseFile {
	t.Helper()
	files, err := filepath.Glob("tests/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var out []*caseFile
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f := &caseFile{path: path}
		if err := yaml.Unmarshal(b, f); err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		out = append(out, f)
	}
	return out
}

// kinds are what each alert must have cases of, as the second part of their names.
var kinds = []string{"fires", "near miss", "no data", "two clusters"}

// subject is the alert that a case is about, and its kind, or "" where the name has no such form.
func (c *ruleCase) subject() (alert, kind string) {
	alert, rest, ok := strings.Cut(c.Name, ": ")
	if !ok {
		return "", ""
	}
	for _, k := range kinds {
		if strings.HasPrefix(rest, k) {
			return alert, k
		}
	}
	return alert, ""
}
