package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/discovery"
	"github.com/spillwayproject/spillway/proxy/dropped"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// checkConfigCommand names every problem of a configuration file, one a line, with its path.
func checkConfigCommand(e *Env, parent Clause) func() error {
	c := parent.Command("config", "Checks a configuration file; exit code 1 and every problem, one a line.")
	file := c.Arg("file", "The configuration file, or - for standard input; needed, but with --schema.").String()
	schema := c.Flag("schema", "Prints the JSON schema of configuration files instead, for editors.").Bool()
	online := c.Flag("online", "Also asks the shards: are they reachable, do their external labels fit, do they overlap.").Bool()
	timeout := c.Flag("timeout", "How long --online may take.").Default("30s").Duration()
	return func() error {
		if *file == "" && slices.Contains(e.Args, "-") {
			*file = "-"
		}
		switch {
		case *schema && (*file != "" || *online):
			return errUsage{errors.New("--schema prints what files look like and reads none; leave FILE and --online away")}
		case *schema:
			_, err := e.Stdout.Write(config.Schema())
			return err
		case *timeout < time.Second:
			return errUsage{fmt.Errorf("--timeout=%s: servers are given a second at least", *timeout)}
		case *file == "":
			return errUsage{errors.New("required argument 'file' not provided; see spillway check config --help")}
		}
		cfg, err := checkConfig(file)
		var problems config.Problems
		if errors.As(err, &problems) {
			for _, p := range problems {
				fmt.Fprintln(e.Stdout, p)
			}
			return errQuiet
		}
		if err != nil {
			return err
		}
		for _, n := range cfg.Notes {
			fmt.Fprintln(e.Stdout, "note:", n)
		}
		noted := len(cfg.Notes)
		lookedUp := slices.ContainsFunc(cfg.Groups, func(g config.Group) bool { return g.ShardsFrom.Set() })
		if *online {
			ctx, cancel := context.WithTimeout(e.Ctx, *timeout)
			defer cancel()
			w := discovery.New(ctx, discovery.Options{Patience: *timeout})
			defer w.Close()
			if cfg, err = w.Fill(ctx, cfg); err != nil {
				fmt.Fprintln(e.Stdout, err)
				return errQuiet
			}
			for _, n := range cfg.Notes[noted:] { // about the shards that were found
				fmt.Fprintln(e.Stdout, "note:", n)
			}
			found, err := shard.CheckOnline(ctx, cfg)
			if err != nil {
				return err
			}
			for _, p := range found {
				fmt.Fprintln(e.Stdout, p)
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
		more := ""
		if lookedUp && !*online {
			more = ", and what shards_from will find (--online looks it up)"
		}
		counts := Count(len(cfg.Groups), "group") + ", " + Count(shards, "shard") + ", " + Count(replicas, "replica")
		fmt.Fprintf(e.Stdout, "%s is valid: %s%s\n", *file, counts, more)
		return nil
	}
}

// checkConfig checks the file, or what comes over standard input, as out of `helm template`, whose
// name it changes to one for people.
func checkConfig(file *string) (*config.Config, error) {
	if *file != "-" && *file != "/dev/stdin" {
		return config.Check(*file, plansOf)
	}
	*file = "standard input"
	return config.CheckFrom(os.Stdin, plansOf)
}

// plansOf are the problems of the plans of drop rules, as far as they can be opened: that they can
// is looked at with all other files.
func plansOf(cfg *config.Config) config.Problems {
	var plans []string
	for _, file := range cfg.DropRules.Plan {
		if _, err := os.Stat(file); err == nil {
			plans = append(plans, file)
		}
	}
	if _, err := dropped.Load(plans); err != nil {
		return config.Problems{{Path: "drop_rules.plan", Message: err.Error()}}
	}
	return nil
}

func Count(n int, of string) string {
	if n == 1 {
		return "1 " + of
	}
	return fmt.Sprintf("%d %ss", n, of)
}
