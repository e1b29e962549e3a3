package experiments

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/data"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

const (
	// maxEvents is how many annotations a panel gets.
	maxEvents = 500
	// eventPoints is how finely series that change are looked at: a day at 30 s, a month at less
	// than Prometheus' look-back of 5 m.
	eventPoints = 10_000
	finest      = 30 * time.Second
	// pointsAtOnce is how many points of an answer are held for one question.
	pointsAtOnce = 500_000
	// maxLots is in how many such questions pods are looked at.
	maxLots = 20
	// eventGrace is how long after its last pod left a node what happens there counts: a pod is
	// evicted 5 minutes after its node went silent, and what killed a pod is seen after it. Before
	// the first came, a trouble counts if it lasts until then.
	eventGrace = 10 * time.Minute
	// sameXid is how near to each other two signs of one Xid on one GPU are: the exporter counts
	// them over 5 minutes, and rules look at that each 5 minutes.
	sameXid = 11 * time.Minute
	// namesShown is how many names stand in an event of many pods.
	namesShown = 5
)

// event is one annotation, or part of one: those of equal kind, time, place and what are put
// together.
type event struct {
	kind  string // restart, failed, node, xid, jobset
	at    time.Time
	until time.Time // zero: it was at a moment
	// cluster, where (a node) and experiment are empty where they do not tell events apart.
	cluster, where, experiment string
	what                       string
	names                      []string
}

// events finds what happened to the pods of what is chosen and to the nodes under them. A series
// that does not change is no event, whatever it says: the last Xid of a GPU stays in DCGM's gauge
// for weeks. Times are exact to eventStep.
func events(ctx context.Context, r *Run) (data.Frames, error) {
	pods, err := r.PodsIn(ctx)
	if err != nil {
		return nil, err
	}
	if len(pods) == 0 {
		return r.eventFrames(nil), r.Empty(ctx, NeedPods, "pods")
	}
	var list []event
	for _, find := range []func(context.Context, []Pod) ([]event, error){r.restartEvents, r.failedEvents, r.jobsetEvents, r.nodeEvents} {
		found, err := find(ctx, pods)
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	list = slices.DeleteFunc(list, func(e event) bool {
		return e.at.After(r.Until) || e.at.Before(r.From) && (e.until.IsZero() || e.until.Before(r.From))
	})
	list = r.newest(gathered(list))
	if len(list) == 0 {
		return r.eventFrames(nil), r.Empty(ctx, NeedPods, "events")
	}
	return r.eventFrames(list), nil
}

// newest leaves the oldest out where there are more than maxEvents.
func (r *Run) newest(list []event) []event {
	if more := len(list) - maxEvents; more > 0 {
		r.LeftOut("%d of %d events are left out, the oldest; choose a shorter time or fewer experiments.", more, len(list))
		return list[more:]
	}
	return list
}

// gathered sorts events by time and makes one of those that are the same but for the names: a gang
// restarts as one.
func gathered(list []event) []event {
	order := func(a, b event) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.kind, b.kind), cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.where, b.where),
			cmp.Compare(a.experiment, b.experiment), cmp.Compare(a.what, b.what), a.until.Compare(b.until))
	}
	slices.SortStableFunc(list, order)
	var out []event
	for _, e := range list {
		if len(out) > 0 && order(out[len(out)-1], e) == 0 {
			last := &out[len(out)-1]
			last.names = append(last.names, e.names...)
			continue
		}
		e.names = slices.Clone(e.names)
		out = append(out, e)
	}
	for i := range out {
		out[i].names = slices.Compact(slices.Sorted(slices.Values(out[i].names)))
	}
	return out
}

// eventStep is the step at which changes are looked for: the error of an event's time.
func (r *Run) eventStep() time.Duration { return max(finest, wholeSeconds(r.length()/eventPoints)) }

// lots are pods whose series can be asked for at once at eventStep.
func lots[T any](r *Run, list []T) [][]T {
	return slices.Collect(slices.Chunk(list, max(1, int(pointsAtOnce/(1+r.length()/r.eventStep())))))
}

// changing are the pods of which a fact, over a selector's whole range, is true.
func (r *Run) changing(ctx context.Context, pods []Pod, f fact) ([]Pod, error) {
	answers, err := r.each(ctx, onUIDs(pods, func(of selectPods) question { return r.at(f(of), r.Until) }))
	if err != nil {
		return nil, err
	}
	found := valueOf(answers[0])
	pods = slices.DeleteFunc(slices.Clone(pods), func(p Pod) bool { _, ok := found[p.key()]; return !ok })
	if all := lots(r, pods); len(all) > maxLots {
		looked := slices.Concat(all[:maxLots]...)
		r.LeftOut("%d of %d pods that restarted or failed are not looked at; choose a shorter time or fewer experiments.",
			len(pods)-len(looked), len(pods))
		pods = looked
	}
	return pods, nil
}

// history asks for a fact over the range, for as many pods at once as pointsAtOnce allows, and
// gives each series to see. It begins a step before the range, so that what changes at its begin is
// seen.
func (r *Run) history(ctx context.Context, pods []Pod, f fact, see func(k podKey, s prom.Series)) error {
	step := r.eventStep()
	for _, lot := range lots(r, pods) {
		answers, err := r.each(ctx, onUIDs(lot, func(of selectPods) question { return r.span(f(of), r.From.Add(-step), r.Until, step) }))
		if err != nil {
			return err
		}
		for _, s := range answers[0] {
			see(podOf(s.Labels), s)
		}
	}
	return nil
}

// when is what was seen of something at a time.
type when struct {
	t    int64
	what string
}

// lastAt is the last that was seen until t, "" for nothing.
func lastAt(seen []when, t int64) string {
	best := when{t: -1 << 62}
	for _, w := range seen {
		if w.t <= t && w.t >= best.t {
			best = w
		}
	}
	return best.what
}

// begins adds to seen when each stretch of a series begins, and after each gap.
func begins(s prom.Series, step time.Duration, what string, add func(when)) {
	for i, p := range s.Points {
		if i == 0 || p.T-s.Points[i-1].T > step.Milliseconds() {
			add(when{p.T, what})
		}
	}
}

// restartEvents are containers that were started again.
func (r *Run) restartEvents(ctx context.Context, pods []Pod) ([]event, error) {
	// So far back that the sample before the range's first one is seen, too; Prometheus looks back
	// five minutes.
	window := "[" + seconds(r.back()+max(r.eventStep(), coarsest)) + "]"
	pods, err := r.changing(ctx, pods, func(of selectPods) string {
		return "max by (" + byPod + ") (changes(" + of("kube_pod_container_status_restarts_total") + window + ")) > 0"
	})
	if err != nil || len(pods) == 0 {
		return nil, err
	}
	of := map[podKey]Pod{}
	for _, p := range pods {
		of[p.key()] = p
	}
	type container struct {
		podKey
		name string
	}
	reasons, codes := map[container][]when{}, map[container][]when{}
	step := r.eventStep()
	if err := r.history(ctx, pods, lastTerminatedBy, func(k podKey, s prom.Series) {
		c := container{k, s.Labels["container"]}
		begins(s, step, s.Labels["reason"], func(w when) { reasons[c] = append(reasons[c], w) })
	}); err != nil {
		return nil, err
	}
	code := func(of selectPods) string {
		return "max by (" + byPod + ", container) (" + of("kube_pod_container_status_last_terminated_exitcode") + ")"
	}
	if err := r.history(ctx, pods, code, func(k podKey, s prom.Series) {
		c := container{k, s.Labels["container"]}
		for i, p := range s.Points {
			if i == 0 || p.V != s.Points[i-1].V {
				codes[c] = append(codes[c], when{p.T, strconv.FormatFloat(p.V, 'f', -1, 64)})
			}
		}
	}); err != nil {
		return nil, err
	}
	var out []event
	counts := func(of selectPods) string {
		return "max by (" + byPod + ", container) (" + of("kube_pod_container_status_restarts_total") + ")"
	}
	err = r.history(ctx, pods, counts, func(k podKey, s prom.Series) {
		c := container{k, s.Labels["container"]}
		for i := 1; i < len(s.Points); i++ {
			now, before := s.Points[i], s.Points[i-1]
			if now.V <= before.V {
				continue
			}
			p := of[k]
			// The reason of the end that was before the start may be seen a scrape later.
			reason, exit := lastAt(reasons[c], now.T+step.Milliseconds()), lastAt(codes[c], now.T+step.Milliseconds())
			out = append(out, event{
				kind: "restart", at: time.UnixMilli(now.T).UTC(), cluster: p.Cluster, experiment: p.Experiment, what: endOf(reason, exit),
				names: []string{onNodeName(p)},
			})
		}
	})
	return out, err
}

// endOf says how a container ended.
func endOf(reason, exit string) string {
	switch {
	case reason != "" && exit != "":
		return reason + ", exit code " + exit
	case exit != "":
		return "exit code " + exit
	}
	return reason
}

func onNodeName(p Pod) string {
	if p.Node == "" {
		return p.Name
	}
	return p.Name + " on " + p.Node
}

// failedEvents are pods that ended in failure, evicted ones among them.
func (r *Run) failedEvents(ctx context.Context, pods []Pod) ([]event, error) {
	pods, err := r.changing(ctx, pods, func(of selectPods) string {
		return "max by (" + byPod + ") (max_over_time(" + of("kube_pod_status_phase", `phase="Failed"`) + "[" + seconds(r.back()) +
			"])) == 1"
	})
	if err != nil || len(pods) == 0 {
		return nil, err
	}
	clusters := set{}
	for _, p := range pods {
		clusters[p.Cluster] = true
	}
	answers, err := r.each(ctx, r.last(pods, statusReason), r.last(pods, terminatedBy), r.last(pods, exitCode), r.last(pods, createdAt),
		[]question{r.at("group by (cluster) ("+Selector(nodesCounted, OneOf("cluster", clusters.names()...))+")", r.From)})
	if err != nil {
		return nil, err
	}
	created, seen := valueOf(answers[3]), set{}
	for _, s := range answers[4] {
		seen[s.Labels["cluster"]] = true
	}
	// came says of a pod whose first sample is in the range that it came then: it was not seen at
	// the range's beginning because it was not there, and not because nothing was seen then.
	came := func(k podKey) bool {
		at, known := created[k]
		return !known || seen[k.cluster] || !unixTime(at).Before(r.From.Add(-r.eventStep()))
	}
	why := causes{}
	why.add(answers[0], ofStatus)
	why.add(answers[1], ofTerminated)
	exits := valueOf(answers[2])
	of := map[podKey]Pod{}
	for _, p := range pods {
		of[p.key()] = p
	}
	var out []event
	failed := func(of selectPods) string {
		return "max by (" + byPod + ") (" + of("kube_pod_status_phase", `phase="Failed"`) + ")"
	}
	err = r.history(ctx, pods, failed, func(k podKey, s prom.Series) {
		for i, now := range s.Points {
			// Once failed a pod stays so: its first failed point is the event, if it was seen
			// before otherwise, or came in the range.
			if now.V != 1 {
				continue
			}
			if i > 0 || now.T >= r.From.UnixMilli() && came(k) {
				p, exit := of[k], ""
				if code, ok := exits[k]; ok {
					exit = strconv.FormatFloat(code, 'f', -1, 64)
				}
				out = append(out, event{
					kind: "failed", at: time.UnixMilli(now.T).UTC(), cluster: p.Cluster, experiment: p.Experiment,
					what: endOf(why[k].reason, exit), names: []string{onNodeName(p)},
				})
			}
			return
		}
	})
	return out, err
}

// jobsetEvents are JobSets that began again: their pods carry the attempt in a label.
func (r *Run) jobsetEvents(ctx context.Context, pods []Pod) ([]event, error) {
	const name, attempt = "label_jobset_sigs_k8s_io_jobset_name", "label_jobset_sigs_k8s_io_restart_attempt"
	answers, err := r.each(ctx, onUIDs(pods, func(of selectPods) question {
		return r.at("group by ("+byPod+", "+name+", "+attempt+") (last_over_time("+of("kube_pod_labels",
			attempt+`!~"0?"`)+"["+seconds(r.back())+"]))", r.Until)
	}))
	if err != nil || len(answers[0]) == 0 {
		return nil, err
	}
	of := map[podKey]Pod{}
	for _, p := range pods {
		of[p.key()] = p
	}
	var again []Pod
	for _, s := range answers[0] {
		again = append(again, of[podOf(s.Labels)])
	}
	created, err := r.each(ctx, r.last(again, createdAt))
	if err != nil {
		return nil, err
	}
	at := valueOf(created[0])
	type try struct{ cluster, namespace, experiment, jobset, attempt string }
	first := map[try]float64{}
	for _, s := range answers[0] {
		k := podOf(s.Labels)
		t := try{k.cluster, k.namespace, of[k].Experiment, s.Labels[name], s.Labels[attempt]}
		if v, ok := at[k]; ok && (first[t] == 0 || v < first[t]) {
			first[t] = v
		}
	}
	var out []event
	for t, v := range first {
		names := []string{cmp.Or(t.jobset, t.experiment)}
		out = append(out, event{
			kind: "jobset", at: unixTime(v), cluster: t.cluster, experiment: t.experiment, what: t.attempt,
			names: names,
		})
	}
	return out, nil
}

// words are the title and the text of an event, as plain text.
func (e event) words() (title, text string) {
	names := strings.Join(e.names[:min(namesShown, len(e.names))], ", ")
	if more := len(e.names) - namesShown; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	because := ""
	if e.what != "" {
		because = " (" + e.what + ")"
	}
	count := func(one, many string) string {
		if len(e.names) == 1 {
			return one
		}
		return fmt.Sprintf("%d %s", len(e.names), many)
	}
	of := fmt.Sprintf(" of %s in %s", e.experiment, e.cluster)
	switch e.kind {
	case "restart":
		return count("A container started again", "containers started again") + because, names + of
	case "failed":
		if e.what == "Evicted" || strings.HasPrefix(e.what, "Evicted,") {
			return count("A pod was evicted", "pods were evicted"), names + of
		}
		return count("A pod failed", "pods failed") + because, names + of
	case "jobset":
		return "Attempt " + e.what + " began", "JobSet " + names + of + " started its pods again."
	case "node":
		title, text = "Node "+e.where+" was not ready", fmt.Sprintf("For %s, in %s.", e.until.Sub(e.at), e.cluster)
		if e.what == "still" {
			title, text = "Node "+e.where+" is not ready", fmt.Sprintf("Since %s, in %s.", e.at.Format(time.DateTime+" MST"), e.cluster)
		}
		return title, text
	}
	title = "Xid " + e.what
	text = fmt.Sprintf("GPU %s of node %s in %s.", names, e.where, e.cluster)
	if names == "" {
		text = fmt.Sprintf("On node %s in %s.", e.where, e.cluster)
	}
	if x, ok := XidOf(e.what); ok {
		title, text = title+": "+x.Name, text+" "+x.Class.Action()
	}
	return title, text
}

// tags tell annotations apart in Grafana: they are in one text, with commas between.
func (e event) tags() string {
	var list []string
	for _, t := range []string{e.kind, e.cluster, e.experiment, e.where} {
		if t != "" {
			list = append(list, strings.ReplaceAll(t, ",", " "))
		}
	}
	return strings.Join(list, ",")
}

// eventFrames is the frame of annotations. Title and text are plain: Grafana shows those of
// annotations as HTML, for which the front end escapes them, and those in a table as they are.
func (r *Run) eventFrames(list []event) data.Frames {
	n := len(list)
	at, until, title, text, tags, id := make([]time.Time, n), make([]*time.Time, n), make([]string, n), make([]string, n),
		make([]string, n), make([]string, n)
	for i, e := range list {
		at[i] = e.at
		if !e.until.IsZero() {
			until[i] = &e.until
		}
		title[i], text[i] = e.words()
		tags[i] = e.tags()
		id[i] = fmt.Sprintf("%s/%s/%s/%s/%s/%d", e.kind, e.cluster, e.where, e.experiment, e.what, e.at.UnixMilli())
	}
	f := data.NewFrame("events", data.NewField("time", nil, at), data.NewField("timeEnd", nil, until), data.NewField("title", nil, title),
		data.NewField("text", nil, text), data.NewField("tags", nil, tags), data.NewField("id", nil, id))
	f.Meta = &data.FrameMeta{Type: data.FrameTypeTable, TypeVersion: data.FrameTypeVersion{0, 1}}
	return data.Frames{f}
}
