package shard

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

const (
	// storesRemembered is for how long a store that is no longer listed is missed. Thanos takes a
	// store that cannot be reached off its list after five minutes and answers without it from then
	// on.
	storesRemembered = 24 * time.Hour
	// failingFor is for how long an error tells of a store that failed when it was asked by itself.
	failingFor = 10 * time.Second
	// maxStores bounds what is remembered of one Thanos Query.
	maxStores = 10_000
)

// stores is what is known of the stores of a Thanos Query. upstream.mu guards all but asking and
// sounding.
type stores struct {
	asking   chan struct{} // holds one element while the page is being read
	started  time.Time     // when the last reading began
	listed   bool          // it has been read
	absent   bool          // it is not served
	list     []storeInfo
	trouble  string    // why the last reading failed; empty where it did not
	missing  string    // what the last reading found missing
	lacked   string    // what an answer of this moment lacks: missing, or what those that are left out would have had
	was      string    // the last one of these that was not empty
	whole    time.Time // when the first page without was there
	followed time.Time // since when no health check of a store that was well has gone unseen
	seen     map[string]seenStore
	copies   map[string]bool // pairs of label sets, by whether they scrape the same targets

	out      map[string]time.Time // those that it is told not to ask, by since when
	failing  []string             // those that failed when each was asked by itself last, and are not left out
	failed   time.Time            // when that was
	deaf     time.Time            // when they could not be asked so, for want of processors
	sounding sounding
}

// storeInfo is one line of the page.
type storeInfo struct {
	name      string
	component string
	labelSets []map[string]string
	err       string
	checked   time.Time // when Thanos found it well last, by its own clock; zero where it does not say
}

// seenStore is a store that was well once.
type seenStore struct {
	storeInfo
	first, last time.Time // when it was well
}

// lacks is a store that has series without one of the labels, and that label. The caller holds mu.
func (s *stores) lacks(want labels.Labels) (store string, label labels.Label, any bool) {
	for _, info := range s.list {
		for _, set := range info.labelSets {
			want.Range(func(l labels.Label) {
				if set[l.Name] != l.Value && !any {
					store, label, any = info.name, l, true
				}
			})
		}
	}
	return store, label, any
}

// unannounced says which store of a Thanos Query does not announce a label of the group; empty
// where all do, and where the server is misconfigured anyway.
func (r *Replica) unannounced() string {
	if len(r.misconfigured()) > 0 {
		return ""
	}
	r.up.mu.Lock()
	defer r.up.mu.Unlock()
	store, l, any := r.up.thanos.lacks(r.Shard.Group.Labels)
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
	case u.thanos.asking <- struct{}{}:
		defer func() { <-u.thanos.asking }()
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
	u.mu.Lock()
	fresh := u.thanos.listed && !u.thanos.started.Before(since)
	if fresh {
		defer u.mu.Unlock()
		return u.thanos.since(asked), nil
	}
	u.mu.Unlock()
	started := time.Now()
	raw, err := r.getData(ctx, "/api/v1/stores", nil)
	var list []storeInfo
	if err == nil {
		list, err = parseStores(raw)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	t := &u.thanos
	if err != nil {
		if s := statusOf(err); s == http.StatusNotFound || s == http.StatusMethodNotAllowed {
			t.absent = true
		}
		if ctx.Err() == nil {
			t.trouble = "its list of stores cannot be read: " + err.Error()
		}
		return "", err
	}
	was, lacked := t.missing, t.lacked
	if !t.listed || unseen(t.list, list, u.health.thanos.checks) {
		t.followed = started
	}
	t.started, t.listed, t.absent, t.trouble, t.list = started, true, false, "", list
	t.missing = t.judge(list, u.health.thanos, r.replicaNames(), started)
	if t.lacked = t.missing; t.lacked == "" && len(t.out) > 0 {
		t.lacked = r.lackingBeside(slices.Collect(maps.Keys(t.out)))
	}
	switch {
	case t.lacked != "":
		t.was = t.lacked
	case lacked != "":
		t.whole = time.Now()
	}
	if was != t.missing {
		r.tellStores(was, t.missing)
	}
	return t.since(asked), nil
}

// since is what was missing at any time from asked on. The page that is whole again tells nothing
// of an answer that was asked for before it was there: Thanos may have chosen its stores before.
// The caller holds mu.
func (s *stores) since(asked time.Time) string {
	if s.missing == "" && s.lacked == "" && asked.Before(s.whole) {
		return s.was + ", until a moment ago"
	}
	return s.missing
}

// replicaNames are the labels that tell copies apart: the group's and the flag's. The caller holds
// mu.
func (r *Replica) replicaNames() []string {
	return slices.Concat(r.Shard.Group.ReplicaLabels, r.up.health.thanos.replicaLabels)
}

// judge says which stores are missing, and remembers those that are well. A store is made good by
// another of its kind that is known to be its copy, and one that has left the list also by one with
// the very same labels that has come since. The caller holds mu.
func (s *stores) judge(list []storeInfo, f thanosFlags, replica []string, now time.Time) string {
	if s.seen == nil {
		s.seen = map[string]seenStore{}
	}
	for _, i := range list {
		if i.err != "" {
			continue
		}
		old, has := s.seen[i.name]
		if !has {
			if len(s.seen) >= maxStores {
				continue
			}
			old.first = now
		}
		s.seen[i.name] = seenStore{storeInfo: i, first: old.first, last: now}
	}
	return s.lacking(list, f, replica, now)
}

// lacking is judge without remembering who is well: it says what is missing where the stores are as
// list has them. The caller holds mu.
func (s *stores) lacking(list []storeInfo, f thanosFlags, replica []string, now time.Time) string {
	listed := make(map[string]bool, len(list))
	for _, i := range list {
		listed[i.name] = true
	}
	var missing []string
	note := func(i storeInfo, why string) {
		missing = append(missing, fmt.Sprintf("%s %s (%s)", i.component, i.name, why))
	}
	for _, i := range list {
		if i.err == "" || slices.Contains(f.strict, i.name) || s.madeGood(list, i, replica, time.Time{}) {
			continue
		}
		note(i, i.err+s.whetherCopied(list, i, replica))
	}
	for _, name := range slices.Sorted(maps.Keys(s.seen)) {
		old := s.seen[name]
		switch {
		case listed[name]:
		case s.madeGood(list, old.storeInfo, replica, old.last):
			if !slices.Contains(f.static, name) { // one that is configured is missed again once its copy goes
				delete(s.seen, name)
			}
		case now.Sub(old.last) > storesRemembered:
			delete(s.seen, name)
		default:
			note(old.storeInfo, "no longer listed"+s.whetherCopied(list, old.storeInfo, replica))
		}
	}
	for _, name := range f.static {
		if _, once := s.seen[name]; !once && !listed[name] {
			note(storeInfo{component: "endpoint", name: name}, "never seen")
		}
	}
	if more := len(missing) - 5; more > 0 {
		missing = append(missing[:5], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(missing, ", ")
}

// madeGood tells whether each label set of the store is served by a healthy one of its kind that is
// a copy of it; one with the very same labels is where it came after then.
func (s *stores) madeGood(list []storeInfo, gone storeInfo, replica []string, then time.Time) bool {
	if len(gone.labelSets) == 0 {
		return !then.IsZero() // one that had no series when it was well; of one that never was nobody knows
	}
	for _, set := range gone.labelSets {
		if !slices.ContainsFunc(list, func(i storeInfo) bool {
			if i.err != "" || i.component != gone.component || i.name == gone.name {
				return false
			}
			later := !then.IsZero() && s.seen[i.name].first.After(then)
			return slices.ContainsFunc(i.labelSets, func(other map[string]string) bool {
				if maps.Equal(set, other) {
					return later
				}
				return sameSlice(set, other, replica) && s.copied(set, other)
			})
		}) {
			return false
		}
	}
	return true
}

// whetherCopied tells of a store that is missing whether a healthy one may be its copy and that is
// not known.
func (s *stores) whetherCopied(list []storeInfo, gone storeInfo, replica []string) string {
	for _, set := range gone.labelSets {
		for _, i := range list {
			for _, other := range i.labelSets {
				if _, known := s.copies[pairKey(set, other)]; i.err == "" && i.component == gone.component && !known &&
					!maps.Equal(set, other) && sameSlice(set, other, replica) {
					return "; whether " + i.name + " is a copy of it is not known, since both were not seen to scrape the same"
				}
			}
		}
	}
	return ""
}

// sameSlice tells whether two label sets are equal but for the labels that tell copies apart.
func sameSlice(a, b map[string]string, replica []string) bool {
	return maps.Equal(stripped(a, replica), stripped(b, replica))
}

// stripped is a label set without the labels that tell copies apart.
func stripped(set map[string]string, replica []string) map[string]string {
	out := maps.Clone(set)
	for _, name := range replica {
		delete(out, name)
	}
	return out
}

// parseStores reads the data of the page: stores by component.
func parseStores(raw []byte) ([]storeInfo, error) {
	var data map[string][]struct {
		Name      string              `json:"name"`
		LastError *string             `json:"lastError"`
		LastCheck any                 `json:"lastCheck"`
		LabelSets []map[string]string `json:"labelSets"`
	}
	if err := json.Unmarshal(raw, &data); err != nil {
		return nil, fmt.Errorf("the list of stores makes no sense: %w", err)
	}
	if data == nil {
		return nil, fmt.Errorf("the list of stores makes no sense: it is %s", cleaned(string(raw)))
	}
	var out []storeInfo
	for _, component := range slices.Sorted(maps.Keys(data)) {
		for _, d := range data[component] {
			i := storeInfo{name: cleaned(d.Name), component: cleaned(component), labelSets: d.LabelSets}
			if text, ok := d.LastCheck.(string); ok {
				i.checked, _ = time.Parse(time.RFC3339, text) // else it does not say
			}
			if d.LastError != nil {
				// A gRPC error has its own words behind its code.
				_, words, coded := strings.Cut(*d.LastError, " desc = ")
				if !coded {
					words = *d.LastError
				}
				if i.err = cleaned(words); i.err == "" {
					i.err = "unhealthy"
				}
			}
			out = append(out, i)
		}
	}
	return out, nil
}

// MissingStores is what a Thanos Query answers without at the moment, or why that is not known;
// empty where nothing is missing, and for a Prometheus.
func (r *Replica) MissingStores() string {
	r.up.mu.Lock()
	defer r.up.mu.Unlock()
	return cmp.Or(r.up.thanos.missing, r.up.thanos.trouble)
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
	if time.Since(r.up.thanos.deaf) < failingFor {
		return "which of its stores that is, Spillway could not find out: it got too little of its processors to ask each by itself"
	}
	return ""
}

func (r *Replica) ownStoresNote() string {
	away := r.storesAway()
	r.up.mu.Lock()
	defer r.up.mu.Unlock()
	t := &r.up.thanos
	if time.Since(t.failed) < failingFor {
		away = slices.Concat(away, t.failing)
	}
	var parts []string
	if t.missing != "" {
		parts = append(parts, "it lacks "+t.missing)
	}
	said := spokenOf(t.missing, away)
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
			"replica", r.Name(), "missing", is)
	}
}

// examineThanos reads what a Thanos Query says about itself beyond what every server does.
func (r *Replica) examineThanos(ctx context.Context, f *selfFacts) {
	// It has no configuration to read; its stores' labels stand for external labels.
	f.external, f.externalOK, f.note = nil, true, ""
	_, _ = r.look(ctx, time.Now(), time.Now()) // what it finds is kept, failures too
}
