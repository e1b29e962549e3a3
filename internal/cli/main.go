package cli

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// Main is Run for a whole process: the first SIGINT or SIGTERM ends the command in good order, the second at once. It returns the exit code.
func Main(args []string, stdout, stderr io.Writer) int {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	force, now := context.WithCancel(context.Background())
	defer now()
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	go func() { // ends with the process
		<-signals
		stop()
		<-signals
		now()
	}()
	return Run(ctx, force, args, stdout, stderr)
}
