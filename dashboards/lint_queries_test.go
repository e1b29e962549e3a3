package dashboards

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// innermost is the nearest function around a selector, and its window; "" where there is none.
func innermost(path []parser.Node) (fn string, window time.Duration, subquery bool) {
	for i := len(path) - 1; i >= 0; i-- {
		switch n := path[i].(type) {
		case *parser.MatrixSelector:
			window = n.Range
		case *parser.SubqueryExpr:
			return "", 0, true
		case *parser.Call:
			return n.Func.Name, window, false
		case *parser.AggregateExpr, *parser.BinaryExpr:
			return "", 0, false
		}
	}
	return "", 0, false
}

// A rate is over $__rate_interval: a fixed window has holes when one zooms out, and is empty when
// scrapes are rarer. An increase may also be over the whole range or over a time that its panel
// speaks of, such as an hour or a day.
func checkWindows(_ *linter, d *Dashboard, bad reporter) {
	inspect(d, func(q Query, sel *parser.VectorSelector, path []parser.Node) {
		fn, window, _ := innermost(path)
		switch {
		case fn != "rate" && fn != "irate" && fn != "increase", window == rateInterval:
		case fn == "increase" && (window == wholeRange || window >= 10*time.Minute && window%time.Minute == 0):
		default:
			bad("%s: %s(%s[%s]) is not over $__rate_interval", q.Where, fn, sel.Name, window)
		}
	})
}

// alertSeries are what a ruler writes about alerts, with what Alertmanager does not know.
var alertSeries = []string{"ALERTS", "ALERTS_FOR_STATE"}

func checkMetrics(x *linter, d *Dashboard, bad reporter) {
	inspect(d, func(q Query, sel *parser.VectorSelector, _ []parser.Node) {
		switch {
		case sel.Name == "":
			bad("%s: %s names no metric", q.Where, sel)
		case x.facts.recorded[sel.Name], slices.Contains(alertSeries, sel.Name):
		case strings.Contains(sel.Name, ":"):
			bad("%s: no rule of ours records %s", q.Where, sel.Name)
		case len(x.facts.find(sel.Name, sel.LabelMatchers)) == 0:
			bad("%s: alerts/metrics.yaml has no %s of that job", q.Where, sel)
		}
	})
}

var (
	ofCounters = []string{"rate", "irate", "increase", "resets"}
	ofGauges   = []string{
		"delta", "deriv", "predict_linear", "idelta", "avg_over_time", "min_over_time", "max_over_time", "sum_over_time",
		"quantile_over_time",
	}
	presence = []string{"absent", "absent_over_time", "present_over_time", "count_over_time", "timestamp", "changes"}
)

// plainCounters are counters whose value itself is shown, with the reason.
var plainCounters = map[string]string{
	"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL":                 lifetime,
	"DCGM_FI_DEV_ECC_SBE_VOL_TOTAL":                 lifetime,
	"DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": lifetime,
	"spillway_panics_total":                         "one since the start of the process is worth a report",
	"spillway_refusals_total":                       firstOne,
	"spillway_shard_failovers_total":                firstOne,
	"spillway_shard_hedged_total":                   firstOne,
	"spillway_shard_retries_total":                  firstOne,
}

const firstOne = "a series begins with its first event in it, which increase never sees: the value itself where it was not there an hour ago"

const lifetime = "errors since the driver was loaded: a series may begin with its first error in it, which increase never sees"

func checkCounters(x *linter, d *Dashboard, bad reporter) {
	inspect(d, func(q Query, sel *parser.VectorSelector, path []parser.Node) {
		fn, _, subquery := innermost(path)
		if x.facts.recorded[sel.Name] {
			if slices.Contains(ofCounters, fn) {
				bad("%s: %s(%s): a recorded series is no counter", q.Where, fn, sel.Name)
			}
			return
		}
		if q.Variable != nil || onlyCounted(path) {
			return
		}
		for _, f := range x.facts.find(sel.Name, sel.LabelMatchers) {
			counter := slices.Contains(ofCounters, fn)
			switch {
			case f.series == "counter" && !counter && !slices.Contains(presence, fn) && plainCounters[sel.Name] == "":
				bad("%s: %s is a counter and stands under no rate or increase", q.Where, sel.Name)
			case f.series == "counter" && slices.Contains(ofGauges, fn):
				bad("%s: %s(%s): it is a counter, which restarts", q.Where, fn, sel.Name)
			case f.series == "gauge" && counter && !subquery:
				bad("%s: %s(%s): it is a gauge", q.Where, fn, sel.Name)
			}
		}
	})
}

// onlyCounted says whether the values of a selector are not used.
func onlyCounted(path []parser.Node) bool {
	return slices.ContainsFunc(path, func(n parser.Node) bool {
		a, ok := n.(*parser.AggregateExpr)
		return ok && (a.Op == parser.COUNT || a.Op == parser.GROUP)
	})
}

// wideLabels have as many values as there are nodes, or more.
var wideLabels = []string{
	"node", "instance", "gpu", "UUID", "Hostname", "hostname", "device", "pod", "uid", "namespace", "exported_pod",
	"exported_namespace",
}

// most is how many series a topk may let through.
const most = 100

// wide says whether an expression may give a series for each node, GPU, pod or namespace of the
// fleet, and which series begins it.
func (x *linter) wide(e parser.Expr) (bool, string) {
	switch e := e.(type) {
	case *parser.ParenExpr:
		return x.wide(e.Expr)
	case *parser.StepInvariantExpr:
		return x.wide(e.Expr)
	case *parser.UnaryExpr:
		return x.wide(e.Expr)
	case *parser.SubqueryExpr:
		return x.wide(e.Expr)
	case *parser.MatrixSelector:
		return x.wide(e.VectorSelector)
	case *parser.Call:
		if e.Func.Name == "absent" || e.Func.Name == "absent_over_time" || e.Func.Name == "vector" || e.Func.Name == "scalar" {
			return false, ""
		}
		for _, arg := range e.Args {
			if w, name := x.wide(arg); w {
				return w, name
			}
		}
		return false, ""
	case *parser.AggregateExpr:
		w, name := x.wide(e.Expr)
		if !w {
			return false, ""
		}
		grouped := slices.ContainsFunc(e.Grouping, func(l string) bool { return slices.Contains(wideLabels, l) })
		switch e.Op {
		case parser.TOPK, parser.BOTTOMK, parser.LIMITK:
			n, ok := e.Param.(*parser.NumberLiteral)
			return !ok || n.Val > most || grouped || e.Without, name
		}
		return grouped || e.Without, name
	case *parser.BinaryExpr:
		l, nameL := x.wide(e.LHS)
		r, nameR := x.wide(e.RHS)
		switch {
		case e.VectorMatching == nil: // one side is a number
			return l || r, nameL + nameR
		case e.Op == parser.LOR, e.VectorMatching.Card == parser.CardOneToOne && l && r:
			return l || r, nameL + nameR
		case e.Op == parser.LAND, e.Op == parser.LUNLESS, e.VectorMatching.Card == parser.CardManyToOne:
			return l, nameL
		case e.VectorMatching.Card == parser.CardOneToMany:
			return r, nameR
		}
		return false, "" // one to one: as many as on the narrower side
	case *parser.VectorSelector:
		return x.wideSelector(e), e.Name
	}
	return false, ""
}

func (x *linter) wideSelector(sel *parser.VectorSelector) bool {
	// One node, pod or GPU that the reader chose.
	if slices.ContainsFunc(sel.LabelMatchers, func(m *labels.Matcher) bool {
		return slices.Contains(wideLabels, m.Name) && m.Name != "namespace" && m.Name != "device" && strings.Contains(m.Value, chosenOne)
	}) {
		return false
	}
	if level, _, ok := strings.Cut(sel.Name, ":"); ok {
		return wideLevel.MatchString(level)
	}
	for _, f := range x.facts.find(sel.Name, sel.LabelMatchers) {
		if f.perNode || slices.ContainsFunc(f.labels,
			func(l string) bool { return slices.Contains([]string{"node", "pod", "uid", "namespace"}, l) }) {
			return true
		}
	}
	return false
}

// wideLevel are the levels of recorded series that grow with the fleet.
var wideLevel = regexp.MustCompile(`(^|_)(node|gpu|pod|namespace|experiment|job_name|instance_node)(_|$)`)

func checkGuard(x *linter, d *Dashboard, bad reporter) {
	for _, q := range d.Queries() {
		if q.Target == nil {
			continue
		}
		e, err := expression(d, q)
		if err != nil {
			continue
		}
		if w, name := x.wide(e); w {
			bad("%s may give a series for each node, pod or namespace of %s: take topk, a quantile, or a sum", q.Where, name)
		}
	}
}

// "or vector(0)" shows zero where there is nothing to measure. It is right only where something
// else proves that there is.
func checkZero(_ *linter, d *Dashboard, bad reporter) {
	for _, q := range d.Queries() {
		if strings.Contains(strings.Join(strings.Fields(q.Expr), " "), "or vector(") && !strings.Contains(q.Expr, "up{") &&
			!strings.Contains(q.Expr, "capacity") {
			bad("%s: a missing exporter would be shown as zero: %s", q.Where, q.Expr)
		}
	}
}

// The colours of jsonnet/lib/palette.libsonnet, without those of runs that are compared, which only
// the plugin's dashboards have. TestPalette says what holds of them.
var (
	// judged are those of what is well, what is worth a look and what is bad.
	judged = []string{"#4c9f70", "#e0912f", "#d64550"}
	// series are those of series, a to h, and tones a second one of each.
	series = []string{"#4188b6", "#39b8bd", "#6a5db9", "#8f8f8f", "#787b1f", "#a45a81", "#969bed", "#6b535e"}
	tones  = []string{"#1f6591", "#217e70", "#d0a6f8", "#b8b8b8", "#b3b660", "#f58bbd", "#8f74bd", "#c9758d"}

	palette = slices.Concat([]string{"text"}, judged, series, tones)
)

// jsonColour is a colour somewhere in a property.
var jsonColour = regexp.MustCompile(`"(?:color|fixedColor)":\s*"([^"]*)"`)

func checkPalette(_ *linter, d *Dashboard, bad reporter) {
	colour := func(where, name string) {
		if name != "" && !slices.Contains(palette, name) {
			bad("%s: the colour %s is not in the palette", where, name)
		}
	}
	for i := range d.Panels {
		p := &d.Panels[i]
		defaults := p.FieldConfig.Defaults
		colour(p.Title, defaults.Color.FixedColor)
		for _, s := range defaults.Thresholds.Steps {
			colour(p.Title, s.Color)
		}
		raw := slices.Clone(defaults.Mappings)
		for _, o := range p.FieldConfig.Overrides {
			for _, prop := range o.Properties {
				raw = append(raw, prop.Value)
			}
		}
		for _, value := range raw {
			for _, m := range jsonColour.FindAllSubmatch(value, -1) {
				colour(p.Title, string(m[1]))
			}
		}
		if m := defaults.Color.Mode; m != "" && !slices.Contains([]string{"fixed", "shades", "thresholds"}, m) {
			bad("%s: colours by %s are not the palette's", p.Title, m)
		}
	}
	for _, a := range d.Annotations {
		colour("annotation "+a.Name, a.IconColor)
	}
}
