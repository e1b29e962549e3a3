package shard

import (
	"strings"
	"testing"
	"time"
)

// TestSpells: what was so stays known of the time in which it was, and of no other.
func TestSpells(t *testing.T) {
	var s spells
	begin := time.UnixMilli(1_700_000_000_000)
	at := func(d time.Duration) time.Time { return begin.Add(d) }
	ms := func(d time.Duration) int64 { return at(d).UnixMilli() }
	note := func(d time.Duration, text string, begun, ended bool) {
		t.Helper()
		if b, e := s.note(text, at(d)); b != begun || e != ended {
			t.Errorf("%q after %s: begun %t, ended %t", text, d, b, e)
		}
	}
	in := func(from, until time.Duration, want string) {
		t.Helper()
		if got := s.in(ms(from), ms(until)); (got == "") != (want == "") || !strings.HasPrefix(got, want) {
			t.Errorf("from %s until %s: %q, want %q", from, until, got, want)
		}
	}
	note(0, "", false, false)
	in(-time.Hour, time.Hour, "")
	note(time.Hour, "one", true, false)
	note(time.Hour+time.Minute, "two", false, false)
	in(0, time.Hour-spellLead-time.Second, "")
	in(0, time.Hour-spellLead, "two")
	in(3*time.Hour, 3*time.Hour, "two") // it goes on
	note(2*time.Hour, "", false, true)
	in(2*time.Hour+time.Second, 9*time.Hour, "")
	in(2*time.Hour, 9*time.Hour, "two (until 20")
	// Soon after, it is the same time still.
	note(2*time.Hour+spellLead, "three", true, false)
	in(2*time.Hour+time.Second, 2*time.Hour+time.Second, "three")
	note(3*time.Hour, "", false, true)
	if len(s.list) != 1 {
		t.Errorf("%d spells: %v", len(s.list), s.list)
	}
	// Many are kept as few, which nothing is lost by.
	for i := range time.Duration(2 * maxSpells) {
		note((4+i)*time.Hour, "more", true, false)
		note((4+i)*time.Hour+time.Minute, "", false, true)
	}
	if len(s.list) != maxSpells {
		t.Errorf("%d spells, want %d", len(s.list), maxSpells)
	}
	for i := range time.Duration(2 * maxSpells) {
		in((4+i)*time.Hour, (4+i)*time.Hour, "more")
	}
	last := (3 + 2*maxSpells) * time.Hour
	in(last-30*time.Minute, last-10*time.Minute, "") // between the last two
	in(0, 0, "")
}
