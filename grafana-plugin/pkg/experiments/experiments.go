package experiments

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/data"
	commonmodel "github.com/prometheus/common/model"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

// What an experiment does.
const (
	running = "running" // at least one pod runs
	pending = "pending" // pods are there, all of them wait
	ended   = "ended"   // no pod is left that runs or waits
	unknown = "unknown" // pods were there when the cluster was seen last
)

// group is an experiment in one namespace of one cluster, under one team.
type group struct{ cluster, namespace, experiment, team string }

// byGroup are the labels of group in PromQL.
const byGroup = "cluster, namespace, experiment, team"

func groupOf(l map[string]string) group {
	return group{l["cluster"], l["namespace"], l["experiment"], l["team"]}
}

// known is a row of type experiments.
type known struct {
	group
	state         string
	pods          int64
	gpus          float64
	created, seen time.Time // created is zero while it is not known
	here          bool      // pods are there at the end of the range
	decided       bool      // state is known
	ran           time.Time // when a pod with GPUs ran last; zero if none did
	// noPods and noGPUs say that there was no room to ask for them.
	noPods, noGPUs bool
}

const (
	// coarsest is the longest step at which each sample is seen: Prometheus looks back that far.
	coarsest = 5 * time.Minute
	// atOnce is how many moments of the past one query asks about: each is a selector, and the
	// proxy's bound query_leaves is 64.
	atOnce = 60
	// maxBrief is how many questions ask when experiments began that were there for a few minutes,
	// maxThereParts in how many parts of a long range it is asked which were there at all: all that
	// a table may ask are maxQueries.
	maxBrief, maxThereParts = 16, 8
)

// experimentsTable lists the experiments of the range, those that were seen last first. Their past
// is read from experiment:pods:count, a few series for each, so that a month of a large cluster can
// be listed; hence those whose pods ask for no GPUs are found while they have pods, or by name.
// pods and gpus are what there is, or was when a pod was last there. created is that of the pods
// that are there or when the first was seen, whichever is earlier; a notice counts the experiments
// that may be older than the range.
func experimentsTable(ctx context.Context, r *Run) (data.Frames, error) {
	rows, err := r.experiments(ctx)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return r.experimentFrames(nil), r.Empty(ctx, NeedPods, "experiments")
	}
	rows = limitRows(r, rows, "experiments")
	if err := r.detail(ctx, rows); err != nil {
		return nil, err
	}
	sortKnown(rows) // all are known to be created now
	return r.experimentFrames(rows), nil
}

// experiments are the rows of what is chosen, sorted, with what whole questions tell.
func (r *Run) experiments(ctx context.Context) ([]known, error) {
	chosen := Chosen(r.Query)
	info, counts := Selector("experiment:pod:info", chosen...), Selector("experiment:pods:count", chosen...)
	step := r.sightStep()
	of := func(query string) []question { return []question{r.at(query, r.Until)} }
	first, last := r.sights(part{r.Until.Add(-r.back()), r.Until}, step, chosen)
	answers, err := r.each(ctx, first, last, of("count by ("+byGroup+") ("+info+")"), of("max by ("+byGroup+") (timestamp("+info+"))"),
		of("max by ("+byGroup+", phase) ("+counts+")"), of("sum by ("+byGroup+") ("+Selector("experiment:pod:gpus", chosen...)+")"))
	if err != nil {
		return nil, err
	}
	if step > wholeSeconds(r.Settings.Interval()) {
		brief, err := r.brief(ctx, answers[0], chosen)
		if err != nil {
			return nil, err
		}
		answers[0], answers[1] = append(answers[0], brief[0]...), append(answers[1], brief[1]...)
	}
	found := map[group]*known{}
	each := func(series []prom.Series, f func(k *known, s prom.Series)) {
		for _, s := range series {
			g := groupOf(s.Labels)
			if !r.searched(g) {
				continue
			}
			if found[g] == nil {
				found[g] = &known{group: g, state: ended}
			}
			f(found[g], s)
		}
	}
	each(answers[0], func(k *known, s prom.Series) { k.created = earlier(k.created, unixTime(s.Value())) })
	each(answers[1], func(k *known, s prom.Series) {
		at := unixTime(s.Value())
		k.seen = later(k.seen, at)
		if s.Labels["phase"] == "Running" {
			k.ran = later(k.ran, at)
		}
	})
	each(answers[2], func(k *known, s prom.Series) { k.pods, k.here = int64(s.Value()), true })
	each(answers[3], func(k *known, s prom.Series) { k.seen = later(k.seen, unixTime(s.Value())) })
	each(answers[4], func(k *known, s prom.Series) {
		switch {
		case s.Labels["phase"] == "Running":
			k.state, k.decided = running, true
		case k.state != running:
			k.state, k.decided = pending, true
		}
	})
	each(answers[5], func(k *known, s prom.Series) { k.gpus = s.Value() })
	if err := r.unsure(ctx, found, step); err != nil {
		return nil, err
	}
	rows := make([]known, 0, len(found))
	for _, k := range found {
		rows = append(rows, *k)
	}
	sortKnown(rows)
	return rows, nil
}

// sightStep is that in which a range is looked at for when experiments were there.
func (r *Run) sightStep() time.Duration {
	return min(coarsest, max(wholeSeconds(r.Settings.Interval()), wholeSeconds(r.length()/1000)))
}

// searched says whether what is searched for is in an experiment's name.
func (r *Run) searched(g group) bool {
	return strings.Contains(strings.ToLower(g.experiment), strings.ToLower(r.Query.Search))
}

// sights ask when the experiments that pass the matchers were there first, and last in each phase,
// looked at in steps of step. Those that are chosen by name are found without GPUs, too.
func (r *Run) sights(p part, step time.Duration, matchers []string) (first, last []question) {
	add := func(metric, phase string) {
		times := fmt.Sprintf("timestamp(%s)[%s:%s]", Selector(metric, matchers...), seconds(p.until.Sub(p.from)), seconds(step))
		first = append(first, r.at("min by ("+byGroup+") (min_over_time("+times+"))", p.until))
		last = append(last, r.at("max by ("+byGroup+phase+") (max_over_time("+times+"))", p.until))
	}
	add("experiment:pods:count", ", phase")
	if len(r.Query.Experiments) > 0 {
		add("experiment:pod:info", "")
	}
	return first, last
}

// brief are the sights of the experiments that were there between two looks at all of the range, as
// those that die in their first minutes were: seen has those that are found. Which there are is
// asked for each part, and when they were there of them alone.
func (r *Run) brief(ctx context.Context, seen []prom.Series, chosen []string) ([][]prom.Series, error) {
	days := parts(r.Until.Add(-r.back()), r.Until, max(hoursPart, r.back()/maxThereParts))
	there := make([][]question, len(days))
	for i, day := range days {
		metrics := []string{"experiment:pods:count"}
		if len(r.Query.Experiments) > 0 {
			metrics = append(metrics, "experiment:pod:info")
		}
		for _, metric := range metrics {
			there[i] = append(there[i], r.at("group by ("+byGroup+") (last_over_time("+Selector(metric, chosen...)+"["+
				seconds(day.until.Sub(day.from))+"]))", day.until))
		}
	}
	answers, err := r.each(ctx, there...)
	if err != nil {
		return nil, err
	}
	known := map[group]bool{}
	for _, s := range seen {
		known[groupOf(s.Labels)] = true
	}
	var first, last []question
	for i, day := range slices.Backward(days) { // those are shown first that were there last
		var named []Pod // with the experiment as name
		for _, s := range answers[i] {
			if g := groupOf(s.Labels); !known[g] && r.searched(g) {
				named = append(named, Pod{Name: g.experiment})
			}
		}
		for _, s := range scopesBeside(compiledBytes(r.Query), 1, named, func(p Pod) ([]string, string) { return nil, p.Name }) {
			if len(first) >= maxBrief {
				r.LeftOut("Some experiments are left out that were there for less than %s, since there are so many; choose a shorter time, a team or a cluster.",
					commonmodel.Duration(coarsest))
				return r.each(ctx, first, last)
			}
			of := append(chosen[:len(chosen):len(chosen)], OneOf("experiment", s.names...))
			a, b := r.sights(day, wholeSeconds(r.Settings.Interval()), of)
			first, last = append(first, a...), append(last, b...)
		}
	}
	return r.each(ctx, first, last)
}

// unsure finds the experiments that were there when their cluster was seen last: it says of which
// in a notice. step is the one at which they were seen.
func (r *Run) unsure(ctx context.Context, found map[group]*known, step time.Duration) error {
	here, left := set{}, set{}
	for g, k := range found {
		if k.here {
			here[g.cluster] = true
		} else {
			left[g.cluster] = true
		}
	}
	lost, err := r.lost(ctx, left.without(here), step)
	if err != nil {
		return err
	}
	told := map[string]time.Time{}
	for g, k := range found {
		if last, ok := lost[g.cluster]; ok && r.lostWith(k.seen, last, step) {
			k.state, told[g.cluster] = unknown, last
		}
	}
	r.noticeLost(told)
	return nil
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func sortKnown(rows []known) {
	slices.SortFunc(rows, func(a, b known) int {
		return cmp.Or(b.seen.Compare(a.seen), b.created.Compare(a.created), cmp.Compare(a.experiment, b.experiment),
			cmp.Compare(a.cluster, b.cluster),
			cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.team, b.team))
	})
}

// detail fills in what is asked about the rows that are shown: when the pods that are there were
// created, what experiments do that have none with GPUs, and what those had that have no pods left.
func (r *Run) detail(ctx context.Context, rows []known) error {
	at := map[group]*known{}
	var here []prom.Series
	var podsThen, gpusThen []moment
	pods, more := int64(0), 0
	for i := range rows {
		k := &rows[i]
		at[k.group] = k
		if k.here {
			if pods += k.pods; pods > maxPods {
				more++
				continue
			}
			here = append(here, prom.Series{Labels: map[string]string{
				"cluster": k.cluster, "namespace": k.namespace, "experiment": k.experiment,
			}})
		} else {
			podsThen = append(podsThen, moment{k.group, k.seen})
		}
		if k.gpus == 0 && !k.ran.IsZero() {
			gpusThen = append(gpusThen, moment{k.group, k.ran})
		}
	}
	if more > 0 {
		r.LeftOut("The experiments have more than the %d pods that are looked at: for %d of them, created and state may be wrong. Choose a cluster or a team.", maxPods, more)
	}
	ofPods := byValues(0, here, []string{"cluster", "namespace", "experiment"}, func(m ...string) question {
		return r.at("group by ("+byPod+", experiment, team) ("+Selector("experiment:pod:info", m...)+")", r.Until)
	})
	answers, err := r.each(ctx, r.details(ofPods))
	if err != nil {
		return err
	}
	if err := r.detailPods(ctx, at, answers[0]); err != nil {
		return err
	}
	if err := r.detailEnded(ctx, at, podsThen, gpusThen); err != nil {
		return err
	}
	for i := range rows {
		if rows[i].created.IsZero() {
			rows[i].created = rows[i].seen
		}
	}
	return r.noticeOlder(ctx, rows)
}

// noticeOlder counts the experiments that have ended and were there when the range began, or when
// what is known of their cluster does: most likely they were there before.
func (r *Run) noticeOlder(ctx context.Context, rows []known) error {
	near := 2 * r.Settings.Interval()
	older, clusters := 0, set{}
	var others []known
	for _, k := range rows {
		switch {
		case k.here || k.state == unknown:
		case k.created.Before(r.From.Add(near)):
			older++
		default:
			others, clusters[k.cluster] = append(others, k), true
		}
	}
	if older > 0 {
		r.Notice(data.NoticeSeverityInfo, "%d experiments that have ended were there when the time range began: they were created then or earlier.", older)
	}
	first, err := r.firstSeen(ctx, clusters, r.sightStep())
	if err != nil {
		return err
	}
	older = 0
	// A cluster that is known from the first look on may have been known before.
	late := r.From.Add(near + r.sightStep())
	for _, k := range others {
		if at, ok := first[k.cluster]; ok && at.After(late) && k.created.Before(at.Add(near+r.sightStep())) {
			older++
		}
	}
	if older > 0 {
		r.Notice(data.NoticeSeverityInfo, "%d experiments that have ended were there when the first is known of their cluster: they were created then or earlier.", older)
	}
	return nil
}

// details are as many of the questions about experiments that are there as may be asked.
func (r *Run) details(questions []question) []question {
	if n := r.room(); n < len(questions) {
		r.LeftOut("There are too many experiments to ask for all that is shown of them: for some of them, created and state may be wrong. Choose a cluster or a team.")
		return questions[:n]
	}
	return questions
}

// detailEnded asks what experiments had at moments of theirs. What there is no room for stays
// empty.
func (r *Run) detailEnded(ctx context.Context, at map[group]*known, podsThen, gpusThen []moment) error {
	most := r.room()
	askGPUs, noGPUs := r.then("sum", "experiment:pod:gpus", gpusThen, most/2)
	askPods, noPods := r.then("count", "experiment:pod:info", podsThen, most-len(askGPUs))
	answers, err := r.each(ctx, askPods, askGPUs)
	if err != nil {
		return err
	}
	for _, s := range answers[0] {
		if k := at[groupOf(s.Labels)]; k != nil {
			k.pods = int64(s.Value())
		}
	}
	for _, s := range answers[1] {
		if k := at[groupOf(s.Labels)]; k != nil {
			k.gpus = s.Value()
		}
	}
	for _, m := range noPods {
		at[m.group].noPods = true
	}
	for _, m := range noGPUs {
		at[m.group].noGPUs = true
	}
	if n := max(len(noPods), len(noGPUs)); n > 0 {
		r.LeftOut("The pods or GPUs of %d experiments that have ended are left out, since there are so many; choose a shorter time, a team or a cluster.", n)
	}
	return nil
}

// detailPods asks about the pods of experiments that have some.
func (r *Run) detailPods(ctx context.Context, at map[group]*known, found []prom.Series) error {
	found = slices.DeleteFunc(slices.Clone(found), func(s prom.Series) bool {
		return at[groupOf(s.Labels)] == nil // called as one of these is, in the namespace of another or under another team
	})
	if len(found) > maxPods {
		r.LeftOut("%d pods are more than the %d that are looked at: for some experiments, created and state may be wrong. Choose a cluster or a team.", len(found), maxPods)
		found = found[:maxPods]
	}
	var all, unsure []Pod
	of := map[podKey]*known{}
	for _, s := range found {
		k := at[groupOf(s.Labels)]
		p := podOf(s.Labels)
		of[p] = k
		pod := Pod{Cluster: p.cluster, Namespace: p.namespace, Name: p.name, UID: p.uid}
		all = append(all, pod)
		if !k.decided {
			unsure = append(unsure, pod)
		}
	}
	// States first: an experiment that is there has another one than ended.
	answers, err := r.each(ctx, r.details(r.now(unsure, phaseIs)))
	if err != nil {
		return err
	}
	created, err := r.each(ctx, r.details(r.now(all, createdAt)))
	if err != nil {
		return err
	}
	for p, v := range valueOf(created[0]) {
		if k := of[p]; k != nil {
			k.created = earlier(k.created, unixTime(v))
		}
	}
	phase := phaseOf(answers[0])
	silent, err := unphased(ctx, r, unsure, phase)
	if err != nil {
		return err
	}
	for _, p := range unsure {
		if silent[p.Cluster] {
			of[p.key()].state = unknown
		}
	}
	for p, phase := range phase {
		switch k := of[p]; {
		case k == nil:
		case phase == "Running":
			k.state = running
		case phase == "Pending" && k.state != running:
			k.state = pending
		}
	}
	return nil
}

// moment is an experiment at a time.
type moment struct {
	group
	at time.Time
}

// then aggregates the series of a metric for each experiment at a moment of its own, in so many
// questions at most. left are those for which there is no room.
func (r *Run) then(aggregation, metric string, moments []moment, most int) (ask []question, left []moment) {
	var parts []string
	size := 0
	flush := func() {
		if len(parts) > 0 {
			slices.Sort(parts)
			ask = append(ask, r.at(strings.Join(parts, " or "), r.Until))
		}
		parts, size = nil, 0
	}
	for i, m := range moments {
		of := Selector(metric, OneOf("cluster", m.cluster), OneOf("namespace", m.namespace), OneOf("experiment", m.experiment),
			OneOf("team", m.team))
		part := fmt.Sprintf("%s by (%s) (%s @ %d.%03d)", aggregation, byGroup, of, m.at.Unix(), m.at.UnixMilli()%1000)
		if len(parts) == atOnce || size+len(part) > maxNamesBytes {
			flush()
		}
		if len(ask) >= most {
			return ask, moments[i:]
		}
		parts, size = append(parts, part), size+len(part)
	}
	flush()
	return ask, nil
}

func (r *Run) experimentFrames(rows []known) data.Frames {
	n := len(rows)
	experiment, team, cluster, namespace, state := make([]string, n), make([]string, n), make([]string, n), make([]string, n),
		make([]string, n)
	pods, gpus, created, seen := make([]*int64, n), make([]*float64, n), make([]time.Time, n), make([]time.Time, n)
	for i, k := range rows {
		experiment[i], team[i], cluster[i], namespace[i], state[i] = k.experiment, teamName(k.team), k.cluster, k.namespace, k.state
		created[i], seen[i] = k.created, k.seen
		if !k.noPods {
			pods[i] = &k.pods
		}
		if !k.noGPUs {
			gpus[i] = &k.gpus
		}
	}
	return data.Frames{table(
		column{"experiment", experiment, experimentLinks(r.Settings, allFields)}, column{name: "team", values: team},
		column{name: "cluster", values: cluster},
		column{name: "namespace", values: namespace}, column{name: "state", values: state}, column{name: "pods", values: pods},
		column{name: "gpus", values: gpus},
		column{name: "created", values: created}, column{name: "seen", values: seen},
	)}
}
