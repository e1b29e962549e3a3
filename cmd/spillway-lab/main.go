// Command spillway-lab is Spillway's laboratory: the demo, and load tests of real Prometheus
// servers. It stands beside the product, which links none of it.
package main

import (
	"os"

	"github.com/spillwayproject/spillway/internal/lab"
)

func main() {
	os.Exit(lab.Laboratory.Main(os.Args[1:], os.Stdout, os.Stderr))
}
