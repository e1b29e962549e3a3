package lab

import (
	"fmt"
	"os"
	"time"

	"github.com/prometheus/common/model"

	"github.com/spillwayproject/spillway/internal/cli"
	"github.com/spillwayproject/spillway/internal/demo"
)

// demoCommand runs the demo.
func demoCommand(e *cli.Env, parent cli.Clause) func() error {
	c := parent.Command("demo", "Embedded shards full of a simulated GPU cluster's data, with the proxy in front of them. Ctrl-C ends it.")
	address := c.Flag("web.listen-address", "Where the Prometheus API is served.").Default("127.0.0.1:9090").String()
	admin := c.Flag("web.admin-listen-address", "Where metrics, reload, profiles and the console are served.").Default("127.0.0.1:9091").String()
	nodes := c.Flag("nodes", "Nodes of each simulated cluster.").Default("40").Int()
	detail := c.Flag("detail", "lean: what dashboards and alerts look at; full: nearly all that real exporters export, about 2,400 series for each node. One of: [lean, full]").Default("lean").Enum("lean", "full")
	history := c.Flag("history", "How much past the shards hold.").Default("1h").String()
	groups := c.Flag("groups", "Groups, one cluster each.").Default("2").Int()
	shards := c.Flag("shards", "Shards of each group.").Default("2").Int()
	replicas := c.Flag("replicas", "Replicas of each shard.").Default("2").Int()
	seed := c.Flag("seed", "Chooses the simulated clusters.").Default("1").Uint64()
	return func() error {
		past, err := model.ParseDuration(*history)
		if err != nil {
			return cli.Usage(fmt.Errorf("--history=%s: write a duration such as 1h, 90m or 2d", *history))
		}
		if err := cli.CheckAddresses(*address, *admin, ""); err != nil {
			return cli.Usage(err)
		}
		if !e.LogLevelSet {
			_ = e.LogConfig.Level.Set("warn") // the demo says itself what happens
		}
		cli.IgnoreBrokenPipe()
		reg := cli.NewRegistry()
		o := demo.Options{
			Groups: *groups, Shards: *shards, Replicas: *replicas, Nodes: *nodes, Full: *detail == "full", History: time.Duration(past),
			Seed:          *seed,
			ListenAddress: *address, AdminListenAddress: *admin, Flags: e.Flags, Version: cli.BuildVersion(), Program: os.Args[0],
			Registry: reg, Logger: e.Logger(),
			Say: func(format string, args ...any) { fmt.Fprintf(e.Stdout, format+"\n", args...) },
		}
		if err := o.Validate(); err != nil {
			return cli.Usage(err)
		}
		return cli.AdviseOnListening(demo.Run(e.Ctx, e.Force, o))
	}
}
