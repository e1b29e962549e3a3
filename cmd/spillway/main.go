// Command spillway keeps Prometheus standing: a query proxy that bounds every API in front of
// sharded Prometheus servers, and the tools around it.
//
// main turns the result of one command into the process' exit code; the command line is package
// cli, everything else a package of its own.
package main

import (
	"os"

	"github.com/spillwayproject/spillway/internal/cli"
)

func main() {
	os.Exit(cli.Spillway.Main(os.Args[1:], os.Stdout, os.Stderr))
}
