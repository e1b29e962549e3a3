// Package realprom runs the real programs that the embedded shards of localprom stand in for:
// Prometheus 3.15, promtool and Thanos, as `make tools` builds them into tools/bin of this module,
// and Spillway's own proxy in front of them. Tests use it to hold Spillway against the real thing,
// and `spillway-lab loadtest oom` to show what happens to it.
//
// What it promises. A program that was started is ended: by Stop (SIGTERM to its own process id,
// SIGKILL after a bound), by the limit on its memory if one was set, or by the kernel when this
// process dies, however it dies. Servers listen on free ports of 127.0.0.1; a port that another
// process takes in between is noticed and another one is tried. When something goes wrong the error
// ends with the last lines of the program's log.
//
// What it refuses. It downloads nothing and searches no $PATH: a missing program is an error that
// says to run `make tools`. Processes of others are never signalled.
//
// What it holds. The last 256 KiB of each program's log, at most 64 MiB of a finished command's
// output, and one operating system thread for each program that runs.
//
//	srv, err := realprom.Start(ctx, realprom.Options{Config: "global: {external_labels: {replica: a}}", Blocks: []string{dir}})
//	if err != nil { … }
//	defer srv.Stop()
//	// srv.URL(), srv.RSS(), srv.PeakRSS()
//
// Package realpromtest has the same for tests.
package realprom
