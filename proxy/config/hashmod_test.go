package config

import (
	"fmt"
	"strings"
	"testing"
)

// TestHashmodIsRead: a hash of 0 is one, and what is read is printed so that it reads again.
func TestHashmodIsRead(t *testing.T) {
	cfg := parse(t, `
groups:
  - name: jaguar
    labels: {cluster: jaguar}
    shard_by: [node, pod]
    hashmod: {labels: [node], modulus: 3}
    shards:
      - {hash: 0, replicas: [{url: "http://a"}]}
      - {hash: 1, replicas: [{url: "http://b"}], until: 2026-10-01T00:00:00Z}
      - {hash: 1, replicas: [{url: "http://c", type: thanos}, {url: "http://d", type: thanos}], from: 2026-10-01T00:00:00Z}
      - {hash: 2, replicas: [{url: "http://e"}]}
`)
	g := cfg.Groups[0]
	if fmt.Sprint(g.ShardBy) != "[node pod]" || fmt.Sprint(g.Hashmod.Labels) != "[node]" || g.Hashmod.Modulus != 3 {
		t.Errorf("got %+v", g)
	}
	for i, want := range []uint64{0, 1, 1, 2} {
		if h := g.Shards[i].Hash; !h.Set || h.N != want {
			t.Errorf("shard %d has the hash %+v", i, h)
		}
	}
	if g.Shards[2].Replicas[1].Type != TypeThanos || len(cfg.Notes) > 0 {
		t.Errorf("type %s, notes %v", g.Shards[2].Replicas[1].Type, cfg.Notes)
	}
	printed := cfg.String()
	for _, s := range []string{"hash: 0", "modulus: 3", "type: thanos"} {
		if !strings.Contains(printed, s) {
			t.Errorf("%q is not printed:\n%s", s, printed)
		}
	}
	if again := parse(t, printed); again.String() != printed {
		t.Errorf("printed\n%s\nthen\n%s", printed, again)
	}
}

// hashmodRows are the files with one problem in what is said of where series are.
func hashmodRows() []problemRow {
	// with is a group of two shards; %s in rest of a shard is left empty.
	with := func(group, first, second string) string {
		return "groups: [{name: a, labels: {cluster: c}, replica_labels: [r], " + group + ", shards: [{replicas: [{url: \"http://a\"}]" + first + "}, {replicas: [{url: \"http://b\"}]" + second + "}]}]\n"
	}
	const rule, any = "hashmod: {labels: [node], modulus: 2}", "heartbeat: up"
	return []problemRow{
		{"no shard_by", with("shard_by: []", "", ""), "groups[0].shard_by", "the list is empty"},
		{"shard_by without a value", with("shard_by: ", "", ""), "groups[0].shard_by", "the list is empty"},
		{"shard_by a word", with("shard_by: node", "", ""), "groups[0].shard_by", "must be a list"},
		{"shard_by the name", with("shard_by: [__name__]", "", ""), "groups[0].shard_by[0]", "belongs to the metric itself"},
		{"shard_by le", with("shard_by: [node, le]", "", ""), "groups[0].shard_by[1]", "belongs to the metric itself"},
		{"shard_by a label of the group", with("shard_by: [cluster]", "", ""), "groups[0].shard_by[0]", "one of the group's labels"},
		{"shard_by a replica label", with("shard_by: [r]", "", ""), "groups[0].shard_by[0]", "tell copies apart"},
		{"shard_by twice", with("shard_by: [node, node]", "", ""), "groups[0].shard_by[1]", "listed twice"},
		{"shard_by nothing", with(`shard_by: [""]`, "", ""), "groups[0].shard_by[0]", "no label name"},
		{"shard_by what is not stored", with("shard_by: [__address__]", "", ""), "groups[0].shard_by[0]", "is not stored"},
		{"no hash", with(rule, ", hash: 0", ""), "groups[0].shards[1].hash", "needs its hash"},
		{"hash without hashmod", with("from: -1d", ", hash: 0", ""), "groups[0].shards[0].hash", "means nothing without hashmod"},
		{"hash too large", with(rule, ", hash: 0", ", hash: 2"), "groups[0].shards[1].hash", "must be below it"},
		{"hash negative", with(rule, ", hash: 0", ", hash: -1"), "groups[0].shards[1].hash", "not the number of a shard"},
		{"hash a word", with(rule, ", hash: 0", ", hash: one"), "groups[0].shards[1].hash", "not the number of a shard"},
		{"hash without a value", with(rule, ", hash: 0", ", hash: "), "groups[0].shards[1].hash", "has no value"},
		{"the same hash", with(rule, ", hash: 1", ", hash: 1"), "groups[0].shards[1].hash", "shards[0] has the hash 1 too and their times overlap"},
		{
			"the same hash for a while", with(rule, ", hash: 1, until: -1d", ", hash: 1, from: -2d"), "groups[0].shards[1].hash",
			"their times overlap",
		},
		{
			"the same hash some day", with(rule, ", hash: 1, until: -1d", ", hash: 1, from: 2026-12-01T00:00:00Z"),
			"groups[0].shards[1].hash",
			"their times overlap",
		},
		{"no labels", with("hashmod: {modulus: 2}", ", hash: 0", ", hash: 1"), "groups[0].hashmod.labels", "needs the label"},
		{"empty hashmod", with("hashmod: {}", ", hash: 0", ", hash: 1"), "groups[0].hashmod.modulus", "needs the modulus"},
		{"no modulus", with("hashmod: {labels: [node]}", ", hash: 0", ", hash: 1"), "groups[0].hashmod.modulus", "needs the modulus"},
		{"modulus 0", with("hashmod: {labels: [node], modulus: 0}", ", hash: 0", ", hash: 1"), "groups[0].hashmod.modulus", "at least 1"},
		{
			"huge modulus", with("hashmod: {labels: [node], modulus: 65537}", ", hash: 0", ", hash: 1"), "groups[0].hashmod.modulus",
			"more than one proxy has shards for",
		},
		{
			"several labels", with("hashmod: {labels: [node, pod], modulus: 2}", ", hash: 0", ", hash: 1"), "groups[0].hashmod.labels",
			"one label only",
		},
		{
			"a label of the group", with("hashmod: {labels: [cluster], modulus: 2}", ", hash: 0", ", hash: 1"),
			"groups[0].hashmod.labels[0]",
			"one of the group's labels",
		},
		{
			"the address", with("hashmod: {labels: [__address__], modulus: 2}", ", hash: 0", ", hash: 1"), "groups[0].hashmod.labels[0]",
			"such as instance",
		},
		{"names of nothing", with("names: []", "", ""), "groups[0].names", "has 0 patterns"},
		{"names a word", with("names: up", "", ""), "groups[0].names", "must be a list"},
		{"names no pattern", with(`names: ["a("]`, "", ""), "groups[0].names[0]", "no regular expression"},
		{"names everything", with(`names: [up, ".*"]`, "", ""), "groups[0].names[1]", "matches the empty string"},
		{"names an empty one", with(`names: [""]`, "", ""), "groups[0].names[0]", "matches the empty string"},
		{"names twice", with("names: [up, up]", "", ""), "groups[0].names[1]", "listed twice"},
		{"a shard's names of nothing", with(any, ", names: []", ""), "groups[0].shards[0].names", "has 0 patterns"},
		{"a shard's names no pattern", with(any, ", names: [\"a(\"]", ""), "groups[0].shards[0].names[0]", "no regular expression"},
		{"a shard's names everything", with(any, "", `, names: [up, ".*"]`), "groups[0].shards[1].names[1]", "matches the empty string"},
		{"a shard's names twice", with(any, "", ", names: [up, up]"), "groups[0].shards[1].names[1]", "listed twice"},
		{
			"a metric alone on two shards", with(any, `, names: ["a.+"]`, `, names: [up, "a.+"]`),
			"groups[0].shards[1].names[1]", `shards[0] has the pattern "a.+" too and their times overlap`,
		},
		{
			"a metric alone on two shards for a while", with(any, ", names: [up], until: -1d", ", names: [up], from: -2d"),
			"groups[0].shards[1].names[0]", "their times overlap",
		},
		{"two types", `groups: [{name: a, shards: [{replicas: [{url: "http://a"}, {url: "http://b", type: thanos}]}]}]`, "groups[0].shards[0].replicas[1].type", "give each type its own shard"},
		{"victoriametrics", `groups: [{name: a, shards: [{replicas: [{url: "http://a", type: victoriametrics}]}]}]`, "groups[0].shards[0].replicas[0].type", "its rate and its look-back are not PromQL's"},
	}
}

// TestRemaindersWithoutAShard are remarked on: the file is used, since the series may be on servers
// that it does not name.
func TestRemaindersWithoutAShard(t *testing.T) {
	cfg := parse(t, `groups: [{name: a, hashmod: {labels: [node], modulus: 4}, shards: [{hash: 0, replicas: [{url: "http://a"}]}, {hash: 2, replicas: [{url: "http://b"}]}]}]`)
	if len(cfg.Notes) != 1 || cfg.Notes[0].Path != "groups[0].hashmod" ||
		!strings.Contains(cfg.Notes[0].Message, "2 of 4 remainders are on no shard, the first is 1") {
		t.Errorf("notes: %v", cfg.Notes)
	}
}

// TestNamesOfShards: the same pattern stands on two shards that are not at the same time.
func TestNamesOfShards(t *testing.T) {
	cfg := parse(t, `
groups:
  - name: a
    shards:
      - {names: ["kube_.+", up], until: -2d, replicas: [{url: "http://a"}]}
      - {names: ["kube_.+"], from: -2d, replicas: [{url: "http://b"}]}
`)
	if got := fmt.Sprint(cfg.Groups[0].Shards[0].Names, cfg.Groups[0].Shards[1].Names); got != "[kube_.+ up] [kube_.+]" {
		t.Errorf("got %s", got)
	}
	if again := parse(t, cfg.String()); again.String() != cfg.String() {
		t.Errorf("printed\n%s\nthen\n%s", cfg, again)
	}
}
