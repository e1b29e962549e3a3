package server

import (
	"flag"
	"net"
	"os"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"go.uber.org/goleak"
)

var testSeed uint64

func TestMain(m *testing.M) {
	if spec := os.Getenv(childEnv); spec != "" {
		os.Exit(child(spec))
	}
	flag.Uint64Var(&testSeed, "seed", 0, "seed of random tests; 0 is a new one each time")
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
