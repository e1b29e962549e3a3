package shard

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/spillwayproject/spillway/proxy/identity"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// maxErrorBody is how much of an error's body is read, inflated.
const maxErrorBody = 64 << 10

// apiError is the error form of the Prometheus API.
type apiError struct {
	Status    string `json:"status"`
	ErrorType string `json:"errorType"`
	Error     string `json:"error"`
}

// StatusError is the private cause of an error that a shard's HTTP status led to.
type StatusError struct {
	// Code is the status.
	Code int
	// RetryAfter is what the shard asked for; 0 where it asked for nothing.
	RetryAfter time.Duration
	// Body is the beginning of what came with it, for the log.
	Body string

	alone   bool  // it is what a Spillway says of this request, and of no other
	unasked bool  // the call was not made: the server had said so before
	cause   error // why it was not made, where it was not for that; nil else
}

func (e *StatusError) Error() string {
	if e.cause != nil {
		return e.cause.Error()
	}
	return fmt.Sprintf("status %d: %s", e.Code, strconv.QuoteToASCII(e.Body))
}

// Unwrap is why a call was not made, for which no server has answered with a status; else nil.
func (e *StatusError) Unwrap() error { return e.cause }

// status maps a status other than 200 to an error. What Prometheus itself says about a query (400,
// 422, 503 timeout) is passed on in its own words; everything else is the shard's failure, what it
// says as 422 about its own storage included.
func (c *call) status(resp *http.Response) error {
	name := c.r.Name()
	raw := c.errorBody(resp)
	st := &StatusError{
		Code: resp.StatusCode, RetryAfter: retryAfter(resp.Header.Get("Retry-After"), time.Now()),
		Body:  string(raw[:min(len(raw), headBytes)]),
		alone: resp.Header.Get(identity.HeaderVerdict) != "",
	}
	var api apiError
	known := json.Unmarshal(raw, &api) == nil && api.Status == "error" && api.Error != ""
	said := ""
	if known {
		said = strconv.Quote(cleaned(api.Error))
	}
	fail := func(k qerr.Kind, format string, args ...any) error {
		e := qerr.Wrap(k, st, format, args...)
		e.Shards = []string{name}
		return e
	}
	if c.r.Thanos() && known {
		if e := c.thanosStatus(st, api.Error); e != nil {
			return e
		}
	}
	switch code := resp.StatusCode; {
	case code == http.StatusBadRequest && known:
		e := qerr.Wrap(qerr.BadData, st, "%s", cleaned(api.Error))
		e.Verbatim = true
		return e
	case code == http.StatusUnprocessableEntity && known && strings.HasSuffix(api.Error, context.DeadlineExceeded.Error()):
		// its time was over while it read series, which it takes for a fault of the query
		return fail(qerr.Timeout, "%s: %s", name, cleaned(api.Error))
	case code == http.StatusUnprocessableEntity && known && damaged(api.Error):
		return c.r.damaged(api.Error)
	case code == http.StatusUnprocessableEntity && known:
		e := qerr.Wrap(qerr.TooExpensive, st, "%s", cleaned(api.Error)) // about the query, in Prometheus' own words
		e.Shards = []string{name}
		return e
	case code == http.StatusServiceUnavailable && known && api.ErrorType == "timeout":
		return fail(qerr.Timeout, "%s: %s", name, cleaned(api.Error))
	case code >= 300 && code < 400:
		return fail(qerr.ShardFailed, "%s redirects to another address, which Spillway never follows: put the final url into the configuration", name)
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return fail(qerr.ShardFailed, "%s refuses Spillway's credentials with status %d; look at its http_client and headers in the configuration", name, code)
	case code == http.StatusNotFound || code == http.StatusMethodNotAllowed:
		return fail(qerr.ShardFailed, "%s does not serve %s (status %d); is its url complete, with its path prefix, and its version recent enough?", name, c.asks(), code)
	case code == http.StatusTooManyRequests:
		c.coolDown(st)
		if st.later() {
			return c.r.busyError(st, said)
		}
		return fail(qerr.ShardFailed, "%s has no room for more requests (status 429); try again in a moment", name)
	case code == http.StatusServiceUnavailable:
		c.coolDown(st)
		if st.later() {
			return c.r.busyError(st, said)
		}
		fallthrough
	default:
		if known {
			return fail(qerr.ShardFailed, "%s answered with status %d: %s", name, code, cleaned(api.Error))
		}
		return fail(qerr.ShardFailed, "%s answered with status %d; its log may tell why", name, code)
	}
}

// asks is what the call wants of the server, as the reader of a configuration knows it.
func (c *call) asks() string {
	if c.id == probeJSON {
		return "the API of a Prometheus"
	}
	return string(c.id)
}

// errorBody reads the beginning of an error's body, inflated where it is gzip, and never waits
// longer than the progress timeout for it.
func (c *call) errorBody(resp *http.Response) []byte {
	var r io.Reader = resp.Body
	c.progress.Reset(c.r.up.opts.ProgressTimeout)
	defer c.progress.Stop()
	if strings.EqualFold(resp.Header.Get("Content-Encoding"), "gzip") {
		z, err := gzip.NewReader(resp.Body)
		if err != nil {
			return nil
		}
		r = z
	}
	raw, _ := io.ReadAll(io.LimitReader(r, maxErrorBody)) // what came is what there is to say
	return bytes.TrimSpace(raw)
}

// retryAfter reads the header's two forms; 0 is none. A wish of more than an hour is one hour.
func retryAfter(v string, now time.Time) time.Duration {
	if v == "" {
		return 0
	}
	if s, err := strconv.Atoi(v); err == nil {
		return time.Duration(min(max(s, 0), 3600)) * time.Second
	}
	if t, err := http.ParseTime(v); err == nil {
		return min(max(t.Sub(now), 0), time.Hour)
	}
	return 0
}
