package server

import (
	"cmp"
	"context"
	"encoding/json"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/internal/tree"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/rewrite"
)

// What a rewrite may name: metrics, and values of labels, that whoever asks may see.

const (
	// namedMetrics is of how many metrics of a tenant one is looked for that fits.
	namedMetrics = 20
	// countedLabels is of how many labels the values are counted, and valuesOfLabel of how many of
	// the largest one is looked for that fits.
	countedLabels, valuesOfLabel = 4, 8
	// labelsLooked is of how many labels of the series one is looked for.
	labelsLooked = 100
	// valuesCounted is of how many values the series are counted.
	valuesCounted = 50
	// aroundEnd is how long before the end of what was asked for labels are looked up.
	aroundEnd = 10 * time.Minute
	// maxBesides is how long an answer may be that is read on the way, in bytes.
	maxBesides = 64 << 10
)

// namesKnown finds them out for one request.
type namesKnown struct {
	*exchange
	ctx   context.Context // of the time in which a rewrite is looked for
	scale *scale
	left  int // how often shards may still be asked
}

// metricNames are metrics that may stand where a selector names none: the largest of all shards,
// as these have told. A tenant who does not see all is given those that a request of his own finds.
func (x *namesKnown) metricNames() iter.Seq[string] {
	return func(yield func(string) bool) {
		if x.tenant.Narrow() {
			for _, name := range x.ownMetrics() {
				if !yield(name) {
					return
				}
			}
			return
		}
		most := int64(cheapSeries)
		if e := x.saidExpr(); e == nil || !tree.Aggregates(e) {
			most = min(most, int64(x.limits.MaxSeries))
		}
		buckets := x.wantsBuckets()
		for _, m := range x.st.known.Sizes.Named() {
			if fits := m.Series <= most && (!buckets || strings.HasSuffix(m.Name, "_bucket")); fits && !yield(m.Name) {
				return
			}
		}
	}
}

// wantsBuckets tells whether the request is about histograms: no other metric has the label.
func (x *exchange) wantsBuckets() bool {
	return slices.ContainsFunc(x.saidSelectors(), func(ms []*labels.Matcher) bool {
		return slices.ContainsFunc(ms, func(m *labels.Matcher) bool { return m.Name == model.BucketLabel && !m.Matches("") })
	})
}

// saidSelectors are those of the caller's own text.
func (x *exchange) saidSelectors() (out [][]*labels.Matcher) {
	if e := x.saidExpr(); e != nil {
		parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
			if vs, ok := n.(*parser.VectorSelector); ok {
				out = append(out, vs.LabelMatchers)
			}
			return nil
		})
		return out
	}
	for _, text := range x.said.Match {
		if ms, err := tree.Parser.ParseMetricSelector(text); err == nil {
			out = append(out, ms)
		}
	}
	return out
}

// ownMetrics are the first names that the tenant has series of, which meet the first selector that
// names none.
func (x *namesKnown) ownMetrics() []string {
	req := &endpoint.Request{ID: endpoint.LabelValues, Label: model.MetricNameLabel, Limit: namedMetrics}
	req.Start, req.End = x.around()
	for _, ms := range x.saidSelectors() {
		if !fixes(ms, model.MetricNameLabel) {
			req.Match = []string{plan.Selector(plan.Filled(ms))}
			break
		}
	}
	var answer struct{ Data []string }
	if !x.besides(req, &answer) {
		return nil
	}
	return answer.Data
}

// besides asks for something else than what was refused, for whoever asks, and reads the answer;
// false where there is none, or something is missing in it beside what was not asked for. It is
// asked if it is cheap.
func (x *namesKnown) besides(req *endpoint.Request, into any) bool {
	if x.left <= 0 || x.ctx.Err() != nil {
		return false
	}
	if c, _ := x.scaleOf(x.ctx).Estimate(req); !c.Cheap { // its own bounds say whether it fits
		return false
	}
	x.left--
	kept := &keptAnswer{nowhere: nowhere{http.Header{}}, most: maxBesides}
	t, err := x.tryInto(x.ctx, req, kept)
	if err != nil || kept.over || !t.took.Whole && !(t.cut && req.Limit > 0) {
		return false
	}
	return json.Unmarshal(kept.body, into) == nil
}

// pairs are matchers that keep a part of what is asked for: one group of several, then the largest
// values of labels that the selectors leave open, counted on the shards once.
func (x *namesKnown) pairs() iter.Seq[rewrite.Pair] {
	selectors := x.saidSelectors()
	open := sync.OnceValue(func() []string { return x.openLabels(selectors) })
	counted := map[string][]string{}
	return func(yield func(rewrite.Pair) bool) {
		if len(selectors) == 0 {
			return
		}
		if !x.tenant.Narrow() { // to whom a group that he has nothing in is not named
			for _, p := range x.groupPairs(selectors) {
				if !yield(p) {
					return
				}
			}
		}
		if x.dec == nil || x.dec.Selectors == nil { // it selects nothing in particular, and is counted nowhere
			for _, p := range x.jobPairs() {
				if !yield(p) {
					return
				}
			}
			return
		}
		for _, label := range open() {
			values, ok := counted[label]
			if !ok {
				values = x.largestValues(selectors, label)
				counted[label] = values
			}
			for _, value := range values {
				if !yield(rewrite.Pair{Label: label, Value: value}) {
					return
				}
			}
		}
	}
}

// jobPairs are matchers on jobs, as the shards have told of them; none to a tenant who does not see
// all.
func (x *exchange) jobPairs() (out []rewrite.Pair) {
	if x.tenant.Narrow() {
		return nil
	}
	for _, m := range x.st.known.Sizes.Jobs() {
		if m.Series <= cheapSeries {
			out = append(out, rewrite.Pair{Label: "job", Value: m.Name})
		}
	}
	return out
}

// groupPairs are matchers on the groups' labels, where the selectors leave several groups.
func (x *exchange) groupPairs(selectors [][]*labels.Matcher) (out []rewrite.Pair) {
	view, from, until := x.view, int64(0), x.s.now().UnixMilli()
	if view != nil {
		from, until = x.dec.Start, x.dec.End
	} else {
		view = plan.NewView(x.st.top, x.s.now())
	}
	for _, ms := range selectors {
		met := map[string]bool{}
		for _, l := range view.Legs(ms, from, until) {
			g := l.Shard.Group
			if met[g.Name] {
				continue
			}
			met[g.Name] = true
			g.Labels.Range(func(l labels.Label) {
				if p := (rewrite.Pair{Label: l.Name, Value: l.Value}); !slices.Contains(out, p) {
					out = append(out, p)
				}
			})
		}
		if len(met) > 1 {
			return out[:min(len(out), valuesOfLabel)]
		}
		out = nil
	}
	return nil
}

// usualLabels are labels that most series of a cluster have, those first that tell least apart.
var usualLabels = []string{"namespace", "node", "job", "instance", "Hostname", "pod"}

// openLabels are labels of which the selectors may be given one value: those that they ask several
// values of, those that the query groups or joins by, the usual ones, and then any that the series
// have.
func (x *namesKnown) openLabels(selectors [][]*labels.Matcher) (out []string) {
	e := x.saidExpr()
	add := func(name string) {
		if (e == nil || rewrite.Narrows(e, name)) && name != model.MetricNameLabel && name != model.BucketLabel &&
			!slices.Contains(out, name) && !x.st.owned(name) &&
			!slices.ContainsFunc(selectors, func(ms []*labels.Matcher) bool { return fixes(ms, name) }) {
			out = append(out, name)
		}
	}
	for _, ms := range selectors {
		for _, m := range ms {
			add(m.Name)
		}
	}
	if e != nil {
		parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
			var names []string
			switch n := n.(type) {
			case *parser.AggregateExpr:
				if !n.Without {
					names = n.Grouping
				}
			case *parser.BinaryExpr:
				if n.VectorMatching != nil && n.VectorMatching.On {
					names = n.VectorMatching.MatchingLabels
				}
			}
			for _, name := range names {
				add(name)
			}
			return nil
		})
	}
	if len(out) >= countedLabels {
		return out[:countedLabels]
	}
	var answer struct{ Data []string }
	req := &endpoint.Request{ID: endpoint.Labels, Match: []string{plan.Selector(plan.Filled(selectors[0]))}, Limit: labelsLooked}
	req.Start, req.End = x.around()
	if !x.besides(req, &answer) {
		return out
	}
	for _, name := range usualLabels {
		if slices.Contains(answer.Data, name) {
			add(name)
		}
	}
	for _, name := range answer.Data {
		add(name)
	}
	return out[:min(len(out), countedLabels)]
}

// fixes tells whether a selector asks for one value of the label.
func fixes(ms []*labels.Matcher, name string) bool {
	return slices.ContainsFunc(ms, func(m *labels.Matcher) bool { return m.Name == name && m.Type == labels.MatchEqual && m.Value != "" })
}

// largestValues are the values of a label with the most series of the selectors now, the largest
// first, as far as whoever asks sees them. What was counted is known to the estimates of this
// request alone: it is of one moment, and nobody's answer.
func (x *namesKnown) largestValues(selectors [][]*labels.Matcher, label string) (out []string) {
	many := map[string]float64{}
	for i, ms := range distinct(selectors) {
		for value, n := range x.countBy(ms, label) {
			if i == 0 || many[value] > 0 { // which the others have, too
				many[value] += n
			}
			x.scale.count(ms, label, value, int64(n))
		}
	}
	out = slices.Collect(maps.Keys(many))
	slices.SortFunc(out, func(a, b string) int { return cmp.Or(cmp.Compare(many[b], many[a]), cmp.Compare(a, b)) })
	return out[:min(len(out), valuesOfLabel)]
}

// count notes how many series a selector has with one value of a label.
func (s *scale) count(ms []*labels.Matcher, label, value string, n int64) {
	if s.counted == nil {
		s.counted = map[string]int64{}
	}
	own := slices.DeleteFunc(slices.Clone(ms), func(m *labels.Matcher) bool { return m.Name == label })
	s.counted[sortedSelector(append(own, labels.MustNewMatcher(labels.MatchEqual, label, value)))] = n
}

// sortedSelector is a text that selectors have in common that ask for the same.
func sortedSelector(ms []*labels.Matcher) string {
	texts := make([]string, 0, len(ms))
	for _, m := range ms {
		texts = append(texts, m.String())
	}
	slices.Sort(texts)
	return strings.Join(texts, ",")
}

// countedSelectors is of how many selectors of a query series are counted.
const countedSelectors = 2

// distinct are the first selectors that differ.
func distinct(selectors [][]*labels.Matcher) (out [][]*labels.Matcher) {
	seen := map[string]bool{}
	for _, ms := range selectors {
		if text := plan.Selector(ms); !seen[text] && len(out) < countedSelectors {
			seen[text], out = true, append(out, ms)
		}
	}
	return out
}

// around is a while up to the end of what was asked for, where that is not now; else it is not set.
func (x *namesKnown) around() (start, end endpoint.Time) {
	for _, t := range []endpoint.Time{x.said.End, x.said.Time} {
		if t.Set && t.Ms < x.s.now().UnixMilli() {
			return endpoint.At(t.Ms - aroundEnd.Milliseconds()), t
		}
	}
	return start, end
}

// countBy counts the series of a selector at the end of what was asked for, by the values of a
// label, of those values that have most.
func (x *namesKnown) countBy(ms []*labels.Matcher, label string) map[string]float64 {
	count := &parser.AggregateExpr{
		Op: parser.COUNT, Grouping: []string{label}, Expr: &parser.VectorSelector{LabelMatchers: plan.Filled(ms)},
	}
	req := &endpoint.Request{ID: endpoint.Query, Query: "topk(" + strconv.Itoa(valuesCounted) + ", " + count.String() + ")"}
	if _, end := x.around(); end.Set {
		req.Time = end
	}
	var answer struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	if !x.besides(req, &answer) {
		return nil
	}
	out := map[string]float64{}
	for _, r := range answer.Data.Result {
		text, isText := r.Value[1].(string)
		n, err := strconv.ParseFloat(text, 64)
		if value := r.Metric[label]; value != "" && isText && err == nil {
			out[value] = n
		}
	}
	return out
}
