package mix

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// patience is how long one request may take.
const patience = 2 * time.Minute

// caller asks one path, over connections of its own.
type caller struct {
	p      *path
	client *http.Client
}

// newCaller makes a caller that keeps so many connections.
func newCaller(p *path, connections int) *caller {
	return &caller{p, &http.Client{Timeout: patience, Transport: &http.Transport{
		MaxIdleConnsPerHost: connections, DisableCompression: true,
		WriteBufferSize: 16 << 10, ReadBufferSize: 64 << 10,
	}}}
}

func (c *caller) close() { c.client.CloseIdleConnections() }

// ask reads a whole answer into buf and returns how long that took. Anything but a success is an
// error.
func (c *caller) ask(ctx context.Context, what string, buf *bytes.Buffer) (time.Duration, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.p.at(what)+what, nil)
	if err != nil {
		return 0, err
	}
	// Nobody compresses, so the same bytes go through all. Without this header Go's reverse proxy
	// would ask for gzip by itself, and inflate it.
	req.Header.Set("Accept-Encoding", "identity")
	buf.Reset()
	began := time.Now()
	res, err := c.client.Do(req)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", c.p.name, err)
	}
	defer res.Body.Close()
	_, err = buf.ReadFrom(res.Body)
	took := time.Since(began)
	if err != nil {
		return 0, fmt.Errorf("%s: %s: %w", c.p.name, what, err)
	}
	if res.StatusCode != http.StatusOK || !bytes.HasPrefix(buf.Bytes(), []byte(`{"status":"success"`)) {
		return 0, fmt.Errorf("%s: %s was answered %s: %.500s", c.p.name, what, res.Status, buf.Bytes())
	}
	return took, nil
}

// request is the i-th request of a run: which query, and how it is asked. The windows move by a
// second with each pass over the mix and the nodes change with every request, so that no answer can
// come out of a cache; all paths get the same ones.
func (w *World) request(i int) (query int, what string) {
	n := len(w.o.Mix.Queries)
	return i % n, w.o.Mix.path(w.o.Mix.Queries[i%n], w.end(i/n), nodeName(i*7919%w.Data.Nodes), w.Data.Namespace)
}

// end is the end of a window of the pass.
func (w *World) end(pass int) time.Time {
	return w.Data.Until.Add(-edge - time.Duration(pass%int(movingSpan/time.Second))*time.Second).Truncate(time.Second)
}

// sample is one request; err is why its answer was of no use.
type sample struct {
	query int
	took  time.Duration
	err   error
}

// turn is what one path did in one round.
type turn struct {
	path               *path
	concurrency, round int
	samples            []sample
	wall               time.Duration
	proxy, servers     time.Duration // processor time
}

// turn asks a path so many requests, beginning with the first-th, so many at once.
func (w *World) turn(ctx context.Context, c *caller, round, concurrency, first, requests int) (*turn, error) {
	t := &turn{path: c.p, concurrency: concurrency, round: round, samples: make([]sample, requests)}
	proxy, servers, err := c.p.cpu()
	if err != nil {
		return nil, err
	}
	var next atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	began := time.Now()
	for range concurrency {
		g.Go(func() error {
			var buf bytes.Buffer
			for {
				i := int(next.Add(1)) - 1
				if i >= requests {
					return nil
				}
				q, what := w.request(first + i)
				took, err := c.ask(ctx, what, &buf)
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				t.samples[i] = sample{q, took, err}
			}
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	t.wall = time.Since(began)
	p, s, err := c.p.cpu()
	t.proxy, t.servers = p-proxy, s-servers
	return t, err
}

// cpu is the processor time of the path's proxy and of its servers so far.
func (p *path) cpu() (proxy, servers time.Duration, err error) {
	if p.pid > 0 {
		if proxy, err = cpuTime(p.pid); err != nil {
			return 0, 0, fmt.Errorf("%s: %w", p.name, err)
		}
	}
	for _, s := range p.servers {
		t, err := cpuTime(s.PID())
		if err != nil {
			return 0, 0, fmt.Errorf("%s: %w", p.name, err)
		}
		servers += t
	}
	return proxy, servers, nil
}

// check asks every path the same and compares what it answers with what the first, the single
// server, does. The texts say what was wrong.
func (w *World) check(ctx context.Context, callers []*caller, what string) (want *result, wrong []string, err error) {
	var buf bytes.Buffer
	for i, c := range callers {
		got, err := c.result(ctx, what, &buf)
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		switch {
		case i == 0 && err != nil:
			return nil, nil, err
		case i == 0:
			want = got
			continue
		case err == nil:
			err = differs(want, got)
		}
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("%s: %s: %v", c.p.name, what, err))
		}
	}
	return want, wrong, nil
}

func (c *caller) result(ctx context.Context, what string, buf *bytes.Buffer) (*result, error) {
	if _, err := c.ask(ctx, what, buf); err != nil {
		return nil, err
	}
	return parseResult(buf.Bytes(), c.p.labels)
}
