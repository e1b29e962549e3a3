package lab

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/spillwayproject/spillway/dashboards/page"
	"github.com/spillwayproject/spillway/internal/cli"
	"github.com/spillwayproject/spillway/loadtest/bench"
	"github.com/spillwayproject/spillway/loadtest/dashboards"
	"github.com/spillwayproject/spillway/loadtest/rules"
)

// dashboardsCommand measures how long every panel takes on a large cluster, and the rules before.
func dashboardsCommand(e *cli.Env, parent cli.Clause) func() error {
	c := parent.Command("dashboards", "Asks every panel of the dashboards through Spillway over real Prometheus servers that share the series of a large simulated cluster, after a real Thanos ruler has recorded its rules, and prints the slowest, and what the rules took. Exit code 1 where a panel takes over two seconds and reads no recorded series, or is not answered.")
	var o dashboards.Options
	servers := serversOfRules(c)
	askingFlags(c, &o.Asking, "panel")
	troubles := c.Flag("trouble", "Stage this trouble in the cluster: a kind that loadtest/cluster knows, or `all`. May be given several times, or with commas.").PlaceHolder("KIND").Strings()
	hold := c.Flag("hold", "How long the servers stay up afterwards, to be looked at: the proxy's address is printed, and Ctrl-C ends it.").PlaceHolder("DURATION").Duration()
	out := c.Flag("out", "File for the table.").PlaceHolder("FILE").String()
	return func() error {
		from, err := servers(e)
		if err != nil {
			return err
		}
		if from.Troubles, err = page.Stage(*troubles); err != nil {
			return cli.Usage(err)
		}
		if *hold > 0 {
			o.Then = holding(e, *hold, from.Run, from.Interval)
		}
		if err := o.Validate(); err != nil {
			return cli.Usage(err)
		}
		r, err := dashboards.Measure(e.Ctx, *from, o)
		if err != nil {
			return err
		}
		if err := toBoth(e.Stdout, *out, func(w io.Writer) error {
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

// holding keeps servers up for so long, or until Ctrl-C, which is no error then. Series are scraped
// at the interval, and recorded ones are there for as long as the ruler ran.
func holding(e *cli.Env, d, run, interval time.Duration) func(context.Context, string, time.Time) error {
	return func(ctx context.Context, api string, until time.Time) error {
		from := until.Add(-run - run/4)
		fmt.Fprintf(e.Stderr, "the proxy answers for %s; what was recorded ends at %s: URL=%s FROM=%d TO=%d VARS=scrape=%s tools/page.sh screenshots\n",
			d, until.UTC().Format(time.RFC3339), api, from.UnixMilli(), until.UnixMilli(), interval)
		select {
		case <-ctx.Done():
		case <-time.After(d):
		}
		return nil
	}
}

// serversOfRules declares what rules.Options need, and returns what reads them once the command
// line is parsed.
func serversOfRules(c *kingpin.CmdClause) func(e *cli.Env) (*rules.Options, error) {
	var o rules.Options
	serversFlags(c, &o.Servers)
	c.Flag("past", "What the servers hold when the ruler starts.").Default("65m").DurationVar(&o.Past)
	c.Flag("run", "How long the ruler runs.").Default("12m").DurationVar(&o.Run)
	c.Flag("spread", "How many times as seldom groups with an interval of up to a minute are evaluated, 1 to 4: one machine stands for many here. Shares are of the real interval.").
		Default("3").IntVar(&o.Spread)
	files := c.Flag("rules", "Rule files in place of the mixin's; may be given several times.").PlaceHolder("FILE").ExistingFiles()
	spillway := spillwayFlag(c)
	return func(e *cli.Env) (_ *rules.Options, err error) {
		if o.Spillway, err = spillway(); err != nil {
			return nil, err
		}
		if o.Files, o.ShardFiles, err = ruleFiles(*files); err != nil {
			return nil, err
		}
		o.Say = sayWithTime(e)
		if err := o.Validate(); err != nil {
			return nil, cli.Usage(err)
		}
		return &o, nil
	}
}

// serversFlags declares what all benchmarks over a large simulated cluster need.
func serversFlags(c *kingpin.CmdClause, s *bench.Servers) {
	c.Flag("nodes", "Nodes, of 8 GPUs each.").Default("7500").IntVar(&s.Nodes)
	c.Flag("shards", "Servers that share the series.").Default("4").IntVar(&s.Shards)
	c.Flag("interval", "Time between scrapes.").Default("1m").DurationVar(&s.Interval)
	c.Flag("seed", "Chooses the simulated cluster.").Default("1").Uint64Var(&s.Seed)
	c.Flag("dir", "Where the servers' data is made and removed again.").PlaceHolder("DIR").StringVar(&s.Dir)
}

// askingFlags declares how what, a noun, is asked.
func askingFlags(c *kingpin.CmdClause, a *bench.Asking, what string) {
	c.Flag("window", "Time range of the panels.").Default("1h").DurationVar(&a.Window)
	c.Flag("times", "How often each "+what+" is asked.").Default("3").IntVar(&a.Times)
}

// toBoth writes a table to stdout and, where a file is named, into it.
func toBoth(stdout io.Writer, file string, write func(io.Writer) error) error {
	if err := write(stdout); err != nil || file == "" {
		return err
	}
	return cli.WriteWhole(file, write)
}
