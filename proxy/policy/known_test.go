package policy

import (
	"testing"
	"time"

	"github.com/prometheus/prometheus/prompb"

	"github.com/spillwayproject/spillway/proxy/endpoint"
)

// TestDecidedAgain: who decides twice about what he knows compiles its regular expressions once,
// also those of a remote read, and is asked once whether they may be.
func TestDecidedAgain(t *testing.T) {
	const long = "(node-1.+|node-2.+|node-3.+|node-4.+|node-5.+|node-6.+|node-7.+|node-8.+|node-9.+)"
	read := &prompb.ReadRequest{Queries: []*prompb.Query{{
		StartTimestampMs: 1, EndTimestampMs: 1000,
		Matchers: []*prompb.LabelMatcher{
			{Type: prompb.LabelMatcher_EQ, Name: "__name__", Value: "up"}, {Type: prompb.LabelMatcher_RE, Name: "instance", Value: long},
		},
	}}}
	for name, req := range map[string]*endpoint.Request{
		"read":   {ID: endpoint.Read, ReadQuery: read},
		"series": {ID: endpoint.Series, Match: []string{`up{instance=~"` + long + `"}`}},
	} {
		asked, parts := 0, 0
		known := Known{Read: func(e Effort) error { asked, parts = asked+1, e.Parts; return nil }}
		var decided []*Decision
		for range 2 {
			d, err := DecideKnown(req, testLimits(), nil, time.UnixMilli(2000), &known)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			decided = append(decided, d)
		}
		if asked != 1 || parts == 0 {
			t.Errorf("%s: asked %d times, for %d parts", name, asked, parts)
		}
		for i, m := range decided[0].Selectors[0] {
			if m.Value == long && m != decided[1].Selectors[0][i] {
				t.Errorf("%s: %s was compiled twice", name, m)
			}
		}
	}
}
