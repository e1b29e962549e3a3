package server

import (
	"flag"
	"net"
	"testing"

	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"go.uber.org/goleak"
)

var testSeed uint64

func TestMain(m *testing.M) {
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
