package merge

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/prometheus/prometheus/model/metadata"

	"github.com/spillwayproject/spillway/proxy/admit"
)

// ErrOtherSearch tells that a shard found what this search does not find, or in another order: it
// has another search under the same name. What it holds has to be searched here.
var ErrOtherSearch = errors.New("a shard searches in another way")

const (
	// foundBytes is what is held for each of what was found, beside its bytes.
	foundBytes = 160
	// searchWork is how many pairs of bytes are compared before it is asked whether anybody still
	// waits.
	searchWork = 1 << 20
)

// Finds puts together what a search finds in several lists: in its order, each once, at most so
// many. Of what it reads it keeps a few times that number, held in the budget. It is used by one
// goroutine.
type Finds struct {
	// Look, where set, is asked now and then while values are scored; its error ends the search.
	Look func() error

	ctx    context.Context
	search *Search
	limit  int
	score  scorer
	weight int // bytes of all terms
	work   int
	all    []Found
	held   admit.Ledger
	budget *admit.Budget
	notes  Notes

	more  bool // there are more than limit
	short bool // something was not searched
}

// NewFinds returns one that keeps the first limit. Close must be called.
func NewFinds(ctx context.Context, s *Search, limit int, budget *admit.Budget) *Finds {
	f := &Finds{ctx: ctx, search: s, limit: limit, score: s.scorer(), budget: budget, held: admit.NewLedger(budget)}
	for _, t := range s.Terms {
		f.weight += len(t)
	}
	return f
}

// Close gives back what is held. It is idempotent.
func (f *Finds) Close() { f.held.Drop() }

// Short tells that a list was cut before its end, so that something may be missing that there is
// room for.
func (f *Finds) Short() bool { return f.short }

// More tells that there is more than the limit takes; true too where Short is.
func (f *Finds) More() bool { return f.more || f.short }

// Accepts tells whether the search finds the value.
func (f *Finds) Accepts(value string) bool {
	ok, _ := f.score(value)
	return ok
}

// Everything tells that everything is found, in the order of the values.
func (f *Finds) Everything() bool { return len(f.search.Terms) == 0 && !f.search.Descending }

// Add adds values that are known here, such as those of a group label.
func (f *Finds) Add(values ...string) error {
	for _, v := range values {
		if ok, score := f.score(v); ok {
			if err := f.add(Found{Value: v, Score: score}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (f *Finds) add(one Found) error {
	if err := f.held.Hold(int64(len(one.Value)+len(one.About.Type)+len(one.About.Unit)+len(one.About.Help)) + foundBytes); err != nil {
		return err
	}
	f.all = append(f.all, one)
	if len(f.all) >= max(4*(f.limit+1), 1024) {
		return f.prune()
	}
	return nil
}

// prune sorts, joins equal ones and keeps one more than is wanted. What a metric is said to be is
// the least of what servers say.
func (f *Finds) prune() error {
	slices.SortFunc(f.all, func(a, b Found) int {
		if c := f.search.compare(&a, &b); c != 0 {
			return c
		}
		return a.About.compare(b.About)
	})
	kept := f.all[:0]
	for _, one := range f.all {
		last := len(kept) - 1
		if last < 0 || kept[last].Value != one.Value {
			kept = append(kept, one)
		} else if kept[last].About == (About{}) {
			kept[last].About = one.About
		}
	}
	if len(kept) > f.limit {
		f.more, kept = true, kept[:f.limit]
	}
	bytes := int64(0)
	for i := range kept {
		a := &kept[i].About
		bytes += int64(len(kept[i].Value)+len(a.Type)+len(a.Unit)+len(a.Help)) + foundBytes
	}
	clear(f.all[len(kept):])
	f.all = kept
	f.held.Drop()
	f.held = admit.NewLedger(f.budget)
	return f.held.Hold(bytes)
}

// look counts what scoring a value takes, and asks now and then whether anybody still waits.
func (f *Finds) look(value []byte) error {
	if f.work += 1 + len(value)*(1+f.weight); f.work < searchWork {
		return nil
	}
	f.work = 0
	if f.Look != nil {
		return f.Look()
	}
	if f.ctx.Err() != nil {
		return context.Cause(f.ctx)
	}
	return nil
}

// List searches the list of a shard that does not search, which it closes. A list that was cut is
// not whole.
func (f *Finds) List(list Strings) error {
	defer list.Close()
	for n := 0; list.Next(); {
		if err := f.look(list.At()); err != nil {
			return err
		}
		ok, score := f.score(string(list.At()))
		if !ok {
			continue
		}
		if err := f.add(Found{Value: string(list.At()), Score: score}); err != nil {
			return err
		}
		if n++; n > f.limit && !f.search.ByScore && !f.search.Descending {
			return nil // all that follow come later
		}
	}
	if err := list.Err(); err != nil {
		return err
	}
	note := list.Note()
	f.short = f.short || note.Truncated
	f.notes.Add(note.Warnings...)
	return nil
}

// Shard reads the answer of a shard to a search; names tells that label names were searched, of
// which src.Relabel removes some. The error is ErrOtherSearch where it is not this search that was
// answered.
func (f *Finds) Shard(src Source, names bool) error {
	s := NewScanner(src.Body, f.budget)
	defer s.Close()
	r := &searchLines{f: f, s: s, src: src}
	if names {
		r.rl = src.Relabel
	}
	for !r.over {
		if !r.line() {
			if r.err != nil {
				return r.err
			}
			return shardErr(f.ctx, src.Name, s.err)
		}
	}
	f.notes.Add(r.warnings.list...)
	f.more = f.more || r.more
	f.short = f.short || r.cut || r.more && src.Limit > 0 && src.Limit < f.limit
	return nil
}

// searchLines reads the lines of a shard's answer.
type searchLines struct {
	f        *Finds
	s        *Scanner
	src      Source
	rl       *Relabel
	n        int
	last     Found
	warnings Notes
	more     bool
	cut      bool // it sent more than it was asked for
	over     bool
	err      error
}

// line reads one line: a batch, or the last one.
func (r *searchLines) line() bool {
	s := r.s
	if !s.Object() {
		return false
	}
	var status, errorType, message string
	for first := true; ; first = false {
		key, ok := s.Key(first)
		if !ok {
			break
		}
		switch string(key) {
		case "results":
			ok = r.results()
		case "warnings":
			ok = readNotes(s, &r.warnings, nil)
		case "has_more":
			if r.more = s.peek() == 't'; r.more {
				ok = s.literal("true")
			} else {
				ok = s.literal("false")
			}
		case "status":
			ok = readText(s, &status)
		case "errorType":
			ok = readText(s, &errorType)
		case "error":
			ok = readText(s, &message)
		default:
			ok = s.skip(2)
		}
		if !ok {
			return false
		}
	}
	switch {
	case s.err != nil:
		return false
	case status == "":
		return true
	case status != "success":
		s.err = &UpstreamError{Type: errorType, Message: message}
		return false
	}
	r.over = true
	return s.End()
}

func (r *searchLines) results() bool {
	s := r.s
	if s.peek() == 'n' {
		return s.Null()
	}
	if !s.Array() {
		return false
	}
	for first := true; s.More(first); first = false {
		var one Found
		if !r.result(&one) || !r.take(one) {
			return false
		}
	}
	return s.err == nil
}

func (r *searchLines) result(one *Found) bool {
	s := r.s
	if !s.Object() {
		return false
	}
	named := false
	for first := true; ; first = false {
		key, ok := s.Key(first)
		if !ok {
			break
		}
		var to *string
		switch string(key) {
		case "name", "value":
			named, to = true, &one.Value
		case "type":
			to = &one.About.Type
		case "unit":
			to = &one.About.Unit
		case "help":
			to = &one.About.Help
		}
		if to == nil || r.src.Bare && to != &one.Value {
			ok = s.skip(3)
		} else {
			var b []byte
			if b, ok = s.String(); ok {
				*to = string(b)
			}
		}
		if !ok {
			return false
		}
	}
	return s.err == nil && (named || s.fail(WrongShape, "a result without a name"))
}

// take takes in a result, if this search finds it and it stands where it belongs.
func (r *searchLines) take(one Found) bool {
	if r.src.Limit > 0 && r.n >= r.src.Limit {
		r.cut = true
		return true
	}
	if r.err = r.f.look([]byte(one.Value)); r.err != nil {
		return false
	}
	ok, score := r.f.score(one.Value)
	one.Score = score
	if !ok || r.n > 0 && r.f.search.compare(&r.last, &one) >= 0 {
		r.err = ErrOtherSearch
		return false
	}
	r.n++
	r.last = one
	if r.rl.removes([]byte(one.Value)) {
		return true
	}
	r.err = r.f.add(one)
	return r.err == nil
}

// Describe says of the metrics that were found what the answers to metadata say of them.
func (f *Finds) Describe(shards []Source) error {
	if err := f.prune(); err != nil {
		return err
	}
	d, err := readDocuments[map[string][]metadata.Metadata](f.ctx, shards, f.budget)
	defer d.release()
	if err != nil {
		return err
	}
	f.notes.Add(d.res.Warnings...)
	for i := range f.all {
		one := &f.all[i]
		for _, doc := range d.docs {
			for _, m := range doc[one.Value] {
				if said := (About{string(m.Type), m.Unit, m.Help}); one.About == (About{}) || said.compare(one.About) < 0 {
					one.About = said
				}
			}
		}
		if err := f.held.Hold(int64(len(one.About.Help))); err != nil {
			return err
		}
	}
	return nil
}

// SearchAnswer is how what was found is written.
type SearchAnswer struct {
	// Batch is how many results a line has.
	Batch int
	// Key is the name of the field with what was found: name or value.
	Key string
	// Scores adds how like it is.
	Scores bool
}

// Sort puts what was found in its order, after the last Shard, List or Add. More and Short are
// known then, and how many there are.
func (f *Finds) Sort() (n int, err error) {
	err = f.prune()
	return len(f.all), err
}

// Warnings are those of the shards.
func (f *Finds) Warnings() []string { return f.notes.List() }

// Write writes the answer: lines of at most a.Batch results, the first with the warnings, and the
// last line. It is called after Sort.
func (f *Finds) Write(w *Writer, a SearchAnswer, warnings []string) error {
	rest := f.all
	for first := true; first || len(rest) > 0; first = false {
		batch := rest[:min(a.Batch, len(rest))]
		rest = rest[len(batch):]
		line := append(make([]byte, 0, 64+64*len(batch)), `{"results":[`...)
		for i := range batch {
			if i > 0 {
				line = append(line, ',')
			}
			line = batch[i].append(line, a)
		}
		line = append(line, ']')
		if first && len(warnings) > 0 {
			line = append(append(line, `,"warnings":`...), marshal(warnings)...)
		}
		if _, err := w.Write(append(line, '}', '\n')); err != nil {
			return err
		}
	}
	last := `{"status":"success","has_more":false}`
	if f.More() {
		last = `{"status":"success","has_more":true}`
	}
	if _, err := w.Write([]byte(last + "\n")); err != nil {
		return err
	}
	return w.End()
}

func (one *Found) append(line []byte, a SearchAnswer) []byte {
	line = append(append(line, `{"`+a.Key+`":`...), marshal(one.Value)...)
	if a.Scores {
		line = append(append(line, `,"score":`...), marshal(one.Score)...)
	}
	for _, said := range []struct{ key, text string }{{"type", one.About.Type}, {"help", one.About.Help}, {"unit", one.About.Unit}} {
		if said.text != "" {
			line = append(append(line, `,"`+said.key+`":`...), marshal(said.text)...)
		}
	}
	return append(line, '}')
}

// marshal is for what cannot fail: strings and finite numbers.
func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		return []byte("null")
	}
	return b
}
