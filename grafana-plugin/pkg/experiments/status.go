package experiments

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/grafana/grafana-plugin-sdk-go/data"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

// alwaysCounted are the phases that are shown with 0 too, so that an alert on them has a number.
var alwaysCounted = []string{"Running", "Pending", "Failed"}

type clusterPhase struct{ cluster, phase string }

// status counts the pods of what is chosen by cluster and phase: those that are there at the end of
// the range, or over time. View total counts those of all clusters by phase, in one frame. There is
// no 0 of a cluster whose phases are not known.
func status(ctx context.Context, r *Run) (data.Frames, error) {
	if r.Query.View == "over_time" {
		return statusOverTime(ctx, r)
	}
	pods, err := r.PodsNow(ctx)
	if err != nil {
		return nil, err
	}
	total, kind := r.Query.View == "total", data.FrameTypeNumericMulti
	if total {
		kind = data.FrameTypeNumericWide
	}
	if len(pods) == 0 {
		return emptyFrames(kind), r.Empty(ctx, NeedPods, "pods")
	}
	answers, err := r.each(ctx, r.now(pods, phaseIs))
	if err != nil {
		return nil, err
	}
	phase := phaseOf(answers[0])
	silent, err := unphased(ctx, r, pods, phase)
	if err != nil {
		return nil, err
	}
	count := map[clusterPhase]float64{}
	for _, p := range pods {
		for _, phase := range alwaysCounted {
			if !silent[p.Cluster] {
				count[clusterPhase{p.Cluster, phase}] += 0
			}
		}
	}
	for pod, phase := range phase {
		count[clusterPhase{pod.cluster, phase}]++
	}
	if len(count) == 0 {
		return emptyFrames(kind), nil
	}
	if total {
		return totalStatus(count), nil
	}
	var frames data.Frames
	for _, k := range sortedPhases(maps.Keys(count)) {
		f := number(count[k], data.Labels{"cluster": k.cluster, "phase": k.phase}, "")
		f.Fields[0].Config.DisplayNameFromDS = k.cluster + " " + k.phase
		frames = append(frames, f)
	}
	return frames, nil
}

// totalStatus is one frame with a number for each phase. A panel of one frame needs none of
// Grafana's transformations, which lose the notices where they make one frame of several.
func totalStatus(count map[clusterPhase]float64) data.Frames {
	total := map[clusterPhase]float64{}
	for k, n := range count {
		total[clusterPhase{phase: k.phase}] += n
	}
	f := data.NewFrame("")
	for _, k := range sortedPhases(maps.Keys(total)) {
		field := data.NewField("Value", data.Labels{"phase": k.phase}, []float64{total[k]})
		field.Config = &data.FieldConfig{DisplayNameFromDS: k.phase}
		f.Fields = append(f.Fields, field)
	}
	f.Meta = &data.FrameMeta{Type: data.FrameTypeNumericWide, TypeVersion: data.FrameTypeVersion{0, 1}}
	return data.Frames{f}
}

func statusOverTime(ctx context.Context, r *Run) (data.Frames, error) {
	pods, err := r.PodsIn(ctx)
	if err != nil {
		return nil, err
	}
	if len(pods) == 0 {
		return emptyFrames(data.FrameTypeTimeSeriesMulti), r.Empty(ctx, NeedPods, "pods")
	}
	answers, err := r.each(ctx, onUIDs(pods, func(of selectPods) question {
		return r.span("count by (cluster, phase) ("+phaseIs(of)+")", r.From, r.Until, r.Step())
	}))
	if err != nil {
		return nil, err
	}
	// A question is about some of a cluster's pods: their counts are added. Where a cluster has
	// pods in any phase, the phases of alwaysCounted are 0 if not more.
	at := map[string]map[int64]bool{}
	count := map[clusterPhase]map[int64]float64{}
	for _, s := range answers[0] {
		k := clusterPhase{s.Labels["cluster"], s.Labels["phase"]}
		if count[k] == nil {
			count[k] = map[int64]float64{}
		}
		if at[k.cluster] == nil {
			at[k.cluster] = map[int64]bool{}
		}
		for _, p := range s.Points {
			count[k][p.T] += p.V
			at[k.cluster][p.T] = true
		}
	}
	for cluster := range at {
		for _, phase := range alwaysCounted {
			if k := (clusterPhase{cluster, phase}); count[k] == nil {
				count[k] = map[int64]float64{}
			}
		}
	}
	if len(count) == 0 {
		return emptyFrames(data.FrameTypeTimeSeriesMulti), r.Empty(ctx, NeedPods, "phases of pods")
	}
	var series []prom.Series
	for _, k := range sortedPhases(maps.Keys(count)) {
		s := prom.Series{Labels: map[string]string{"cluster": k.cluster, "phase": k.phase}}
		for _, t := range slices.Sorted(maps.Keys(at[k.cluster])) {
			s.Points = append(s.Points, prom.Point{T: t, V: count[k][t]})
		}
		series = append(series, s)
	}
	return timeSeries(series, r.Step(), "", func(l map[string]string) string { return l["cluster"] + " " + l["phase"] }), nil
}

// sortedPhases sorts by cluster and by the order of alwaysCounted, the others behind them.
func sortedPhases(keys func(yield func(clusterPhase) bool)) []clusterPhase {
	rank := func(phase string) int {
		if i := slices.Index(alwaysCounted, phase); i >= 0 {
			return i
		}
		return len(alwaysCounted)
	}
	return slices.SortedFunc(keys, func(a, b clusterPhase) int {
		return cmp.Or(cmp.Compare(a.cluster, b.cluster), cmp.Compare(rank(a.phase), rank(b.phase)), cmp.Compare(a.phase, b.phase))
	})
}
