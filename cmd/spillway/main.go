// Command spillway keeps Prometheus standing: a query proxy that bounds every API in front of sharded Prometheus servers, and the tools around it.
//
// main parses flags, runs one command and turns its error into an exit code; everything else is a package of its own.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spillwayproject/spillway/internal/cli"
)

func main() {
	os.Exit(run())
}

// run ends the context at the first signal and the second context at the next one, which means now.
func run() int {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	force, now := context.WithCancel(context.Background())
	defer now()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() { // ends with the process
		<-signals
		stop()
		<-signals
		now()
	}()
	return cli.Run(ctx, force, os.Args[1:], os.Stdout, os.Stderr)
}
