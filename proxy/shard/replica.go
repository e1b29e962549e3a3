package shard

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.yaml.in/yaml/v3"

	"github.com/spillwayproject/spillway/internal/timers"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/shard/h1"
)

// Replica is one server holding a copy of a shard's slice.
type Replica struct {
	// Shard is the shard it belongs to.
	Shard *Shard
	// Index is its place among the shard's replicas, from 0.
	Index int

	up           *upstream
	host         string
	name         string
	metricLabels []string
	span         []trace.SpanStartOption // of each call
	account      *account
	*reading
	differs     atomic.Bool
	longGone    atomic.Bool  // down for longer than what it said of itself counts
	compared    atomic.Int64 // which of the server's returns was compared here last
	metrics     *url.URL     // its own; nil where they are not read
	ownPage     bool         // the configuration says which page that is
	memoryLimit int64        // of the configuration; 0 is none
}

// Name is the group's name and the server's host:port, such as jaguar/10.0.0.1:9090: what errors,
// logs and spans call it.
func (r *Replica) Name() string { return r.name }

// URL is the server's address as the configuration has it, with secrets starred.
func (r *Replica) URL() string { return r.up.base.Redacted() }

// InFlight is how many calls to the server are under way, its own health probes included.
func (r *Replica) InFlight() int { return int(r.up.inflight.Load()) }

// labels are the metric labels group, shard and replica, in a slice that may be appended to.
func (r *Replica) labels() []string { return slices.Clip(r.metricLabels) }

// upstream is what there is of a server apart from its place in a configuration, and what a reload
// leaves alone: connections, gates, breaker, health.
type upstream struct {
	key       string
	kind      string // config.TypePrometheus or config.TypeThanos
	base      *url.URL
	headers   map[string]string
	transport http.RoundTripper
	gates     gates
	breaker   breaker
	lag       lag
	pace      pace
	returns   returns
	running   running
	watched   watched
	damage    damageTold
	tried     vain // of those who asked it, as it had failed too often, whether it answers
	opts      Options
	metrics   *metrics
	tracer    trace.Tracer
	timers    timers.Set // of its calls

	refs       atomic.Int32 // topologies that name it
	inflight   atomic.Int64
	failing    atomic.Int64 // since when each call failed, Unix nanoseconds; 0: the last one did not
	answered   atomic.Int64 // when the last query or other call began that did not fail, likewise; 0: none yet
	unanswered atomic.Int64 // of them those whose answer has not begun; probes are not among them
	begins     atomic.Int64 // how long a light call usually takes to begin its answer, in nanoseconds; 0: not known

	firstProbe chan struct{} // closed when the first probe has ended
	probedOnce sync.Once
	onceUp     atomic.Bool // a probe was answered, and the server examined

	mu         sync.Mutex
	health     health
	stores     stores    // of a Thanos Query
	dated      string    // the last Date header
	date       time.Time // what it says
	notYet     time.Time // Retry-After: it is not asked before
	notYetCode int       // the status that came with it
	watchers   map[*func()]struct{}
}

// upstreamKey is equal for two configurations that reach the same server in the same way.
// http_client's secrets print as stars, so they are hashed apart.
func upstreamKey(c *config.Replica) (string, error) {
	base, err := c.Base()
	if err != nil {
		return "", fmt.Errorf("url: %w", err)
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n", base, c.Type)
	names := make([]string, 0, len(c.Headers))
	for n := range c.Headers {
		names = append(names, n)
	}
	slices.Sort(names)
	for _, n := range names {
		fmt.Fprintf(h, "%q=%q\n", n, string(c.Headers[n]))
	}
	client, err := yaml.Marshal(c.HTTPClient)
	if err != nil {
		return "", fmt.Errorf("http_client: %w", err)
	}
	h.Write(client)
	hc := &c.HTTPClient
	fmt.Fprintf(h, "%q %q", string(hc.BearerToken), string(hc.TLSConfig.Key))
	if hc.BasicAuth != nil {
		fmt.Fprintf(h, " basic %q", string(hc.BasicAuth.Password))
	}
	if hc.Authorization != nil {
		fmt.Fprintf(h, " auth %q", string(hc.Authorization.Credentials))
	}
	if hc.OAuth2 != nil {
		fmt.Fprintf(h, " oauth %q %q %q", string(hc.OAuth2.ClientSecret), string(hc.OAuth2.ClientCertificateKey),
			string(hc.OAuth2.TLSConfig.Key))
	}
	if hc.HTTPHeaders != nil {
		for _, n := range sortedKeys(hc.HTTPHeaders.Headers) {
			for _, s := range hc.HTTPHeaders.Headers[n].Secrets {
				fmt.Fprintf(h, " header %q %q", n, string(s))
			}
		}
	}
	for _, n := range sortedKeys(hc.ProxyConnectHeader) {
		for _, s := range hc.ProxyConnectHeader[n] {
			fmt.Fprintf(h, " connect %q %q", n, string(s))
		}
	}
	if hc.ProxyURL.URL != nil {
		fmt.Fprintf(h, " proxy %q", hc.ProxyURL.URL.String())
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func sortedKeys[V any](m map[string]V) []string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

func newUpstream(c *config.Replica, key string, o Options, m *metrics, shared *h1.Shared) (*upstream, error) {
	base, err := c.Base()
	if err != nil {
		return nil, fmt.Errorf("url: %w", err)
	}
	d := newDialer(o.DialTimeout, o.Dial)
	rt, err := newTransport(c.HTTPClient, base, d.dial, shared)
	if err != nil {
		return nil, fmt.Errorf("http_client: %w", err)
	}
	up := &upstream{
		key: key, kind: c.Type, base: base, transport: rt, opts: o, metrics: m,
		tracer:  o.TracerProvider.Tracer("github.com/spillwayproject/spillway/proxy/shard"),
		headers: map[string]string{}, firstProbe: make(chan struct{}), watchers: map[*func()]struct{}{},
		watched: watched{soon: make(chan struct{}, 1)},
		stores:  stores{asking: make(chan struct{}, 1), sounding: sounding{busy: make(chan struct{}, 1)}},
	}
	for n, v := range c.Headers {
		up.headers[http.CanonicalHeaderKey(n)] = string(v)
	}
	up.gates.make(o.ReadSlots, o.Lanes)
	up.refs.Store(1)
	return up, nil
}

// unref gives the server up. Where nothing names it any more, connections that requests still use
// close when these end, since closing the idle ones makes the transport close those that become
// idle.
func (u *upstream) unref() {
	if u.refs.Add(-1) == 0 {
		closeIdle(u.transport)
	}
}

// finished is called at the end of every call.
func (u *upstream) finished() {
	busy := u.inflight.Add(-1)
	if busy == 0 && u.refs.Load() == 0 {
		closeIdle(u.transport)
	} else if c, ok := u.transport.(*counted); ok {
		c.look(busy, time.Now())
	}
}

// whenDown calls f should a probe find the server gone, until the returned function is called.
func (u *upstream) whenDown(f func()) (forget func()) {
	p := &f
	u.mu.Lock()
	u.watchers[p] = struct{}{}
	u.mu.Unlock()
	return func() {
		u.mu.Lock()
		delete(u.watchers, p)
		u.mu.Unlock()
	}
}

// sawDate remembers how far the server's clock is from ours. It is a remark for people and decides
// nothing.
func (u *upstream) sawDate(date string, started time.Time) {
	if date == "" {
		return
	}
	u.mu.Lock()
	t := u.date
	if date != u.dated {
		var err error
		if t, err = http.ParseTime(date); err != nil {
			u.mu.Unlock()
			return
		}
		u.dated, u.date = strings.Clone(date), t
	}
	u.mu.Unlock()
	var skew time.Duration // the header is cut to the second, and was written at any time since the call began
	switch now := time.Now(); {
	case t.Add(time.Second).Before(started):
		skew = t.Add(time.Second).Sub(started)
	case t.After(now):
		skew = t.Sub(now)
	}
	u.mu.Lock()
	u.health.skew = skew
	if skew.Abs() > maxSkew {
		u.health.farSkew, u.health.farSkewAt = skew, time.Now()
	}
	u.mu.Unlock()
}

// beginsOf is the weight of one call in how long calls usually take to begin their answers.
const beginsOf = 4

// began takes in how long a light call took to begin its answer. Of two at once one may be lost.
func (u *upstream) began(took time.Duration) {
	if was := u.begins.Load(); was > 0 {
		took = time.Duration(was + (int64(took)-was)/beginsOf)
	}
	u.begins.Store(int64(max(took, 1)))
}

// Begins is about how long a call that needs no computing usually takes to begin its answer, by the
// shard's slowest replica that was asked; 0 where that is not known.
func (s *Shard) Begins() time.Duration {
	slowest := int64(0)
	for _, r := range s.Replicas {
		slowest = max(slowest, r.up.begins.Load())
	}
	return time.Duration(slowest)
}

// admit waits briefly for the first probe and refuses a replica that is known to be misconfigured:
// what it would answer could be wrong.
func (r *Replica) admit(ctx context.Context) error {
	r.awaitProbe(ctx)
	if ctx.Err() != nil {
		return r.ctxError(ctx)
	}
	if why := r.misconfigured(); len(why) > 0 {
		e := qerr.New(qerr.ShardFailed, "%s is misconfigured and not asked: %s", r.Name(), strings.Join(why, "; "))
		e.Shards = []string{r.Name()}
		return e
	}
	return nil
}

// awaitProbe waits for the replica's first probe, if there will be one, a quarter of the remaining
// time and at most FirstProbeWait.
func (r *Replica) awaitProbe(ctx context.Context) { r.Shard.await(ctx, r) }

// awaitProbes is awaitProbe for all replicas of the shard, within the same time.
func (s *Shard) awaitProbes(ctx context.Context) { s.await(ctx, s.Replicas...) }

func (s *Shard) await(ctx context.Context, replicas ...*Replica) {
	var timer *time.Timer
	for _, r := range replicas {
		select {
		case <-r.up.firstProbe:
			continue
		default:
		}
		if !s.topology.started.Load() {
			return
		}
		if timer == nil {
			wait := s.topology.opts.FirstProbeWait
			if dl, ok := ctx.Deadline(); ok {
				wait = min(wait, time.Until(dl)/4)
			}
			timer = time.NewTimer(wait)
			defer timer.Stop()
		}
		select {
		case <-r.up.firstProbe:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}
