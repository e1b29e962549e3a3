package fakeshard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
)

// End says how a request ended, as the shard saw it.
type End int

const (
	// Running: it has not ended.
	Running End = iota
	// Completed: the response was written to its end while the peer was there.
	Completed
	// Cut: the script ended the connection on purpose (reset, close, truncate, limit, a wrong
	// length).
	Cut
	// PeerClosed: the peer closed its connection, in good order, before the response was complete.
	PeerClosed
	// PeerReset: the peer's connection was reset before the response was complete. A kernel also
	// does this for a peer that closes a connection with unread bytes of the answer on it, so this
	// is how most cancelled bodies end.
	PeerReset
	// Stopped: the shard was closed first.
	Stopped
)

func (e End) String() string {
	names := []string{"running", "completed", "cut by the script", "closed by the peer", "reset by the peer", "stopped with the shard"}
	if e < 0 || int(e) >= len(names) {
		return fmt.Sprintf("End(%d)", int(e))
	}
	return names[e]
}

// PeerLeft tells whether the peer ended the request before the shard did.
func (e End) PeerLeft() bool { return e == PeerClosed || e == PeerReset }

// A Record is one request as the shard saw it. Records are copies: they change no more.
type Record struct {
	// N counts the requests of the shard in the order of their arrival, from 1; Conn counts its
	// connections likewise.
	N, Conn int

	Method, Host, Path, RawQuery string
	// Target is the request's target as it came, byte for byte.
	Target string
	// Form holds the parameters of body and URL, those of the body first, as net/http has it.
	Form   url.Values
	Header http.Header
	// Body is the request's body, cut at 64 KiB; BodyBytes is its full length.
	Body      []byte
	BodyBytes int64
	// Bad says what was wrong with the request (a form that cannot be parsed), if anything was.
	Bad string

	// Script is what the shard was told to do with the request; empty for the healthy answer.
	Script string

	// Began is when the request had been read whole, Ended when its end was seen (zero while it
	// runs), Left when the peer was seen to leave (zero if it stayed). Left is before Ended only if
	// the script went on computing.
	Began, Ended, Left time.Time
	End                End

	// Sent counts the bytes of the body that were handed to the connection, before chunk framing.
	Sent int64
}

// ReadRequest decodes the body of a remote read request.
func (r *Record) ReadRequest() (*prompb.ReadRequest, error) {
	if int64(len(r.Body)) < r.BodyBytes {
		return nil, fmt.Errorf("the body has %d bytes, the record keeps only the first %d", r.BodyBytes, len(r.Body))
	}
	raw, err := snappy.Decode(nil, r.Body)
	if err != nil {
		return nil, fmt.Errorf("undo snappy: %w", err)
	}
	req := &prompb.ReadRequest{}
	if err := req.Unmarshal(raw); err != nil {
		return nil, fmt.Errorf("decode the remote read request: %w", err)
	}
	return req, nil
}

// String is one line for a test's log.
func (r Record) String() string {
	at := r.Path
	if len(r.Form) > 0 {
		at += "?" + r.Form.Encode()
	}
	s := fmt.Sprintf("#%d %s %s: %s, %d bytes sent", r.N, r.Method, at, r.End, r.Sent)
	if !r.Ended.IsZero() {
		s += fmt.Sprintf(", after %s", r.Ended.Sub(r.Began))
	}
	return s
}

// maxRecords bounds the memory of a shard in a load test.
const maxRecords = 100_000

// maxBodyKept bounds Record.Body.
const maxBodyKept = 64 << 10

// begin notes a new request and gives the record to write its end to.
func (s *Shard) begin(r *Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen++
	r.N = s.seen
	s.inFlight++
	if len(s.records) >= maxRecords {
		// Forget the oldest tenth that has ended, so that forgetting is rare.
		drop := maxRecords / 10
		s.records = slices.DeleteFunc(s.records, func(r *Record) bool {
			if drop > 0 && r.End != Running {
				drop--
				return true
			}
			return false
		})
	}
	s.records = append(s.records, r)
	s.changed()
}

// end notes that a request has ended.
func (s *Shard) end(r *Record, how End, sent int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.End, r.Ended, r.Sent = how, time.Now(), sent
	if how.PeerLeft() && r.Left.IsZero() {
		r.Left = r.Ended // a write found it before the background read did
	}
	if how == Completed {
		r.Left = time.Time{} // a peer that has its answer may go
	}
	s.inFlight--
	s.changed()
}

// progress notes how much of the body was sent so far.
func (s *Shard) progress(r *Record, sent int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Sent = sent
	s.changed()
}

// left notes that the peer was seen to leave.
func (s *Shard) left(r *Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Left = time.Now()
	s.changed()
}

// changed wakes everyone who waits for something to become true. The caller holds s.mu.
func (s *Shard) changed() {
	close(s.wake)
	s.wake = make(chan struct{})
}

// until waits for ok, which is called with s.mu held whenever something has changed.
func (s *Shard) until(ctx context.Context, ok func() bool) error {
	for {
		s.mu.Lock()
		done, wake := ok(), s.wake
		s.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Requests returns what the shard has seen so far, in the order of arrival.
func (s *Shard) Requests() []Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Record, len(s.records))
	for i, r := range s.records {
		all[i] = *r
	}
	return all
}

// RequestsTo is Requests for one path, which may be a pattern as in Route.Path. Config.Prefix does
// not belong to it.
func (s *Shard) RequestsTo(pattern string) []Record {
	return slices.DeleteFunc(s.Requests(), func(r Record) bool {
		p, ok := s.strip(r.Path)
		return !ok || !pathMatches(pattern, p)
	})
}

// Seen returns the number of requests that have begun.
func (s *Shard) Seen() int { s.mu.Lock(); defer s.mu.Unlock(); return s.seen }

// InFlight returns the number of requests that have begun and not ended.
func (s *Shard) InFlight() int { s.mu.Lock(); defer s.mu.Unlock(); return s.inFlight }

// Conns returns the number of open connections, idle ones included.
func (s *Shard) Conns() int { s.mu.Lock(); defer s.mu.Unlock(); return len(s.conns) }

// Accepted returns the number of connections that were ever accepted: a test for their reuse.
func (s *Shard) Accepted() int { s.mu.Lock(); defer s.mu.Unlock(); return s.accepted }

// MostConns returns how many connections were open at once at most.
func (s *Shard) MostConns() int { s.mu.Lock(); defer s.mu.Unlock(); return s.most }

// WaitIdle waits until no request is in flight. When ctx ends first, the error names those that
// are.
func (s *Shard) WaitIdle(ctx context.Context) error {
	err := s.until(ctx, func() bool { return s.inFlight == 0 })
	if err == nil {
		return nil
	}
	var running []string
	for _, r := range s.Requests() {
		if r.End == Running {
			running = append(running, r.String())
		}
	}
	return fmt.Errorf("the shard is not idle: %w; still running: %s", err, strings.Join(running, " | "))
}

// WaitSeen waits until n requests to a path (or pattern, or "" for any) have begun: the moment at
// which a test may let its client leave.
func (s *Shard) WaitSeen(ctx context.Context, pattern string, n int) error {
	have := 0
	err := s.until(ctx, func() bool {
		have = 0
		for _, r := range s.records {
			if p, ok := s.strip(r.Path); ok && (pattern == "" || pathMatches(pattern, p)) {
				have++
			}
		}
		return have >= n
	})
	if err != nil {
		return fmt.Errorf("the shard has seen %d requests to %q, not %d: %w", have, pattern, n, err)
	}
	return nil
}

// WaitSent waits until n bytes of the body of one response to a path (or pattern, or "" for any)
// have been handed to its connection: the moment at which a client is in the middle of it.
func (s *Shard) WaitSent(ctx context.Context, pattern string, n int64) error {
	var most int64
	err := s.until(ctx, func() bool {
		for _, r := range s.records {
			if p, ok := s.strip(r.Path); ok && (pattern == "" || pathMatches(pattern, p)) {
				most = max(most, r.Sent)
			}
		}
		return most >= n
	})
	if err != nil {
		return fmt.Errorf("the shard has sent at most %d bytes of a body, not %d: %w", most, n, err)
	}
	return nil
}

// WaitConns waits until exactly n connections are open.
func (s *Shard) WaitConns(ctx context.Context, n int) error {
	have := 0
	err := s.until(ctx, func() bool { have = len(s.conns); return have == n })
	if err != nil {
		return fmt.Errorf("the shard has %d connections open, not %d: %w", have, n, err)
	}
	return nil
}

// Why a request's context has ended.
var (
	errPeerClosed = errors.New("the peer closed the connection")
	errPeerReset  = errors.New("the peer's connection was reset")
	errStopped    = errors.New("the shard was closed")
)
