package server

import (
	"fmt"
	"testing"
	"time"
	"unsafe"
)

// TestInexactsKeepNoBody: what is remembered of a query is its text alone, and not the body that
// the text is a part of, which may be a thousand times as large.
func TestInexactsKeepNoBody(t *testing.T) {
	body := "query=up&junk=" + string(make([]byte, 1<<20))
	var s inexacts
	now := time.Unix(1_700_000_000, 0)
	s.put(body[6:8], "too many series", now)
	if got := s.get("up", now); got != "too many series" {
		t.Fatalf("it is remembered as %q", got)
	}
	for kept := range s.seen {
		if unsafe.StringData(kept) == unsafe.StringData(body[6:]) {
			t.Error("the body is kept")
		}
	}
}

// TestInexactsExpire: what has expired is taken out by whoever asks, for whatever, and makes room
// for others before what is still true has to go.
func TestInexactsExpire(t *testing.T) {
	var s inexacts
	now := time.Unix(1_700_000_000, 0)
	for i := range maxInexacts - 1 {
		s.put(fmt.Sprint("up_", i), "why", now)
	}
	now = now.Add(inexactTime - time.Second)
	s.put("late", "why", now)
	now = now.Add(2 * time.Second)
	s.put("later", "why", now)
	if s.get("late", now) == "" || s.get("later", now) == "" || s.get("up_1", now) != "" || len(s.seen) != 2 {
		t.Errorf("%d are held, of which two have not expired", len(s.seen))
	}
	if got := s.get("up", now.Add(time.Hour)); got != "" || len(s.seen) > 0 {
		t.Errorf("an hour later %d are held", len(s.seen))
	}
}
