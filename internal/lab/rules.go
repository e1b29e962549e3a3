package lab

import (
	"os"
	"path"
	"path/filepath"

	"github.com/spillwayproject/spillway/internal/cli"
	mixin "github.com/spillwayproject/spillway/jsonnet"
	"github.com/spillwayproject/spillway/loadtest/rules"
)

// rulesCommand measures how long the mixin's global rules take on a large cluster.
func rulesCommand(e *cli.Env, parent cli.Clause) func() error {
	c := parent.Command("rules", "Lets a real Thanos ruler evaluate the mixin's global rules through Spillway over real Prometheus servers that share the series of a large simulated cluster, and prints how long each group takes. Exit code 1 where a group takes over a third of its interval, or fails.")
	servers := serversOfRules(c)
	out := c.Flag("out", "File for the table.").PlaceHolder("FILE").String()
	return func() error {
		o, err := servers(e)
		if err != nil {
			return err
		}
		r, err := rules.Measure(e.Ctx, *o)
		if err != nil {
			return err
		}
		if err := toBoth(e.Stdout, *out, r.WriteMarkdown); err != nil {
			return err
		}
		return r.Err()
	}
}

// ruleFiles are those named, which the ruler evaluates, or the mixin's: its global ones, and those
// of the shards.
func ruleFiles(names []string) (global, shard map[string][]byte, err error) {
	global, shard = map[string][]byte{}, map[string][]byte{}
	for _, name := range names {
		b, err := os.ReadFile(filepath.Clean(name))
		if err != nil {
			return nil, nil, err
		}
		global[filepath.Base(name)] = b
	}
	if len(names) > 0 {
		return global, nil, nil
	}
	all, err := mixin.Render(mixin.Options{})
	if err != nil {
		return nil, nil, err
	}
	for name, text := range all {
		switch path.Base(path.Dir(name)) {
		case "global":
			global[path.Base(name)] = text
		case "shard":
			shard[path.Base(name)] = text
		}
	}
	return global, shard, nil
}
