package lab

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spillwayproject/spillway/internal/cli"
	"github.com/spillwayproject/spillway/loadtest/bench"
	"github.com/spillwayproject/spillway/loadtest/mix"
)

// mixCommand asks what dashboards ask: one real server directly, through Go's reverse proxy and
// through Spillway, and four servers through Spillway.
func mixCommand(e *cli.Env, parent cli.Clause) func() error {
	c := parent.Command("mix", "Asks real Prometheus servers what dashboards ask, directly, through Go's own reverse proxy, through Spillway, and through Spillway over four shards of the same series, and compares times, processor time and memory. Exit code 1 where an answer differs from the server's.")
	var o mix.Options
	c.Flag("series", "Series in all.").Default("1000000").IntVar(&o.Series)
	c.Flag("rounds", "How often every path gets its turn.").Default("6").IntVar(&o.Rounds)
	c.Flag("requests", "Requests in one turn.").Default("150").IntVar(&o.Requests)
	c.Flag("concurrency", "Requests at once; may be given several times.").Default("1", "2").IntsVar(&o.Concurrency)
	c.Flag("bulk-runs", "How often the great many series are asked for.").Default("5").IntVar(&o.BulkRuns)
	hints := c.Flag("hints", "Tell Spillway which shard holds which node (shard_by and hashmod).").Default("true").Bool()
	peers := c.Flag("peer", "Another proxy in front of the same servers, beside the others in all tables; may be given several times. The command prints the servers' URLs and waits until every peer answers.").PlaceHolder("NAME=URL").Strings()
	beside := c.Flag("beside", "Another build of spillway, measured over the same servers with the same configurations; may be given several times.").PlaceHolder("NAME=PATH").Strings()
	c.Flag("port", "Port on which the first server listens too, the four shards on the next ones: so that peers can be configured beforehand.").IntVar(&o.Port)
	c.Flag("pairs", "Also measure four shards of two replicas each, whole ones and ones of which one replica was away for ten minutes; needs twice as much room again.").BoolVar(&o.Pairs)
	hold := c.Flag("hold", "Keep the servers up after the measurement, until Ctrl-C.").Bool()
	out := c.Flag("out", "Folder for the tables, the picture and the figures as JSON; it is made where it is missing.").PlaceHolder("DIR").String()
	profile := c.Flag("pprof", "Also take processor profiles of the Spillway processes under the mix, into --out.").Bool()
	enforce := c.Flag("enforce", "Exit code 1 where a goal is not reached, too.").Bool()
	c.Flag("seed", "Chooses the simulated cluster.").Default("1").Uint64Var(&o.Seed)
	reverseListen := c.Flag("reverse-proxy.listen-address", "Be Go's own reverse proxy, as a process of its own, and do nothing else.").Hidden().String()
	reverseUpstream := c.Flag("reverse-proxy.upstream", "The server behind it.").Hidden().String()
	reverseShards := c.Flag("reverse-proxy.shard", "The servers that share the nodes, in the order of their hash.").Hidden().Strings()
	c.Flag("dir", "Where the servers' data is made and removed again; 0.7 GB for a million series.").PlaceHolder("DIR").StringVar(&o.Dir)
	spillway := spillwayFlag(c)
	return func() (err error) {
		if *reverseListen != "" {
			return mix.ReverseProxy(e.Ctx, *reverseListen, *reverseUpstream, *reverseShards...)
		}
		if o.Spillway, err = spillway(); err != nil {
			return err
		}
		if o.Laboratory, err = os.Executable(); err != nil {
			return fmt.Errorf("find this program, which is run as Go's reverse proxy: %w", err)
		}
		o.NoHints, o.Say = !*hints, sayWithTime(e)
		if *profile {
			if *out == "" {
				return cli.Usage(errors.New("--pprof needs --out, the folder for the profiles"))
			}
			o.Profile = filepath.Clean(*out)
		}
		if o.Peers, err = bench.ParsePeers(*peers); err != nil {
			return cli.Usage(err)
		}
		if o.Beside, err = mix.ParseBuilds(*beside); err != nil {
			return cli.Usage(err)
		}
		if err := o.Validate(); err != nil {
			return cli.Usage(err)
		}
		w, err := mix.Start(e.Ctx, o)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, w.Close()) }()
		whole, shards := w.Servers()
		fmt.Fprintf(e.Stderr, "one server with all series: %s\nthe shards: %s\n", whole, strings.Join(shards, " "))
		r, err := w.Measure(e.Ctx)
		if err != nil {
			return err
		}
		if err := r.WriteMarkdown(e.Stdout); err != nil {
			return err
		}
		if *out != "" {
			if err := r.Save(*out); err != nil {
				return err
			}
		}
		if *hold {
			fmt.Fprintln(e.Stderr, "The servers stay up; Ctrl-C ends them.")
			<-e.Ctx.Done()
		}
		return r.Err(*enforce)
	}
}
