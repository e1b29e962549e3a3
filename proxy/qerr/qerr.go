package qerr

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Kind is what went wrong, from the client's point of view.
type Kind uint8

// The kinds. Nothing else reaches a client.
const (
	// Internal is a fault of Spillway itself.
	Internal Kind = iota
	// BadData is a request that can never work: a parameter or a query that Prometheus itself would
	// reject.
	BadData
	// Unauthorized is a request without an identity where one is needed.
	Unauthorized
	// Forbidden is an identity that may not ask this.
	Forbidden
	// NotFound is a path outside the endpoint table.
	NotFound
	// MethodNotAllowed is a method that the endpoint does not serve.
	MethodNotAllowed
	// SlowRequest is a client that did not finish sending its body in time.
	SlowRequest
	// BodyTooLarge is a request body over its cap.
	BodyTooLarge
	// HeadersTooLarge is a request head over its cap.
	HeadersTooLarge
	// TooExpensive is a query that a bound refuses: trying it again unchanged is useless.
	TooExpensive
	// Overloaded is a request that found no room now: a queue, the memory budget, a slot. Trying
	// again later makes sense.
	Overloaded
	// Canceled is a request whose client left. It is logged and counted; nothing is written.
	Canceled
	// ShardFailed is a shard that answered wrongly or not at all before the deadline.
	ShardFailed
	// Timeout is the request's deadline, a shard that had not answered by then included.
	Timeout
	// Unavailable is a proxy that is draining or not ready.
	Unavailable

	kinds
)

type kindInfo struct {
	status    int
	errorType string
	label     string
	retry     bool
}

var info = [kinds]kindInfo{
	Internal:         {http.StatusInternalServerError, "internal", "internal", false},
	BadData:          {http.StatusBadRequest, "bad_data", "bad_data", false},
	Unauthorized:     {http.StatusUnauthorized, "unauthorized", "unauthorized", false},
	Forbidden:        {http.StatusForbidden, "forbidden", "forbidden", false},
	NotFound:         {http.StatusNotFound, "not_found", "not_found", false},
	MethodNotAllowed: {http.StatusMethodNotAllowed, "bad_data", "method_not_allowed", false},
	SlowRequest:      {http.StatusRequestTimeout, "bad_data", "slow_request", true},
	BodyTooLarge:     {http.StatusRequestEntityTooLarge, "bad_data", "body_too_large", false},
	HeadersTooLarge:  {http.StatusRequestHeaderFieldsTooLarge, "bad_data", "headers_too_large", false},
	TooExpensive:     {http.StatusUnprocessableEntity, "execution", "too_expensive", false},
	Overloaded:       {http.StatusTooManyRequests, "too_many_requests", "overloaded", true},
	Canceled:         {499, "canceled", "canceled", false},
	ShardFailed:      {http.StatusBadGateway, "internal", "shard_failed", true},
	Timeout:          {http.StatusServiceUnavailable, "timeout", "timeout", true},
	Unavailable:      {http.StatusServiceUnavailable, "unavailable", "unavailable", true},
}

// Kinds returns every kind, in order.
func Kinds() []Kind {
	all := make([]Kind, kinds)
	for i := range all {
		all[i] = Kind(i)
	}
	return all
}

// Status is the HTTP status of the kind.
func (k Kind) Status() int { return info[k].status }

// ErrorType is the Prometheus errorType of the kind.
func (k Kind) ErrorType() string { return info[k].errorType }

// Retryable tells whether the same request may succeed later.
func (k Kind) Retryable() bool { return info[k].retry }

// String is the kind's metric label.
func (k Kind) String() string { return info[k].label }

// Error is a refusal or failure with a public sentence and a private cause.
type Error struct {
	// Kind fixes status, errorType and metric label.
	Kind Kind
	// Message is the public sentence: what is wrong and what to do.
	Message string
	// Bound names the limit that refused, such as max_series; empty where no bound did.
	Bound string
	// Value is the bound's value, as the configuration would spell it.
	Value string
	// Seen is what the request came to, in the bound's unit.
	Seen string
	// Advice is what the caller can do instead.
	Advice string
	// Rewrite is a request that asks for less and fits, which Advice says in words; nil where none
	// is known.
	Rewrite *Rewrite
	// RetryAfter is sent as Retry-After, in whole seconds rounded up, with kinds that are
	// retryable; 0 sends none but for Overloaded, where 1 s is sent.
	RetryAfter time.Duration
	// Allow is the Allow header of a MethodNotAllowed.
	Allow []string
	// Verbatim tells that Message is what Prometheus itself says to such a request; body then says
	// so beside it.
	Verbatim bool
	// Link is where more is to be read about this request, in a browser; empty is nowhere. It
	// stands at the end of the sentence, since most clients show nothing else.
	Link string
	// Shards names the shards (group and host:port) that failed, for logs and metrics.
	Shards []string

	cause error
}

// Rewrite is a request that can be sent instead of one that was refused, for programs.
type Rewrite struct {
	// Kind is in which way it asks for less: step, window, range, matcher, aggregation or metric;
	// And is the second way, where one was not enough.
	Kind string `json:"kind"`
	And  string `json:"and,omitempty"`
	// Path and Parameters are the request, as the API takes it.
	Path       string              `json:"path"`
	Parameters map[string][]string `json:"parameters"`
	// Tried tells that it was asked, Ago seconds ago, and answered whole: then Series and Samples
	// are what shards sent for it, in Seconds; else they are an estimate.
	Tried   bool    `json:"tried"`
	Series  int64   `json:"series"`
	Samples int64   `json:"samples"`
	Seconds float64 `json:"seconds,omitempty"`
	Ago     float64 `json:"ago,omitempty"`
}

// New returns an error of the kind with a public sentence.
func New(k Kind, format string, args ...any) *Error {
	return &Error{Kind: k, Message: fmt.Sprintf(format, args...)}
}

// Wrap is New with a private cause, which errors.Is and errors.As see and clients never do.
func Wrap(k Kind, cause error, format string, args ...any) *Error {
	e := New(k, format, args...)
	e.cause = cause
	return e
}

// Prometheus is a BadData error whose sentence is Prometheus' own verdict, in its words.
func Prometheus(format string, args ...any) *Error {
	e := New(BadData, format, args...)
	e.Verbatim = true
	return e
}

// Refuse is a TooExpensive error by the named bound.
func Refuse(bound, value, seen, advice, format string, args ...any) *Error {
	e := New(TooExpensive, format, args...)
	e.Bound, e.Value, e.Seen, e.Advice = bound, value, seen, advice
	return e
}

// Overload is an Overloaded error by the named bound, to be tried again after the wait.
func Overload(bound, value string, after time.Duration, advice, format string, args ...any) *Error {
	e := New(Overloaded, format, args...)
	e.Bound, e.Value, e.Advice, e.RetryAfter = bound, value, advice, after
	return e
}

// Error is the public sentence followed by the private cause. It is for logs; clients get Message.
func (e *Error) Error() string {
	if e.cause != nil {
		return e.Message + ": " + e.cause.Error()
	}
	return e.Message
}

// Unwrap returns the private cause.
func (e *Error) Unwrap() error { return e.cause }

// ErrClientLeft is the cancellation cause of a request whose client went away.
var ErrClientLeft = errors.New("the client left")

// From turns any error into an *Error: one that is in the chain already, a context's cause, or
// Internal.
func From(err error) *Error {
	var e *Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &e):
		return e
	case errors.Is(err, ErrClientLeft), errors.Is(err, context.Canceled):
		return Wrap(Canceled, err, "the client left before the answer was complete")
	case errors.Is(err, context.DeadlineExceeded):
		return Wrap(Timeout, err, "the request's deadline passed")
	default:
		return Wrap(Internal, err, "Spillway failed to answer; its log has the cause")
	}
}

// FromContext is From for an error seen under ctx. It asks the context first, since what a
// cancelled read returns says nothing about who cancelled it.
func FromContext(ctx context.Context, err error) *Error {
	if ctx.Err() != nil {
		return From(context.Cause(ctx))
	}
	return From(err)
}

// TimedOut tells whether the context has ended because its deadline, or that of one that it
// descends from, passed: it says so, or its cause does.
func TimedOut(ctx context.Context) bool {
	return ctx.Err() == context.DeadlineExceeded || errors.Is(context.Cause(ctx), context.DeadlineExceeded)
}

// What is advised beside a verdict on a request whose sentence has said all, and beside one that is
// Prometheus' own.
const (
	badDataAdvice  = "correct the request as the sentence says"
	verbatimAdvice = "correct the request: this is Prometheus' own verdict on it"
)

// body is the wire form: Prometheus' own fields and the object spillway.
type body struct {
	Status    string  `json:"status"`
	ErrorType string  `json:"errorType"`
	Error     string  `json:"error"`
	Spillway  *detail `json:"spillway,omitempty"`
}

type detail struct {
	Bound  string `json:"bound"`
	Value  string `json:"value"`
	Seen   string `json:"seen"`
	Advice string `json:"advice"`
	Link   string `json:"link,omitempty"`
	// Rewrite is there where one is known alone: whoever reads the other four finds them always.
	Rewrite *Rewrite `json:"rewrite,omitempty"`
}

// JSON is the Prometheus error body. The field error is early in it, since Grafana shows only the
// first 1,024 bytes of some answers.
func (e *Error) JSON() []byte {
	b := body{
		Status: "error", ErrorType: e.Kind.ErrorType(), Error: e.sentence(),
		Spillway: &detail{e.Bound, e.Value, e.Seen, e.Advice, e.Link, e.Rewrite},
	}
	if e.Kind == BadData && *b.Spillway == (detail{}) {
		b.Spillway.Advice = badDataAdvice // beside the sentence, which may be Prometheus' own and stays as it is
		if e.Verbatim {
			b.Spillway.Advice = verbatimAdvice
		}
	}
	out, err := json.Marshal(b)
	if err != nil { // strings always marshal
		panic(err)
	}
	return append(out, '\n')
}

// sentence joins the message, the advice and the link: most clients show nothing but the field
// error.
func (e *Error) sentence() string {
	msg := strings.ToValidUTF8(e.Message, "\uFFFD")
	if e.Advice != "" && !strings.Contains(msg, e.Advice) {
		msg += "; " + e.Advice
	}
	if e.Link != "" {
		msg += " – " + e.Link
	}
	return msg
}

// WriteTo writes status, headers and body. A Canceled error writes nothing: nobody is there.
func (e *Error) WriteTo(w http.ResponseWriter) {
	if e.Kind == Canceled {
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Del("Content-Length")
	h.Del("Content-Encoding")
	if len(e.Allow) > 0 {
		h.Set("Allow", strings.Join(e.Allow, ", "))
	}
	if after := e.RetryAfter; after > 0 || e.Kind == Overloaded {
		h.Set("Retry-After", strconv.Itoa(max(1, int((after+time.Second-1)/time.Second))))
	}
	w.WriteHeader(e.Kind.Status())
	_, _ = w.Write(e.JSON()) // the client may be gone; there is nobody else to tell
}
