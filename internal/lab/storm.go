package lab

import (
	"github.com/spillwayproject/spillway/internal/cli"
	"github.com/spillwayproject/spillway/loadtest/bench"
	"github.com/spillwayproject/spillway/loadtest/scenario"
	"github.com/spillwayproject/spillway/loadtest/storm"
)

// stormCommand brings a mixed storm over real Prometheus servers, through Spillway and directly,
// and shows memory and what on-call people have of it.
func stormCommand(e *cli.Env, parent cli.Clause) func() error {
	c := parent.Command("storm", "Brings a mixed storm of queries over real Prometheus servers, through Spillway and directly, and shows their memory and the latency of on-call queries beside it. Exit code 1 where a bound of --enforce was broken.")
	file := c.Flag("storm", "A file with a storm in place of the built-in one (loadtest/storm/mixed.yaml).").PlaceHolder("FILE").String()
	only := c.Flag("only", "A part of the storm that comes, by its name; repeat it for several. All where it is not given.").PlaceHolder("PART").Strings()
	series := c.Flag("series", "Series in each server.").Default("300000").Int()
	servers := c.Flag("servers", "Prometheus servers, one process each.").Default("2").Int()
	idle := c.Flag("idle", "How long only on-call people ask, before the storm.").Default("1m").Duration()
	duration := c.Flag("duration", "How long the storm comes.").Default("1m").Duration()
	limit := c.Flag("memory-limit", "Resident memory at which a server is killed, as in a container of this size.").Default("3GiB").Bytes()
	tell := c.Flag("tell-limit", "Tell the servers their memory limit (GOMEMLIMIT), as Prometheus finds it out for itself in a container.").Default("true").Bool()
	calls := c.Flag("replica-calls", "Spillway's limits.replica_calls: calls that a server gets at once; 0 is a server's part of the processors, 2 to 24.").Default("0").Int()
	processCalls := c.Flag("process-calls", "Spillway's limits.process_calls: calls to all servers at once; 0 is one more than there are processors, 3 at least.").Default("0").Int()
	free := c.Flag("keep-free", "Memory that the machine must have left; below it the storm ends.").Default("3GiB").Bytes()
	direct := c.Flag("direct", "Also ask the servers without Spillway.").Default("true").Bool()
	peers := c.Flag("peer", "Another proxy in front of the same servers, which has a run of its own; may be given several times. Series of the first server are to have cluster=\"cluster-1\" there, and so on; it is waited for.").PlaceHolder("NAME=URL").Strings()
	port := c.Flag("port", "Port on which the first server listens too, the others on the next ones: so that peers can be configured beforehand.").Default("0").Int()
	out := c.Flag("out", "Folder for the page, the picture and the table; it is made where it is missing.").PlaceHolder("DIR").String()
	enforce := c.Flag("enforce", "Which bounds decide the exit code: memory (servers, and that on-call queries are answered), all (their latency too), none.").Default("memory").Enum("memory", "all", "none")
	seed := c.Flag("seed", "Chooses the simulated cluster, and when callers arrive.").Default("1").Uint64()
	dir := c.Flag("dir", "Where the servers' data is made and removed again; about 1 GiB for each million series and server.").PlaceHolder("DIR").String()
	spillway := spillwayFlag(c)
	return func() error {
		self, err := spillway()
		if err != nil {
			return err
		}
		o := scenario.StormOptions{
			Storm: storm.Builtin(), Spillway: self, Series: *series, Servers: *servers, Idle: *idle, Duration: *duration,
			MemoryLimit: int64(*limit), LimitUntold: !*tell, ReplicaCalls: *calls, ProcessCalls: *processCalls,
			KeepFree: int64(*free), NoDirect: !*direct, Seed: *seed,
			Dir: *dir, Say: sayWithTime(e), Port: *port,
		}
		if o.Peers, err = bench.ParsePeers(*peers); err != nil {
			return cli.Usage(err)
		}
		if *file != "" {
			if o.Storm, err = storm.Load(*file); err != nil {
				return cli.Usage(err)
			}
		}
		if o.Storm, err = o.Storm.Only(*only...); err != nil {
			return cli.Usage(err)
		}
		if err := o.Validate(); err != nil {
			return cli.Usage(err)
		}
		r, err := scenario.RunStorm(e.Ctx, o)
		if err != nil {
			return err
		}
		return show(e, r, *out, "storm.html", *enforce)
	}
}
