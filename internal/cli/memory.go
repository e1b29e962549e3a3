package cli

import (
	"fmt"
	"log/slog"
	"math"
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/heap"
)

const (
	// memoryBeside is what the proxy needs beside what requests hold: connections, what it knows of
	// shards, the runtime's own.
	memoryBeside = 256 << 20
	// memoryAtRest is the least that the collector aims at: three times what the proxy has where
	// nobody asks for much.
	memoryAtRest = 160 << 20
	// gcPercent is how much garbage there may be beside what is alive, in percent of it, where
	// Spillway's own limit bounds both: what is alive at rest is so little that Go's default
	// collects after every few requests.
	gcPercent = 200
)

// relax lets the collector wait for more garbage where the memory limit is Spillway's own, and
// nobody has set GOGC. It returns what undoes that.
func (m memory) relax() (undo func()) {
	if _, set := os.LookupEnv("GOGC"); set || !m.own {
		return func() {}
	}
	before := debug.SetGCPercent(gcPercent)
	return func() { debug.SetGCPercent(before) }
}

// memory is what the process may use, and who says so.
type memory struct {
	container int64 // what the container allows, in bytes; 0 where there is none
	machine   int64 // what the machine has; 0 where that is not known
	own       bool  // Spillway sets GOMEMLIMIT: the environment does not, and nobody has forbidden it
}

// readMemory asks the system and the environment. Wanted is whether Spillway may set GOMEMLIMIT.
func readMemory(wanted bool, log *slog.Logger) memory {
	_, set := os.LookupEnv("GOMEMLIMIT")
	m := memory{own: wanted && !set && os.Getenv("AUTOMEMLIMIT") != "off"}
	if limit, err := memlimit.FromCgroup(); err == nil {
		m.container = int64(min(limit, math.MaxInt64))
	}
	limit, err := memlimit.FromSystem()
	if err == nil {
		m.machine = int64(min(limit, math.MaxInt64))
	}
	if m.own && m.container == 0 && err != nil {
		log.Warn("the memory of the container is not known; GOMEMLIMIT follows memory.budget alone", "err", err)
	}
	return m
}

// most is what Spillway sets GOMEMLIMIT to at most: nine tenths of what the container or the
// machine has.
func (m memory) most() int64 {
	switch {
	case m.container > 0:
		return m.container / 10 * 9
	case m.machine > 0:
		return m.machine / 10 * 9
	}
	return math.MaxInt64
}

// needed is what a memory.budget needs: twice the budget, since the collector works best while half
// of the heap is alive, and memoryBeside.
func needed(budget int64) int64 { return 2*min(budget, math.MaxInt64/4) + memoryBeside }

// room is what the collector aims at where requests hold so much of a memory.budget: twice that and
// memoryAtRest, but up to half of the budget, all that one request may hold, no more than that half
// and an eighth of it need. So one text does not take with it as much garbage again, and what all
// hold beyond it has room for as much garbage.
func room(budget, claimed int64) int64 {
	one := min(budget, math.MaxInt64/4) / 2
	claimed = min(claimed, math.MaxInt64/8)
	return min(2*claimed+memoryAtRest, max(one+one/8, memoryAtRest)) + 2*max(0, claimed-one)
}

// limit gives what sets GOMEMLIMIT for a memory.budget: what it needs, or the most there is; and
// below that room for what requests hold at the moment. Without a limit the heap grows to twice
// what is alive, and beyond. A GOMEMLIMIT of the environment stays, and nil is where nobody wants
// any of this.
func (m memory) limit() func(budget int64) *heap.Aim {
	if !m.own {
		return nil
	}
	return func(budget int64) *heap.Aim {
		return &heap.Aim{
			Most: min(m.most(), needed(budget)),
			Room: func(claimed int64) int64 { return room(budget, claimed) },
		}
	}
}

// ceiling is what the container allows, a little left for what is no heap; 0 where there is none.
func (m memory) ceiling() int64 { return m.container / 100 * 95 }

// more says what gives the process more memory, where goLimit is the GOMEMLIMIT in force: it is
// whatever stands in the way now.
func (m memory) more(goLimit, budget int64) string {
	has := "the machine has " + admit.FormatBytes(m.machine)
	if m.container > 0 {
		has = "the container has " + admit.FormatBytes(m.container)
	} else if m.machine == 0 {
		has = "what the machine has is not known"
	}
	switch ceiling := m.ceiling(); {
	case m.own && needed(budget) < m.most():
		return fmt.Sprintf("raise memory.budget, which this limit follows (it is %s; %s)", admit.FormatBytes(budget), has)
	case !m.own && (ceiling == 0 || goLimit <= ceiling):
		return fmt.Sprintf("raise GOMEMLIMIT (it is set to %s from outside; %s)", admit.FormatBytes(goLimit), has)
	case m.container > 0:
		return "give the container more memory (" + has + ")"
	}
	return "give Spillway a larger machine (" + has + ")"
}
