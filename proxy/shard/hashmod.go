package shard

import (
	"context"
	"crypto/md5"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// Hashmod is the rule by which series were given to the shards of a group: one that has the label is on the shard whose Hash is Of its value.
type Hashmod struct {
	// Label is the source label of the relabel rule.
	Label string
	// Modulus is at least 1.
	Modulus uint64
}

// Of is the number that Prometheus' relabel action hashmod gives a value: the last eight bytes of its MD5, modulo Modulus.
func (h Hashmod) Of(value string) uint64 {
	sum := md5.Sum([]byte(value))
	return binary.BigEndian.Uint64(sum[8:]) % h.Modulus
}

// HashmodState is what is known of a replica's keeping its group's rule.
type HashmodState string

// The states. The group's requests are pruned only by what HashmodTrusted says.
const (
	// HashmodUnchecked is a replica whose values could not be read yet, or not all of them.
	HashmodUnchecked HashmodState = "unchecked"
	// HashmodTrusted is a replica all of whose values hashed to its shard when they were read last.
	HashmodTrusted HashmodState = "trusted"
	// HashmodBroken is a replica that holds a value of another shard.
	HashmodBroken HashmodState = "broken"
)

// hashFact is the outcome of the last check. It belongs to a rule and a number: a reload may give the server others.
type hashFact struct {
	rule  Hashmod
	hash  uint64
	state HashmodState // empty before the first check
	value string       // one that broke the rule
	why   string       // why it is not trusted, a sentence about the server
}

// maxPruneValues is how many values of one matcher are hashed; more select nearly every shard anyway.
const maxPruneValues = 1024

// Prune tells which shards can hold series that match ms: nil where nothing is known of it, so that all must be asked; else the predicate of those that can.
// It may hold for no shard at all, where two matchers exclude each other. Matchers on labels other than that of the group's hashmod do not matter, nor do those
// that match the empty string, since series without the label may be anywhere.
//
// What it says holds at the moment: it is asked anew for each request, and only while every shard has been seen to keep the rule.
func (g *Group) Prune(ms []*labels.Matcher) func(*Shard) bool {
	if g.Hashmod == nil {
		return nil
	}
	var hold map[uint64]bool
	for _, m := range ms {
		if m.Name != g.Hashmod.Label || m.Matches("") {
			continue
		}
		var values []string
		switch m.Type {
		case labels.MatchEqual:
			values = []string{m.Value}
		case labels.MatchRegexp:
			values = m.SetMatches()
		}
		if len(values) == 0 || len(values) > maxPruneValues {
			continue
		}
		hashes := make(map[uint64]bool, len(values))
		for _, v := range values {
			if h := g.Hashmod.Of(v); hold == nil || hold[h] {
				hashes[h] = true
			}
		}
		hold = hashes
	}
	if hold == nil || !g.HashmodTrusted() {
		return nil
	}
	return func(s *Shard) bool { return s.Group != g || hold[s.Hash] }
}

// HashmodTrusted tells whether requests of the group are pruned by its hashmod: on every shard a replica has been seen to keep the rule, and none that may be
// asked has not. A replica that cannot be asked now counts as when it was asked last. Always false without a hashmod.
func (g *Group) HashmodTrusted() bool {
	if g.Hashmod == nil {
		return false
	}
	now := time.Now()
	for _, s := range g.Shards {
		trusted := false
		for _, r := range s.Replicas {
			switch state, _ := r.Hashmod(); {
			case state == HashmodTrusted:
				trusted = true
			case state == HashmodBroken:
				return false
			default:
				if _, asked := r.rank(now); asked {
					return false
				}
			}
		}
		if !trusted {
			return false
		}
	}
	return true
}

// ShardKey are the labels that tell the group's shards apart: series that agree on all of them, none of them empty, are on one shard. They are those of shard_by,
// unless that names only the label of a hashmod which a server has been seen to break: the promise is then as wrong as the rule. Without shard_by it is the
// hashmod's, while it is trusted. Nil where nothing tells them apart.
func (g *Group) ShardKey() []string {
	switch {
	case len(g.ShardBy) == 1 && g.Hashmod != nil && g.ShardBy[0] == g.Hashmod.Label && g.hashmodBroken():
		return nil
	case len(g.ShardBy) > 0:
		return g.ShardBy
	case g.HashmodTrusted():
		return []string{g.Hashmod.Label}
	}
	return nil
}

func (g *Group) hashmodBroken() bool {
	for _, s := range g.Shards {
		for _, r := range s.Replicas {
			if state, _ := r.Hashmod(); state == HashmodBroken {
				return true
			}
		}
	}
	return false
}

// Hashmod is what is known of the replica's keeping its group's rule, and why where it is not trusted. Empty without a hashmod.
func (r *Replica) Hashmod() (state HashmodState, why string) {
	rule := r.Shard.Group.Hashmod
	if rule == nil {
		return "", ""
	}
	r.up.mu.Lock()
	f := r.up.health.hashmod
	r.up.mu.Unlock()
	if f.state == "" || f.rule != *rule || f.hash != r.Shard.Hash {
		return HashmodUnchecked, "its values of " + rule.Label + " have not been read yet"
	}
	return f.state, f.why
}

// hashmodOf is the group's rule; nil where it has none.
func hashmodOf(c *config.Group) *Hashmod {
	if c.Hashmod.Modulus <= 0 || len(c.Hashmod.Labels) != 1 {
		return nil
	}
	return &Hashmod{Label: c.Hashmod.Labels[0], Modulus: uint64(c.Hashmod.Modulus)}
}

// checkHashmod reads every value of the rule's label that the server has in its shard's time and looks whether each belongs there. A server that cannot be
// asked keeps what was found before; one whose values cannot all be read is not trusted.
func (r *Replica) checkHashmod(ctx context.Context, last hashFact) hashFact {
	rule := r.Shard.Group.Hashmod
	if rule == nil {
		return hashFact{}
	}
	f := hashFact{rule: *rule, hash: r.Shard.Hash}
	if last.rule != f.rule || last.hash != f.hash {
		last = f
	}
	if r.MissingStores() != "" {
		return last // a Thanos Query without all of its stores has not all of the values
	}
	from, until := r.Shard.Span(r.up.opts.Clock())
	req := &endpoint.Request{ID: endpoint.LabelValues, Label: rule.Label}
	if moment(from) != "" {
		req.Start = endpoint.At(from)
	}
	if moment(until) != "" {
		req.End = endpoint.At(until)
	}
	raw, err := r.fetch(ctx, probeJSON, req.Path(), r.writer(req), maxFactBytes)
	unread := func(format string, args ...any) hashFact {
		f.state, f.why = HashmodUnchecked, fmt.Sprintf("its values of %s cannot be read whole: ", rule.Label)+fmt.Sprintf(format, args...)
		return f
	}
	if err != nil {
		switch {
		case qerr.From(err).Bound == "max_response_bytes":
			return unread("they are more than %d bytes", maxFactBytes)
		case clientStatus(err):
			return unread("it answers with status %d", statusOf(err))
		}
		return last
	}
	var answer struct {
		Status   string   `json:"status"`
		Data     []string `json:"data"`
		Warnings []string `json:"warnings"`
	}
	if err := json.Unmarshal(raw, &answer); err != nil || answer.Status != "success" {
		return unread("its answer makes no sense")
	}
	if len(answer.Warnings) > 0 {
		return unread("it says %q", clip(answer.Warnings[0]))
	}
	for _, v := range answer.Data {
		if h := rule.Of(v); v != "" && h != f.hash {
			f.state, f.value = HashmodBroken, clip(v)
			f.why = fmt.Sprintf("it holds %s=%q, which hashes to shard %d of %d and not to %d", rule.Label, f.value, h, rule.Modulus, f.hash)
			return f
		}
	}
	f.state = HashmodTrusted
	return f
}

// tellHashmod logs a change of what is known.
func (r *Replica) tellHashmod(was, is hashFact) {
	log := r.up.opts.Logger
	switch {
	case was.state == is.state && was.value == is.value && was.why == is.why:
	case is.state == HashmodBroken:
		log.Error("a shard holds series that its group's hashmod puts elsewhere; every shard of the group is asked for everything until that is corrected",
			slog.String("replica", r.Name()), slog.String("label", is.rule.Label), slog.String("value", is.value), slog.String("why", is.why))
	case is.state == HashmodUnchecked:
		log.Warn("a shard's hashmod cannot be checked; every shard of the group is asked for everything", slog.String("replica", r.Name()), slog.String("why", is.why))
	case was.state == HashmodBroken:
		log.Info("a shard keeps its group's hashmod again", slog.String("replica", r.Name()))
	}
}

// promises reports to check config --online what the configuration says of one server and the server does not keep: its group's hashmod, and that a Thanos Query has
// all of its stores and these the group's labels.
func (o *online) promises(r *Replica) {
	if !r.asked() {
		return
	}
	if state, why := r.Hashmod(); state == HashmodBroken || state == HashmodUnchecked {
		gi := slices.Index(r.Shard.topology.Groups, r.Shard.Group)
		o.problems = append(o.problems, config.Problem{
			Path:    "groups[" + strconv.Itoa(gi) + "].shards[" + strconv.Itoa(r.Shard.Index) + "].hash",
			Message: r.Name() + ": " + why + "; correct the hash, the modulus or the server's relabel rules, or remove hashmod; until then every shard is asked",
		})
	}
	if missing := r.MissingStores(); missing != "" {
		o.add(r, "", "a Thanos Query that answers without some of its stores: %s; its answers are refused, or flagged as partial, until they are back", missing)
	}
	if why := r.unannounced(); why != "" {
		o.add(r, "", "%s", why)
	}
}

// asked tells whether the server's own account of itself has been read at least once.
func (r *Replica) asked() bool {
	r.up.mu.Lock()
	defer r.up.mu.Unlock()
	return !r.up.health.facts.IsZero()
}
