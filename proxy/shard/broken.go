package shard

import (
	"errors"
	"io"
	"strconv"
	"strings"
	"syscall"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"

	"github.com/spillwayproject/spillway/internal/clip"
)

// resetError marks a connection that broke before the header of an answer: the one failure that is
// tried again on the same replica.
type resetError struct{ err error }

func (e *resetError) Error() string { return e.err.Error() }
func (e *resetError) Unwrap() error { return e.err }

func isReset(err error) bool {
	var r *resetError
	return errors.As(err, &r) && (errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) || strings.Contains(err.Error(), "server closed idle connection"))
}

// isGzip tells the inflater's own complaints from the connection's.
func isGzip(err error) bool {
	var corrupt flate.CorruptInputError
	return errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) || errors.As(err, &corrupt)
}

// cleaned is a text of a shard, of bearable length, that goes into a public sentence.
func cleaned(s string) string {
	return clip.Said(s)
}

func itoa(n int) string     { return strconv.Itoa(n) }
func itoa64(n int64) string { return strconv.FormatInt(n, 10) }

// Stalled tells whether a call ended because nothing more of its answer came for as long as a call
// waits.
func Stalled(err error) bool { return errors.Is(err, errStalled) }

// HurriedStall tells whether that was not for as long as a server may pause, but as long as its
// caller could wait and still ask another replica: a word about the caller's time, and none about
// the server.
func HurriedStall(err error) bool { return errors.Is(err, errStalledSoon) }
