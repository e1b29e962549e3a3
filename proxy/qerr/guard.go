package qerr

import (
	"fmt"
	"runtime/debug"
)

// Panic is the cause of an error that stands for a panic.
type Panic struct {
	// Value is what was panicked with.
	Value any
	// Stack is where it happened, as runtime/debug prints it.
	Stack []byte
}

func (p *Panic) Error() string { return fmt.Sprintf("panic: %v\n%s", p.Value, p.Stack) }

// Guard calls f and turns a panic into an Internal error, with a *Panic as its cause: in a
// goroutine of its own it would end the process, with every other request in it.
func Guard(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = Wrap(Internal, &Panic{Value: v, Stack: debug.Stack()}, "Spillway failed to read an answer; its log has the cause")
		}
	}()
	return f()
}
