package policy

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/prompb"

	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

func instantQuery(text string) *endpoint.Request {
	return &endpoint.Request{ID: endpoint.Query, Query: text, Time: ago(0)}
}

func rangeQuery(text string, width, step time.Duration) *endpoint.Request {
	return &endpoint.Request{ID: endpoint.QueryRange, Query: text, Start: ago(width), End: ago(0), Step: step}
}

func exemplars(text string, start, end endpoint.Time) *endpoint.Request {
	return &endpoint.Request{ID: endpoint.QueryExemplars, Query: text, Start: start, End: end}
}

func federate(match ...string) *endpoint.Request {
	return &endpoint.Request{ID: endpoint.Federate, Match: match}
}

func read(start, end endpoint.Time, matchers ...*prompb.LabelMatcher) *endpoint.Request {
	return &endpoint.Request{ID: endpoint.Read, ReadQuery: &prompb.ReadRequest{Queries: []*prompb.Query{
		{StartTimestampMs: start.Ms, EndTimestampMs: end.Ms, Matchers: matchers},
	}}}
}

func prombMatcher(t prompb.LabelMatcher_Type, name, value string) *prompb.LabelMatcher {
	return &prompb.LabelMatcher{Type: t, Name: name, Value: value}
}

// TestRefused has a row for every way to be told no: the bound, or "" for a 400 that Prometheus
// would give, and a part of the sentence.
func TestRefused(t *testing.T) {
	ms := func(t time.Time) endpoint.Time { return endpoint.At(t.UnixMilli()) }
	for _, tc := range []struct {
		name  string
		req   *endpoint.Request
		bound string
		part  string
	}{
		{"parse error", instantQuery("sum("), "", `invalid parameter "query": 1:5: parse error: unclosed left parenthesis`},
		{"a label of Spillway's own", instantQuery(`up{__spillway_leaf__=~"0"}`), "", "__spillway_leaf__ is Spillway's own"},
		{"empty query", instantQuery(""), "", `invalid parameter "query": unknown position: parse error: no expression found in input`},
		{"MetricsQL", instantQuery("default_rollup(ALERTS_FOR_STATE[3600s])"), "", `unknown function`},
		{"empty selector", instantQuery("{}"), "", "vector selector must contain at least one non-empty matcher"},
		{"exemplars parse error", exemplars("sum(", ago(hour), ago(0)), "", "1:5: parse error"},
		{"format_query", &endpoint.Request{ID: endpoint.FormatQuery, Query: "1+"}, "", `invalid parameter "query"`},
		{
			"parse_query too long", &endpoint.Request{ID: endpoint.ParseQuery, Query: strings.Repeat("x", 70_000)}, "max_query_bytes",
			"70000 bytes",
		},
		{"series without match[]", &endpoint.Request{ID: endpoint.Series}, "", "no match[] parameter provided"},
		{"series of everything", &endpoint.Request{ID: endpoint.Series, Match: []string{"{}"}}, "", `invalid parameter "match[]": match[] must contain at least one non-empty matcher`},
		{"labels of everything", &endpoint.Request{ID: endpoint.Labels, Match: []string{"up", `{le=~".*"}`}}, "", "match[] must contain at least one non-empty matcher"},
		{"values with a negation that matches the empty text", &endpoint.Request{ID: endpoint.LabelValues, Match: []string{`{a!="x"}`}}, "", "non-empty matcher"},
		{
			"match[] parse error", &endpoint.Request{ID: endpoint.Series, Match: []string{"up{"}}, "",
			`invalid parameter "match[]": 1:4: parse error`,
		},
		{"match[] of rules", &endpoint.Request{ID: endpoint.Rules, Filters: map[string][]string{"match[]": {"{"}}}, "", "parse error"},
		{"match_target", &endpoint.Request{ID: endpoint.TargetsMetadata, Match: []string{"{"}}, "", `invalid parameter "match_target"`},
		{"end before start", exemplars("up", ago(0), ago(hour)), "", `invalid parameter "end"`},
		{"range backwards", rangeQuery("up", -hour, time.Minute), "", `invalid parameter "end": end timestamp must not be before start time`},
		{"no step", rangeQuery("up", hour, 0), "", `invalid parameter "step": zero or negative`},
		{"step below a millisecond", rangeQuery("up", time.Second, time.Microsecond), "", `invalid parameter "step"`},
		{"read backwards", read(ago(0), ago(hour), prombMatcher(prompb.LabelMatcher_EQ, "__name__", "up")), "", "ends before it starts"},
		{
			"read with a broken expression", read(ago(hour), ago(0), prombMatcher(prompb.LabelMatcher_RE, "__name__", "(")), "",
			"missing closing",
		},
		{"read with an unknown matcher", read(ago(hour), ago(0), prombMatcher(9, "__name__", "(")), "", "unknown type"},
		{"infinite duration", instantQuery("x[5m/0]"), "", "parse error"},
		{"infinite computed duration", rangeQuery("x[5m/(range()-1h)]", hour, time.Minute), "", "duration is NaN or infinite"},
		{"negative computed duration", rangeQuery("rate(x[step()-5m])", hour, time.Minute), "", "duration must be greater than 0"},

		{"query too long", instantQuery(`"` + strings.Repeat("a", 64<<10) + `"`), "max_query_bytes", "max_query_bytes is 64KiB"},
		{
			"match[] too long", &endpoint.Request{ID: endpoint.Labels, Match: []string{`{a="` + strings.Repeat("a", 256<<10) + `"}`}},
			"max_query_bytes", "256KiB",
		},
		{
			"match[] too long outside strings", &endpoint.Request{ID: endpoint.Labels, Match: []string{strings.Repeat("a", 70_000)}},
			"max_query_bytes", "outside string literals",
		},
		{
			"remote read too long", read(ago(hour), ago(0), prombMatcher(prompb.LabelMatcher_EQ, "__name__", "up"),
				prombMatcher(prompb.LabelMatcher_NEQ, "a", strings.Repeat("a", 256<<10))),
			"max_query_bytes", "the matchers of this remote read are",
		},
		{"too many match[]", federate(make([]string, 65)...), "query_shape", "65 match[]"},
		{"too many points", rangeQuery("up", 3*hour, 900*time.Millisecond), "max_points", "exceeded maximum resolution of 11,000 points per timeseries"},
		{"a billion points", &endpoint.Request{
			ID: endpoint.QueryRange, Query: "up", Start: endpoint.At(0), End: endpoint.At(1e12),
			Step: time.Second,
		}, "max_points", "11,000"},
		{"all of time", &endpoint.Request{
			ID: endpoint.QueryRange, Query: "up", Start: endpoint.At(math.MinInt64),
			End: endpoint.At(math.MaxInt64), Step: time.Millisecond,
		}, "max_points", "more than 292y"},
		{"range too long", rangeQuery("up", 32*day, day), "max_range", "the range of the query is 32d and max_range is 31d"},
		{"selector too long", instantQuery("rate(x[32d])"), "max_range", "the selector at 1:6 reads 32d"},
		{"subqueries too long", instantQuery("max_over_time(max_over_time(rate(x[1d])[20d:1h])[20d:1h])"), "max_range", "41d"},
		{"computed range too long", rangeQuery("rate(x[range()*400])", 2*hour, time.Minute), "max_range", "33d8h"},
		{
			"lookback too long", &endpoint.Request{ID: endpoint.Query, Query: "up", LookbackDelta: 100 * 365 * day}, "max_range",
			"lookback_delta",
		},
		{"exemplars too long", exemplars("up", ago(32*day), ago(0)), "max_range", "32d"},
		{"read too long", read(endpoint.At(math.MinInt64), endpoint.At(math.MaxInt64),
			prombMatcher(prompb.LabelMatcher_EQ, "__name__", "up")), "max_range", "remote read"},
		{"dense subquery", instantQuery("max_over_time(up[31d:1s])"), "max_points", "give the subquery a longer step"},
		{"century by the second", instantQuery("max_over_time(up[100y:1s])"), "max_range", "100y"},
		{"century of nothing by the second", instantQuery("max_over_time(vector(1)[100y:1s])"), "max_points", "subquery at 1:15"},
		{
			"dense subquery at dense steps", rangeQuery("max_over_time(up[10d:15s])", 10000*time.Second, time.Second), "max_points",
			"look at",
		},
		{"inner dense subquery", instantQuery("max_over_time(max_over_time(up[1h:1s])[20d:1h])"), "max_points", "subquery at 1:29"},

		{"the incident as a query", instantQuery(`count({le!=""})`), "unselective", `name a metric: {__name__="…", le!=""}`},
		{"all names", instantQuery(`count({__name__=~".+"})`), "unselective", `name a metric: {__name__="…"}`},
		{"names by a negation", instantQuery(`count({__name__!="", __name__!~"go_.*", job=~".+"})`), "unselective", `{__name__="…", job=~".+"}`},
		{"only a group label", rangeQuery(`count by (job) ({cluster="a"})`, hour, time.Minute), "unselective", "cluster"},
		{"inside", instantQuery(`topk(5, count by (__name__) (up + on(a) rate({a!=""}[5m])))`), "unselective", `a!=""`},
		{"exemplars", exemplars(`{le!=""}`, ago(hour), ago(0)), "unselective", "le"},
		{"federate", federate("up", `{__name__=~".+"}`), "unselective", "__name__"},
		{"federate of everything", federate(`{}`), "unselective", "{}"},
		{"read", read(ago(hour), ago(0), prombMatcher(prompb.LabelMatcher_NEQ, "le", "")), "unselective", "le"},
		{"read of everything", read(ago(hour), ago(0)), "unselective", "{}"},
		{"read of a group", read(ago(hour), ago(0), prombMatcher(prompb.LabelMatcher_EQ, "cluster", "a")), "unselective", "cluster"},
		{"info about everything", instantQuery(`info(up, {__name__=~".+"})`), "unselective", "__name__"},

		{"minus signs", instantQuery(strings.Repeat("-", 60_000) + "1"), "query_shape", "operators"},
		{"sums", instantQuery("up" + strings.Repeat("+up", 1001)), "query_shape", "operators"},
		{"parentheses", instantQuery(strings.Repeat("(", 65) + "1"), "query_shape", "nested"},
		{"calls", instantQuery(strings.Repeat("abs(", 10_000)), "query_shape", "nested"},
		{"matchers", instantQuery("{" + strings.Repeat(`a="b",`, 101) + "}"), "query_shape", "matchers in one selector"},
		{"arguments", instantQuery("abs(1" + strings.Repeat(",1", 10_000) + ")"), "query_shape", "tokens"},
		{"comments", instantQuery(strings.Repeat("#\n", 20_000) + "1"), "query_shape", "tokens"},
		{
			"pairs", instantQuery("x+on(a" + strings.Repeat(",a", 99) + ")group_left(b" + strings.Repeat(",b", 99) + ")x"), "query_shape",
			"pairs of labels",
		},
		{"underscores", instantQuery("1" + strings.Repeat("+1_000", 500) + strings.Repeat("+1_0_0_0", 400)), "query_shape", "underscores"},
		{"long number", instantQuery("up +  " + strings.Repeat("1_", 600) + "1"), "query_shape", "characters in one number"},
		{"long number in brackets", instantQuery("up[ " + strings.Repeat("1", 1100) + "s]"), "query_shape", "characters in one number"},
		{"rules", &endpoint.Request{
			ID:      endpoint.Rules,
			Filters: map[string][]string{"match[]": {"{" + strings.Repeat(`a="b",`, 101) + "}"}},
		}, "query_shape", "matchers"},
		{
			"read queries", &endpoint.Request{ID: endpoint.Read, ReadQuery: &prompb.ReadRequest{Queries: make([]*prompb.Query, 65)}},
			"query_shape", "remote read",
		},

		{"counted", instantQuery(`up{a=~"(.*a){1000}"}`), "regex_cost", "counted repetitions"},
		{"counted twice", instantQuery(`up{a=~"((a{30}){30}){30}"}`), "regex_cost", "counted repetitions"},
		{
			"counted in match[]", &endpoint.Request{ID: endpoint.Series, Match: []string{`up{a!~'(.*a){1000}'}`}}, "regex_cost",
			"counted repetitions",
		},
		{"counted in read", read(ago(hour), ago(0), prombMatcher(prompb.LabelMatcher_RE, "a", "(.*a){1000}")), "regex_cost", "counted"},
		{"unicode", instantQuery(`up{a=~"(?i)` + strings.Repeat(`\\pL`, 3) + `"}`), "regex_cost", "units and at most"},
		{"wide classes", instantQuery(`up{a=~"` + strings.Repeat("[^/]", 11) + `"}`), "regex_cost", "11 classes of nearly all characters"},
		{"wide classes in several", instantQuery(`up{a=~"\\S+-\\S+-\\S+",b!~"[^-]+-[^-]+-\\D+"}/up{a=~"([\\S])[^a][^b]",b=~"(?i)[^a][^b]x"}`), "regex_cost", "11 classes"},
		{"a wide range", instantQuery("up{a=~`" + strings.Repeat(`[\x{100}-\x{10ffff}]`, 3) + "`}"), "regex_cost", "units and at most"},
		{"wide classes in match[]", &endpoint.Request{ID: endpoint.Series, Match: []string{`up{a=~"` + strings.Repeat("[^/]",
			11) + `"}`}}, "regex_cost", "11 classes"},
		{
			"wide classes in read", read(ago(hour), ago(0), prombMatcher(prompb.LabelMatcher_RE, "a", strings.Repeat("[^/]", 11))),
			"regex_cost", "11 classes",
		},
		{"long", instantQuery("up{a=~`" + strings.Repeat("ab.*", 3000) + "`}"), "regex_cost", "units and at most"},
		{"names anywhere", instantQuery(`up{a=~".*(` + strings.Join(fleet(2, 1000), "|") + `).*"}`), "regex_cost", "the custom value .*"},
		{"names anywhere in match[]", &endpoint.Request{
			ID:    endpoint.Series,
			Match: []string{`up{a=~".*(` + strings.Join(fleet(5, 2000), "|") + `).*"}`},
		}, "regex_cost", "units without lists of names and at most 12000"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_ = ms
			d, err := Decide(tc.req, testLimits(), testGroup, now)
			e := refusal(t, err)
			if d == nil || d.Verdict != Refuse {
				t.Errorf("decision %+v", d)
			}
			want := qerr.TooExpensive
			if tc.bound == "" {
				want = qerr.BadData
			}
			if e.Kind != want || e.Bound != tc.bound {
				t.Errorf("got kind %s by %q: %s", e.Kind, e.Bound, e.Message)
			}
			if tc.bound != "" && (e.Value == "" || e.Seen == "" || e.Advice == "") {
				t.Errorf("value %q, seen %q, advice %q", e.Value, e.Seen, e.Advice)
			}
			if body := string(e.JSON()); !strings.Contains(e.Message+"; "+e.Advice, tc.part) {
				t.Errorf("%q is not in %s", tc.part, body)
			}
		})
	}
}

func TestPassed(t *testing.T) {
	for _, tc := range []struct {
		name        string
		req         *endpoint.Request
		from, until time.Duration // before now
	}{
		{"instant", instantQuery("up"), 5 * time.Minute, 0},
		{"instant without a time", &endpoint.Request{ID: endpoint.Query, Query: "up"}, 5 * time.Minute, 0},
		{"range", rangeQuery("rate(up[10m])", hour, time.Minute), hour + 10*time.Minute, 0},
		{"31 days of 5 minutes", rangeQuery("rate(up[5m])", 31*day, hour), 31*day + 5*time.Minute, 0},
		{"exactly 11,000 points", rangeQuery("up", 11000*time.Second, time.Second), 11300 * time.Second, 0},
		{
			"less than a step more", rangeQuery("up", 11000*time.Second+999*time.Millisecond, time.Second),
			11300*time.Second + 999*time.Millisecond, 0,
		},
		{"offset", instantQuery("up offset 1y"), 365*day + 5*time.Minute, 365 * day},
		{"negative offset", instantQuery("up offset -1h"), -hour + 5*time.Minute, -hour},
		{"two at once", instantQuery("up - up offset 1w"), 7*day + 5*time.Minute, 0},
		{"subquery", instantQuery("max_over_time(rate(up[5m])[1d:1m])"), day + 5*time.Minute, 0},
		{"subquery with offset", instantQuery("max_over_time(rate(up[5m] offset 1h)[1d:1m] offset 1d)"), 2*day + hour + 5*time.Minute, day + hour},
		{"start()", rangeQuery("up @ start()", hour, time.Minute), hour + 5*time.Minute, hour},
		{"end()", rangeQuery("max_over_time(up[1d:1h] @ end())", hour, time.Minute), day + 5*time.Minute, 0},
		{"densest subquery of a month", instantQuery("max_over_time(up[31d:15s])"), 31*day + 5*time.Minute, 0},
		{"lookback", &endpoint.Request{ID: endpoint.Query, Query: "up", LookbackDelta: hour}, hour, 0},
		{"smoothed", instantQuery("rate(up[10m] smoothed)"), 15 * time.Minute, -5 * time.Minute},
		{"anchored", instantQuery("rate(up[10m] anchored)"), 15 * time.Minute, 0},
		{"computed range", rangeQuery("rate(up[step()*4])", hour, time.Minute), hour + 4*time.Minute, 0},
		{"computed offset", rangeQuery("up offset (range()*2)", hour, time.Minute), 3*hour + 5*time.Minute, 2 * hour},
		{"info", instantQuery(`info(up, {k8s_cluster=~".+"})`), 5 * time.Minute, 0},
		{"info, emptied", instantQuery(`info(up, {cluster!=""})`), 5 * time.Minute, 0},
		{"experimental syntax", instantQuery(`limitk(3, up) + fill(0) up`), 5 * time.Minute, 0},
		{"other", instantQuery(`count({job="a"})`), 5 * time.Minute, 0},
		{"federate", federate("up", `{job="a"}`), 5 * time.Minute, 0},
		{"read", read(ago(31*day), ago(0), prombMatcher(prompb.LabelMatcher_EQ, "__name__", "up")), 31 * day, 0},
		{"exemplars", exemplars("up", ago(hour), ago(0)), hour, 0},
		{"exemplars until the far future", exemplars("up", ago(hour), ago(-9999*hour)), hour, -9999 * hour},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d, err := Decide(tc.req, testLimits(), testGroup, now)
			if err != nil {
				t.Fatal(err)
			}
			if d.Verdict != Pass || len(d.Warnings) > 0 || d.Empty || d.Constant || d.Unselective {
				t.Errorf("decision %+v", d)
			}
			if from, until := now.Sub(time.UnixMilli(d.Start)), now.Sub(time.UnixMilli(d.End)); from != tc.from || until != tc.until {
				t.Errorf("reads [now-%s, now-%s], want [now-%s, now-%s]", from, until, tc.from, tc.until)
			}
			if len(d.Selectors) == 0 || len(d.Selectors) != len(d.Classes) {
				t.Errorf("%d selectors, %d classes", len(d.Selectors), len(d.Classes))
			}
			if tc.req.ID == endpoint.QueryRange && (d.Request.Start != tc.req.Start || d.Request.End != tc.req.End ||
				d.Request.Step != tc.req.Step || d.Request.Query != tc.req.Query) {
				t.Errorf("the query was changed: %+v", d.Request)
			}
		})
	}
}

func TestConstant(t *testing.T) {
	for text, want := range map[string]bool{
		"1+1": true, "time()": true, "vector(1)": true, `"text"`: true, "max_over_time(vector(time())[1h:1m])": true,
		"up": false, "1 + up": false, "info(vector(1))": false, "absent(up)": false,
	} {
		d, err := Decide(&endpoint.Request{ID: endpoint.Query, Query: text, Time: endpoint.At(4000)}, testLimits(), nil, now)
		if err != nil || d.Constant != want || d.Verdict != Pass {
			t.Errorf("%s: %+v, %v", text, d, err)
		}
	}
}

// A range of metadata that ends before it starts is left as it is, and nothing is in it.
func TestNowhere(t *testing.T) {
	for _, id := range []endpoint.ID{endpoint.Series, endpoint.Labels, endpoint.LabelValues} {
		d, err := Decide(&endpoint.Request{ID: id, Match: []string{"up"}, Start: ago(0), End: ago(hour)}, testLimits(), nil, now)
		if err != nil || !d.Empty || d.Verdict != Pass || len(d.Warnings) > 0 || d.Limit <= 0 ||
			d.Request.Start != ago(0) || d.Request.End != ago(hour) {
			t.Errorf("%s: %+v, %v", id, d, err)
		}
	}
}

func TestExemplars(t *testing.T) {
	seconds := now.Unix()
	grafana := exemplars("test", endpoint.At((seconds-3600)*1000*1000), endpoint.At(seconds*1000*1000)) // milliseconds where seconds belong
	d, err := Decide(grafana, testLimits(), nil, now)
	if err != nil || !d.Empty || d.Verdict != Pass {
		t.Errorf("milliseconds: %+v, %v", d, err)
	}
	d, err = Decide(exemplars("test", endpoint.Time{}, endpoint.Time{}), testLimits(), nil, now)
	if err != nil || d.Empty || d.Verdict != Clamp || len(d.Warnings) != 1 || d.Request.Start != ago(31*day) || d.Request.End != ago(0) {
		t.Errorf("no times: %+v, %v", d, err)
	}
	d, err = Decide(exemplars("1", endpoint.Time{}, endpoint.Time{}), testLimits(), nil, now)
	if err != nil || !d.Constant || d.Verdict != Pass {
		t.Errorf("nothing selected: %+v, %v", d, err)
	}
}

func TestDeadline(t *testing.T) {
	for _, tc := range []struct{ client, want time.Duration }{
		{0, 25 * time.Second}, {time.Second, time.Second}, {10 * 365 * day, 25 * time.Second}, {-time.Second, 25 * time.Second},
	} {
		d, err := Decide(&endpoint.Request{ID: endpoint.Query, Query: "up", Timeout: tc.client, Limit: 3}, testLimits(), nil, now)
		if err != nil || d.Deadline != tc.want || d.Request.Timeout != tc.want || d.Limit != 3 || d.PerShardLimit != 3 {
			t.Errorf("timeout %s: %+v, %v", tc.client, d, err)
		}
	}
}

func TestAllowUnselective(t *testing.T) {
	l := testLimits()
	l.Unselective = "allow"
	for _, req := range []*endpoint.Request{instantQuery(`count({le!=""})`), federate(`{__name__=~".+"}`), read(ago(hour), ago(0))} {
		d, err := Decide(req, l, testGroup, now)
		if err != nil || d.Verdict != Pass || d.Class != Unselective || d.Unselective {
			t.Errorf("%s: %+v, %v", req.ID, d, err)
		}
	}
}

func TestNoLimitsNoAnswer(t *testing.T) {
	_, err := Decide(instantQuery("up"), Limits{}, nil, now)
	if e := refusal(t, err); e.Kind != qerr.Internal {
		t.Errorf("got %v", e)
	}
}

func TestOtherEndpointsPass(t *testing.T) {
	for _, id := range []endpoint.ID{
		endpoint.Metadata, endpoint.Rules, endpoint.Alerts, endpoint.Targets, endpoint.StatusTSDB,
		endpoint.FormatQuery, endpoint.ParseQuery,
	} {
		req := &endpoint.Request{ID: id, Limit: 5}
		if id.HasQuery() {
			req.Query = `{le!=""}`
		}
		d, err := Decide(req, testLimits(), testGroup, now)
		if err != nil || d.Verdict != Pass || d.Limit != 5 || d.Deadline != 25*time.Second {
			t.Errorf("%s: %+v, %v", id, d, err)
		}
	}
}

// TestGrafanaAllNodes has the selectors that Grafana makes of a variable with thousands of values.
func TestGrafanaAllNodes(t *testing.T) {
	var names, nodes, addresses []string
	for i := range 10_000 {
		nodes = append(nodes, fmt.Sprintf("gpu-node-%05d", i))
	}
	for i := range 9000 {
		names = append(names, "gpu-node-"+strings.Repeat("0", i%3)+string(rune('a'+i%26)))
	}
	for i := range 1000 {
		addresses = append(addresses, `10\\.0\\.`+string(rune('0'+i/250))+`\\.`+string(rune('0'+i%10))+`:9100`)
	}
	for _, match := range []string{
		`{instance=~"` + strings.Join(names, "|") + `"}`,
		`{instance=~"(` + strings.Join(nodes, "|") + `)"}`,
		`{instance=~"(` + strings.Join(addresses, "|") + `)"}`,
		`{__name__=~"` + strings.Repeat("a_metric|", 15_000) + `up"}`,
	} {
		d, err := Decide(&endpoint.Request{ID: endpoint.Series, Match: []string{match}}, testLimits(), testGroup, now)
		if err != nil {
			t.Errorf("%d bytes: %v", len(match), err)
		} else if d.Class == Unselective {
			t.Errorf("%.40s…: class %s", match, d.Class)
		}
	}
}

// TestMonths: what a month needs. The default is enough for windows of 30 days, of what looks back
// an hour too, and the refusal of more says which bound that is and what a rule does about it.
func TestMonths(t *testing.T) {
	for text, fits := range map[string]bool{
		"avg_over_time(up[30d])": true, "avg_over_time(rate(x[1h])[30d:1h])": true, "avg_over_time(up[31d:1h])": true,
		"avg_over_time(rate(x[1h])[31d:1h])": false, "avg_over_time(up[32d:1h])": false,
	} {
		_, err := Decide(instantQuery(text), testLimits(), testGroup, now)
		if fits {
			if err != nil {
				t.Errorf("%s: %v", text, err)
			}
			continue
		}
		e := refusal(t, err)
		if e.Bound != BoundMaxRange || !strings.Contains(e.Message, "max_range is 31d") || !strings.Contains(e.Advice, "by a rule") ||
			!strings.Contains(e.Advice, "raise limits.max_range") {
			t.Errorf("%s: %s; %s", text, e.Message, e.Advice)
		}
	}
}
