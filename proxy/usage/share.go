package usage

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/spillwayproject/spillway/internal/clip"
)

const (
	// OrdinaryLine is how many bytes of a line take from no share. Nearly all lines are shorter,
	// and each of them says all there is to say.
	OrdinaryLine = 4 << 10
	// sharePart is the part of a log's size that one caller may fill in an hour with what lines
	// have beyond that, and once more with texts that do not stand in it yet.
	sharePart = 64
	// leastShare is what a caller may have of a log that is very small.
	leastShare = 64 << 10
	// maxCallers bounds the callers that are told apart in an hour; others have one share together.
	maxCallers = 4096
	// maxTexts bounds the texts that are remembered.
	maxTexts = 1 << 17
	// shortQuery is how much of its text a shortened line has.
	shortQuery = 1 << 10
)

// fate is what becomes of a line.
type fate int

const (
	whole    fate = iota
	repeated      // its lists stand in another line of the hour
	unlisted      // they do not, and its caller has had its share
)

// shares are what callers have written in the hour that is under way. The zero value is ready for
// use. It is safe for concurrent use.
type shares struct {
	mu    sync.Mutex
	hour  int64
	bytes map[uint64]int64    // by caller, beyond ordinary lines; twice its share at most
	texts map[uint64]struct{} // of long lines that are whole
	seed  maphash.Seed
}

// take decides about a line of so many bytes, of a caller who may have so much.
func (s *shares) take(r *Record, size int, share int64, now time.Time) fate {
	long := int64(size) - OrdinaryLine
	if r.Caller == 0 || long <= 0 {
		return whole
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if hour := now.Unix() / 3600; hour != s.hour || s.bytes == nil {
		s.hour, s.bytes, s.texts, s.seed = hour, map[uint64]int64{}, map[uint64]struct{}{}, maphash.MakeSeed()
	}
	caller := r.Caller
	if _, known := s.bytes[caller]; !known && len(s.bytes) >= maxCallers {
		caller = 0
	}
	used := s.bytes[caller] + long
	text := s.text(r)
	_, known := s.texts[text]
	switch {
	case used > share && known:
		return repeated
	case used > 2*share:
		return unlisted
	}
	if !known && len(s.texts) < maxTexts {
		s.texts[text] = struct{}{}
	}
	s.bytes[caller] = used
	return whole
}

// forget lets no line point to another one of before: one may have been lost.
func (s *shares) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.texts)
}

// text is a hash of all that tells what the record looks at, and whether that counts as a use.
func (s *shares) text(r *Record) uint64 {
	var h maphash.Hash
	h.SetSeed(s.seed)
	for _, list := range [][]string{{r.Endpoint, r.Verdict, r.Purpose, r.Query}, r.Metrics, r.Matchers, r.Grouping, r.LE, r.Cut} {
		for _, v := range list {
			_, _ = h.WriteString(v)
			_ = h.WriteByte(0)
		}
		_ = h.WriteByte(1)
	}
	if r.Nameless {
		_ = h.WriteByte(1)
	}
	return h.Sum64()
}

// shortened is the record without its lists and all but the beginning of its text.
func shortened(r Record, f fate) Record {
	r.Facts = Facts{Query: clip.Prefix(r.Query, shortQuery) + CutMark, Nameless: r.Nameless}
	if f == repeated {
		r.Cut = []string{CutRepeat}
	} else {
		r.Cut = []string{cutGrouping, cutLE, CutMatchers, CutMetrics}
	}
	return r
}
