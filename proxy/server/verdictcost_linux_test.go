package server

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/internal/randseed"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	texts "github.com/spillwayproject/spillway/proxy/hostile"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

var (
	verdictTexts = flag.Int("verdicts.texts", 40_000, "how many texts BenchmarkVerdicts asks for a verdict about")
	verdictSeed  = flag.Uint64("verdicts.seed", 1, "of the first text; each next one has the next")
)

// threadTime is the processor time of this thread so far: what else the machine does is not in it.
func threadTime() time.Duration {
	const clockThreadCPUTime = 3
	var ts syscall.Timespec
	if _, _, e := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockThreadCPUTime, uintptr(unsafe.Pointer(&ts)), 0); e != 0 {
		panic(e)
	}
	return time.Duration(ts.Nano())
}

// verdictAsked is a text on its way to a verdict: how it is asked, and what that took.
type verdictAsked struct {
	seed      uint64
	kind, how string
	passed    bool
	verdict   time.Duration
	stretch   time.Duration // behind the verdict, the longest between two looks at the context
}

func (a verdictAsked) longest() time.Duration { return max(a.verdict, a.stretch) }

// looks notes the longest stretch between two looks at a context.
type looks struct {
	context.Context
	last, longest time.Duration
}

// Err implements context.Context: each look asks it.
func (l *looks) Err() error {
	now := threadTime()
	l.longest, l.last = max(l.longest, now-l.last), now
	return l.Context.Err()
}

// verdicts is a proxy over scripted shards that is asked for verdicts, room by room, on one thread.
type verdicts struct {
	s     *Server
	token map[string]string
}

func newVerdicts(t testing.TB) *verdicts {
	dir := t.TempDir()
	v := &verdicts{token: map[string]string{"part": "p" + strings.Repeat("x", 20), "all": "a" + strings.Repeat("x", 20)}}
	for who, token := range v.token {
		if err := os.WriteFile(filepath.Join(dir, who), []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := newRig(t, []rigGroup{{"jaguar", false, []int{2, 1}}, {"heron", false, []int{1, 1}}}, fmt.Sprintf(`usage_log: {path: %s/usage}
tenants:
  - {name: part, bearer_token_file: %s/part, matchers: ['{namespace=~"research-.+",team="a"}']}
  - {name: all, bearer_token_file: %s/all}
`, dir, dir, dir), func(o *Options) { o.Logger = slog.New(slog.DiscardHandler) })
	v.s = r.s
	return v
}

var (
	queryPaths = []string{"/api/v1/query", "/api/v1/query_range", "/api/v1/query_exemplars", "/api/v1/format_query", "/api/v1/parse_query"}
	matchPaths = []string{
		"/api/v1/series", "/api/v1/labels", "/api/v1/label/pod/values", "/federate", "/api/v1/search/metric_names",
		"/api/v1/search/label_names",
		"/api/v1/search/label_values", "/api/v1/label/cluster/values",
	}
)

// request is how the text of a seed is asked: by whom, of which endpoint, as a parameter or as
// several. what says so.
func (v *verdicts) request(seed uint64, text texts.Text) (r *http.Request, what string) {
	rng := rand.New(rand.NewPCG(seed, 0xa5c))
	form, now := url.Values{}, time.Now()
	path, who := queryPaths[rng.IntN(len(queryPaths))], []string{"part", "all"}[rng.IntN(2)]
	if text.Selector || rng.IntN(16) == 0 {
		path = matchPaths[rng.IntN(len(matchPaths))]
		if strings.Contains(path, "label_values") {
			form.Set("label", "pod")
		}
		for range 1 + rng.IntN(max(1, min(64, (200<<10)/(1+len(text.Text))))) {
			form.Add("match[]", text.Text)
		}
	} else {
		form.Set("query", text.Text)
	}
	if strings.HasSuffix(path, "range") {
		form.Set("start", stamp(now.Add(-time.Hour)))
		form.Set("end", stamp(now))
		form.Set("step", "60")
	}
	r = httptest.NewRequest(http.MethodPost, path, strings.NewReader(form.Encode()))
	if path == "/federate" || strings.HasSuffix(path, "values") && strings.Contains(path, "label/") { // no form is taken there
		r = httptest.NewRequest(http.MethodGet, path+"?"+form.Encode(), nil)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Authorization", "Bearer "+v.token[who])
	what = path + " as " + who
	if strings.Contains(path, "/query") && rng.IntN(4) == 0 {
		r.Header.Set(explainHeader, explainPlan)
		what += ", explained"
	}
	return r, what
}

// ask goes the road of a request up to where shards would be asked.
func (v *verdicts) ask(seed uint64) verdictAsked {
	text := texts.TextOf(seed)
	r, how := v.request(seed, text)
	got := verdictAsked{seed: seed, kind: text.Kind, how: how}
	rec := httptest.NewRecorder()
	rec.Body = &bytes.Buffer{}
	began := threadTime()
	x, ctx, leave := v.s.enter(rec, r)
	defer leave()
	err := x.identify(ctx, r, nil)
	if err == nil {
		err = x.understand(ctx, r, nil)
	}
	if err == nil {
		err = x.decide(ctx)
	}
	local := x.id == endpoint.FormatQuery || x.id == endpoint.ParseQuery
	if err == nil && local {
		err = x.answer()
	}
	got.passed, got.verdict = err == nil, threadTime()-began
	look := &looks{Context: context.Background(), last: threadTime()}
	if err == nil && x.id.Evaluates() {
		x.ctx = look
		x.beginAttempt()
		p, fail := x.plan(x.question())
		if err = fail; err == nil {
			_, err = x.tell(p.Root, p.Refused)
		}
	}
	qe := v.s.explain(x, r, err)
	if qe != nil && qe.Kind != qerr.Canceled {
		qe.WriteTo(x.client)
	}
	v.s.finish(x, qe)
	_ = look.Err()
	got.stretch = look.longest
	return got
}

// BenchmarkVerdicts prints what verdicts about texts of up to 64 KiB cost, in milliseconds of a
// processor: p50, p99, p99.9 and the most, with the seed of the worst text, per kind of text and
// per endpoint; then the longest stretch behind the verdict, in planning and accounting, in which
// nothing looks at the context. -verdicts.seed=SEED -verdicts.texts=1 asks one text again.
func BenchmarkVerdicts(b *testing.B) {
	v := newVerdicts(b)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for b.Loop() {
		groups := map[string][]verdictAsked{}
		for i := range uint64(*verdictTexts) {
			one := v.ask(*verdictSeed + i)
			for range 2 { // the collector's work for others falls on whoever comes by
				if one.longest() > 4*time.Millisecond {
					if again := v.ask(one.seed); again.longest() < one.longest() {
						one = again
					}
				}
			}
			path, _, _ := strings.Cut(one.how, " ")
			for _, group := range []string{"all", "kind " + one.kind, "path " + path} {
				groups[group] = append(groups[group], one)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(groups)) {
			fmt.Println("BenchmarkVerdicts:", verdictRow(name, groups[name]))
		}
	}
}

// TestVerdictsTakeBoundedEffort: no text of 64 KiB makes a request do much until it is decided
// about, planned and accounted for, however it is asked, counted in bytes that are allocated: that
// does not depend on the machine. What copies or compiles in quadratic time is far beyond. A text
// of which Prometheus' own parser makes as much, by its regular expressions, may take little more.
func TestVerdictsTakeBoundedEffort(t *testing.T) {
	const most = 40 << 20
	v, seed := newVerdicts(t), randseed.Of(t, 0)
	worst, at := uint64(0), uint64(0)
	seeds := []uint64{606_220} // of which Prometheus' parser makes 40 MB
	for i := range uint64(1000) {
		seeds = append(seeds, seed+i)
	}
	for _, s := range seeds {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got := v.ask(s)
		runtime.ReadMemStats(&after)
		bytes := after.TotalAlloc - before.TotalAlloc
		if bytes > worst {
			worst, at = bytes, got.seed
		}
		if bytes > most && bytes > parsed(texts.TextOf(s))/10*11+4<<20 {
			t.Errorf("the %s text of seed %d, by %s: %d bytes are allocated, at most %d are expected", got.kind, got.seed, got.how, bytes, most)
		}
	}
	t.Logf("at most %d bytes are allocated, by the text of seed %d", worst, at)
}

// parsed is how many bytes Prometheus' own parser allocates for a text.
func parsed(text texts.Text) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	p := parser.NewParser(parser.Options{})
	if text.Selector {
		_, _ = p.ParseMetricSelector(text.Text)
	} else {
		_, _ = p.ParseExpr(text.Text)
	}
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// verdictRow is a row of what a benchmark prints, in milliseconds.
func verdictRow(name string, list []verdictAsked) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%-36s %6d texts", name, len(list))
	passed := 0
	for _, a := range list {
		if a.passed {
			passed++
		}
	}
	fmt.Fprintf(&out, " %3d%% pass", 100*passed/len(list))
	for _, part := range []struct {
		name string
		of   func(verdictAsked) time.Duration
	}{{"verdict", func(a verdictAsked) time.Duration { return a.verdict }}, {
		"rest",
		func(a verdictAsked) time.Duration { return a.stretch },
	}} {
		slices.SortFunc(list, func(a, b verdictAsked) int { return cmp.Compare(part.of(a), part.of(b)) })
		at := func(q float64) float64 {
			return float64(part.of(list[min(len(list)-1, int(q*float64(len(list))))]).Microseconds()) / 1000
		}
		worst := list[len(list)-1]
		fmt.Fprintf(&out, "  %s %.2f %.2f %.2f %.2f (%d %s)", part.name, at(0.5), at(0.99), at(0.999), at(1), worst.seed, worst.how)
	}
	return out.String()
}
