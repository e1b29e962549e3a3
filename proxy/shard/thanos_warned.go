package shard

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/thanos"
)

// Rules, targets, metadata of metrics and exemplars a Thanos Query asks of all stores that it calls
// healthy: there is no storeMatch[], nor can it be told how to take a failure. As it is started by
// default it answers with what the others have, and with one warning for each store that fails.
// Where those are stores that Spillway finds failing too, each with a copy that is well, the answer
// is the one that Thanos gives a few seconds later, when it has noticed, and without the warnings
// it is taken for that. A warning does not name its store, but the connection, so that they can be
// counted.

// errWarned is the private cause of a refusal of an answer with warnings.
var errWarned = errors.New("it warns of more than stores that are known to fail and have a copy that is well")

// warnedPause is after what time such an answer is asked for once more: so late that the stores are
// asked anew.
const warnedPause = soundedFor

// patiently is wary where thanos.Warns holds: a store can fail between the answer and the look at
// who does.
func (r *Replica) patiently(ctx context.Context, req *endpoint.Request, build builder, t try) (*Response, error) {
	stop := r.watchStores(ctx)
	defer stop()
	resp, err := r.wary(ctx, req, build, t)
	if errors.Is(err, errUnseen) && ctx.Err() == nil {
		t.trial = false
		r.count(r.up.metrics.retries)
		resp, err = r.wary(ctx, req, build, t)
	}
	if !errors.Is(err, errWarned) || ctx.Err() != nil {
		return resp, err
	}
	timer := time.NewTimer(warnedPause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return resp, err
	}
	t.trial = false
	r.count(r.up.metrics.retries)
	return r.wary(ctx, req, build, t)
}

// askedStores are those that the server asks, by its page: which of them Spillway leaves out it
// does not know here.
func (r *Replica) askedStores() (names []string) {
	r.up.mu.Lock()
	defer r.up.mu.Unlock()
	return r.up.stores.Asked()
}

// madeGoodWarned tells whether all that the answer warns of is stores whose copies are in it; it
// takes the warnings out then. before are the stores that the server asked by the last page before
// the request. The body can be read again in any case.
func (c *call) madeGoodWarned(b *body, before []string, hold func(bytes int64) error) (bool, error) {
	raw, whole, err := early(b, hold)
	if err != nil {
		return false, err
	}
	b.again = raw
	if !whole {
		return false, nil
	}
	after := c.r.askedStores()
	c.r.sound(c.parent, storeTimeout) // the call itself ended with its body
	if c.parent.Err() != nil {
		return false, nil
	}
	var all struct {
		Status   string          `json:"status"`
		Data     json.RawMessage `json:"data"`
		Warnings []string        `json:"warnings,omitempty"`
	}
	if json.Unmarshal(raw, &all) != nil {
		return false, nil
	}
	failing, known := thanos.Warned(all.Warnings)
	if !known {
		return false, nil
	}
	away := c.r.leftOut()
	var both []string
	for _, name := range away {
		if slices.Contains(before, name) && slices.Contains(after, name) {
			both = append(both, name)
		}
	}
	if failing == 0 || failing != len(both) || c.r.missingBeside(away) != "" || !c.r.sidecars(both) {
		return false, nil
	}
	all.Warnings = nil
	b.again, err = json.Marshal(all)
	return err == nil, nil
}

// early reads a body before its reader asks for it, as far as there is room: whole tells whether
// that is all of it. The error is the body's, or hold's. What it comes to is held twice, for what
// is made of it.
func early(b io.Reader, hold func(bytes int64) error) (page []byte, whole bool, err error) {
	page = make([]byte, 0, smallPage)
	for {
		n, err := b.Read(page[len(page):cap(page)])
		page = page[:len(page)+n]
		switch {
		case err == io.EOF:
			return page, true, nil
		case err != nil:
			return nil, false, err
		case len(page) < cap(page):
			continue
		}
		size := 2 * cap(page)
		if size > middlePage {
			if hold == nil {
				return page, false, nil
			}
			if err := hold(int64(2 * size)); err != nil {
				return nil, false, err // it is this process that has no room, and no store that fails
			}
		}
		page = append(make([]byte, 0, size), page...)
	}
}

// sidecars tells whether all of these are.
func (r *Replica) sidecars(names []string) bool {
	r.up.mu.Lock()
	defer r.up.mu.Unlock()
	return r.up.stores.Sidecars(names)
}
