package shard

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/thanos"
)

// fakeStores are the stores of a Thanos Query that has not noticed yet what happens to them: its
// page calls all of them healthy, unless away says otherwise.
type fakeStores struct {
	mu    sync.Mutex
	does  map[string]string // fail, hang, or quiet: Thanos does not ask it; answers where it stands not here
	away  map[string]string // what the page says of those that it does not call healthy
	asked []string          // storeMatch[] of the queries that clients sent
}

// holds is what each of them scrapes: two shards of two replicas, and a store without a copy. The
// labels are the operator's.
var holds = map[string]string{"a:1": "uvw", "a:10": "uvw", "b:1": "xy", "b:10": "xy", "c:1": "z"}

func (f *fakeStores) set(does map[string]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.does = does
}

func (f *fakeStores) setAway(away map[string]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.away = away
}

// page is the page of stores.
func (f *fakeStores) page() fakeshard.Answer {
	f.mu.Lock()
	defer f.mu.Unlock()
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(holds)) {
		lines = append(lines, store(name, f.away[name], fmt.Sprintf(`{"cluster":"jaguar","prometheus_replica":%q}`, name)))
	}
	return answerJSON(http.StatusOK, `{"status":"success","data":{"sidecar":[`+strings.Join(lines, ",")+`]}}`)
}

func (f *fakeStores) config() fakeshard.Config {
	cfg := fakeThanos(nil)
	cfg.Routes = slices.DeleteFunc(cfg.Routes, func(r fakeshard.Route) bool { return r.Path == storesPath })
	healthy := cfg.Answer
	cfg.Answer = func(r fakeshard.Record) (fakeshard.Answer, bool) {
		query := r.Form.Get("query")
		switch {
		case r.Path == storesPath:
			return f.page(), true
		case query == "vector(1)", r.Path != queryPath && !strings.HasSuffix(r.Path, "/values"):
			if healthy != nil {
				return healthy(r)
			}
			return fakeshard.Answer{}, false
		case query == "count(up)":
			f.mu.Lock()
			f.asked = append(f.asked, r.Form.Get("storeMatch[]"))
			f.mu.Unlock()
		}
		var up []string
		targets := map[rune]bool{}
		for _, name := range slices.Sorted(maps.Keys(holds)) {
			if s := r.Form.Get("storeMatch[]"); strings.Contains(s, fmt.Sprintf("__address__!=%q", name)) ||
				strings.Contains(s, "__address__=\"") && !strings.Contains(s, fmt.Sprintf("__address__=%q", name)) {
				continue
			}
			f.mu.Lock()
			noticed := f.away[name] != ""
			f.mu.Unlock()
			for !noticed {
				f.mu.Lock()
				does := f.does[name]
				f.mu.Unlock()
				if does == "fail" {
					return answerJSON(http.StatusUnprocessableEntity, fmt.Sprintf(`{"status":"error","errorType":"execution","error":"expanding series: proxy Series(): rpc error: code = Aborted desc = receive series from Addr: %s MinTime: 0 MaxTime: 9: rpc error: code = Unavailable desc = gone"}`, name)), true
				}
				if does == "" || does == "quiet" {
					break
				}
				time.Sleep(50 * time.Millisecond)
			}
			for _, i := range holds[name] {
				targets[i] = true
				up = append(up, fmt.Sprintf(`{"metric":{"__name__":"up","cluster":"jaguar","instance":"%c","prometheus_replica":%q},"value":[1,"1"]}`, i, name))
			}
		}
		if strings.HasSuffix(r.Path, "/values") {
			for _, name := range slices.Sorted(maps.Keys(holds)) {
				f.mu.Lock()
				unasked := f.away[name] != "" || f.does[name] == "quiet"
				f.mu.Unlock()
				if unasked && r.Form.Get("storeMatch[]") == fmt.Sprintf("{__address__=%q}", name) {
					return answerJSON(http.StatusOK, `{"status":"success","data":[]}`), true
				}
			}
			return fakeshard.Answer{}, false
		}
		if query == "count(up)" {
			up = []string{fmt.Sprintf(`{"metric":{},"value":[1,"%d"]}`, len(targets))}
		}
		return answerJSON(http.StatusOK, `{"status":"success","data":{"resultType":"vector","result":[`+strings.Join(up, ",")+`]}}`), true
	}
	return cfg
}

func answerJSON(status int, body string) fakeshard.Answer {
	return fakeshard.Answer{Status: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: []byte(body)}
}

// TestAroundStores: while Thanos has not noticed that a store fails or hangs, it is told not to ask
// it where a copy is well, and nobody sees more of it than a pause. What has no copy is missed, and
// said.
func TestAroundStores(t *testing.T) {
	for _, tc := range []struct {
		name string
		does map[string]string
		kind string
		says string
		take time.Duration // the first answer, at most
		out  []string
	}{
		{"one of a pair fails", map[string]string{"a:1": "fail"}, "ok", "", 0, []string{"a:1"}},
		{"one of each pair fails", map[string]string{"a:10": "fail", "b:1": "fail"}, "ok", "", 0, []string{"a:10", "b:1"}},
		{"one of a pair hangs", map[string]string{"b:10": "hang"}, "ok", "", 5 * time.Second, []string{"b:10"}},
		{
			"one fails, one of another pair hangs",
			map[string]string{"a:1": "fail", "b:10": "hang"},
			"ok", "", 5 * time.Second,
			[]string{"a:1", "b:10"},
		},
		{"both of a pair fail", map[string]string{"a:1": "fail", "a:10": "fail"}, "shard_failed", "a:1", 0, []string{"a:1"}},
		{
			"both of a pair hang",
			map[string]string{"a:1": "hang", "a:10": "hang"},
			"shard_failed", "a:1, a:10 did not answer",
			11 * time.Second, nil,
		},
		{
			"one fails, its copy hangs",
			map[string]string{"a:1": "fail", "a:10": "hang"},
			"shard_failed", "a:1", 11 * time.Second,
			[]string{"a:1"},
		},
		{"one without a copy fails", map[string]string{"c:1": "fail"}, "shard_failed", "c:1", 0, nil},
		{"one without a copy hangs", map[string]string{"c:1": "hang"}, "shard_failed", "c:1 did not answer", 11 * time.Second, nil},
	} {
		for _, queries := range []int{1, 2} {
			t.Run(fmt.Sprint(tc.name, ", ", queries), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var f fakeStores
					b := newBubble(t, slices.Repeat([]fakeshard.Config{f.config()}, queries)...)
					defer b.close()
					var log bytes.Buffer
					top := build(t, Options{Dial: b.dial, Logger: slog.New(slog.NewTextHandler(&log, nil))}, true, thanosGroup(b.urls...))
					defer top.Close()
					top.Refresh(t.Context())
					s := top.Groups[0].Shards[0]
					r := s.Replicas[0]
					ask := func() (string, time.Duration, error) {
						ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
						defer cancel()
						began := time.Now()
						wholes, err := s.Wholes(ctx, began.UnixMilli(), began.UnixMilli(), began)
						if err != nil || len(wholes) != queries {
							t.Fatalf("%d are whole, %v", len(wholes), err)
						}
						resp, err := s.Hedged(ctx, s.Replicas, &endpoint.Request{ID: endpoint.Query, Query: "count(up)"}, CallOptions{})
						if err != nil {
							return "", time.Since(began), err
						}
						defer resp.Body.Close()
						raw, err := io.ReadAll(resp.Body)
						return string(raw), time.Since(began), err
					}
					f.set(tc.does)
					for again := range 2 {
						text, took, err := ask()
						if kindOf(err) != tc.kind || err == nil && !strings.Contains(text, `"6"`) ||
							err != nil && !strings.Contains(err.Error(), tc.says) {
							t.Errorf("asked for the %d. time: %s, %v", again+1, text, err)
						}
						if took > tc.take || again > 0 && tc.kind == "ok" && took > 0 {
							t.Errorf("asked for the %d. time: after %s", again+1, took)
						}
					}
					if strings.Contains(tc.says, "did not answer") { // metadata too, for which a server is waited for less
						ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
						if _, err := s.Do(ctx, &endpoint.Request{ID: endpoint.LabelValues, Label: "job"},
							CallOptions{}); kindOf(err) != tc.kind || !strings.Contains(err.Error(), tc.says) {
							t.Errorf("values: %v", err)
						}
						cancel()
					}
					if got := r.leftOut(); !slices.Equal(got, tc.out) {
						t.Errorf("left out are %q, want %q", got, tc.out)
					}
					note := top.Status()[0].Note
					for _, name := range tc.out {
						if want := name + ` of {cluster="jaguar", prometheus_replica="` + name + `"}`; !strings.Contains(note, want) ||
							!strings.Contains(log.String(), "store="+name) {
							t.Errorf("note %q, log %s", note, log.String())
						}
					}
					if tc.does["a:10"] != "" && len(tc.out) == 1 && tc.kind != "ok" { // the one that is left out comes back first
						f.set(map[string]string{"a:10": "fail"})
						time.Sleep(soundedFor)
						if text, took, err := ask(); err != nil || !strings.Contains(text, `"6"`) || took > 0 {
							t.Errorf("when a:1 is well again: %s, %v after %s", text, err, took)
						}
					}
					f.set(nil)
					time.Sleep(15 * time.Second)
					if got := r.leftOut(); len(got) > 0 {
						t.Errorf("still left out: %q", got)
					}
					text, took, err := ask()
					f.mu.Lock()
					last := f.asked[len(f.asked)-1]
					f.mu.Unlock()
					if err != nil || !strings.Contains(text, `"6"`) || took > 0 || last != "" {
						t.Errorf("when all are well again: %s, %v after %s, asked with %q", text, err, took, last)
					}
				})
			})
		}
	}
}

// TestNoticedMeanwhile: a request that waits for a store when Thanos finds that this hangs, and of
// which nobody else knew, is asked again, and does not wait until Thanos gives the connection up.
func TestNoticedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f fakeStores
		b := newBubble(t, f.config())
		defer b.close()
		top := build(t, Options{Dial: b.dial}, true, thanosGroup(b.urls...))
		defer top.Close()
		top.Refresh(t.Context())
		r := top.Groups[0].Shards[0].Replicas[0]
		f.set(map[string]string{"a:1": "hang"})
		time.AfterFunc(time.Second, func() {
			f.setAway(map[string]string{"a:1": "rpc error: code = DeadlineExceeded desc = context deadline exceeded"})
			_, _ = r.look(t.Context(), time.Now(), time.Now())
		})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		raw, err := readAll(ctx, r, &endpoint.Request{ID: endpoint.Query, Query: "count(up)"}, CallOptions{})
		if took := time.Since(began); err != nil || !strings.Contains(string(raw), `"6"`) || took > 2*storesPatience {
			t.Errorf("%s, %v after %s", raw, err, took)
		}
		f.set(nil)
	})
}

// TestGoneMeanwhile: a request that waits for stores when Thanos finds that nobody has what they
// had fails then, and names them, whatever they say when each is asked by itself. It waits where it
// takes a partial answer.
func TestGoneMeanwhile(t *testing.T) {
	for _, partial := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var f fakeStores
			b := newBubble(t, f.config())
			defer b.close()
			top := build(t, Options{Dial: b.dial}, true, thanosGroup(b.urls...))
			defer top.Close()
			top.Refresh(t.Context())
			f.set(map[string]string{"a:1": "hang", "a:10": "hang"})
			time.AfterFunc(time.Second, func() { f.setAway(map[string]string{"a:1": "Not ready", "a:10": "Not ready"}) })
			ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
			defer cancel()
			began := time.Now()
			_, err := readAll(ctx, top.Groups[0].Shards[0].Replicas[0], &endpoint.Request{ID: endpoint.Query, Query: "count(up)"},
				CallOptions{Partial: partial})
			took := time.Since(began)
			if kindOf(err) != map[bool]string{false: "shard_failed", true: "timeout"}[partial] || (took < 10*time.Second) == partial {
				t.Errorf("partial %v: %v after %s", partial, err, took)
			}
			for _, name := range []string{"a:1", "a:10"} {
				if err != nil && thanos.SpokenOf(err.Error(), []string{name})[name] == "" {
					t.Errorf("partial %v: %v does not name %s", partial, err, name)
				}
			}
			f.set(nil)
		})
	}
}

// TestQuietStaysOut: a store that was left out is not taken in again while Thanos, which calls it
// well, does not ask it.
func TestQuietStaysOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f fakeStores
		b := newBubble(t, f.config())
		defer b.close()
		top := build(t, Options{Dial: b.dial}, true, thanosGroup(b.urls...))
		defer top.Close()
		top.Refresh(t.Context())
		r := top.Groups[0].Shards[0].Replicas[0]
		for _, step := range []struct {
			does string
			out  int
		}{{"fail", 1}, {"quiet", 1}, {"", 0}} {
			f.set(map[string]string{"a:1": step.does})
			if _, err := readAll(t.Context(), r, &endpoint.Request{ID: endpoint.Query, Query: "count(up)"}, CallOptions{}); err != nil {
				t.Errorf("%s: %v", step.does, err)
			}
			time.Sleep(15 * time.Second)
			if out := r.leftOut(); len(out) != step.out {
				t.Errorf("%s: left out are %q, want %d", step.does, out, step.out)
			}
		}
	})
}

// TestSoundedOnce: requests that fail together ask the stores once, not each of them.
func TestSoundedOnce(t *testing.T) {
	var f fakeStores
	fake := fakeshard.Start(t, f.config())
	top := build(t, Options{}, true, thanosGroup(fake.URL()))
	top.Refresh(t.Context())
	f.set(map[string]string{"c:1": "fail"})
	const path = "/api/v1/label/__name__/values"
	var all sync.WaitGroup
	before := len(fake.RequestsTo(path))
	for range 30 {
		all.Go(func() {
			if _, err := readAll(t.Context(), top.Groups[0].Shards[0].Replicas[0],
				&endpoint.Request{ID: endpoint.Query, Query: "count(up)"}, CallOptions{}); kindOf(err) != "shard_failed" {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := len(fake.RequestsTo(path)) - before; n < len(holds) || n > 5*len(holds) { // five where this takes longer than eight seconds
		t.Errorf("%d questions to stores", n)
	}
}

// TestLeftOutIsMissed: an answer to which a store was not asked is whole only while its copy is
// well.
func TestLeftOutIsMissed(t *testing.T) {
	var f fakeStores
	cfg := f.config()
	top := build(t, Options{}, true, thanosGroup(fakeshard.Start(t, cfg).URL()))
	top.Refresh(t.Context())
	r := top.Groups[0].Shards[0].Replicas[0]
	if got := r.missingBeside([]string{"a:1"}); got != "" {
		t.Errorf("missing %q", got)
	}
	r.up.mu.Lock()
	list := slices.Clone(r.up.stores.List)
	for i := range list {
		if list[i].Name == "a:10" {
			list[i].Err = "Not ready"
		}
	}
	r.up.stores.Page(list, r.terms(), time.Now())
	missing := r.up.stores.Missing
	r.up.mu.Unlock()
	if missing != "" {
		t.Errorf("missing %q, though a:1 is well", missing)
	}
	if got := r.missingBeside([]string{"a:1"}); !strings.Contains(got, "a:1 (it was left out)") ||
		!strings.Contains(got, "a:10 (Not ready)") {
		t.Errorf("missing %q", got)
	}
	if r.leaveOut(map[string]string{"a:1": "no"}) {
		t.Error("it is left out, though its copy is not well")
	}
}

// TestAnswerBeforeStoresAreBack: an answer that was asked for before the page of stores was whole
// again is none, though the page is whole by the time it is there: nobody knows without which
// stores it was made.
func TestAnswerBeforeStoresAreBack(t *testing.T) {
	for _, tc := range []struct {
		name string
		away map[string]string // what Thanos says of stores
		out  []string          // what Spillway leaves out meanwhile
		says string            // empty where the answer is whole
	}{
		{"both of a pair", map[string]string{"a:1": "Not ready", "a:10": "Not ready"}, nil, "a:1 (Not ready), sidecar a:10 (Not ready), until a moment ago"},
		{"one of a pair", map[string]string{"a:1": "Not ready"}, nil, ""},
		{"one of a pair, and the other is left out", map[string]string{"a:1": "Not ready"}, []string{"a:10"}, "a:1 (Not ready), sidecar a:10 (it was left out), until a moment ago"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var f fakeStores
				b := newBubble(t, f.config())
				defer b.close()
				top := build(t, Options{Dial: b.dial}, true, thanosGroup(b.urls...))
				defer top.Close()
				top.Refresh(t.Context())
				r := top.Groups[0].Shards[0].Replicas[0]
				look := func(asked time.Time) string {
					t.Helper()
					missing, err := r.look(t.Context(), time.Now(), asked)
					if err != nil {
						t.Fatal(err)
					}
					return missing
				}
				for _, name := range tc.out {
					if !r.leaveOut(map[string]string{name: "no"}) {
						t.Fatalf("%s cannot be left out", name)
					}
				}
				f.setAway(tc.away)
				time.Sleep(time.Second)
				look(time.Now())
				time.Sleep(time.Second)
				asked := time.Now()
				time.Sleep(time.Millisecond)
				f.setAway(nil)
				if got := look(asked); (got == "") != (tc.says == "") || !strings.Contains(got, tc.says) {
					t.Errorf("missing %q, want %q", got, tc.says)
				}
				time.Sleep(time.Millisecond)
				if got := look(time.Now()); got != "" {
					t.Errorf("missing %q to who asks afterwards", got)
				}
			})
		})
	}
}

// TestDoubtfulAreWhole: where all Thanos Queries have failed too often, a request is theirs to
// answer, or to fail with what is the matter; it was refused since it would have to be computed
// from series.
func TestDoubtfulAreWhole(t *testing.T) {
	var f fakeStores
	top := build(t, Options{}, true, thanosGroup(fakeshard.Start(t, f.config()).URL(), fakeshard.Start(t, f.config()).URL()))
	top.Refresh(t.Context())
	s, now := top.Groups[0].Shards[0], time.Now()
	for _, r := range s.Replicas {
		for range 100 {
			r.up.breaker.failure(now)
		}
		if r.up.breaker.current(now) != Open {
			t.Fatal("its breaker is not open")
		}
	}
	if wholes, err := s.Wholes(t.Context(), now.UnixMilli(), now.UnixMilli(), now); err != nil || len(wholes) != 2 {
		t.Errorf("%d are whole, %v", len(wholes), err)
	}
}

// TestStoresAway: a store is counted as away from when Spillway leaves it out, or Thanos does,
// until it is back; no longer listed it still is where it is configured by its address. One whose
// copy is not well is missed instead.
func TestStoresAway(t *testing.T) {
	var f fakeStores
	cfg := f.config()
	cfg.Flags["endpoint"] = "a:1,dns+b"
	top := build(t, Options{}, true, thanosGroup(fakeshard.Start(t, cfg).URL()))
	top.Refresh(t.Context())
	r := top.Groups[0].Shards[0].Replicas[0]
	gone := func(err string, names ...string) {
		r.up.mu.Lock()
		defer r.up.mu.Unlock()
		for i := range r.up.stores.List {
			if slices.Contains(names, r.up.stores.List[i].Name) {
				r.up.stores.List[i].Err = err
			}
		}
	}
	unlisted := func(names ...string) {
		r.up.mu.Lock()
		defer r.up.mu.Unlock()
		r.up.stores.List = slices.DeleteFunc(r.up.stores.List, func(i thanos.Store) bool { return slices.Contains(names, i.Name) })
	}
	want := func(when string, names ...string) {
		t.Helper()
		if got := r.storesAway(); !slices.Equal(got, names) {
			t.Errorf("%s: %q, want %q", when, got, names)
		}
	}
	want("all are well")
	r.leaveOut(map[string]string{"a:1": "no"})
	want("one is left out", "a:1")
	gone("Not ready", "a:1", "b:1")
	want("Thanos has noticed that, and another one", "a:1", "b:1")
	gone("Not ready", "c:1")
	want("one without a copy too", "a:1", "b:1")
	unlisted("a:1", "b:1")
	want("Thanos has forgotten them, and one is configured", "a:1")
	gone("Not ready", "a:10")
	want("neither of a pair is well")
}
