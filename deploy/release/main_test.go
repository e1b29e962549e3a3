package main

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

var cold = flag.Bool("release.cold", false,
	"make the whole release for two platforms twice, the second time from a copy of the tree with an empty build cache (a quarter of an hour)")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
