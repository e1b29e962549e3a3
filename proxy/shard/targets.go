package shard

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

const (
	// maxTargetBytes bounds the answer about a server's targets: some 300,000 of them.
	maxTargetBytes = 96 << 20
	// maxTargets is how many targets are kept of one server: 8 MiB of them.
	maxTargets = 512 << 10
	// targetsTimeout bounds the question.
	targetsTimeout = 10 * time.Second
)

// targets is what a server scrapes now, as the series of up have it. A series is known by the hash
// of its labels as an answer would have them: without those that Spillway removes, with its
// group's.
type targets struct {
	hashes []uint64 // sorted, each once
	places []uint64 // of each, what place gives
	at     time.Time
}

// reading is what is known of what a server scrapes. Topologies that have it under the same labels
// share it: while one takes the other's place both read, and what the one that goes is told last
// counts.
type reading struct {
	targets atomic.Pointer[targets] // nil: not known
	untold  atomic.Pointer[untold]  // nil: it told its targets when it was last asked
	asking  atomic.Int64            // when it was last asked for them, in ns since 1970; 0: never
}

// old tells whether nobody has read them for so long that they count no more where the server
// cannot be asked.
func (t *targets) old() bool { return t == nil || time.Since(t.at) > targetsKeep }

// untold are the questions for a server's targets that came to nothing since they were last read: a
// server that cannot be asked is not, and counts as well.
type untold struct{ first, last time.Time }

// notTold notes that the server did not tell its targets just now.
func (r *Replica) notTold() {
	now := time.Now()
	u := &untold{now, now}
	if was := r.untold.Load(); was != nil {
		u.first = was.first
	}
	r.untold.Store(u)
}

// askedTargets is when the server was last asked for its targets, whatever came of it; cut tells
// that nothing did, since the question was cut off.
func (r *Replica) askedTargets() (at time.Time, cut bool) {
	if t := r.targets.Load(); t != nil {
		at = t.at
	}
	if u := r.untold.Load(); u != nil && u.last.After(at) {
		at = u.last
	}
	if asking := r.asking.Load(); asking != 0 && time.Unix(0, asking).After(at) {
		return time.Unix(0, asking), true
	}
	return at, false
}

// knownTargets are the hashes of the server's targets, unless they are too old to count; nil where
// they are not known.
func (r *Replica) knownTargets() []uint64 {
	if t := r.recentTargets(); t != nil {
		return t.hashes
	}
	return nil
}

// recentTargets are the server's targets, nil where they are not known. They count for targetsKeep
// after the server could be asked no more. That nobody has got round to asking it, or that each
// question was cut off, as while reloads come faster than all can be read, is no reason to forget
// them, nor what is wrong with them, until targetsUnread.
func (r *Replica) recentTargets() *targets {
	t := r.targets.Load()
	if !t.old() {
		return t
	}
	if t == nil || r.longGone.Load() || time.Since(t.at) > targetsUnread {
		return nil
	}
	if u := r.untold.Load(); u != nil && u.last.Sub(u.first) >= targetsKeep {
		return nil
	}
	return t
}

// Compared tells whether the shard's targets are known and there are any, so that Group.Trusted
// means that no other shard scrapes them.
func (s *Shard) Compared() bool {
	return slices.ContainsFunc(s.Replicas, func(r *Replica) bool { return len(r.knownTargets()) > 0 })
}

// readTargets reads the server's targets and keeps their hashes.
func (r *Replica) readTargets(ctx context.Context) error {
	r.asking.Store(time.Now().UnixNano())
	var all [][2]uint64
	key := r.newTargetKey()
	err := r.eachTarget(ctx, func(set []pair) error {
		if len(all) == maxTargets {
			return fmt.Errorf("%s has more than %d targets, which are not compared with those of other shards", r.Name(), maxTargets)
		}
		all = append(all, [2]uint64{key.hash(set), key.place(set)})
		return nil
	})
	if err != nil {
		if ctx.Err() == nil && !ours(err) { // else it was not asked to the end
			r.notTold()
		}
		return err
	}
	slices.SortFunc(all, func(a, b [2]uint64) int { return cmp.Compare(a[0], b[0]) })
	now := &targets{at: time.Now(), hashes: make([]uint64, 0, len(all)), places: make([]uint64, 0, len(all))}
	for i, t := range all {
		if i == 0 || t[0] != all[i-1][0] {
			now.hashes, now.places = append(now.hashes, t[0]), append(now.places, t[1])
		}
	}
	if was := r.targets.Load(); was == nil || !slices.Equal(was.hashes, now.hashes) {
		targetChanges.Add(1)
	} else {
		now.hashes, now.places = was.hashes, was.places
	}
	r.targets.Store(now)
	r.untold.Store(nil)
	return nil
}

// maxPaths is how many targets of one job and instance are taken for one server's pages, as the
// kubelet has them; more are what a prober or a node stands for.
const maxPaths = 4

// relabelled is how many of its targets another server of the shard has by job and instance, with
// other labels besides. Where these name a prober, or the node of many pods, they tell no targets
// apart, and nothing is known: both servers have the same few targets of one.
func (t *targets) relabelled(o *targets) (n int) {
	if slices.Equal(t.hashes, o.hashes) {
		return 0
	}
	mine, theirs := t.byPlace(o), o.byPlace(t)
	for place, m := range mine {
		if m.all <= maxPaths && m.all == theirs[place].all && m.own == theirs[place].own {
			n += m.own
		}
	}
	return n
}

// atPlace is how many targets of a server have one job and instance, and how many of them another
// server does not have.
type atPlace struct{ all, own int }

func (t *targets) byPlace(o *targets) map[uint64]atPlace {
	out := make(map[uint64]atPlace, len(t.places))
	for i, place := range t.places {
		at := out[place]
		at.all++
		if _, same := slices.BinarySearch(o.hashes, t.hashes[i]); !same {
			at.own++
		}
		out[place] = at
	}
	return out
}

// errFound ends the reading of targets.
var errFound = errors.New("found")

// targetText is the label set of the target with that hash, as the server has it but for what
// Spillway sets or removes.
func (r *Replica) targetText(ctx context.Context, hash uint64) (text string, err error) {
	key := r.newTargetKey()
	err = r.eachTarget(ctx, func(set []pair) error {
		if key.hash(set) != hash {
			return nil
		}
		b := labels.NewScratchBuilder(len(set))
		for _, p := range set {
			if !key.own[string(p.name)] {
				b.Add(string(p.name), string(p.value))
			}
		}
		b.Sort()
		text = b.Labels().String()
		return errFound
	})
	if errors.Is(err, errFound) {
		return text, nil
	}
	if err == nil {
		err = errors.New("no such target")
	}
	return "", err
}

// targetKey hashes label sets of one server, one after the other.
type targetKey struct {
	own   map[string]bool // what Spillway sets or removes
	fixed []pair          // what it sets
	pairs []pair
	h     maphash.Hash
}

func (r *Replica) newTargetKey() *targetKey {
	k := &targetKey{own: map[string]bool{}}
	for _, n := range r.Shard.Group.ownLabels() {
		k.own[n] = true
	}
	r.Shard.Group.Labels.Range(func(l labels.Label) { k.fixed = append(k.fixed, pair{[]byte(l.Name), []byte(l.Value)}) })
	k.h.SetSeed(hashSeed)
	return k
}

func (k *targetKey) hash(set []pair) uint64 {
	k.pairs = append(k.pairs[:0], k.fixed...)
	for _, p := range set {
		if len(p.value) > 0 && !k.own[string(p.name)] {
			k.pairs = append(k.pairs, p)
		}
	}
	return k.sum()
}

// sum is the hash of the pairs.
func (k *targetKey) sum() uint64 {
	slices.SortFunc(k.pairs, func(a, b pair) int { return bytes.Compare(a.name, b.name) })
	k.h.Reset()
	for _, p := range k.pairs {
		_, _ = k.h.Write(p.name) // never fails
		_ = k.h.WriteByte(0xff)  // in no UTF-8 text
		_, _ = k.h.Write(p.value)
		_ = k.h.WriteByte(0xff)
	}
	return k.h.Sum64()
}

// place is hash of job and instance alone, which tell targets apart whatever other labels
// relabelling gives them; of a target without an instance it is hash.
func (k *targetKey) place(set []pair) uint64 {
	k.pairs = k.pairs[:0]
	instance := false
	for _, p := range set {
		if n := string(p.name); n == "job" || n == "instance" {
			k.pairs = append(k.pairs, p)
			instance = instance || n == "instance"
		}
	}
	if !instance {
		return k.hash(set)
	}
	return k.sum()
}

// eachTarget asks for the series of up as they are now and calls f with each; f's error ends it.
func (r *Replica) eachTarget(ctx context.Context, f func(set []pair) error) error {
	return r.eachTargetBy(ctx, r.writer(&endpoint.Request{ID: endpoint.Query, Query: "up"}), f)
}

// eachTargetBy is eachTarget by a question of its own.
func (r *Replica) eachTargetBy(ctx context.Context, question builder, f func(set []pair) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, targetsTimeout, context.DeadlineExceeded)
	defer cancel()
	resp, err := r.attempt(ctx, probeJSON, question, try{CallOptions: CallOptions{MaxBytes: maxTargetBytes}, probe: true})
	if err != nil {
		if qerr.From(err).Kind == qerr.Timeout {
			return qerr.Wrap(qerr.Timeout, err, "%s did not answer the query up within %s", r.Name(), targetsTimeout)
		}
		return err
	}
	defer resp.Body.Close()
	if err := decodeTargets(resp.Body, f); err != nil {
		if errors.Is(err, errFound) {
			return err
		}
		return fmt.Errorf("the answer to the query up makes no sense: %w", err)
	}
	return nil
}
