package thanos

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/internal/clip"
)

const (
	// storesRemembered is for how long a store that is no longer listed is missed. Thanos takes a
	// store that cannot be reached off its list after five minutes and answers without it from then
	// on.
	storesRemembered = 24 * time.Hour
	// maxStores bounds what is remembered of one Thanos Query.
	maxStores = 10_000
	// maxLeftOut bounds the text by which stores are left out.
	maxLeftOut = 100
	// Checks is the time between two of Thanos' health checks by default, and at least.
	Checks = 5 * time.Second
)

// Store is one line of the page of stores.
type Store struct {
	Name      string // its address
	Component string // sidecar, store, rule and so on
	LabelSets []map[string]string
	Err       string    // of Thanos' last health check; empty where it found the store well
	Since     int64     // the time of its oldest sample, as it announces it, in milliseconds; 0 where it does not say
	Checked   time.Time // when it found it well last, by its own clock; zero where it does not say
}

// ParseStores reads the data of the page: stores by component.
func ParseStores(raw []byte) ([]Store, error) {
	var data map[string][]struct {
		Name      string              `json:"name"`
		LastError *string             `json:"lastError"`
		LastCheck any                 `json:"lastCheck"`
		MinTime   any                 `json:"minTime"`
		LabelSets []map[string]string `json:"labelSets"`
	}
	if err := json.Unmarshal(raw, &data); err != nil {
		return nil, fmt.Errorf("the list of stores makes no sense: %w", err)
	}
	if data == nil {
		return nil, fmt.Errorf("the list of stores makes no sense: it is %s", clip.Said(string(raw)))
	}
	var out []Store
	for _, component := range slices.Sorted(maps.Keys(data)) {
		for _, d := range data[component] {
			i := Store{Name: clip.Said(d.Name), Component: clip.Said(component), LabelSets: d.LabelSets}
			if text, ok := d.LastCheck.(string); ok {
				i.Checked, _ = time.Parse(time.RFC3339, text) // else it does not say
			}
			if ms, ok := d.MinTime.(float64); ok && ms > 0 && ms < 1<<53 {
				i.Since = int64(ms)
			}
			if d.LastError != nil {
				// A gRPC error has its own words behind its code.
				_, words, coded := strings.Cut(*d.LastError, " desc = ")
				if !coded {
					words = *d.LastError
				}
				if i.Err = clip.Said(words); i.Err == "" {
					i.Err = "unhealthy"
				}
			}
			out = append(out, i)
		}
	}
	return out, nil
}

// Terms are what decides which of a server's stores stand for each other.
type Terms struct {
	Flags         Flags
	ReplicaLabels []string // the group's
}

// names are the labels that tell copies apart: the group's and the flag's.
func (t Terms) names() []string { return slices.Concat(t.ReplicaLabels, t.Flags.ReplicaLabels) }

// Stores is what is known of the stores of one Thanos Query. The zero value knows of none. It is
// not safe for concurrent use.
type Stores struct {
	// List is the page as it was read last.
	List []Store
	// Listed tells whether it was ever read, Read when the last reading began.
	Listed bool
	Read   time.Time
	// Missing says what the last reading found missing; empty where nothing is.
	Missing string

	lacked   string    // what an answer of this moment lacks: Missing, or what those that are left out would have had
	was      string    // the last one of these that was not empty
	whole    time.Time // when the first page without was there
	followed time.Time // since when no health check of a store that was well has gone unseen
	seen     map[string]seenStore
	copies   map[string]bool      // pairs of label sets, by whether they scrape the same targets
	out      map[string]time.Time // those that it is told not to ask, by since when
}

// seenStore is a store that was well once.
type seenStore struct {
	Store
	first, last time.Time // when it was well
}

// Oldest is the time of the oldest sample that a store which is well announces, in milliseconds;
// false where none says it.
func (s *Stores) Oldest() (ms int64, known bool) {
	for _, i := range s.List {
		if i.Err == "" && i.Since > 0 && (!known || i.Since < ms) {
			ms, known = i.Since, true
		}
	}
	return ms, known
}

// Page takes over a page whose reading began at that time, and returns what was missing before it.
func (s *Stores) Page(list []Store, t Terms, began time.Time) (before string) {
	before = s.Missing
	lacked := s.lacked
	if !s.Listed || unseen(s.List, list, t.Flags.Checks) {
		s.followed = began
	}
	s.Read, s.Listed, s.List = began, true, list
	s.Missing = s.judge(t, began)
	if s.lacked = s.Missing; s.lacked == "" && len(s.out) > 0 {
		s.lacked = s.Lacking(s.LeftOut(), t)
	}
	switch {
	case s.lacked != "":
		s.was = s.lacked
	case lacked != "":
		s.whole = time.Now()
	}
	return before
}

// Forget has a store no longer be missed that has gone from the list, since somebody says that it
// was taken out on purpose. known is false where it is not remembered. The error is that of one
// that cannot have been: it is listed, or the server's own flags name it.
func (s *Stores) Forget(name string, t Terms) (known bool, err error) {
	if slices.ContainsFunc(s.List, func(i Store) bool { return i.Name == name }) {
		return true, errors.New("it is listed still; only what is gone from the list of stores can be forgotten")
	}
	if slices.Contains(t.Flags.Static, name) {
		return true, errors.New("--endpoint names it; take it out of that flag of the Thanos Query")
	}
	if _, known = s.seen[name]; !known {
		return false, nil
	}
	delete(s.seen, name)
	// What was asked for while it was missed may be whole, and is refused all the same.
	s.Page(s.List, t, s.Read)
	return true, nil
}

// Since is what was missing at any time from asked on. The page that is whole again tells nothing
// of an answer that was asked for before it was there: Thanos may have chosen its stores before.
func (s *Stores) Since(asked time.Time) string {
	if s.Missing == "" && s.lacked == "" && asked.Before(s.whole) {
		return s.was + ", until a moment ago"
	}
	return s.Missing
}

// Followed tells whether all health checks of the stores from asked on have been seen: a Thanos
// Query chooses the stores for a request when that comes, by what its health checks of five seconds
// found last, and the page says what they found by the time it is read. Of two pages that are far
// apart both may call a store well that was left out in between: with its copy gone too, and back
// before the next look, an answer of half the data looks whole.
func (s *Stores) Followed(asked time.Time) bool { return !asked.Before(s.followed) }

// unseen tells whether a store that both pages call well was checked in between without success, as
// far as can be told: each says when a store was found well last, and two successes that follow
// each other are one check apart. The time between two checks is given; 0 where it is not known.
func unseen(before, after []Store, checks time.Duration) bool {
	checks = max(checks, Checks)
	was := make(map[string]Store, len(before))
	for _, i := range before {
		was[i.Name] = i
	}
	for _, i := range after {
		b, listed := was[i.Name]
		if !listed || b.Err != "" || i.Err != "" || b.Checked.IsZero() || i.Checked.IsZero() {
			continue
		}
		if i.Checked.Sub(b.Checked) >= 2*checks-time.Second {
			return true
		}
	}
	return false
}

// Without is a store that has series without one of the labels, and that label.
func (s *Stores) Without(want labels.Labels) (store string, label labels.Label, any bool) {
	for _, i := range s.List {
		for _, set := range i.LabelSets {
			want.Range(func(l labels.Label) {
				if set[l.Name] != l.Value && !any {
					store, label, any = i.Name, l, true
				}
			})
		}
	}
	return store, label, any
}

// judge says which stores are missing, and remembers those that are well.
func (s *Stores) judge(t Terms, now time.Time) string {
	if s.seen == nil {
		s.seen = map[string]seenStore{}
	}
	for _, i := range s.List {
		if i.Err != "" {
			continue
		}
		old, has := s.seen[i.Name]
		if !has {
			if len(s.seen) >= maxStores {
				continue
			}
			old.first = now
		}
		s.seen[i.Name] = seenStore{Store: i, first: old.first, last: now}
	}
	return s.lacking(s.List, t, now)
}

// Lacking says what an answer lacks to which those stores were not asked, beside what the server
// says itself; empty where copies of them were.
func (s *Stores) Lacking(without []string, t Terms) string {
	t.Flags.Strict = nil // these are left out too
	return s.lacking(withErrors(s.List, without), t, s.Read)
}

// lacking says what is missing where the stores are as list has them. A store is made good by
// another of its kind that is known to be its copy, and one that has left the list also by one with
// the very same labels that has come since.
func (s *Stores) lacking(list []Store, t Terms, now time.Time) string {
	names := t.names()
	listed := make(map[string]bool, len(list))
	for _, i := range list {
		listed[i.Name] = true
	}
	var missing []string
	note := func(i Store, why string) {
		missing = append(missing, fmt.Sprintf("%s %s (%s)", i.Component, i.Name, why))
	}
	for _, i := range list {
		if i.Err == "" || slices.Contains(t.Flags.Strict, i.Name) || s.madeGood(list, i, names, time.Time{}) {
			continue
		}
		note(i, i.Err+s.whetherCopied(list, i, names))
	}
	for _, name := range slices.Sorted(maps.Keys(s.seen)) {
		old := s.seen[name]
		switch {
		case listed[name]:
		case s.madeGood(list, old.Store, names, old.last):
			if !slices.Contains(t.Flags.Static, name) { // one that is configured is missed again once its copy goes
				delete(s.seen, name)
			}
		case now.Sub(old.last) > storesRemembered:
			delete(s.seen, name)
		default:
			note(old.Store, "no longer listed"+s.whetherCopied(list, old.Store, names))
		}
	}
	for _, name := range t.Flags.Static {
		if _, once := s.seen[name]; !once && !listed[name] {
			note(Store{Component: "endpoint", Name: name}, "never seen")
		}
	}
	if more := len(missing) - 5; more > 0 {
		missing = append(missing[:5], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(missing, ", ")
}

// Asked are the stores that the server asks, by its page.
func (s *Stores) Asked() (names []string) {
	for _, i := range s.List {
		if i.Err == "" {
			names = append(names, i.Name)
		}
	}
	return names
}

// Askable are those of Asked that have series and are not left out.
func (s *Stores) Askable() (names []string) {
	for _, i := range s.List {
		if _, out := s.out[i.Name]; i.Err == "" && !out && len(i.LabelSets) > 0 {
			names = append(names, i.Name)
		}
	}
	return names
}

// Sidecars tells whether all of these are: other kinds of stores do not serve all for which Warns
// holds.
func (s *Stores) Sidecars(names []string) bool {
	return !slices.ContainsFunc(s.List, func(i Store) bool { return i.Component != "sidecar" && slices.Contains(names, i.Name) })
}

// Noticed tells whether Thanos has found since that one of the stores asked hangs, and would answer
// without it now, whole; or, where one of them is away, what it would lack.
func (s *Stores) Noticed(asked, without []string) (hung bool, missing string) {
	for _, i := range s.List {
		switch {
		case i.Err == "" || !slices.Contains(asked, i.Name) || slices.Contains(without, i.Name):
		case s.Missing != "":
			return false, s.Missing
		case strings.Contains(i.Err, "deadline exceeded"):
			return true, ""
		}
	}
	return false, ""
}

// withErrors is the list as it would be if those stores were known to fail.
func withErrors(list []Store, names []string) []Store {
	out := slices.Clone(list)
	for i := range out {
		if out[i].Err == "" && slices.Contains(names, out[i].Name) {
			out[i].Err = "it was left out"
		}
	}
	return out
}

// LeftOut are the stores that the server is told not to ask, sorted.
func (s *Stores) LeftOut() []string { return slices.Sorted(maps.Keys(s.out)) }

// LeaveOut has those of the stores left out from now on of which a copy is well, and returns the
// ones that were not left out before.
func (s *Stores) LeaveOut(failing []string, t Terms) (news []string) {
	marked := withErrors(s.List, slices.Concat(slices.Collect(maps.Keys(s.out)), failing))
	for _, name := range slices.Sorted(slices.Values(failing)) {
		if _, has := s.out[name]; has || len(s.out) >= maxLeftOut {
			continue
		}
		for _, i := range marked {
			if i.Name != name || !s.madeGood(marked, i, t.names(), time.Time{}) {
				continue
			}
			if s.out == nil {
				s.out = map[string]time.Time{}
			}
			s.out[name] = time.Now()
			news = append(news, name)
		}
	}
	return news
}

// TakeBack has a store asked again, and returns since when it was left out.
func (s *Stores) TakeBack(name string) (since time.Time) {
	since = s.out[name]
	delete(s.out, name)
	return since
}

// Doubted are the stores that are left out and that Thanos takes for healthy. Those that it has
// forgotten are no longer left out.
func (s *Stores) Doubted() (names []string) {
	for name := range s.out {
		i := slices.IndexFunc(s.List, func(i Store) bool { return i.Name == name })
		switch {
		case i < 0:
			delete(s.out, name)
		case s.List[i].Err == "":
			names = append(names, name)
		}
	}
	return names
}

// Away are the stores that are left out of answers since a copy of each is well, sorted: by
// Spillway, and by Thanos once it has noticed.
func (s *Stores) Away(t Terms) (names []string) {
	marked := withErrors(s.List, s.LeftOut())
	for _, i := range marked {
		if i.Err != "" && s.madeGood(marked, i, t.names(), time.Time{}) {
			names = append(names, i.Name)
		}
	}
	for _, name := range t.Flags.Static { // Thanos takes it off its list after a while, and it is away as before
		old, once := s.seen[name]
		if once && !slices.ContainsFunc(marked, func(i Store) bool { return i.Name == name }) &&
			s.madeGood(marked, old.Store, t.names(), old.last) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// SaidOf is the first label set of each of the stores that has one, as " of {…}", for texts.
func (s *Stores) SaidOf() map[string]string {
	out := map[string]string{}
	for _, i := range s.List {
		if len(i.LabelSets) > 0 {
			out[i.Name] = " of " + labels.FromMap(i.LabelSets[0]).String()
		}
	}
	return out
}
