package relabel

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

// kind is how a metric's series are told apart.
type kind int

const (
	pods       kind = iota // kube-state-metrics: one or a few for each pod
	containers             // cadvisor: for each container
	nodes                  // node_exporter: for each node and device
	targets                // a few for each instance of an application
	everywhere             // go_ and process_, of every job
	bucket                 // a histogram's three
	sum
	count
)

// ownJobs are jobs with metrics of their own; those beyond are applications.
var ownJobs = []string{"kube-state-metrics", "cadvisor", "node-exporter", "apiserver", "etcd", "coredns", "kubelet"}

// metric is one name with its series.
type metric struct {
	name    string
	kind    kind
	counter bool
	jobs    []string // one, but for those that are everywhere
	series  int
	les     []string // of a bucket
	seed    uint64
}

// cluster is what the labels are made of.
type cluster struct {
	pods, nodes, instances int
	metrics                []*metric // sorted by name
}

// shares are how much of all names and of all series each class of metrics has.
var shares = []struct {
	kind          kind
	names, series float64
	prefix        string
}{
	{pods, 0.16, 0.20, "kube"},
	{containers, 0.06, 0.20, "container"},
	{nodes, 0.14, 0.10, "node"},
	{targets, 0.20, 0.03, "app"},
	{everywhere, 0.02, 0.02, "go"},
	{bucket, 0.42, 0.45, "app"}, // these names are of families, three each
}

var subjects = []string{
	"request", "response", "queue", "cache", "storage", "client", "worker", "session", "volume", "network", "memory", "process", "task",
	"lease", "watch", "status", "disk",
	"scheduler",
}

var aspects = []string{
	"duration", "size", "latency", "wait", "depth", "errors", "retries", "bytes", "age", "ready", "limit", "usage",
	"pending", "handled",
}

// newCluster lays the metrics out. Their series add up to o.Series exactly.
func newCluster(o Options) (*cluster, error) {
	r := rand.New(rand.NewPCG(o.Seed, 0))
	c := &cluster{pods: max(8, o.Series/150), nodes: max(4, o.Series/4500), instances: max(2, o.Series/100_000)}
	jobs := slices.Clone(ownJobs)
	for i := len(jobs); i < o.Jobs; i++ {
		jobs = append(jobs, fmt.Sprintf("app-%02d", i))
	}
	left := o.Names
	for i, s := range shares {
		n := int(float64(o.Names) * s.names)
		if i == len(shares)-1 {
			n = left
		}
		left -= n
		weights := func(n int) []float64 {
			w := make([]float64, n)
			for i := range w {
				w[i] = 1 / math.Pow(float64(i+2), 0.8)
			}
			return w
		}
		if s.kind != bucket {
			for j, size := range divide(int(float64(o.Series)*s.series), weights(n)) {
				c.add(r, s.kind, s.prefix, j, size, jobs)
			}
			continue
		}
		for n%3 != 0 { // what is no whole family is a plain metric
			n--
			c.add(r, targets, "other", n, 1, jobs)
		}
		for j, size := range divide(int(float64(o.Series)*s.series), weights(n/3)) {
			c.family(r, s.prefix, j, size, jobs)
		}
	}
	// What rounding left goes to the largest plain metric.
	total, largest := 0, c.metrics[0]
	for _, m := range c.metrics {
		total += m.series
		if m.kind == pods && m.series > largest.series {
			largest = m
		}
	}
	if largest.series += o.Series - total; largest.series < 1 {
		return nil, fmt.Errorf("%d series are too few for %d names: ask for more series or fewer names", o.Series, o.Names)
	}
	slices.SortFunc(c.metrics, func(a, b *metric) int { return cmp.Compare(a.name, b.name) })
	return c, nil
}

// divide splits total by weights into parts of at least 1.
func divide(total int, weights []float64) []int {
	all := 0.0
	for _, w := range weights {
		all += w
	}
	out := make([]int, len(weights))
	for i, w := range weights {
		out[i] = max(1, int(float64(total)*w/all))
	}
	return out
}

func word(r *rand.Rand, prefix string, i int) string {
	return fmt.Sprintf("%s_%s_%s_%d", prefix, subjects[r.IntN(len(subjects))], aspects[r.IntN(len(aspects))], i)
}

func (c *cluster) add(r *rand.Rand, k kind, prefix string, i, series int, jobs []string) {
	m := &metric{name: word(r, prefix, i), kind: k, counter: k != pods && r.IntN(2) == 0, series: series, seed: r.Uint64()}
	if m.counter {
		m.name += "_total"
	}
	switch k {
	case pods:
		m.jobs = jobs[:1]
	case containers:
		m.jobs = jobs[1:2]
	case nodes:
		m.jobs = jobs[2:3]
	case everywhere:
		m.jobs = jobs
	default:
		j := 3 + i%(len(jobs)-3)
		m.jobs = jobs[j : j+1]
	}
	c.metrics = append(c.metrics, m)
}

// family adds the three metrics of a histogram with about so many series.
func (c *cluster) family(r *rand.Rand, prefix string, i, series int, jobs []string) {
	les := edges(12+r.IntN(19), r.IntN(3))
	j := 3 + i%(len(jobs)-3)
	name := word(r, prefix, i) + "_seconds"
	seed := r.Uint64()
	n := max(1, series/(len(les)+2))
	for _, m := range []*metric{
		{name: name + "_bucket", kind: bucket, series: n * len(les), les: les},
		{name: name + "_sum", kind: sum, series: n},
		{name: name + "_count", kind: count, series: n},
	} {
		m.counter, m.jobs, m.seed = true, jobs[j:j+1], seed
		c.metrics = append(c.metrics, m)
	}
}

// edges are n values of le as Prometheus 3 stores them, +Inf among them.
func edges(n, start int) []string {
	steps := []float64{1, 2.5, 5}
	out := make([]string, 0, n)
	for i := range n - 1 {
		v := steps[i%3] * math.Pow(10, float64(i/3-4+start))
		// What is a power of ten times a step has few digits; without rounding 0.1 is
		// 0.10000000000000002.
		v, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 3, 64), 64)
		if err != nil {
			panic(err) // it was formatted a line before
		}
		out = append(out, labels.FormatOpenMetricsFloat(v))
	}
	return append(out, "+Inf")
}

var (
	verbs     = []string{"GET", "LIST", "WATCH", "POST", "PUT", "PATCH", "DELETE"}
	codes     = []string{"200", "201", "304", "400", "404", "409", "500", "503"}
	phases    = []string{"Pending", "Running", "Succeeded", "Failed", "Unknown"}
	modes     = []string{"user", "system", "idle", "iowait", "irq", "softirq", "steal"}
	container = []string{"main", "POD", "sidecar", "init"}
)

// each calls f for each series of the metric; le is the position of its bucket, 0 where it has
// none. Labels are good until the next one.
func (c *cluster) each(m *metric, f func(ls labels.Labels, le int) error) error {
	b := labels.NewScratchBuilder(16)
	for i := range m.series {
		b.Reset()
		b.Add(model.MetricNameLabel, m.name)
		le := c.labels(m, i, &b)
		b.Sort()
		if err := f(b.Labels(), le); err != nil {
			return err
		}
	}
	return nil
}

// labels are those of the i-th series: i is written in digits of mixed bases, so that no two series
// are the same.
func (c *cluster) labels(m *metric, i int, b *labels.ScratchBuilder) (le int) {
	digit := func(base int) int {
		d := i % base
		i /= base
		return d
	}
	job := m.jobs[0]
	switch m.kind {
	case pods:
		p := digit(c.pods)
		c.pod(p, b)
		b.Add("uid", fmt.Sprintf("%08x-%04x", uint32(mix(uint64(p))), uint16(mix(uint64(p)+1))))
		b.Add("phase", phases[digit(len(phases))])
		b.Add("instance", "10.1.0.1:8080")
		if i > 0 {
			b.Add("condition", strconv.Itoa(i))
		}
	case containers:
		p := digit(c.pods)
		node := c.pod(p, b)
		name := container[digit(len(container))]
		b.Add("container", name)
		b.Add("id", fmt.Sprintf("/kubepods/pod%08x/%s", uint32(mix(uint64(p))), name))
		b.Add("image", fmt.Sprintf("images.example/app-%d:v%d", p%97, p%5))
		b.Add("instance", node+":10250")
		if i > 0 {
			b.Add("device", fmt.Sprintf("dev%d", i))
		}
	case nodes:
		b.Add("instance", fmt.Sprintf("node-%05d:9100", digit(c.nodes)))
		b.Add("device", fmt.Sprintf("dev%d", digit(8)))
		b.Add("mode", modes[digit(len(modes))])
		if i > 0 {
			b.Add("cpu", strconv.Itoa(i))
		}
	case everywhere:
		job = m.jobs[digit(len(m.jobs))]
		b.Add("instance", fmt.Sprintf("10.2.%d.%d:9090", i/250, i%250))
	default:
		if m.kind == bucket {
			le = digit(len(m.les))
			b.Add("le", m.les[le])
		}
		b.Add("instance", fmt.Sprintf("10.3.0.%d:8443", digit(c.instances)))
		b.Add("verb", verbs[digit(len(verbs))])
		b.Add("code", codes[digit(len(codes))])
		if i > 0 {
			b.Add("resource", fmt.Sprintf("resource-%d", i))
		}
	}
	b.Add("job", job)
	return le
}

// pod adds the labels of a pod and returns its node.
func (c *cluster) pod(p int, b *labels.ScratchBuilder) string {
	node := fmt.Sprintf("node-%05d", p%c.nodes)
	b.Add("namespace", namespace(p))
	b.Add("node", node)
	b.Add("pod", fmt.Sprintf("app-%d-%05x", p%97, p))
	return node
}

func namespace(p int) string { return fmt.Sprintf("team-%02d", p%61) }

// mix spreads the bits of x.
func mix(x uint64) uint64 {
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}
