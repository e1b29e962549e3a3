package server

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// TestListsWithoutStartSayWhatWasSearched: a list without a start is of the newest metadata_range.
// Who finds nothing, or names a metric of which there may have been more, is told so; who lists
// what there is, as completion does at each key, is not.
func TestListsWithoutStartSayWhatWasSearched(t *testing.T) {
	t.Parallel()
	r := newRig(t, []rigGroup{{"jaguar", false, []int{1, 1}}}, roomy(ample))
	for _, tc := range []struct {
		path string
		form url.Values
		want string
	}{
		{"/api/v1/labels", nil, ""},
		{"/api/v1/label/__name__/values", nil, ""},
		{"/api/v1/label/instance/values", url.Values{"match[]": {`{job="fake"}`}}, ""},
		{"/api/v1/series", url.Values{"match[]": {`{job="fake"}`}}, ""},
		{"/api/v1/label/instance/values", url.Values{"match[]": {"up"}}, "infos"},
		{"/api/v1/label/cluster/values", url.Values{"match[]": {"up"}}, "infos"},
		{"/api/v1/labels", url.Values{"match[]": {"up"}}, "infos"},
		{"/api/v1/series", url.Values{"match[]": {"up"}}, "infos"},
		{"/api/v1/series", url.Values{"match[]": {"up", `{job="fake"}`}}, "infos"},
		{"/api/v1/series", url.Values{"match[]": {"up"}, "start": {"1"}}, "narrowed"},
		{"/api/v1/label/nobody/values", nil, "warnings"},
		{"/api/v1/label/nobody/values", url.Values{"match[]": {"up"}}, "warnings"},
		{"/api/v1/series", url.Values{"match[]": {`{job="nobody"}`}}, "warnings"},
		{"/api/v1/labels", url.Values{"match[]": {`{job="nobody"}`}}, "warnings"},
		{"/api/v1/search/metric_names", url.Values{"search[]": {"zzz"}}, "warnings"},
		{"/api/v1/search/metric_names", url.Values{"search[]": {"up"}}, ""},
	} {
		code, body := ask(t, r.url, tc.path, tc.form)
		if code != http.StatusOK {
			t.Errorf("%s %v: %d %s", tc.path, tc.form, code, body)
			continue
		}
		const says = "Spillway searched the last 55m before "
		got := ""
		for _, key := range []string{"warnings", "infos"} {
			_, after, _ := strings.Cut(string(body), fmt.Sprintf(`"%s":[`, key))
			if list, _, _ := strings.Cut(after, "]"); strings.Contains(list, says) {
				got = key
			}
		}
		if strings.Contains(string(body), "Spillway narrowed the range") {
			got = "narrowed"
		}
		if got != tc.want {
			t.Errorf("%s %v: said in %q, want %q: %s", tc.path, tc.form, got, tc.want, body)
		}
	}
	r.idle()
}
