package cli

import "errors"

// oomCommand is replaced by the load test.
func oomCommand(*env, clause) func() error { return func() error { return errors.New("x") } }
