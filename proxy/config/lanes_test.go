package config

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

const believed = minimal + "tenants: [{name: grafana, client_cert_cn: g, may_set: [fromalert, x-grafana-user, X-Dashboard-Uid]}, {name: plain, client_cert_cn: p}]\n"

// laneRows are lanes with one problem each.
func laneRows() []problemRow {
	lanes := func(text string) string { return believed + "lanes: [" + text + "]\n" }
	lane := func(rest string) string { return lanes("{name: a, " + rest + "}") }
	return []problemRow{
		{"no lanes", believed + "lanes: []\n", "lanes", "the list is empty"},
		{"lane without name", believed + "lanes: [{share: 0.1, match: {tenant: plain}}]\n", "lanes[0].name", "no usable name"},
		{"lane default", lanes("{name: default, share: 0.1, match: {tenant: plain}}"), "lanes[0].name", "that of the lane that is built in too"},
		{"lane twice", lanes("{name: a, share: 0.1, match: {tenant: plain}}, {name: a, share: 0.1, match: {source: api}}"), "lanes[1].name", "that of lanes[0] too"},
		{"lane without share", lane("match: {tenant: plain}"), "lanes[0].share", "the share is missing"},
		{"share 0", lane("share: 0, match: {tenant: plain}"), "lanes[0].share", "above 0"},
		{"share above 1", lane("share: 1.01, match: {tenant: plain}"), "lanes[0].share", "at most 1"},
		{"share in per cent", lane("share: 50%, match: {tenant: plain}"), "lanes[0].share", "write it like 0.25"},
		{"share not a number", lane("share: .nan, match: {tenant: plain}"), "lanes[0].share", "write it like 0.25"},
		{"shares too large", lanes("{name: a, share: 0.6, match: {tenant: plain}}, {name: b, share: 0.5, match: {source: api}}"), "lanes", "add up to 1.1,"},
		{
			"all places kept", lanes("{name: a, share: 0.5, lend: 0, match: {tenant: plain}}, {name: b, share: 0.5, lend: 0, match: {source: api}}"), "lanes",
			"leave a part for the lane default",
		},
		{"one lane keeps all", lane("share: 1, lend: 0, match: {tenant: plain}"), "lanes", "leave a part for the lane default"},
		{"lend above 1", lane("share: 0.1, lend: 1.5, match: {tenant: plain}"), "lanes[0].lend", "0 to 1"},
		{"lend below 0", lane("share: 0.1, lend: -0.5, match: {tenant: plain}"), "lanes[0].lend", "0 to 1"},
		{"lend in per cent", lane("share: 0.1, lend: 50%, match: {tenant: plain}"), "lanes[0].lend", "write it like 0.25"},
		{"max_concurrent 0", lane("share: 0.1, max_concurrent: 0, match: {tenant: plain}"), "lanes[0].max_concurrent", "0 does not mean unlimited"},
		{"lane of everybody", lane("share: 0.1, match: {}"), "lanes[0].match", "it says nothing"},
		{"lane of no tenant", lane("share: 0.1, match: {tenant: nobody}"), "lanes[0].match.tenant", `no tenant is called "nobody"`},
		{"lane without tenants", minimal + "lanes: [{name: a, share: 0.1, match: {source: alerting}}]\n", "lanes[0].match.source", "put Fromalert into the may_set"},
		{
			"lane of who may not say so", lane("share: 0.1, match: {tenant: plain, dashboard: x}"), "lanes[0].match.dashboard",
			"put X-Dashboard-Uid into",
		},
		{"lane of an unknown source", lane("share: 0.1, match: {source: prayer}"), "lanes[0].match.source", `"prayer" is no source`},
		{"too many lanes", lanes(strings.Repeat("{name: a, share: 0.01, match: {source: api}}, ", 17)), "lanes", "17 lanes are more than"},
	}
}

// TestLend: what a lane lends is read and written as it is, nothing and all of it too; what is
// built in lends half.
func TestLend(t *testing.T) {
	text := believed + "lanes: [{name: a, share: 0.1, match: {tenant: plain}}"
	for i, lend := range []string{"0", "0.0", "1", "0.25", `"0"`, "0.5"} {
		text += fmt.Sprintf(", {name: b%d, share: 0.1, lend: %s, match: {tenant: plain}}", i, lend)
	}
	c, err := parseAt([]byte(text+"]\n"), ".", testNow)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Write(&out, c); err != nil {
		t.Fatal(err)
	}
	again, err := parseAt(out.Bytes(), ".", testNow)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []Lend{0.5, 0, 0, 1, 0.25, 0, 0.5, 0.5} {
		if all, twice := c.LanesInForce(), again.LanesInForce(); all[i].Lend != want || twice[i].Lend != want {
			t.Errorf("%s lends %g, written and read %g, want %g", all[i].Name, all[i].Lend, twice[i].Lend, want)
		}
	}
	if c, err = parseAt([]byte(believed), ".", testNow); err != nil {
		t.Fatal(err)
	}
	for _, l := range c.LanesInForce() {
		if l.Lend != 0.5 {
			t.Errorf("%s lends %g", l.Name, l.Lend)
		}
	}
}

// TestLanes: what a file has is in force, with the rest for everybody else; without the key the
// lane rules is there if somebody may say that a request evaluates a rule.
func TestLanes(t *testing.T) {
	of := func(text string) *Config {
		t.Helper()
		c, err := parseAt([]byte(text), ".", testNow)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	names := func(lanes []Lane) (out string) {
		for _, l := range lanes {
			out += l.Name + " " + l.Share.String() + " "
		}
		return strings.TrimSpace(out)
	}
	if got := names(of(minimal).LanesInForce()); got != "default 1" {
		t.Error(got)
	}
	if got := names(of(believed).LanesInForce()); got != "rules 0.2 default 0.8" {
		t.Error(got)
	}
	c := of(believed + `lanes:
  - {name: oncall, share: .25, max_concurrent: 16, first: true, match: {tenant: grafana, source: dashboard, user: ada, dashboard: x}}
  - {name: b, share: "0.25", match: {tenant: plain}}
`)
	if got := names(c.LanesInForce()); got != "oncall 0.25 b 0.25 default 0.5" {
		t.Error(got)
	}
	if l := c.Lanes[0]; l.MaxConcurrent != 16 || !l.First || l.Match != (LaneMatch{"grafana", "dashboard", "ada", "x"}) {
		t.Errorf("%+v", l)
	}
	var out bytes.Buffer
	if err := Write(&out, c); err != nil {
		t.Fatal(err)
	}
	if again := of(out.String()); names(again.Lanes) != names(c.Lanes) || again.Lanes[0] != c.Lanes[0] {
		t.Errorf("written and read: %+v\n%s", again.Lanes, out.String())
	}
}
