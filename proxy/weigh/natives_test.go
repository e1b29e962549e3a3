package weigh

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/localprom"
)

// TestNativesOnAServer: a server answers the questions for native histograms, also where two
// metrics have the same labels, and where the last scrape of some has failed.
func TestNativesOnAServer(t *testing.T) {
	p, err := localprom.Start(t.Context(), localprom.Options{DisableWAL: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	begin := time.Unix(1_790_000_000, 0)
	const one = `{{schema:0 sum:4 count:4 buckets:[1 2 1]}}`
	if err := p.LoadAt(`load 30s
  first{job="a"} `+one+`x40
  second{job="a"} `+one+`x40
  floats{job="a"} 1x40
  gone{job="a",pod="p"} `+one+`x38 stale
`, begin); err != nil {
		t.Fatal(err)
	}
	at := begin.Add(20 * time.Minute)
	for _, tc := range []struct {
		question, want string
	}{
		{countNatives(15*time.Minute, true)(`{job="a"}`), "4"}, // with what has gone
		{countNatives(15*time.Minute, false)(`gone`), "2"},
		{countNatives(15*time.Minute, false)(`first`), "2"},
		{countNatives(15*time.Minute, false)(`floats`), "1"},
		{countNatives(15*time.Minute, true)(`{job="a",__name__=~"f.+ts"}`), "1"},
		{countNatives(15*time.Minute, false)(`none`), "1"},
	} {
		res, err := http.Get(p.URL() + "/api/v1/query?" + url.Values{"query": {tc.question}, "time": {fmt.Sprint(at.Unix())}}.Encode())
		if err != nil {
			t.Fatal(err)
		}
		var answer struct {
			Error string
			Data  struct {
				Result []struct{ Value [2]any }
			}
		}
		err = json.NewDecoder(res.Body).Decode(&answer)
		res.Body.Close()
		got := ""
		for _, sample := range answer.Data.Result {
			got = fmt.Sprint(sample.Value[1])
		}
		if err != nil || answer.Error != "" || got != tc.want {
			t.Errorf("%s: %v %s %v, want %s", tc.question, err, answer.Error, answer.Data.Result, tc.want)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}
