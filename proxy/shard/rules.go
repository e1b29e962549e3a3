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
	"github.com/spillwayproject/spillway/proxy/trust"
)

// trusted tells whether on every shard a replica has been seen to keep a promise, and none that may
// be asked has not. A replica that answers no queries counts as when it was asked last.
func (g *Group) trusted(promise func(*Replica, time.Time) (trust.State, string)) bool {
	now := time.Now()
	for _, s := range g.Shards {
		trusted := false
		for _, r := range s.Replicas {
			switch state, _ := promise(r, now); state {
			case trust.Trusted:
				trusted = true
			case trust.Broken:
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

// believed is for how long a server that answers queries is believed to have the values that it
// told last: it has been asked for them three times meanwhile.
func (r *Replica) believed() time.Duration {
	return 3*r.up.opts.FactsEvery + r.Shard.topology.stretched() + examineTimeout
}

// known is what the last check of a promise about a label has found. Who answers no queries cannot
// add anything to an answer either, and counts as when it was asked last.
func (r *Replica) known(at *trust.Fact, now time.Time, promise, label string) (state trust.State, why string) {
	r.up.mu.Lock()
	f := *at
	r.up.mu.Unlock()
	if old := f.After(r.believed(), now, label); old.State != f.State && !r.addsNothing(now) {
		f = old
	}
	return f.Of(promise, label)
}

// promised is what the shard's servers have to keep in its time, as texts that are made once.
type promised struct{ hashmod, names, shardNames string }

func (s *Shard) promises() (p promised) {
	g := s.Group
	span := fmt.Sprint(" ", g.From, g.Until, s.From, s.Until)
	if g.Hashmod != nil {
		p.hashmod = g.Hashmod.Promise(s.Hash) + span
	}
	if g.Names != nil {
		p.names = g.Names.Promise() + span
	}
	if g.homes != nil {
		p.shardNames = s.homesPromise(span)
	}
	return p
}

// values reads every value of the label that the server has in a stretch of time. A Thanos Query
// without all of its stores has not all of the values, and counts as away. One that is asked
// without a start takes that of its flag --query.default-metadata-time-range.
func (r *Replica) values(ctx context.Context, label string, from, until int64) (v trust.Values) {
	if r.MissingStores() != "" {
		return trust.Values{Away: true}
	}
	req := &endpoint.Request{ID: endpoint.LabelValues, Label: label}
	if moment(from) != "" || r.Thanos() {
		req.Start = endpoint.At(max(from, 0))
	}
	if moment(until) != "" {
		req.End = endpoint.At(until)
	}
	var answer struct {
		Status   string   `json:"status"`
		Data     []string `json:"data"`
		Warnings []string `json:"warnings"`
	}
	var nonsense error
	err := r.fetch(ctx, probeJSON, req.Path(), r.writer(req), maxFactBytes, func(page []byte) error {
		nonsense = json.Unmarshal(page, &answer)
		return nil
	})
	if err != nil {
		switch {
		case qerr.From(err).Bound == "max_response_bytes":
			return trust.Values{Unread: fmt.Sprintf("they are more than %d bytes", maxFactBytes)}
		case clientStatus(err):
			return trust.Values{Unread: fmt.Sprintf("it answers with status %d", statusOf(err))}
		}
		return trust.Values{Away: true}
	}
	if nonsense != nil || answer.Status != "success" || answer.Data == nil { // of no values there is an empty list
		return trust.Values{Unread: "its answer makes no sense"}
	}
	if len(answer.Warnings) > 0 {
		return trust.Values{Unread: fmt.Sprintf("it says %q", cleaned(answer.Warnings[0]))}
	}
	return trust.Values{List: answer.Data}
}

// tell logs a change of what is known of a promise, by its key in the configuration; meanwhile is
// what is done where it is not trusted.
func (r *Replica) tell(rule, meanwhile string, was, is trust.Fact) {
	log := r.up.opts.Logger
	switch {
	case was.State == is.State && was.Value == is.Value && was.Why == is.Why:
	case is.State == trust.Broken:
		log.Error("a shard holds series that its group's "+rule+" puts elsewhere; "+meanwhile+" until that is corrected",
			slog.String("replica", r.Name()), slog.String("value", is.Value), slog.String("why", is.Why))
	case is.State == trust.Unchecked:
		log.Warn("a shard's "+rule+" cannot be checked; "+meanwhile, slog.String("replica", r.Name()), slog.String("why", is.Why))
	case was.State == trust.Broken:
		log.Info("a shard keeps its group's "+rule+" again", slog.String("replica", r.Name()))
	}
}

// What is done while a rule is not trusted.
const (
	withoutHashmod = "every shard of the group is asked for everything"
	withoutNames   = "the group is asked for every name"
	withoutHomes   = "every shard of the group is asked for what one has alone"
)

// promises reports to check config --online what the configuration says of one server and the
// server does not keep: its group's hashmod and names, the names of other shards, and that a Thanos
// Query has all of its stores and these the group's labels.
func (o *online) promises(r *Replica) {
	if !r.asked() {
		return
	}
	if state, why := r.Hashmod(); state == trust.Broken || state == trust.Unchecked {
		gi := slices.Index(r.Shard.topology.Groups, r.Shard.Group)
		o.problems = append(o.problems, config.Problem{
			Path:    "groups[" + strconv.Itoa(gi) + "].shards[" + strconv.Itoa(r.Shard.Index) + "].hash",
			Message: r.Name() + ": " + why + "; correct the hash, the modulus or the server's relabel rules, or remove hashmod; until then every shard is asked",
		})
	}
	if state, why := r.Names(); state == trust.Broken || state == trust.Unchecked {
		gi := slices.Index(r.Shard.topology.Groups, r.Shard.Group)
		o.problems = append(o.problems, config.Problem{
			Path:    "groups[" + strconv.Itoa(gi) + "].names",
			Message: r.Name() + ": " + why + "; add a pattern for it, or remove names; until then the group is asked for every name",
		})
	}
	if state, why := r.ShardNames(); state == trust.Broken || state == trust.Unchecked {
		gi := slices.Index(r.Shard.topology.Groups, r.Shard.Group)
		o.problems = append(o.problems, config.Problem{
			Path:    "groups[" + strconv.Itoa(gi) + "].shards[" + strconv.Itoa(r.promisedBy()) + "].names",
			Message: r.Name() + ": " + why + "; see docs/trust.md, or remove names; until then every shard is asked for what one has alone",
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
