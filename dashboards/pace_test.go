package dashboards

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/localprom"
)

// TestPace: what the month comes to counts the hours in which a team held nothing, and leaves out
// those in which nobody measured.
func TestPace(t *testing.T) {
	text, err := os.ReadFile("cost.json")
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	expr := ""
	for _, p := range d.Panels {
		if p.Title == "The month at this pace" {
			expr = strings.NewReplacer("$cluster", ".*", "$team", ".*", "$__range", "10h").Replace(p.Targets[0].Expr)
		}
	}
	s, err := localprom.Start(t.Context(), localprom.Options{DisableWAL: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	defer http.DefaultClient.CloseIdleConnections()
	from := time.Date(2026, 11, 3, 0, 0, 0, 0, time.UTC)
	// Ten hours, of which two were not measured: 100 an hour for one hour is 12.5 an hour.
	if err := s.LoadAt(`load 5m
  cluster:gpu_capacity:sum{cluster="c"} 8x47 _x24 8x47
  team:gpu_cost_per_hour:sum{cluster="c",team="a",currency="USD"} _x12 100x11 _x96
`, from); err != nil {
		t.Fatal(err)
	}
	at := from.Add(10*time.Hour - time.Minute)
	resp, err := http.Get(s.URL() + "/api/v1/query?time=" + fmt.Sprint(at.Unix()) + "&query=" + url.QueryEscape(expr))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var a struct {
		Data struct {
			Result []struct{ Value [2]any }
		}
	}
	if err := json.Unmarshal(body, &a); err != nil || len(a.Data.Result) != 1 {
		t.Fatalf("%s: %s", expr, body)
	}
	got := 0.0
	if _, err := fmt.Sscan(a.Data.Result[0].Value[1].(string), &got); err != nil {
		t.Fatal(err)
	}
	if want := 12.5 * 24 * 30; math.Abs(got-want) > want/50 {
		t.Errorf("the month comes to %v, not about %v: %s", got, want, expr)
	}
}
