package rehearse

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/usage"
)

// MaxQuestions is how many different questions are asked at most, those first that were asked most.
const MaxQuestions = 20_000

// maxLine bounds a line of a usage log.
const maxLine = 64 << 20

// Question is what is asked of both servers.
type Question struct {
	// Endpoint is query, query_range or series.
	Endpoint endpoint.ID `json:"endpoint"`
	// Query is the query, or the selector of series.
	Query string `json:"query"`
	// Range and Step are those of a range query, Range that of series too.
	Range time.Duration `json:"range,omitempty"`
	Step  time.Duration `json:"step,omitempty"`
	// Who asks: user, dashboard and panel, or the rule.
	Who string `json:"who"`
	// Count is how often it was asked; 0 of a rule that nobody asked besides.
	Count int64 `json:"count"`

	rule bool // a rule asks it, whoever else does
}

// compare orders questions, also those of one text, so that two reports have one order.
func (q *Question) compare(b *Question) int {
	return cmp.Or(cmp.Compare(q.Query, b.Query), cmp.Compare(q.Endpoint, b.Endpoint), cmp.Compare(q.Range, b.Range),
		cmp.Compare(q.Step, b.Step), cmp.Compare(q.Who, b.Who), cmp.Compare(q.Count, b.Count))
}

// form is the request's, at a time.
func (q *Question) form(at time.Time) url.Values {
	stamp := func(t time.Time) string { return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', -1, 64) }
	switch q.Endpoint {
	case endpoint.QueryRange:
		at = at.Truncate(q.Step)
		return url.Values{
			"query": {q.Query}, "start": {stamp(at.Add(-q.Range))}, "end": {stamp(at)},
			"step": {strconv.FormatFloat(q.Step.Seconds(), 'f', -1, 64)},
		}
	case endpoint.Series:
		return url.Values{"match[]": {q.Query}, "start": {stamp(at.Add(-q.Range))}, "end": {stamp(at)}}
	default:
		return url.Values{"query": {q.Query}, "time": {stamp(at)}}
	}
}

// path is where it is asked, below a server's URL.
func (q *Question) path() string {
	switch q.Endpoint {
	case endpoint.QueryRange:
		return "/api/v1/query_range"
	case endpoint.Series:
		return "/api/v1/series"
	default:
		return "/api/v1/query"
	}
}

// Questions are the different ones, gathered.
type Questions struct {
	by      map[questionKey]*Question
	skipped map[string]int64 // lines, by why
	beside  int              // queries beside the rules
}

type questionKey struct {
	endpoint endpoint.ID
	query    string
}

// NewQuestions has none.
func NewQuestions() *Questions {
	return &Questions{by: map[questionKey]*Question{}, skipped: map[string]int64{}}
}

// Why lines of a log are not asked again.
const (
	skipCut      = "the log has only the beginning of the text"
	skipSelf     = "spillway relabel asked, to take stock"
	skipPlan     = "the plan alone was asked for"
	skipLost     = "the log lost them"
	skipEndpoint = "the log does not have all parameters of such a request"
	skipSeveral  = "several selectors in one request"
	skipBroken   = "no PromQL"
	skipMany     = "more different questions than are asked"
)

// Log adds what a usage log has, with the files that it was rotated into, since a time. Of a text
// that was asked for several ranges the longest counts.
func (q *Questions) Log(ctx context.Context, path string, since time.Time) (err error) {
	parts, err := usage.OpenParts(path)
	if err != nil {
		return fmt.Errorf("usage log: %w", err)
	}
	defer func() { err = errors.Join(err, usage.CloseParts(parts)) }()
	for _, part := range parts {
		if err := q.read(ctx, part, since); err != nil {
			return fmt.Errorf("usage log: %s: %w", part.Name, err)
		}
	}
	return nil
}

func (q *Questions) read(ctx context.Context, r io.Reader, since time.Time) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 1<<16), maxLine)
	var broken error
	for number := 1; lines.Scan(); number++ {
		if broken != nil { // it was not the last, which may be half written
			return broken
		}
		if number%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var rec usage.Record
		if err := json.Unmarshal(lines.Bytes(), &rec); err != nil {
			broken = fmt.Errorf("line %d is no line of a usage log: %w", number, err)
			continue
		}
		if rec.V != usage.Version {
			return fmt.Errorf("line %d is of version %d of the usage log's format, and only %d is known", number, rec.V, usage.Version)
		}
		if !rec.Time.Before(since) {
			q.line(&rec)
		}
	}
	return lines.Err()
}

func (q *Questions) line(rec *usage.Record) {
	one := Question{Endpoint: endpoint.ID(rec.Endpoint), Query: rec.Query, Who: who(rec), Count: 1}
	one.Range = time.Duration(rec.RangeSeconds * float64(time.Second))
	switch {
	case rec.Purpose == usage.Inventory:
		q.skipped[skipSelf]++
		return
	case rec.Purpose == usage.Explain:
		q.skipped[skipPlan]++
		return
	case rec.Purpose == usage.Lost:
		q.skipped[skipLost] += rec.Lost
		return
	case strings.HasSuffix(rec.Query, usage.CutMark):
		q.skipped[skipCut]++
		return
	case one.Endpoint == endpoint.Query:
		one.Range = 0
	case one.Endpoint == endpoint.QueryRange:
		if one.Step = time.Duration(rec.StepSeconds * float64(time.Second)); one.Step <= 0 {
			q.skipped[skipEndpoint]++
			return
		}
	case one.Endpoint == endpoint.Series:
		if _, err := promql.ParseMetricSelector(rec.Query); err != nil {
			q.skipped[skipSeveral]++
			return
		}
	default:
		q.skipped[skipEndpoint]++
		return
	}
	if _, err := promql.ParseExpr(rec.Query); err != nil {
		q.skipped[skipBroken]++
		return
	}
	q.add(one)
}

// promql accepts all that a server may be told to accept.
var promql = parser.NewParser(parser.Options{
	EnableExperimentalFunctions: true, ExperimentalDurationExpr: true, EnableExtendedRangeSelectors: true, EnableBinopFillModifiers: true,
})

func (q *Questions) add(one Question) {
	key := questionKey{one.Endpoint, one.Query}
	known := q.by[key]
	if known == nil {
		q.by[key] = &one
		return
	}
	known.Count, known.rule = known.Count+one.Count, known.rule || one.rule
	if one.Range > known.Range {
		known.Range, known.Step = one.Range, one.Step
	}
	if one.Count == 0 || known.Who == "" {
		known.Who = one.Who
	}
}

// Rule adds the expression of a rule.
func (q *Questions) Rule(query, name string) {
	q.add(Question{Endpoint: endpoint.Query, Query: query, Who: name, rule: true})
}

// Beside counts a query that stands beside the rules and is not asked: its variables have no values
// there, and what two servers say alike of $cluster shows nothing.
func (q *Questions) Beside() { q.beside++ }

// list are the questions, rules first, then what was asked most.
func (q *Questions) list(most int) []*Question {
	var out []*Question
	for _, one := range q.by {
		out = append(out, one)
	}
	rule := func(one *Question) int {
		if one.rule {
			return 0
		}
		return 1
	}
	slices.SortFunc(out, func(a, b *Question) int {
		return cmp.Or(rule(a)-rule(b), cmp.Compare(b.Count, a.Count), cmp.Compare(a.Endpoint, b.Endpoint), cmp.Compare(a.Query, b.Query))
	})
	if len(out) > most {
		q.skipped[skipMany] += int64(len(out) - most)
		out = out[:most]
	}
	return out
}

// who names the caller of a line.
func who(rec *usage.Record) string {
	var out []string
	for _, f := range []struct{ name, value string }{
		{"", rec.User},
		{"dashboard ", rec.Dashboard},
		{"panel ", rec.Panel},
		{"rule ", rec.Rule},
	} {
		if f.value != "" {
			out = append(out, f.name+f.value)
		}
	}
	return strings.Join(out, ", ")
}
