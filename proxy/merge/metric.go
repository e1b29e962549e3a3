package merge

import (
	"bytes"
	"hash/maphash"
	"slices"

	"github.com/spillwayproject/spillway/proxy/admit"
)

// labelPair is one label of a metric object, as offsets from the object's start: name and value
// without quotes.
type labelPair struct {
	nameFrom, nameTo, valueFrom, valueTo int
}

// pairReader finds the labels of metric objects.
type pairReader struct {
	s     *Scanner
	pairs []labelPair
}

// metric rewrites the metric object that is next. Copying is on: it stops before the object and
// goes on behind it.
func (p *passer) metric() bool {
	s := p.s
	if s.peek() != '{' {
		return s.Object()
	}
	if !s.stopCopy() {
		return false
	}
	s.tok = s.pos
	plain := p.plainPairs(true)
	ok := plain || p.readPairs()
	ok = ok && p.rewrite(plain || p.compact(s.buf[s.tok:s.pos]))
	s.tok = -1
	if !ok || !p.write(p.out) {
		return false
	}
	s.copyTo(p.w)
	return true
}

// readPairs consumes the object at tok and notes where its labels are.
func (p *pairReader) readPairs() bool {
	s := p.s
	p.pairs = p.pairs[:0]
	s.pos++
	for first := true; ; first = false {
		switch s.peek() {
		case '}':
			s.pos++
			return true
		case ',':
			if first {
				return s.bad("a label")
			}
			s.pos++
			if s.peek() != '"' {
				return s.bad("a label name")
			}
		case '"':
			if !first {
				return s.bad("a comma or the end of the labels")
			}
		default:
			return s.bad("a label name")
		}
		var l labelPair
		l.nameFrom = s.pos - s.tok + 1
		_, _, ok := s.raw()
		if !ok {
			return false
		}
		l.nameTo = s.pos - s.tok - 1
		if !s.expect(':', "a colon") {
			return false
		}
		if s.peek() != '"' {
			_, ok := s.String()
			return ok
		}
		l.valueFrom = s.pos - s.tok + 1
		_, _, ok = s.raw()
		if !ok {
			return false
		}
		l.valueTo = s.pos - s.tok - 1
		p.pairs = append(p.pairs, l)
	}
}

// compact tells whether an object whose labels are noted is written without white space and
// escapes: one that crossed the end of the buffer may be.
func (p *pairReader) compact(obj []byte) bool {
	size := max(2, 1+len(p.pairs)) // braces and commas
	for i := range p.pairs {
		l := &p.pairs[i]
		size += l.nameTo - l.nameFrom + l.valueTo - l.valueFrom + len(`"":""`)
	}
	return size == len(obj) && bytes.IndexByte(obj, '\\') < 0
}

// plainPairs consumes a metric object that lies in the buffer as a whole and is written as
// Prometheus writes it, without white space and escapes: nearly all. It notes the labels where note
// is true. Where the object is anything else it consumes nothing.
func (p *pairReader) plainPairs(note bool) bool {
	s := p.s
	obj := s.buf[s.pos:s.end]
	p.pairs = p.pairs[:0]
	i := 1
	if i < len(obj) && obj[i] == '}' {
		s.pos += 2
		return true
	}
	for {
		j := plainString(obj, i)
		if j < 0 || j >= len(obj) || obj[j] != ':' {
			return false
		}
		k := plainString(obj, j+1)
		if k < 0 || k >= len(obj) {
			return false
		}
		if note {
			p.pairs = append(p.pairs, labelPair{nameFrom: i + 1, nameTo: j - 1, valueFrom: j + 2, valueTo: k - 1})
		}
		switch obj[k] {
		case ',':
			i = k + 1
		case '}':
			s.pos += k + 1
			return true
		default:
			return false
		}
	}
}

// sorted tells whether the labels noted of a plain object are sorted by name, each name once.
func (p *pairReader) sorted(obj []byte) bool {
	for i := 1; i < len(p.pairs); i++ {
		a, b := &p.pairs[i-1], &p.pairs[i]
		if bytes.Compare(obj[a.nameFrom:a.nameTo], obj[b.nameFrom:b.nameTo]) >= 0 {
			return false
		}
	}
	return true
}

// rewrite makes p.out of the object and its pairs. plain tells that the object is spelled as
// Prometheus would.
func (p *passer) rewrite(plain bool) bool {
	s := p.s
	obj := s.buf[s.tok:s.pos]
	ok := true
	if plain && p.sorted(obj) {
		p.splice(obj)
	} else {
		ok = p.spell(obj)
	}
	if !ok {
		return false
	}
	if err := p.seen.add(p.out, p.seen.removed); err != nil {
		s.err = err
		return false
	}
	return true
}

// splice makes p.out of a plain, sorted object.
func (p *passer) splice(obj []byte) {
	// Both lists of names are sorted. Between owned names the labels are copied in runs, commas
	// included.
	owned := p.rl.owned
	out, removed := append(p.out[:0], '{'), p.seen.removed[:0]
	run := -1 // where the run in hand begins
	end := 0  // and where it ends
	for i := range p.pairs {
		l := &p.pairs[i]
		name := obj[l.nameFrom:l.nameTo]
		gone := false
		for !gone && len(owned) > 0 && owned[0].name <= string(name) {
			own := owned[0]
			owned = owned[1:]
			if run >= 0 {
				out = append(append(out, obj[run:end]...), ',')
				run = -1
			}
			if own.json != nil {
				out = append(append(out, own.json...), ',')
			}
			if own.name == string(name) {
				if len(removed) > 0 {
					removed = append(removed, ',')
				}
				removed = append(removed, obj[l.nameFrom-1:l.valueTo+1]...)
				gone = true
			}
		}
		if gone {
			continue
		}
		if run < 0 {
			run = l.nameFrom - 1
		}
		end = l.valueTo + 1
	}
	if run >= 0 {
		out = append(append(out, obj[run:end]...), ',')
	}
	for _, own := range owned {
		if own.json != nil {
			out = append(append(out, own.json...), ',')
		}
	}
	if n := len(out) - 1; out[n] == ',' {
		out[n] = '}'
	} else {
		out = append(out, '}')
	}
	p.out, p.seen.removed = out, removed
}

// spell makes p.out of any object: decoded, sorted, and written as Prometheus writes it. Only then
// do equal label sets have equal bytes. It is for the few that have escapes or white space, or are
// not sorted.
func (p *passer) spell(obj []byte) bool {
	type label struct{ name, value []byte }
	ls := make([]label, 0, len(p.pairs)+len(p.rl.owned))
	for _, l := range p.pairs {
		ls = append(ls, label{decodeString(nil, obj[l.nameFrom:l.nameTo]), decodeString(nil, obj[l.valueFrom:l.valueTo])})
	}
	byName := func(a, b label) int { return bytes.Compare(a.name, b.name) }
	slices.SortFunc(ls, byName)
	write := func(dst []byte, l label) []byte {
		return appendQuoted(append(appendQuoted(dst, l.name), ':'), l.value)
	}
	removed := p.seen.removed[:0]
	kept := ls[:0]
	for i, l := range ls {
		if i > 0 && bytes.Equal(l.name, p.last) {
			return p.s.fail(WrongShape, "a label name stands twice in one metric")
		}
		p.last = append(p.last[:0], l.name...)
		if !p.rl.removes(l.name) {
			kept = append(kept, l)
			continue
		}
		if len(removed) > 0 {
			removed = append(removed, ',')
		}
		removed = write(removed, l)
	}
	for _, own := range p.rl.owned {
		if own.value != "" {
			kept = append(kept, label{[]byte(own.name), []byte(own.value)})
		}
	}
	slices.SortFunc(kept, byName)
	out := append(p.out[:0], '{')
	for i, l := range kept {
		if i > 0 {
			out = append(out, ',')
		}
		out = write(out, l)
	}
	p.out, p.seen.removed = append(out, '}'), removed
	return true
}

// seenSets finds label sets that become equal by removing labels. As long as nothing is removed no
// two can (the shard's own are distinct), so only hashes are noted, 16 bytes a set; with the first
// removal they become a table. Two sets are taken for equal when two hashes by secret seeds agree,
// 128 bits: no sender can bring that about, and chance will not.
type seenSets struct {
	hashes  [][2]uint64
	table   map[[2]uint64][]byte // -> the labels removed, nil for none
	removed []byte               // scratch
	held    admit.Ledger
}

var seedA, seedB = maphash.MakeSeed(), maphash.MakeSeed()

// seenSetBytes is what one noted set costs: its hash, and the slack of growing slices.
const seenSetBytes = 32

// tableEntryBytes is what one entry of the table costs beside the bytes of its removed labels.
const tableEntryBytes = 96

// add notes a set as written, with what was removed from it.
func (t *seenSets) add(set, removed []byte) error {
	h := [2]uint64{maphash.Bytes(seedA, set), maphash.Bytes(seedB, set)}
	if t.table == nil && len(removed) == 0 {
		if len(t.hashes) == cap(t.hashes) {
			grow := max(256, len(t.hashes))
			if err := t.held.Hold(int64(grow) * seenSetBytes); err != nil {
				return err
			}
			t.hashes = slices.Grow(t.hashes, grow)
		}
		t.hashes = append(t.hashes, h)
		return nil
	}
	if t.table == nil {
		if err := t.held.Hold(int64(len(t.hashes)) * tableEntryBytes); err != nil {
			return err
		}
		t.table = make(map[[2]uint64][]byte, 2*len(t.hashes))
		for _, h := range t.hashes {
			t.table[h] = nil
		}
		t.hashes = nil
	}
	if before, ok := t.table[h]; ok {
		return collision(set, before, removed)
	}
	if err := t.held.Hold(tableEntryBytes + int64(len(removed))); err != nil {
		return err
	}
	t.table[h] = bytes.Clone(removed)
	return nil
}
