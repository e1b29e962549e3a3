package relabel

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/internal/clip"
	"github.com/spillwayproject/spillway/proxy/usage"
	"github.com/spillwayproject/spillway/relabel/inventory"
	"github.com/spillwayproject/spillway/relabel/propose"
	"github.com/spillwayproject/spillway/relabel/uses"
)

// held is what stays of a job without a use that names it.
type held struct {
	metrics, nameless int
	series            int64
	by                []*uses.Use
}

// heldByNameless says, for each job, how much of it nothing but queries without a metric's name
// keep, and which these are. Whether they are uses is for people to say: of an answer with a value
// for each name nobody knows whether somebody looks at one of them.
func heldByNameless(inv *inventory.Inventory, index *uses.Index, dropped map[key]propose.Saving, exempt []string) []string {
	var names []string
	jobs := map[string]*held{}
	for _, m := range inv.Metrics { // sorted by job
		if slices.Contains(exempt, m.Job) || m.Name == "up" || strings.HasPrefix(m.Name, "scrape_") || strings.Contains(m.Name, ":") {
			continue
		}
		h := jobs[m.Job]
		if h == nil {
			h = new(held)
			jobs[m.Job], names = h, append(names, m.Job)
		}
		h.metrics++
		by, named := nameless(index, m)
		stays := m.Series - dropped[key{m.Job, m.Name}].Series
		if named || len(by) == 0 || stays == 0 {
			continue
		}
		h.nameless++
		h.series += stays
		for _, u := range by {
			if !slices.Contains(h.by, u) {
				h.by = append(h.by, u)
			}
		}
	}
	var out []string
	for _, job := range names {
		if h := jobs[job]; h.nameless > 0 {
			out = append(out, fmt.Sprintf("job %s: %d of its %d metrics, with %d series, are kept by nothing but %s", job, h.nameless, h.metrics, h.series, asked(h.by)))
		}
	}
	return out
}

// nameless are the uses without a metric's name that keep a metric; named says that another one, or
// keep.yaml, keeps it too.
func nameless(index *uses.Index, m *inventory.Metric) (by []*uses.Use, named bool) {
	for _, e := range index.For(m.Name) {
		if !selectsName(e.Need, m.Name, m.Job) {
			continue
		}
		if e.Names(m.Name) || slices.ContainsFunc(e.Uses, func(u *uses.Use) bool { return u.Kind == uses.Kept }) {
			return nil, true
		}
		by = append(by, e.Uses...)
	}
	return by, false
}

// asked tells of queries without a metric's name, and how one does without them.
func asked(by []*uses.Use) string {
	var texts []string
	advice := map[string]bool{}
	for _, u := range by {
		advice[waysOut(u)] = true
		if len(texts) == namedUses {
			continue
		}
		text := shownText(u) + u.Place()
		if u.Count > 0 {
			text += fmt.Sprintf(", asked %s, last on %s (UTC)", times(u.Count), u.Last.UTC().Format(time.DateTime))
		}
		if countsNames(u.Query) {
			text += ", which only counts series by name"
		}
		texts = append(texts, text)
	}
	if more := len(by) - len(texts); more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	what := "one query that names no metric: "
	if len(by) > 1 {
		what = fmt.Sprintf("%d queries that name no metric: ", len(by))
	}
	how := slices.DeleteFunc([]string{lessLines, lessTime, lessFiles}, func(way string) bool { return !advice[way] })
	return what + strings.Join(texts, "; ") + ". Who can do without: " + strings.Join(how, "; ") + ", and make the plan again"
}

// How one does without a query.
const (
	lessLines = "take its lines out of the usage log, or choose a --window that begins after the last of them"
	lessTime  = "of one whose text the log does not have, choose a --window that begins after the last of them"
	lessFiles = "leave its file out (--exclude), or give it a metric's name"
)

func waysOut(u *uses.Use) string {
	switch {
	case u.Kind != uses.Logged:
		return lessFiles
	case u.Query == "": // cut, or of several selectors
		return lessTime
	}
	return lessLines
}

// shownText is a query as a message has it, before its place. One of the log is whole, as a string
// of JSON, so that its lines can be found by it: it is no longer than a line has.
func shownText(u *uses.Use) string {
	switch {
	case u.Kind != uses.Logged && u.Query == "":
		return ""
	case u.Kind != uses.Logged:
		return clip.Text(u.Query, 200) + " of "
	case u.Query == "":
		return "a query whose text the log does not have, of "
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(clip.Text(u.Query, usage.MaxQueryBytes)); err != nil { // a text has none
		return ""
	}
	return strings.TrimSuffix(b.String(), "\n") + " of "
}

func times(n int64) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// countsNames says whether a query does nothing but count series by their names, as explorers of
// cardinality do, and sort what comes of it.
func countsNames(query string) bool {
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	for err == nil {
		switch e := expr.(type) {
		case *parser.ParenExpr:
			expr = e.Expr
		case *parser.Call:
			if len(e.Args) != 1 || !strings.HasPrefix(e.Func.Name, "sort") {
				return false
			}
			expr = e.Args[0]
		case *parser.AggregateExpr:
			if _, selects := e.Expr.(*parser.VectorSelector); selects && (e.Op == parser.COUNT || e.Op == parser.GROUP) {
				return !e.Without && slices.Contains(e.Grouping, model.MetricNameLabel)
			}
			if e.Op != parser.TOPK && e.Op != parser.BOTTOMK {
				return false
			}
			expr = e.Expr
		default:
			return false
		}
	}
	return false
}
