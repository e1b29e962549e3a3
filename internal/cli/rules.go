package cli

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	mixin "github.com/spillwayproject/spillway/jsonnet"
	"github.com/spillwayproject/spillway/loadtest/rules"
)

// rulesCommand measures how long the mixin's global rules take on a large cluster.
func rulesCommand(e *env, parent clause) func() error {
	c := parent.Command("rules", "Lets a real Thanos ruler evaluate the mixin's global rules through Spillway over real Prometheus servers that share the series of a large simulated cluster, and prints how long each group takes. Exit code 1 where a group takes over a third of its interval, or fails.")
	var o rules.Options
	c.Flag("nodes", "Nodes, of 8 GPUs each.").Default("7500").IntVar(&o.Nodes)
	c.Flag("shards", "Servers that share the series.").Default("4").IntVar(&o.Shards)
	c.Flag("past", "What the servers hold when the ruler starts.").Default("65m").DurationVar(&o.Past)
	c.Flag("run", "How long the ruler runs.").Default("6m").DurationVar(&o.Run)
	c.Flag("interval", "Time between scrapes.").Default("1m").DurationVar(&o.Interval)
	c.Flag("seed", "Chooses the simulated cluster.").Default("1").Uint64Var(&o.Seed)
	c.Flag("dir", "Where the servers' data is made and removed again.").PlaceHolder("DIR").StringVar(&o.Dir)
	files := c.Flag("rules", "Rule files to measure in place of the mixin's; may be given several times.").PlaceHolder("FILE").ExistingFiles()
	out := c.Flag("out", "File for the table.").PlaceHolder("FILE").String()
	return func() (err error) {
		if o.Spillway, err = os.Executable(); err != nil {
			return fmt.Errorf("find the spillway binary, which is run as the proxy: %w", err)
		}
		if o.Files, err = ruleFiles(*files); err != nil {
			return err
		}
		o.Say = sayWithTime(e)
		if err := o.Validate(); err != nil {
			return errUsage{err}
		}
		r, err := rules.Measure(e.ctx, o)
		if err != nil {
			return err
		}
		if err := r.WriteMarkdown(e.stdout); err != nil {
			return err
		}
		if *out != "" {
			f, err := os.Create(filepath.Clean(*out))
			if err != nil {
				return err
			}
			if err := r.WriteMarkdown(f); err != nil {
				return err
			}
			if err := f.Close(); err != nil {
				return err
			}
		}
		return r.Err()
	}
}

// ruleFiles are those named, or the mixin's global ones.
func ruleFiles(names []string) (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, name := range names {
		b, err := os.ReadFile(filepath.Clean(name))
		if err != nil {
			return nil, err
		}
		out[filepath.Base(name)] = b
	}
	if len(names) > 0 {
		return out, nil
	}
	all, err := mixin.Render(mixin.Options{})
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if strings.Contains(name, "global/") {
			out[path.Base(name)] = all[name]
		}
	}
	return out, nil
}
