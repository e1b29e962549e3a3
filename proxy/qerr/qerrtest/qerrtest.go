// Package qerrtest checks that refusals have what they promise.
package qerrtest

import (
	"errors"
	"testing"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

// Refused fails the test unless the error is a refusal of that kind by that bound, with its value,
// what was seen and what to do.
func Refused(t testing.TB, err error, kind qerr.Kind, bound string) {
	t.Helper()
	var e *qerr.Error
	if !errors.As(err, &e) || e.Kind != kind || e.Bound != bound {
		t.Fatalf("got %v, want a refusal of kind %s by %s", err, kind, bound)
	}
	if e.Value == "" || e.Seen == "" || e.Advice == "" {
		t.Errorf("the refusal lacks value, seen or advice: %+v", e)
	}
}
