package relabel

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/internal/clip"
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
	advice := map[bool]string{}
	for _, u := range by {
		advice[u.Kind == uses.Logged] = "leave its file out (--exclude), or give it a metric's name"
		if u.Kind == uses.Logged {
			advice[true] = "take its lines out of the usage log, or choose a --window that begins after the last of them"
		}
		if len(texts) == namedUses {
			continue
		}
		text := u.Place()
		if u.Query != "" {
			text = clip.Text(u.Query, 200) + " of " + text
		}
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
	var how []string
	for _, logged := range []bool{true, false} {
		if advice[logged] != "" {
			how = append(how, advice[logged])
		}
	}
	return what + strings.Join(texts, "; ") + ". Who can do without: " + strings.Join(how, "; ") + ", and make the plan again"
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
