package policy

import (
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	resyntax "regexp/syntax"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"

	"github.com/spillwayproject/spillway/internal/tree"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/hostile"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// seeds are texts of every part of the grammar, and of what has broken parsers.
var seeds = []string{
	"", "up", "1+1", `sum by (job) (rate(http_requests_total{code=~"5..", job!=""}[5m] offset 1h))`, `{"utf8.name", 'a'="b", c=~` + "`d|e`" + `}`,
	"# a comment\nup # and \"another", "max_over_time(rate(x[5m])[1d:1m] @ end())", `histogram_quantile(0.9, sum(rate(x[$__interval])) by (le))`,
	"x + on(a, b) group_left(c) y", "x + fill_left(1) fill_right(2) y", "fill + fill", "rate(x[step()*4] smoothed)",
	"x[1h:max_of(1m,step())]", "info(up, {a=~\".+\"})",
	`label_replace(up, "a", "$1", "b", "(.*)")`, "----1", "((((1))))", "0x1F + 1_000 + .5e-3 + Inf + NaN + 1h30m",
	"\"\\x41\\u00e9\\U0001F600\\101\"", "'\\''", "\"unterminated", "`",
	"{a=~\"(\"}", "{a=~\"a{1000}{1000}\"}", "{a=~\"(?i)[a-z]\\\\pL\"}", "up @ 253402300800", "up offset -292y", "\xff", "{\xff}", "x[",
	"x[5m", "x[5m:]", "x[(5m)]", "]", "}", ")", "{{", "up{", "a:b:c",
	strings.Repeat("-", 2000) + "1", strings.Repeat("(", 100), strings.Repeat("1+", 500) + "1",
}

// FuzzPrescan: the pre-scan never panics, its verdict does not depend on anything but the text, and
// what it lets pass the parser reads without growing beyond what the text's length allows. A short
// text that the parser accepts is never refused.
func FuzzPrescan(f *testing.F) {
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 64<<10 {
			return
		}
		found, err := prescan(text)
		if found.outside > len(text) || len(found.regexps) > len(text) {
			t.Fatalf("found %d bytes and %d expressions in %d bytes", found.outside, len(found.regexps), len(text))
		}
		if small(text) && (err != nil || len(found.regexps) > 0) {
			t.Fatalf("%q is not small: it has %d expressions, %v", text, len(found.regexps), err)
		}
		if err != nil {
			if e := refusal(t, err); e.Kind != qerr.TooExpensive || e.Bound != BoundQueryShape {
				t.Fatal(err)
			}
			if _, perr := tree.Parser.ParseExpr(text); perr == nil && len(text) <= 120 {
				t.Fatalf("%q is valid and short, yet %v", text, err)
			}
			return
		}
		if !passes(text) {
			return
		}
		expr, perr := tree.Parser.ParseExpr(text)
		if (expr == nil) == (perr == nil) && perr == nil {
			t.Fatalf("%q: neither an expression nor an error", text)
		}
		if perr == nil {
			walk(&Query{Request: &endpoint.Request{ID: endpoint.Query}}, expr)
			selects(expr)
		}
	})
}

// FuzzRegexSize: the estimate never panics and is never far below what the compiler makes of the
// expression.
func FuzzRegexSize(f *testing.F) {
	for _, s := range []string{
		"", "a|b", "(a|b)", "(node-1|node-2)", "(.*a){1000}", "a{30}{30}", "[a-z]+", "(?i)[B-\\x{1e942}]", "\\pL\\p{Greek}",
		"[[:alpha:]\\d-]", "\\Qa.b\\E", "x{", "x{,3}", "x{2,}", "[", "(", ")", "|", "\\", "(?P<n>a)",
		"a**", "(?:ab|ac|ad)", "[]a]", "[^]a]", "[a-]", "\\x{", "\\x4", "\\101", "(?i:k)s", "a{2}{3}{4}", "()|", "((((a){3}){3}){3})",
		"(|a)*",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, re string) {
		if len(re) > 2000 {
			return
		}
		size := sizeOf(re)
		if size.all < 0 || size.repeated < 0 {
			t.Fatalf("%q: %+v", re, size)
		}
		if size.all > maxMatchRegexCost || literalAlternation(re) {
			return
		}
		parsed, err := resyntax.Parse(re, resyntax.Perl|resyntax.DotNL)
		if err != nil {
			return
		}
		prog, err := resyntax.Compile(parsed.Simplify())
		if err != nil {
			return
		}
		if n := len(prog.Inst); n > 2*size.all {
			t.Fatalf("%q has %d instructions, the estimate is %d", re, n, size.all)
		}
	})
}

// FuzzDecide: no request makes Decide panic, change the request or leave the bounds.
func FuzzDecide(f *testing.F) {
	for i, s := range seeds {
		f.Add(uint8(i), s, "up", []byte(s), int64(i)*3_600_000, int64(1_790_000_000_000), int64(15_000_000_000), i)
	}
	f.Add(uint8(1), "up", `{le!=""}`, []byte{}, int64(math.MinInt64), int64(math.MaxInt64), int64(1), 0)
	f.Add(uint8(2), "max_over_time(up[100y:1s])", `{a=~".+"}`, []byte{3}, int64(math.MinInt64), int64(math.MinInt64), int64(math.MaxInt64),
		math.MaxInt)
	f.Add(uint8(3), "up @ 253402300800 offset 292y", `{cluster="a"}`, []byte{1, 2}, int64(math.MaxInt64), int64(math.MaxInt64),
		int64(math.MinInt64), -1)
	ids := []endpoint.ID{
		endpoint.Query, endpoint.QueryRange, endpoint.QueryExemplars, endpoint.Series, endpoint.Labels, endpoint.LabelValues,
		endpoint.Federate, endpoint.Read,
		endpoint.FormatQuery, endpoint.ParseQuery, endpoint.Rules, endpoint.TargetsMetadata, endpoint.Metadata,
	}
	f.Fuzz(func(t *testing.T, which uint8, query, match string, more []byte, a, b, c int64, limit int) {
		if len(query)+len(match)+len(more) > 4096 {
			return
		}
		bits := uint64(0)
		if len(more) >= 8 {
			bits = binary.LittleEndian.Uint64(more)
		}
		req := &endpoint.Request{
			ID: ids[int(which)%len(ids)], Query: query, Time: endpoint.Time{Ms: a, Set: bits&1 == 0},
			Start: endpoint.Time{Ms: a, Set: bits&2 == 0}, End: endpoint.Time{Ms: b, Set: bits&4 == 0},
			Step: time.Duration(c), Timeout: time.Duration(b), Limit: limit,
		}
		if bits&8 == 0 {
			req.LookbackDelta = time.Duration(c)
		}
		if bits&16 == 0 {
			req.Match = []string{match}
		}
		if bits&32 == 0 {
			req.Match = append(req.Match, string(more))
		}
		if req.ID == endpoint.Read {
			req.ReadQuery = &prompb.ReadRequest{Queries: []*prompb.Query{
				{StartTimestampMs: a, EndTimestampMs: b, Matchers: []*prompb.LabelMatcher{{
					Type: prompb.LabelMatcher_Type(bits % 5),
					Name: query, Value: match,
				}, nil}[:1+bits>>8&1]}, nil,
			}[:1+bits>>9&1]}
		}
		before := req.Clone()
		l := testLimits()
		d, err := Decide(req, l, testGroup, now)
		if !reflect.DeepEqual(before, req.Clone()) {
			t.Fatal("the client's request was changed")
		}
		if err != nil {
			var e *qerr.Error
			if !errors.As(err, &e) || e.Kind != qerr.BadData && e.Kind != qerr.TooExpensive || d.Verdict != Refuse {
				t.Fatalf("%v %+v", err, d)
			}
			if (e.Kind == qerr.TooExpensive) != (e.Bound != "") || len(e.Message) > 4096 || len(e.Advice) > 4096 || len(e.Seen) > 4096 {
				t.Fatalf("%+v", e)
			}
			return
		}
		if d.Deadline <= 0 || d.Deadline > l.Timeout || d.Request.Timeout != d.Deadline {
			t.Fatalf("deadline %s", d.Deadline)
		}
		if d.Request.Query != req.Query || !reflect.DeepEqual(d.Request.Match, req.Clone().Match) || d.Request.Step != req.Step ||
			d.Request.Time != req.Time {
			t.Fatal("the query was changed")
		}
		switch {
		case isMetadata(req.ID):
			widest := l.MetadataRange
			if d.Class == Named {
				widest = l.MaxRange
			}
			if w := satSub(d.End, d.Start); w < 0 || w > widest.Milliseconds() {
				t.Fatalf("class %s: window [%d, %d]", d.Class, d.Start, d.End)
			}
			if req.Start.Set && d.Start < req.Start.Ms || req.End.Set && d.End > req.End.Ms {
				t.Fatalf("window [%d, %d] is not in the caller's [%d, %d]", d.Start, d.End, req.Start.Ms, req.End.Ms)
			}
			if d.Limit < 1 || d.Limit > l.MaxSeries || req.Limit > 0 && d.Limit > req.Limit || d.PerShardLimit < 1 ||
				d.PerShardLimit > d.Limit || d.Unselective && d.PerShardLimit > UnselectiveSeriesPerShard {
				t.Fatalf("limits %d, %d", d.Limit, d.PerShardLimit)
			}
			if d.Narrowed != (len(d.Warnings) > 0) || d.Narrowed && d.Verdict != Clamp {
				t.Fatalf("narrowed %t, warnings %q, verdict %s", d.Narrowed, d.Warnings, d.Verdict)
			}
		case req.ID == endpoint.QueryRange:
			if w := satSub(req.End.Ms, req.Start.Ms); w > l.MaxRange.Milliseconds() || w/req.Step.Milliseconds() > maxPointsPerSeries {
				t.Fatalf("a range of %d ms at %s passed", w, req.Step)
			}
		}
		if selectsByQuery(req.ID) && !d.Empty && d.Class == Unselective || len(d.Selectors) != len(d.Classes) {
			t.Fatalf("class %s with classes %v", d.Class, d.Classes)
		}
		for _, s := range d.Selectors {
			for _, m := range s {
				if m == nil || m.Type > labels.MatchNotRegexp {
					t.Fatalf("matcher %v", m)
				}
			}
		}
	})
}

// TestWorstTextsAreStopped: what was dear once is refused at 64 KiB, by the pre-scan or the
// estimate. The rest is read in linear time.
func TestWorstTextsAreStopped(t *testing.T) {
	linear := map[string]bool{
		"spaces": true, "long identifier": true, "string": true, "escapes": true, "bad escape": true, "unterminated": true,
		"literal alternatives": true,
		"escaped alternatives": true, "random alternatives": true, "quoted": true,
	}
	for _, w := range hostile.Parts {
		if w.Part == "" {
			continue
		}
		text := w.Text(64 << 10)
		if passes(text) && !linear[w.Name] {
			t.Errorf("%s: passes at %d bytes", w.Name, len(text))
		}
	}
}

func TestSaturation(t *testing.T) {
	const lo, hi = math.MinInt64, math.MaxInt64
	for _, tc := range []struct{ got, want int64 }{
		{satAdd(hi, 1), hi},
		{satAdd(lo, -1), lo},
		{satAdd(1, 2), 3},
		{satAdd(hi, lo), -1},
		{satSub(0, lo), hi},
		{satSub(-1, lo), hi},
		{satSub(lo, lo), 0},
		{satSub(lo, 1), lo},
		{satSub(hi, -1), hi},
		{satSub(5, 7), -2},
		{satSub(hi, hi), 0},
		{satMul(hi, 2), hi},
		{satMul(0, hi), 0},
		{satMul(3, 4), 12},
	} {
		if tc.got != tc.want {
			t.Errorf("got %d, want %d", tc.got, tc.want)
		}
	}
}
