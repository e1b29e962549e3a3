package shard

import (
	"log/slog"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

// damage begins the sentences with which Prometheus says that it cannot read what it stores. It
// sends them as 422, as its verdicts on a query, but another replica has files of its own. None of
// its other sentences begins so, whatever the query: what they quote of its text comes later.
var damage = regexp.MustCompile(`^(?:` + strings.Join([]string{
	`cannot populate chunk \d+ from block `, // tsdb/querier.go; why comes behind
	`(?:iterate chunk|create new chunk|create appender) while re-encoding: `,
	`populateChunksFromIterable: `,
	`corruption (?:in|after) `, // of the head's chunks, and its log
	`checksum mismatch `,
	`invalid (?:checksum|size|chunk encoding|magic number)\b`,
	`segment (?:index \d+ out of range|doesn't include enough bytes)`,
	`get (?:series|tombstones|postings offset entry|buffer for series|label name offsets)\b`, // tsdb/index
	`(?:read series|read meta for chunk|decode postings|expand postings|seek postings|intersecting postings)\b`,
	`lookup (?:label|symbol)\b`,
	`unknown symbol\b`,
	`open (?:index|chunk|tombstone) reader: `,
}, "|") + `)`)

// where begins what is said of damage while something is looked for: from outside, each with a
// colon.
var where = regexp.MustCompile(`^(?:expanding series|LabelValues\(\) from merge generic querier for label .*?|` +
	`LabelNames\(\) from merge generic querier|fetching (?:values of label|postings for) .*?): `)

// damaged tells whether a server says that what it stores cannot be read.
func damaged(text string) bool {
	for range 4 { // deeper than they stand in each other
		if damage.MatchString(text) {
			return true
		}
		said := where.FindString(text)
		if said == "" {
			break
		}
		text = text[len(said):]
	}
	return false
}

// damageError is the private cause of a call that a server could not answer, since it cannot read
// some of what it stores. It is well apart from that.
type damageError struct{ text string }

func (e *damageError) Error() string { return e.text }

// damageTold is when the log has said last that a server's storage is damaged, Unix nanoseconds.
type damageTold struct{ at atomic.Int64 }

// now tells whether it is to be said again.
func (d *damageTold) now(now time.Time) bool {
	last := d.at.Load()
	return (last == 0 || now.Sub(time.Unix(0, last)) >= tellAgain) && d.at.CompareAndSwap(last, now.UnixNano())
}

// damaged is the error of a server that cannot read some of what it stores.
func (r *Replica) damaged(text string) *qerr.Error {
	said := cleaned(text)
	if r.up.damage.now(time.Now()) {
		r.up.opts.Logger.Warn("a server cannot read some of what it stores; others of its shard are asked for that", slog.String("replica", r.Name()), slog.String("said", said))
	}
	e := qerr.Wrap(qerr.ShardFailed, &damageError{said}, "%s cannot read some of what it stores: %s", r.Name(), said)
	e.Advice = "a block of that server, or its disk, is damaged: see its log, and take the block out of its storage, or bring it back from a copy"
	e.Shards = []string{r.Name()}
	return e
}
