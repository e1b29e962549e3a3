package storm

import (
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/prompb"
)

// TestArrivals: they come at their rate, in their stretch of time, the same for the same seed; and
// no part moves another one's.
func TestArrivals(t *testing.T) {
	p := Part{Name: "p", Rate: 50, Until: 1}
	at := p.arrivals(1, 100*time.Second, false)
	if n := float64(len(at)); math.Abs(n-5000) > 5*math.Sqrt(5000) {
		t.Errorf("%g arrivals in 100 s, want about 5,000", n)
	}
	if !slices.IsSorted(at) || at[len(at)-1] >= 100*time.Second {
		t.Error("arrivals are not in order, or too late")
	}
	// Of a Poisson process the gaps' standard deviation is their mean.
	mean, square := 0.0, 0.0
	for i := 1; i < len(at); i++ {
		gap := (at[i] - at[i-1]).Seconds()
		mean += gap / float64(len(at)-1)
		square += gap * gap / float64(len(at)-1)
	}
	if spread := math.Sqrt(square-mean*mean) / mean; spread < 0.9 || spread > 1.1 {
		t.Errorf("the gaps spread by %.2f of their mean, want about 1", spread)
	}
	if !slices.Equal(at, p.arrivals(1, 100*time.Second, false)) {
		t.Error("the same seed gives other arrivals")
	}
	if slices.Equal(at, p.arrivals(2, 100*time.Second, false)) {
		t.Error("another seed gives the same arrivals")
	}
	q := p
	q.Name = "q"
	if slices.Equal(at, q.arrivals(1, 100*time.Second, false)) {
		t.Error("two parts arrive at the same moments")
	}
	p.From, p.Until = 0.5, 0.6
	for _, d := range p.arrivals(1, 100*time.Second, false) {
		if d < 50*time.Second || d >= 60*time.Second {
			t.Errorf("an arrival at %s, want from 50 s to 60", d)
		}
	}
	p = Part{Name: "p", Rate: 4, Until: 1}
	if got := p.arrivals(1, time.Second, true); !slices.Equal(got, []time.Duration{250e6, 500e6, 750e6}) {
		t.Errorf("evenly %s", got)
	}
}

// part is one that asks at once, n times.
func part(n int, change ...func(*Part)) Part {
	p := Part{
		Name: "p", Tenant: "t", Rate: 100, Burst: n, Until: 0.015, Patience: model.Duration(time.Minute),
		Requests: []Request{{Name: "q", Method: "GET", Path: "/api/v1/query", Params: map[string]string{"query": "up"}}},
	}
	for _, c := range change {
		c(&p)
	}
	return p
}

// attack sends a part's only arrival to a server.
func attack(t *testing.T, h http.HandlerFunc, p Part) []Reply {
	t.Helper()
	srv := httptest.NewServer(h)
	defer srv.Close()
	a := Attack{Targets: []Target{{URL: srv.URL}}, Tokens: map[string]string{"t": "secret"}}
	return a.RunEvenly(t.Context(), time.Now(), time.Second, p)
}

// TestOpenLoop: that nothing is answered holds nobody back, and what a request waited for others
// counts: the server answers nobody before all have come, which a caller who waits for his answer
// before he asks again would never see.
func TestOpenLoop(t *testing.T) {
	const all = 40
	var come atomic.Int64
	full := make(chan struct{})
	replies := attack(t, func(w http.ResponseWriter, r *http.Request) {
		if come.Add(1) == all {
			close(full)
		}
		select {
		case <-full:
		case <-r.Context().Done():
		}
		answer(w, `{"status":"success"}`)
	}, part(1, func(p *Part) { p.Until, p.Rate, p.Patience = 1, all+1, model.Duration(20*time.Second) }))
	if len(replies) != all {
		t.Fatalf("%d replies, want %d", len(replies), all)
	}
	slices.SortFunc(replies, func(a, b Reply) int { return int(a.Due - b.Due) })
	for i, r := range replies {
		// The last is due about a second after the first, and both are answered then.
		if r.Verdict != OK || r.Took+r.Due < replies[all-1].Due {
			t.Errorf("%d: %+v: answered before the last had come", i, r)
		}
	}
}

// TestLateness: latency counts from when a request was due, not from when it was sent.
func TestLateness(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { answer(w, `{"status":"success"}`) }))
	defer srv.Close()
	a := Attack{Targets: []Target{{URL: srv.URL}}}
	replies := a.RunEvenly(t.Context(), time.Now().Add(-10*time.Second), time.Second, part(1))
	if len(replies) != 1 || replies[0].Verdict != OK || replies[0].Took < 9*time.Second {
		t.Errorf("%+v: sent ten seconds late, and its latency does not show it", replies)
	}
}

func answer(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, text)
}

// TestVerdicts: each way in which a request can end has its verdict and its word.
func TestVerdicts(t *testing.T) {
	abort := func(w http.ResponseWriter) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
		}
	}
	for _, tc := range []struct {
		name    string
		serve   http.HandlerFunc
		change  func(*Part)
		verdict Verdict
		outcome string
	}{
		{"useful", func(w http.ResponseWriter, _ *http.Request) { answer(w, `{"status":"success","data":[]}`) }, nil, OK, "200"},
		{"text", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "up 1") }, nil, OK, "200"},
		{"200 with an error", func(w http.ResponseWriter, _ *http.Request) {
			answer(w, `{"status":"error"}`)
		}, nil, Failed, "200, but no success"},
		{"refused", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(422)
			fmt.Fprint(w, `{"status":"error","bound":"max_series"}`)
		}, nil, Refused, "422 max_series"},
		{"refused without a bound", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(429) }, nil, Refused, "429"},
		{"unavailable", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }, nil, Failed, "503"},
		{"reset", func(w http.ResponseWriter, _ *http.Request) { abort(w) }, nil, Failed, "connection lost"},
		{"cut", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "short")
		}, nil, Failed, "connection lost"},
		{
			"no patience", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			func(p *Part) { p.Patience = model.Duration(50 * time.Millisecond) }, Failed, "no answer in time",
		},
		{
			"leaves", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			func(p *Part) { p.LeaveAfter = model.Duration(20 * time.Millisecond) }, Left, "left",
		},
		{
			"leaves in the body", func(w http.ResponseWriter, r *http.Request) {
				fmt.Fprint(w, "begun")
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			},
			func(p *Part) { p.LeaveAfter = model.Duration(50 * time.Millisecond) }, Left, "left",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			replies := attack(t, tc.serve, part(1, func(p *Part) {
				if tc.change != nil {
					tc.change(p)
				}
			}))
			if len(replies) != 1 || replies[0].Verdict != tc.verdict || replies[0].Outcome != tc.outcome {
				t.Errorf("%+v, want %s: %s", replies, tc.verdict, tc.outcome)
			}
		})
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + free.Addr().String()
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	got := Attack{Targets: []Target{{URL: url}}}.RunEvenly(t.Context(), time.Now(), time.Second, part(1))
	if len(got) != 1 || got[0].Outcome != "connection refused" {
		t.Errorf("nobody listens: %+v", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	}))
	defer srv.Close()
	got = Attack{Targets: []Target{{URL: srv.URL}}}.RunEvenly(ctx, time.Now(), time.Second, part(1))
	if len(got) != 1 || got[0].Verdict != Ended {
		t.Errorf("the test ends: %+v", got)
	}
}

// TestAgain: who has no answer asks again at once, as often as the part says, and stops once there
// is one.
func TestAgain(t *testing.T) {
	var n atomic.Int64
	replies := attack(t, func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1) < 3 {
			w.WriteHeader(422)
		}
	}, part(1, func(p *Part) { p.Again = 5 }))
	if len(replies) != 3 || replies[0].Again || !replies[1].Again || replies[1].Due < replies[0].Due+replies[0].Took ||
		replies[2].Verdict != OK {
		t.Errorf("%+v, want two refusals and an answer", replies)
	}
}

// TestSlowReader: an answer is taken as slowly as the part says.
func TestSlowReader(t *testing.T) {
	body := strings.Repeat("x", 1000)
	replies := attack(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) },
		part(1, func(p *Part) { p.ReadBytesPerSecond = 4000 }))
	if len(replies) != 1 || replies[0].Verdict != OK || replies[0].Bytes != 1000 || replies[0].Took < 250*time.Millisecond {
		t.Errorf("%+v, want 1,000 bytes in a quarter of a second at least", replies)
	}
}

// TestRequests: what is asked, by whom, of which cluster and target.
func TestRequests(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]int{}
	handler := func(name string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			if r.Header.Get("Authorization") != "Bearer secret" || r.Header.Get("X-Grafana-User") == "" {
				seen["nobody"]++
			}
			seen[strings.Join([]string{name, r.Method, r.URL.Path, r.FormValue("query"), r.Header.Get("X-Grafana-User")}, " ")]++
		}
	}
	a, b := httptest.NewServer(handler("a")), httptest.NewServer(handler("b"))
	defer a.Close()
	defer b.Close()
	p := part(8, func(p *Part) {
		p.Headers = map[string]string{"X-Grafana-User": "u${n%2}"}
		p.Requests = []Request{
			{Name: "get", Method: "GET", Path: "/g", Params: map[string]string{"query": "x{${cluster}}"}},
			{Name: "post", Method: "POST", Path: "/p", Params: map[string]string{"query": "y{${cluster}}"}},
		}
	})
	tokens := map[string]string{"t": "secret"}
	Attack{Targets: []Target{{URL: a.URL}, {URL: b.URL}}, Tokens: tokens}.RunEvenly(t.Context(), time.Now(), time.Second, p)
	Attack{Targets: []Target{{URL: a.URL, Clusters: []string{"c", "d"}}}, Tokens: tokens}.RunEvenly(t.Context(), time.Now(), time.Second, p)
	want := map[string]int{
		"a GET /g x{} u0": 2, "b GET /g x{} u0": 2, "a POST /p y{} u1": 2, "b POST /p y{} u1": 2,
		`a GET /g x{cluster="c",} u0`: 2, `a GET /g x{cluster="d",} u0`: 2,
		`a POST /p y{cluster="c",} u1`: 2, `a POST /p y{cluster="d",} u1`: 2,
	}
	for k, n := range want {
		if seen[k] != n {
			t.Errorf("%q was asked %d times, want %d", k, seen[k], n)
		}
	}
	if len(seen) != len(want) {
		t.Errorf("more was asked: %v", seen)
	}
}

// TestRemoteRead: what is sent is what a Prometheus sends.
func TestRemoteRead(t *testing.T) {
	var got prompb.ReadRequest
	replies := attack(t, func(_ http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err == nil {
			text, err = snappy.Decode(nil, text)
		}
		if err == nil {
			err = got.Unmarshal(text)
		}
		if err != nil || r.URL.Path != "/api/v1/read" || r.Method != http.MethodPost {
			t.Errorf("%s %s: %v", r.Method, r.URL.Path, err)
		}
	}, part(1, func(p *Part) {
		p.Requests = []Request{{Name: "r", RemoteRead: `{__name__=~".+"}`, Range: model.Duration(time.Hour)}}
	}))
	if len(replies) != 1 || replies[0].Verdict != OK {
		t.Fatalf("%+v", replies)
	}
	q := got.Queries
	if len(q) != 1 || q[0].EndTimestampMs-q[0].StartTimestampMs != 3_600_000 ||
		len(q[0].Matchers) != 1 || q[0].Matchers[0].Value != ".+" ||
		!slices.Contains(got.AcceptedResponseTypes, prompb.ReadRequest_STREAMED_XOR_CHUNKS) {
		t.Errorf("%+v", got)
	}
}

// TestTooManyUnderWay: a part has so many requests under way and no more, and says so.
func TestTooManyUnderWay(t *testing.T) {
	var n atomic.Int64
	replies := attack(t, func(_ http.ResponseWriter, r *http.Request) {
		n.Add(1)
		<-r.Context().Done()
	}, part(maxOpen+10, func(p *Part) { p.Patience = model.Duration(3 * time.Second) }))
	unsent := 0
	for _, r := range replies {
		if strings.HasPrefix(r.Outcome, "not sent") && r.Verdict == Failed {
			unsent++
		}
	}
	if len(replies) != maxOpen+10 || unsent != 10 || n.Load() > maxOpen {
		t.Errorf("%d replies, %d of them not sent, and %d came: want %d, 10", len(replies), unsent, n.Load(), maxOpen+10)
	}
}

// TestGoodput: what is refused is no goodput.
func TestGoodput(t *testing.T) {
	var n atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if n.Add(1)%2 == 0 {
			w.WriteHeader(429)
		}
	}))
	defer srv.Close()
	began := time.Now()
	got := Attack{Targets: []Target{{URL: srv.URL}}}.Goodput(t.Context(), part(1), 200*time.Millisecond)
	// It took 200 ms at least, and no longer than until now.
	took, ok := time.Since(began), float64(n.Load()-n.Load()/2)
	if n.Load() < 2 || got*0.2 > ok*1.001 || got*took.Seconds() < ok*0.999 {
		t.Errorf("%.0f a second of %d requests in %s, of which half was refused", got, n.Load(), took)
	}
}
