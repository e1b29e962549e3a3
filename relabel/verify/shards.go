package verify

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"

	"github.com/spillwayproject/spillway/relabel/config"
)

// shards is how a job chooses the server's own part of a fleet by a hash.
type shards struct {
	hash  config.Rule   // hashmod
	rules []config.Rule // what keeps or drops by the hash, in order
	other bool          // by several hashes, or one that cannot be gone through
}

// maxModulus bounds the parts that are gone through.
const maxModulus = 4096

// add notes a rule that chooses by hashes.
func (s *shards) add(ru config.Rule, hashes map[string]config.Rule) {
	hash := hashes[string(ru.Config.SourceLabels[0])]
	several := len(ru.Config.SourceLabels) > 1 || len(s.rules) > 0 && spelled(s.hash.Config) != spelled(hash.Config)
	if several || hash.Config.Modulus > maxModulus {
		s.other = true
	}
	s.hash, s.rules = hash, append(s.rules, ru)
}

// keeps are the parts that the rules leave on this server.
func (s *shards) keeps() []uint64 {
	var out []uint64
	for part := range s.hash.Config.Modulus {
		lb := labels.NewBuilder(labels.FromStrings(s.hash.Config.TargetLabel, strconv.FormatUint(part, 10)))
		if !slices.ContainsFunc(s.rules, func(ru config.Rule) bool { return !relabel.ProcessBuilder(lb, ru.Config) }) {
			out = append(out, part)
		}
	}
	return out
}

// judgeShards tells of parts that no given server keeps: elsewhere they may be, or nowhere.
func (r *Result) judgeShards(jobs []*job) {
	type fleet struct{ job, hash string }
	kept := map[fleet]map[uint64]bool{}
	of := func(j *job) fleet { return fleet{j.Name, spelled(j.shards.hash.Config)} }
	for _, j := range jobs {
		if len(j.shards.rules) == 0 || j.shards.other {
			continue
		}
		if kept[of(j)] == nil {
			kept[of(j)] = map[uint64]bool{}
		}
		for _, part := range j.shards.keeps() {
			kept[of(j)][part] = true
		}
	}
	for _, j := range jobs {
		if len(j.shards.rules) == 0 {
			continue
		}
		ru := j.shards.rules[0]
		f := Finding{
			Severity: Doubtful, Check: CheckShards, RuleFile: ru.File, RuleLine: ru.Line, Job: j.Name,
			Advice: "Give the files of all servers of the fleet.",
		}
		modulus := j.shards.hash.Config.Modulus
		switch n := uint64(len(kept[of(j)])); {
		case j.shards.other:
			f.Text = fmt.Sprintf("queries may lose what job %s drops by a hash: whether another server keeps it cannot be told from these rules", j.Name)
		case n < modulus:
			f.Text = fmt.Sprintf("queries may lose what job %s drops by a hash: with the other files that are given it keeps %d of %d parts", j.Name, n, modulus)
		default:
			continue
		}
		r.add(f)
	}
}
