package merge

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// TestCountSeries: a list is counted up to a limit; one that a server cut off, or that is too long
// to be read, has that many; and what is no list is an error.
func TestCountSeries(t *testing.T) {
	list := func(n int, rest string) string {
		sets := strings.TrimSuffix(strings.Repeat(`{"__name__":"up","job":"a"},`, n), ",")
		return `{"status":"success","data":[` + sets + `]` + rest + `}`
	}
	for _, tc := range []struct {
		name, body string
		max        int64
		n          int
		err        string
	}{
		{"none", list(0, ""), 1 << 20, 0, ""},
		{"some", list(7, ""), 1 << 20, 7, ""},
		{"as many as the limit", list(10, ""), 1 << 20, 10, ""},
		{"more", list(11, ""), 1 << 20, 10, ""},
		{"cut off by the server at less", list(3, `,"warnings":["results truncated due to limit"]`), 1 << 20, 10, ""},
		{"too long", list(9, ""), 100, 10, ""},
		{"warnings first", `{"warnings":["x"],"status":"success","data":[{}]}`, 1 << 20, 1, ""},
		{"an error", `{"status":"error","errorType":"execution","error":"no"}`, 1 << 20, 0, "no"},
		{"cut short", list(3, "")[:60], 1 << 20, 0, "ends"},
		{"no list", `{"status":"success","data":{}}`, 1 << 20, 0, "array"},
		{"no data", `{"status":"success"}`, 1 << 20, 0, "without data"},
		{"not JSON", `up`, 1 << 20, 0, "object"},
	} {
		n, err := CountSeries(t.Context(), Source{Name: "jaguar[0]", Body: strings.NewReader(tc.body)}, 10, tc.max)
		switch {
		case tc.err == "" && (err != nil || n != tc.n):
			t.Errorf("%s: %d series, %v, want %d", tc.name, n, err, tc.n)
		case tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)):
			t.Errorf("%s: %d series, %v, want %q", tc.name, n, err, tc.err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	left := errors.New("left")
	cancel(left)
	if n, err := CountSeries(ctx, Source{Body: strings.NewReader(list(9, ""))}, 10, 1<<20); !errors.Is(err, left) {
		t.Errorf("whoever has left: %d, %v", n, err)
	}
}
