package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/internal/clip"
)

// shardedByProblem is why series of the group cannot be divided by a label; empty where they can.
func shardedByProblem(g *Group, name string) string {
	switch _, own := g.Labels[name]; {
	case !model.UTF8Validation.IsValidLabelName(name):
		return fmt.Sprintf("%q is no label name", clip.Text(name, 40))
	case name == model.MetricNameLabel || name == model.BucketLabel || name == model.QuantileLabel:
		return name + " belongs to the metric itself: divided by it, parts of one metric would be on different shards; name a label of the target, such as node"
	case strings.HasPrefix(name, model.ReservedLabelPrefix):
		return fmt.Sprintf("%q is not stored: Prometheus drops labels that begin with __ before it stores a series; name the label that is stored, such as instance", clip.Text(name, 40))
	case len(name) > 1024:
		return "the label name is longer than 1024 bytes"
	case own:
		return name + " is one of the group's labels, which all its series have with one value; nothing can be divided by it"
	case slices.Contains(g.ReplicaLabels, name):
		return name + " is one of the replica_labels, which tell copies apart and not shards"
	default:
		return ""
	}
}

func (v *validator) shardBy(g *Group, path string) {
	path += ".shard_by"
	if len(g.ShardBy) == 0 && v.has(path) && !v.wrong[path] {
		v.problem(path, "the list is empty; name the labels that keep series together, such as [node], or remove the key")
	}
	for i, name := range g.ShardBy {
		p := path + "[" + strconv.Itoa(i) + "]"
		if msg := shardedByProblem(g, name); msg != "" {
			v.problem(p, "%s", msg)
		} else if slices.Index(g.ShardBy, name) < i {
			v.problem(p, "%s is listed twice", name)
		}
	}
}

// names checks the group's patterns of metric names, and those of its shards.
func (v *validator) names(g *Group, path string) {
	v.patterns(g.Names, path+".names", "name the metrics that the group has, such as [\"cluster:.+\", ALERTS]")
	on := map[string][]int{} // by pattern: shards
	for i := range g.Shards {
		p := path + ".shards[" + strconv.Itoa(i) + "].names"
		v.patterns(g.Shards[i].Names, p, "name the metrics that no other shard has, such as [\"kube_(pod|node)_.+\"]")
		for n, text := range g.Shards[i].Names {
			for _, j := range on[text] {
				if j != i && v.shardsOverlap(g, i, j) {
					v.problem(p+"["+strconv.Itoa(n)+"]", "shards[%d] has the pattern %q too and their times overlap; a metric is on one shard alone or on none, so leave it to one of them, or let one end (until) where the other begins (from)", j, clip.Text(text, 40))
					break
				}
			}
			on[text] = append(on[text], i)
		}
	}
}

// patterns checks a list of regular expressions for metric names.
func (v *validator) patterns(list []string, path, write string) {
	if v.wrong[path] || !v.has(path) {
		return
	}
	if n := len(list); n == 0 || n > MaxNames {
		v.problem(path, "the list has %d patterns; %s, at most %d patterns, or remove the key", n, write, MaxNames)
	}
	for i, text := range list {
		p := path + "[" + strconv.Itoa(i) + "]"
		m, err := labels.NewFastRegexMatcher(text)
		switch {
		case len(text) > 1024:
			v.problem(p, "the pattern is longer than 1024 bytes")
		case err != nil:
			v.problem(p, "%q is no regular expression: %v", clip.Text(text, 40), err)
		case m.MatchString(""):
			v.problem(p, "%q matches the empty string, so it says nothing; name metrics, such as \"cluster:.+\", or remove the key", clip.Text(text, 40))
		case slices.Index(list, text) < i:
			v.problem(p, "%q is listed twice", clip.Text(text, 40))
		}
	}
}

// hashmod checks the rule and the shards' numbers under it.
func (v *validator) hashmod(g *Group, path string) {
	h, p := &g.Hashmod, path+".hashmod"
	given := v.has(p) || h.Modulus != 0 || len(h.Labels) > 0 // of shards that were looked up, no file is at hand
	if given && !v.wrong[p] {
		switch {
		case len(h.Labels) == 0 && !v.wrong[p+".labels"]:
			v.problem(p+".labels", "hashmod needs the label that was hashed, such as labels: [node]")
		case len(h.Labels) > 1:
			v.problem(p+".labels", "one label only: of several the hash is that of their values together, and no question to a server tells which combinations it has, so the rule could not be checked")
		}
		for i, name := range h.Labels {
			if msg := shardedByProblem(g, name); msg != "" {
				v.problem(p+".labels["+strconv.Itoa(i)+"]", "%s", msg)
			}
		}
		switch {
		case h.Modulus == 0 && !v.wrong[p+".modulus"]:
			v.problem(p+".modulus", "hashmod needs the modulus, which is that of the relabel rule")
		case h.Modulus > MaxModulus:
			v.problem(p+".modulus", "%d is more than one proxy has shards for (%d)", h.Modulus, MaxModulus)
		}
	}
	byHash := map[uint64][]int{}
	for i := range g.Shards {
		s, sp := &g.Shards[i], path+".shards["+strconv.Itoa(i)+"]"
		hp := sp + ".hash"
		switch {
		case v.wrong[hp]:
		case !s.Hash.Set && given:
			v.problem(hp, "the group has hashmod, so each of its shards needs its hash, the number that the relabel rule keeps on it")
		case !s.Hash.Set:
		case !given:
			v.problem(hp, "a hash means nothing without hashmod; give the group one, such as hashmod: {labels: [node], modulus: %d}, or remove the hash", max(len(g.Shards), 1))
		case h.Modulus > 0 && s.Hash.N >= uint64(h.Modulus):
			v.problem(hp, "the hash is a remainder of the modulus (%d), so it must be below it, and is %d", h.Modulus, s.Hash.N)
		default:
			for _, j := range byHash[s.Hash.N] {
				if v.shardsOverlap(g, i, j) {
					v.problem(hp, "shards[%d] has the hash %d too and their times overlap; make them replicas of one shard, or let one end (until) where the other begins (from)", j, s.Hash.N)
					break
				}
			}
			byHash[s.Hash.N] = append(byHash[s.Hash.N], i)
		}
	}
	waits := g.ShardsFrom.Set() && len(g.Shards) == 0 // none were looked up yet: see WithShards
	if given && !waits && h.Modulus > 0 && h.Modulus <= MaxModulus {
		v.unheld(g, p)
	}
}

// unheld remarks on remainders that no shard has: a series of one is on no server of the group, if
// the rule is as the file says.
func (v *validator) unheld(g *Group, path string) {
	held := make(map[uint64]bool, len(g.Shards))
	for i := range g.Shards {
		if !g.Shards[i].Hash.Set {
			return // a problem already
		}
		held[g.Shards[i].Hash.N] = true
	}
	if len(held) >= g.Hashmod.Modulus {
		return
	}
	n := uint64(0)
	for held[n] {
		n++
	}
	v.note(path, "%d of %d remainders are on no shard, the first is %d: series of them are in no answer; add their shards, or correct the modulus", g.Hashmod.Modulus-len(held), g.Hashmod.Modulus, n)
}

// shardsOverlap tells whether two shards of the group hold a common instant, now or when relative
// ends have moved on.
func (v *validator) shardsOverlap(g *Group, i, j int) bool {
	for _, now := range v.instants() {
		iFrom, iUntil := g.ShardSpan(i, now)
		jFrom, jUntil := g.ShardSpan(j, now)
		if max(iFrom, jFrom) < min(iUntil, jUntil) {
			return true
		}
	}
	return false
}
