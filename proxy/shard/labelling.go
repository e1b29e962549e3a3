package shard

import (
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"
)

// maxSpells is how many times of a shard are kept in which its replicas' targets differed.
const maxSpells = 32

// spellLead is for how long the targets may have differed before it was seen: they are read now and
// then, and a server that could not be asked was not compared.
const spellLead = 5 * time.Minute

// spell is a time in which the targets of a shard's replicas differed, in milliseconds, both
// inclusive; until is math.MaxInt64 while they do.
type spell struct {
	text        string
	from, until int64
}

// spells are the times in which something was so, in order and apart from each other.
type spells struct {
	mu   sync.Mutex
	list []spell
}

// note says what is so now, empty for nothing, and tells whether that has begun or ended.
func (s *spells) note(text string, now time.Time) (begun, ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.list) - 1
	lasts := last >= 0 && s.list[last].until == math.MaxInt64
	switch from := now.Add(-spellLead).UnixMilli(); {
	case text == "" && lasts:
		s.list[last].until = now.UnixMilli()
		return false, true
	case text == "":
		return false, false
	case lasts:
		s.list[last].text = text
		return false, false
	case last >= 0 && s.list[last].until >= from:
		s.list[last].text, s.list[last].until = text, math.MaxInt64
	default:
		s.list = append(s.list, spell{text, from, math.MaxInt64})
	}
	if len(s.list) > maxSpells { // the two oldest are one, with what is between them
		s.list[1].from = s.list[0].from
		s.list = append(s.list[:0], s.list[1:]...)
	}
	return true, false
}

// in is what was so last in a window of milliseconds, both inclusive, and until when if that is
// over; empty for nothing.
func (s *spells) in(from, until int64) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(s.list) - 1; i >= 0; i-- {
		switch l := s.list[i]; {
		case l.from > until || l.until < from:
		case l.until == math.MaxInt64:
			return l.text
		default:
			return l.text + " (until " + time.UnixMilli(l.until).UTC().Format(time.RFC3339) + ")"
		}
	}
	return ""
}

// labelling is what is known of the times in which a shard's replicas differed in their targets: it
// goes from one topology to the next.
type labelling struct {
	relabelled spells // the same addresses, with other labels
	split      spells // other addresses
}

// splitAilment is a replica that scrapes other targets than the shard's first does.
func (s *Shard) splitAilment() (ailment, bool) {
	if s.Thanos() { // what it lists is compared instead
		return ailment{}, false
	}
	first := s.Replicas[0]
	a := first.recentTargets()
	for _, r := range s.Replicas[1:] {
		b := r.recentTargets()
		if a == nil || b == nil || len(a.hashes) == 0 || len(b.hashes) == 0 {
			continue
		}
		// One that has just begun to scrape has few, and these are the other one's too: what it
		// lacks tells the heartbeat.
		both, _ := common(a.hashes, b.hashes)
		if few := min(len(a.hashes), len(b.hashes)); 2*both < few && 2*(both+a.relabelled(b)) < few {
			return ailment{kind: SickSplit, r: r, raw: true, text: fmt.Sprintf(
				"listed as a replica of %s, but they hold different targets (%d and %d, %d in common); if they are shards, give each its own entry under shards",
				first.host, len(b.hashes), len(a.hashes), both)}, true
		}
	}
	return ailment{}, false
}

// noteLabelling notes whether the shard's replicas scrape other targets, which split says, or the
// same addresses and give them other labels, as while a relabel rule is rolled out one replica at a
// time. Single targets do in between, such as an address that goes from one pod to the next. While
// one of those that can be asked is not compared, what was known last is so still.
func (s *Shard) noteLabelling(split string, now time.Time, log *slog.Logger) {
	if s.Thanos() {
		return
	}
	text, compared, known := "", 0, true
	for i, r := range s.Replicas {
		a := r.recentTargets()
		if a == nil {
			known = known && r.doubt(time.Now()) >= 3
			continue
		}
		compared++
		for _, other := range s.Replicas[i+1:] {
			b := other.recentTargets()
			if b == nil || split != "" || text != "" {
				continue
			}
			few := float64(min(len(a.hashes), len(b.hashes)))
			if n := float64(a.relabelled(b)); n > 0 && n >= min(few/2, max(few/10, 4*math.Sqrt(few))) {
				text = fmt.Sprintf("%s and %s, replicas of shard %s, scrape the same targets and give %.0f of them other labels, as while a relabel rule is rolled out",
					r.host, other.host, s.Name(), n)
			}
		}
	}
	if text == "" && split == "" && (!known || compared < min(2, len(s.Replicas))) {
		return
	}
	s.labelling.split.note(split, now)
	switch begun, ended := s.labelling.relabelled.note(text, now); {
	case begun:
		log.Warn("replicas give the same targets other labels; one of them is read alone until they agree", slog.String("what", text))
	case ended:
		log.Info("replicas give their targets the same labels again", slog.String("shard", s.Name()))
	}
}

// Relabelled says in what the shard's replicas differed that scraped the same targets and gave many
// of them other labels, at any time of the window, in milliseconds and both inclusive: series of
// both, put together, would count each target twice. It is empty where none is known. Times before
// the first comparison of the shard's servers are not known.
func (s *Shard) Relabelled(from, until int64) string { return s.labelling.relabelled.in(from, until) }

// Split tells whether the shard's replicas scraped different targets at any time of the window, as
// Relabelled has it.
func (s *Shard) Split(from, until int64) bool { return s.labelling.split.in(from, until) != "" }
