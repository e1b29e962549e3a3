package endpoint

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
)

// TestHeld: a body is held as it comes, before there is room for it, not as it is announced; a
// short one, as nearly all are, not at all.
func TestHeld(t *testing.T) {
	raw, err := (&prompb.ReadRequest{Queries: []*prompb.Query{{
		Matchers: []*prompb.LabelMatcher{{Name: "job", Value: strings.Repeat("x", 3<<20)}},
	}}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	read := func(body []byte) *http.Request {
		return httptest.NewRequest(http.MethodPost, "/api/v1/read", bytes.NewReader(body))
	}
	form := func(n int) *http.Request {
		return postForm("/api/v1/query", "application/x-www-form-urlencoded", "query="+strings.Repeat("x", n-len("query=")))
	}
	announced := read(snappy.Encode(nil, raw))
	announced.ContentLength = DefaultMaxReadBytes
	for name, c := range map[string]struct {
		request  *http.Request
		from, to int64
	}{
		"a usual form":              {form(unheldBody - 1), 0, 0},
		"a long form":               {form(200 << 10), 200 << 10, DefaultMaxBodyBytes + 1},
		"a form of the cap":         {form(DefaultMaxBodyBytes), DefaultMaxBodyBytes, DefaultMaxBodyBytes + 1},
		"a read that inflates":      {read(snappy.Encode(nil, raw)), 3 << 20, 4 << 20},
		"announced, and never sent": {announced, 3 << 20, 4 << 20},
	} {
		held := int64(0)
		if _, err := Parse(c.request, Options{Hold: func(n int64) error { held += n; return nil }}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if held < c.from || held > c.to {
			t.Errorf("%s: %d bytes are held, want %d to %d", name, held, c.from, c.to)
		}
	}
	long := httptest.NewRequest(http.MethodGet, "/api/v1/query?query=up"+strings.Repeat("+", 100<<10), nil)
	held := int64(0)
	if _, err := Parse(long, Options{Hold: func(n int64) error { held += n; return nil }}); err != nil || held < 100<<10 || held > 101<<10 {
		t.Errorf("a long URL: %d bytes are held, %v", held, err)
	}
	errFull := errors.New("it is full")
	for name, r := range map[string]*http.Request{"a body": form(200 << 10), "what it inflates to": read(snappy.Encode(nil, raw))} {
		room := int64(160 << 10)
		got, err := Parse(r, Options{Hold: func(n int64) error {
			if room -= n; room < 0 {
				return errFull
			}
			return nil
		}})
		if !errors.Is(err, errFull) || got != nil {
			t.Errorf("%s that there is no room for: %v, %v", name, got, err)
		}
	}
}
