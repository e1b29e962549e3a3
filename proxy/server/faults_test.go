package server

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage/remote"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/endpoint"
)

// errorTypes are the contract's: what stands in errorType for a status.
var errorTypes = map[int]string{400: "bad_data", 422: "execution", 429: "too_many_requests", 502: "internal", 503: "timeout"}

// fault is something that a shard does wrong, and what the client must see of it.
type fault struct {
	name      string
	script    string
	frames    string         // what a shard that is asked for streamed chunks does instead; empty is the same
	want      int            // the status
	hangs     bool           // nothing but the deadline ends it
	single    bool           // asked one after the other, since what the shard does is dear
	silent    bool           // the answer need not name the server: it is about the request
	or        map[string]int // another status that is as right for an endpoint, since the same answer breaks two rules
	errorType string         // where it is not the one of its status
}

var faults = []fault{
	{name: "none", script: "answer", want: 200},
	{name: "slow", script: "delay 100ms; answer", want: 200},
	{name: "clock an hour behind", script: "skew -1h; answer", want: 200},
	{name: "clock an hour ahead", script: "skew 1h; answer", want: 200},
	{name: "gzip", script: "gzip on; answer", frames: "answer", want: 200},

	{name: "hangs", script: "stall", want: 503, hangs: true},
	{name: "hangs after the header", script: "flush; stall", want: 503, hangs: true},
	{name: "stalls in the body", script: "limit 20 stall; answer", want: 503, hangs: true},
	{name: "stalls in chunks", script: `chunked; limit 20 stall; answer`, want: 503, hangs: true},
	{name: "drips", script: "drip 1B/300ms; answer", want: 503, hangs: true},
	{name: "answers too late", script: "delay 1h; answer", want: 503, hangs: true},

	{name: "random bytes", script: "garbage", want: 502},
	{name: "wrong shape", script: "garbage shape", want: 502},
	{name: "null", script: "garbage null", want: 502},
	{name: "deep", script: "garbage deep", want: 502},
	{name: "JSON that ends too soon", script: "garbage cut", want: 502},
	{name: "an empty body", script: "garbage empty", want: 502},
	{name: "no HTTP", script: "garbage wire", want: 502},
	{name: "a login page", script: "garbage html", want: 502},
	{name: "random bytes of the right type", script: "garbage", frames: "header Content-Type application/x-streamed-protobuf; garbage", want: 502},
	{name: "an error with status 200", script: `send '{"status":"error","errorType":"internal","error":"boom"}'`, want: 502},
	{name: "success without data", script: `send '{"status":"success"}'`, want: 502},
	{name: "two answers", script: `header Content-Type application/json; send '{"status":"success","data":[]}{"status":"success","data":[]}'`, want: 502},

	{name: "cut by length", script: "length 1000000; limit 20 close; answer", want: 502},
	{name: "cut in a chunk", script: "chunked; limit 20 close; answer", want: 502},
	{name: "cut before the last chunk", script: "chunked; answer; truncate", want: 502},
	{name: "cut with neither length nor chunks", script: "unframed; limit 20 close; answer", want: 502},
	{name: "a length that is no number", script: "badlength; answer", want: 502},
	{name: "a chunk that has no size", script: "badchunk", want: 502},
	{name: "reset before the header", script: "reset", want: 502},
	{name: "closed before the header", script: "close", want: 502},
	{name: "reset after the header", script: "flush; reset", want: 502},
	{name: "reset in the body", script: "limit 20 reset; answer", want: 502},

	// Where an endpoint may answer only 1 MiB, its bound in bytes may be reached before the bound
	// in the ratio is looked at.
	{name: "gzip bomb", script: "gzip bomb 10GiB", single: true, want: 502, or: map[string]int{"features": 422, "status_buildinfo": 422}},
	{name: "no gzip under that name", script: "gzip bad; answer", want: 502},
	{name: "gzip that ends too soon", script: "gzip cut; answer", want: 502},
	{name: "gzip in gzip", script: "gzip double; answer", want: 502},
	{name: "an encoding nobody asked for", script: "header Content-Encoding br; answer", want: 502},
	{name: "a header without end", script: "flood 1MiB; answer", want: 502},

	{name: "500", script: "error 500 internal boom", want: 502},
	{name: "500 as text", script: "status 500; header Content-Type text/plain; send boom", want: 502},
	{name: "502 page", script: "status 502; garbage html", want: 502},
	{name: "503", script: "error 503 unavailable starting", want: 502},
	{name: "503 of its own deadline", script: "error 503 timeout query timed out", want: 503},
	{name: "429", script: "error 429 too_many_requests busy", want: 502},
	{name: "429 for long", script: "header Retry-After 3600; error 429 too_many_requests busy", want: 429},
	{name: "503 for long", script: "header Retry-After 3600; status 503; send 'starting up'", want: 503, errorType: "unavailable"},
	{name: "401", script: "status 401; garbage html", want: 502},
	{name: "404", script: "error 404 not_found nothing", want: 502},
	{name: "422", script: "error 422 execution too many samples", want: 422},
	{name: "400", script: "error 400 bad_data what is this", want: 400, silent: true},
	{name: "500 that never ends", script: "status 500; generate 10GiB json", want: 502},
	{name: "redirect to another server", script: "redirect http://127.0.0.1:1/elsewhere", want: 502},
	{name: "redirect in a loop", script: "redirect", want: 502},
	{name: "204", script: "status 204", want: 502},
}

// Every endpoint that asks shards, under every fault of a shard: the right answer by the deadline,
// naming the server, and nothing left running.
func TestFaults(t *testing.T) {
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			limit := ample
			if f.hangs {
				limit = hanging
			}
			r := newRig(t, []rigGroup{{"jaguar", false, []int{1, 1}}, {"heron", false, []int{1}}}, roomy(limit), f.alive)
			bad := []*fakeshard.Shard{r.shards["jaguar"][1][0], r.shards["heron"][0][0]}
			all := askings()
			for _, s := range bad {
				f.set(t, s, all)
			}
			var wg sync.WaitGroup
			for _, a := range all {
				if f.name == "404" && a.path == "/api/v1/features" {
					continue // an answer: TestFeaturesOfOldServers
				}
				wg.Go(func() { r.judge(f, a, r.ask(r.request(context.Background(), a)), bad, limit) })
				if f.single {
					wg.Wait()
				}
			}
			wg.Wait()
			r.idle()
			for _, line := range r.log.atLeast(8) {
				t.Errorf("logged as an error: %s", line)
			}
		})
	}
}

// A group without labels and with one shard: queries pass through without relabelling.
func TestFaultsOfOneShard(t *testing.T) {
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			limit := ample
			if f.hangs {
				limit = hanging
			}
			r := newRig(t, []rigGroup{{"heron", true, []int{1}}}, roomy(limit), f.alive)
			bad := r.all()
			var passed []asking
			for _, a := range askings() {
				if (a.id == endpoint.Query || a.id == endpoint.QueryRange) && !strings.HasSuffix(a.name, "pushed") {
					a.form.Set("query", fmt.Sprintf("up{job!=%q}", a.name)) // none waits for the answer to another one
					a.at, a.frames, a.groups = a.path, false, []string{"heron"}
					passed = append(passed, a)
				}
			}
			f.set(t, bad[0], passed)
			var wg sync.WaitGroup
			for _, a := range passed {
				wg.Go(func() { r.judge(f, a, r.ask(r.request(context.Background(), a)), bad, limit) })
			}
			wg.Wait()
			r.idle()
		})
	}
}

// alive has the proxy not take a server for dead that breaks connections and goes on: it is in this
// process, and may be kept from the processor for as long as its readiness is waited for.
func (f fault) alive(o *Options) {
	if !f.hangs {
		o.shards.GoneWithin = patience
	}
}

// set scripts the fault for what the askings ask of the shard; everything else, the proxy's own
// questions too, is answered well.
func (f fault) set(t testing.TB, s *fakeshard.Shard, all []asking) {
	t.Helper()
	var routes []fakeshard.Route
	for _, a := range all {
		script := f.script
		if a.frames && f.frames != "" {
			script = f.frames
		}
		routes = append(routes, fakeshard.Route{Path: a.at, Script: script})
		if strings.HasPrefix(a.at, "/api/v1/search/") { // what a shard is asked that does not search
			for _, path := range []string{"/api/v1/labels", "/api/v1/label/*/values"} {
				routes = append(routes, fakeshard.Route{Path: path, Script: script})
			}
		}
	}
	if err := s.Set("", routes...); err != nil {
		t.Fatal(err)
	}
}

// hanging is the deadline of requests to servers that hang, or drip for longer than that: a call
// ends a quarter of a second before it, so that there is time to say which one it was.
const hanging = 5 * time.Second

// slack is how much later than the deadline an answer may come on a machine that does many other
// things. That it was the deadline is seen from the status.
const slack = 20 * time.Second

// judge compares an answer with what the fault calls for.
func (r *rig) judge(f fault, a asking, got *reply, bad []*fakeshard.Shard, limit time.Duration) {
	t := r.t
	t.Helper()
	want := f.want
	if w, ok := f.or[a.name]; ok && got.status == w {
		want = w
	}
	if got.took > limit+slack {
		t.Errorf("%s: answered after %s, the deadline was %s", a.name, got.took, limit)
	}
	if f.hangs && want == 503 && got.took < limit/2 {
		t.Errorf("%s: gave up after %s, the deadline was %s", a.name, got.took, limit)
	}
	if got.err != nil || got.status != want {
		t.Errorf("%s: want status %d, got %s", a.name, want, got)
		return
	}
	if want == 200 {
		r.whole(a, got)
		return
	}
	m := got.message
	if m.Status != "error" || m.ErrorType != cmp.Or(f.errorType, errorTypes[want]) || m.Error == "" {
		t.Errorf("%s: status %q, errorType %q, error %q", a.name, m.Status, m.ErrorType, m.Error)
	}
	if got.header.Get("X-Spillway-Verdict") != "refuse" {
		t.Errorf("%s: verdict %q", a.name, got.header.Get("X-Spillway-Verdict"))
	}
	if !f.silent && (want == 502 || want == 503) && !r.named(m.Error, bad) {
		t.Errorf("%s: the error names none of the shards that failed: %s", a.name, m.Error)
	}
}

// named tells whether the text names one of the shards by group and host:port.
func (r *rig) named(text string, shards []*fakeshard.Shard) bool {
	for _, s := range shards {
		if strings.Contains(text, r.names[s]) {
			return true
		}
	}
	return false
}

// whole checks that a success has the data of every shard that was asked, and no warning that it
// has not.
func (r *rig) whole(a asking, got *reply) {
	t := r.t
	t.Helper()
	if len(got.message.Warnings) > 0 {
		t.Errorf("%s: warnings %q", a.name, got.message.Warnings)
	}
	var want []string
	switch a.name {
	case "query passed", "query_range passed":
		want = []string{`"heron-0"`}
	case "query raw":
		want = []string{`"2"`}
		if !a.frames { // passed through
			want = []string{`"up"`}
		}
	case "query pushed":
		want = []string{`"2"`}
	case "query_range pushed":
		want = []string{`"0.5"`}
		if len(r.shards["jaguar"]) == 0 {
			want = []string{`"1"`}
		}
	case "query_range raw", "query spliced", "query_range spliced", "series", "label_values":
		want = []string{`"jaguar-0"`, `"jaguar-1"`}
		if len(r.shards["jaguar"]) == 0 {
			want = []string{`"heron-0"`}
		}
	case "federate":
		want = []string{`"jaguar-0"`, `"jaguar-1"`}
	case "labels":
		want = []string{`"instance"`, `"cluster"`}
	case "label_values of a group label":
		want = []string{`["jaguar"]`}
	case "read":
		if n := readSeries(t, got.body); n != 2 {
			t.Errorf("read: %d series, want 2", n)
		}
		return
	}
	if strings.HasPrefix(got.header.Get("Content-Type"), "application/json") && got.message.Status != "success" {
		t.Errorf("%s: %s", a.name, got)
	}
	for _, w := range want {
		if !bytes.Contains(got.body, []byte(w)) {
			t.Errorf("%s: the answer lacks %s: %s", a.name, w, got)
		}
	}
}

// readSeries counts the series of a streamed answer.
func readSeries(t testing.TB, body []byte) int {
	t.Helper()
	frames := remote.NewChunkedReader(bytes.NewReader(body), 8<<20, nil)
	n := 0
	for {
		var f prompb.ChunkedReadResponse
		err := frames.NextProto(&f)
		if err == io.EOF {
			return n
		}
		if err != nil {
			t.Errorf("frame %d: %v", n, err)
			return n
		}
		n += len(f.ChunkedSeries)
	}
}
