package lab

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spillwayproject/spillway/internal/cli"
	"github.com/spillwayproject/spillway/loadtest/scenario"
)

// oomCommand asks real Prometheus servers the killer query, through Spillway and directly, and
// shows what becomes of them.
func oomCommand(e *cli.Env, parent cli.Clause) func() error {
	c := parent.Command("oom", "Asks real Prometheus servers for every histogram series, through Spillway and directly, and shows their memory. Exit code 1 where a bound of --enforce was broken.")
	series := c.Flag("series", "Series in each server.").Default("300000").Int()
	servers := c.Flag("servers", "Prometheus servers, one process each.").Default("4").Int()
	callers := c.Flag("callers", "Callers who ask at once.").Default("8").Int()
	idle := c.Flag("idle", "How long the servers are watched before the storm.").Default("1m").Duration()
	duration := c.Flag("duration", "How long the callers go on asking.").Default("30s").Duration()
	patience := c.Flag("patience", "How long a caller waits for an answer. Grafana waits for 30s, curl and promtool for ever.").Default("2m").Duration()
	limit := c.Flag("memory-limit", "Resident memory at which a server is killed, as in a container of this size.").Default("3GiB").Bytes()
	tell := c.Flag("tell-limit", "Tell the servers their memory limit (GOMEMLIMIT), as Prometheus finds it out for itself in a container.").Default("true").Bool()
	free := c.Flag("keep-free", "Memory that the machine must have left; below it the storm ends.").Default("3GiB").Bytes()
	direct := c.Flag("direct", "Also ask the servers without Spillway.").Default("true").Bool()
	out := c.Flag("out", "Folder for the page, the picture and the table; it is made where it is missing.").PlaceHolder("DIR").String()
	enforce := c.Flag("enforce", "Which bounds decide the exit code: memory (and that every answer is of use), all (latency too), none.").Default("memory").Enum("memory", "all", "none")
	seed := c.Flag("seed", "Chooses the simulated cluster.").Default("1").Uint64()
	dir := c.Flag("dir", "Where the servers' data is made and removed again; about 1 GiB for each million series and server.").PlaceHolder("DIR").String()
	spillway := spillwayFlag(c)
	return func() error {
		self, err := spillway()
		if err != nil {
			return err
		}
		o := scenario.Options{
			Scenario: scenario.Killer, Spillway: self, Series: *series, Servers: *servers, Callers: *callers, Idle: *idle,
			Duration: *duration, Patience: *patience,
			MemoryLimit: int64(*limit), KeepFree: int64(*free), NoDirect: !*direct, LimitUntold: !*tell, Seed: *seed, Dir: *dir,
			Say: sayWithTime(e),
		}
		if err := o.Validate(); err != nil {
			return cli.Usage(err)
		}
		r, err := scenario.Run(e.Ctx, o)
		if err != nil {
			return err
		}
		return show(e, r, *out, "oom.html", *enforce)
	}
}

// shown is what a storm came to.
type shown interface {
	WriteText(w io.Writer) error
	Save(dir string) error
	Verdicts() []scenario.Verdict
}

// show prints what a storm came to and saves it into the folder out, unless that is empty. It is an
// error where a bound was broken that decides: memory, all, or none.
func show(e *cli.Env, r shown, out, page, enforce string) error {
	fmt.Fprintln(e.Stdout)
	if err := r.WriteText(e.Stdout); err != nil {
		return err
	}
	if out != "" {
		if err := r.Save(out); err != nil {
			return err
		}
		fmt.Fprintf(e.Stdout, "\nThe page: %s/%s\n", out, page)
	}
	if slices.ContainsFunc(r.Verdicts(), func(v scenario.Verdict) bool {
		return !v.Kept && (enforce == "all" || enforce == "memory" && v.Name != "latency" && v.Name != "killed")
	}) {
		return errors.New("a bound was broken: see BROKEN above")
	}
	return nil
}

// sayWithTime writes progress to standard error, so that standard output is the table alone.
func sayWithTime(e *cli.Env) func(string, ...any) {
	began := time.Now()
	return func(format string, args ...any) {
		fmt.Fprintf(e.Stderr, "%6.1fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
}
