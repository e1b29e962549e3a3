package bench

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestDefaults(t *testing.T) {
	s := Servers{}.WithDefaults()
	if s.Nodes != 7500 || s.Shards != 4 || s.Interval != time.Minute || s.Say == nil {
		t.Errorf("%+v", s)
	}
	s.Say("nobody hears %s", "this")
	if a := (Asking{}).WithDefaults(); a != (Asking{Window: time.Hour, Times: 3, Bound: 2 * time.Second}) {
		t.Errorf("%+v", a)
	}
	mine := Asking{Window: time.Minute, Times: 1, Bound: time.Second}
	if a := mine.WithDefaults(); a != mine {
		t.Errorf("%+v became %+v", mine, a)
	}
}

// TestCheck: all that is wrong is said at once, each with its field and its bounds; the bounds
// themselves are allowed.
func TestCheck(t *testing.T) {
	for _, c := range []struct {
		name     string
		servers  Servers
		asking   Asking
		rarest   time.Duration
		shortest time.Duration
		want     []string
	}{
		{"defaults", Servers{Spillway: "x"}, Asking{}, time.Minute, time.Hour, nil},
		{
			"least",
			Servers{Spillway: "x", Nodes: 8, Shards: 1, Interval: time.Second},
			Asking{Window: time.Minute, Times: 1, Bound: 1},
			time.Minute, time.Minute, nil,
		},
		{
			"most",
			Servers{Spillway: "x", Nodes: 100_000, Shards: 64, Interval: 2 * time.Minute},
			Asking{Window: 24 * time.Hour, Times: 100},
			2 * time.Minute, time.Minute, nil,
		},
		{
			"too little",
			Servers{Nodes: 7, Shards: -1, Interval: time.Millisecond},
			Asking{Window: 59 * time.Second, Times: -1, Bound: -1},
			90 * time.Second, time.Minute,
			[]string{
				"the path of the spillway binary is missing", "nodes: 7 is outside 8 to 100,000", "shards: -1 is outside 1 to 64",
				"interval: 1ms is outside 1s to 1m30s",
				"window: 59s is outside 1m to 24h", "times: -1 is outside 1 to 100", "bound: -1ns is not above 0",
			},
		},
		{
			"too much",
			Servers{Spillway: "x", Nodes: 100_001, Shards: 65, Interval: time.Hour},
			Asking{Window: 25 * time.Hour, Times: 101},
			2 * time.Minute, 10 * time.Minute,
			[]string{
				"nodes: 100001 is outside 8 to 100,000", "shards: 65 is outside 1 to 64", "interval: 1h0m0s is outside 1s to 2m",
				"window: 25h0m0s is outside 10m to 24h", "times: 101 is outside 1 to 100",
			},
		},
	} {
		var p Problems
		c.servers.Check(&p, c.rarest)
		c.asking.Check(&p, c.shortest)
		var got []string
		for _, err := range p {
			got = append(got, err.Error())
		}
		if !slices.Equal(got, c.want) || (p.Err() == nil) != (c.want == nil) {
			t.Errorf("%s: %q, not %q", c.name, got, c.want)
		}
	}
}

func TestTook(t *testing.T) {
	slow := Summary([]time.Duration{5 * time.Second, time.Second, 3 * time.Second}, nil)
	if slow != (Took{Median: 3 * time.Second, Max: 5 * time.Second}) || slow.Text() != "3.00 s" {
		t.Errorf("%+v, %s", slow, slow.Text())
	}
	quick, refused := Summary([]time.Duration{time.Second}, nil), Summary([]time.Duration{time.Millisecond}, errors.New("too many series"))
	if refused.Text() != "not answered" || refused.Err == nil {
		t.Errorf("%+v, %s", refused, refused.Text())
	}
	for _, list := range [][]Took{{quick, slow, refused}, {refused, quick, slow}, {slow, refused, quick}} {
		if slices.SortFunc(list, Took.Compare); !slices.Equal(list, []Took{refused, slow, quick}) {
			t.Errorf("sorted as %+v", list)
		}
	}
}

// TestGet: whatever is not a whole answer is an error that names the server.
func TestGet(t *testing.T) {
	for _, c := range []struct {
		name, want string
		answer     http.HandlerFunc
	}{
		{"whole", "", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "all of it") }},
		{
			"refused", "503 Service Unavailable: busy",
			func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "busy", http.StatusServiceUnavailable) },
		},
		{"cut", "read the answer of", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "all of it")
		}},
		{"too long", "more than 64 MiB", func(w http.ResponseWriter, _ *http.Request) {
			for range maxAnswer>>20 + 1 {
				_, _ = w.Write(make([]byte, 1<<20)) // the reader leaves
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := httptest.NewServer(c.answer)
			defer server.Close()
			body, err := Get(t.Context(), server.Client(), server.URL)
			switch {
			case c.want == "":
				if err != nil || string(body) != "all of it" {
					t.Errorf("%q, %v", body, err)
				}
			case err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), server.URL):
				t.Errorf("%v, want an error with %q and the server", err, c.want)
			}
		})
	}
}
