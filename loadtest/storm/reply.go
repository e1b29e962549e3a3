package storm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"regexp"
	"syscall"
	"time"
)

// headBytes of an answer are looked at.
const headBytes = 4 << 10

// A Verdict is what became of a request.
type Verdict int

const (
	// OK: a whole answer of use.
	OK Verdict = iota
	// Refused: a status of 4xx, which says that it would not be done.
	Refused
	// Failed: everything else that is no answer.
	Failed
	// Left: the caller hung up on purpose.
	Left
	// Ended: the test did.
	Ended
)

// String is the verdict's word.
func (v Verdict) String() string { return [...]string{"ok", "refused", "failed", "left", "ended"}[v] }

// Reply is what became of one request.
type Reply struct {
	// Part and Request are names.
	Part, Request string
	// Due is when it was to be sent, Took how long after that its answer was read whole, or it
	// failed.
	Due, Took time.Duration
	// Status is 0 where there was none.
	Status  int
	Verdict Verdict
	// Outcome is a short text for tables: "200", "422 unselective", "connection lost".
	Outcome string
	Bytes   int64 // of the body, as far as it was read
	// Again tells that the caller had asked before.
	Again bool
}

// boundOf finds the bound in an error of Spillway's.
var boundOf = regexp.MustCompile(`"bound":\s*"([a-z_.]{1,40})"`)

// success is how an answer of the API begins.
var success = []byte(`{"status":"success"`)

// judge says what a whole answer is worth.
func judge(status int, contentType string, head []byte) (Verdict, string) {
	text := fmt.Sprint(status)
	switch media, _, _ := mime.ParseMediaType(contentType); {
	case status/100 == 2 && media == "application/json" && !bytes.HasPrefix(head, success):
		return Failed, text + ", but no success"
	case status/100 == 2:
		return OK, text
	}
	if m := boundOf.FindSubmatch(head); m != nil {
		text += " " + string(m[1])
	}
	if status/100 == 4 {
		return Refused, text
	}
	return Failed, text
}

// lost says why there is no whole answer.
func lost(ctx context.Context, err error) (Verdict, string) {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, errLeaves):
		return Left, "left"
	case errors.Is(cause, errPatience):
		return Failed, "no answer in time"
	case ctx.Err() != nil:
		return Ended, "the test ended"
	case errors.Is(err, syscall.ECONNREFUSED):
		return Failed, "connection refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return Failed, "connection lost"
	}
	return Failed, "failed"
}
