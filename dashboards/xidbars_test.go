package dashboards

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/localprom"
)

// TestXidBars: each Xid has its bar, however long the time shown is. An error is one sample, which
// a step longer than five minutes passes by.
func TestXidBars(t *testing.T) {
	s, err := localprom.Start(t.Context(), localprom.Options{DisableWAL: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	defer http.DefaultClient.CloseIdleConnections()
	from := time.Date(2026, 11, 3, 0, 0, 0, 0, time.UTC)
	// Three of them within twelve hours, none where a step of a quarter of an hour looks.
	if err := s.LoadAt(`load 5m
  cluster:gpu_capacity:sum{cluster="c"} 8x144
  gpu:xid_errors:count5m{cluster="c",node="n",gpu="0",xid="79",class="dead"} _x4 1 stale _x50 1 stale _x50 1 stale
`, from.Add(10*time.Second)); err != nil {
		t.Fatal(err)
	}
	bars := 0
	for _, p := range load(t, "gpu-fleet").Panels {
		if !strings.HasPrefix(p.Title, "Xid errors by") {
			continue
		}
		bars++
		for _, step := range []time.Duration{5 * time.Minute, 15 * time.Minute, time.Hour} {
			expr, err := Substitute(p.Targets[0].Expr, Vars{
				Interval: step, From: from, To: from.Add(12 * time.Hour),
				Values: map[string]Value{"cluster": {AllValue: ".*"}},
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := addedUp(t, s.URL(), expr, from, from.Add(12*time.Hour), step); got != 3 {
				t.Errorf("%s: bars of %s add up to %g, and there were 3: %s", p.Title, step, got, expr)
			}
		}
	}
	if bars != 2 {
		t.Errorf("%d panels of Xids over time, not 2", bars)
	}
}

// addedUp is the sum of all points of a range query.
func addedUp(t *testing.T, server, expr string, from, to time.Time, step time.Duration) float64 {
	t.Helper()
	resp, err := http.Get(server + "/api/v1/query_range?" + url.Values{
		"query": {expr}, "start": {from.Format(time.RFC3339)}, "end": {to.Format(time.RFC3339)}, "step": {step.String()},
	}.Encode())
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var a struct {
		Status string
		Data   struct{ Result []struct{ Values [][2]any } }
	}
	if err := json.NewDecoder(resp.Body).Decode(&a); err != nil || a.Status != "success" {
		t.Fatalf("%s: %s %v", expr, a.Status, err)
	}
	sum := 0.0
	for _, series := range a.Data.Result {
		for _, v := range series.Values {
			n, err := strconv.ParseFloat(v[1].(string), 64)
			if err != nil {
				t.Fatal(err)
			}
			sum += n
		}
	}
	return sum
}
