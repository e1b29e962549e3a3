package recording

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	"github.com/prometheus/prometheus/model/timestamp"

	"github.com/spillwayproject/spillway/internal/localprom"
)

// TestInstantIsOfTheMoment: what a rule is told by a server has the time that the engine beside it
// would give, whatever a moment has below milliseconds: the samples of an evaluation that is made
// twice, once afterwards by Fill, are the same ones.
func TestInstantIsOfTheMoment(t *testing.T) {
	p, err := localprom.Start(t.Context(), localprom.Options{DisableWAL: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	c, err := api.NewClient(api.Config{Address: p.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.(api.CloseIdler).CloseIdleConnections)
	for _, below := range []time.Duration{0, 1, 400 * time.Microsecond, 500 * time.Microsecond, 999_999} {
		at := time.Unix(1_795_000_000, 123_000_000).Add(below)
		for _, expr := range []string{"vector(1)", "1"} {
			got, err := NewRemote(c).Instant(t.Context(), expr, at)
			if err != nil || len(got) != 1 || got[0].T != timestamp.FromTime(at) {
				t.Errorf("%s, %s after the millisecond: %v, %v; want %d", expr, below, got, err, timestamp.FromTime(at))
			}
		}
	}
}
