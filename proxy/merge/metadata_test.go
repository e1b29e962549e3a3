package merge

import (
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/proxy/admit"
)

// TestBareMetadata: of metadata whose owner is not known nobody's words are shown, and what shards
// and targets do not agree on is not known.
func TestBareMetadata(t *testing.T) {
	one := `{"status":"success","data":{
		"a": [{"type":"counter","unit":"","help":"mine"},{"type":"counter","unit":"","help":"theirs"}],
		"b": [{"type":"counter","unit":"","help":"x"}],
		"c_seconds_total": [{"type":"counter","unit":"seconds","help":"x"}],
		"d": [{"type":"gauge","unit":"theirs","help":"x"}],
		"e": [{"type":"theirs","unit":"","help":"x"}],
		"f_bytes": [{"type":"gauge","unit":"bytes","help":"x"},{"type":"gauge","unit":"","help":"x"}]}}`
	two := `{"status":"success","data":{"a":[{"type":"counter","unit":"","help":"other"}],"b":[{"type":"gauge","unit":"","help":"x"}]}}`
	sources := []Source{{Name: "g/1", Body: strings.NewReader(one), Bare: true}, {Name: "g/2", Body: strings.NewReader(two), Bare: true}}
	got, _, err := merged(t, "metadata", nil, sources, admit.Limits{MaxBytes: 1 << 20, MaxSeries: 100})
	want := `{"status":"success","data":{"a":[{"type":"counter","unit":"","help":""}],"b":[{"type":"unknown","unit":"","help":""}],` +
		`"c_seconds_total":[{"type":"counter","unit":"seconds","help":""}],"d":[{"type":"gauge","unit":"","help":""}],` +
		`"e":[{"type":"unknown","unit":"","help":""}],"f_bytes":[{"type":"gauge","unit":"","help":""}]}}`
	if err != nil || got != want {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
}
