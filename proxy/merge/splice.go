package merge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"unicode/utf8"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// Splice streams the answers of disjoint shards to one per-series expression (query or query_range)
// into w as the data value of one answer, as Pass does for one shard: labels are set as each
// source's Relabel says, values and histograms are copied as sent, everything is checked and
// counted on the way. Nothing is written before every shard has sent its head and a first series,
// or its end. Stats that a shard sends beside its result are left out.
//
// A matrix is merged in the order of the labels as they are written, which is labels.Compare,
// Prometheus' own order; a shard that sends out of order is in error. Setting labels can change the
// order of one shard's series; where it does, that is ErrReordered while w.Committed is false, and
// the caller sorts. Once committed, an answer is streamed on with those series out of order: no
// client relies on the order. The order of a vector is free: its series come shard after shard.
//
// A label set that two shards hold after relabelling, or one shard twice by the removal of labels,
// is ErrTwice: the caller fetches the series themselves while w.Committed is false, and aborts
// otherwise.
//
// At most limit series (0 is no limit) are written; where there are more, Result.Truncated is set
// and the rest is not read. A shard's own limit is reported in the same way.
//
// Two things that Pass accepts are the shard's fault here, since no server does them: a resultType
// after the result, and a series whose labels are not its first member. Memory: one Scanner for
// each shard, five texts of label sets of each (beyond 4 KiB held in budget), and where labels are
// set or removed, or the result is a vector, 32 bytes for each series, up to twice that while the
// table of them grows.
func Splice(ctx context.Context, w *Writer, limit int, shards []Source, budget *admit.Budget) (Result, error) {
	sp := splicer{ctx: ctx, w: w, limit: limit, arms: make([]arm, len(shards))}
	sp.seen.held = admit.NewLedger(budget)
	defer sp.close()
	for i := range sp.arms {
		sp.arms[i].init(ctx, w, shards[i], budget)
	}
	err := together(shards, func(i int) error {
		a := &sp.arms[i]
		a.begin()
		return a.err()
	})
	if err == nil {
		err = sp.run()
	}
	var warnings, infos Notes
	for i := range sp.arms {
		a := &sp.arms[i]
		sp.res.take(&a.a, &warnings, &infos)
		sp.res.Counts = append(sp.res.Counts, Count{Series: a.series, Samples: a.counted + a.samples})
	}
	return sp.res, err
}

// ErrReordered is the error of an answer whose series would be written out of order because of
// labels that are set on them.
var ErrReordered = errors.New("setting labels changes the order of its series")

// maxArms is how many shards one splice takes: what a note of hashSet can tell apart.
const maxArms = math.MaxUint16 >> 1

// splicer is one splice.
type splicer struct {
	ctx   context.Context
	w     *Writer
	limit int
	arms  []arm
	res   Result

	queue queue
	seen  hashSet
	check bool   // whether relabelled sets are noted in seen
	last  []byte // sort key of the series before; for those that need no seen
	from  int    // and the arm it came from
	out   []byte
}

func (sp *splicer) close() {
	for i := range sp.arms {
		a := &sp.arms[i]
		if a.s != nil {
			a.s.Close()
		}
		a.held.Drop()
		a.times.texts.drop()
	}
	sp.seen.held.Drop()
}

// arm is one shard in a splice. It stands behind the labels of a series, which are in out,
// relabelled and written, or at the end.
type arm struct {
	passer
	a       answer
	key     []byte // of the series in hand: its labels as sent, comparable bytewise
	before  []byte // of the series before
	final   []byte // key of the series in hand as it is written; key itself where nothing is relabelled
	written []byte // final of the series before
	turned  bool   // labels that were set have changed the order
	removed bool   // labels were removed from the series in hand
	end     bool
	held    admit.Ledger
}

func (a *arm) init(ctx context.Context, w *Writer, src Source, budget *admit.Budget) {
	a.passer = passer{
		pairReader: pairReader{s: NewScanner(src.Body, budget)}, ctx: ctx, w: w, rl: src.Relabel, budget: budget,
		name: src.Name, times: newInstants(src.Asked, budget),
	}
	a.held = admit.NewLedger(budget)
	if a.rl == nil {
		a.rl = &Relabel{}
	}
}

func (a *arm) err() error { return shardErr(a.ctx, a.name, a.s.err) }

// begin reads up to the first series, or the end.
func (a *arm) begin() {
	s := a.s
	if !s.Object() {
		return
	}
	found, ok := a.a.toData(s)
	if !found {
		if ok && finishAnswer(s, &a.a) {
			s.fail(WrongShape, "it has no data")
		}
		return
	}
	if !s.Object() {
		return
	}
	for first := true; ; first = false {
		key, ok := s.Key(first)
		switch {
		case !ok:
			s.fail(WrongShape, "it has no result")
			return
		case string(key) == "resultType":
			if a.resultType != "" {
				s.fail(WrongShape, "resultType stands twice")
				return
			}
			if a.resultType, ok = readResultType(s); !ok || !a.fits() {
				return
			}
			if a.resultType != "vector" && a.resultType != "matrix" {
				s.fail(WrongShape, "the result is a %s, neither a vector nor a matrix", a.resultType)
				return
			}
		case string(key) == "result":
			if a.resultType == "" {
				s.fail(WrongShape, "its result stands before its resultType")
				return
			}
			a.shape = matrixShape
			if a.resultType == "vector" {
				a.shape = vectorShape
			}
			if s.Array() {
				a.next(true)
			}
			return
		default:
			if !s.skip(3) {
				return
			}
		}
	}
}

// next goes on to the labels of the next series, or to the end. It is false at the end, and at an
// error, which the scanner has.
func (a *arm) next(first bool) bool {
	s := a.s
	if s.err == nil && s.More(first) {
		return a.head()
	}
	a.end = true
	if s.err == nil && a.count() {
		a.finish()
	}
	return false
}

// finish reads what follows the result.
func (a *arm) finish() {
	s := a.s
	for {
		key, ok := s.Key(false)
		if !ok {
			break
		}
		if k := string(key); k == "resultType" || k == "result" {
			s.fail(WrongShape, "%s stands twice", k)
			return
		}
		if !s.skip(3) {
			return
		}
	}
	if s.err == nil && a.agree() {
		a.a.afterData(s)
	}
}

// head reads the labels of a series.
func (a *arm) head() bool {
	s := a.s
	if !s.Object() {
		return false
	}
	key, ok := s.Key(true)
	if !ok || string(key) != "metric" {
		return s.fail(WrongShape, "a series that does not begin with its labels")
	}
	if s.peek() != '{' {
		return s.Object()
	}
	s.tok = s.pos
	plain := a.plainPairs(true)
	if ok = plain || a.readPairs(); ok {
		obj := s.buf[s.tok:s.pos]
		ok = a.labels(obj, plain || a.compact(obj))
	}
	s.tok = -1
	return ok && a.order() && a.hold()
}

// labels makes the sort key and the relabelled text of an object whose labels are noted.
func (a *arm) labels(obj []byte, plain bool) bool {
	a.before, a.key = a.key, a.before[:0]
	a.written, a.final = a.final, a.written[:0]
	if plain && a.sorted(obj) && utf8.Valid(obj) {
		for i := range a.pairs {
			p := &a.pairs[i]
			// Without escapes there are no control characters.
			a.key = append(append(a.key, obj[p.nameFrom:p.nameTo]...), 0)
			a.key = append(append(a.key, obj[p.valueFrom:p.valueTo]...), 0)
		}
		if a.rl.Empty() {
			a.out = append(a.out[:0], obj...)
			return true
		}
		a.finalKey(obj)
		a.splice(obj)
	} else {
		if !a.spell(obj) {
			return false
		}
		a.key = slowKey(a.key, obj, a.pairs, nil)
		if !a.rl.Empty() {
			a.final = slowKey(a.final, obj, a.pairs, a.rl.owned)
		}
	}
	a.removed = len(a.seen.removed) > 0
	return true
}

// finalKey makes the sort key of the labels as they are written, of an object without escapes whose
// names are sorted.
func (a *arm) finalKey(obj []byte) {
	owned := a.rl.owned
	for i := range a.pairs {
		p := &a.pairs[i]
		name, gone := obj[p.nameFrom:p.nameTo], false
		for len(owned) > 0 && owned[0].name <= string(name) {
			gone = owned[0].name == string(name)
			a.final = owned[0].appendKey(a.final)
			owned = owned[1:]
		}
		if !gone {
			a.final = append(append(a.final, name...), 0)
			a.final = append(append(a.final, obj[p.valueFrom:p.valueTo]...), 0)
		}
	}
	for i := range owned {
		a.final = owned[i].appendKey(a.final)
	}
}

// appendKey appends the label's part of a sort key, where it is set.
func (l *ownedLabel) appendKey(key []byte) []byte {
	if l.value == "" {
		return key
	}
	return appendKeyText(appendKeyText(key, []byte(l.name)), []byte(l.value))
}

// appendKeyText appends one name or value of a sort key, with a byte behind it that is less than
// any of its own.
func appendKeyText(key, text []byte) []byte {
	for _, c := range text {
		if c <= 1 {
			key = append(key, 1)
			c++
		}
		key = append(key, c)
	}
	return append(key, 0)
}

// slowKey appends the sort key of any object: names and values in the order of the names, those of
// owned instead of its own.
func slowKey(key, obj []byte, pairs []labelPair, owned []ownedLabel) []byte {
	sets := make([][2][]byte, 0, len(pairs)+len(owned))
	for _, p := range pairs {
		name := decodeString(nil, obj[p.nameFrom:p.nameTo])
		if !slices.ContainsFunc(owned, func(l ownedLabel) bool { return l.name == string(name) }) {
			sets = append(sets, [2][]byte{name, decodeString(nil, obj[p.valueFrom:p.valueTo])})
		}
	}
	for _, l := range owned {
		if l.value != "" {
			sets = append(sets, [2][]byte{[]byte(l.name), []byte(l.value)})
		}
	}
	slices.SortFunc(sets, func(a, b [2][]byte) int { return bytes.Compare(a[0], b[0]) })
	for _, set := range sets {
		key = appendKeyText(appendKeyText(key, set[0]), set[1])
	}
	return key
}

// place is the sort key of the series in hand as it is written.
func (a *arm) place() []byte {
	if a.rl.Empty() {
		return a.key
	}
	return a.final
}

// order checks that the series in hand stands behind the one before.
func (a *arm) order() bool {
	if a.series == 0 || a.shape == vectorShape {
		return true
	}
	switch c := bytes.Compare(a.before, a.key); {
	case c == 0:
		return a.s.fail(OutOfOrder, "%s stands twice", cutNote(a.out))
	case c > 0 && a.times.asked != nil && a.times.asked.Unsorted:
		a.turned = true
	case c > 0:
		return a.s.fail(OutOfOrder, "%s stands behind a greater label set", cutNote(a.out))
	}
	a.turned = a.turned || !a.rl.Empty() && bytes.Compare(a.written, a.final) > 0
	return true
}

// hold holds what label sets take beyond a constant.
func (a *arm) hold() bool {
	const free = 4 << 10
	if need := int64(cap(a.out)+cap(a.key)+cap(a.before)+cap(a.final)+cap(a.written)) - free - a.held.Used(); need > 0 {
		if err := a.held.Hold(need); err != nil {
			a.s.err = err
			return false
		}
	}
	return true
}

// run writes the result.
func (sp *splicer) run() error {
	if n := len(sp.arms); n == 0 || n > maxArms {
		return qerr.New(qerr.Internal, "answers of %d shards cannot be joined", n)
	}
	resultType := ""
	for i := range sp.arms {
		a := &sp.arms[i]
		sp.check = sp.check || !a.rl.Empty()
		switch {
		case a.end:
		case resultType == "":
			resultType = a.resultType
		case resultType != a.resultType:
			a.s.fail(WrongShape, "its result is a %s, where another shard sent a %s", a.resultType, resultType)
			return a.err()
		}
	}
	if resultType == "" {
		resultType = sp.arms[0].resultType
	}
	sp.check = sp.check || resultType == "vector" && len(sp.arms) > 1
	if err := sp.write(append(append(append(sp.out[:0], `{"resultType":"`...), resultType...), `","result":[`...)); err != nil {
		return err
	}
	var err error
	if resultType == "vector" {
		err = sp.vector()
	} else {
		err = sp.matrix()
	}
	if err != nil {
		return err
	}
	for i := range sp.arms { // those that a limit stopped
		if a := &sp.arms[i]; !a.count() {
			return a.err()
		}
	}
	return sp.write(append(sp.out[:0], `]}`...))
}

func (sp *splicer) write(b []byte) error {
	sp.out = b
	_, err := sp.w.Write(b)
	return err
}

// vector passes one shard after the other.
func (sp *splicer) vector() error {
	for i := range sp.arms {
		for a := &sp.arms[i]; !a.end; {
			if sp.full() {
				return nil
			}
			if err := sp.pass(i); err != nil {
				return err
			}
		}
	}
	return nil
}

// matrix passes the series of all shards in order.
func (sp *splicer) matrix() error {
	sp.queue.less = func(a, b int) bool {
		c := bytes.Compare(sp.arms[a].place(), sp.arms[b].place())
		return c < 0 || c == 0 && a < b
	}
	for i := range sp.arms {
		if !sp.arms[i].end {
			sp.queue.push(i)
		}
	}
	for len(sp.queue.items) > 0 {
		if sp.full() {
			return nil
		}
		i := sp.queue.items[0]
		if err := sp.pass(i); err != nil {
			return err
		}
		if sp.arms[i].end {
			sp.queue.pop()
		} else {
			sp.queue.fix()
		}
	}
	return nil
}

// full tells whether the limit is reached, there being another series.
func (sp *splicer) full() bool {
	sp.res.Truncated = sp.limit > 0 && sp.res.Series >= sp.limit
	return sp.res.Truncated
}

// pass passes the series in hand of one shard, and goes on to its next.
func (sp *splicer) pass(i int) error {
	a := &sp.arms[i]
	if sp.res.Series&1023 == 0 && sp.ctx.Err() != nil {
		return shardErr(sp.ctx, a.name, context.Cause(sp.ctx))
	}
	if err := sp.once(i); err != nil {
		return err
	}
	if a.turned && !sp.w.Committed() {
		return fmt.Errorf("shard %s: %w", a.name, ErrReordered)
	}
	if err := a.budget.AddSeries(1); err != nil {
		return err
	}
	out := sp.out[:0]
	if sp.res.Series > 0 {
		out = append(out, ',')
	}
	if err := sp.write(append(append(out, `{"metric":`...), a.out...)); err != nil {
		return err
	}
	sp.res.Series++
	a.series++
	a.s.copyTo(sp.w)
	if a.members(true) && a.s.stopCopy() {
		a.next(false)
	}
	return a.err()
}

// once finds label sets that stand twice.
func (sp *splicer) once(i int) error {
	a := &sp.arms[i]
	if !sp.check {
		// Nothing is relabelled, so equal sets are neighbours in a matrix; in the vector of one
		// shard there are none.
		if a.shape == matrixShape {
			if sp.res.Series > 0 && bytes.Equal(sp.last, a.key) {
				return sp.twice(i, sp.from)
			}
			sp.last, sp.from = append(sp.last[:0], a.key...), i
		}
		return nil
	}
	note := uint16(i << 1)
	if a.removed {
		note |= 1
	}
	before, found, err := sp.seen.add(a.out, note)
	if err != nil || !found {
		return err
	}
	other := int(before >> 1)
	if other == i && !a.removed && before&1 == 0 {
		a.s.fail(WrongShape, "%s stands twice", cutNote(a.out))
		return a.err()
	}
	return sp.twice(i, other)
}

func (sp *splicer) twice(i, other int) error {
	a, b := &sp.arms[max(i, other)], &sp.arms[min(i, other)]
	if i == other {
		return fmt.Errorf("shard %s: %s by removing the group's and replica labels: %w", a.name, cutNote(a.out), ErrTwice)
	}
	return fmt.Errorf("shards %s and %s both hold %s: %w", b.name, a.name, cutNote(a.out), ErrTwice)
}

// hashSet is a set of label sets as written, each with a note of 16 bits. Two sets are taken for
// equal when two hashes by secret seeds agree, 112 bits.
type hashSet struct {
	slots [][2]uint64 // the low 16 bits of the second are the note; a slot whose first is zero is empty
	n     int
	held  admit.Ledger
}

// hashSlotBytes is what a slot takes; a set has between one and a third and two and two thirds of
// them for each entry.
const hashSlotBytes = 16

// add adds a set, or returns the note of the one that is there.
func (t *hashSet) add(set []byte, note uint16) (before uint16, found bool, err error) {
	if 4*(t.n+1) > 3*len(t.slots) {
		if err := t.grow(); err != nil {
			return 0, false, err
		}
	}
	h := [2]uint64{maphash.Bytes(seedA, set) | 1, maphash.Bytes(seedB, set)&^0xffff | uint64(note)}
	slot := t.find(h)
	if slot[0] != 0 {
		return uint16(slot[1]), true, nil
	}
	*slot = h
	t.n++
	return 0, false, nil
}

// find returns the slot of a hash, or the empty one where it belongs.
func (t *hashSet) find(h [2]uint64) *[2]uint64 {
	mask := uint64(len(t.slots) - 1)
	for i := h[0] >> 1 & mask; ; i = (i + 1) & mask {
		slot := &t.slots[i]
		if slot[0] == 0 || slot[0] == h[0] && slot[1]>>16 == h[1]>>16 {
			return slot
		}
	}
}

func (t *hashSet) grow() error {
	size := max(256, 2*len(t.slots))
	if err := t.held.Hold(int64(size) * hashSlotBytes); err != nil {
		return err
	}
	old := t.slots
	t.slots = make([][2]uint64, size)
	for _, h := range old {
		if h[0] != 0 {
			*t.find(h) = h
		}
	}
	t.held.Spare(int64(len(old)) * hashSlotBytes)
	return nil
}
