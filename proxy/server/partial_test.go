package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/shard"
)

// Of two replicas of each shard the first one fails: the answer is the other's, whole and without a
// warning but for the one that nobody can know that, since the groups have no heartbeat.
func TestFaultsOfOneReplica(t *testing.T) {
	for _, f := range faults {
		switch f.name {
		case "400", "422", "503 of its own deadline":
			continue // a verdict on the request, which stands; it is not asked again elsewhere
		}
		if f.want == 200 {
			continue
		}
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			limit, timeout := ample, ample // the good replicas, too, may be slow to begin
			if f.hangs {
				limit, timeout = 20*time.Second, 4*time.Second
			}
			r := newRig(t, []rigGroup{{"jaguar", false, []int{2, 2}}, {"heron", false, []int{2}}}, roomy(limit), func(o *Options) {
				o.shards = shard.Options{HeaderTimeout: timeout, ProgressTimeout: timeout}
				f.alive(o)
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
					// For what a server computes silence means nothing, and drops are progress:
					// here the deadline may come first, and then its error names the server.
					patient := f.name == "drips" || f.hangs && (a.frames || strings.HasPrefix(a.name, "query"))
					if patient && got.err == nil && got.status == 503 && r.named(got.message.Error, bad) {
						return
					}
					if w, ok := f.or[a.name]; ok && got.err == nil && got.status == w {
						return
					}
					if got.err != nil || got.status != 200 {
						t.Errorf("%s: want the good replicas' answer, got %s; bad are %v", a.name, got, r.called(bad))
						return
					}
					got.message.Warnings = slices.DeleteFunc(got.message.Warnings, func(w string) bool {
						return strings.HasSuffix(w, ": what only it has is missing") && r.named(w, bad)
					})
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

// One shard of each group fails. Where the request accepts partial answers, it gets the others'
// data and a warning that names the shard; else an error.
func TestPartialAnswers(t *testing.T) {
	scripts := map[string]string{
		"reset": "reset", "500": "error 500 internal boom", "cut": "chunked; limit 20 close; answer", "html": "garbage html",
		"garbage": "garbage", "hangs": "stall",
	}
	for _, where := range []string{"", "everywhere", "its group"} {
		configured := where != ""
		for name, script := range scripts {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				limit, hanging := ample, fault{}.alive
				if name == "hangs" { // given up while there is time for an answer without it
					limit, hanging = hangLimit, hangs
				}
				more := roomy(limit)
				if where == "everywhere" {
					more += "partial_response: warn\n"
				}
				r := newRig(t, []rigGroup{{"jaguar", false, []int{1, 1}}, {"heron", false, []int{1}}}, more, hanging)
				if where == "its group" {
					r.lacking("jaguar", "warn", hanging)
				}
				f := fault{script: script, want: 502}
				if name == "hangs" {
					f.want = 503 // at the deadline, or when a shard that was not needed was given up
					// Who waited for the number of series that another one asked for asks anew,
					// of a server that is known to be silent by then.
					f.or = map[string]int{"query_range spliced": 502, "query_range pushed": 502}
				}
				bad := r.shards["jaguar"][1][0]
				all := askings()
				f.set(t, bad, all)
				var wg sync.WaitGroup
				for _, a := range all {
					if a.groups[0] == "heron" {
						continue // it does not ask the shard that fails
					}
					wg.Go(func() {
						// no place for a warning: only who asks for it gets a part
						if configured && (a.id == endpoint.Read || a.id == endpoint.Federate) {
							r.judge(f, a, r.ask(r.request(context.Background(), a)), []*fakeshard.Shard{bad}, limit)
							return
						}
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
							wg.Go(func() {
								r.judge(f, a, r.ask(r.request(context.Background(), a, refuse...)), []*fakeshard.Shard{bad}, limit)
							})
						}
						r.isPartial(a, r.ask(r.request(context.Background(), a, choose...)))
					})
				}
				wg.Wait()
				// All shards: an error, whatever is accepted. That of heron, which has to answer,
				// is waited for until the deadline, and is known to be silent by then.
				if where == "its group" && name == "hangs" {
					f.or = map[string]int{}
					for _, a := range all {
						f.or[a.name] = 502
					}
				}
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
							r.judge(f, a, r.ask(r.request(context.Background(), a, choose...)), r.all(), limit)
						}
					})
				}
				wg.Wait()
				r.idle()
			})
		}
	}
}

// An alert of Grafana's is evaluated without a look at warnings, so whatever is configured it gets
// no part of an answer, unless its query says that it may. Whoever says that it evaluates one is
// believed.
func TestAlertsGetNoPart(t *testing.T) {
	r := newRig(t, []rigGroup{{"jaguar", false, []int{1, 1}}}, roomy(ample)+"partial_response: warn\n")
	fault{script: "reset"}.set(t, r.shards["jaguar"][1][0], askings())
	for _, c := range []struct {
		header, value string
		chosen        []string
		want          int
	}{
		{want: 200},
		{header: "FromAlert", value: "false", want: 200},
		{header: "FromAlert", value: "true", want: 502},
		{header: "X-Rule-Uid", value: "cfp2sqz", want: 502},
		{header: "FromAlert", value: "true", chosen: []string{"partial_response", "true"}, want: 200},
	} {
		for _, path := range []string{"/api/v1/query", "/api/v1/labels"} {
			a := asking{path: path, form: url.Values{}}
			if a.form.Set("match[]", "up"); path == "/api/v1/query" {
				a.form = url.Values{"query": {"up"}}
			}
			req := r.request(context.Background(), a, c.chosen...)
			if c.header != "" {
				req.Header.Set(c.header, c.value)
			}
			got := r.ask(req)
			if got.err != nil || got.status != c.want || got.status == 200 && len(got.message.Warnings) == 0 {
				t.Errorf("%s with %s %q and %q: want %d, got %s", path, c.header, c.value, c.chosen, c.want, got)
			}
		}
	}
	r.idle()
}

// Whoever is told to send partial_response=true gets what answers then, and every row that has the
// parameter, and whose answer says what is missing, is told.
func TestPartialIsAdvisedWhereItIsTaken(t *testing.T) {
	t.Parallel()
	r := newRig(t, []rigGroup{{"jaguar", false, []int{1, 1}}, {"heron", false, []int{1}}}, roomy(ample)+"strict_parameters: true\n")
	all := askings()
	fault{script: "reset"}.set(t, r.shards["jaguar"][1][0], all)
	seen := map[endpoint.ID]bool{}
	for _, a := range all {
		if a.groups[0] == "heron" { // it does not ask the shard that fails
			continue
		}
		seen[a.id] = true
		got := r.ask(r.request(context.Background(), a))
		if got.err != nil || got.status != 502 {
			t.Errorf("%s: want 502, got %s", a.name, got)
			continue
		}
		advised := strings.Contains(string(got.body), "partial_response=true")
		if takes := takesPartial(a.id) && a.id.JSON(); advised != takes { // of federation nobody reads that a part is missing
			t.Errorf("%s: partial_response=true is advised: %t, and the endpoint takes it: %t: %s", a.name, advised, takes, got)
		}
		if advised {
			r.isPartial(a, r.ask(r.request(context.Background(), a, "partial_response", "true")))
		}
	}
	for _, e := range endpoint.Table {
		if e.Class != endpoint.ClassLocal && !seen[e.ID] {
			t.Errorf("%s is not tried", e.ID)
		}
	}
	r.idle()
}

// A federation without a shard says so: in a header, whatever the format, and in the text format in
// comments, which every parser passes over.
func TestPartialFederationSaysSo(t *testing.T) {
	t.Parallel()
	r := newRig(t, []rigGroup{{"jaguar", false, []int{1, 1}}}, roomy(ample))
	ask := func(accept string) (*http.Response, string) {
		req, err := http.NewRequest(http.MethodGet, r.url+"/federate?partial_response=true&match[]=up", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", accept)
		resp, err := r.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("%d %v %s", resp.StatusCode, err, body)
		}
		return resp, string(body)
	}
	const protobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding="
	said := func(partial bool) {
		t.Helper()
		for _, accept := range []string{"text/plain", protobuf + "delimited", protobuf + "text"} {
			resp, body := ask(accept)
			if got := resp.Header.Get("X-Spillway-Partial") == "true"; got != partial {
				t.Errorf("%s: the header says partial %t, want %t", accept, got, partial)
			}
			const comment = "# partial answer: shard jaguar[1] did not answer; its series are missing\n"
			if got, want := strings.HasPrefix(body, comment), partial && accept == "text/plain"; got != want {
				t.Errorf("%s: begins with a comment: %t, want %t: %s", accept, got, want, body)
			}
			if !strings.Contains(body, "jaguar-0") || strings.Contains(body, "jaguar-1") == partial {
				t.Errorf("%s, partial %t: %s", accept, partial, body)
			}
			if accept != "text/plain" {
				continue
			}
			p, err := textparse.New([]byte(body), resp.Header.Get("Content-Type"), labels.NewSymbolTable(), textparse.ParserOptions{})
			for err == nil {
				_, err = p.Next()
			}
			if err != io.EOF {
				t.Errorf("Prometheus reads it with %v: %s", err, body)
			}
		}
	}
	said(false)
	fault{script: "reset"}.set(t, r.shards["jaguar"][1][0], askings())
	said(true)
	r.idle()
}

// takesPartial tells whether the endpoint has the parameter.
func takesPartial(id endpoint.ID) bool { return id.Partial() }

// hangLimit is the timeout of requests of which some wait for a shard that says nothing: two fifths
// of it have to do for the others' answers, on a busy machine too.
const hangLimit = 25 * time.Second

// hangs has a shard taken for one that hangs when it has been silent for longer than a partial
// answer waits for it, and not for as long as hangLimit.
func hangs(o *Options) {
	o.shards = shard.Options{HeaderTimeout: hangLimit * 3 / 4, ProgressTimeout: hangLimit * 3 / 2}
}

// lacking starts the proxy anew, with that partial_response for the group.
func (r *rig) lacking(group, how string, change ...func(*Options)) {
	r.t.Helper()
	key := "  - name: " + group + "\n"
	r.config = strings.Replace(r.config, key, key+"    partial_response: "+how+"\n", 1)
	r.s, r.url = startProxy(r.t, r.t.Context(), r.config, change...)
}

// overBoth are requests on each road that need the shards of both groups.
func overBoth() []asking {
	ranged := func(query string) url.Values {
		return url.Values{"query": {query}, "start": {"999999700"}, "end": {"1000000000"}, "step": {"60"}}
	}
	match := url.Values{"match[]": {"up"}, "start": {"999999700"}, "end": {"1000000000"}}
	out := []asking{
		{name: "splice", path: "/api/v1/query", form: instantly("up")},
		{name: "push", path: "/api/v1/query", form: instantly("max by (instance) (up)")},
		{name: "raw", path: "/api/v1/query", form: instantly("quantile by (instance) (0.5, up)")},
		{name: "parts", path: "/api/v1/query", form: instantly("up + on (instance) group_left () max by (instance) (up)")},
		{name: "range", path: "/api/v1/query_range", form: ranged("up")},
		{name: "range raw", path: "/api/v1/query_range", form: ranged("quantile by (instance) (0.5, up)")},
		{name: "series", path: "/api/v1/series", form: match},
		{name: "values", path: "/api/v1/label/instance/values", form: match},
	}
	return out
}

// Answers may go without shards of one group: those of another one are missed by nobody in silence,
// however many of the first are lost too.
func TestPartialOfOneGroup(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"500": "error 500 internal boom", "cut": "chunked; limit 20 close; answer", "hangs": "stall",
	} {
		for _, key := range []string{"of the group", "of all others"} {
			t.Run(name+", the key is "+key, func(t *testing.T) {
				t.Parallel()
				groups := []rigGroup{{"jaguar", false, []int{1, 1}}, {"heron", false, []int{1}}}
				limit, hanging := ample, fault{}.alive
				if name == "hangs" {
					limit, hanging = hangLimit, hangs
				}
				more := roomy(limit)
				if key == "of all others" {
					more += "partial_response: warn\n"
				}
				r := newRig(t, groups, more, hanging)
				if key == "of the group" {
					r.lacking("jaguar", "warn", hanging)
				} else {
					r.lacking("heron", "abort", hanging)
				}
				f := fault{script: script}
				each := func(check func(a asking, got *reply)) {
					var wg sync.WaitGroup
					for _, a := range overBoth() {
						wg.Go(func() { check(a, r.ask(r.request(context.Background(), a))) })
					}
					wg.Wait()
				}
				each(func(a asking, got *reply) {
					if got.err != nil || got.status != 200 || len(got.message.Warnings) > 0 ||
						!strings.Contains(string(got.body), "jaguar-1") || !strings.Contains(string(got.body), "heron-0") {
						t.Errorf("%s while all are well: %s", a.name, got)
					}
				})
				heron, jaguar := r.shards["heron"][0][0], r.shards["jaguar"][1][0]
				f.set(t, jaguar, askings())
				each(func(a asking, got *reply) {
					if got.err != nil || got.status != 200 || !strings.Contains(strings.Join(got.message.Warnings, "\n"), "jaguar[1]") ||
						strings.Contains(string(got.body), `"jaguar-1"`) ||
						!strings.Contains(string(got.body), `"jaguar-0"`) || !strings.Contains(string(got.body), `"heron-0"`) {
						t.Errorf("%s without jaguar[1]: %s", a.name, got)
					}
				})
				f.set(t, heron, askings())
				each(func(a asking, got *reply) {
					// Where both are silent, the first one that used the time up may be named.
					text := string(got.body)
					named := strings.Contains(text, "heron") || name == "hangs" && strings.Contains(text, "jaguar[1]")
					if got.err == nil && got.status == 200 || !named {
						t.Errorf("%s without jaguar[1] and heron[0]: %s", a.name, got)
					}
				})
			})
		}
	}
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
		return // no JSON; TestPartialFederationSaysSo has what a federation says
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

// Half of an answer has been sent when its shard fails: the connection is broken, so that nobody
// takes the half for the whole, and partial answers change nothing about that.
func TestFaultsAfterTheFirstMegabyte(t *testing.T) {
	t.Parallel()
	var wg sync.WaitGroup
	for _, tc := range []struct{ name, script string }{
		{"reset", "limit 3MiB reset; generate 4MiB"},
		{"cut", "limit 3MiB close; generate 4MiB"},
		{"cut by length", "length 4194304; limit 3MiB close; generate 4MiB"},
		{"stall", "limit 3MiB stall; generate 4MiB"},
		{"garbage", `generate 3MiB; garbage`},
	} {
		for _, partial := range []string{"false", "true"} {
			limit := ample // all of this is made and merged at once
			if tc.name == "stall" {
				limit = hangLimit
			}
			r := newRig(t, []rigGroup{{"jaguar", false, []int{1}}, {"heron", false, []int{1}}}, roomy(limit))
			for _, s := range r.all() {
				if err := s.Set("", fakeshard.Route{Path: "/api/v1/query", Script: tc.script}); err != nil {
					t.Fatal(err)
				}
			}
			a := asking{path: "/api/v1/query", form: map[string][]string{"query": {`up{cluster="jaguar"}`}}}
			wg.Go(func() {
				got := r.ask(r.request(context.Background(), a, "partial_response", partial))
				// A reset may overtake the data: then nothing was sent, and there is an error or a
				// warning that says so.
				early := tc.name == "reset" && got.err == nil && (got.status == 502 || partial == "true" && len(got.message.Warnings) > 0)
				if !early && (!got.half() || got.size < 1<<20) {
					t.Errorf("%s: want a broken connection after the first megabyte, got status %d, %d bytes, %v", tc.name, got.status, got.size, got.err)
				}
				r.idle()
			})
		}
	}
	wg.Wait()
}

// A shard whose series, names or values are out of order cannot be merged: an error that names it,
// never a guess.
func TestFaultsOfOrder(t *testing.T) {
	t.Parallel()
	r := newRig(t, []rigGroup{{"jaguar", false, []int{1, 1}}}, limits(ample))
	bad := r.shards["jaguar"][1][0]
	for _, tc := range []struct{ ask, data string }{
		{"series", `[{"__name__":"up","instance":"b"},{"__name__":"up","instance":"a"}]`},
		{"labels", `["instance","__name__"]`},
		{"label_values", `["b","a"]`},
		{"label_values", `["a","a"]`},
	} {
		for _, a := range askings() {
			if a.name != tc.ask {
				continue
			}
			f := fault{name: tc.data, script: `send '{"status":"success","data":` + tc.data + `}'`, want: 502}
			f.set(t, bad, []asking{a})
			got := r.ask(r.request(context.Background(), a))
			if got.status == 200 && strings.Contains(tc.data, `"a","a"`) || got.status == 200 && tc.ask == "series" {
				r.inOrder(tc.ask, got) // a repeated value, and what is sorted here anyway, do no harm
				continue
			}
			r.judge(f, a, got, []*fakeshard.Shard{bad}, ample)
		}
	}
}

// inOrder checks that a list of strings is sorted and has nothing twice, and that both series stand
// in the order of their labels.
func (r *rig) inOrder(name string, got *reply) {
	body := string(got.body)
	at := func(s string) int { return strings.Index(body, s) }
	if name == "series" {
		if at(`"a"`) < 0 || at(`"b"`) < at(`"a"`) {
			r.t.Errorf("series out of order: %s", body)
		}
		return
	}
	if strings.Count(body, `"a"`) != 1 {
		r.t.Errorf("%s: a value stands twice: %s", name, body)
	}
}

// A shard to which nobody can connect: refused at once, naming it; the same where its name cannot
// be resolved.
func TestFaultsOfConnecting(t *testing.T) {
	t.Parallel()
	good := fakeshard.Start(t, fakeshard.Config{Series: []map[string]string{{"__name__": "up", "instance": "jaguar-0"}}})
	const closed = "127.0.0.1:1" // a port that nobody is given
	r := &rig{t: t, log: &logbook{}, client: newClient(t), names: map[*fakeshard.Shard]string{good: "jaguar/" + good.Addr()}}
	r.s, r.url = startProxy(t, t.Context(), fmt.Sprintf("groups: [{name: jaguar, labels: {cluster: jaguar}, shards: [{replicas: [{url: %q}]}, {replicas: [{url: %q}]}]}]\n", good.URL(), "http://"+closed))
	for _, a := range askings() {
		if a.groups[0] != "jaguar" || a.name == "features" {
			continue
		}
		got := r.ask(r.request(context.Background(), a))
		if got.err != nil || got.status != 502 || !strings.Contains(got.message.Error, "jaguar/"+closed) {
			t.Errorf("%s: %s", a.name, got)
		}
		if !takesPartial(a.id) {
			continue
		}
		got = r.ask(r.request(context.Background(), a, "partial_response", "true"))
		r.isPartial(a, got)
	}
	r.idle()
}

// TestSilentShardOfACrowd: many ask for what the same series have to be counted for, and a shard is
// silent, or several are. Each that may go without them waits for those who count three fifths of
// its time, and not for one after the other until nothing is left.
func TestSilentShardOfACrowd(t *testing.T) {
	t.Parallel()
	for _, silent := range []int{1, 4} {
		t.Run(fmt.Sprint(silent), func(t *testing.T) {
			t.Parallel()
			silentShardsOfACrowd(t, silent)
		})
	}
}

func silentShardsOfACrowd(t *testing.T, silent int) {
	const limit, crowd = 20 * time.Second, 12
	r := newRig(t, []rigGroup{{"jaguar", false, []int{1, 1, 1, 1, 1}[:1+silent]}}, roomy(limit), func(o *Options) {
		o.shards = shard.Options{HeaderTimeout: limit / 2, ProgressTimeout: limit}
	})
	for i := range silent {
		fault{script: "stall", want: 503}.set(t, r.shards["jaguar"][1+i][0], askings())
	}
	var wg sync.WaitGroup
	var late atomic.Int64
	for i := range crowd {
		wg.Go(func() {
			query := fmt.Sprintf(`up{cluster="jaguar"} + %d`, i)
			form := url.Values{"query": {query}, "start": {"999999700"}, "end": {"1000000000"}, "step": {"15"}}
			a := asking{name: fmt.Sprint(i), id: endpoint.QueryRange, path: "/api/v1/query_range", form: form}
			got := r.ask(r.request(context.Background(), a, "partial_response", "true"))
			if r.isPartial(a, got); got.took > limit*3/4 {
				late.Add(1)
			}
		})
	}
	wg.Wait()
	if n := late.Load(); n > crowd/2 {
		t.Errorf("%d of %d have waited for the silent shard for more than three quarters of their time", n, crowd)
	}
	r.idle()
}
