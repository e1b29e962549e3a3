package trust

import (
	"strings"
	"testing"
	"time"
)

var now = time.Date(2026, 11, 30, 4, 0, 0, 0, time.UTC)

// TestApart: shard_by is broken while a value of each of its labels is on two shards, trusted once
// all shards were heard and one label is disjoint, and neither before.
func TestApart(t *testing.T) {
	type has struct {
		server Server
		read   map[string][]string
		state  State
		says   string
	}
	node := func(v ...string) map[string][]string { return map[string][]string{"node": v} }
	both := func(node, zone string) map[string][]string {
		return map[string][]string{"node": strings.Fields(node), "zone": strings.Fields(zone)}
	}
	for _, tc := range []struct {
		name   string
		labels string
		hear   []has
	}{
		{"disjoint", "node", []has{
			{Server{0, 0}, node("a", "b"), Unchecked, ""},
			{Server{1, 0}, node("c"), Trusted, ""},
			{Server{1, 0}, node("c"), Trusted, ""},
		}},
		{"shared", "node", []has{
			{Server{0, 0}, node("a", "b"), Unchecked, ""},
			{Server{1, 0}, node("c", "b"), Broken, `shards one and two both hold series with node="b"; take node out`},
		}},
		{"replicas share all", "node", []has{
			{Server{0, 0}, node("a"), Unchecked, ""},
			{Server{0, 1}, node("a"), Unchecked, ""},
			{Server{1, 0}, node("b"), Trusted, ""},
		}},
		{"series without the label", "node", []has{
			{Server{0, 0}, node("a", ""), Unchecked, ""},
			{Server{1, 0}, node("b", ""), Trusted, ""},
		}},
		{"one that moves", "node", []has{
			{Server{0, 0}, node("a", "m"), Unchecked, ""},
			{Server{1, 0}, node("b"), Trusted, ""},
			{Server{1, 0}, node("b", "m"), Broken, `node="m"`},
			{Server{0, 0}, node("a"), Trusted, ""},
		}},
		{"as many others", "node", []has{
			{Server{0, 0}, node("a"), Unchecked, ""},
			{Server{1, 0}, node("b"), Trusted, ""},
			{Server{1, 0}, node("a"), Broken, `node="a"`},
		}},
		{"named by who is not asked now", "node", []has{
			{Server{0, 0}, node("a"), Unchecked, ""},
			{Server{1, 0}, node("a"), Broken, `node="a"`},
			{Server{1, 1}, node("b"), Broken, "both hold values of node"},
			{Server{0, 0}, node("a"), Broken, `node="a"`},
		}},
		{"one of two is disjoint", "node zone", []has{
			{Server{0, 0}, both("a", "z"), Unchecked, ""},
			{Server{1, 0}, both("b", "z"), Trusted, ""},
		}},
		{"the other of two is", "node zone", []has{
			{Server{0, 0}, both("a", "y"), Unchecked, ""},
			{Server{1, 0}, both("a", "z"), Trusted, ""},
		}},
		{"neither is: the combinations may be", "node zone", []has{
			{Server{0, 0}, both("a b", "y z"), Unchecked, ""},
			{Server{1, 0}, both("a", "z"), Unchecked, ""},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := NewApart(strings.Fields(tc.labels), []string{"one", "two"})
			last := Unchecked
			for i, h := range tc.hear {
				was, is := a.Compare(h.server, now, h.read)
				state, why := a.State()
				if was != last || is != h.state || state != is || !strings.Contains(why, h.says) || (why == "") != (h.says == "") {
					t.Fatalf("after %d: %s, then %s and %s, %q", i, was, is, state, why)
				}
				next := NewApart(strings.Fields(tc.labels), []string{"one", "two"})
				next.Inherit(a)
				if got, _ := next.State(); got != is {
					t.Errorf("after %d, a reload: %s, want %s", i, got, is)
				}
				last = is
			}
		})
	}
}

// TestApartInherited: what was seen to be false before a reload stays false, for the reason that
// was seen, until all shards were heard, over further reloads too.
func TestApartInherited(t *testing.T) {
	node := func(v ...string) map[string][]string { return map[string][]string{"node": v} }
	next := func(was *Apart) *Apart {
		a := NewApart([]string{"node"}, []string{"one", "two"})
		a.Inherit(was)
		return a
	}
	first := NewApart([]string{"node"}, []string{"one", "two"})
	first.Compare(Server{0, 0}, now, node("a"))
	first.Compare(Server{1, 0}, now, node("a"))
	_, reason := first.State()
	a := first
	for range 2 {
		a = next(a)
		for _, replica := range []int{0, 1, 0} {
			was, is := a.Compare(Server{0, replica}, now, node("a"))
			if _, why := a.State(); was != Broken || is != Broken || why != reason || why == "" {
				t.Errorf("one shard was heard: %s, then %s: %q, want %q", was, is, why, reason)
			}
		}
	}
	for _, tc := range []struct {
		second string
		want   State
	}{{"b", Trusted}, {"a", Broken}} {
		a := next(a)
		a.Compare(Server{0, 0}, now, node("a"))
		if _, is := a.Compare(Server{1, 0}, now, node(tc.second)); is != tc.want {
			t.Errorf("both were heard, the second with %s: %s, want %s", tc.second, is, tc.want)
		}
	}
}

// TestApartForgets: what a server had that is away says nothing against what the others have now,
// once another replica of its shard was heard of, or once its values are older than those that are
// compared.
func TestApartForgets(t *testing.T) {
	node := func(v ...string) map[string][]string { return map[string][]string{"node": v} }
	for _, tc := range []struct {
		name  string
		after time.Duration
		alive bool // the other replica of the shard
		want  State
	}{
		{"a moment ago", apartAge, true, Broken},
		{"its replica has told since", apartAge + 1, true, Trusted},
		{"the whole shard is away", apartSpan, false, Broken},
		{"the whole shard is away for long", apartSpan + 1, false, Trusted},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := NewApart([]string{"node"}, []string{"one", "two"})
			a.Compare(Server{0, 1}, now, node("a", "c"))
			a.Compare(Server{1, 0}, now, node("b"))
			then := now.Add(tc.after)
			if tc.alive {
				a.Compare(Server{0, 0}, then, node("c"))
			}
			if _, is := a.Compare(Server{1, 0}, then, node("a", "b")); is != tc.want {
				_, why := a.State()
				t.Errorf("%s, want %s: %s", is, tc.want, why)
			}
		})
	}
}

// TestApartReturns: a server that comes back with what it had, which counted no more, is judged by
// it; one that is there and cannot tell its values has those that it told last.
func TestApartReturns(t *testing.T) {
	node := func(v ...string) map[string][]string { return map[string][]string{"node": v} }
	a := NewApart([]string{"node"}, []string{"one", "two"})
	a.Compare(Server{0, 0}, now, node("a"))
	if _, is := a.Compare(Server{1, 0}, now, node("b", "a")); is != Broken {
		t.Fatalf("to begin with: %s", is)
	}
	away := now.Add(apartSpan + time.Minute)
	if _, is := a.Compare(Server{1, 0}, away, node("b", "a")); is != Trusted {
		t.Fatalf("while it is away: %s", is)
	}
	if _, is := a.Compare(Server{0, 0}, away.Add(time.Minute), node("a")); is != Broken {
		t.Errorf("back with what it had: %s", is)
	}

	b := NewApart([]string{"node"}, []string{"one", "two"})
	b.Compare(Server{0, 1}, now, node("a"))
	b.Compare(Server{1, 0}, now, node("a"))
	for m := range 20 {
		then := now.Add(time.Duration(m) * time.Minute)
		b.Stands(Server{0, 1}, then)
		b.Compare(Server{0, 0}, then, node("c"))
		if _, is := b.Compare(Server{1, 0}, then, node("a")); is != Broken {
			t.Fatalf("after %d minutes in which it served and did not tell: %s", m, is)
		}
	}
}
