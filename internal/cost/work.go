package cost

import "strings"

// Work without GPUs, on nodes without GPUs, is billed by what its containers request of processors
// and memory. Of a node with GPUs these are paid for by the GPUs: whose price is that of the whole
// machine, so that a pod beside them costs nothing more, nor does what GPU work itself requests of
// them. Requests are what the scheduler keeps from others, and are samples of
// kube-state-metrics that the servers count once more, as they do GPUs. What pods really used would
// be rates of the largest family of a cluster, which nothing could be checked against.

// What is counted of a pod, in samples: GPUs as nodes hand them out, cores, bytes.
const (
	ofGPUs = iota
	ofCores
	ofMemory
	quantities
)

// amounts are so much of each.
type amounts [quantities]float64

// none reports whether there is nothing in it.
func (a amounts) none() bool { return a == amounts{} }

const bytesPerGiB = 1 << 30

// hoursOf are what hours of each are called, and how many of its units are one.
var hoursOf = [quantities]struct {
	name string
	one  float64
}{{"GPU hours", 1}, {"CPU core hours", 1}, {"GiB hours of memory", bytesPerGiB}}

// billsWork reports whether work without GPUs has a price.
func (d *Directory) billsWork() bool { return d.CPUPrice != nil || d.MemoryPrice != nil }

// checkWork is what is wrong with the prices of work without GPUs.
func (d *Directory) checkWork(bad func(format string, args ...any)) {
	for _, p := range []struct {
		key, of string
		v       *float64
	}{{"cpu_price", "core", d.CPUPrice}, {"memory_price", "GiB", d.MemoryPrice}} {
		if p.v != nil && (!(*p.v >= 0) || *p.v > maxPrice) {
			bad("%s: %v is no price of an hour of one %s: it must be 0 or more, and %g at most; without the key nothing of it is billed", p.key,
				*p.v, p.of, float64(maxPrice))
		}
	}
}

// workPrice is what an hour of so many cores and GiB costs.
func (d *Directory) workPrice(cores, gib float64) (price float64) {
	if d.CPUPrice != nil {
		price += cores * *d.CPUPrice
	}
	if d.MemoryPrice != nil {
		price += gib * *d.MemoryPrice
	}
	return price
}

// workQueries are what is asked about work without GPUs, only where it has a price: workNames for
// its namespaces, work for what it requests, and cores and memory once more for what the servers
// count of it.
type workQueries struct{ workNames, work, cores, memory query }

func (n Names) workQueries(running func(d, in string) string) workQueries {
	pod := []string{n.ClusterLabel, "namespace", "pod", "uid"}
	by := func(more ...string) string {
		return "by (" + strings.Join(append(pod[:len(pod):len(pod)], more...), ", ") + ")"
	}
	requests := func(resource, in string) string {
		return "kube_pod_container_resource_requests{" + join(n.Selector, resource, in) + "}"
	}
	// A pod has no node at first: the same containers twice.
	ofPod := func(resource, d, in string, more ...string) string {
		return "sum " + by(append(more, "node")...) + " (max " + by(append(more, "node", "container")...) + " (max_over_time(" +
			requests(resource, in) + "[" + d + "])))"
	}
	counted := func(name string) query {
		return query{name: "allocated " + name, byNamespace: true, text: func(d, in string) string {
			return "sum by (" + n.ClusterLabel + ", " + n.ReplicaLabel + ") (" + running(d, in) + " * on (" + strings.Join(pod, ", ") +
				") group_left () max " + by() + " (" + ofPod(`resource="`+name+`"`, d, in) + "))"
		}}
	}
	const both = `resource=~"cpu|memory"`
	return workQueries{
		workNames: query{name: "namespaces with work", text: func(d, _ string) string {
			return "group by (" + n.ClusterLabel + ", namespace) (last_over_time(" + requests(both, "") + "[" + d + "]))"
		}},
		work:  query{name: "work", byNamespace: true, text: func(d, in string) string { return ofPod(both, d, in, "resource") + " > 0" }},
		cores: counted("cpu"), memory: counted("memory"),
	}
}

// readWork asks for what pods request of processors and memory.
func (r *run) readWork(f *facts, spaces []string, pod func(m map[string]string, w int) at[podKey], do asking) {
	n := r.o.Names
	do(r.q.work, spaces, func(m map[string]string, w int, v float64) error {
		k, which := pod(m, w), ofCores
		if m["resource"] == "memory" {
			which = ofMemory
		}
		a := f.work[k]
		a[which] = max(a[which], v)
		f.work[k] = a
		r.found.worked = true
		f.node[k] = max(f.node[k], m["node"])
		return nil
	})
	for _, which := range []int{ofCores, ofMemory} {
		do([quantities]query{ofCores: r.q.cores, ofMemory: r.q.memory}[which], spaces, func(m map[string]string, w int, v float64) error {
			k := at[replicaKey]{replicaKey{m[n.ClusterLabel], m[n.ReplicaLabel]}, w}
			a := f.allocated[k]
			a[which] += v
			f.allocated[k] = a
			return nil
		})
	}
}

// hasGPUs reports whether a node has GPUs, healthy or not: that pods on it are paid for by them.
func (p *page) hasGPUs(k nodeKey) bool {
	at := at[nodeKey]{k, p.i}
	return len(p.f.fleet[capacity][at]) > 0 || p.f.model[at] != "" || p.f.claims.nodes[k] || p.f.claims.cards[at] > 0
}

// work is what the rows have of work without GPUs; their sum is the bill's.
func (r *run) work(b *Bill, accounts []*account, column func(of func(*account) float64) []int64) []Work {
	rows := make([]Work, len(accounts))
	if !r.o.Directory.billsWork() {
		return rows
	}
	b.work = true
	const perMilli = float64(hourMillis) / 1000
	cores := column(func(a *account) float64 { return a.cores / perMilli })
	gib := column(func(a *account) float64 { return a.gib / perMilli })
	money := column(func(a *account) float64 { return a.workMoney * 100 })
	total := Work{new(Milli), new(Milli), new(Hundredths)}
	for i := range rows {
		rows[i] = Work{new(Milli(cores[i])), new(Milli(gib[i])), new(Hundredths(money[i]))}
		*total.CPUHours += *rows[i].CPUHours
		*total.MemoryHours += *rows[i].MemoryHours
		*total.CPUCost += *rows[i].CPUCost
	}
	b.Total.Work = total
	return rows
}
