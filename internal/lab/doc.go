// Package lab is the command line of the laboratory: the demo, and load tests of real servers.
//
// It promises the framework of package cli: flags in the style of Prometheus, exit code 2 for a
// wrong command line, nothing left behind when its contexts end. The processes that it starts are
// this program itself, which serves the product's commands too, hidden, or the spillway that stands
// beside it, or the one that --spillway names.
package lab
