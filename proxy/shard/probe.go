package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/thanos"
	"github.com/spillwayproject/spillway/proxy/trust"
)

// State is what is known of a replica.
type State string

// The states. Unknown is before the first probe; such a replica is asked.
const (
	Up            State = "up"
	Down          State = "down"
	Misconfigured State = "misconfigured"
	Unknown       State = "unknown"
)

var states = []State{Up, Down, Misconfigured, Unknown}

// The prober's own calls. They pass no gate, count for no breaker and are in no metric of requests.
const (
	probeText endpoint.ID = "probe"
	probeJSON endpoint.ID = "examine"
	// vitalsText reads a server's own metrics: whatever it answers says nothing of its queries.
	vitalsText endpoint.ID = "vitals"
)

const (
	// probeTimeout bounds one question of the prober. It is longer than the dial timeout, so that a
	// server which cannot be reached is told from one that hangs.
	probeTimeout = 6 * time.Second
	// examineTimeout bounds all its questions about what a server is.
	examineTimeout = 10 * time.Second
	// factsEvery is how often a replica's version, labels, flags and features are read.
	factsEvery = 30 * time.Second
	// maxFactBytes bounds one such answer. Configurations of a megabyte exist.
	maxFactBytes = 8 << 20
)

// health is what the prober knows of a server. upstream.mu guards it.
type health struct {
	state       State
	err         string    // why it is not up
	since       time.Time // of the state
	last        time.Time // of the last probe
	unreachable int       // probes in a row that could not even connect
	forbidden   bool      // down since it, or what stands before it, keeps its readiness page to others
	starting    string    // what it does before it is ready, as it says itself; empty for one that is down otherwise
	skew        time.Duration
	skewTold    bool
	farSkew     time.Duration // the last one beyond maxSkew
	farSkewAt   time.Time     // when; zero: never

	facts time.Time // when they were read last
	selfFacts
}

// selfFacts are what the server says about itself.
type selfFacts struct {
	version    string
	external   map[string]string // nil unless externalOK
	externalOK bool
	note       string // why external labels are not known
	config     uint64 // hash of the configuration they were taken from
	elsewhere  bool   // it reads from other stores, too
	isThanos   bool   // it is a Thanos Query, and its type is another one
	engine     trust.Engine
	thanos     thanos.Flags // zero for a Prometheus
	hashmod    trust.Fact
	names      trust.Fact
	shardNames trust.Fact
	agrees     map[labels.Label]bool // whether all values it has of a group label's name are the group's; missing: not known
	told       map[string]time.Time  // when it told that of a label name
	stores     map[string]bool       // label names of ours that the server has stored series with, or not; missing: not known
}

var hashSeed = maphash.MakeSeed()

const (
	// manyReplicas is how many servers are probed every ProbeInterval, sound or not, and asked
	// every FactsEvery what they are and what they scrape. Of more, those that give no reason to be
	// looked at are asked so much more rarely that the questions a second stay the same, down to
	// one every slowest intervals.
	manyReplicas = 200
	slowest      = 4
)

// stretched is the time between two probes of a server that gives no reason to be looked at.
func (t *Topology) stretched() time.Duration { return t.stretch(t.opts.ProbeInterval) }

// targetsEvery is the time between two readings of what the servers scrape.
func (t *Topology) targetsEvery() time.Duration { return t.stretch(t.opts.FactsEvery) }

// factsEvery is the time between two readings of what the server says about itself, which changes
// when it restarts or reads its configuration. What its group promises of its series (hashmod,
// shard_by, names) may be broken by any new series, and is checked as often with many servers as
// with few.
func (r *Replica) factsEvery() time.Duration {
	if g := r.Shard.Group; g.Hashmod != nil || len(g.ShardBy) > 0 || g.Names != nil || g.homes != nil {
		return r.up.opts.FactsEvery
	}
	return r.Shard.topology.stretch(r.up.opts.FactsEvery)
}

func (t *Topology) stretch(d time.Duration) time.Duration {
	return d * time.Duration(min(max(t.size, manyReplicas), slowest*manyReplicas)) / manyReplicas
}

// quiet tells whether nothing speaks for looking at the server: it is up, no call is under way that
// may wait in vain, and the last one did not fail.
func (r *Replica) quiet(now time.Time) bool {
	u := r.up
	u.mu.Lock()
	up := u.health.state == Up && (u.health.externalOK || u.health.note != "")
	u.mu.Unlock()
	lagging, _ := u.lagging(now)
	return up && !lagging && !r.Thanos() && u.inflight.Load() == 0 && u.breaker.calm()
}

// probeLoop probes until ctx ends.
func (r *Replica) probeLoop(ctx context.Context) {
	var last time.Time
	for fresh := true; ; fresh = false {
		// The jitter of one interval may make the last but one come just before its time.
		if now := time.Now(); fresh || !r.quiet(now) || now.Sub(last) >= r.Shard.topology.stretched()-r.up.opts.ProbeInterval/2 {
			last = now
			r.probe(ctx, fresh)
		}
		r.up.probedOnce.Do(func() { close(r.up.firstProbe) })
		interval := r.up.opts.ProbeInterval
		interval += time.Duration((rand.Float64() - 0.5) * 0.2 * float64(interval))
		timer := time.NewTimer(interval)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// probe asks whether the server is ready and, now and then, what it is.
func (r *Replica) probe(ctx context.Context, fresh bool) {
	u := r.up
	err := r.ready(ctx)
	if ctx.Err() != nil {
		return
	}
	now := time.Now()
	if ours(err) { // the server was not asked; what is known of it stays
		u.opts.Logger.Warn("no file, port or buffer is left to ask a replica with; raise the limit of open files", slog.String("replica", r.Name()), slog.Any("err", err))
		return
	}
	if err != nil {
		r.markDown(err, now)
		if !fresh { // who asks first waits for the first probe, and nothing was told yet
			_ = r.tryDown(ctx, err) // an answer is noted, and nothing else follows
		}
		return
	}
	defer u.onceUp.Store(true)
	u.breaker.probed(now)
	u.mu.Lock()
	was := u.health.state
	if was != Up {
		r.isBack()
		u.health.since = now
	}
	u.health.state, u.health.err, u.health.unreachable, u.health.last = Up, "", 0, now
	u.health.starting = ""
	skew, told := u.health.skew, u.health.skewTold
	u.health.skewTold = skew.Abs() > maxSkew
	due := fresh || was == Down || now.Sub(u.health.facts) >= r.factsEvery() || !u.health.externalOK && u.health.note == ""
	u.mu.Unlock()
	if r.Shard.beats.Doubted(r.Index) { // by the start of its process it is known whether it has what it had
		select {
		case u.watched.soon <- struct{}{}:
		default:
		}
	}
	if was == Down {
		u.opts.Logger.Info("a replica is up again", slog.String("replica", r.Name()))
	}
	if skew.Abs() > maxSkew && !told {
		u.opts.Logger.Warn("a replica's clock differs from ours; queries about now may miss samples, so run NTP on both", slog.String("replica", r.Name()),
			slog.Duration("ahead", skew))
		r.Shard.topology.learned()
	}
	if r.Thanos() {
		if !due {
			_, _ = r.look(ctx, now, now) // what it finds is kept; an error is found again by whoever needs to know
		}
		r.askLeftOut(ctx)
	}
	if due {
		ctx, cancel := context.WithTimeoutCause(ctx, examineTimeout, context.DeadlineExceeded)
		defer cancel()
		r.examine(ctx)
	}
	if r.compared.Load() < u.returns.examined.Load() { // by a configuration before this one, perhaps
		r.Shard.topology.isBack()
	}
}

func (r *Replica) markDown(err error, now time.Time) {
	u := r.up
	var dial *dialError
	u.mu.Lock()
	was := u.health.state
	if was != Down {
		u.health.since = now
	}
	u.health.state, u.health.err, u.health.last, u.health.starting = Down, err.Error(), now, ""
	u.health.forbidden = statusOf(err) == http.StatusUnauthorized || statusOf(err) == http.StatusForbidden
	var starting *startingError
	if errors.As(err, &starting) {
		u.health.starting = starting.text
	}
	if errors.As(err, &dial) {
		u.health.unreachable++
	} else {
		u.health.unreachable = 0
	}
	var watchers []func()
	for p := range u.watchers {
		watchers = append(watchers, *p)
	}
	u.mu.Unlock()
	for _, f := range watchers {
		f()
	}
	r.noteAway(now)
	if qerr.From(err).Kind == qerr.Timeout { // whether it answers queries is to be known before somebody waits for it
		u.silent(false)
		r.Shard.suspect(r, 1)
	}
	if was != Down {
		u.opts.Logger.Warn("a replica is down", slog.String("replica", r.Name()), slog.Any("err", err))
	}
}

// ready asks the server's own readiness page, or an API call where there is none.
func (r *Replica) ready(ctx context.Context) error {
	unread := func([]byte) error { return nil }
	err := r.get(ctx, probeText, "/-/ready", nil, 4<<10, unread)
	if statusOf(err) == http.StatusNotFound {
		err = r.get(ctx, probeJSON, "/api/v1/status/buildinfo", nil, smallPage, unread)
	}
	return r.starting(ctx, err)
}

// examine reads what the server says about itself. What cannot be read now keeps its last value;
// what the server does not serve is not known.
func (r *Replica) examine(ctx context.Context) {
	u := r.up
	u.mu.Lock()
	f, before, count := u.health.selfFacts, u.health.facts, u.returns.count.Load()
	u.mu.Unlock()
	known := len(r.misconfigured())

	if !r.Thanos() {
		r.readConfig(ctx, &f)
	}
	// What cannot be read now is read the next time.
	_ = r.getData(ctx, "/api/v1/status/buildinfo", nil, func(raw json.RawMessage) error {
		var b struct {
			Version string `json:"version"`
		}
		if err := json.Unmarshal(raw, &b); err != nil {
			return err
		}
		f.version = cleaned(b.Version)
		return nil
	})
	r.readEngine(ctx, &f)
	if r.Thanos() {
		r.examineThanos(ctx, &f)
	}
	r.readOwnLabels(ctx, &f)
	r.checkPromises(ctx, &f, before)
	r.checkShardBy(ctx)
	u.mu.Lock()
	noted := u.health.note
	changed, clock := !u.health.engine.Same(&f.engine) || !reflect.DeepEqual(u.health.thanos, f.thanos), !u.health.farSkewAt.IsZero()
	u.health.selfFacts, u.health.facts = f, time.Now()
	if changed {
		learned.Add(1)
	}
	u.mu.Unlock()
	if r.isExamined(count) {
		defer r.Shard.topology.isBack()
	}
	if changed || clock { // else the servers were compared with what is known already
		defer r.Shard.topology.learned()
	}
	why := r.misconfigured()
	switch {
	case len(why) > 0 && known == 0:
		u.opts.Logger.Error("a replica is misconfigured and not asked", slog.String("replica", r.Name()),
			slog.String("do", strings.Join(why, "; ")))
	case len(why) == 0 && known > 0:
		u.opts.Logger.Info("a replica's labels are right now; it is asked again", slog.String("replica", r.Name()))
	case f.note != "" && f.note != noted:
		u.opts.Logger.Warn("a replica's external labels cannot be checked", slog.String("replica", r.Name()), slog.String("why", f.note))
	}
}

// readConfig takes from the server's configuration its external labels and its evaluation interval.
func (r *Replica) readConfig(ctx context.Context, f *selfFacts) {
	err := r.getData(ctx, "/api/v1/status/config", nil, func(raw json.RawMessage) error {
		h := maphash.Bytes(hashSeed, raw)
		if h == f.config && f.externalOK {
			return nil
		}
		g, err := globalSettings(raw)
		if err != nil {
			f.external, f.externalOK, f.note = nil, false, "status/config cannot be understood: "+err.Error()
			return nil
		}
		f.external, f.externalOK, f.note, f.config = g.ExternalLabels, true, "", h
		f.engine.EvaluationInterval = cleaned(g.EvaluationInterval)
		if g.Elsewhere && !f.elsewhere {
			r.up.opts.Logger.Warn("a server reads from other stores by a remote_read of its own, and says in no remote read of ours when one of them fails; "+
				"let these stores be a group of Spillway's in its place (docs/trust.md)", slog.String("replica", r.Name()))
		}
		f.elsewhere = g.Elsewhere
		return nil
	})
	switch {
	case err == nil:
	case clientStatus(err):
		f.external, f.externalOK, f.note = nil, false, fmt.Sprintf("status/config is not served (status %d), so external labels are not known", statusOf(err))
	case ctx.Err() == nil && !f.externalOK:
		f.note = "" // ask again at the next probe
	}
}

// readOwnLabels asks what the server stores under the names of its group's labels. What it does not
// tell any more is believed for as long as what it has told of its group's promises.
func (r *Replica) readOwnLabels(ctx context.Context, f *selfFacts) {
	now := time.Now()
	stores, agrees, told := map[string]bool{}, map[labels.Label]bool{}, map[string]time.Time{}
	for _, name := range r.Shard.Group.ownLabels() {
		own := labels.Label{Name: name, Value: r.Shard.Group.Labels.Get(name)}
		if has, others, ok := r.storesLabel(ctx, own); ok {
			stores[name], agrees[own], told[name] = has, !others, now
			continue
		}
		if now.Sub(f.told[name]) > r.believed() {
			continue
		}
		told[name] = f.told[name]
		if has, ok := f.stores[name]; ok {
			stores[name] = has
		}
		if agree, ok := f.agrees[own]; ok {
			agrees[own] = agree
		}
	}
	f.stores, f.agrees, f.told = stores, agrees, told
}

// storesLabel asks whether any series that the server stores has a label of the name, and whether
// any has it with another value.
func (r *Replica) storesLabel(ctx context.Context, own labels.Label) (has, others, ok bool) {
	req := &endpoint.Request{ID: endpoint.LabelValues, Label: own.Name, Limit: 2} // of two, one is another
	var values []string
	err := r.fetch(ctx, probeJSON, req.Path(), r.writer(req), smallPage, r.data(func(raw json.RawMessage) error {
		return json.Unmarshal(raw, &values)
	}))
	if qe := qerr.From(err); qe != nil && qe.Bound == "max_response_bytes" {
		return true, true, true
	}
	if err != nil {
		return false, false, false
	}
	return len(values) > 0, slices.ContainsFunc(values, func(v string) bool { return v != own.Value }), true
}

// getData is get for an answer in the API's envelope; use gets what stands under data.
func (r *Replica) getData(ctx context.Context, path string, q url.Values, use func(json.RawMessage) error) error {
	return r.get(ctx, probeJSON, path, q, maxFactBytes, r.data(use))
}

// data opens the API's envelope. One without data says nothing, and not that there is nothing.
func (r *Replica) data(use func(json.RawMessage) error) func(page []byte) error {
	return func(page []byte) error {
		var e struct {
			Status string          `json:"status"`
			Data   json.RawMessage `json:"data"`
		}
		if err := json.Unmarshal(page, &e); err != nil {
			return &senselessError{fmt.Errorf("the answer of %s makes no sense: %w", r.Name(), err)}
		}
		if e.Status != "success" {
			return &senselessError{fmt.Errorf("the answer of %s has the status %q", r.Name(), cleaned(e.Status))}
		}
		if len(e.Data) == 0 || string(e.Data) == "null" {
			return &senselessError{fmt.Errorf("the answer of %s has no data", r.Name())}
		}
		return use(e.Data)
	}
}

// get asks for a path below the server's url; see fetch.
func (r *Replica) get(
	ctx context.Context, id endpoint.ID, path string, q url.Values, maxBytes int64, use func(page []byte) error,
) error {
	return r.fetch(ctx, id, path, func(ctx context.Context, base *url.URL, _ time.Duration) (*http.Request, error) {
		u := base.JoinPath(path)
		u.RawQuery = q.Encode()
		return http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	}, maxBytes, use)
}

// fetch asks one of the prober's own questions and reads the answer whole, at most maxBytes of it,
// within probeTimeout, or GoneWithin where that is longer, for use, which may not keep it and whose
// errors it returns.
func (r *Replica) fetch(
	ctx context.Context, id endpoint.ID, what string, build builder, maxBytes int64, use func(page []byte) error,
) error {
	within := max(probeTimeout, r.up.opts.GoneWithin)
	ctx, cancel := context.WithTimeoutCause(ctx, within, context.DeadlineExceeded)
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	resp, err := r.attempt(ctx, id, build, try{CallOptions: CallOptions{MaxBytes: maxBytes}, probe: true})
	if err == nil {
		defer resp.Body.Close()
		d := &r.Shard.topology.crowd.desks
		if what == storesPath {
			d = &r.Shard.topology.crowd.stores
		}
		err = d.read(ctx, resp.Body, end, use)
	}
	if errors.Is(err, errSlowPage) {
		return qerr.Wrap(qerr.Timeout, err, "%s was too slow to answer %s: %v", r.Name(), what, errSlowPage)
	}
	if qe := qerr.From(err); qe != nil && qe.Kind == qerr.Timeout {
		return qerr.Wrap(qerr.Timeout, err, "%s did not answer %s within %s", r.Name(), what, within)
	}
	return err
}

// statusOf is the HTTP status that an error came from; 0 where there was none.
func statusOf(err error) int {
	var s *StatusError
	if errors.As(err, &s) {
		return s.Code
	}
	return 0
}

func clientStatus(err error) bool {
	s := statusOf(err)
	return s >= 400 && s < 500 && s != http.StatusTooManyRequests
}
