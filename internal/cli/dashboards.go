package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/alecthomas/kingpin/v2"

	"github.com/spillwayproject/spillway/loadtest/dashboards"
	"github.com/spillwayproject/spillway/loadtest/rules"
)

// dashboardsCommand measures how long every panel takes on a large cluster, and the rules before.
func dashboardsCommand(e *env, parent clause) func() error {
	c := parent.Command("dashboards", "Asks every panel of the dashboards through Spillway over real Prometheus servers that share the series of a large simulated cluster, after a real Thanos ruler has recorded its rules, and prints the slowest, and what the rules took. Exit code 1 where a panel takes over two seconds and reads no recorded series, or is not answered.")
	var o dashboards.Options
	servers := serversOfRules(c)
	c.Flag("window", "Time range of the dashboards.").Default("1h").DurationVar(&o.Window)
	c.Flag("times", "How often each panel is asked.").Default("3").IntVar(&o.Times)
	out := c.Flag("out", "File for the table.").PlaceHolder("FILE").String()
	return func() error {
		from, err := servers(e)
		if err != nil {
			return err
		}
		if err := o.Validate(); err != nil {
			return errUsage{err}
		}
		r, err := dashboards.Measure(e.ctx, *from, o)
		if err != nil {
			return err
		}
		if err := toBoth(e.stdout, *out, func(w io.Writer) error {
			if err := r.WriteMarkdown(w); err != nil {
				return err
			}
			if _, err := io.WriteString(w, "\n"); err != nil {
				return err
			}
			return r.Rules.WriteMarkdown(w)
		}); err != nil {
			return err
		}
		return r.Err()
	}
}

// serversOfRules declares what rules.Options need, and returns what reads them once the command line is parsed.
func serversOfRules(c *kingpin.CmdClause) func(e *env) (*rules.Options, error) {
	var o rules.Options
	c.Flag("nodes", "Nodes, of 8 GPUs each.").Default("7500").IntVar(&o.Nodes)
	c.Flag("shards", "Servers that share the series.").Default("4").IntVar(&o.Shards)
	c.Flag("past", "What the servers hold when the ruler starts.").Default("65m").DurationVar(&o.Past)
	c.Flag("run", "How long the ruler runs.").Default("6m").DurationVar(&o.Run)
	c.Flag("interval", "Time between scrapes.").Default("1m").DurationVar(&o.Interval)
	c.Flag("seed", "Chooses the simulated cluster.").Default("1").Uint64Var(&o.Seed)
	c.Flag("dir", "Where the servers' data is made and removed again.").PlaceHolder("DIR").StringVar(&o.Dir)
	files := c.Flag("rules", "Rule files in place of the mixin's; may be given several times.").PlaceHolder("FILE").ExistingFiles()
	return func(e *env) (_ *rules.Options, err error) {
		if o.Spillway, err = os.Executable(); err != nil {
			return nil, fmt.Errorf("find the spillway binary, which is run as the proxy: %w", err)
		}
		if o.Files, err = ruleFiles(*files); err != nil {
			return nil, err
		}
		o.Say = sayWithTime(e)
		if err := o.Validate(); err != nil {
			return nil, errUsage{err}
		}
		return &o, nil
	}
}

// toBoth writes a table to stdout and, where a file is named, into it.
func toBoth(stdout io.Writer, file string, write func(io.Writer) error) error {
	if err := write(stdout); err != nil || file == "" {
		return err
	}
	f, err := os.Create(filepath.Clean(file))
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		return err
	}
	return f.Close()
}
