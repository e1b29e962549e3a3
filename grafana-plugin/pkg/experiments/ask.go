package experiments

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

// lookPoints is at how many points a mean or a maximum over a long range is looked at. 4,000 GPUs
// at 360 points are 1.4 million samples, whatever the range.
const lookPoints = 360

// question is a query that has not been asked yet.
type question func(ctx context.Context) ([]prom.Series, error)

// at asks at a moment.
func (r *Run) at(query string, at time.Time) question {
	return func(ctx context.Context) ([]prom.Series, error) { return r.Instant(ctx, query, at) }
}

// span asks over a range in steps.
func (r *Run) span(query string, from, until time.Time, step time.Duration) question {
	return func(ctx context.Context) ([]prom.Series, error) { return r.RangeOf(ctx, query, from, until, step) }
}

// maxParts is in how many questions nodes are named of which each has few series.
const maxParts = 4

// onNodes makes the questions about the nodes that the pods are on, as many names in each as fit.
func onNodes(pods []Pod, ask func(matchers ...string) question) []question {
	return exactly(nodeScopes(0, 1, pods), ask)
}

// chosenOnNodes is onNodes of what the query chooses on these nodes: its matchers stand behind
// those of the nodes.
func (r *Run) chosenOnNodes(pods []Pod, ask func(matchers ...string) question) []question {
	chosen := Chosen(r.Query)
	return exactly(nodeScopes(compiledBytes(r.Query), 1, pods), func(m ...string) question { return ask(append(m, chosen...)...) })
}

// fewOnNodes is onNodes for series of which a node has few, as a recorded one of the node, or of
// its GPUs that are sick. Questions that name the nodes would be many where nodes or clusters are:
// then all nodes of these clusters are asked for, and what others have is left out.
func fewOnNodes(pods []Pod, ask func(matchers ...string) question) []question {
	return fewOnNodesBeside(0, 1, pods, ask)
}

// chosenFewOnNodes is to fewOnNodes what chosenOnNodes is to onNodes.
func (r *Run) chosenFewOnNodes(pods []Pod, ask func(matchers ...string) question) []question {
	chosen := Chosen(r.Query)
	return fewOnNodesBeside(compiledBytes(r.Query), 1, pods, func(m ...string) question { return ask(append(m, chosen...)...) })
}

// fewOnNodesBeside is fewOnNodes with the bytes beside the names, and how many times they stand in
// a question.
func fewOnNodesBeside(beside, times int, pods []Pod, ask func(matchers ...string) question) []question {
	scopes := nodeScopes(beside, times, pods)
	if len(scopes) <= maxParts {
		return exactly(scopes, ask)
	}
	var clusters []string
	nodes := map[node]bool{}
	for _, s := range scopes {
		clusters = append(clusters, s.outer[0])
		for _, name := range s.names {
			nodes[node{s.outer[0], name}] = true
		}
	}
	all := ask(OneOf("cluster", clusters...))
	return []question{func(ctx context.Context) ([]prom.Series, error) {
		series, err := all(ctx)
		var ours []prom.Series
		for _, s := range series {
			if nodes[nodeOf(s.Labels)] {
				ours = append(ours, s)
			}
		}
		return ours, err
	}}
}

func nodeScopes(beside, times int, pods []Pod) []scope {
	return scopesBeside(beside, times, pods, func(p Pod) ([]string, string) { return []string{p.Cluster}, p.Node })
}

// exactly asks for the nodes of each scope by name.
func exactly(scopes []scope, ask func(matchers ...string) question) []question {
	var out []question
	for _, s := range scopes {
		out = append(out, ask(OneOf("cluster", s.outer[0]), OneOf("node", s.names...)))
	}
	return out
}

// each asks all questions of all lists, at most parallel of them at once, and returns the answers
// of each list put together.
func (r *Run) each(ctx context.Context, lists ...[]question) ([][]prom.Series, error) {
	type place struct{ list, at int }
	var places []place
	answers := make([][][]prom.Series, len(lists))
	for i, list := range lists {
		answers[i] = make([][]prom.Series, len(list))
		for j := range list {
			places = append(places, place{i, j})
		}
	}
	err := together(ctx, len(places), func(ctx context.Context, i int) (err error) {
		p := places[i]
		answers[p.list][p.at], err = lists[p.list][p.at](ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	out := make([][]prom.Series, len(lists))
	for i, a := range answers {
		for _, series := range a {
			out[i] = append(out[i], series...)
		}
	}
	return out, nil
}

// length is the panel's range.
func (r *Run) length() time.Duration { return r.Until.Sub(r.From) }

// back is how far before the end of the range is looked for what was seen in it: the range, and at
// least two Intervals, so that a shorter one finds the sample that stands for its time, also where
// the last evaluation is late.
func (r *Run) back() time.Duration { return max(r.length(), 2*r.Settings.Interval()) }

// recordedStep is the step of range queries over recorded series: they change once in an interval.
// In a range of less than two it is that of the panel, which else had no point in it.
func (r *Run) recordedStep() time.Duration {
	if r.length() < r.back() {
		return r.Step()
	}
	return max(r.Step(), wholeSeconds(r.Settings.Interval()))
}

// look is the text of a range selector over d of series that are recorded each interval: all their
// samples where those are at most lookPoints, else as many of them.
func (r *Run) look(selector string, d time.Duration) string {
	return r.lookEach(selector, d, wholeSeconds(d/lookPoints))
}

// lookEach is look in steps of step.
func (r *Run) lookEach(selector string, d, step time.Duration) string {
	if step > r.Settings.Interval() {
		return selector + "[" + seconds(d) + ":" + seconds(step) + "]"
	}
	return selector + "[" + seconds(d) + "]"
}

// lookAt is the text of a subquery over d, in steps of at least interval: of what is no selector.
func (r *Run) lookAt(expr string, d time.Duration) string {
	return fmt.Sprintf("(%s)[%s:%s]", expr, seconds(d), seconds(r.lookStep(d)))
}

// lookStep is that of lookAt.
func (r *Run) lookStep(d time.Duration) time.Duration {
	return max(wholeSeconds(r.Settings.Interval()), wholeSeconds(d/lookPoints))
}

// wholeSeconds rounds up.
func wholeSeconds(d time.Duration) time.Duration {
	return (d + time.Second - 1).Truncate(time.Second)
}

// multiple is the last multiple of step since 1970 that is not after t: there the points of
// subqueries are.
func multiple(t time.Time, step time.Duration) time.Time {
	n := time.Duration(t.UnixNano()) % step
	if n < 0 {
		n += step
	}
	return t.Add(-n)
}

// key joins the values of labels to something that can be compared.
func key(labels map[string]string, names ...string) string {
	var b strings.Builder
	for _, n := range names {
		b.WriteString(labels[n])
		b.WriteByte(0xff) // is in no UTF-8 text
	}
	return b.String()
}

// node is a node of a cluster.
type node struct{ cluster, name string }

func nodeOf(labels map[string]string) node { return node{labels["cluster"], labels["node"]} }

// onNode are the pods that are or were on a node.
func onNode(pods []Pod) []Pod {
	var out []Pod
	for _, p := range pods {
		if p.Node != "" {
			out = append(out, p)
		}
	}
	return out
}
