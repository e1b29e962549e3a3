package plugin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/backend"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
	"github.com/spillwayproject/spillway/proxy/identity"
)

const (
	// maxRequests is how many requests of one instance the proxy has at a time: as many as a large
	// dashboard sends; more would wait there.
	maxRequests = 32
	// alertRequests are those of them that only the evaluation of alerts has.
	alertRequests = 8
	// othersRequests are those that alerts leave to users, who would have none beside many rules.
	othersRequests = 8
	// userRequests is the most that one user has, however few others ask.
	userRequests = 16
	// maxQueries is how many queries one request may have; a panel's have few letters.
	maxQueries = 100
	// maxPoints is how many points the answers to one request may have: all are held until the last
	// of them is there.
	maxPoints = 5_000_000
	// patience is how many times the timeout of one request to the proxy a query takes in all.
	patience = 4
)

// caller is who asks.
type caller struct {
	user  string // empty: nobody is signed in
	alert bool   // an alert is evaluated
}

type callerKey struct{}

// asked returns the context of what is asked with headers h.
func asked(ctx context.Context, plugin backend.PluginContext, h http.Header) context.Context {
	who := caller{alert: h.Get(identity.HeaderFromAlert) != ""}
	if plugin.User != nil {
		who.user = plugin.User.Login
	}
	if who.alert { // nobody sees what an answer lacks
		ctx = prom.WithWhole(ctx)
	}
	return context.WithValue(prom.WithHeaders(ctx, h), callerKey{}, who)
}

// overdue is why a query ended that took too long in all.
type overdue struct{ after time.Duration }

func (o overdue) Error() string { return fmt.Sprintf("it took more than %s in all", o.after) }

// Unwrap makes it what a deadline is.
func (o overdue) Unwrap() error { return context.DeadlineExceeded }

// inTime returns a context that ends when a query has taken too long in all, however many requests
// it makes.
func (d *Datasource) inTime(ctx context.Context) (context.Context, context.CancelFunc) {
	if d.timeout <= 0 {
		return context.WithCancel(ctx)
	}
	after := patience * d.timeout
	return context.WithTimeoutCause(ctx, after, overdue{after})
}

// gate lets requests through to asker: at most maxRequests at a time, of which alertRequests are
// kept for alerts and othersRequests for all others, and at most userRequests of one user. Of those
// who wait, alerts are next, then whoever has the least under way, then who came first.
type gate struct {
	asker prom.Asker

	mu      sync.Mutex
	all     int            // under way
	users   int            // those of them that evaluate no alert
	of      map[string]int // the same by user
	waiting []*waiter      // in the order in which they came
}

type waiter struct {
	caller
	admitted chan struct{}
}

func newGate(asker prom.Asker) *gate { return &gate{asker: asker, of: map[string]int{}} }

// Instant implements prom.Asker.
func (g *gate) Instant(ctx context.Context, query string, at time.Time) (a prom.Answer, err error) {
	err = g.pass(ctx, func() error { a, err = g.asker.Instant(ctx, query, at); return err })
	return a, err
}

// Range implements prom.Asker.
func (g *gate) Range(ctx context.Context, query string, from, until time.Time, step time.Duration) (a prom.Answer, err error) {
	err = g.pass(ctx, func() error { a, err = g.asker.Range(ctx, query, from, until, step); return err })
	return a, err
}

func (g *gate) pass(ctx context.Context, ask func() error) error {
	who, _ := ctx.Value(callerKey{}).(caller)
	if err := g.enter(ctx, who); err != nil {
		return err
	}
	defer g.leave(who)
	return ask()
}

func (g *gate) enter(ctx context.Context, who caller) error {
	w := &waiter{who, make(chan struct{})}
	g.mu.Lock()
	g.waiting = append(g.waiting, w)
	g.admit()
	g.mu.Unlock()
	select {
	case <-w.admitted:
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	i := slices.Index(g.waiting, w)
	if i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
	}
	all, own := g.all, g.of[who.user]
	g.mu.Unlock()
	if i < 0 { // admitted just now
		g.leave(who)
	}
	if err := context.Cause(ctx); !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the query was given up: %w", err)
	}
	f := &prom.Failure{Status: http.StatusGatewayTimeout, Message: fmt.Sprintf(
		"%d requests of this datasource ran all the time, and there was no room for one more; try again", all)}
	if !who.alert && own >= userRequests {
		f.Message = fmt.Sprintf("%d requests of yours ran all the time, which is the most of one user; try again when they are done", own)
	}
	return f
}

func (g *gate) leave(who caller) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.all--
	if !who.alert {
		g.users--
		if g.of[who.user]--; g.of[who.user] == 0 {
			delete(g.of, who.user)
		}
	}
	g.admit()
}

// admit lets in all for whom there is room.
func (g *gate) admit() {
	for g.all < maxRequests {
		next := -1
		for i, w := range g.waiting {
			if w.alert {
				if g.all-g.users >= maxRequests-othersRequests {
					continue
				}
				next = i
				break
			}
			room := g.users < maxRequests-alertRequests && g.of[w.user] < userRequests
			if room && (next < 0 || g.of[w.user] < g.of[g.waiting[next].user]) {
				next = i
			}
		}
		if next < 0 {
			return
		}
		w := g.waiting[next]
		g.waiting = slices.Delete(g.waiting, next, next+1)
		g.all++
		if !w.alert {
			g.users++
			g.of[w.user]++
		}
		close(w.admitted)
	}
}
