package merge

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/spillwayproject/spillway/proxy/admit"
)

// Decoding a document makes values of it: strings and copies of them, and for each object or array
// a Go value with its headers. What that costs is held before it is done: containerBytes for each
// object and array (the largest is a rule or a target with its strings' headers), keyBytes for each
// key (an entry of a map), itemBytes for each element of a list (a string's header there, with the
// list's room to grow, and in the list of all shards), and copyFactor times the bytes.
const (
	containerBytes = 512
	keyBytes       = 64
	itemBytes      = 64
	copyFactor     = 3
)

// documents are the decoded data values of all shards, in their order.
type documents[T any] struct {
	docs    []T
	res     Result
	ledgers []admit.Ledger
}

func (d *documents[T]) release() {
	for i := range d.ledgers {
		d.ledgers[i].Drop()
	}
}

// readDocuments reads small documents (rules, targets, metadata, status) at the same time, each
// checked by a Scanner and held in budget as a whole. The caller calls release, on an error too.
func readDocuments[T any](ctx context.Context, shards []Source, budget *admit.Budget) (*documents[T], error) {
	d := &documents[T]{docs: make([]T, len(shards)), ledgers: make([]admit.Ledger, len(shards))}
	answers := make([]answer, len(shards))
	err := together(shards, func(i int) error {
		d.ledgers[i] = admit.NewLedger(budget)
		return readDocument(ctx, shards[i], &d.ledgers[i], &answers[i], &d.docs[i])
	})
	var warnings, infos Notes
	for i := range shards {
		d.res.take(&answers[i], &warnings, &infos)
	}
	return d, err
}

func readDocument(ctx context.Context, src Source, held *admit.Ledger, a *answer, dst any) error {
	s := NewScanner(src.Body, held.Budget())
	defer s.Close()
	c := &capture{held: held}
	ok := readAnswer(s, a, func() bool {
		s.peek()
		s.copyTo(c)
		return s.skip(2) && s.stopCopy()
	})
	if !ok {
		return shardErr(ctx, src.Name, s.err)
	}
	fault := func(reason string) error {
		return shardErr(ctx, src.Name, &ScanError{Kind: WrongShape, Offset: s.Offset(), Reason: reason})
	}
	lists, _ := dst.(listing)
	if !a.hasData {
		if lists != nil {
			return fault("it has no data")
		}
		return nil
	}
	if err := held.Hold(s.containers*containerBytes + s.keys*keyBytes + s.items*itemBytes + copyFactor*int64(len(c.b))); err != nil {
		return err
	}
	if err := json.Unmarshal(c.b, dst); err != nil {
		// It has been checked to be JSON: what is left is its shape.
		return fault(sanitise(err.Error()))
	}
	if lists != nil && len(lists.empty()) > 0 {
		if err := held.Hold(s.keys*keyBytes + int64(len(c.b))); err != nil { // it is looked through once more
			return err
		}
		if key := lacking(c.b, lists.empty()); key != "" {
			return fault("it has no " + key)
		}
	}
	return nil
}

// listing is a document of lists that a server always sends, were they empty. One that is not there
// is no empty one: the answer is of something else, or of a part.
type listing interface {
	empty() []string // the keys of those without an element
}

// lacking is the first of the keys that an object has not got; null is nothing found, as it is for
// data.
func lacking(object []byte, keys []string) string {
	if len(keys) == 0 {
		return ""
	}
	var have map[string]json.RawMessage
	if err := json.Unmarshal(object, &have); err != nil {
		return keys[0]
	}
next:
	for _, key := range keys {
		for name := range have {
			if strings.EqualFold(name, key) { // as encoding/json has it
				continue next
			}
		}
		return key
	}
	return ""
}

// without are the keys of empty lists, given each key with the length of its list.
func without(lengths map[string]int) []string {
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(lengths)) {
		if lengths[key] == 0 {
			keys = append(keys, key)
		}
	}
	return keys
}

// capture keeps what is written to it, held in the budget.
type capture struct {
	b    []byte
	held *admit.Ledger
}

// Write takes p, or refuses by memory.budget.
func (c *capture) Write(p []byte) (int, error) {
	if need := len(c.b) + len(p); need > cap(c.b) {
		size := max(4096, 2*cap(c.b), need)
		// The old array is garbage only after the copy, so both are paid for.
		if err := c.held.Hold(int64(size)); err != nil {
			return 0, err
		}
		c.b = append(make([]byte, 0, size), c.b...)
	}
	c.b = append(c.b, p...)
	return len(p), nil
}

// writeData writes v as the data value.
func writeData(w *Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := w.budget.Hold(int64(len(b))); err != nil {
		return err
	}
	defer w.budget.Drop(int64(len(b)))
	_, err = w.Write(b)
	return err
}

// byShard groups the indices of sources into shards: replicas together, in order of their first
// source.
func byShard(shards []Source) [][]int {
	var groups [][]int
	at := map[string]int{}
	for i, src := range shards {
		if j, ok := at[src.Shard]; ok && src.Shard != "" {
			groups[j] = append(groups[j], i)
			continue
		}
		at[src.Shard] = len(groups)
		groups = append(groups, []int{i})
	}
	return groups
}
