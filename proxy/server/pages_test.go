package server

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// The admin page says why a server does not count as whole, and a build without a version is not
// called unknown.
func TestPagesSayWhy(t *testing.T) {
	t.Parallel()
	page := func(url string) string {
		t.Helper()
		resp, err := http.Get(url)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	r := newRig(t, []rigGroup{{"heron", false, []int{2}}, {"jaguar", false, []int{1}}}, "", func(o *Options) { o.Version = unknownVersion })
	admin := page(r.admin + "/")
	if n := strings.Count(admin, "Not whole: its group has no heartbeat, without which nobody knows which copy missed what"); n != 2 {
		t.Errorf("the reason stands there for %d servers, want the two of heron: %s", n, admin)
	}
	for text, heading := range map[string]string{admin: `<h1><a href="/">Spillway</a></h1>`, page(r.url + "/"): "<h1>Spillway</h1>"} {
		if !strings.Contains(text, heading) {
			t.Errorf("the heading is not Spillway alone: %.2000s", text)
		}
	}
	if home := page(r.url + "/"); !strings.Contains(home, `size="28" placeholder="now, or 2026-01-02 15:04:05"`) { // 27 characters
		t.Errorf("the box of the moment is shorter than what is written in it: %.3000s", home)
	}
}
