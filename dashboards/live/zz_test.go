package live

import (
	"testing"
	"time"

	"github.com/spillwayproject/spillway/loadtest/cluster"
)

func TestZZ(t *testing.T) {
	bin, _ := binary()
	p, err := MakePast(t.Context(), Options{Dir: t.TempDir(), Troubles: []cluster.Kind{cluster.GPUXidFatal}, Say: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	s, err := Serve(t.Context(), p, bin)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Stop()
	st := p.Staged[0]
	t.Log(st)
	for _, e := range []string{`DCGM_EXP_XID_ERRORS_COUNT`, `max_over_time(DCGM_EXP_XID_ERRORS_COUNT[1h])`, `gpu:xid_errors:count5m`, `sum_over_time(gpu:xid_errors:count5m[24h])`, `DCGM_FI_DEV_XID_ERRORS > 0`,`count(DCGM_FI_DEV_GPU_TEMP)`} {
		for _, at := range []time.Time{st.From.Add(4 * time.Minute), st.Until.Add(-15 * time.Second)} {
			a, err := s.Reference.Ask(t.Context(), Question{Expr: e, To: at})
			t.Log(e, at, err)
			if a != nil {
				t.Logf("%.600v", a.Series)
			}
		}
	}
}
