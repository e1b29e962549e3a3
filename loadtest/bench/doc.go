// Package bench has what the benchmarks over a large simulated cluster have in common: which
// servers there are, how often they are asked over which time, and what asking took.
//
//	type Options struct {
//		bench.Servers
//		bench.Asking
//		Gang int
//	}
//
//	func (o Options) Validate() error {
//		var p bench.Problems
//		o.Servers.Check(&p, 2*time.Minute)
//		o.Asking.Check(&p, 10*time.Minute)
//		p.Check(o.Gang >= 1, "gang: %d is less than 1", o.Gang)
//		return p.Err()
//	}
//
// # What it promises
//
// A field means the same in each benchmark, has the same default and is refused with the same
// words. Zero values take the defaults that are named beside them.
//
// # What it refuses
//
// It makes no data, starts nothing and asks nothing that is measured: each benchmark does, in its
// own way.
package bench
