package lab

import (
	"github.com/spillwayproject/spillway/internal/cli"
	"github.com/spillwayproject/spillway/loadtest/plugin"
)

// loadPluginCommand measures how long every view of the Grafana datasource takes on a large
// cluster.
func loadPluginCommand(e *cli.Env, parent cli.Clause) func() error {
	c := parent.Command("plugin", "Asks every view of the Grafana datasource about one large experiment through Spillway over real Prometheus servers that share the series of a large simulated cluster, and prints what each takes. Exit code 1 where a view takes over two seconds or is not answered.")
	var o plugin.Options
	serversFlags(c, &o.Servers)
	c.Flag("gang", "How many of the nodes the experiment has.").Default("500").IntVar(&o.Gang)
	askingFlags(c, &o.Asking, "view")
	out := c.Flag("out", "File for the table.").PlaceHolder("FILE").String()
	spillway := spillwayFlag(c)
	return func() (err error) {
		if o.Spillway, err = spillway(); err != nil {
			return err
		}
		o.Say = sayWithTime(e)
		if err := o.Validate(); err != nil {
			return cli.Usage(err)
		}
		r, err := plugin.Measure(e.Ctx, o)
		if err != nil {
			return err
		}
		if err := toBoth(e.Stdout, *out, r.WriteMarkdown); err != nil {
			return err
		}
		return r.Err()
	}
}
