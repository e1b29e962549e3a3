package deny

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillwayproject/spillway/internal/plainfile"
)

// Table holds the rules that are in force. The zero value has none and keeps nothing in a file. Its
// methods may be called by any goroutine.
type Table struct {
	all     atomic.Pointer[[]*rule] // what requests look at
	changes atomic.Uint64

	mu     sync.Mutex
	config []*rule
	own    []*rule // of sources API and Crash
	aside  []Entry // of the file, which are no rules of this version and stay there
	path   string  // where both are kept; empty: nowhere
	lost   error   // why they are not kept there: it would be over what was not read
}

// Found is what rules say of a request.
type Found struct {
	// Rule refuses it; nil where none does.
	Rule *Rule
	// Source is where that rule comes from.
	Source Source
	// Shadows are the names of rules in shadow mode that would.
	Shadows []string
}

// Look compares a request with all rules, and counts those that it meets.
func (t *Table) Look(s *Subject, now time.Time) Found { return t.look(s, now, true) }

// Would compares with all rules what nobody has asked; nothing is counted.
func (t *Table) Would(s *Subject, now time.Time) Found { return t.look(s, now, false) }

func (t *Table) look(s *Subject, now time.Time, counts bool) Found {
	var f Found
	all := t.all.Load()
	if all == nil {
		return f
	}
	for _, r := range *all {
		shadow := r.Shadow || r.SparesRules && s.Rule
		if r.over(now) || f.Rule != nil && !shadow || !r.matches(s) {
			continue
		}
		if counts {
			r.hits.Add(1)
			r.last.Store(now.UnixNano())
		}
		if shadow {
			f.Shadows = append(f.Shadows, r.Name)
		} else {
			f.Rule, f.Source = &r.Rule, r.source
		}
	}
	return f
}

// Any tells whether there is a rule at all.
func (t *Table) Any() bool {
	all := t.all.Load()
	return all != nil && len(*all) > 0
}

// Configure puts the configuration's rules into force in place of those of before. They are checked
// already. An added rule of the same name as one of them is removed, from the file too; the error
// of that is as with Add.
func (t *Table) Configure(rules []Rule) error {
	var list []*rule
	for _, r := range rules {
		c, err := compile(r, Config)
		if err != nil {
			return fmt.Errorf("%s: %w", r.Name, err)
		}
		list = append(list, c)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range list { // what it refused before it goes on counting
		for _, old := range t.config {
			if old.Rule == c.Rule {
				c.hits.Store(old.hits.Load())
				c.last.Store(old.last.Load())
			}
		}
	}
	t.config = list
	before := len(t.own) + len(t.aside)
	t.own = slices.DeleteFunc(slices.Clone(t.own), func(r *rule) bool { return t.configured(r.Name) })
	t.aside = slices.DeleteFunc(t.aside, func(e Entry) bool { return t.configured(e.Name) })
	t.publish()
	if len(t.own)+len(t.aside) == before {
		return nil
	}
	return t.keep() // or else the next start would have both, and neither could be removed
}

// configured tells whether the configuration has a rule of that name. t.mu is held.
func (t *Table) configured(name string) bool {
	return slices.ContainsFunc(t.config, func(c *rule) bool { return c.Name == name })
}

// publish shows requests what is in force.
func (t *Table) publish() {
	all := slices.Concat(t.config, t.own)
	// Texts last: what a rule with a regular expression refuses, a cheaper one may have refused.
	slices.SortStableFunc(all, func(a, b *rule) int { return cmp.Compare(a.dear(), b.dear()) })
	t.all.Store(&all)
	t.changes.Add(1)
}

// Changes is how often what is in force has changed: an answer that depends on it is as good as it
// was while this is the same.
func (t *Table) Changes() uint64 { return t.changes.Load() }

// dear orders rules by what it takes to ask them.
func (r *rule) dear() int {
	switch {
	case r.regex != nil:
		return 2
	case r.query != "":
		return 1
	}
	return 0
}

// Errors of Add and Remove.
var (
	// ErrTaken is a name that another rule has.
	ErrTaken = errors.New("another rule has this name")
	// ErrFull is a table with MaxRules rules of that source, or MaxRegexes with a regex.
	ErrFull = fmt.Errorf("there are %d rules, or %d with a regular expression; remove others", MaxRules, MaxRegexes)
	// ErrUnknown is a name that no rule has.
	ErrUnknown = errors.New("no rule has this name")
	// ErrConfigured is a rule of the configuration.
	ErrConfigured = errors.New("the rule stands in the configuration; change it there")
)

// Add puts a rule into force. An error of the file leaves it in force, for as long as the process
// lives, and is a *FileError.
func (t *Table) Add(r Rule, source Source, now time.Time) error {
	c, err := compile(r, source)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.own = slices.DeleteFunc(slices.Clone(t.own), func(r *rule) bool { return r.forgotten(now) })
	regexes := 0
	for _, o := range slices.Concat(t.config, t.own) {
		if o.Name == r.Name {
			return ErrTaken
		}
		if o.regex != nil {
			regexes++
		}
	}
	if c.regex != nil && regexes >= MaxRegexes || !t.makeRoom(source, now) {
		return ErrFull
	}
	t.own = append(t.own, c)
	t.aside = slices.DeleteFunc(t.aside, func(e Entry) bool { return e.Name == r.Name })
	t.publish()
	return t.keep()
}

// makeRoom tells whether there is room for one more added rule of a source. What was under way at a
// kill long ago gives way to what was at this one. t.mu is held.
func (t *Table) makeRoom(source Source, now time.Time) bool {
	n, first := 0, -1
	for i, r := range t.own {
		if r.source != source {
			continue
		}
		if n++; source == Crash && r.over(now) && (first < 0 || r.Until.Before(t.own[first].Until)) {
			first = i
		}
	}
	if n >= MaxRules && first >= 0 {
		t.own, n = slices.Delete(t.own, first, first+1), n-1
	}
	return n < MaxRules
}

// Remove ends a rule that was added, or takes one that was left out of the file. The error of the
// file is as with Add.
func (t *Table) Remove(name string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	is, was := func(r *rule) bool { return r.Name == name }, func(e Entry) bool { return e.Name == name }
	switch {
	case t.configured(name):
		return ErrConfigured
	case !slices.ContainsFunc(t.own, is) && !slices.ContainsFunc(t.aside, was):
		return ErrUnknown
	}
	t.own, t.aside = slices.DeleteFunc(slices.Clone(t.own), is), slices.DeleteFunc(t.aside, was)
	t.publish()
	return t.keep()
}

// Entry is a rule in a list.
type Entry struct {
	Rule
	Source Source    `json:"source"`
	Hits   int64     `json:"hits"`          // requests that it refused, or would have
	Last   time.Time `json:"last,omitzero"` // when it last did
}

// List are the rules that are in force, by name.
func (t *Table) List(now time.Time) []Entry {
	out := []Entry{}
	if all := t.all.Load(); all != nil {
		for _, r := range *all {
			if r.over(now) {
				continue
			}
			e := Entry{Rule: r.Rule, Source: r.source, Hits: r.hits.Load()}
			if last := r.last.Load(); last != 0 {
				e.Last = time.Unix(0, last).UTC()
			}
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b Entry) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Count is how many rules are in force, by their source.
func (t *Table) Count(now time.Time) map[Source]int {
	out := map[Source]int{Config: 0, API: 0, Crash: 0}
	for _, e := range t.List(now) {
		out[e.Source]++
	}
	return out
}

// FileError is the failure to keep the rules in their file.
type FileError struct{ Err error }

// Error implements error.
func (e *FileError) Error() string {
	return "the rule is in force, and lost when Spillway ends: " + e.Err.Error()
}

// Unwrap is the file system's error.
func (e *FileError) Unwrap() error { return e.Err }

// kept is what the file holds.
type kept struct {
	Version int     `json:"version"` // 1
	Rules   []Entry `json:"rules"`
}

// maxFileBytes is the largest file that is read.
const maxFileBytes = 32 << 20

// Open reads the rules that were kept in the file, and keeps them there from now on. A file that
// holds something else is renamed to the same name with .broken at its end, or a number behind that
// where there is such a file, and the error says so. One that cannot be read stays, for the next
// start to read, and nothing is kept meanwhile; nor is it where it cannot be renamed. The table is
// usable all the same. A rule that is none in this version is named in the error, left
// out, and stays in the file. One that has the name of one of the configuration's does not: that
// one is meant.
func (t *Table) Open(path string, now time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.path = path
	f, err := plainfile.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return t.unread(err)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return t.unread(err)
	}
	var k kept
	if len(text) > maxFileBytes {
		err = fmt.Errorf("it is larger than rules are, %d MiB", maxFileBytes>>20)
	} else {
		dec := json.NewDecoder(bytes.NewReader(text))
		dec.DisallowUnknownFields()
		if err = dec.Decode(&k); err == nil && k.Version != 1 {
			err = fmt.Errorf("it has version %d", k.Version)
		}
	}
	if err != nil {
		return t.putAside(err)
	}
	replaced := false
	for _, e := range k.Rules {
		c, wrong := compile(e.Rule, e.Source)
		switch old := (&rule{Rule: e.Rule, source: e.Source}).forgotten(now); {
		case old:
		case t.configured(e.Name):
			replaced = true
		case wrong != nil: // of another version; the others hold
			err = errors.Join(err, fmt.Errorf("%s: the rule %.64q is none, and is left out: %w", path, e.Name, wrong))
			if len(t.aside) < MaxRules {
				t.aside = append(t.aside, e)
			}
		case t.makeRoom(e.Source, now):
			t.own = append(t.own, c)
		}
	}
	t.publish()
	if replaced {
		err = errors.Join(err, t.keep())
	}
	return err
}

// putAside takes the file out of the way of the one that will be written, for somebody to look at.
// t.mu is held.
func (t *Table) putAside(why error) error {
	aside := t.path + ".broken"
	for i := 1; i < maxAside; i++ {
		if _, err := os.Lstat(aside); errors.Is(err, fs.ErrNotExist) {
			break
		}
		aside = fmt.Sprintf("%s.broken.%d", t.path, i)
	}
	if _, err := os.Lstat(aside); err == nil {
		t.lost = fmt.Errorf("%s holds no rules, and %s and the others like it are in its way; look at them, and remove them", t.path, aside)
		return errors.Join(why, t.lost)
	}
	if err := os.Rename(t.path, aside); err != nil {
		t.lost = fmt.Errorf("%s holds no rules, and could not be put aside as %s: %w", t.path, aside, err)
		return errors.Join(why, t.lost)
	}
	return fmt.Errorf("%s does not hold rules, and was put aside as %s: %w", t.path, aside, why)
}

// maxAside is how many files are put aside at most.
const maxAside = 10

// unread leaves a file alone that could not be read now. t.mu is held.
func (t *Table) unread(why error) error {
	t.lost = fmt.Errorf("%s could not be read at the start, and is left for the next one: %w", t.path, why)
	return t.lost
}

// keep writes the rules that were added, and those that were left out, to their file, which is
// whole at all times.
func (t *Table) keep() error {
	if t.path == "" {
		return nil
	}
	if t.lost != nil {
		return &FileError{t.lost}
	}
	k := kept{Version: 1, Rules: []Entry{}}
	for _, r := range t.own {
		k.Rules = append(k.Rules, Entry{Rule: r.Rule, Source: r.source})
	}
	k.Rules = append(k.Rules, t.aside...)
	text, err := json.MarshalIndent(k, "", "  ")
	if err == nil {
		err = plainfile.Replace(t.path, 0o600, func(w io.Writer) error {
			_, err := w.Write(append(text, '\n'))
			return err
		})
	}
	if err != nil {
		return &FileError{err}
	}
	return nil
}
