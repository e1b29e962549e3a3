package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/proxy/identity"
)

// TestRulesAreNotCounselledToGoWithout: who asks as a person is told how to go without a shard that
// fails; a rule, and who has said that the answer must lack nothing, is not: an alert over a part
// resolves what fires there, and its ruler has said that it does not want that.
func TestRulesAreNotCounselledToGoWithout(t *testing.T) {
	t.Parallel()
	r := newRig(t, []rigGroup{{"jaguar", false, []int{1, 1}}, {"ibis", false, []int{1}}}, roomy(ample)+"partial_response: abort\n")
	sum := asking{name: "sum", path: "/api/v1/query", form: instantly("sum(up)")}
	fault{script: "reset"}.set(t, r.shards["ibis"][0][0], []asking{sum})
	for _, c := range []struct {
		who    string
		header [2]string
		args   []string
		want   bool
	}{
		{who: "a person", want: true},
		{who: "an alert", header: [2]string{identity.HeaderFromAlert, "true"}},
		{who: "a rule", header: [2]string{identity.HeaderRule, "abc"}},
		{who: "a ruler", args: []string{"partial_response", "false"}},
	} {
		req := r.request(t.Context(), sum, c.args...)
		if c.header[0] != "" {
			req.Header.Set(c.header[0], c.header[1])
		}
		got := r.ask(req)
		text := fmt.Sprint(got)
		if got.status == http.StatusOK || !strings.Contains(text, "ibis") {
			t.Errorf("%s: %s", c.who, got)
		}
		for _, way := range []string{"partial_response=true", "matcher"} {
			if strings.Contains(text, way) != c.want {
				t.Errorf("%s is told of %s, or is not: %s", c.who, way, got)
			}
		}
	}
}
