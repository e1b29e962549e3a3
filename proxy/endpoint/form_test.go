package endpoint

import (
	"net/http/httptest"
	"net/url"
	"reflect"
	"testing"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

// TestParseForm: a form says the same as the request that has it in its URL, and is refused for the
// same reasons.
func TestParseForm(t *testing.T) {
	for _, tc := range []struct {
		id   ID
		form url.Values
	}{
		{Query, url.Values{"query": {"up"}, "time": {"17.5"}}},
		{QueryRange, url.Values{"query": {`rate(x{a="b&c;d"}[5m])`}, "start": {"0"}, "end": {"60"}, "step": {"15s"}}},
		{Series, url.Values{"match[]": {"up", "down"}}},
		{Query, url.Values{"query": {"sum("}, "time": {"yesterday"}}},
		{QueryRange, url.Values{"query": {"up"}}},
	} {
		want, wantErr := Parse(httptest.NewRequest("GET", byID[tc.id].Path+"?"+tc.form.Encode(), nil), Options{})
		got, err := ParseForm(tc.id, tc.form, Options{})
		if (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() || !reflect.DeepEqual(got, want) {
			t.Errorf("%s %v: %+v, %v; want %+v, %v", tc.id, tc.form, got, err, want, wantErr)
		}
	}
	for _, id := range []ID{Read, LabelValues, "nothing"} {
		if _, err := ParseForm(id, nil, Options{}); qerr.From(err).Kind != qerr.NotFound {
			t.Errorf("%s: %v", id, err)
		}
	}
}
