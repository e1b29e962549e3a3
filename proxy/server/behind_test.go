package server

import (
	"net/http"
	"testing"
)

// TestWholeBehindAnother: who says that an answer must lack nothing, or evaluates an alert, is not
// given a part by a Spillway behind this one whose configuration allows it. Who does not gets it,
// with the warning.
func TestWholeBehindAnother(t *testing.T) {
	t.Parallel()
	r := newRig(t, []rigGroup{{"jaguar", false, []int{1, 1}}}, roomy(ample)+"partial_response: warn\n")
	_, outer := startProxy(t, t.Context(), "groups: [{name: all, partial_response: warn, shards: [{replicas: [{url: '"+r.url+"'}]}]}]\n"+roomy(ample))
	front := *r
	front.url = outer
	askings := append(overBoth(),
		asking{name: "sum", path: "/api/v1/query", form: instantly("sum(up)")},
		asking{name: "exemplars", path: "/api/v1/query_exemplars", form: instantly("up")},
		asking{name: "metadata", path: "/api/v1/metadata"})
	for _, a := range askings {
		if got := front.ask(front.request(t.Context(), a, "partial_response", "false")); got.status != http.StatusOK {
			t.Errorf("%s, while nothing is wrong: %s", a.name, got)
		}
	}
	fault{script: "reset"}.set(t, r.shards["jaguar"][1][0], askings)
	for _, a := range askings {
		got := front.ask(front.request(t.Context(), a))
		if a.name == "sum" && (got.status != http.StatusOK || len(got.message.Warnings) == 0) {
			t.Errorf("%s, as configured: %s", a.name, got)
		}
		if got := front.ask(front.request(t.Context(), a, "partial_response", "false")); got.status == http.StatusOK {
			t.Errorf("%s that must lack nothing: %s", a.name, got)
		}
		req := front.request(t.Context(), a)
		req.Header.Set("FromAlert", "true")
		if got := front.ask(req); got.status == http.StatusOK {
			t.Errorf("%s for an alert: %s", a.name, got)
		}
	}
}
