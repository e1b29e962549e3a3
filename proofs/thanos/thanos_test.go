package thanos

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/randseed"
)

var (
	all    = flag.Bool("thanos.all", false, "all topologies, one beside the other, with all victims and faults in random order")
	most   = flag.Int("thanos.cases", 0, "with -thanos.all: how many cases of each topology; 0 is all")
	only   = flag.String("thanos.only", "", "with -thanos.all: a regular expression of cases, by the table's words for them (two sidecars, of one shard: nobody has it | hung) or by name (sidecar 0a and sidecar 0b hung)")
	worlds = flag.Int("thanos.worlds", 1, "with -thanos.all: on how many fleets of each topology its cases are dealt out, one beside the other")
	watch  = flag.Duration("thanos.watch", 5*time.Second, "how long a fault lasts")
	every  = flag.Duration("thanos.every", 200*time.Millisecond, "how often each question is asked: many fleets on few processors want it rarer")
	after  = flag.Duration("thanos.after", 2*time.Second, "how long is watched after its end")
	update = flag.Bool("update", false, "write the table of docs/thanos.md")
)

// deed is what happens to whom.
type deed struct {
	ps []part
	f  fault
}

func (d deed) name() string {
	var s []string
	for _, p := range d.ps {
		s = append(s, p.name())
	}
	return strings.Join(s, " and ") + " " + string(d.f)
}

// short are the cases of every run.
var short = []deed{
	{[]part{{prometheus, 1, 1}}, killed},
	{[]part{{sidecar, 0, 0}}, hung},
	{[]part{{sidecar, 0, 0}, {sidecar, 0, 1}}, killed},
}

// finding is what a case came to.
type finding struct {
	answers, refusals int
	longest           time.Duration     // from the first error of a row to the next answer
	until             time.Duration     // when the last error was there, from the fault on
	slowest           time.Duration     // of all answers
	wrong             []string          // those with another number of targets
	young             int               // those that lack what the shard's own servers did not say yet: see waking
	unnamed           []string          // errors that say nothing of what was struck
	said              map[string]string // the first error of each question and status
}

// strike does it to the world, and assesses what was heard meanwhile.
func (w *world) strike(t *testing.T, d deed) finding {
	t.Helper()
	var addrs []string
	for _, p := range d.ps {
		addrs = slices.Concat(addrs, w.parts[p.name()].addrs, w.parts[part{sidecar, p.shard, p.replica}.name()].addrs)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	answers := listen(ctx, w.url)
	wake := &waking{shard: d.orphan(), since: map[string]time.Time{}}
	time.Sleep(time.Second)
	began := time.Now()
	for _, p := range d.ps {
		switch s := w.parts[p.name()]; d.f {
		case killed:
			s.p.Kill()
		case hung:
			s.signal(t, syscall.SIGSTOP)
		case restarted:
			s.signal(t, syscall.SIGTERM)
		}
	}
	if d.f == restarted {
		for _, p := range d.ps {
			s := w.parts[p.name()]
			select {
			case <-s.p.Done():
			case <-time.After(time.Minute):
				s.p.Kill()
			}
			s.start(t)
		}
		wake.look(ctx, w, began)
	}
	time.Sleep(*watch - time.Since(began))
	for _, p := range d.ps {
		switch s := w.parts[p.name()]; d.f {
		case killed:
			s.start(t)
		case hung:
			s.signal(t, syscall.SIGCONT)
		}
	}
	wake.look(ctx, w, began)
	time.Sleep(*after)
	stop()
	out := answers()
	wake.done.Wait()
	return assess(out, began, addrs, d.f, wake)
}

func assess(all []heard, began time.Time, addrs []string, f fault, wake *waking) finding {
	out := finding{said: map[string]string{}}
	for _, h := range all {
		var first time.Time // of a row of errors
		for _, a := range h.answers {
			out.answers++
			out.slowest = max(out.slowest, a.ended.Sub(a.began))
			text := fmt.Sprintf("%s, after %.1fs, in %.1fs: %d %s", h.q.name, a.ended.Sub(began).Seconds(), a.ended.Sub(a.began).Seconds(),
				a.status, a.body)
			v := judge(h.q, a)
			switch {
			case v == wrong && wake.excuses(h.q, a):
				out.young++
			case v == wrong:
				out.wrong = append(out.wrong, text)
			}
			if v == refused && h.q.all && f == hung {
				continue // it can hang with the store; short it must not be
			}
			if v == refused {
				out.refusals++
				if first.IsZero() {
					first = a.began
				}
				out.until = max(out.until, a.ended.Sub(began))
				if key := fmt.Sprint(h.q.name, a.status); out.said[key] == "" {
					out.said[key] = text
				}
				if !names(a.body, addrs) {
					out.unnamed = append(out.unnamed, text)
				}
			}
			if !first.IsZero() {
				out.longest = max(out.longest, a.ended.Sub(first))
			}
			if v != refused {
				first = time.Time{}
			}
		}
	}
	return out
}

// check holds a finding against what is promised.
func (out finding) check(t *testing.T, d deed) {
	t.Helper()
	tell := func(what string, texts []string) {
		if len(texts) > 0 {
			t.Errorf("%d %s:\n%s", len(texts), what, strings.Join(texts[:min(len(texts), 3)], "\n"))
		}
	}
	tell("answers that are not whole", out.wrong)
	if lost(d.ps) {
		tell("errors that name no cause", out.unnamed)
		if d.f != restarted && out.refusals == 0 {
			t.Error("no error, though nobody has the shard")
		}
		return
	}
	if out.refusals > 0 {
		tell(fmt.Sprintf("errors while a copy lives, up to %s in a row, the last after %s, first", out.longest, out.until), slices.Sorted(maps.Values(out.said)))
	}
}

// TestThanos: whatever happens to one of two, answers stay whole and no request fails; where both
// are gone every error says so, and no answer passes for whole.
func TestThanos(t *testing.T) {
	var table results
	t.Run("topologies", func(t *testing.T) {
		if !*all {
			play(t, topologies[0], short, &table)
			return
		}
		seed, chosen := randseed.Of(t, 0), regexp.MustCompile(*only)
		for i, top := range topologies {
			var deeds []deed
			for _, f := range faults {
				for _, ps := range victims {
					if d := (deed{ps, f}); chosen.MatchString(d.class()) || chosen.MatchString(d.name()) {
						deeds = append(deeds, d)
					}
				}
			}
			rand.New(rand.NewPCG(seed, uint64(i))).Shuffle(len(deeds), func(i, j int) { deeds[i], deeds[j] = deeds[j], deeds[i] })
			if *most > 0 {
				deeds = deeds[:min(*most, len(deeds))]
			}
			t.Run(top.name, func(t *testing.T) {
				t.Parallel()
				n := (len(deeds) + *worlds - 1) / *worlds
				for dealt := range slices.Chunk(deeds, max(n, 1)) {
					t.Run("fleet", func(t *testing.T) {
						t.Parallel()
						play(t, top, dealt, &table)
					})
				}
			})
		}
	})
	t.Logf("with faults of %s:\n%s", *watch, table.text())
	if *update {
		table.write(t)
	}
}

// building is held by who builds a fleet: twenty at once starve each other.
var building sync.Mutex

func play(t *testing.T, top topology, deeds []deed, table *results) {
	building.Lock()
	w := build(t, top, building.Unlock)
	for i, d := range deeds {
		t.Run(d.name(), func(t *testing.T) {
			if i > 0 {
				w.settle(t)
			}
			out := w.strike(t, d)
			t.Logf("%s: %d answers in %s and %s, the slowest after %.1fs; %d errors, the longest row of %.1fs, the last after %.1fs; %d not whole, %d before the shard's own servers were", top.name, out.answers, *watch, *after, out.slowest.Seconds(),
				out.refusals, out.longest.Seconds(), out.until.Seconds(), len(out.wrong), out.young)
			out.check(t, d)
			table.add(d, out)
		})
	}
}

// results are findings by what was struck, over all topologies.
type results struct {
	mu   sync.Mutex
	rows map[string]*row
}

type row struct {
	cases                           int
	answers, refusals, wrong, blank int
	longest, slowest                time.Duration
}

// class is what is the same about cases: which kinds of programs, and whether a shard has nobody
// left.
func (d deed) class() string {
	kinds := map[kind]int{}
	for _, p := range d.ps {
		kinds[p.kind]++
	}
	var who string
	switch {
	case len(d.ps) == 1:
		who = "a " + string(d.ps[0].kind)
	case kinds[sidecar] == 2:
		who = "two sidecars"
	case kinds[prometheus] == 2:
		who = "two Prometheus"
	default:
		who = "a sidecar and a Prometheus"
	}
	who = strings.Replace(who, "a prometheus", "a Prometheus", 1)
	switch {
	case lost(d.ps):
		who += ", of one shard: nobody has it"
	case len(d.ps) == 2 && d.ps[0].shard == d.ps[1].shard:
		who += ", of one replica"
	case len(d.ps) == 2:
		who += ", of two shards"
	}
	return who + " | " + string(d.f)
}

func (r *results) add(d deed, f finding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.rows == nil {
		r.rows = map[string]*row{}
	}
	x := r.rows[d.class()]
	if x == nil {
		x = &row{}
		r.rows[d.class()] = x
	}
	x.cases++
	x.answers += f.answers
	x.refusals += f.refusals
	x.wrong += len(f.wrong)
	x.blank += len(f.unnamed)
	x.longest, x.slowest = max(x.longest, f.longest), max(x.slowest, f.slowest)
}

func (r *results) text() string {
	var b strings.Builder
	b.WriteString("| struck | how | cases | answers | not whole | errors | of them without a cause | longest time of errors | slowest answer |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n")
	for _, class := range slices.Sorted(maps.Keys(r.rows)) {
		x := r.rows[class]
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %d | %.1f s | %.1f s |\n", class, x.cases, x.answers, x.wrong, x.refusals, x.blank, x.longest.Seconds(), x.slowest.Seconds())
	}
	return b.String()
}

func (r *results) write(t *testing.T) {
	t.Helper()
	const page, begin, end = "../../docs/thanos.md", "<!-- thanos -->\n", "<!-- /thanos -->"
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(raw), begin)
	_, tail, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no place for the table", page)
	}
	if err := os.WriteFile(page, []byte(head+begin+r.text()+end+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}
