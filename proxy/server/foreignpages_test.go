package server

import (
	"context"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// TestPagesOfOtherSitesAskNothing: a page of another site, or of another port of this one, has a
// browser ask the admin listener for nothing but what costs nothing. A link to one of its pages
// works, as that in an error that Grafana shows.
func TestPagesOfOtherSitesAskNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, manyShards(1), limits(ample))
	status := func(path, site, mode, dest string) int {
		t.Helper()
		head := []string{"Sec-Fetch-Site", site, "Sec-Fetch-Mode", mode, "Sec-Fetch-Dest", dest}
		resp, err := answered(t, r.client, http.MethodGet, r.admin+path, head...)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode
	}
	explain := adminAPI + "explain?query=up&analyze=1"
	resources := []string{explain, adminAPI + "queries", adminAPI + "usage", adminAPI + "none", "/debug/pprof/cmdline", "/debug/pprof/"}
	pages := []string{"/", "/refusals", "/refusals/0123", "/dashboard", "/panel", "/explain"}
	for _, site := range []string{"cross-site", "same-site", "of-the-future"} {
		for _, kind := range []string{"no-cors image", "cors empty", "navigate iframe", "navigate document", "no-cors script"} {
			mode, dest, _ := strings.Cut(kind, " ")
			for _, path := range resources {
				if code := status(path, site, mode, dest); code != http.StatusForbidden {
					t.Errorf("%s, %s %s: %d", path, site, kind, code)
				}
			}
			for _, path := range pages {
				code := status(path, site, mode, dest)
				if linked := mode == "navigate" && dest == "document"; (code == http.StatusForbidden) == linked {
					t.Errorf("%s, %s %s: %d", path, site, kind, code)
				}
			}
			for _, path := range []string{"/metrics", "/-/healthy", "/-/ready"} {
				if code := status(path, site, mode, dest); code != 200 {
					t.Errorf("%s, %s %s: %d", path, site, kind, code)
				}
			}
		}
	}
	if got := r.asked(); len(got) > 0 {
		t.Errorf("shards were asked: %q", got)
	}
	for _, site := range []string{"same-origin", "none"} {
		for _, path := range append(resources[:3:3], "/", "/console.js", "/debug/pprof/cmdline") {
			if code := status(path, site, "cors", "empty"); code != 200 {
				t.Errorf("%s, %s: %d", path, site, code)
			}
		}
	}
}

// TestOperatorsQuestionIsShown: a query that explain runs is among those under way, where whoever
// has asked, or somebody else, ends it. One that is planned alone is not.
func TestOperatorsQuestionIsShown(t *testing.T) {
	t.Parallel()
	r := newRig(t, manyShards(1), limits(10*patience))
	if err := r.all()[0].Set("", fakeshard.Route{Path: "/api/v1/query", Query: "up", Script: "wait go; answer"}); err != nil {
		t.Fatal(err)
	}
	done := make(chan *reply, 1)
	target := r.admin + adminAPI + "explain?" + url.Values{"query": {"up"}, "analyze": {"1"}}.Encode()
	go func() {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, target, nil)
		if err != nil {
			panic(err)
		}
		done <- r.ask(req)
	}()
	r.eventually("it is shown", func() bool { return len(r.queries()) == 1 })
	if q := r.queries()[0]; q.Query != "up" || q.Tenant != "" {
		t.Errorf("%+v", q)
	}
	r.adminAsk(http.MethodDelete, "/"+r.queries()[0].ID, http.StatusOK, nil)
	if got := <-done; got.status != http.StatusServiceUnavailable {
		t.Errorf("ended: %s", got)
	}
	r.release()
	r.idle()
}
