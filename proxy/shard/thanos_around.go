package shard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/thanos"
)

// A Thanos Query learns by its health check that a store is gone, five seconds to a minute later.
// Until then it fails every request that would read the store, or hangs with it, also where a copy
// of the store is well; under --endpoint-strict it does so for ever. But it can be told which
// stores to ask (storeMatch[]). So a store that fails, or hangs, and has a copy that is well is
// left out of what is asked, and asked by itself until it answers. Nothing else is: what no copy
// has is missed, as it is where Thanos leaves a store out by itself.

const (
	// storesPatience is how long nothing may come on a call to a Thanos Query until its stores are
	// asked one by one which of them hangs.
	storesPatience = silentAfter
	// storeTimeout is how long a store may take for a question that costs nothing, aloneTimeout
	// where it has no copy that is well: requests fail then, so that one which is slow must not be
	// taken for one that hangs.
	storeTimeout, aloneTimeout = lagTimeout, muteTimeout
	// storesAtOnce is how many of them are asked at the same time.
	storesAtOnce = 16
	// aroundTries is how often a request is asked again. The first time without the stores that the
	// error names, then without any that does not answer.
	aroundTries = 3
)

// storesError is the private cause of a failure of a Thanos Query's stores; text is what it said,
// in full. It is no StatusError: a 422 would not be tried on another replica.
type storesError struct {
	code int
	text string
}

func (e *storesError) Error() string {
	return fmt.Sprintf("status %d: %s", e.code, strconv.QuoteToASCII(cleaned(e.text)))
}

// errStoreHangs is the cause with which calls are ended that wait for a store that hangs, and can
// go around it.
var errStoreHangs = errors.New("a store hangs")

// leftOut are the stores that the server is told not to ask, sorted.
func (r *Replica) leftOut() []string {
	r.up.mu.Lock()
	defer r.up.mu.Unlock()
	return r.up.stores.LeftOut()
}

// careful is attempt for a request of a client's: its text may be what breaks the server, and a
// store of a Thanos Query may be what fails.
func (r *Replica) careful(ctx context.Context, req *endpoint.Request, build builder, t try) (*Response, error) {
	if r.Thanos() && thanos.Warns(req.ID) {
		return r.patiently(ctx, req, build, t)
	}
	if !r.Thanos() || !thanos.Told(req.ID) {
		return r.wary(ctx, req, build, t)
	}
	if err := r.errLabel(req); err != nil {
		if t.trial {
			r.up.breaker.neutral()
		}
		return nil, err
	}
	build = r.named(req, build)
	if began := t.began; began != nil { // once, however often it is tried
		var once sync.Once
		t.began = func(at time.Time) { once.Do(func() { began(at) }) }
	}
	stop := r.watchStores(ctx)
	defer stop()
	for again := 0; ; again++ {
		t.without = r.leftOut()
		resp, err := r.unlessItHangs(ctx, req, build, t)
		if err == nil || ctx.Err() != nil || again == aroundTries {
			return resp, err
		}
		var e *storesError
		switch {
		case errors.Is(err, errStoreHangs), errors.Is(err, errUnseen):
		case !errors.As(err, &e):
			return nil, err
		case !r.leaveOut(thanos.SpokenOf(e.text, r.listedStores())) && slices.Equal(r.leftOut(), t.without) || again > 0:
			r.sound(ctx, storeTimeout)
			if slices.Equal(r.leftOut(), t.without) {
				return nil, err
			}
		}
		t.trial = false
		r.count(r.up.metrics.retries)
	}
}

// unlessItHangs asks, and ends that with errStoreHangs if a store hangs that can be left out. If
// one hangs that cannot be, it fails sooner than at its deadline, and says which.
func (r *Replica) unlessItHangs(ctx context.Context, req *endpoint.Request, build builder, t try) (*Response, error) {
	own, cancel := context.WithCancelCause(ctx)
	var settled, answered atomic.Bool
	ended := t.ended
	t.ended = func() {
		cancel(errCallEnded)
		if answered.Load() && ended != nil { // one that fails may be tried again
			ended()
		}
	}
	looked := make(chan struct{})
	looking, enough := context.WithCancel(ctx)
	asked := r.askedStores()
	timer := time.AfterFunc(storesPatience, func() {
		defer close(looked)
		if why := r.whoHangs(looking, asked, t); why != nil && settled.CompareAndSwap(false, true) {
			cancel(why)
		}
	})
	resp, err := r.wary(own, req, build, t)
	enough()
	if !timer.Stop() {
		<-looked
	}
	if settled.CompareAndSwap(false, true) || ctx.Err() != nil {
		if err != nil {
			cancel(errCallEnded)
		}
		answered.Store(err == nil)
		return resp, err
	}
	if err == nil {
		_ = resp.Body.Close()
	}
	return nil, context.Cause(own)
}

// whoHangs asks the stores one by one for as long as ctx goes on; it returns errStoreHangs where
// others are left out now than the try leaves out, or where Thanos has noticed of one of those
// asked that it hangs, and an error for the client where one hangs that has no copy, or where
// Thanos has noticed that nobody has what one of them had: what it asked before goes on to wait for
// it.
func (r *Replica) whoHangs(ctx context.Context, asked []string, t try) error {
	without := t.without
	for pause := storesPatience; ; pause *= 2 {
		silent := r.sound(ctx, storeTimeout)
		if len(silent) > 0 && slices.Equal(r.leftOut(), without) {
			silent = r.sound(ctx, aloneTimeout)
		}
		hung, missing := r.noticed(asked, without)
		switch {
		case ctx.Err() != nil:
			return nil
		case !slices.Equal(r.leftOut(), without) || hung:
			return errStoreHangs
		case missing != "" && !t.Partial:
			return r.partial(nil, r.answersWithout(missing))
		case len(silent) > 0:
			e := qerr.New(qerr.ShardFailed, "%s waits for its stores, of which %s did not answer a small question within %s, and no copy is known that does", r.Name(), strings.Join(silent, ", "), aloneTimeout)
			e.Advice = "look at that store, and at its Prometheus; with a second replica that scrapes the same it would be left out"
			e.Shards = []string{r.Name()}
			return e
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

// noticed is thanos.Stores.Noticed.
func (r *Replica) noticed(asked, without []string) (hung bool, missing string) {
	r.up.mu.Lock()
	defer r.up.mu.Unlock()
	return r.up.stores.Noticed(asked, without)
}

// sounding is one round of asking all stores. Who comes within soundedFor of its end takes what it
// found: many requests fail at once where one does.
type sounding struct {
	busy     chan struct{} // holds one element while it goes on, and guards the rest
	ended    time.Time
	patience time.Duration
	silent   []string
}

const soundedFor = 2 * time.Second

// sound asks those that are left out whether they answer again, for one of them may be the only one
// by now, and then the others; see askStores.
func (r *Replica) sound(ctx context.Context, patience time.Duration) (silent []string) {
	s := &r.up.stores.sounding
	select {
	case s.busy <- struct{}{}:
		defer func() { <-s.busy }()
	case <-ctx.Done():
		return nil
	}
	if time.Since(s.ended) < soundedFor && s.patience >= patience {
		return s.silent
	}
	r.askLeftOut(ctx)
	silent = r.askStores(ctx, patience)
	if ctx.Err() == nil {
		s.ended, s.patience, s.silent = time.Now(), patience, silent
	}
	return silent
}

// listedStores are those that the server would ask: listed, and healthy there.
func (r *Replica) listedStores() (names []string) {
	r.up.mu.Lock()
	defer r.up.mu.Unlock()
	return r.up.stores.Askable()
}

// askStores asks each store by itself, leaves out those that fail and have a copy that does not,
// and returns the others that did not answer in time. Nobody is called silent by somebody who does
// not get to listen, nor where the server does not answer what needs no store.
func (r *Replica) askStores(ctx context.Context, patience time.Duration) (silent []string) {
	var mu sync.Mutex
	why := map[string]string{}
	var empty []string
	late := ownDelay(func() {
		if r.answersQuery(ctx, patience) != nil {
			return
		}
		var g errgroup.Group
		g.SetLimit(storesAtOnce)
		for _, name := range r.listedStores() {
			g.Go(func() error {
				switch err := r.askStore(ctx, name, patience); {
				case errors.Is(err, errNothing):
					mu.Lock()
					defer mu.Unlock()
					empty = append(empty, name)
				case err != nil:
					mu.Lock()
					defer mu.Unlock()
					why[name] = qerr.From(err).Message
					if qerr.From(err).Kind == qerr.Timeout {
						silent = append(silent, name)
					}
				}
				return nil
			})
		}
		_ = g.Wait() // they return none
	})
	if ctx.Err() != nil {
		return nil
	}
	if late >= starved {
		r.up.mu.Lock()
		defer r.up.mu.Unlock()
		r.up.stores.deaf = time.Now()
		return nil
	}
	r.leaveOut(why)
	r.up.mu.Lock()
	defer r.up.mu.Unlock()
	t := &r.up.stores
	out := t.LeftOut()
	leftOut := func(name string) bool { return slices.Contains(out, name) }
	silent = slices.DeleteFunc(silent, leftOut)
	slices.Sort(silent)
	t.failing, t.failed = slices.DeleteFunc(append(slices.Sorted(maps.Keys(why)), empty...), leftOut), time.Now()
	return silent
}

// errNothing is the private cause of an answer of a sidecar that was asked by itself and has
// nothing of the metric up, which other stores need not have. So answers a Thanos Query that does
// not ask the store at the moment, whatever its page says: while it is not ready it comes and goes.
var errNothing = errors.New("it has nothing of the metric up")

// askStore asks one store by itself something that costs little and passes its Prometheus, though
// not the server's queue of queries, which may be full of those that hang.
func (r *Replica) askStore(ctx context.Context, name string, patience time.Duration) error {
	req := &endpoint.Request{
		ID: endpoint.LabelValues, Label: "__name__", Match: []string{"up"}, Limit: 1,
		Start: endpoint.At(time.Now().Add(-thanos.DefaultLookback).UnixMilli()), End: endpoint.At(time.Now().UnixMilli()),
	}
	build := edited(r.thanosBuilder(req.ID, writer(req), thanos.Instructions{}), parameters(func(q url.Values) { thanos.Only(name, q) }))
	ctx, cancel := context.WithTimeoutCause(ctx, patience, context.DeadlineExceeded)
	defer cancel()
	resp, err := r.attempt(ctx, probeJSON, build, try{CallOptions: CallOptions{MaxBytes: smallPage}, probe: true})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	var answer struct {
		Data []string `json:"data"`
	}
	if err := json.Unmarshal(raw, &answer); err != nil || len(answer.Data) == 0 && r.sidecars([]string{name}) {
		return errNothing
	}
	return nil
}

// leaveOut has those of the stores left out from now on of which a copy is well, and tells whether
// there was one that was not left out before. The names come with why each fails.
func (r *Replica) leaveOut(failing map[string]string) (news bool) {
	u := r.up
	u.mu.Lock()
	defer u.mu.Unlock()
	out := u.stores.LeaveOut(slices.Collect(maps.Keys(failing)), r.terms())
	for _, name := range out {
		u.opts.Logger.Warn("a store of a Thanos Query fails and is left out of what is asked, since a copy of it is well",
			slog.String("replica", r.Name()), slog.String("store", name), slog.String("err", cleaned(failing[name])))
	}
	return len(out) > 0
}

// missingBeside says what an answer lacks to which those stores were not asked, beside what the
// server says itself; empty where copies of them were.
func (r *Replica) missingBeside(without []string) string {
	if len(without) == 0 {
		return ""
	}
	r.up.mu.Lock()
	defer r.up.mu.Unlock()
	return r.up.stores.Lacking(without, r.terms())
}

// askLeftOut asks those that are left out, and that Thanos takes for healthy, whether they answer
// again.
func (r *Replica) askLeftOut(ctx context.Context) {
	u := r.up
	u.mu.Lock()
	again := u.stores.Doubted()
	u.mu.Unlock()
	var g errgroup.Group
	g.SetLimit(storesAtOnce)
	for _, name := range again {
		g.Go(func() error {
			if r.askStore(ctx, name, storeTimeout) != nil {
				return nil
			}
			u.mu.Lock()
			since := u.stores.TakeBack(name)
			u.mu.Unlock()
			u.opts.Logger.Info("a store of a Thanos Query answers and is asked again", slog.String("replica", r.Name()), slog.String("store", name),
				slog.Duration("after", time.Since(since).Round(time.Second)))
			return nil
		})
	}
	_ = g.Wait() // they return none
}

// storesAway are the stores that are left out of answers since a copy of each is well, sorted: by
// Spillway, and by Thanos once it has noticed.
func (r *Replica) storesAway() []string {
	r.up.mu.Lock()
	defer r.up.mu.Unlock()
	return r.up.stores.Away(r.terms())
}

// leftOutNote says which stores are left out; empty where none is.
func (r *Replica) leftOutNote() string {
	out := r.leftOut()
	if len(out) == 0 {
		return ""
	}
	r.up.mu.Lock()
	sets := r.up.stores.SaidOf()
	r.up.mu.Unlock()
	for i, name := range out {
		out[i] = name + sets[name]
	}
	return "stores that fail and of which a copy is well are left out: " + strings.Join(out[:min(len(out), 5)], ", ")
}

var descStoresLeftOut = prometheus.NewDesc("spillway_shard_stores_left_out",
	"Stores of a Thanos Query that fail or hang, and that Spillway has it leave out, or that it leaves out by itself, since a copy of each is well; 0 for a Prometheus.", replicaLabels, nil)
