//go:build !linux && !darwin

package server

// peek never finds anything here: a deadline is kept to the moment.
func peek(uintptr) bool { return false }
