package lab

import (
	"io"

	"github.com/spillwayproject/spillway/internal/cli"
	load "github.com/spillwayproject/spillway/loadtest/relabel"
)

// loadRelabelCommand measures the making of plans.
func loadRelabelCommand(e *cli.Env, parent cli.Clause) func() error {
	c := parent.Command("relabel", "Measures what spillway relabel plan takes on made-up blocks, 300 dashboards and a usage log of a million lines, by the number of series.")
	sizes := c.Flag("series", "Series in all; may be given several times.").Default("1000000", "3000000", "10000000").Ints()
	lines := c.Flag("lines", "Lines of the usage log.").Default("1000000").Int()
	boards := c.Flag("dashboards", "Dashboards.").Default("300").Int()
	names := c.Flag("names", "Metric names.").Default("3000").Int()
	seed := c.Flag("seed", "Chooses the data.").Default("1").Uint64()
	out := c.Flag("out", "Also write the table into this file.").PlaceHolder("FILE").String()
	dir := c.Flag("dir", "Where data is made and removed again.").PlaceHolder("DIR").String()
	spillway := spillwayFlag(c)
	return func() error {
		self, err := spillway()
		if err != nil {
			return err
		}
		all, err := load.Measure(e.Ctx, load.MeasureOptions{
			Program: self, Sizes: *sizes, Options: load.Options{Names: *names, Lines: *lines, Dashboards: *boards, Seed: *seed}, Dir: *dir,
			Say: sayWithTime(e),
		})
		if err != nil {
			return err
		}
		return toBoth(e.Stdout, *out, func(w io.Writer) error { return load.WriteTable(w, all) })
	}
}
