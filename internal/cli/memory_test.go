package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// hugeShards are two shards with so many series of one metric in all, and a small one.
func hugeShards(t *testing.T, series int) string {
	var urls []string
	for shard := range 2 {
		list := []map[string]string{{"__name__": "small", "instance": fmt.Sprint("s", shard)}}
		for i := range series / 2 {
			n := fmt.Sprint(shard*series + i)
			list = append(list, map[string]string{"__name__": "huge", "instance": "node-" + n + ":9100", "job": "node", "i": n})
		}
		urls = append(urls, fakeshard.Start(t, fakeshard.Config{Series: list}).URL())
	}
	file := filepath.Join(t.TempDir(), "spillway.yaml")
	write(t, file, fmt.Sprintf("groups: [{name: main, shards: [{replicas: [{url: %q}]}, {replicas: [{url: %q}]}]}]\n", urls[0], urls[1]))
	return file
}

// status is a figure of the process in /proc, in bytes.
func (p *process) status(name string) int64 {
	p.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	m := regexp.MustCompile(name + `:\s+(\d+) kB`).FindSubmatch(b)
	if m == nil {
		p.t.Fatalf("no %s in\n%s", name, b)
	}
	n, err := strconv.ParseInt(string(m[1]), 10, 64)
	if err != nil {
		p.t.Fatal(err)
	}
	return n << 10
}

var (
	rounds = flag.Int("killers.rounds", 1, "how many queries each of the 64 callers sends")
	each   = flag.Duration("killers.timeout", 5*time.Second, "how long each of them may take")
)

// killers are queries that hold much, each in its way.
var killers = []string{
	`quantile by (i) (0.5, huge)`,
	`huge + on (i) group_left () huge`,
	`max_over_time(quantile by (instance) (0.9, huge)[10m:15s])`,
	`count by (x) (label_replace(huge, "x", "$1$1$1$1$1$1$1$1", "instance", "(.*)"))`,
	`sort(avg_over_time(huge[10m]))`,
	`count_values("v", huge * on (i) group_left () huge)`,
	`quantile_over_time(0.9, vector(time())[5000s:1s])`,
	`topk by (i) (3, rate(huge[5m])) or huge`,
}

// killer is the i-th of them over the last 50 minutes.
func killer(i int) string {
	end := time.Now().Truncate(time.Minute).Unix()
	return "/api/v1/query_range?" + url.Values{
		"query": {killers[i%len(killers)]}, "start": {fmt.Sprint(end - 200*15)}, "end": {fmt.Sprint(end)},
		"step": {"15"}, "timeout": {each.String()},
	}.Encode()
}

// storm asks killers from so many callers at once, and small things of the series with these
// matchers beside them, until each caller had its answers. It returns what was answered by status.
func (p *process) storm(callers, each int, killer func(i int) string, of string) (answers map[string]int) {
	var mu sync.Mutex
	answers = map[string]int{}
	note := func(who string, status int, err error) {
		mu.Lock()
		defer mu.Unlock()
		answers[fmt.Sprintf("%s %d", who, status)]++
		if err != nil && who == "small" {
			p.t.Errorf("a small request: %v", err)
		}
	}
	var storm, small sync.WaitGroup
	for i := range callers {
		storm.Go(func() {
			for j := range each {
				status, _, err := request(http.MethodGet, p.main+killer(i+j))
				note("killer", status, err)
			}
		})
	}
	ctx, stop := context.WithCancel(context.Background())
	for range 2 {
		small.Go(func() {
			for ctx.Err() == nil {
				for _, path := range []string{
					"/api/v1/query?query=sum(small" + of + ")", "/-/healthy", "/api/v1/query?query=vector(1)%2B1",
					"/api/v1/series?match[]=small" + of,
				} {
					status, body, err := request(http.MethodGet, p.main+path)
					note("small", status, err)
					if err == nil && status != http.StatusOK {
						p.t.Errorf("%s beside the storm: %d %s", path, status, body)
					}
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	storm.Wait()
	stop()
	small.Wait()
	return answers
}

// TestKillersUnderAMemoryLimit: 64 callers of queries that hold much, in a process that has 512
// MiB. It stays at most 600 MiB large, and whoever asks for little is answered meanwhile.
func TestKillersUnderAMemoryLimit(t *testing.T) {
	p := startProcess(t, hugeShards(t, 20_000), "GOMEMLIMIT=512MiB")
	idle := p.status("VmHWM")
	began := time.Now()
	p.most(idle, began, p.storm(64, *rounds, killer, ""))
}

// most checks how large the process was at most.
func (p *process) most(idle int64, began time.Time, answers map[string]int) {
	p.t.Helper()
	most := p.status("VmHWM")
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(answers)) {
		fmt.Fprintf(&b, " %s: %d;", k, answers[k])
	}
	p.t.Logf("idle %d MiB, most %d MiB, %s;%s", idle>>20, most>>20, time.Since(began).Round(100*time.Millisecond), b.String())
	if limit := int64(600 << 20); most > limit {
		p.t.Errorf("the process was %d MiB large, at most %d are allowed", most>>20, limit>>20)
	}
}

// TestHostileServersUnderAMemoryLimit: 64 callers of servers that answer everything, the prober's
// questions included, with a gigabyte: of series, of one text, of chunks, or of zeros in a megabyte
// of gzip. The process, which has 512 MiB, stays at most 600 MiB large, and who asks a sound server
// is answered meanwhile.
func TestHostileServersUnderAMemoryLimit(t *testing.T) {
	if *rounds == 1 {
		t.Skip("64 callers of a gigabyte each take both processors for half a minute; make test-full has it, by -killers.rounds")
	}
	hostile := fakeshard.Config{Routes: []fakeshard.Route{
		{Path: "/-/ready", Script: "answer"},
		{Path: "/api/v1/query", Script: "generate 1GiB"},
		{Path: "/api/v1/query_range", Script: "gzip bomb 1GiB"},
		{Path: "/api/v1/series", Script: "generate 1GiB string"},
		{Path: "/api/v1/read", Script: "generate 1GiB longchunks"},
		{Script: "generate 1GiB"},
	}}
	var b strings.Builder
	b.WriteString("groups:\n")
	for group, servers := range map[string][]fakeshard.Config{
		"hostile": {hostile, hostile, hostile, hostile},
		"sound":   {{Series: []map[string]string{{"__name__": "small", "instance": "s"}}}},
	} {
		fmt.Fprintf(&b, "  - {name: %s, labels: {cluster: %[1]s}, shards: [", group)
		for _, c := range servers {
			fmt.Fprintf(&b, "{replicas: [{url: %q}]}, ", fakeshard.Start(t, c).URL())
		}
		b.WriteString("]}\n")
	}
	file := filepath.Join(t.TempDir(), "spillway.yaml")
	write(t, file, b.String())
	p := startProcess(t, file, "GOMEMLIMIT=512MiB")
	idle, began := p.status("VmHWM"), time.Now()
	these := url.QueryEscape(`{cluster="hostile"}`)
	asks := []string{
		"query?query=up" + these, "query?query=quantile(0.5,up" + these + ")", "query_range?start=0&end=600&step=60&query=up" + these,
		"query_range?start=0&end=600&step=60&query=up" + these + "*on()group_left()up" + these, "series?match[]=up" + these,
		"labels?match[]=up" + these, "label/instance/values?match[]=up" + these, "rules", "targets", "metadata",
		"query_exemplars?start=0&end=600&query=up" + these, "status/config",
	}
	p.most(idle, began, p.storm(64, *rounds, func(i int) string {
		if i%8 == 0 {
			return "/federate?match[]=up" + these
		}
		return "/api/v1/" + asks[i%len(asks)]
	}, url.QueryEscape(`{cluster="sound"}`)))
}

// TestRoom: one request that holds all that it may has little garbage beside it, what holds little
// has much, and what many hold beyond one has as much again; more is never less room.
func TestRoom(t *testing.T) {
	const mib = int64(1 << 20)
	for _, tc := range []struct{ budget, claimed, want int64 }{
		{512, 0, 160},
		{512, 20, 200},
		{512, 64, 288},
		{512, 256, 288},
		{512, 300, 376},
		{512, 512, 800},
		{128, 0, 160},
		{128, 64, 160},
		{128, 128, 288},
		{4096, 100, 360},
		{4096, 2048, 2304},
		{4096, 4096, 6400},
	} {
		if got := room(tc.budget*mib, tc.claimed*mib) / mib; got != tc.want {
			t.Errorf("%d of %d MiB claimed: room for %d, want %d", tc.claimed, tc.budget, got, tc.want)
		}
	}
	before := int64(0)
	for _, claimed := range []int64{0, mib, 100 * mib, 256 * mib, 1 << 40, math.MaxInt64} {
		got := room(512*mib, claimed)
		if got < before || got <= claimed && claimed < 1<<50 {
			t.Errorf("%d claimed: room for %d, and for less %d", claimed, got, before)
		}
		before = got
	}
	if got := room(math.MaxInt64, 0); got != memoryAtRest {
		t.Errorf("without a bound: %d", got)
	}
}

// TestMoreMemory: what is advised is what raises the limit in force, whoever has set it.
func TestMoreMemory(t *testing.T) {
	const gib = int64(1 << 30)
	for _, tc := range []struct {
		name          string
		memory        memory
		limit, budget int64 // 0: as Spillway sets it
		want          string
	}{
		{"its own, by the budget", memory{container: 8 * gib, own: true}, 0, gib / 2, "raise memory.budget, which this limit follows (it is 512MiB; the container has 8GiB)"},
		{"its own, by the budget, no container", memory{machine: 64 * gib, own: true}, 0, gib / 2, "raise memory.budget, which this limit follows (it is 512MiB; the machine has 64GiB)"},
		{"its own, nobody knows the memory", memory{own: true}, 0, gib / 2, "raise memory.budget, which this limit follows (it is 512MiB; what the machine has is not known)"},
		{"its own, by the container", memory{container: gib, machine: 64 * gib, own: true}, 0, gib / 2, "give the container more memory (the container has 1GiB)"},
		{"its own, by the machine", memory{machine: gib, own: true}, 0, gib / 2, "give Spillway a larger machine (the machine has 1GiB)"},
		{"of the environment", memory{container: 8 * gib, machine: 64 * gib}, 2 * gib, gib / 2, "raise GOMEMLIMIT (it is set to 2GiB from outside; the container has 8GiB)"},
		{"of the environment, no container", memory{machine: 64 * gib}, 2 * gib, gib / 2, "raise GOMEMLIMIT (it is set to 2GiB from outside; the machine has 64GiB)"},
		{"of the environment, above the container", memory{container: gib}, 2 * gib, gib / 2, "give the container more memory (the container has 1GiB)"},
		{"of nobody, in a container", memory{container: gib}, math.MaxInt64, gib / 2, "give the container more memory (the container has 1GiB)"},
	} {
		if tc.memory.own {
			tc.limit = min(tc.memory.most(), needed(tc.budget))
		}
		if got := tc.memory.more(tc.limit, tc.budget); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.want)
		}
		// Doing what it says raises what the process may hold.
		ceiling := func(m memory, limit, budget int64) int64 {
			if m.own {
				limit = min(m.most(), needed(budget))
			}
			if c := m.ceiling(); c > 0 {
				limit = min(limit, c)
			}
			return limit
		}
		more, limit, budget := tc.memory, tc.limit, tc.budget
		switch {
		case strings.HasPrefix(tc.want, "raise memory.budget"):
			budget *= 2
		case strings.HasPrefix(tc.want, "raise GOMEMLIMIT"):
			limit *= 2
		case strings.HasPrefix(tc.want, "give the container"):
			more.container *= 2
		default:
			more.machine *= 2
		}
		if before, after := ceiling(tc.memory, tc.limit, tc.budget), ceiling(more, limit, budget); after <= before {
			t.Errorf("%s: %q raises the limit from %d to %d", tc.name, tc.want, before, after)
		}
	}
}

// TestReadMemory: a GOMEMLIMIT of the environment stays, and so does its absence where nobody wants
// Spillway to set one.
func TestReadMemory(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	for _, tc := range []struct {
		name, key, value string
		wanted, own      bool
	}{
		{"nothing set", "", "", true, true},
		{"--no-auto-gomemlimit", "", "", false, false},
		{"GOMEMLIMIT", "GOMEMLIMIT", "1GiB", true, false},
		{"AUTOMEMLIMIT=off", "AUTOMEMLIMIT", "off", true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, key := range []string{"GOMEMLIMIT", "AUTOMEMLIMIT"} {
				t.Setenv(key, "")
				os.Unsetenv(key) // Setenv puts it back
			}
			if tc.key != "" {
				t.Setenv(tc.key, tc.value)
			}
			m := readMemory(tc.wanted, log)
			if m.own != tc.own || (m.limit() != nil) != tc.own {
				t.Errorf("%+v", m)
			}
			if m.machine <= 0 || m.container < 0 {
				t.Errorf("what the machine has is not known: %+v", m)
			}
		})
	}
}

// ticks is the processor time that the process has used, in clock ticks of 10 ms.
func (p *process) ticks() int {
	p.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	if err := errors.Join(err1, err2); err != nil {
		p.t.Fatal(err)
	}
	return user + system
}

// TestLeftKillersLeaveNothing: sixteen callers ask what takes long and leave at once. Soon nothing
// is evaluated any more, no processor is burnt, and the process ends when it is told to.
func TestLeftKillersLeaveNothing(t *testing.T) {
	p := startProcess(t, onShard(t, fakeshard.Start(t, fakeshard.Config{}), ""))
	end := time.Now().Truncate(time.Minute).Unix()
	var all sync.WaitGroup
	for n := range 16 {
		all.Go(func() {
			// Each has a query of its own, so that none is answered with another's, of 0.4 s alone.
			const q = "mad_over_time(vector(time())[%ds:1s])"
			form := url.Values{
				"query": {fmt.Sprintf(q+" + "+q, 4000-n, 3900-n)},
				"start": {fmt.Sprint(end - 1000)}, "end": {fmt.Sprint(end)}, "step": {"1"},
			}
			ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
			defer cancel()
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.main+"/api/v1/query_range?"+form.Encode(), nil)
			if err != nil {
				t.Error(err)
				return
			}
			tr := &http.Transport{DisableKeepAlives: true}
			defer tr.CloseIdleConnections()
			resp, err := (&http.Client{Transport: tr}).Do(req)
			if err == nil {
				t.Errorf("answered within 200 ms, with %s: the query is no killer", resp.Status)
				resp.Body.Close()
			}
		})
	}
	all.Wait()
	idle := regexp.MustCompile(`(?m)^spillway_evaluations_running 0\n(?s:.*)^spillway_evaluations_waiting 0\n(?s:.*)^spillway_requests_in_flight 0$`)
	for until := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		_, body, err := request(http.MethodGet, p.admin+"/metrics")
		if err == nil && idle.MatchString(body) {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("evaluations go on: %v\n%s", err, body)
		}
	}
	before := p.ticks()
	time.Sleep(time.Second)
	if burnt := p.ticks() - before; burnt > 30 {
		t.Errorf("%d ms of processor time were used in a second after all had left", 10*burnt)
	}
	t.Logf("%d ms of processor time in all", 10*before)
	if before > 400 { // what sixteen take to their ends is more
		t.Errorf("%d ms of processor time were used for callers who left after 200 ms", 10*before)
	}
	p.signal(syscall.SIGTERM)
	p.exits(0)
}

// TestRelax: the collector waits for more garbage where the limit is Spillway's own, and only
// there; a GOGC of the environment stays.
func TestRelax(t *testing.T) {
	percent := func() int {
		n := debug.SetGCPercent(100)
		debug.SetGCPercent(n)
		return n
	}
	before := percent()
	for _, tc := range []struct {
		own  bool
		gogc string
		want int
	}{{true, "", gcPercent}, {false, "", before}, {true, "100", before}} {
		t.Setenv("GOGC", tc.gogc)
		if tc.gogc == "" {
			os.Unsetenv("GOGC")
		}
		undo := memory{own: tc.own}.relax()
		if got := percent(); got != tc.want {
			t.Errorf("own %v, GOGC %q: %d %%, want %d", tc.own, tc.gogc, got, tc.want)
		}
		if undo(); percent() != before {
			t.Errorf("own %v, GOGC %q: not undone", tc.own, tc.gogc)
		}
	}
}
