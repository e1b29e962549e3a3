package relabel

import (
	"errors"
	"fmt"
	"time"
)

// Options say how much to make. Zeros are the values of the measurement in docs/performance.md.
type Options struct {
	// Series is how many in all; 0 is ten million. Names is how many metric names, at least 100; 0
	// is 3,000. Jobs is how many jobs, at least 8; 0 is 20.
	Series, Names, Jobs int
	// Seed chooses another cluster of the same kind.
	Seed uint64
	// Now is the time of the newest sample and of the last line of the usage log; the zero value is
	// a fixed day, so that runs can be compared.
	Now time.Time
	// BlockSeries is how many series a block has at most, unless one metric has more; 0 is a
	// million. The blocks hold different series of the same time.
	BlockSeries int
	// Dashboards and Lines are how many dashboards and lines of usage.jsonl MakeUses writes; 0 is
	// 300 and a million. Queries is how many different texts the log has; 0 is 20,000.
	Dashboards, Lines, Queries int
	// UsedEvery is which share of the metrics is looked at: one of this many; 0 is 10.
	UsedEvery int
}

func (o Options) complete() (Options, error) {
	set := func(v *int, value int) {
		if *v == 0 {
			*v = value
		}
	}
	set(&o.Series, 10_000_000)
	set(&o.Names, 3000)
	set(&o.Jobs, 20)
	set(&o.BlockSeries, 1_000_000)
	set(&o.Dashboards, 300)
	set(&o.Lines, 1_000_000)
	set(&o.Queries, 20_000)
	set(&o.UsedEvery, 10)
	if o.Now.IsZero() {
		o.Now = time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	}
	var errs []error
	least := func(name string, v, least int) {
		if v < least {
			errs = append(errs, fmt.Errorf("%s: %d is less than %d", name, v, least))
		}
	}
	least("names", o.Names, 100)
	least("jobs", o.Jobs, len(ownJobs)+1)
	least("series", o.Series, 20*o.Names)
	least("block series", o.BlockSeries, 1)
	least("dashboards", o.Dashboards, 1)
	least("lines", o.Lines, 1)
	least("queries", o.Queries, 1)
	least("used every", o.UsedEvery, 1)
	return o, errors.Join(errs...)
}
