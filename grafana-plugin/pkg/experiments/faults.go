package experiments

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

const (
	// faultPoints is at how many points of the range faults are looked for; each point sees all
	// since the one before, of heat what there was each hotFor.
	faultPoints = 240
	// hotFor is for how long a GPU must be hot, as the alert has it; which nodes were is looked at
	// so often that this is never missed.
	hotFor = 5 * time.Minute
	// Where the mixin's alerts begin (_config.thresholds.gpu).
	hotCelsius           = 85
	slowedShare          = 0.05
	nvlinkReplaysPer15m  = 100
	pcieReplaysPerMinute = 8
	// xidWindow is that of gpu:xid_errors:count5m, which is as long as the time between its
	// samples.
	xidWindow = 5 * time.Minute
	// lookedBefore is how far before the range is looked for what was there already, at least.
	lookedBefore = 10 * time.Minute
	// seenLate is how much later than it came an error is in a recorded series: a scrape and an
	// evaluation of the rules.
	seenLate = 90 * time.Second
)

// fault is one thing that is wrong with a GPU, or with a node's GPUs where gpu is empty.
type fault struct {
	node
	gpu, uuid, model, pod string
	name                  string
	class                 Class
	// text is a sentence, in which the value may stand as a verb of fmt.
	text, action string
	xid          int64 // 0: none
	// points are when it was seen: each stands for all since the one before.
	points []prom.Point
	// came says of each point between when its errors came, first exclusive and last inclusive, in
	// milliseconds; nil for what lasts: that is there whenever it is seen.
	came [][2]int64
	// total says that value is the sum of the points, not the largest of them.
	total bool
	value float64
	// held says that pod had the GPU when it was seen, and that points are of that time only.
	held bool
}

// sentence is the text with its value.
func (f fault) sentence() string {
	if strings.Contains(f.text, "%") {
		return fmt.Sprintf(f.text, f.value)
	}
	return f.text
}

// compareFaults puts the worst first.
func compareFaults(a, b fault) int {
	return cmp.Or(cmp.Compare(a.class.rank(), b.class.rank()), strings.Compare(a.cluster, b.cluster),
		strings.Compare(a.node.name, b.node.name),
		strings.Compare(a.gpu, b.gpu), strings.Compare(a.uuid, b.uuid), strings.Compare(a.name, b.name), strings.Compare(a.pod, b.pod))
}

// faultTimes are the points at which faults are looked for: the first one is the first after From,
// the last one the first that is not before Until.
func (r *Run) faultTimes() (first, last time.Time, step time.Duration) {
	step = max(wholeSeconds(r.Settings.Interval()), wholeSeconds(r.length()/faultPoints))
	first = multiple(r.From, step).Add(step)
	last = multiple(r.Until, step)
	if last.Before(r.Until) {
		last = last.Add(step)
	}
	return first, last, step
}

// earlier is from when on counts and gauges that stay are read: some points before the first one,
// so that what was there before a short hole at the range's beginning is known to be old.
func (r *Run) earlier() time.Time {
	first, _, step := r.faultTimes()
	d := max(lookedBefore, (minMeasured+1)*r.Settings.Interval())
	return first.Add(-(d + step - 1) / step * step)
}

// faultKind is one way in which GPUs are found sick: a query for the nodes of matchers, with a
// series for each GPU (or node) that is, and what its answer means.
type faultKind struct {
	name         string
	class        Class
	query        func(m []string, step string) string
	text, action string
	// seen turns the values at the points into what is new at each; nil leaves them. They are read
	// from earlier on; begin is the first point of the range; measured says whether the node's GPUs
	// were between two points.
	seen  func(points []prom.Point, begin int64, measured between) []prom.Point
	total bool // see fault
}

// faultKinds are those whose series exist only for GPUs that are sick, so that a whole range of
// them is cheap.
var faultKinds = []faultKind{
	{
		name: "row remapping failed", class: ClassMemory, query: within("gpu:row_remap_failure:max"),
		text: "There is no spare memory row left.", action: "It does not heal: restart the job without this node. Operators send the GPU back.",
	},
	{
		name: "row remapping pending", class: ClassMemory, query: within("gpu:row_remap_pending:max"),
		text: "A spare memory row waits for a reset of the GPU.", action: "Let the job end; operators reset the GPU before the next one.",
	},
	{
		name: "uncorrectable ECC errors", class: ClassMemory, query: within("gpu:ecc_dbe:max"), seen: rises, total: true,
		text:   "Memory errors that could not be corrected: what ran on it is lost or wrong.",
		action: "Restart from the last checkpoint before it, without this node. Operators drain it and reset the GPU.",
	},
	{
		name: "NVLink replays", class: ClassLink,
		query: func(m []string, step string) string {
			return fmt.Sprintf("60 * (max_over_time(%s[%s]) > %g)", Selector("gpu:nvlink_replays:rate5m", m...), step,
				float64(nvlinkReplaysPer15m)/(15*60))
		},
		text: "%.3g retries a minute on its NVLinks; all-reduce waits for the slowest link.", action: ClassLink.Action(),
	},
	{
		name: "PCIe replays", class: ClassLink,
		query: func(m []string, step string) string {
			return fmt.Sprintf("60 * (max_over_time(%s[%s]) > %g)", Selector("gpu:pcie_replays:rate5m", m...), step,
				float64(pcieReplaysPerMinute)/60)
		},
		text: "%.3g retries a minute on the bus between the GPU and its host.", action: "Tell the operators: the card or its slot is failing.",
	},
	{
		name: "GPU missing", class: ClassDead, query: within("node:gpu_missing:count"),
		text: "GPUs of the node that fell off the bus and are not seen any more: %.3g.", action: ClassDead.Action(),
	},
	{
		name: "not measured", class: ClassUnmeasured, query: within("node:gpu_unmeasured:count"),
		text: "GPUs of the node that dcgm-exporter says nothing of: %.3g.", action: ClassUnmeasured.Action(),
	},
}

// within is the largest value of a recorded series in each step.
func within(metric string) func(m []string, step string) string {
	return func(m []string, step string) string {
		return "max_over_time(" + Selector(metric, m...) + "[" + step + "])"
	}
}

// cameIn says that each point's errors came at most d before it.
func cameIn(points []prom.Point, d time.Duration) [][2]int64 {
	out := make([][2]int64, len(points))
	for i, p := range points {
		out[i] = [2]int64{p.T - d.Milliseconds(), p.T}
	}
	return out
}

// rises keeps the points after begin at which a count is higher than before, with how much. A
// series that is there from the beginning on had its first value before, and one whose node nobody
// looked at before its first point may have had. A count that fell began at 0 again, as DCGM's do
// when the GPU is reset; so did one that was gone while the GPU was measured, since the series is
// there only above 0.
func rises(points []prom.Point, begin int64, measured between) []prom.Point {
	var out []prom.Point
	before, last := 0.0, int64(math.MinInt64)
	for i, p := range points {
		none := measured(last, p.T)
		if p.V < before || none {
			before = 0
		}
		if d := p.V - before; d > 0 && p.T > begin && (i > 0 || none) {
			out = append(out, prom.Point{T: p.T, V: d})
		}
		before, last = p.V, p.T
	}
	return out
}

// between says whether something was measured between two times.
type between func(from, until int64) bool

// minMeasured is how many samples between two points say that a node was measured there: one each
// may come of rules of which some ran before an outage, or after it, and some did not.
const minMeasured = 3

// measuredBetween asks when the nodes of those series were measured that have a gap, or begin after
// from, and returns for each series whether its node was between two of its points, or before the
// first. from is that of earlier.
func (r *Run) measuredBetween(ctx context.Context, series []prom.Series, from time.Time) (func(labels map[string]string) between, error) {
	_, last, step := r.faultTimes()
	var gaps []prom.Series
	for _, s := range series {
		before := from.UnixMilli()
		if slices.ContainsFunc(s.Points, func(p prom.Point) bool {
			gap := p.T-before > step.Milliseconds()
			before = p.T
			return gap
		}) {
			gaps = append(gaps, s)
		}
	}
	answers, err := r.each(ctx, onNodes(podsOn(gaps), func(m ...string) question {
		return r.span("max by (cluster, node) (count_over_time("+Selector("node:gpu_temp_celsius:max", m...)+"["+seconds(step)+"]))",
			from, last, step)
	}))
	if err != nil {
		return nil, err
	}
	counts := map[node][]prom.Point{}
	for _, s := range answers[0] {
		counts[nodeOf(s.Labels)] = s.Points
	}
	return func(labels map[string]string) between {
		points := counts[nodeOf(labels)]
		return func(from, until int64) bool {
			n := 0.0
			for _, p := range points {
				if from < p.T && p.T < until {
					n += p.V
				}
			}
			return n >= minMeasured
		}
	}, nil
}

// faultsOn asks for everything that was wrong in the range with the GPUs of the nodes that the pods
// are on, whoever held them.
func (r *Run) faultsOn(ctx context.Context, pods []Pod) ([]fault, error) {
	first, last, step := r.faultTimes()
	// A sample stands for an Interval: one of those in hotFor is seen in such steps.
	look := min(wholeSeconds(r.back()/lookPoints), hotFor-r.Settings.Interval())
	lists := [][]question{
		// Which nodes were hot or slowed down at all: their GPUs are looked at below.
		fewOnNodes(pods, func(m ...string) question {
			hottest := Selector("node:gpu_temp_celsius:max", m...)
			return r.at(fmt.Sprintf("max_over_time(%s) > %d", r.lookEach(hottest, r.back(), look), hotCelsius), r.Until)
		}),
		fewOnNodes(pods, func(m ...string) question {
			slowed := Selector("node:gpu_slowed:sum_rate5m", append(m[:len(m):len(m)], OneOf("cause", "heat"))...)
			return r.at(fmt.Sprintf("max_over_time(%s) > %g", r.lookEach(slowed, r.back(), look), slowedShare), r.Until)
		}),
	}
	for _, k := range faultKinds {
		from := first
		if k.seen != nil {
			from = r.earlier()
		}
		lists = append(lists, fewOnNodes(pods, func(m ...string) question { return r.span(k.query(m, seconds(step)), from, last, step) }))
	}
	answers, err := r.each(ctx, lists...)
	if err != nil {
		return nil, err
	}
	var faults []fault
	for i, k := range faultKinds {
		var measured func(labels map[string]string) between
		if k.seen != nil {
			if measured, err = r.measuredBetween(ctx, answers[2+i], r.earlier()); err != nil {
				return nil, err
			}
		}
		for _, s := range answers[2+i] {
			if k.seen != nil {
				s.Points = k.seen(s.Points, first.UnixMilli(), measured(s.Labels))
			}
			if len(s.Points) == 0 {
				continue
			}
			f := faultOf(s, k)
			if k.total {
				f.came = cameIn(s.Points, step+seenLate)
			}
			faults = append(faults, f)
		}
	}
	xids, err := r.xidsOn(ctx, pods)
	if err != nil {
		return nil, err
	}
	heat, err := r.heatOn(ctx, podsOn(answers[0]), podsOn(answers[1]))
	if err != nil {
		return nil, err
	}
	return slices.Concat(faults, xids, heat), nil
}

func faultOf(s prom.Series, k faultKind) fault {
	l := s.Labels
	f := fault{
		node: nodeOf(l), gpu: l["gpu"], uuid: l["UUID"], model: l["modelName"], pod: l["pod"],
		name: k.name, class: k.class, text: k.text, action: k.action, points: s.Points, total: k.total,
	}
	f.sum()
	return f
}

// sum makes the value of the points.
func (f *fault) sum() {
	f.value = f.points[0].V
	for _, p := range f.points[1:] {
		if f.total {
			f.value += p.V
		} else {
			f.value = max(f.value, p.V)
		}
	}
}

// podsOn has a pod without a name on each node of the series, for onNodes.
func podsOn(series []prom.Series) []Pod {
	var out []Pod
	for _, s := range series {
		out = append(out, Pod{Cluster: s.Labels["cluster"], Node: s.Labels["node"]})
	}
	return out
}

// hotEnds asks for samples in both halves of hotFor, so that what they say is of all of it: at the
// beginning of a series, and at the last point of the range, which may be after its last sample,
// there is none in one half. It goes by no interval, since the rule has its own, and some of its
// evaluations may be missing; nothing is asked for where there is a sample in hotFor at most.
func (r *Run) hotEnds(selector string) string {
	half := hotFor / 2
	if r.Settings.Interval() > half {
		return ""
	}
	return fmt.Sprintf(" and last_over_time(%[1]s[%[2]s] offset %[2]s) and last_over_time(%[1]s[%[2]s])", selector, seconds(half))
}

// heatOn looks at the GPUs of nodes that are known to have been hot, and of those that were slowed
// down. Where points are further apart than hotFor, each has the most of what there was at each
// hotFor since the one before: heat of ten minutes is among it.
func (r *Run) heatOn(ctx context.Context, hot, slowed []Pod) ([]fault, error) {
	first, last, step := r.faultTimes()
	kinds := []faultKind{
		{
			name: "hot", class: ClassThermal,
			text: "Too hot for five minutes or longer, up to %.3g °C: it slows down, and with it every GPU that waits for it.", action: ClassThermal.Action(),
			query: func(m []string, _ string) string {
				chosen := Selector("experiment:gpu:temp", append(m[:len(m):len(m)], Chosen(r.Query)...)...)
				return fmt.Sprintf("min_over_time(%s[5m]) > %d", chosen, hotCelsius) + r.hotEnds(Selector("experiment:gpu:temp", m...))
			},
		},
		{
			// The counter is in nanoseconds, once for each pod that shares the GPU; more than a
			// second and a half a second is one of DCGM's signs for "no value".
			name: "slowed by heat", class: ClassThermal, text: "For a share of %.3g of the time it was slowed down for its heat.", action: ClassThermal.Action(),
			query: func(m []string, _ string) string {
				return fmt.Sprintf("max by (cluster, node, gpu, UUID, modelName) (rate(%s[5m]) < 1.5e9) / 1e9 > %g",
					Selector("DCGM_FI_DEV_THERMAL_VIOLATION", m...), slowedShare)
			},
		},
	}
	ask := func(k faultKind) func(m ...string) question {
		return func(m ...string) question {
			query := k.query(m, "")
			if step > hotFor {
				query = fmt.Sprintf("max_over_time((%s)[%s:%s])", query, seconds(step), seconds(hotFor))
			}
			return r.span(query, first, last, step)
		}
	}
	// The names of the hot ones stand three times in a question.
	answers, err := r.each(ctx, exactly(nodeScopes(compiledBytes(r.Query), 3, hot), ask(kinds[0])), onNodes(slowed, ask(kinds[1])))
	if err != nil {
		return nil, err
	}
	var faults []fault
	for i, k := range kinds {
		for _, s := range answers[i] {
			f := faultOf(s, k)
			f.held = i == 0 // the recorded series is of the experiment's own pods
			faults = append(faults, f)
		}
	}
	return faults, nil
}

// xidsOn are the Xids on the nodes that the pods are on: those that DCGM counts, each error once;
// and where it counts none, the last one of each GPU where that changed.
func (r *Run) xidsOn(ctx context.Context, pods []Pod) ([]fault, error) {
	first, last, step := r.faultTimes()
	answers, err := r.each(ctx,
		fewOnNodes(pods, func(m ...string) question {
			return r.span("sum_over_time("+Selector("gpu:xid_errors:count5m", m...)+"["+seconds(step)+"])", first, last, step)
		}),
		// It is there for each GPU that has ever had an Xid: not for whole clusters.
		onNodes(pods, func(m ...string) question {
			return r.span(within("gpu:xid_last:info")(m, seconds(step)), r.earlier(), last, step)
		}))
	if err != nil {
		return nil, err
	}
	counts, gauges := answers[0], answers[1]
	measured, err := r.measuredBetween(ctx, gauges, r.earlier())
	if err != nil {
		return nil, err
	}
	var faults []fault
	counted := map[string]bool{}
	add := func(s prom.Series, came [][2]int64) {
		x, ok := XidOf(s.Labels["xid"])
		if !ok || len(s.Points) == 0 {
			return
		}
		class := cmp.Or(Class(s.Labels["class"]), x.Class)
		f := faultOf(s, faultKind{
			name: fmt.Sprintf("Xid %d", x.Number), class: class, text: sentence(x.Name), action: class.Action(),
			total: true,
		})
		f.xid, f.came = x.Number, came
		faults = append(faults, f)
	}
	// When the gauge changed to an Xid: that is known better than in which five minutes one was
	// counted. It keeps its value for days: what was there at the beginning is older, and what
	// nobody looked at before may be.
	changed := map[string][]int64{}
	for i, s := range gauges {
		for j := range s.Points {
			s.Points[j].V = 1 // it is how many pods share the GPU
		}
		gauges[i].Points = rises(s.Points, first.UnixMilli(), measured(s.Labels))
		k := key(s.Labels, "cluster", "node", "gpu", "xid")
		for _, p := range gauges[i].Points {
			changed[k] = append(changed[k], p.T)
		}
	}
	for _, s := range counts {
		k := key(s.Labels, "cluster", "node", "gpu", "xid")
		counted[k] = true
		came := cameIn(s.Points, xidWindow+step+seenLate)
		for i, c := range came {
			// One error: more than one may be equal, of which the gauge shows the first.
			if n := slices.IndexFunc(changed[k], func(t int64) bool { return c[0] < t && t <= c[1] }); n >= 0 && s.Points[i].V == 1 {
				came[i] = [2]int64{changed[k][n] - (step + seenLate).Milliseconds(), changed[k][n]}
			}
		}
		add(s, came)
	}
	for _, s := range gauges {
		if !counted[key(s.Labels, "cluster", "node", "gpu", "xid")] {
			s.Points = s.Points[:min(1, len(s.Points))]
			add(s, cameIn(s.Points, step+seenLate))
		}
	}
	return faults, nil
}

// sentence is a name with a capital letter and a full stop; names are ASCII.
func sentence(name string) string {
	return strings.ToUpper(name[:1]) + name[1:] + "."
}
