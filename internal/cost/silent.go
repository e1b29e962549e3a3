package cost

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// What never answered leaves no sample in the time of a bill, and is not covered for all of it: a
// kube-state-metrics that was down is no cluster in which nothing was held.

// silence takes those sources out of which no scrape was answered: they cover nothing.
func (r *run) silence() {
	r.sources = slices.DeleteFunc(r.sources, func(s *source) bool {
		if slices.ContainsFunc(s.replicas, func(p *replica) bool { return len(p.times) > 0 }) {
			return false
		}
		r.silent = append(r.silent, s)
		return true
	})
	sortSources(r.silent)
}

// silentClusters are those with such a source, or one that showed nothing: whatever others tell of
// them, a part is not known.
func (r *run) silentClusters() []string {
	of := map[string]bool{}
	for _, s := range slices.Concat(r.silent, r.blank) {
		of[s.cluster] = true
	}
	return sortedKeys(of)
}

// mute are the servers of which no scrape of a source was answered, while others scrape a replica
// that they tried too.
func (s *source) mute() []string {
	out := map[string]bool{}
	for _, p := range s.replicas {
		if len(p.streams) > 0 {
			maps.Copy(out, p.tried)
		}
	}
	for _, p := range s.replicas {
		for _, one := range p.streams {
			delete(out, one.labels)
		}
	}
	return sortedKeys(out)
}

// before is how long before the range the bill looks for clusters that are not there any more.
const before = 7 * 24 * hourMillis

// vanished finds the clusters that were scraped in the week before the range, and of which there is
// not even up in it.
func (r *run) vanished(ctx context.Context, found []series) error {
	there := map[string]bool{}
	for _, s := range found {
		there[s.Metric[r.o.Names.ClusterLabel]] = true
	}
	from := r.o.Range.From.UnixMilli()
	then, err := r.o.Client.rangeQuery(ctx, r.o.Names.answered(millis(before)), from, from, hourMillis)
	var no *refusal
	if errors.As(err, &no) {
		r.unasked = fmt.Sprintf("Whether a cluster is missing that was there in the week before could not be asked: %v.", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("the clusters of the week before: %w", err)
	}
	for _, s := range then {
		c := s.Metric[r.o.Names.ClusterLabel]
		if !there[c] && slices.ContainsFunc(s.Values, func(v pair) bool { return v.v == 1 }) {
			r.lost = append(r.lost, c)
		}
	}
	slices.Sort(r.lost)
	return nil
}

// ofShard is which shard a source is, within a sentence.
func (s *source) ofShard() string {
	if s.shard == "" {
		return ""
	}
	return ", shard " + visible(s.shard) + ","
}

// unheard are sentences about sources and servers that never answered.
func (r *run) unheard() (said []string) {
	tell := func(what string) {
		said = append(said, strings.ToUpper(what[:1])+what[1:]+": nothing that it would have told of is in this bill.")
	}
	for _, s := range r.silent {
		tell(s.what() + s.ofShard() + " answered no scrape in this time")
	}
	for _, s := range r.blank {
		tell(s.answeredOnly())
	}
	for _, c := range r.lost {
		said = append(said, fmt.Sprintf("There are no scrapes of %s in this time, and there were in the week before: unless it was taken away, its pods are missing.",
			(&source{sourceKey: sourceKey{cluster: c}}).what()))
	}
	if r.unasked != "" {
		said = append(said, r.unasked)
	}
	for _, s := range r.sources {
		for _, l := range s.mute() {
			said = append(said, fmt.Sprintf("The server %s tried to scrape %s in this time, and never could: unless others have all pods, some are missing.",
				visible(l), s.what()))
		}
	}
	return said
}
