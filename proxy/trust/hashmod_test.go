package trust

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"

	"github.com/spillwayproject/spillway/internal/randseed"
)

// processHash is what Prometheus' own relabelling makes of a value.
func processHash(t testing.TB, value string, modulus uint64) string {
	t.Helper()
	cfg := relabel.DefaultRelabelConfig
	cfg.SourceLabels, cfg.Action, cfg.Modulus, cfg.TargetLabel, cfg.NameValidationScheme = model.LabelNames{"node"}, relabel.HashMod,
		modulus, "__tmp_hash", model.UTF8Validation
	if err := cfg.Validate(model.UTF8Validation); err != nil {
		t.Fatal(err)
	}
	b := labels.NewBuilder(labels.FromStrings("node", value))
	if !relabel.ProcessBuilder(b, &cfg) {
		t.Fatalf("%q is dropped", value)
	}
	return b.Get("__tmp_hash")
}

// TestHashIsPrometheusOwn compares with Prometheus' relabelling over random values and moduli.
func TestHashIsPrometheusOwn(t *testing.T) {
	seed := randseed.Of(t, 0)
	rnd := rand.New(rand.NewPCG(seed, 1))
	for i := range 5000 {
		value := "gpu-node-0042.example"
		if i > 0 {
			raw := make([]byte, rnd.IntN(40))
			for j := range raw {
				raw[j] = byte(rnd.Uint32())
			}
			value = strings.ToValidUTF8(string(raw), "é")
		}
		modulus := 1 + rnd.Uint64N(1<<rnd.IntN(17))
		if got, want := fmt.Sprint(Hashmod{Label: "node", Modulus: modulus}.Of(value)), processHash(t, value, modulus); got != want {
			t.Fatalf("seed %d: hash of %q modulo %d is %s, want %s", seed, value, modulus, got, want)
		}
	}
}

func FuzzHashmod(f *testing.F) {
	f.Add("gpu-node-0042", uint64(4))
	f.Add("", uint64(1))
	f.Add("\xff\x00", uint64(1<<63))
	f.Fuzz(func(t *testing.T, value string, modulus uint64) {
		if modulus == 0 {
			return
		}
		if got, want := fmt.Sprint(Hashmod{Modulus: modulus}.Of(value)), processHash(t, value, modulus); got != want {
			t.Fatalf("hash of %q modulo %d is %s, want %s", value, modulus, got, want)
		}
	})
}
