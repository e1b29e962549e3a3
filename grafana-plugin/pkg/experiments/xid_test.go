package experiments

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-jsonnet"
)

// The table in Go and the one that alerts and recording rules are made of are one.
func TestXidsAreThoseOfTheMixin(t *testing.T) {
	text, err := jsonnet.MakeVM().EvaluateFile("../../../jsonnet/lib/xid.libsonnet")
	if err != nil {
		t.Fatal(err)
	}
	var mixin []struct {
		Xid         int64
		Class, Name string
	}
	if err := json.Unmarshal([]byte(text), &mixin); err != nil {
		t.Fatal(err)
	}
	var want []Xid
	for _, x := range mixin {
		want = append(want, Xid{x.Xid, Class(x.Class), x.Name})
	}
	slices.SortFunc(want, func(a, b Xid) int { return int(a.Number - b.Number) })
	if !slices.Equal(Xids, want) {
		t.Errorf("Xids are\n%v\nand those of jsonnet/lib/xid.libsonnet\n%v", Xids, want)
	}
	for _, x := range Xids {
		if !slices.Contains(Classes, x.Class) {
			t.Errorf("Xid %d has class %q, which is none of Classes", x.Number, x.Class)
		}
	}
}

// What counts as too much is what the mixin's alerts say, and what is Ethernet is what its rules
// count.
func TestBoundsAreThoseOfTheMixin(t *testing.T) {
	text, err := jsonnet.MakeVM().EvaluateAnonymousSnippet("bounds.jsonnet", `
		local c = (import '../../../jsonnet/config.libsonnet')._config;
		c.thresholds.gpu { ethernet: c.network.ethernet }`)
	if err != nil {
		t.Fatal(err)
	}
	var mixin struct {
		HotCelsius, Throttled, NVLinkReplays, PCIeReplaysPerMinute float64
		Ethernet                                                   string
	}
	if err := json.Unmarshal([]byte(text), &mixin); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name       string
		here, want any
	}{
		{"hotCelsius", float64(hotCelsius), mixin.HotCelsius},
		{"throttled", slowedShare, mixin.Throttled},
		{"nvlinkReplays", float64(nvlinkReplaysPer15m), mixin.NVLinkReplays},
		{"pcieReplaysPerMinute", float64(pcieReplaysPerMinute), mixin.PCIeReplaysPerMinute},
		{"ethernet", ethernet, mixin.Ethernet},
	} {
		if c.here != c.want {
			t.Errorf("%s is %v here and %v in jsonnet/config.libsonnet", c.name, c.here, c.want)
		}
	}
}

func TestXidOf(t *testing.T) {
	for _, c := range []struct {
		label string
		want  Xid
		ok    bool
	}{
		{"79", Xid{79, ClassDead, "GPU has fallen off the bus"}, true},
		{"13", Xid{13, ClassApp, "graphics engine exception"}, true},
		{"154", Xid{154, ClassAction, "recovery action changed"}, true},
		{"999", Xid{999, ClassUnknown, "not in the table"}, true},
		{"0", Xid{}, false},
		{"-1", Xid{}, false},
		{"", Xid{}, false},
		{"79.0", Xid{}, false},
	} {
		if got, ok := XidOf(c.label); got != c.want || ok != c.ok {
			t.Errorf("%q: %v %v, want %v %v", c.label, got, ok, c.want, c.ok)
		}
	}
}

func TestClasses(t *testing.T) {
	for i, c := range Classes {
		if a := c.Action(); a == "Ask the operators." || !strings.HasSuffix(a, ".") {
			t.Errorf("class %s has the action %q", c, a)
		}
		if c.rank() != i {
			t.Errorf("class %s has rank %d", c, c.rank())
		}
	}
	if c := Class("ours"); c.rank() != ClassUnknown.rank() || c.Action() == "" {
		t.Errorf("a site's own class has rank %d and action %q", c.rank(), c.Action())
	}
}
