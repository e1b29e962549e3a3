package live

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spillwayproject/spillway/loadtest/cluster"
)

// Case is one trouble and what it must and may raise.
type Case struct {
	// Name is unique; it is the kind's where only one case has the kind.
	Name string
	Kind cluster.Kind
	// Target chooses whom it befalls. n tells cases of one wave apart, so that each node has one
	// trouble at most; it is below the number of nodes.
	Target func(w *World, n int) (string, error)
	// Value is the trouble's; 0 is what its kind takes for 0.
	Value float64
	// Also are troubles of the same time that belong to it, with the same target where theirs is
	// nil.
	Also []Part
	// Want are the alerts that must reach their receiver. One that is inhibited by another of them
	// is in Beside.
	Want []string
	// On says which labels of the wanted alerts come from the target; ByNode, ByGPU,
	// By("instance"); nil is none.
	On func(target string) map[string]string
	// Beside are alerts that may come as well, with the reason.
	Beside map[string]string
	// Wave is the stretch of the long run in which it is staged; cases of one wave do not disturb
	// each other. Waves are run in ascending order.
	Wave int
	// Hold is how long it lasts; 45 seconds where it is 0.
	Hold time.Duration
	// After is how long its consequences may go on beyond what rules' ranges explain: DCGM shows an
	// Xid for five minutes, however fast rules run.
	After time.Duration
	// Remembered are alerts that may come or come back long after the trouble, with how long in the
	// rules' own time: burn rates over three days, pods of a gang that is made anew.
	Remembered map[string]time.Duration
	// Short says that it is one of those in `make test`.
	Short bool
}

// Part is one more trouble of a case.
type Part struct {
	Kind   cluster.Kind
	Target func(w *World, n int) (string, error)
	Value  float64
}

// hold is the length of a case that does not say otherwise: more than twenty minutes of rule time
// at a scale of 30.
const hold = 45 * time.Second

func (c Case) length() time.Duration {
	if c.Hold > 0 {
		return c.Hold
	}
	return hold
}

// staged is a case on the time line.
type staged struct {
	Case
	target      string
	from, until time.Time
}

// Troubles are what a case stages from one moment until another, its own first and then what
// belongs to it. n tells cases of the same time apart.
func (c Case) Troubles(w *World, n int, from, until time.Time) ([]cluster.Trouble, error) {
	target, err := c.Target(w, n)
	if err != nil {
		return nil, fmt.Errorf("whom %s befalls: %w", c.Kind, err)
	}
	out := []cluster.Trouble{{Kind: c.Kind, Target: target, Value: c.Value, From: from, Until: until}}
	for _, p := range c.Also {
		other := target
		if p.Target != nil {
			if other, err = p.Target(w, n); err != nil {
				return nil, fmt.Errorf("whom %s befalls beside %s: %w", p.Kind, c.Kind, err)
			}
		}
		out = append(out, cluster.Trouble{Kind: p.Kind, Target: other, Value: p.Value, From: from, Until: until})
	}
	return out, nil
}

// stage puts a case on the time line.
func (w *World) stage(c Case, n int, from time.Time) (staged, error) {
	until := from.Add(c.length())
	troubles, err := c.Troubles(w, n, from, until)
	if err == nil {
		err = w.Stage(troubles...)
	}
	if err != nil {
		return staged{}, fmt.Errorf("case %s: %w", c.Name, err)
	}
	return staged{c, troubles[0].Target, from, until}, nil
}

// wanted says whether n is one of the alerts that s must raise.
func (s staged) wanted(n Notification) bool {
	return slices.Contains(s.Want, n.Name()) && s.names(n)
}

// explains says whether n is owed to s: wanted, or allowed beside it.
func (s staged) explains(n Notification) bool {
	_, beside := s.Beside[n.Name()]
	return beside || s.wanted(n)
}

// names says whether the labels of n that come from the target are those of s.
func (s staged) names(n Notification) bool {
	if s.On == nil {
		return true
	}
	for k, v := range s.On(s.target) {
		if n.Labels[k] != v {
			return false
		}
	}
	return true
}

// missing are the wanted alerts that are not among got.
func (s staged) missing(got []Notification) []string {
	var out []string
	for _, name := range s.Want {
		if !slices.ContainsFunc(got, func(n Notification) bool { return n.Name() == name && s.names(n) }) {
			out = append(out, name)
		}
	}
	return out
}

// ByNode has an alert carry the target as the label node.
func ByNode(target string) map[string]string { return map[string]string{"node": target} }

// ByGPU has an alert carry the target, node/gpu, as the labels node and gpu.
func ByGPU(target string) map[string]string {
	node, gpu, _ := strings.Cut(target, "/")
	return map[string]string{"node": node, "gpu": gpu}
}

// ByGPUsNode has an alert carry the node of the target node/gpu.
func ByGPUsNode(target string) map[string]string {
	node, _, _ := strings.Cut(target, "/")
	return ByNode(node)
}

// By has an alert carry the target as a label.
func By(label string) func(string) map[string]string {
	return func(target string) map[string]string { return map[string]string{label: target} }
}

// OnNode is node n.
func OnNode(w *World, n int) (string, error) {
	var nodes []string
	for _, t := range w.Model().Targets() {
		if t.Job == cluster.JobNode {
			nodes = append(nodes, t.Labels.Get("node"))
		}
	}
	if n >= len(nodes) {
		return "", fmt.Errorf("there are %d nodes and more cases in the wave: make it two waves", len(nodes))
	}
	return nodes[n], nil
}

// OnGPU is one GPU of node n.
func OnGPU(w *World, n int) (string, error) {
	node, err := OnNode(w, n)
	return fmt.Sprintf("%s/%d", node, n%8), err
}

// Named is always the same target.
func Named(target string) func(*World, int) (string, error) {
	return func(*World, int) (string, error) { return target, nil }
}

// OnInstance is an instance of a job, another one for each n.
func OnInstance(job string) func(*World, int) (string, error) {
	return func(w *World, n int) (string, error) {
		var instances []string
		for _, t := range w.Model().Targets() {
			if t.Job == job {
				instances = append(instances, t.Instance)
			}
		}
		if len(instances) == 0 {
			return "", fmt.Errorf("the model has no target of job %s", job)
		}
		return instances[n%len(instances)], nil
	}
}

// OnGang is an experiment with at least so many pods that runs now.
func OnGang(pods int) func(*World, int) (string, error) {
	return func(w *World, _ int) (string, error) {
		now := time.Now()
		for _, e := range w.Model().Experiments(now, now.Add(time.Minute)) {
			if len(e.Nodes) >= pods {
				return e.Name, nil
			}
		}
		return "", fmt.Errorf("no experiment of %d pods runs", pods)
	}
}

// waves are the cases by wave, in the order in which they are run.
func waves(cases []Case) [][]Case {
	by := map[int][]Case{}
	for _, c := range cases {
		by[c.Wave] = append(by[c.Wave], c)
	}
	var out [][]Case
	for _, w := range slices.Sorted(maps.Keys(by)) {
		out = append(out, by[w])
	}
	return out
}
