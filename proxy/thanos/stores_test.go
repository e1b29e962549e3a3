package thanos

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMissing is what counts as missing, page by page; each case begins anew and goes through
// its pages a minute apart.
func TestMissing(t *testing.T) {
	type list = []Store
	set := func(kv ...string) map[string]string {
		m := map[string]string{}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i]] = kv[i+1]
		}
		return m
	}
	info := func(name, err string, sets ...map[string]string) Store {
		return Store{Name: name, Component: "sidecar", LabelSets: sets, Err: err}
	}
	a0, b0, a1 := set("slice", "0", "r", "a"), set("slice", "0", "r", "b"), set("slice", "1", "r", "a")
	gateway := func(name, err string, sets ...map[string]string) Store {
		i := info(name, err, sets...)
		i.Component = "store"
		return i
	}
	for _, tc := range []struct {
		name  string
		flags Flags
		pages []list
		want  []string // missing after each page: a part of the text; empty for none
		pairs []bool   // a0 and b0 were seen to be copies, or not to be; empty where neither is known
	}{
		{"all well", Flags{}, []list{{info("s0", "", a0), info("s1", "", a1)}}, []string{""}, nil},
		{"nothing at all", Flags{}, []list{{}}, []string{""}, nil},
		{"one fails and comes back", Flags{}, []list{
			{info("s0", "", a0), info("s1", "", a1)},
			{info("s0", "", a0), info("s1", "no", a1)},
			{info("s0", "", a0), info("s1", "", a1)},
		}, []string{"", "s1 (no)", ""}, nil},
		{"one fails, then leaves the list", Flags{}, []list{
			{info("s0", "", a0), info("s1", "", a1)},
			{info("s0", "", a0), info("s1", "no", a1)},
			{info("s0", "", a0)},
		}, []string{"", "s1 (no)", "s1 (no longer listed)"}, nil},
		{"a pair, one fails", Flags{}, []list{
			{info("s0", "", a0), info("s1", "", b0)},
			{info("s0", "", a0), info("s1", "no", b0)},
			{info("s0", "", a0)},
		}, []string{"", "", ""}, []bool{true}},
		{
			"two that may be a pair",
			Flags{},
			[]list{
				{info("s0", "", a0), info("s1", "", b0)},
				{info("s0", "", a0), info("s1", "no", b0)},
				{info("s0", "", a0)},
			},
			[]string{"", "s1 (no; whether s0 is a copy of it is not known", "s1 (no longer listed; whether s0 is a copy"},
			nil,
		},
		{
			"two shards that look like a pair",
			Flags{},
			[]list{
				{info("s0", "", a0), info("s1", "", b0)},
				{info("s0", "", a0), info("s1", "no", b0)},
				{info("s0", "", a0)},
			},
			[]string{"", "s1 (no)", "s1 (no longer listed)"},
			[]bool{false},
		},
		{"a pair of configured ones, one goes, then the other", Flags{Static: []string{"s0", "s1"}}, []list{{info("s0", "", a0), info("s1", "", b0)}, {info("s0", "", a0)}, {info("s0", "", a0)}, {info("s0", "no", a0)}}, []string{"", "", "", "s0 (no), sidecar s1 (no longer listed)"}, []bool{true}},
		{
			"a pair, both fail",
			Flags{},
			[]list{{info("s0", "no", a0), info("s1", "no", b0)}},
			[]string{"s0 (no), sidecar s1 (no)"},
			nil,
		},
		{
			"a pod with a new address",
			Flags{},
			[]list{{info("s0", "", a0)}, {info("s9", "", a0)}, {info("s9", "", a0)}},
			[]string{"", "", ""},
			nil,
		},
		{
			"one of two with the very same labels",
			Flags{},
			[]list{
				{gateway("g0", "", a0), gateway("g1", "", a0)},
				{gateway("g0", "", a0), gateway("g1", "no", a0)},
				{gateway("g0", "", a0)},
			},
			[]string{"", "g1 (no)", "g1 (no longer listed)"},
			nil,
		},
		{
			"a gateway does not stand for a sidecar",
			Flags{},
			[]list{{info("s0", "no", a0), gateway("g0", "", b0)}},
			[]string{"s0 (no)"},
			nil,
		},
		{"strict ones are always asked", Flags{Strict: []string{"s0"}}, []list{{info("s0", "no", a0)}}, []string{""}, nil},
		{
			"one that Thanos has never seen",
			Flags{Static: []string{"s0", "s1"}},
			[]list{{info("s0", "", a0)}},
			[]string{"s1 (never seen)"},
			nil,
		},
		{"a gateway of many labels", Flags{}, []list{{gateway("g0", "", a0, a1)}, {gateway("g0", "", a1)}}, []string{"", ""}, nil},
		{"one without series leaves", Flags{}, []list{{gateway("g0", "")}, {}}, []string{"", ""}, nil},
		{"many", Flags{}, []list{{
			info("1", "no", a0), info("2", "no", a0), info("3", "no", a0), info("4", "no", a0),
			info("5", "no", a0), info("6", "no", a0), info("7", "no", a0),
		}}, []string{"and 2 more"}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var s Stores
			for _, are := range tc.pairs {
				s.Compared(a0, b0, are)
			}
			now := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
			for i, p := range tc.pages {
				s.Page(p, Terms{Flags: tc.flags, ReplicaLabels: []string{"r"}}, now)
				got := s.Missing
				if !strings.Contains(got, tc.want[i]) || (got == "") != (tc.want[i] == "") {
					t.Errorf("page %d: missing %q, want %q", i, got, tc.want[i])
				}
				now = now.Add(time.Minute)
			}
		})
	}
	var s Stores
	now := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
	missing := func(l list, after time.Duration) bool {
		s.Page(l, Terms{}, now.Add(after))
		return s.Missing != ""
	}
	if missing(list{info("s0", "", a0)}, 0) || !missing(nil, 23*time.Hour) || missing(nil, 25*time.Hour) || len(s.seen) > 0 {
		t.Error("a store that has left is missed for a day and then forgotten")
	}
}

func FuzzStores(f *testing.F) {
	f.Add([]byte(`{"sidecar":[{"name":"s1","lastError":null,"labelSets":[{"cluster":"jaguar"}]},{"name":"s2","lastError":"no","labelSets":[]}]}`))
	f.Add([]byte(`{"store":[{"name":1}]}`))
	f.Add([]byte(`null`))
	f.Add([]byte(`{"a":null,"b":[{"labelSets":null}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		list, err := ParseStores(raw)
		if err != nil {
			return
		}
		var s Stores
		s.Page(list, Terms{ReplicaLabels: []string{"r"}}, time.Unix(0, 0))
		if len(s.seen) > maxStores {
			t.Fatalf("%d stores are remembered", len(s.seen))
		}
		if s.Page(list, Terms{}, time.Unix(60, 0)); s.Missing != "" &&
			!slices.ContainsFunc(list, func(i Store) bool { return i.Err != "" }) && unique(list) {
			t.Fatalf("something is missing of %s", raw)
		}
	})
}

// unique tells whether each name stands once.
func unique(list []Store) bool {
	names := map[string]bool{}
	for _, i := range list {
		names[i.Name] = true
	}
	return len(names) == len(list)
}
