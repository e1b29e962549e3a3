package cluster

import (
	"slices"

	"github.com/prometheus/common/model"
)

// node-problem-detector with its kernel monitor, and a rule of our own for the
// driver's Xids. Its page has no go_* or process_* series.

// npdConditions are the permanent problems: a condition of the node each, and
// the reason that turns it.
var npdConditions = []struct{ name, reason string }{
	{"KernelDeadlock", "DockerHung"},
	{"ReadonlyFilesystem", "FilesystemIsReadOnly"},
	{"XfsShutdown", "XfsHasShutdown"},
}

// Reasons of the rule that reads Xids from the kernel's log, where they are
// although the GPU is off the bus and DCGM silent.
const (
	reasonXid    = "GPUXid"            // those that say something about the GPU
	reasonAppXid = "GPUXidApplication" // those that a job brings on itself
)

var npdReasons = []string{
	"DockerHung", "Ext4Error", "Ext4Warning", "FilesystemIsReadOnly", reasonXid, reasonAppXid, "IOError", "KernelOops", "MemoryReadError",
	"OOMKilling",
	"TaskHung", "UnregisterNetDevice", "XfsHasShutdown",
}

func npdFamilies() []family {
	return []family{
		{"problem_counter", "Number of times a specific type of problem have occurred.", model.MetricTypeCounter, emitProblemCounter},
		{"problem_gauge", "Whether a specific type of problem is affecting the node or not.", model.MetricTypeGauge, func(p *page, e *emitter) {
			for _, c := range npdConditions {
				e.add(flag(p.host.of(-1, conditionKinds[c.name]...)), "reason", c.reason, "type", c.name)
			}
		}},
	}
}

// emitProblemCounter: what was read since the process started.
func emitProblemCounter(p *page, e *emitter) {
	times := func(n float64) func(event) float64 { return func(event) float64 { return n } }
	for _, reason := range npdReasons {
		c := curve{}
		count := func(ev []event, n float64) {
			if st := counted(ev, p.pr.starts, times(n)); st != nil {
				c = curve{kind: gauge, k: 1, st: st}
			}
		}
		switch reason {
		case "FilesystemIsReadOnly":
			count(p.host.of(-1, NodeDiskReadOnly), 1)
		case "Ext4Error":
			count(p.host.of(-1, NodeDiskReadOnly), 3)
		case "XfsHasShutdown":
			count(p.host.of(-1, NodeDiskError), 1)
		case "IOError":
			if ev := p.host.of(-1, NodeDiskError); len(ev) > 0 {
				c = curve{kind: counter, whole: true, pr: p.pr, k: 1, st: pace(ev, func(e event) float64 { return e.or(6) / 60 })}
			}
		case reasonXid, reasonAppXid:
			var ev []event
			for _, gpu := range p.host.xids {
				for _, x := range gpu {
					if slices.Contains(ignoredXids, x.value) == (reason == reasonAppXid) {
						ev = append(ev, x)
					}
				}
			}
			slices.SortFunc(ev, func(a, b event) int { return int(a.from - b.from) })
			count(ev, 1)
		}
		e.add(c, "reason", reason)
	}
}
