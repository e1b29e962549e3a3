package cli

import (
	"fmt"
	"os"

	"github.com/spillwayproject/spillway/loadtest/plugin"
)

// loadPluginCommand measures how long every view of the Grafana datasource takes on a large cluster.
func loadPluginCommand(e *env, parent clause) func() error {
	c := parent.Command("plugin", "Asks every view of the Grafana datasource about one large experiment through Spillway over real Prometheus servers that share the series of a large simulated cluster, and prints what each takes. Exit code 1 where a view takes over two seconds or is not answered.")
	var o plugin.Options
	serversFlags(c, &o.Servers)
	c.Flag("gang", "How many of the nodes the experiment has.").Default("500").IntVar(&o.Gang)
	askingFlags(c, &o.Asking, "view")
	out := c.Flag("out", "File for the table.").PlaceHolder("FILE").String()
	return func() (err error) {
		if o.Spillway, err = os.Executable(); err != nil {
			return fmt.Errorf("find the spillway binary, which is run as the proxy: %w", err)
		}
		o.Say = sayWithTime(e)
		if err := o.Validate(); err != nil {
			return errUsage{err}
		}
		r, err := plugin.Measure(e.ctx, o)
		if err != nil {
			return err
		}
		if err := toBoth(e.stdout, *out, r.WriteMarkdown); err != nil {
			return err
		}
		return r.Err()
	}
}
