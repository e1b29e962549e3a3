package server

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// Of two replicas of each shard the first one fails: the answer is the other's, whole and without a warning.
func TestFaultsOfOneReplica(t *testing.T) {
	for _, f := range faults {
		switch f.name {
		case "400", "422", "401", "404", "503 of its own deadline":
			continue // a verdict on the request, which stands; it is not asked again elsewhere
		}
		if f.want == 200 {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			limit := 20 * time.Second
			if f.hangs {
				limit = 6 * time.Second
			}
			r := newRig(t, []rigGroup{{"jaguar", false, []int{2, 2}}, {"heron", false, []int{2}}}, limits(limit), func(o *Options) {
				o.shards = shard.Options{HeaderTimeout: 1500 * time.Millisecond, ProgressTimeout: 1500 * time.Millisecond}
			})
			all := askings()
			var bad []*fakeshard.Shard
			for _, s := range []*fakeshard.Shard{r.shards["jaguar"][0][0], r.shards["jaguar"][1][0], r.shards["heron"][0][0]} {
				f.set(t, s, all)
				bad = append(bad, s)
			}
			var wg sync.WaitGroup
			for _, a := range all {
				wg.Go(func() {
					got := r.ask(r.request(context.Background(), a))
					// For what a server computes silence means nothing, and drops are progress: here the deadline may come first, and then its error names the server.
					patient := f.name == "drips" || f.hangs && (a.frames || strings.HasPrefix(a.name, "query"))
					if patient && got.err == nil && got.status == 503 && r.named(got.message.Error, bad) {
						return
					}
					if w, ok := f.or[a.name]; ok && got.err == nil && got.status == w {
						return
					}
					if got.err != nil || got.status != 200 {
						t.Errorf("%s: want the good replicas' answer, got %s; bad are %v", a.name, got, r.call(bad))
						return
					}
					r.whole(a, got)
				})
				if f.single {
					wg.Wait()
				}
			}
			wg.Wait()
			r.idle()
		})
	}
}

// One shard of each group fails. Where the request accepts partial answers, it gets the others' data and a warning that names the shard; else an error.
func TestPartialAnswers(t *testing.T) {
	scripts := map[string]string{
		"reset": "reset", "500": "error 500 internal boom", "cut": "chunked; limit 20 close; answer", "html": "garbage html", "garbage": "garbage",
	}
	for _, configured := range []bool{false, true} {
		for name, script := range scripts {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				more := limits(20 * time.Second)
				if configured {
					more += "partial_response: warn\n"
				}
				r := newRig(t, []rigGroup{{"jaguar", false, []int{1, 1}}, {"heron", false, []int{1}}}, more)
				f := fault{script: script, want: 502}
				bad := r.shards["jaguar"][1][0]
				all := askings()
				f.set(t, bad, all)
				var wg sync.WaitGroup
				for _, a := range all {
					if a.groups[0] == "heron" {
						continue // it does not ask the shard that fails
					}
					wg.Go(func() {
						// With the default, and where the client chooses otherwise.
						choose := []string{"partial_response", "true"}
						refuse := []string{}
						if configured {
							choose, refuse = nil, []string{"partial_response", "false"}
						}
						if !takesPartial(a.id) {
							if !configured {
								return
							}
							refuse = nil
						}
						if refuse != nil {
							r.judge(f, a, r.ask(r.request(context.Background(), a, refuse...)), []*fakeshard.Shard{bad}, 20*time.Second)
						}
						r.isPartial(a, r.ask(r.request(context.Background(), a, choose...)))
					})
				}
				wg.Wait()
				// All shards: an error, whatever is accepted.
				for _, s := range r.all() {
					f.set(t, s, all)
				}
				for _, a := range all {
					if a.groups[0] == "heron" || !configured && !takesPartial(a.id) {
						continue
					}
					var choose []string
					if !configured {
						choose = []string{"partial_response", "true"}
					}
					wg.Go(func() {
						if len(a.groups) == len(r.shards) {
							r.judge(f, a, r.ask(r.request(context.Background(), a, choose...)), r.all(), 20*time.Second)
						}
					})
				}
				wg.Wait()
				r.idle()
			})
		}
	}
}

// takesPartial tells whether the endpoint has the parameter.
func takesPartial(id endpoint.ID) bool {
	for _, p := range endpoint.Get(id).Params {
		if p.Name == "partial_response" {
			return true
		}
	}
	return false
}

// isPartial checks an answer without the shard jaguar[1].
func (r *rig) isPartial(a asking, got *reply) {
	t := r.t
	t.Helper()
	if got.err != nil || got.status != 200 {
		t.Errorf("%s: want a partial answer, got %s", a.name, got)
		return
	}
	switch {
	case a.id == endpoint.Read || a.id == endpoint.Federate:
		return // these formats have no place for a warning
	case got.message.Status != "success" || !strings.Contains(strings.Join(got.message.Warnings, "\n"), "jaguar[1]"):
		t.Errorf("%s: no warning that names the shard: %s", a.name, got)
	case strings.Contains(string(got.body), `"jaguar-1"`):
		t.Errorf("%s: the shard that failed is in the answer: %s", a.name, got)
	}
	switch a.name {
	case "query_range raw", "series", "label_values":
		if !strings.Contains(string(got.body), `"jaguar-0"`) {
			t.Errorf("%s: the sound shard is not in the answer: %s", a.name, got)
		}
	}
}
