package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/dropped"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// checkConfigCommand names every problem of a configuration file, one a line, with its path.
func checkConfigCommand(e *env, parent clause) func() error {
	c := parent.Command("config", "Checks a configuration file; exit code 1 and every problem, one a line.")
	file := c.Arg("file", "The configuration file.").Required().String()
	online := c.Flag("online", "Also asks the shards: are they reachable, do their external labels fit, do they overlap.").Bool()
	timeout := c.Flag("timeout", "How long --online may take.").Default("30s").Duration()
	return func() error {
		cfg, err := config.Load(*file)
		var problems config.Problems
		if errors.As(err, &problems) {
			for _, p := range problems {
				fmt.Fprintln(e.stdout, p)
			}
			return errQuiet
		}
		if err != nil {
			return err
		}
		if err := cfg.CheckFiles(); err != nil {
			fmt.Fprintln(e.stdout, err)
			return errQuiet
		}
		if _, err := dropped.Load(cfg.DropRules.Plan); err != nil {
			fmt.Fprintln(e.stdout, "drop_rules.plan:", err)
			return errQuiet
		}
		for _, n := range cfg.Notes {
			fmt.Fprintln(e.stdout, "note:", n)
		}
		if *online {
			ctx, cancel := context.WithTimeout(e.ctx, max(*timeout, time.Second))
			defer cancel()
			found, err := shard.CheckOnline(ctx, cfg)
			if err != nil {
				return err
			}
			for _, p := range found {
				fmt.Fprintln(e.stdout, p)
			}
			if len(found) > 0 {
				return errQuiet
			}
		}
		shards, replicas := 0, 0
		for _, g := range cfg.Groups {
			shards += len(g.Shards)
			for _, s := range g.Shards {
				replicas += len(s.Replicas)
			}
		}
		fmt.Fprintf(e.stdout, "%s is valid: %s, %s, %s\n", *file, count(len(cfg.Groups), "group"), count(shards, "shard"), count(replicas, "replica"))
		return nil
	}
}

func count(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}
