package shard

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// RuleState is what is known of a replica's keeping a rule that the configuration gives for its
// group: hashmod, or names. A rule prunes requests only while every server that may be asked keeps
// it.
type RuleState string

// The states. The group's requests are pruned only by what RuleTrusted says.
const (
	// RuleUnchecked is a replica whose values could not be read yet, or not all of them.
	RuleUnchecked RuleState = "unchecked"
	// RuleTrusted is a replica all of whose values kept the rule when they were read last.
	RuleTrusted RuleState = "trusted"
	// RuleBroken is a replica that holds a value which does not.
	RuleBroken RuleState = "broken"
)

// fact is the outcome of the last check of a rule on a replica.
type fact struct {
	key   string // of the rule that was checked
	state RuleState
	value string // one that broke the rule
	why   string // why it is not trusted, a sentence about the server
}

// trusted tells whether on every shard a replica has been seen to keep a rule, and none that may be
// asked has not. A replica that cannot be asked now counts as when it was asked last.
func (g *Group) trusted(rule func(*Replica) (RuleState, string)) bool {
	now := time.Now()
	for _, s := range g.Shards {
		trusted := false
		for _, r := range s.Replicas {
			switch state, _ := rule(r); state {
			case RuleTrusted:
				trusted = true
			case RuleBroken:
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

// known is what the last check of the rule with this key has found.
func (r *Replica) known(at *fact, key, label string) (state RuleState, why string) {
	r.up.mu.Lock()
	f := *at
	r.up.mu.Unlock()
	if f.state == "" || f.key != key {
		return RuleUnchecked, "its values of " + label + " have not been read yet"
	}
	return f.state, f.why
}

// checkValues reads every value of the label that the server has in its shard's time; wrong says
// why one of them breaks the rule, "" where it does not. A server that cannot be asked keeps what
// was found before; one whose values cannot all be read is not trusted.
func (r *Replica) checkValues(ctx context.Context, last fact, key, label string, wrong func(value string) string) fact {
	f := fact{key: key}
	if last.key != key {
		last = f
	}
	if r.MissingStores() != "" {
		return last // a Thanos Query without all of its stores has not all of the values
	}
	from, until := r.Shard.Span(r.up.opts.Clock())
	req := &endpoint.Request{ID: endpoint.LabelValues, Label: label}
	if moment(from) != "" {
		req.Start = endpoint.At(from)
	}
	if moment(until) != "" {
		req.End = endpoint.At(until)
	}
	raw, err := r.fetch(ctx, probeJSON, req.Path(), r.writer(req), maxFactBytes)
	unread := func(format string, args ...any) fact {
		f.state, f.why = RuleUnchecked, fmt.Sprintf("its values of %s cannot be read whole: ", label)+fmt.Sprintf(format, args...)
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
		return unread("it says %q", cleaned(answer.Warnings[0]))
	}
	for _, v := range answer.Data {
		if why := wrong(v); why != "" {
			f.state, f.value, f.why = RuleBroken, cleaned(v), why
			return f
		}
	}
	f.state = RuleTrusted
	return f
}

// tell logs a change of what is known of a rule, by its key in the configuration; meanwhile is what
// is done where it is not trusted.
func (r *Replica) tell(rule, meanwhile string, was, is fact) {
	log := r.up.opts.Logger
	switch {
	case was.state == is.state && was.value == is.value && was.why == is.why:
	case is.state == RuleBroken:
		log.Error("a shard holds series that its group's "+rule+" puts elsewhere; "+meanwhile+" until that is corrected",
			slog.String("replica", r.Name()), slog.String("value", is.value), slog.String("why", is.why))
	case is.state == RuleUnchecked:
		log.Warn("a shard's "+rule+" cannot be checked; "+meanwhile, slog.String("replica", r.Name()), slog.String("why", is.why))
	case was.state == RuleBroken:
		log.Info("a shard keeps its group's "+rule+" again", slog.String("replica", r.Name()))
	}
}

// What is done while a rule is not trusted.
const (
	withoutHashmod = "every shard of the group is asked for everything"
	withoutNames   = "the group is asked for every name"
)

// promises reports to check config --online what the configuration says of one server and the
// server does not keep: its group's hashmod and names, and that a Thanos Query has all of its
// stores and these the group's labels.
func (o *online) promises(r *Replica) {
	if !r.asked() {
		return
	}
	if state, why := r.Hashmod(); state == RuleBroken || state == RuleUnchecked {
		gi := slices.Index(r.Shard.topology.Groups, r.Shard.Group)
		o.problems = append(o.problems, config.Problem{
			Path:    "groups[" + strconv.Itoa(gi) + "].shards[" + strconv.Itoa(r.Shard.Index) + "].hash",
			Message: r.Name() + ": " + why + "; correct the hash, the modulus or the server's relabel rules, or remove hashmod; until then every shard is asked",
		})
	}
	if state, why := r.Names(); state == RuleBroken || state == RuleUnchecked {
		gi := slices.Index(r.Shard.topology.Groups, r.Shard.Group)
		o.problems = append(o.problems, config.Problem{
			Path:    "groups[" + strconv.Itoa(gi) + "].names",
			Message: r.Name() + ": " + why + "; add a pattern for it, or remove names; until then the group is asked for every name",
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
