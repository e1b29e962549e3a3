package cost

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
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
		t.Error("it is not asked for again after five minutes")
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
	n.Fail(now, 0)
	if _, ok := n.AtMost("big"); !ok || n.Due(now) || !n.Due(now.Add(NamesAge)) {
		t.Error("after a failure what was known is forgotten, or asked for at once")
	}
	if n.Old(now.Add(299*time.Minute)) || !n.Old(now.Add(300*time.Minute)) {
		t.Error("it is not old when it would have been")
	}
}

// names is one list of status/tsdb, of so many names that begin so.
func names(key, begin string, n, value int) string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf(`{"name":"%s%d","value":%d}`, begin, i, value))
	}
	return fmt.Sprintf(`,"%s":[%s]`, key, strings.Join(out, ","))
}

// TestSelects: a selector has no more series than its metric, nor than each label that it asks for;
// what is not listed has no more than the last one, where there may be others.
func TestSelects(t *testing.T) {
	now := time.Unix(1_790_000_000, 0)
	const head = `{"data":{"headStats":{"numSeries":90000,"minTime":5}`
	metrics := `,"seriesCountByMetricName":[{"name":"big","value":50000},{"name":"small","value":3}]`
	some := `,"seriesCountByLabelValuePair":[{"name":"job=a","value":700},{"name":"job=b","value":20}]`
	values := `,"labelValueCountByLabelName":[{"name":"pod","value":70},{"name":"job","value":2}]`
	many := names("seriesCountByLabelValuePair", "node=n", MaxNames-1, 40)
	many = strings.TrimSuffix(many, "]") + `,{"name":"job=a","value":700}]`
	for _, tc := range []struct {
		told, selector string
		want           int64
	}{
		{some, `{__name__="big"}`, 50_000},
		{some, `{__name__=~"big|small"}`, 50_003},
		{some, `{__name__="none"}`, 3},
		{some, `{__name__="big",job="a"}`, 700},
		{some, `{__name__="big",job=~"a|b"}`, 720},
		{some, `{__name__="big",job=~"a|new"}`, 50_000}, // it may have come since
		{some, `{__name__="big",job="new"}`, 50_000},
		{some, `{__name__="big",job!="a",pod=""}`, 50_000},
		{some, `{__name__="big",job=~"a|"}`, 50_000},
		{some, `{__name__="big",job=~"a.*"}`, 50_000},
		{some, `{job="b"}`, 20},
		{some, `{le!=""}`, 90_000},
		{"", `{__name__="big",job="a"}`, 50_000},
		{many, `{__name__="big",job="new"}`, 40},
		{many, `{__name__="big",job=~"new|a"}`, 740},
	} {
		var n Names
		if err := n.Learn(strings.NewReader(head+metrics+tc.told+values+"}}"), now, 0); err != nil {
			t.Fatal(err)
		}
		ms, err := parser.NewParser(parser.Options{}).ParseMetricSelector(tc.selector)
		if err != nil {
			t.Fatal(err)
		}
		var h Hashes
		for _, h := range []*Hashes{nil, &h, &h} {
			if got, ok := n.Selects(ms, h); !ok || got != tc.want {
				t.Errorf("%s has at most %d (%v), want %d", tc.selector, got, ok, tc.want)
			}
		}
		if len(h.by) != len(ms) {
			t.Errorf("%s: %d matchers are remembered", tc.selector, len(h.by))
		}
		if pods, ok := n.Values("pod"); !ok || pods != 70 {
			t.Errorf("%d values of pod", pods)
		}
		if _, ok := n.Values("new"); ok {
			t.Error("a label that is not listed has values")
		}
		if all, ok := n.Labels(); !ok || all != 2 {
			t.Errorf("%d labels (%v)", all, ok)
		}
	}
	if _, ok := (&Names{}).Selects(nil, nil); ok {
		t.Error("what nobody has said is known")
	}
}

// TestNamesLimit: ten thousand are asked for where there are more than a thousand, and only of who
// is quick; never again of who was not.
func TestNamesLimit(t *testing.T) {
	now := time.Unix(1_790_000_000, 0)
	body := func(n int) string {
		return `{"data":{"headStats":{"numSeries":9}` + names("seriesCountByMetricName", "x", n, 1) + "}}"
	}
	for _, tc := range []struct {
		names int
		took  []time.Duration
		want  int
	}{
		{9, []time.Duration{0}, MaxNames},
		{MaxNames, []time.Duration{199 * time.Millisecond}, MoreNames},
		{MaxNames, []time.Duration{200 * time.Millisecond}, MaxNames},
		{MaxNames, []time.Duration{time.Second, 0}, MoreNames},
		{MaxNames, []time.Duration{0, 0, 199 * time.Millisecond}, MoreNames},
		{MaxNames, []time.Duration{0, 200 * time.Millisecond}, MaxNames},
		{MaxNames, []time.Duration{0, 200 * time.Millisecond, 0, 0}, MaxNames},
	} {
		var n Names
		for _, took := range tc.took {
			if err := n.Learn(strings.NewReader(body(tc.names)), now, took); err != nil {
				t.Fatal(err)
			}
		}
		if got := n.Limit(); got != tc.want {
			t.Errorf("%d names in %v: %d are asked for, want %d", tc.names, tc.took, got, tc.want)
		}
	}
	var n Names
	if err := n.Learn(strings.NewReader(body(MaxNames+1)), now, 0); err == nil {
		t.Error("more than was asked for is taken for an answer")
	}
	if n.Due(now) || !n.Due(now.Add(NamesAge)) {
		t.Error("it is asked for at once")
	}
	n.Later(now)
	if n.Due(now.Add(sickPause-1)) || !n.Due(now.Add(sickPause)) {
		t.Error("a shard that is not well is asked at once, or never again")
	}
}

// TestNamesAreSure: where a number has to hold, a metric that is small, or not listed, has as many
// series as the 200th, whatever the list has beyond that.
func TestNamesAreSure(t *testing.T) {
	now := time.Unix(1_790_000_000, 0)
	var list []any
	for i := range MaxNames {
		list = append(list, fmt.Sprintf("x%d", i), 1000-i)
	}
	var n Names
	if err := n.Learn(strings.NewReader(status(list...)), now, 0); err != nil {
		t.Fatal(err)
	}
	for metric, want := range map[string]int64{"x0": 1000, "x198": 802, "x199": 801, "x200": 801, "x999": 801, "new": 801} {
		if got, ok := n.AtMost(metric); !ok || got != want {
			t.Errorf("%s has at most %d (%v), want %d", metric, got, ok, want)
		}
	}
	ms, err := parser.NewParser(parser.Options{}).ParseMetricSelector("x900")
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := n.Selects(ms, nil); !ok || got != 100 {
		t.Errorf("x900 is estimated at %d (%v)", got, ok)
	}
}

// TestNamesFail: who failed after a while is left alone for a hundred times as long, as who
// answered is, and never again asked for ten thousand where that was what failed.
func TestNamesFail(t *testing.T) {
	now := time.Unix(1_790_000_000, 0)
	body := `{"data":{"headStats":{"numSeries":9}` + names("seriesCountByMetricName", "x", MaxNames, 1) + "}}"
	learn := func(n *Names) {
		if err := n.Learn(strings.NewReader(body), now, 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		name string
		more bool // the question that fails is for ten thousand
		fail func(*Names)
		want int // is asked for when it has told again, quickly
		rest time.Duration
	}{
		{"ten thousand in time", true, func(n *Names) { n.Fail(now, 10*time.Second) }, MaxNames, 1000 * time.Second},
		{"ten thousand at once", true, func(n *Names) { n.Fail(now, time.Millisecond) }, MoreNames, NamesAge},
		{"a thousand in time", false, func(n *Names) { n.Fail(now, 10*time.Second) }, MoreNames, 1000 * time.Second},
		{"ten thousand, too long", true, func(n *Names) { n.Unread(now, time.Millisecond) }, MaxNames, NamesAge},
		{"a thousand, too long", false, func(n *Names) { n.Unread(now, 9*time.Second) }, MoreNames, 900 * time.Second},
		{"it was not asked", true, func(n *Names) { n.Later(now) }, MoreNames, sickPause},
	} {
		var n Names
		if tc.more {
			learn(&n)
		}
		tc.fail(&n)
		if n.Due(now.Add(tc.rest-1)) || !n.Due(now.Add(tc.rest)) {
			t.Errorf("%s: it is not left alone for %s", tc.name, tc.rest)
		}
		for range 3 {
			learn(&n)
		}
		if got := n.Limit(); got != tc.want {
			t.Errorf("%s: %d names are asked for, want %d", tc.name, got, tc.want)
		}
	}
}

// TestOldNames: what was told 15 minutes ago, or three times as long as it rests, is old, whatever
// happened since.
func TestOldNames(t *testing.T) {
	now := time.Unix(1_790_000_000, 0)
	for took, want := range map[time.Duration]time.Duration{0: 15 * time.Minute, 10 * time.Second: 3000 * time.Second} {
		var n Names
		if n.Old(now) {
			t.Error("what nobody told is old")
		}
		if err := n.Learn(strings.NewReader(status("up", 7)), now, took); err != nil {
			t.Fatal(err)
		}
		n.Later(now.Add(want / 2))
		n.Unread(now.Add(want/2), 0)
		if n.Old(now.Add(want-1)) || !n.Old(now.Add(want)) {
			t.Errorf("after %s it is not old, or before", want)
		}
	}
}

// TestNamed: of each size a few metrics have their names kept, and as many that are buckets; of the
// pairs the jobs have. However much is told, it is bounded.
func TestNamed(t *testing.T) {
	var n Names
	if n.Named() != nil || n.Jobs() != nil {
		t.Error("what nobody has said is known")
	}
	var metrics, pairs []string
	for i := range 400 {
		for _, name := range []string{"big_%d", "b_%d_bucket"} {
			metrics = append(metrics, fmt.Sprintf(`{"name":"`+name+`","value":%d}`, i, 1000-i))
		}
		for _, name := range []string{"job=j%d", "namespace=n%d"} {
			pairs = append(pairs, fmt.Sprintf(`{"name":"`+name+`","value":%d}`, i, 1000-i))
		}
	}
	metrics = append(metrics, `{"name":"`+strings.Repeat("x", maxToldName+1)+`","value":3}`, `{"name":"small","value":3}`)
	body := `{"data":{"headStats":{"numSeries":9},"seriesCountByMetricName":[` + strings.Join(metrics, ",") +
		`],"seriesCountByLabelValuePair":[` + strings.Join(pairs, ",") + `]}}`
	if err := n.Learn(strings.NewReader(body), time.Unix(1_790_000_000, 0), 0); err != nil {
		t.Fatal(err)
	}
	named := n.Named()
	if len(named) != 2*toldOfSize+1 || named[0] != (Metric{"big_0", 1000}) || named[len(named)-1] != (Metric{"small", 3}) {
		t.Errorf("%d names are kept: %v", len(named), named)
	}
	if jobs := n.Jobs(); len(jobs) != MaxJobs || jobs[0] != (Metric{"j0", 1000}) {
		t.Errorf("%d jobs are kept: %v", len(jobs), jobs)
	}
}
