package cost

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

// status is an answer of status/tsdb.
func status(names ...any) string {
	var list []string
	for i := 0; i < len(names); i += 2 {
		list = append(list, fmt.Sprintf(`{"name":%q,"value":%v}`, names[i], names[i+1]))
	}
	return `{"status":"success","data":{"headStats":{"numSeries":9},"seriesCountByMetricName":[` + strings.Join(list, ",") + `],"labelValueCountByLabelName":[{"name":"pod","value":7}]}}`
}

// TestNames: a metric has what was said of it, another one no more than the least of those; what
// nothing was said of is not known.
func TestNames(t *testing.T) {
	var n Names
	now := time.Unix(1_790_000_000, 0)
	if _, ok := n.AtMost("up"); ok || !n.Due(now) || n.Due(now) {
		t.Fatal("what nobody has said is known, or asked for twice at once")
	}
	if err := n.Learn(strings.NewReader(status("big", 5000, "up", 70, "small", 3)), now, time.Second); err != nil {
		t.Fatal(err)
	}
	for metric, want := range map[string]int64{"big": 5000, "up": 70, "small": 3, "other": 3, "": 5000} {
		if got, ok := n.AtMost(metric); !ok || got != want {
			t.Errorf("%s has at most %d (%v), want %d", metric, got, ok, want)
		}
	}
	if n.Due(now.Add(NamesAge-1)) || !n.Due(now.Add(NamesAge)) {
		t.Error("it is not asked for again after ten minutes")
	}
	for _, bad := range []string{"", "{}", `{"data":[]}`, status(), `{"data":{"seriesCountByMetricName":[{"name":"x","value":"7"}]}}`} {
		if err := n.Learn(strings.NewReader(bad), now, time.Second); err == nil {
			t.Errorf("%q is taken for an answer", bad)
		}
		if got, ok := n.AtMost("big"); !ok || got != 5000 {
			t.Errorf("after %q %d series are known", bad, got)
		}
	}
	if !n.Due(now.Add(time.Hour)) {
		t.Fatal("it is not asked for again")
	}
	if err := n.Learn(strings.NewReader(status("big", -1, "huge", int64(1)<<40)), now, time.Minute); err != nil {
		t.Fatal(err)
	}
	if got, _ := n.AtMost("big"); got != 0 {
		t.Errorf("%d series", got)
	}
	if got, _ := n.AtMost("huge"); got != maxSeries {
		t.Errorf("%d series", got)
	}
	for all, want := range map[string]int64{"6000": 6000, "40": 70, "-1": 70, "9000000000000": maxSeries} {
		var n Names
		body := `{"data":{"headStats":{"numSeries":` + all + `},"seriesCountByMetricName":[{"name":"up","value":70}]}}`
		if err := n.Learn(strings.NewReader(body), now, 0); err != nil {
			t.Fatal(err)
		}
		if got, ok := n.AtMost(""); !ok || got != want {
			t.Errorf("of %s series %d are known (%v), want %d", all, got, ok, want)
		}
	}
	for body, want := range map[string]int64{
		`{"numSeries":70,"minTime":1790000000000},"seriesCountByMetricName":[{"name":"up","value":70}]`: 1790000000000,
		`{"numSeries":0,"minTime":0},"seriesCountByMetricName":[]`:                                      math.MaxInt64,
	} {
		var n Names
		if err := n.Learn(strings.NewReader(`{"data":{"headStats":`+body+`}}`), now, 0); err != nil {
			t.Fatal(err)
		}
		if got := n.Since(); got != want {
			t.Errorf("%s is true since %d", body, got)
		}
	}
	if n.Due(now.Add(99*time.Minute)) || !n.Due(now.Add(100*time.Minute)) {
		t.Error("what took a minute is asked for again within a hundred")
	}
	n.Fail(now)
	if _, ok := n.AtMost("big"); ok || n.Due(now) || !n.Due(now.Add(NamesAge)) {
		t.Error("after a failure something is known, or asked for at once")
	}
}
