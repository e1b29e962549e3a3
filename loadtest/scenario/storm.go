package scenario

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spillwayproject/spillway/loadtest/report"
)

// target is somewhere to ask. Once it is gone nobody asks it again.
type target struct {
	url  string
	gone <-chan struct{}
}

func (t target) isGone() bool {
	select {
	case <-t.gone:
		return true
	default:
		return false
	}
}

// Reply is one request with what is known of its answer.
type Reply struct {
	report.Request
	Ask    string // its name
	Status int    // 0 where there was none
	Found  Found
	// Parsed says that the answer was looked into; larger ones than 8 MiB are only counted.
	Parsed bool
}

// callers are n of them who ask without a pause, each at least once.
type callers struct {
	asks    []Ask
	targets []target
	callers int
	// duration is how long new requests are begun; patience how long a caller waits for one.
	duration, patience time.Duration
	began              time.Time // of the run: times are counted from there
}

// run returns when every caller has its last answer, ctx ends or no target is left. A caller asks
// all targets at once and goes on when all have answered.
func (s callers) run(ctx context.Context) []Reply {
	client := &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: s.callers, DisableCompression: true, DialContext: (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
	}}
	defer client.CloseIdleConnections()
	var (
		mu      sync.Mutex
		replies []Reply
		all     sync.WaitGroup
	)
	until := time.Now().Add(s.duration)
	for caller := range s.callers {
		all.Go(func() {
			buf := make([]bytes.Buffer, len(s.targets))
			for i := caller; (i == caller || time.Now().Before(until)) && ctx.Err() == nil; i++ { // each at least once
				ask := s.asks[i%len(s.asks)]
				var round sync.WaitGroup
				left := false
				for t, target := range s.targets {
					if target.isGone() {
						continue
					}
					left = true
					round.Go(func() {
						r := s.ask(ctx, client, target.url, ask, &buf[t])
						mu.Lock()
						replies = append(replies, r)
						mu.Unlock()
					})
				}
				round.Wait()
				if !left {
					return
				}
			}
		})
	}
	all.Wait()
	return replies
}

var errPatience = errors.New("the caller gave up")

// ask sends one request and reads its answer to the end.
func (s callers) ask(ctx context.Context, client *http.Client, url string, a Ask, buf *bytes.Buffer) (r Reply) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.patience, errPatience)
	defer cancel()
	r.Ask, r.Began = a.Name, time.Since(s.began)
	defer func() { r.Took = time.Since(s.began) - r.Began }()
	req, err := a.request(ctx, url)
	if err != nil {
		r.Outcome = err.Error()
		return r
	}
	res, err := client.Do(req)
	if err != nil {
		r.Outcome = s.failure(ctx, err)
		return r
	}
	defer res.Body.Close()
	r.Status = res.StatusCode
	buf.Reset()
	n, err := io.Copy(buf, io.LimitReader(res.Body, maxParsed+1))
	r.Bytes = n
	if err == nil && n > maxParsed {
		n, err = io.Copy(io.Discard, res.Body)
		r.Bytes += n
	}
	switch {
	case err != nil:
		r.Outcome = s.failure(ctx, err)
	case res.StatusCode != http.StatusOK:
		r.Outcome = fmt.Sprint(res.StatusCode)
	case r.Bytes > maxParsed:
		r.Outcome, r.OK = "200", true
	default:
		r.Parsed = true
		if r.Found, err = a.Check(buf.Bytes()); err != nil {
			r.Outcome = "200, but " + err.Error()
		} else {
			r.Outcome, r.OK = "200", true
		}
	}
	return r
}

// request builds the HTTP request.
func (a Ask) request(ctx context.Context, url string) (*http.Request, error) {
	params := a.Params.Encode()
	if a.Method == http.MethodGet {
		return http.NewRequestWithContext(ctx, a.Method, url+a.Path+"?"+params, nil)
	}
	req, err := http.NewRequestWithContext(ctx, a.Method, url+a.Path, strings.NewReader(params))
	if err == nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return req, err
}

// failure is the word of the table for a request without a whole answer.
func (s callers) failure(ctx context.Context, err error) string {
	switch {
	case errors.Is(context.Cause(ctx), errPatience):
		return fmt.Sprintf("no answer in %s", s.patience)
	case ctx.Err() != nil:
		return "the test ended"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "connection lost"
	}
	return "failed"
}
