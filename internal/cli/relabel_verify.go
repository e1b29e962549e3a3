package cli

import (
	"errors"
	"time"

	"github.com/spillwayproject/spillway/relabel/verify"
)

// relabelVerifyCommand holds the drop rules that a configuration has against what is used.
func relabelVerifyCommand(e *Env, parent Clause) func() error {
	c := parent.Command("verify", "Holds the drop rules that a configuration has, whoever wrote them, against what is used. Exit code 0: nothing is lost; 1: something is, with file and line of each query; 2: it could not be checked.")
	files := c.Flag("prometheus", "A prometheus.yml; may be given several times: those of shards and replicas must have the same rules.").PlaceHolder("prometheus.yml").Strings()
	monitors := c.Flag("monitors", "A file or folder with ServiceMonitors, PodMonitors and ScrapeConfigs, and with the Services that they scrape; may be given several times.").PlaceHolder("FILE|DIR").Strings()
	jobs := c.Flag("job", "The label job of a monitor's series, where neither its jobLabel nor a Service beside it says so; may be given several times.").PlaceHolder("NAMESPACE/NAME=JOB").StringMap()
	skip := c.Flag("skip-job", "A scrape job that is left out, such as one that keeps nothing of its page since it is there for up alone; may be given several times.").PlaceHolder("JOB").Strings()
	looked := lookedAtFlags(c)
	stored := storedFlags(c)
	format := c.Flag("format", "text or json.").Default("text").Enum("text", "json")
	quiet := c.Flag("quiet", "Do not say how far it is.").Short('q').Bool()
	return func() error {
		if len(*files)+len(*monitors) == 0 {
			return errUsage{errors.New("name a --prometheus or --monitors file: there is nothing to verify")}
		}
		client := scrapeClient()
		defer client.CloseIdleConnections()
		src, err := stored.source(e.Ctx, client)
		if err != nil {
			return errUnchecked{err}
		}
		p := newProgress(e.Stderr, *quiet)
		defer p.end()
		now := time.Now()
		set, _, err := looked.set(e.Ctx, p, now)
		var usage errUsage
		switch {
		case errors.As(err, &usage):
			return err
		case err != nil:
			return errUnchecked{err}
		}
		r, err := verify.Check(e.Ctx, verify.Options{
			Prometheus: *files, Monitors: *monitors, Jobs: *jobs, Skip: *skip, Uses: set, Source: src, External: *stored.external, Now: now,
			Progress: func(series int64) { p.at("verify", series, 0) },
		})
		p.end()
		if err != nil {
			return errUnchecked{err}
		}
		write := r.Text
		if *format == "json" {
			write = r.JSON
		}
		if err := write(e.Stdout); err != nil {
			return err
		}
		switch r.State {
		case verify.OK:
			return nil
		case verify.Faulty:
			return errQuiet
		}
		return errUnchecked{errors.New("not everything could be checked, see above")}
	}
}
