package shard

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spillwayproject/spillway/proxy/thanos"
)

// storesPath is where a Thanos Query lists its stores.
const storesPath = "/api/v1/stores"

// failingFor is for how long an error tells of a store that failed when it was asked by itself.
const failingFor = 10 * time.Second

// stores is what is known of the stores of a Thanos Query. upstream.mu guards all but asking and
// sounding.
type stores struct {
	thanos.Stores
	asking   chan struct{} // holds one element while the page is being read
	absent   bool          // the page is not served
	trouble  string        // why the last reading failed; empty where it did not
	failing  []string      // those that failed when each was asked by itself last, and are not left out
	failed   time.Time     // when that was
	deaf     time.Time     // when they could not be asked so, for want of processors
	sounding sounding
}

// unannounced says which store of a Thanos Query does not announce a label of the group; empty
// where all do, and where the server is misconfigured anyway.
func (r *Replica) unannounced() string {
	if len(r.misconfigured()) > 0 {
		return ""
	}
	r.up.mu.Lock()
	defer r.up.mu.Unlock()
	store, l, any := r.up.stores.Without(r.Shard.Group.Labels)
	if !any {
		return ""
	}
	return fmt.Sprintf("its store %s does not announce %s=%q, so it answers no queries, only metadata; add it to the external labels of that store, or take %s out of the group's labels", store, l.Name, l.Value, l.Name)
}

// look reads the page of stores unless somebody has begun to after since, and says which stores the
// server answers without; empty where none. An answer to a request of the time from asked on is
// whole if nothing was missing then: the page shows what the last of Thanos' health checks found,
// which are five seconds apart, and the prober looks as often.
func (r *Replica) look(ctx context.Context, since, asked time.Time) (missing string, err error) {
	u := r.up
	select {
	case u.stores.asking <- struct{}{}:
		defer func() { <-u.stores.asking }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	u.mu.Lock()
	if u.stores.Listed && !u.stores.Read.Before(since) {
		defer u.mu.Unlock()
		return u.stores.Since(asked), nil
	}
	u.mu.Unlock()
	started := time.Now()
	var list []thanos.Store
	err = r.getData(ctx, storesPath, nil, func(raw json.RawMessage) (err error) {
		list, err = thanos.ParseStores(raw)
		return err
	})
	u.mu.Lock()
	defer u.mu.Unlock()
	t := &u.stores
	if err != nil {
		if s := statusOf(err); s == http.StatusNotFound || s == http.StatusMethodNotAllowed {
			t.absent = true
		}
		if ctx.Err() == nil {
			t.trouble = "its list of stores cannot be read: " + err.Error()
		}
		return "", err
	}
	t.absent, t.trouble = false, ""
	if before := t.Page(list, r.terms(), started); before != t.Missing {
		r.tellStores(before, t.Missing)
	}
	return t.Since(asked), nil
}

// terms decide which stores stand for each other. The caller holds mu.
func (r *Replica) terms() thanos.Terms {
	return thanos.Terms{Flags: r.up.health.thanos, ReplicaLabels: r.Shard.Group.ReplicaLabels}
}

// MissingStores is what a Thanos Query answers without at the moment, or why that is not known;
// empty where nothing is missing, and for a Prometheus.
func (r *Replica) MissingStores() string {
	r.up.mu.Lock()
	defer r.up.mu.Unlock()
	return cmp.Or(r.up.stores.Missing, r.up.stores.trouble)
}

// ForgetStore has a store of Thanos Query no longer be missed, which somebody took out on purpose.
// It returns the servers that remembered it; the error is of the first that has it still.
func (t *Topology) ForgetStore(name string) (by []string, err error) {
	for r := range t.replicas() {
		if !r.Thanos() {
			continue
		}
		r.up.mu.Lock()
		before := r.up.stores.Missing
		known, wrong := r.up.stores.Forget(name, r.terms())
		if now := r.up.stores.Missing; now != before {
			r.tellStores(before, now)
		}
		r.up.mu.Unlock()
		switch {
		case wrong != nil:
			err = cmp.Or(err, fmt.Errorf("%s: %w", r.Name(), wrong))
		case known:
			by = append(by, r.Name())
		}
	}
	return by, err
}

// storesNote says which stores are known to be away, or failed a moment ago, for an error that does
// not tell which one it waits for; where this server is not known to have any such, those of the
// shard's others, which have the same. Empty where none is known, and for a Prometheus.
func (r *Replica) storesNote() string {
	note := r.ownStoresNote()
	for _, o := range r.Shard.Replicas {
		if note == "" {
			note = o.ownStoresNote()
		}
	}
	if note != "" {
		return note
	}
	r.up.mu.Lock()
	defer r.up.mu.Unlock()
	if time.Since(r.up.stores.deaf) < failingFor {
		return "which of its stores that is, Spillway could not find out: it got too little of its processors to ask each by itself"
	}
	return ""
}

func (r *Replica) ownStoresNote() string {
	away := r.storesAway()
	r.up.mu.Lock()
	defer r.up.mu.Unlock()
	t := &r.up.stores
	if time.Since(t.failed) < failingFor {
		away = slices.Concat(away, t.failing)
	}
	var parts []string
	if t.Missing != "" {
		parts = append(parts, "it lacks "+t.Missing)
	}
	said := thanos.SpokenOf(t.Missing, away)
	away = slices.DeleteFunc(away, func(name string) bool { return said[name] != "" })
	slices.Sort(away)
	if away = slices.Compact(away); len(away) > 0 {
		parts = append(parts, "a moment ago these failed, or were away: "+strings.Join(away[:min(len(away), 5)], ", "))
	}
	return strings.Join(parts, "; ")
}

// tellStores logs that stores went missing or came back.
func (r *Replica) tellStores(was, is string) {
	switch {
	case is == "":
		r.up.opts.Logger.Info("a Thanos Query has all of its stores again", "replica", r.Name())
	case was == "":
		r.up.opts.Logger.Warn("a Thanos Query answers without some of its stores; its answers are refused, or flagged where a partial one is asked for",
			"replica", r.Name(), "missing", is,
			"advice", "of a store that was taken out on purpose: DELETE /api/spillway/v1/stores/ADDRESS on the admin listener")
	}
}

// examineThanos reads what a Thanos Query says about itself beyond what every server does.
func (r *Replica) examineThanos(ctx context.Context, f *selfFacts) {
	// It has no configuration to read; its stores' labels stand for external labels.
	f.external, f.externalOK, f.note = nil, true, ""
	_, _ = r.look(ctx, time.Now(), time.Now()) // what it finds is kept, failures too
}
