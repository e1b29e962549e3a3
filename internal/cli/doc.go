// Package cli is the command line of spillway: flags in the style of Prometheus, one function a
// command. Run is what main calls, and what scripts in tests call in process, so it writes to the
// given streams, ends with its contexts and never exits the process.
package cli
