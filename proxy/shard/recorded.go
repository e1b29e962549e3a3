package shard

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/proxy/config"
)

const (
	// maxRecorded is how many names that several shards record are compared in one group.
	maxRecorded = 200
	// maxRecordedSeries is how many series of them are read of one server.
	maxRecordedSeries = 20_000
)

// recorded reports to check config --online series that rules record on two shards of a group under
// the same labels. Each shard evaluates its rules over its own part, so that a sum over nodes is a
// part of the sum on each, and no merge makes the whole of these. Of each group it holds the labels
// of at most maxRecordedSeries series of one server, and hashes of all.
func (o *online) recorded(ctx context.Context, t *Topology) {
	for gi, g := range t.Groups {
		if text := g.recordedTwice(ctx); text != "" {
			o.problems = append(o.problems, config.Problem{Path: fmt.Sprintf("groups[%d]", gi), Message: text})
		}
	}
}

// recordedTwice says which series two of the group's shards record; empty where none is found. A
// server that cannot be asked has been reported already.
func (g *Group) recordedTwice(ctx context.Context) string {
	on := map[string]int{} // shards, by the name that they record
	var asked []*Replica
	for _, s := range g.Shards {
		r := s.Replicas[0]
		if s.Thanos() || len(g.Shards) == 1 {
			continue
		}
		if names, err := r.recordedNames(ctx); err == nil {
			asked = append(asked, r)
			for name := range names {
				on[name]++
			}
		}
	}
	maps.DeleteFunc(on, func(_ string, shards int) bool { return shards < 2 })
	names := slices.Sorted(maps.Keys(on))
	if len(names) == 0 {
		return ""
	}
	names = names[:min(len(names), maxRecorded)]
	seen := map[uint64]*Replica{}
	for _, r := range asked {
		series, err := r.recordedSeries(ctx, names)
		if err != nil {
			continue
		}
		for _, ls := range series {
			h := ls.Hash()
			if before := seen[h]; before != nil && before.Shard != r.Shard {
				return fmt.Sprintf("shards %d (%s) and %d (%s) both record %s: each computes it over its own part, and answers are merged from parts that are no halves of anything; "+
					"record it where all of it is seen, in a ruler that asks Spillway (docs/ruler.md), or keep in the rule's result a label by which the shards differ",
					before.Shard.Index, before.host, r.Shard.Index, r.host, ls)
			}
			seen[h] = r
		}
	}
	return ""
}

// recordedNames are the names that the server's recording rules have.
func (r *Replica) recordedNames(ctx context.Context) (names map[string]bool, err error) {
	err = r.getData(ctx, "/api/v1/rules", url.Values{"type": {"record"}}, func(raw json.RawMessage) error {
		var d struct {
			Groups []struct {
				Rules []struct{ Name, Type string }
			}
		}
		if err := json.Unmarshal(raw, &d); err != nil {
			return err
		}
		names = map[string]bool{}
		for _, g := range d.Groups {
			for _, rule := range g.Rules {
				if rule.Type == "recording" {
					names[rule.Name] = true
				}
			}
		}
		return nil
	})
	return names, err
}

// recordedSeries are the series of those names that the server has now, as Spillway gives them.
func (r *Replica) recordedSeries(ctx context.Context, names []string) (out []labels.Labels, err error) {
	q := url.Values{"query": {`{__name__=~` + strconv.Quote(strings.Join(names, "|")) + `}`}, "limit": {strconv.Itoa(maxRecordedSeries)}}
	err = r.getData(ctx, "/api/v1/query", q, func(raw json.RawMessage) error {
		var d struct {
			Result []struct{ Metric map[string]string }
		}
		if err := json.Unmarshal(raw, &d); err != nil {
			return err
		}
		for _, s := range d.Result[:min(len(d.Result), maxRecordedSeries)] {
			for _, name := range r.Shard.Group.ownLabels() {
				delete(s.Metric, name)
			}
			out = append(out, labels.FromMap(s.Metric))
		}
		return nil
	})
	return out, err
}
