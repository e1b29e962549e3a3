package endpoint

import (
	"bytes"
	"maps"
	"slices"
)

// Equal tells whether both ask for the same thing. Dropped takes no part; nil and empty lists are
// the same.
func (r *Request) Equal(o *Request) bool {
	if r == nil || o == nil {
		return r == o
	}
	return r.ID == o.ID &&
		r.Label == o.Label &&
		r.Query == o.Query &&
		slices.Equal(r.Match, o.Match) &&
		r.Time.equal(o.Time) && r.Start.equal(o.Start) && r.End.equal(o.End) &&
		r.Step == o.Step &&
		r.Timeout == o.Timeout &&
		r.LookbackDelta == o.LookbackDelta &&
		r.Limit == o.Limit &&
		r.LimitPerMetric == o.LimitPerMetric &&
		r.Stats == o.Stats &&
		equalBool(r.PartialResponse, o.PartialResponse) &&
		r.Metric == o.Metric &&
		maps.EqualFunc(r.Filters, o.Filters, slices.Equal[[]string]) &&
		r.equalRead(o)
}

// equal ignores Ms of times that are not set.
func (t Time) equal(o Time) bool { return t.Set == o.Set && (!t.Set || t.Ms == o.Ms) }

func equalBool(a, b *bool) bool {
	return a == b || a != nil && b != nil && *a == *b
}

// equalRead compares the encoded messages, which have no maps and therefore one encoding each.
func (r *Request) equalRead(o *Request) bool {
	if r.ReadQuery == nil || o.ReadQuery == nil {
		return r.ReadQuery == o.ReadQuery
	}
	a, errA := r.ReadQuery.Marshal()
	b, errB := o.ReadQuery.Marshal()
	return errA == nil && errB == nil && bytes.Equal(a, b)
}
