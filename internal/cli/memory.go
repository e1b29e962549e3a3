package cli

import (
	"log/slog"
	"math"
	"os"
	"runtime/debug"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// memoryBeside is what the proxy needs beside what requests hold: connections, what it knows of shards, the runtime's own.
const memoryBeside = 256 << 20

// limitMemory gives what sets GOMEMLIMIT for a memory.budget: nine tenths of what the container or the machine has, or twice the budget and memoryBeside, whichever is
// less. Without a limit the heap grows to twice what is alive. A GOMEMLIMIT of the environment stays, and nil is where nobody wants any of this.
func limitMemory(wanted bool, log *slog.Logger) func(budget int64) {
	if _, set := os.LookupEnv("GOMEMLIMIT"); set || !wanted || os.Getenv("AUTOMEMLIMIT") == "off" {
		return nil
	}
	most := int64(math.MaxInt64)
	limit, err := memlimit.ApplyFallback(memlimit.FromCgroup, memlimit.FromSystem)()
	if err != nil {
		log.Warn("the memory of the container is not known; GOMEMLIMIT follows memory.budget alone", "err", err)
	} else {
		most = int64(min(limit, math.MaxInt64)) / 10 * 9
	}
	return func(budget int64) { debug.SetMemoryLimit(min(most, 2*min(budget, math.MaxInt64/4)+memoryBeside)) }
}

// container is what a container allows, a little left for what is no heap; 0 where there is none.
func container() int64 {
	limit, err := memlimit.FromCgroup()
	if err != nil {
		return 0
	}
	return int64(min(limit, math.MaxInt64)) / 100 * 95
}
