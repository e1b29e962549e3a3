package live

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

// ruleFile is a rule file, as far as recording rules need it.
type ruleFile struct {
	Groups []ruleGroup `yaml:"groups"`
}

type ruleGroup struct {
	Name     string `yaml:"name"`
	Interval string `yaml:"interval,omitempty"`
	Rules    []rule `yaml:"rules"`
}

type rule struct {
	Record string            `yaml:"record,omitempty"`
	Expr   string            `yaml:"expr"`
	Labels map[string]string `yaml:"labels,omitempty"`
}

// Needed gives of each of the file systems the recording rules that wanted series are made from:
// those whose name wanted takes, those that they read, and so on, whichever of the file systems has
// them. Alerts are left out. The files are written below dir, a folder for each file system.
func Needed(dir string, wanted func(record string) bool, from ...fs.FS) ([]fs.FS, error) {
	files := make([]map[string]ruleFile, len(from))
	reads := map[string][]string{} // names that the rules of a record select
	for i, f := range from {
		files[i] = map[string]ruleFile{}
		names, err := fs.Glob(f, "*.yaml")
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			text, err := fs.ReadFile(f, name)
			if err != nil {
				return nil, err
			}
			var file ruleFile
			if err := yaml.Unmarshal(text, &file); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			files[i][name] = file
			for _, g := range file.Groups {
				for _, r := range g.Rules {
					if r.Record == "" {
						continue
					}
					selected, err := selects(r.Expr)
					if err != nil {
						return nil, fmt.Errorf("%s: %s: %w", name, r.Record, err)
					}
					reads[r.Record] = append(reads[r.Record], selected...)
				}
			}
		}
	}
	needed := map[string]bool{}
	var need func(record string)
	need = func(record string) {
		if _, ok := reads[record]; !ok || needed[record] {
			return
		}
		needed[record] = true
		for _, r := range reads[record] {
			need(r)
		}
	}
	for record := range reads {
		if wanted(record) {
			need(record)
		}
	}
	out := make([]fs.FS, len(from))
	for i := range from {
		folder := filepath.Join(dir, fmt.Sprint(i))
		if err := os.MkdirAll(folder, 0o700); err != nil {
			return nil, err
		}
		for name, file := range files[i] {
			for g := range file.Groups {
				file.Groups[g].Rules = slices.DeleteFunc(file.Groups[g].Rules, func(r rule) bool { return !needed[r.Record] })
			}
			file.Groups = slices.DeleteFunc(file.Groups, func(g ruleGroup) bool { return len(g.Rules) == 0 })
			if len(file.Groups) == 0 {
				continue
			}
			text, err := yaml.Marshal(file)
			if err != nil {
				return nil, err
			}
			if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
				return nil, err
			}
		}
		out[i] = os.DirFS(folder)
	}
	return out, nil
}

// selects are the names of the series that an expression selects.
func selects(expr string) ([]string, error) {
	e, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		return nil, err
	}
	var names []string
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			names = append(names, v.Name)
		}
		return nil
	})
	return names, nil
}
