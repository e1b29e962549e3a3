package server

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/policy"
)

const errorsPage = "testdata/errors.golden"

// saying is one way to come to an error.
type saying struct {
	name   string
	more   string // of the configuration
	script string // what the second shard of jaguar does with all that clients ask; "down": it is gone
	path   string
	form   []string // names and values
	known  bool     // its failure is known for a while
	method string
	groups []rigGroup // nil: heron with one shard, jaguar with two
	change func(*Options)
	before func(*rig)                            // what happens first
	post   bool                                  // the form is sent as a body
	own    func(t *testing.T) (url, kind string) // jaguar is this one server
	// there is a group of one shard with two replicas besides, of which none is known to be whole
	pair bool
}

var sayings = []saying{
	{name: "a shard is down", script: "down", form: []string{"query", "up"}},
	{name: "a shard has been down for a while", script: "down", known: true, form: []string{"query", "up"}},
	{
		name: "a shard has been down for a while, metadata", script: "down", known: true, path: "/api/v1/label/instance/values",
		form: []string{"match[]", "up"},
	},
	{name: "a shard has been down for a while, federate", script: "down", known: true, path: "/federate", form: []string{"match[]", "up"}},
	{
		name: "a deny rule", more: "deny: [{name: wall, reason: \"the wall of TVs asks too much; talk to team X\", query: up, until: \"2099-01-01T00:00:00Z\"}]\n",
		form: []string{"query", "up"},
	},
	{name: "a shard hangs", script: "stall", form: []string{"query", "up", "timeout", "4s"}},
	{name: "a shard is known to hang", script: "stall", known: true, form: []string{"query", "up"}},
	{name: "a shard resets", script: "reset", form: []string{"query", "up"}},
	{name: "a shard cuts its answer", script: "limit 20 close; answer", form: []string{"query", "up"}},
	{name: "a shard resets in its answer", script: "limit 20 reset; answer", form: []string{"query", "up"}},
	{name: "a shard says 500", script: "error 500 internal 'out of cheese'", form: []string{"query", "up"}},
	{name: "a shard says 503", script: "status 503; send starting", form: []string{"query", "up"}},
	{name: "a shard says 429 with Retry-After", script: "header Retry-After 30; error 429 too_many_requests busy", form: []string{"query", "up"}},
	{name: "a shard says 503 with Retry-After", script: "header Retry-After 30; status 503; send starting", form: []string{"query", "up"}},
	{name: "a shard says 429", script: "error 429 too_many_requests busy", form: []string{"query", "up"}},
	{name: "a shard runs into its own timeout", script: "error 503 timeout 'query timed out in expression evaluation'", form: []string{"query", "up"}},
	{name: "a shard refuses the query", script: "error 422 execution 'query processing would load too many samples into memory'", form: []string{"query", "up"}},
	{name: "a shard refuses our credentials", script: "status 401; send no", form: []string{"query", "up"}},
	{name: "a shard lacks the endpoint", script: "status 404; send no", form: []string{"query", "up"}},
	{name: "a shard redirects", script: "redirect http://127.0.0.1:1/elsewhere", form: []string{"query", "up"}},
	{name: "a shard is a login page", script: "garbage html", form: []string{"query", "up"}},
	{name: "a shard sends nonsense", script: "garbage shape", form: []string{"query", "up"}},

	{name: "max_series of an answer", more: "limits: {max_series: 1}\n", form: []string{"query", "up"}},
	{name: "max_series of what is evaluated here", more: "limits: {max_series: 1}\n", form: []string{"query", "quantile(0.5, up)"}},
	{name: "max_series of a join", more: "limits: {max_series: 1}\n", form: []string{"query", "sum(up * on(instance) up)"}},
	{name: "max_series where no replica is whole", more: "limits: {max_series: 1}\n", pair: true, form: []string{"query", "up"}},
	{name: "max_samples", more: "limits: {max_samples: 1}\n", form: []string{"query", `quantile(0.5, up{cluster="jaguar"})`}},
	{name: "max_response_bytes", more: "limits: {max_response_bytes: 1KiB}\n", script: "generate 1MiB", form: []string{"query", "up"}},
	{name: "max_shard_bytes", more: "limits: {max_shard_bytes: 1KiB}\n", form: []string{"query", "max_over_time(abs(up)[1h:15s])"}},
	{name: "max_series_touched", more: "limits: {max_series_touched: 1}\n", form: []string{"query", "max_over_time(abs(up)[2h:15s])"}},
	{name: "max_range", more: "limits: {max_range: 1d}\n", form: []string{"query", "rate(up[2d])"}},
	{name: "max_query_bytes", more: "limits: {max_query_bytes: 1KiB}\n", form: []string{"query", "up + " + strings.Repeat("0", 2000)}},
	{name: "max_points", path: "/api/v1/query_range", form: []string{"query", "up", "start", "0", "end", "20000", "step", "1"}},
	{name: "query_shape", form: []string{"query", strings.Repeat("(", 300) + "up" + strings.Repeat(")", 300)}},
	{name: "regex_cost", form: []string{"query", `up{instance=~"(((a{30}){30}){30})"}`}},
	{name: "regex_cost of classes", form: []string{"query", `up{instance=~"` + strings.Repeat("[^/]", 11) + `"}`}},
	{name: "regex_cost of names", form: []string{"query", `up{instance=~".*(` + strings.Repeat("gpu-node|node-gpu|", 600) + `).*"}`}},
	{name: "label_bytes", form: []string{"query", `label_replace(up, "x", "` + strings.Repeat("$1", 300) + `", "instance", "(.*)")`}},
	{name: "query_leaves", form: []string{"query", terms(70)}},
	{name: "unselective", form: []string{"query", `{le!=""}`}},
	{name: "label_collision", form: []string{"query", "sum(up)"}, own: func(t *testing.T) (string, string) {
		return fakeshard.Start(t, fakeshard.Config{Series: []map[string]string{
			{"__name__": "up", "cluster": "one"},
			{"__name__": "up", "cluster": "two"},
		}}).URL(), config.TypePrometheus
	}},
	{name: "thanos_raw", own: func(t *testing.T) (string, string) { return fakeThanos(t, "jaguar").URL(), config.TypeThanos }, path: "/api/v1/query_range", form: []string{"query", `max_over_time(count_values("v", up)[10m:1m] @ end())`, "start", "1000000000", "end", "1000000600", "step", "60"}},
	{name: "body", post: true, form: []string{"query", "up + " + strings.Repeat("0", 2<<20)}},
	{name: "memory.budget", more: "memory: {budget: 64KiB}\n", form: []string{"query", "quantile(0.5, up)"}},
	{name: "timeout while the shards are asked", more: "limits: {timeout: 4s}\n", script: "stall", form: []string{"query", "up"}},
	{name: "timeout while it is evaluated", more: "limits: {timeout: 1s}\n", path: "/api/v1/query_range", form: long(40)},

	{name: "a query that cannot be parsed", form: []string{"query", "sum(up"}},
	{name: "no query", form: []string{}},
	{name: "a selector that selects nothing in particular", form: []string{"query", `{__name__=~".*"}`}},
	{name: "a time that is none", form: []string{"query", "up", "time", "yesterday"}},
	{name: "a path that is none", path: "/api/v1/nothing"},
	{name: "a wrong method", path: "/api/v1/query", method: http.MethodDelete},
}

// TestErrorsReadAloud holds the sentence of each error that a client can come to. Read the file
// aloud when it changes: what happened, where, since when, what to do now, and what to do for good.
// Written by -update.
func TestErrorsReadAloud(t *testing.T) {
	sayings := slices.Concat(sayings, roomSayings)
	out := make([]string, len(sayings))
	t.Run("all", func(t *testing.T) {
		for i, s := range sayings {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				out[i] = s.provoke(t)
			})
		}
	})
	got := strings.Join(out, "\n")
	if *update {
		if err := os.WriteFile(errorsPage, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(errorsPage)
	if err != nil {
		t.Fatal(err)
	}
	wants := strings.Split(string(want), "\n\n")
	for i, text := range strings.Split(got, "\n\n") {
		if i >= len(wants) || text != wants[i] {
			t.Errorf("not as in %s (-update writes it anew):\n%s", errorsPage, text)
		}
	}
	if n := strings.Count(got, "\n\n") + 1; n != len(wants) {
		t.Errorf("%d errors, %s has %d", n, errorsPage, len(wants))
	}
	for _, bound := range policy.Bounds() {
		// which makes an answer shorter, and refuses nothing
		if bound != policy.BoundMetadataRange && !strings.Contains(got, ", bound "+bound+",") {
			t.Errorf("no refusal names the bound %s", bound)
		}
	}
	var capacity []string
	for _, m := range regexp.MustCompile(`(?m)^429 .* bound ([a-z._]+),`).FindAllStringSubmatch(got, -1) {
		capacity = append(capacity, m[1])
	}
	slices.Sort(capacity)
	if capacity, want := slices.Compact(capacity), slices.Sorted(slices.Values(policy.CapacityBounds())); !slices.Equal(capacity, want) {
		t.Errorf("429 is said for %v, policy.CapacityBounds has %v", capacity, want)
	}
}

// provoke has the sentence said; anew where the machine took so long that more is known of the
// server by the time of the answer, which says it then: that there was trouble for a while, or that
// a second probe has failed.
func (s saying) provoke(t *testing.T) string {
	for n := 0; ; n++ {
		text, late := s.once(t)
		if !late || n == 3 {
			return text
		}
	}
}

func (s saying) once(t *testing.T) (text string, late bool) {
	if s.groups == nil {
		s.groups = []rigGroup{{"heron", false, []int{1}}, {"jaguar", false, []int{1, 1}}}
	}
	if s.change == nil {
		s.change = func(*Options) {}
	}
	if s.pair {
		s.groups, s.change = append(s.groups, rigGroup{"ibis", false, []int{2}}),
			func(o *Options) { o.Config.Groups[2].Heartbeat = "nobody_has_this" }
	}
	if s.own != nil {
		url, kind := s.own(t)
		s.change = func(o *Options) {
			o.Config.Groups[1].Shards = o.Config.Groups[1].Shards[:1]
			replica := &o.Config.Groups[1].Shards[0].Replicas[0]
			replica.URL, replica.Type = url, kind
		}
	}
	r := newRig(t, s.groups, s.more, s.change)
	began := time.Now()
	r.s.rewriteTime = 0 // what else to ask depends on what is known by then: proxy/rewrite/testdata/refused.golden has those
	bad := r.shards["jaguar"][1][0]
	switch s.script {
	case "":
	case "down":
		bad.Close()
	default:
		if err := bad.Set(s.script); err != nil {
			t.Fatal(err)
		}
	}
	if s.path == "" {
		s.path = "/api/v1/query"
	}
	a := asking{path: s.path, post: s.post}
	if s.known {
		rep := r.s.state.Load().top.Groups[1].Shards[1].Replicas[0]
		r.ask(r.request(context.Background(), asking{path: "/api/v1/query"}, "query", "up", "timeout", "3s"))
		r.eventually("the failure is known for a while", func() bool {
			what, since := rep.Trouble()
			return what != "" && !strings.HasPrefix(what, "has failed") && time.Since(since) > 2*time.Second
		})
	}
	if s.before != nil {
		s.before(r)
	}
	say := func() *reply {
		req := r.request(context.Background(), a, s.form...)
		if s.method != "" {
			req.Method = s.method
		}
		return r.ask(req)
	}
	got := say()
	for range 2 {
		if slices.Contains(s.form, queueing) && got.message.Spillway.Bound == policy.BoundTimeout { // it woke up when its time was over
			got = say()
		}
	}
	if got.status == http.StatusOK {
		t.Errorf("no error: %s", got)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n%d %s", s.name, got.status, got.message.ErrorType)
	if after := got.header.Get("Retry-After"); after != "" {
		if got.message.Spillway.Bound == policy.BoundQuarantine {
			after = whatIsLeft(after, 60, began)
		} else {
			after = maskJitter.ReplaceAllString(after, "10")
		}
		fmt.Fprintf(&b, ", Retry-After %s", after)
	}
	if d := got.message.Spillway; d.Bound != "" {
		fmt.Fprintf(&b, ", bound %s, value %s, seen %s", d.Bound, d.Value, r.masked(d.Seen))
	}
	text = maskLeft.ReplaceAllStringFunc(r.masked(got.message.Error), func(left string) string {
		return "another " + whatIsLeft(maskLeft.FindStringSubmatch(left)[1], 30, began) + "s"
	})
	fmt.Fprintf(&b, "\n%s\n", text)
	if s.known {
		_, err := r.s.state.Load().top.Groups[1].Shards[1].Usable()
		return b.String(), err != nil
	}
	return b.String(), got.took >= time.Second && strings.Contains(text, "(since ")
}

// whatIsLeft is a number of seconds as it was at the beginning, where it has become less by no more
// than have passed since began.
func whatIsLeft(left string, of int, began time.Time) string {
	n, err := strconv.Atoi(left)
	if err != nil || n > of || n < of-int(time.Since(began).Seconds())-1 {
		return left
	}
	return strconv.Itoa(of)
}

var (
	maskSince = regexp.MustCompile(`for [0-9hms.]+ \(since [0-9:]+ UTC\)`)
	maskLeft  = regexp.MustCompile(`another ([0-9]+)s`)

	maskJitter = regexp.MustCompile(`^(1[0-9]|20)$`) // of a server without memory
	maskClock  = regexp.MustCompile(`[0-9]{2}:[0-9]{2}:[0-9]{2} UTC`)
	maskWaited = regexp.MustCompile(`for [0-9.]+m?s after it had run for [0-9.]+m?s`)
	maskPort   = regexp.MustCompile(`127\.0\.0\.1:[0-9]{4,5}`)
	maskWait   = regexp.MustCompile(`it waited [0-9.]+m?s`)
	maskTried  = regexp.MustCompile(`samples? in [0-9.]+m?s\)`)
	maskHeld   = regexp.MustCompile(`[0-9.]+MiB (in use|of 1MiB)`)
	maskNeeds  = regexp.MustCompile(`which needs (48|64)KiB more`) // by which shard's answer comes first
)

// masked is a sentence without what differs from run to run.
func (r *rig) masked(text string) string {
	for g, shards := range r.shards {
		for i, replicas := range shards {
			for j, s := range replicas {
				text = strings.ReplaceAll(text, s.Addr(), fmt.Sprintf("%s-%d-%d:9090", g, i, j))
			}
		}
	}
	text = maskSince.ReplaceAllString(text, "for 4m12s (since 03:00:00 UTC)")
	text = maskWaited.ReplaceAllString(text, "for 900ms after it had run for 20ms")
	text = maskWait.ReplaceAllString(text, "it waited 900ms")
	text = maskPort.ReplaceAllString(text, "127.0.0.1:9090") // of a server that is none of the rig's
	text = maskTried.ReplaceAllString(text, "samples in 12ms)")
	text = maskHeld.ReplaceAllString(text, "100MiB $1")
	text = maskNeeds.ReplaceAllString(text, "which needs 48KiB more")
	return maskClock.ReplaceAllString(text, "03:00:00 UTC")
}

// TestExplainNamesADeadShard: a query that cannot be answered now, because nobody is there to ask,
// is not said to be exact.
func TestExplainNamesADeadShard(t *testing.T) {
	r := newRig(t, []rigGroup{{"heron", false, []int{1}}, {"jaguar", false, []int{1, 1}}}, limits(ample))
	r.shards["jaguar"][1][0].Close()
	rep := r.s.state.Load().top.Groups[1].Shards[1].Replicas[0]
	r.eventually("the shard is known to be down", func() bool { what, _ := rep.Trouble(); return what == "cannot be reached" })
	for q, verdict := range map[string]string{`count(up)`: "refused", `up{cluster="jaguar"}`: "refused", `up{cluster="heron"}`: "exact"} {
		e, err := r.s.ExplainQuery(t.Context(), Question{Query: q})
		if err != nil {
			t.Fatal(err)
		}
		if e.Verdict != verdict || (verdict == "refused") != strings.Contains(e.Reason, rep.Name()+" cannot be reached") {
			t.Errorf("%s: %s, %q", q, e.Verdict, e.Reason)
		}
	}
}
