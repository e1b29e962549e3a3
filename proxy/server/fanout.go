package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"golang.org/x/sync/errgroup"

	"github.com/spillwayproject/spillway/proxy/answer"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/merge"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// shardSeconds adds up how long calls to shards ran, for the usage log.
type shardSeconds struct {
	mu    sync.Mutex
	total time.Duration
}

func (s *shardSeconds) add(d time.Duration) {
	s.mu.Lock()
	s.total += d
	s.mu.Unlock()
}

// get is the sum.
func (s *shardSeconds) get() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// question is one call of a fan-out.
type question struct {
	shard *shard.Shard
	// replica is asked where set; else one of replicas, in this order, a straggler hedged; else
	// whichever the shard chooses.
	replica  *shard.Replica
	replicas []*shard.Replica
	spare    bool // should replica be found gone, another one can be asked, by a request that starts again
	// wholes are all replicas that could answer: where one fails, what the others of the fan-out
	// answered is kept, and the next one is asked in its place.
	wholes []*shard.Replica
	// part tells questions to one shard apart that are not copies of each other: each needs an
	// answer.
	part         int
	mode         plan.Mode  // of the leaf it is for; empty for none
	call         *plan.Call // of the leaf's node, where it is for one
	from, until  int64      // what its selectors read, where it is for a leaf or copied
	req          *endpoint.Request
	relabel      *merge.Relabel
	asked        *merge.Asked // what its answer must fit, where that is passed on as it is
	class        shard.Class
	limit        int
	counts       bool  // it is one of ours, which counts series before the request's own
	holds, needs int64 // what it makes the server hold at most, and surely, where it counts
	plain        bool  // uncompressed: nothing is gained by gzip where the bytes go straight on
	copied       bool  // it is one of several that need not have the same, over from to until
	exists       bool  // it asks whether there is any series: who finds one is right, whatever it lacks
	lacking      error // of such a one: why that none is found would be no answer
}

// seat is what one of several copies has to answer: a part of a request that a shard is asked.
type seat struct {
	shard *shard.Shard
	part  int
}

func (q *question) seat() seat { return seat{q.shard, q.part} }

// window is what its selectors read.
func (q *question) window() plan.Window { return plan.Window{From: q.from, Until: q.until} }

// names are the replicas that the question is for; none where the shard chooses.
func (q *question) names() []string {
	if q.replica != nil {
		return []string{q.replica.Name()}
	}
	var out []string
	for _, r := range q.replicas {
		out = append(out, r.Name())
	}
	return out
}

// replies are the answers of a fan-out. They are closed together.
type replies struct {
	sources []merge.Source
	asked   []question      // parallel to sources
	at      []int           // likewise: their places among the questions
	counted []io.ReadCloser // likewise: the bodies as explain counts them
	open    []*outcome      // those that are read side by side
	broken  error           // what ended the reading of answers that are read as they come
	calls   *shardSeconds
	fanout  *fanout

	responses []*shard.Response // parallel to asked
	lost      []lostQuestion    // those that another replica can be asked
	unread    []question        // those that exist, and had no answer which matters if none is found
}

// close ends what is still being read.
func (r *replies) close() {
	for _, o := range r.open {
		_ = o.body.Close()
		_, took := o.resp.Took()
		r.calls.add(took)
	}
	r.fanout.close()
}

// errSibling is the cause with which the other calls of a fan-out end when one of them failed.
var errSibling = errors.New("another shard failed, so the request did")

// ask sends all questions and returns when every shard has begun to answer. A replica that fails
// while another one of its shard answers is left out; a shard without an answer is an error, which
// the request may survive where it accepts partial answers.
func (x *exchange) ask(questions []question) (*replies, error) { return x.askAndRead(questions, nil) }

// askAndRead is ask for answers that are read on their own, each as it comes; without read they are
// read side by side.
func (x *exchange) askAndRead(questions []question, read reading) (*replies, error) {
	questions = slices.DeleteFunc(questions, func(q question) bool {
		return x.attempt.LeavesOut(q.shard.Name()) || q.replica != nil && x.attempt.Avoids(q.replica.Name())
	})
	x.asked += len(questions)
	x.doing.set(workAsk)
	f := x.newFanout(questions, read)
	r := &replies{calls: &x.calls, fanout: f}
	if err := f.enter(); err != nil {
		r.close()
		return nil, err
	}
	if len(questions) > 0 {
		f.run()
	}
	answered := map[seat]bool{}
	for i, q := range questions {
		res := &f.results[i]
		if res.resp == nil {
			continue
		}
		answered[q.seat()] = true
		r.at = append(r.at, i)
		if f.read == nil {
			r.open = append(r.open, res)
		} else if kept := f.kept.of(i); kept != nil {
			res.src.Body = kept
		}
		r.responses = append(r.responses, res.resp)
		r.counted = append(r.counted, res.body)
		r.sources = append(r.sources, res.src)
		r.asked = append(r.asked, q)
		if res.resp.Partial != "" {
			x.warnings.Add(partialWarning + "shard " + q.shard.Name() + ": " + res.resp.Partial)
			x.s.metrics.partial.WithLabelValues(string(x.req.ID)).Inc()
			x.less = true
		}
		if q.call != nil {
			q.call.Replica = res.resp.Replica.Name()
		}
		if q.mode != "" && x.s.observeCall != nil { // it is for a leaf
			x.s.observeCall(q.mode, q.shard.Name(), res.resp.Replica.Name(), q.req.Query)
		}
	}
	if f.broken != nil { // what else failed only followed
		r.broken = f.broken
		return r, nil
	}
	if err := x.unanswered(f, r, answered); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// maxSilent is how many further shards a sentence names that had not answered either.
const maxSilent = 5

// alsoSilent adds to the error of a server that had not answered by the deadline which shards had
// not either, so that not only one of many is looked at.
func alsoSilent(err error, shards []string) error {
	var late *qerr.Error
	var said *shard.StatusError // it did answer, that it was out of time itself; the others were not waited for
	slices.Sort(shards)
	if shards = slices.Compact(shards); len(shards) < 2 || !errors.As(err, &late) || late.Kind != qerr.Timeout || len(late.Shards) != 1 ||
		errors.As(err, &said) {
		return err
	}
	e := *late // its private cause goes along
	names, more := shards, ""
	if len(names) > maxSilent {
		names, more = names[:maxSilent], fmt.Sprintf(" and %d more", len(shards)-maxSilent)
	}
	e.Message += fmt.Sprintf(" (silent were %d shards: %s%s)", len(shards), strings.Join(names, ", "), more)
	var lost *answer.LostShard
	if errors.As(err, &lost) {
		return &answer.LostShard{Name: lost.Name, Err: &e}
	}
	return &e
}

// unanswered is the error of a fan-out in which a seat is without an answer that nobody else can be
// asked for. That a server was not asked since it has no memory left is one, whoever else has
// answered or could: the data that only it has is there, and no answer is to go without it unsaid.
func (x *exchange) unanswered(f *fanout, r *replies, answered map[seat]bool) error {
	var failed error
	var copies []question // that failed beside others
	var silent []string   // the first one to be late ended the wait for the others
	for i, q := range f.questions {
		err := f.results[i].err
		switch {
		case err == nil:
			continue
		case answered[q.seat()] && !shard.Shed(err):
			if qerr.From(err).Kind == qerr.Timeout {
				x.wasLate(err)
			}
			if q.copied && !errors.Is(err, errSibling) {
				copies = append(copies, q)
			}
			continue
		case f.results[i].lost:
			r.lost = append(r.lost, lostQuestion{q, q.names(), err})
			continue
		}
		if errors.Is(err, errSibling) || qerr.From(err).Kind == qerr.Timeout {
			silent = append(silent, q.shard.Name())
		}
		lost := x.shardError(q.shard, err) // noted, also where another one's error is the answer
		if failed == nil || errors.Is(failed, errSibling) {
			failed = lost
			names, elsewhere := q.names(), qerr.From(err).Kind == qerr.ShardFailed && !shard.Shed(err)
			if len(names) > 0 && elsewhere && x.others(q.shard, names...) {
				failed = &answer.LostReplica{Names: names, Err: err}
			}
		}
	}
	if failed == nil {
		return x.copiesUnread(f, r, copies)
	}
	return alsoSilent(failed, silent)
}

const (
	// copiesAtOnce is of how many copies it is found out at once whether they are still there, and
	// what the others lack, and copiesWait how long that may take: what is not found out is told
	// of.
	copiesAtOnce = 64
	copiesWait   = 4 * time.Second
)

// copiesUnread tells the answer's reader of copies of questions that had no answer, where the
// others that had may lack some of what it would have been. The error is that of plan.Missing.
func (x *exchange) copiesUnread(f *fanout, r *replies, copies []question) error {
	if len(copies) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(x.ctx, copiesWait)
	defer cancel()
	gone := map[*shard.Replica]func() bool{} // each is asked once
	for _, q := range copies {
		if gone[q.replica] == nil {
			gone[q.replica] = sync.OnceValue(func() bool { return q.replica.Gone(ctx) })
		}
	}
	missing := make([]bool, len(copies))
	var g errgroup.Group
	g.SetLimit(copiesAtOnce)
	for i, q := range copies {
		g.Go(func() error {
			return qerr.Guard(func() (err error) {
				missing[i], err = x.copyMissing(ctx, f, q, gone[q.replica])
				return err
			})
		})
	}
	err := g.Wait()
	for i, q := range copies {
		switch {
		case missing[i] && q.exists:
			r.unread = append(r.unread, q)
		case missing[i]:
			x.unread(q.replica)
		}
	}
	return err
}

func (x *exchange) copyMissing(ctx context.Context, f *fanout, q question, gone func() bool) (bool, error) {
	if well, err := q.shard.Well(); err != nil || !slices.Contains(well, q.replica) || gone() || x.ctx.Err() != nil {
		return false, nil // it takes no part any more
	}
	var left []*shard.Replica
	for i, other := range f.questions {
		if other.seat() == q.seat() && f.results[i].err == nil {
			left = append(left, other.replica)
		}
	}
	return plan.Missing(ctx, q.shard, []*shard.Replica{q.replica}, left, q.window(), x.view.Now(), x.unseen())
}

func (x *exchange) unread(r *shard.Replica) {
	_, text := plan.Unread(r.Name())
	x.warnings.Add(text)
}

// shardLost tells whether an error is the loss of a shard: it failed, was too late, or, for an
// answer that can go without it, had no room in time. A shard that hangs fills its own slots.
func (x *exchange) shardLost(err error) bool {
	switch e := qerr.From(err); e.Kind {
	case qerr.ShardFailed, qerr.Timeout:
		return true
	case qerr.Overloaded:
		return x.partial && len(e.Shards) > 0 // whether it is one that the answer may go without is seen later
	}
	return false
}

// shardError marks err as the loss of one shard where a partial answer could go on without it.
func (x *exchange) shardError(s *shard.Shard, err error) error {
	if x.ctx.Err() == nil && !errors.Is(err, errSibling) && x.shardLost(err) {
		x.gone.add(s.Name())
		return &answer.LostShard{Name: s.Name(), Err: err}
	}
	return err
}

// bodyError is shardError for what a merge found while reading.
func (x *exchange) bodyError(r *replies, err error) error {
	if err == nil || x.ctx.Err() != nil {
		return err
	}
	var e *qerr.Error
	if !errors.As(err, &e) || e.Kind != qerr.ShardFailed && e.Kind != qerr.Timeout || len(e.Shards) != 1 {
		return err
	}
	for i, s := range r.sources {
		if s.Name == e.Shards[0] {
			q := r.asked[i]
			if others := x.others(q.shard, s.Name); others && !x.attempt.Avoids(s.Name) {
				return &answer.LostReplica{Names: []string{s.Name}, Err: err}
			}
			return &answer.LostShard{Name: q.shard.Name(), Err: err}
		}
	}
	return err
}

// others tells whether the shard has a replica, apart from the named ones, that was not given up
// yet and can be asked, and may know as much as they.
func (x *exchange) others(s *shard.Shard, names ...string) bool {
	if x.spares(s) {
		return false
	}
	usable, err := s.Usable()
	return err == nil && slices.ContainsFunc(usable,
		func(r *shard.Replica) bool { return !slices.Contains(names, r.Name()) && !x.attempt.Avoids(r.Name()) })
}

// copies are the replicas of the shard that must be asked so that nothing in the window is missed:
// one of those that are known to be whole, else all that can be asked, so that what one missed is
// had from another. none, with no error, leaves the choice to the shard. lacking is why what they
// answer may be less than there is; nil where it is not.
func (x *exchange) copies(s *shard.Shard, from, until int64) (replicas []*shard.Replica, whole bool, lacking, err error) {
	if len(s.Replicas) == 1 {
		return nil, false, nil, nil
	}
	out := s.LeftOut(x.ctx, from, until, x.view.Now(), x.unseen())
	sound, err := x.sound(s)
	if err != nil {
		return nil, false, nil, err
	}
	wholes, err := s.Wholes(x.ctx, from, until, x.view.Now())
	if err != nil {
		return nil, false, nil, err
	}
	left := slices.DeleteFunc(slices.Clone(wholes), func(r *shard.Replica) bool { return !slices.Contains(sound, r) })
	if len(left) > 0 {
		return left, true, nil, nil
	}
	well, err := s.Well()
	if err != nil {
		return nil, false, nil, err
	}
	if lacking = plan.FailedWholes(s, wholes, well); lacking != nil {
		return sound, false, lacking, nil
	}
	failed := slices.DeleteFunc(append(well, out...), func(r *shard.Replica) bool { return slices.Contains(sound, r) })
	if len(failed) > 0 {
		var missing bool
		w := plan.Window{From: from, Until: until}
		if missing, lacking = plan.Missing(x.ctx, s, failed, sound, w, x.view.Now(), x.unseen()); missing {
			for _, r := range failed {
				x.unread(r)
			}
		}
	}
	return sound, false, lacking, nil
}

// lacks notes that the answer has less of the shard than there is, and why, which is more than
// nothing of it; the error is why, where the answer may not.
func (x *exchange) lacks(s *shard.Shard, why error) error {
	if why == nil || !x.mayLack(s) || x.req.ID.Selects() != endpoint.SelectsListed {
		return why
	}
	x.warnings.Add(partialWarning + "shard " + s.Name() + ": " + qerr.From(why).Message)
	x.less = true
	if !slices.Contains(x.lessOf, s.Name()) {
		x.lessOf = append(x.lessOf, s.Name())
		x.countLost(1)
	}
	return nil
}

// none is the error where a group's shards were asked whether there is any series, none was found,
// and one might be where nobody could be asked.
func (x *exchange) none(r *replies, g *shard.Group) error {
	for _, q := range r.unread {
		if q.shard.Group == g {
			x.unread(q.replica)
		}
	}
	for _, q := range r.asked {
		if q.shard.Group == g && q.lacking != nil {
			if err := x.lacks(q.shard, q.lacking); err != nil {
				return x.shardError(q.shard, err)
			}
		}
	}
	return nil
}

// sound are the replicas of the shard to ask where all of them are: at least one, or an error.
// Those that failed this request are left out, and of the others those that are known to be unwell,
// unless nobody else is left.
func (x *exchange) sound(s *shard.Shard) ([]*shard.Replica, error) {
	avoided := func(r *shard.Replica) bool { return x.attempt.Avoids(r.Name()) }
	well, err := s.Well()
	if err != nil {
		return nil, err
	}
	if well = slices.DeleteFunc(well, avoided); len(well) > 0 {
		return well, nil
	}
	usable, err := s.Usable()
	if err != nil {
		return nil, err
	}
	if usable = slices.DeleteFunc(usable, avoided); len(usable) > 0 {
		return usable, nil
	}
	return nil, qerr.New(qerr.ShardFailed, "shard %s has no replica left that can be asked: %s failed", s.Name(), strings.Join(x.attempt.Avoid, ", "))
}

// askCopies is the question for each of the copies that have to answer it; none where the answer
// goes without the shard.
func (x *exchange) askCopies(q question, from, until int64) ([]question, error) {
	replicas, whole, lacking, err := x.copies(q.shard, from, until)
	if q.exists {
		q.lacking = lacking
	} else if err == nil {
		err = x.lacks(q.shard, lacking)
	}
	if err != nil {
		if err = x.shardError(q.shard, err); x.attempt.LeavesOut(q.shard.Name()) {
			return nil, nil
		}
		return nil, err
	}
	if len(replicas) == 0 || whole {
		q.replicas = replicas
		return []question{q}, nil
	}
	out := make([]question, len(replicas))
	for i, r := range replicas {
		out[i] = q
		out[i].replica, out[i].copied, out[i].from, out[i].until = r, len(replicas) > 1, from, until
	}
	return out, nil
}

// target is a group with the selectors that are sent to its shards.
type target struct {
	group *shard.Group
	// sent are the selectors without matchers on the group's labels; none where the client sent
	// none.
	sent [][]*labels.Matcher
	// all tells that one of them selects everything.
	all bool
	// only are the shards to ask; all of the group where there are none.
	only []*shard.Shard
}

func (t target) shards() []*shard.Shard {
	if len(t.only) > 0 {
		return t.only
	}
	return t.group.Shards
}

// targets are the groups that can hold what the request selects.
func (x *exchange) targets() []target {
	var out []target
	for _, g := range x.st.top.Groups {
		t := target{group: g}
		if len(x.dec.Selectors) == 0 {
			t.all = true
		}
		for _, ms := range x.dec.Selectors {
			if sent, ok := plan.Strip(g, ms); ok {
				t.sent = append(t.sent, sent)
				t.all = t.all || len(sent) == 0
			}
		}
		if t.all || len(t.sent) > 0 {
			out = append(out, t)
		}
	}
	return out
}

// match is the texts of match[] for the target. Where one selector selects everything, names and
// values need none.
func (t target) match(fill bool) []string {
	if t.all && !fill {
		return nil
	}
	if t.all {
		return []string{plan.Selector(plan.Filled(nil))}
	}
	out := make([]string, len(t.sent))
	for i, ms := range t.sent {
		out[i] = plan.Selector(plan.Filled(ms))
	}
	return out
}

// window is the part of the request's window that the shard answers for; false where there is none.
func (x *exchange) window(s *shard.Shard) (from, until int64, ok bool) {
	f, u := s.Span(x.view.Now())
	from, until = max(x.dec.Start, f), x.dec.End
	if u != maxTime {
		until = min(until, u-1)
	}
	return from, until, from <= until && f < u
}

// presenceQuestions are the calls that find out whether there is a series at all, which is all that
// values of a group's own label need.
func (x *exchange) presenceQuestions(t target) ([]question, error) {
	return x.listQuestions(t, presence(t), 1, true)
}

// metadataQuestions are the calls for series, labels or label values to one group's shards. id and
// limit may differ from the client's.
func (x *exchange) metadataQuestions(t target, id endpoint.ID, limit int) ([]question, error) {
	return x.listQuestions(t, id, limit, false)
}

func (x *exchange) listQuestions(t target, id endpoint.ID, limit int, exists bool) ([]question, error) {
	var out []question
	relabel := merge.NewRelabel(t.group.Labels.Map(), plan.Owned(t.group))
	class := shard.Light
	if x.dec.Unselective {
		class = shard.Unselective
	}
	for _, s := range t.shards() {
		from, until, ok := x.window(s)
		if !ok {
			continue
		}
		req := x.dec.Request.Clone()
		req.ID, req.PartialResponse = id, x.noPart()
		if id != x.req.ID { // presence asks for no label
			req.Label = ""
		}
		req.Match = t.match(id.Requires("match[]"))
		req.Start, req.End, req.Limit = endpoint.At(from), endpoint.At(until), limit
		// A server allocates more than a megabyte to compress an answer. These come many at a time,
		// are bounded, and are the ones that must not raise it.
		q := question{shard: s, req: req, relabel: relabel, class: class, limit: limit, plain: x.dec.Unselective, exists: exists}
		asked, err := x.askCopies(q, from, until)
		if err != nil {
			return nil, err
		}
		out = append(out, asked...)
	}
	return out, nil
}
