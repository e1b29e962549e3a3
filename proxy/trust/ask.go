package trust

import (
	"context"
	"maps"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/spillwayproject/spillway/proxy/endpoint"
)

// What two replicas miss within the same five minutes, at different times, hides each other in sums
// of five minutes: of a pair that is restarted one after the other, the one that was away for less
// would seem to lack nothing. So the minutes of a bucket are looked at too, and those since the
// newest closed one, of all jobs together: of each job they would be five times the answer.

const (
	// pieceBuckets is how many buckets one question covers: six hours.
	pieceBuckets = 72
	// doubtFor is how long at least a bucket is believed to differ between replicas, or to be
	// empty: history may still be filled in behind. An older one is believed for a sixtieth of its
	// age.
	doubtFor, doubtShare = time.Minute, 60
	// soundFor is how long at least a bucket is believed in which nobody lacks anything, an older
	// one for a sixtieth of its age: a server that goes on may delete what another one keeps, by
	// the size of its disk for one.
	soundFor = time.Hour
	// youngFor is how long one is believed in which nobody lacked anything before it was settled
	// old: agents that are behind send samples for minutes still, and one of them may lose what it
	// has. These are the three newest, of which the background work asks youngAhead before that is
	// over.
	youngFor, youngAhead, settled = 2 * time.Minute, 15 * time.Second, 3 * Bucket
	// What is sound is asked for again at the round half hours, a piece as a whole: each bucket at
	// a time of its own would have the piece asked for as often as it has buckets. A question that
	// not all have answered is asked again after renewAgain; it may take renewPatience, which is
	// less than what makes a server late.
	renewGrid, renewAgain, renewPatience = soundFor / 2, 5 * time.Minute, 4 * time.Second
	// openFresh is from when on the minutes since the newest closed bucket are asked for anew with
	// the last minute. Later than after a minute there would be some that neither tells of.
	openFresh = 45 * time.Second
	// maxDips is how many stretches of a piece are looked at minute by minute.
	maxDips = 4
)

// Ask asks those taking part (bit i: replica i) the same thing at once and returns their answers,
// by replica, as Decode has them. left are those that answered; a replica that could not be asked
// is not among them, and takes part no more. The error is that of a replica that sent something
// other than an answer, or of a ctx that ended.
type Ask func(ctx context.Context, part uint64, req *endpoint.Request) (answers []map[int64]Beats, left uint64, err error)

// Learn asks those taking part for what Lookup would miss. A replica that cannot be asked takes
// part no more: left are the others. Before one that could not be asked, and has answered nothing
// since, is asked about buckets, it is asked about the last minute: who is silent there is silent.
// The error is about replicas that can be asked and do not answer this. The caller holds the turn.
func (h *Heartbeats) Learn(ctx context.Context, ask Ask, part uint64, w Window, now time.Time) (left uint64, err error) {
	h.mu.Lock()
	tail := w.open && h.stale(part, now)
	h.learning = w
	h.mu.Unlock()
	if tail {
		if part, err = h.askTail(ctx, ask, part, now); err != nil {
			return 0, err
		}
	}
	for end := w.last; end >= w.first && bits.OnesCount64(part) > 1; { // newest first: what is asked for most
		h.mu.Lock()
		f, ok := h.buckets[end]
		unproven := h.unproven(part)
		h.mu.Unlock()
		if ok && f.known(part, now.UnixMilli()) {
			end -= bucketMs
			continue
		}
		if unproven && !tail {
			tail = true
			if part, err = h.askTail(ctx, ask, part, now); err != nil {
				return 0, err
			}
			continue
		}
		lo := max(w.first, end-(pieceBuckets-1)*bucketMs)
		if part, err = h.askBuckets(ctx, ask, part, lo, end, now); err != nil {
			return 0, err
		}
		end = lo - bucketMs
	}
	return part, nil
}

// Try asks replicas that take no part about the last minute, for nothing but whether they answer,
// which Ask notes. It takes no turn: who compares the others may take long.
func (h *Heartbeats) Try(ctx context.Context, ask Ask, part uint64, now time.Time) {
	_, _, _ = ask(ctx, part, h.tailRequest(now.Add(-tailLag).UnixMilli()))
}

// tailRequest asks for the last minute, which ends at t, milliseconds.
func (h *Heartbeats) tailRequest(t int64) *endpoint.Request {
	return &endpoint.Request{ID: endpoint.Query, Query: h.tailQuery(), Time: endpoint.At(t)}
}

// Refresh keeps up to date what is known of the last hour and the last minute, and which replica
// lacks something. The caller holds the turn, and calls it every few seconds.
func (h *Heartbeats) Refresh(ctx context.Context, ask Ask, part uint64, now time.Time) {
	closed := lastClosed(now.UnixMilli())
	if bits.OnesCount64(part) < 2 { // nobody to compare with
		h.noteLacking(0, closed, now)
		h.reachUnknown()
		return
	}
	// An error is kept for the shards view; until a later question succeeds the shard is read raw.
	left, err := h.askTail(ctx, ask, part, now)
	if err == nil && bits.OnesCount64(left) > 1 {
		left, err = h.askYoung(ctx, ask, left, closed, now)
	}
	if err == nil && bits.OnesCount64(left) > 1 {
		left, err = h.Learn(ctx, ask, left, Window{first: closed - (warmBuckets-1)*bucketMs, last: closed}, now)
	}
	if err != nil {
		h.reachUnknown()
	} else {
		part = left
	}
	h.noteLacking(part, closed, now)
}

// askYoung asks again about those of the newest buckets that stand for a short while only, where
// that is nearly over. What does not stand any more Learn asks about.
func (h *Heartbeats) askYoung(ctx context.Context, ask Ask, part uint64, closed int64, now time.Time) (left uint64, err error) {
	lo, due := closed, false
	h.mu.Lock()
	for end := closed; now.UnixMilli()-end < settled.Milliseconds(); end -= bucketMs {
		f := h.buckets[end]
		if !f.known(part, now.UnixMilli()) {
			break
		}
		if f.young() && now.Add(youngAhead).UnixMilli() >= f.until {
			lo, due = end, true
		}
	}
	h.mu.Unlock()
	if !due {
		return part, nil
	}
	return h.askBuckets(ctx, ask, part, lo, closed, now)
}

// Renew asks those taking part again about a piece of what is known, stands for a while yet and is
// due. Nobody waits for it, so that the caller holds no turn; who does not answer has failed
// nobody, and what is known of all stands as long as it did.
func (h *Heartbeats) Renew(ctx context.Context, ask Ask, part uint64, now time.Time) {
	lo, hi, is := h.toRenew(part, now)
	if !is || bits.OnesCount64(part) < 2 || ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, renewPatience)
	defer cancel()
	found, left, err := h.findBuckets(ctx, ask, part, lo, hi, now)
	if err == nil && left == part && slices.Equal(found.before, h.restarts()) {
		h.spare(found, part, now)
		h.keep(found, now)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for end := lo; end <= hi; end += bucketMs {
		if f, ok := h.buckets[end]; ok && f.renew != 0 {
			f.renew = max(f.renew, now.Add(renewAgain).UnixMilli())
			h.buckets[end] = f
		}
	}
}

// spare takes out of the findings those of buckets of which all of part is known, and of others.
func (h *Heartbeats) spare(found findings, part uint64, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(found.of, func(end int64, _ finding) bool {
		f := h.buckets[end]
		return (f.asked|f.unsure)&^part != 0 && f.known(part, now.UnixMilli())
	})
}

// toRenew is the newest piece of buckets in which nobody lacked anything that are to be asked about
// again: of those that somebody has looked at of late.
func (h *Heartbeats) toRenew(part uint64, now time.Time) (lo, hi int64, is bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	first := min(h.wanted[0], h.wanted[1])
	if now.Sub(h.wantedAt) >= 2*soundFor {
		return 0, 0, false
	}
	due := func(f finding) bool {
		all := (f.asked|f.unsure)&^part == 0 // what is known of one who takes no part at the moment is not lost
		return all && f.renew != 0 && now.UnixMilli() >= f.renew && f.known(part, now.UnixMilli())
	}
	for end, f := range h.buckets {
		if end >= first && due(f) && (!is || end > hi) {
			hi, is = end, true
		}
	}
	lo = max(first, hi-(pieceBuckets-1)*bucketMs)
	for lo < hi && !due(h.buckets[lo]) {
		lo += bucketMs
	}
	return lo, hi, is
}

// want notes that somebody has looked at buckets from first on; what nobody has looked at for two
// hours is not renewed. The caller holds mu.
func (h *Heartbeats) want(first int64, now time.Time) {
	if now.Sub(h.wantedAt) >= soundFor {
		h.wanted, h.wantedAt = [2]int64{math.MaxInt64, h.wanted[0]}, now
	}
	h.wanted[0] = min(h.wanted[0], first)
}

// askBuckets asks those taking part about the buckets that end in [lo, hi] and keeps the findings.
func (h *Heartbeats) askBuckets(ctx context.Context, ask Ask, part uint64, lo, hi int64, now time.Time) (left uint64, err error) {
	found, left, err := h.findBuckets(ctx, ask, part, lo, hi, now)
	if err == nil {
		h.spare(found, left, now)
		h.keep(found, now)
	}
	return left, err
}

// findings are what was found of buckets, by their ends, and since when each replica had not been
// away before they were asked for.
type findings struct {
	of     map[int64]finding
	before []time.Time
}

// findBuckets asks those taking part about the buckets that end in [lo, hi]. Those before them,
// which byPhase looks at, come with the answer.
func (h *Heartbeats) findBuckets(ctx context.Context, ask Ask, part uint64, lo, hi int64, now time.Time,
) (found findings, left uint64, err error) {
	found = findings{make(map[int64]finding, (hi-lo)/bucketMs+1), h.restarts()}
	answers, left, err := ask(ctx, part, &endpoint.Request{
		ID: endpoint.QueryRange, Query: h.beatQuery("5m"), Start: endpoint.At(lo - maxPhases*bucketMs), End: endpoint.At(hi), Step: Bucket,
	})
	if err != nil {
		return found, left, err
	}
	warm := max(lo, lastClosed(now.UnixMilli())-(warmBuckets-1)*bucketMs) // of these all minutes are known
	runs := []Span{{lo, hi}}
	if hi-lo >= warmBuckets*bucketMs {
		if runs = dips(answers, left, lo, min(hi, warm-bucketMs)); warm <= hi {
			runs = append(runs, Span{warm, hi})
		}
	}
	for _, run := range runs {
		if left, err = h.askMinutes(ctx, ask, left, answers, run); err != nil {
			return found, left, err
		}
	}
	for end := lo; end <= hi; end += bucketMs {
		found.of[end] = judge(beatsAt(answers, end), left, beatsBefore(answers, end)...)
	}
	return found, left, nil
}

// keep remembers findings, and for how long they stand.
func (h *Heartbeats) keep(found findings, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for end, f := range found.of {
		for i := range h.of {
			if h.of[i].away != found.before[i] { // by whom it was answered is not known
				f.asked &^= 1 << i
			}
		}
		age, least := time.Duration(now.UnixMilli()-end)*time.Millisecond, doubtFor
		lasting := f.sound() && age >= settled
		switch {
		case lasting:
			least = soundFor
		case f.sound():
			least = youngFor
		}
		f.until = now.Add(max(least, age/doubtShare)).UnixMilli()
		if lasting { // meanwhile it is asked for again before somebody waits for it
			grid := renewGrid.Milliseconds()
			f.renew, f.until = (f.until+grid-1)/grid*grid, 2*f.until-now.UnixMilli()
		}
		h.buckets[end] = f
	}
	h.trim()
}

// beatsAt are the answers for one bucket.
func beatsAt(answers []map[int64]Beats, end int64) []Beats {
	at := make([]Beats, len(answers))
	for i, a := range answers {
		at[i] = a[end]
	}
	return at
}

// beatsBefore are the answers for the buckets before one, the newest first.
func beatsBefore(answers []map[int64]Beats, end int64) [][]Beats {
	before := make([][]Beats, maxPhases)
	for k := range before {
		before[k] = beatsAt(answers, end-int64(k+1)*bucketMs)
	}
	return before
}

// askTail asks those taking part about the last minute, and now and then about the minutes before.
func (h *Heartbeats) askTail(ctx context.Context, ask Ask, part uint64, now time.Time) (left uint64, err error) {
	t := now.Add(-tailLag).UnixMilli()
	h.mu.Lock()
	stale := h.openStale(part, now)
	h.mu.Unlock()
	// First, since by this it is known who is silent.
	answers, left, err := ask(ctx, part, h.tailRequest(t))
	if err != nil {
		return left, err
	}
	if stale && bits.OnesCount64(left) > 1 {
		if left, err = h.askOpen(ctx, ask, left, t, now); err != nil {
			return left, err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	at := make([]Beats, len(answers))
	for i, a := range answers {
		for _, b := range a { // one instant, whatever timestamp the server writes on it
			at[i] = b
		}
	}
	if bits.OnesCount64(left) > 1 { // of one alone nothing is known, and what was is (Without)
		h.tail, h.tailAt = judge(at, left), now
	}
	for i := range h.of {
		h.of[i].unreached = 0
		for j := range at {
			if left&(1<<i) != 0 && left&(1<<j) != 0 {
				h.of[i].unreached = max(h.of[i].unreached, unreached(at[i].last, at[j].last))
			}
		}
	}
	return left, nil
}

// askMinutes adds to the answers the minutes of the buckets that end in the run.
func (h *Heartbeats) askMinutes(ctx context.Context, ask Ask, part uint64, answers []map[int64]Beats, run Span) (left uint64, err error) {
	if bits.OnesCount64(part) < 2 {
		return part, nil
	}
	minutes, left, err := ask(ctx, part, &endpoint.Request{
		ID: endpoint.QueryRange, Query: h.minuteQuery(), Start: endpoint.At(run.From - bucketMs + minuteMs), End: endpoint.At(run.Until),
		Step: minuteMs * time.Millisecond,
	})
	if err != nil {
		return left, err
	}
	for i, a := range answers {
		if a == nil {
			continue
		}
		for end := run.From; end <= run.Until; end += bucketMs {
			at := a[end]
			for k := range bucketMs / minuteMs {
				minute := minutes[i][end-int64(k)*minuteMs]
				at.slices[k] = minute.all()
			}
			a[end] = at
		}
	}
	return left, nil
}

// dips are the buckets in which a replica that would be whole has itself missed half a scrape of
// each target or more, by how many it usually makes: another one may have missed others. Asked
// minute by minute all buckets of a month would take more than twice as long.
func dips(answers []map[int64]Beats, part uint64, lo, hi int64) (runs []Span) {
	usual := make([]float64, len(answers)) // scrapes of a target in a bucket
	for i, a := range answers {
		var all []float64
		for end := lo; end <= hi; end += bucketMs {
			at := a[end]
			if n := at.all(); n.series > 0 {
				all = append(all, n.samples/float64(n.series))
			}
		}
		if slices.Sort(all); len(all) > 0 {
			usual[i] = all[len(all)/2]
		}
	}
	for end := lo; end <= hi; end += bucketMs {
		at := beatsAt(answers, end)
		whole, dip := judge(at, part, beatsBefore(answers, end)...).whole(part), false
		for i := range at {
			n := at[i].all()
			targets := float64(n.series)
			dip = dip || whole&(1<<i) != 0 && n.series >= minSlice && usual[i]*targets-n.samples >= targets/2
		}
		switch last := len(runs) - 1; {
		case !dip:
		case last >= 0 && (end-runs[last].Until <= 2*bucketMs || len(runs) == maxDips):
			runs[last].Until = end
		default:
			runs = append(runs, Span{end, end})
		}
	}
	return runs
}

// askOpen asks those taking part about the minutes up to t, milliseconds.
func (h *Heartbeats) askOpen(ctx context.Context, ask Ask, part uint64, t int64, now time.Time) (left uint64, err error) {
	answers, left, err := ask(ctx, part, &endpoint.Request{
		ID: endpoint.QueryRange, Query: h.minuteQuery(), Start: endpoint.At(t - (maxSlices-1)*minuteMs), End: endpoint.At(t),
		Step: minuteMs * time.Millisecond,
	})
	if err != nil {
		return left, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for k := range maxSlices {
		at := make([]Beats, len(answers))
		for i, a := range answers {
			minute := a[t-int64(k)*minuteMs]
			at[i].slices[k] = minute.all()
		}
		h.open[k] = judge(at, left)
	}
	h.openAt = now
	return left, nil
}
