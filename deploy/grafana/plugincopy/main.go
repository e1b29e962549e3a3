package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "plugincopy:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to stop
	}
}

// run copies as the arguments say, and writes one line about what came of it, after warnings.
func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("plugincopy", flag.ContinueOnError)
	var (
		from    = flags.String("from", "/plugin", "`folder` that holds the plugin's folder and nothing else")
		to      = flags.String("to", "/var/lib/grafana/plugins", "`folder` in which Grafana looks for plugins (its paths.plugins)")
		timeout = flags.Duration("timeout", 5*time.Minute, "how long it may take")
	)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q; the flags are: -from, -to, -timeout", flags.Arg(0))
	}
	ctx, stop := context.WithTimeoutCause(ctx, *timeout, fmt.Errorf("it took more than %s (-timeout)", *timeout))
	defer stop()
	p, err := open(*from)
	if err != nil {
		return fmt.Errorf("-from %s: %w", *from, err)
	}
	defer func() { _ = p.root.Close() }() // it was only read
	done, warnings, err := install(ctx, p, *to)
	if err != nil {
		return fmt.Errorf("-to %s: %w", *to, err)
	}
	for _, w := range warnings {
		fmt.Fprintf(out, "warning: %s\n", w)
	}
	_, err = fmt.Fprintf(out, "%s %s %s %s: %d files, %d bytes\n", p.ID, p.Info.Version, done, *to, p.count, p.bytes)
	return err
}
