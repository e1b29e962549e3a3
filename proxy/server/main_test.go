package server

import (
	"flag"
	"net"
	"os"
	"runtime"
	"strconv"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"go.uber.org/goleak"
)

var testSeed uint64

// waiting is how many parallel tests run at once where there are fewer processors: they mostly wait
// for deadlines.
const waiting = 4

func TestMain(m *testing.M) {
	if spec := os.Getenv(childEnv); spec != "" {
		os.Exit(child(spec))
	}
	flag.Uint64Var(&testSeed, "seed", 0, "seed of random tests; 0 leaves it to internal/randseed")
	flag.Parse()
	chosen := false
	// to fuzz, it is the number of processes
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" || f.Name == "test.fuzz" })
	if !chosen && runtime.GOMAXPROCS(0) < waiting {
		if err := flag.Set("test.parallel", strconv.Itoa(waiting)); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}

type (
	netAddr   = net.Addr
	chunkType = chunkenc.ValueType
)

func pointType(isHistogram bool) chunkType {
	if isHistogram {
		return chunkenc.ValHistogram
	}
	return chunkenc.ValFloat
}

func newMetricsForTest() *metrics { return newMetrics(prometheus.NewRegistry(), nil) }
