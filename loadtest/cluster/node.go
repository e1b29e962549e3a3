package cluster

import (
	"cmp"
	"math"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"
)

// node_exporter: what follows the experiments is written here, the rest is in
// schema/node.txt.

const memTotal = 2.164663517184e12

func nodeFamilies(d Detail) []family {
	c, g := model.MetricTypeCounter, model.MetricTypeGauge
	own := []family{
		{"node_cpu_seconds_total", "Seconds the CPUs spent in each mode.", c, emitCPU},
		{"node_load1", "1m load average.", g, emitLoad(1)},
		{"node_load5", "5m load average.", g, emitLoad(0.97)},
		{"node_load15", "15m load average.", g, emitLoad(0.94)},
		{"node_memory_MemFree_bytes", "Memory information field MemFree_bytes.", g, emitMemory(0.55)},
		{"node_memory_MemAvailable_bytes", "Memory information field MemAvailable_bytes.", g, emitMemory(0.9)},
		{"node_uname_info", "Labeled system information as provided by the uname system call.", g, func(p *page, e *emitter) {
			e.add(curve{base: 1}, "domainname", "(none)", "machine", "x86_64", "nodename", p.m.nodeName(p.node), "release",
				p.m.system(p.node).kernel, "sysname", "Linux", "version", "#23-Ubuntu SMP")
		}},
		{"node_filesystem_size_bytes", "Filesystem size in bytes.", g, emitFilesystem},
		{"node_filesystem_avail_bytes", "Filesystem space available to non-root users in bytes.", g, emitFilesystem},
		{"node_filesystem_readonly", "Filesystem read-only status.", g, emitFilesystem},
		{"node_filesystem_device_error", "Whether an error occurred while getting statistics for the given device.", g, emitFilesystem},
	}
	if d == Full {
		own = append(own,
			family{"node_cpu_guest_seconds_total", "Seconds the CPUs spent in guests (VMs) for each mode.", c, func(p *page, e *emitter) {
				for cpu := range p.m.o.CPUsPerNode {
					for _, mode := range []string{"nice", "user"} {
						e.add(curve{}, "cpu", strconv.Itoa(cpu), "mode", mode)
					}
				}
			}},
			family{"node_filesystem_free_bytes", "Filesystem free space in bytes.", g, emitFilesystem},
			family{"node_filesystem_files", "Filesystem total file nodes.", g, emitFilesystem},
			family{"node_filesystem_files_free", "Filesystem total free file nodes.", g, emitFilesystem},
			family{"node_os_info", "A metric with a constant '1' value labeled by the fields of os-release.", g, func(p *page, e *emitter) {
				e.add(curve{base: 1}, p.m.system(p.node).release...)
			}},
			family{"node_disk_info", "Info of /sys/block/<block_device>.", g, func(_ *page, e *emitter) {
				for i, dev := range []string{"nvme0n1", "nvme1n1"} {
					e.add(curve{base: 1}, "device", dev, "major", "259", "minor", strconv.Itoa(i), "model", "SAMSUNG MZWLO3T8HCLS", "path",
						"pci-0000:0"+strconv.Itoa(i+1)+":00.0-nvme-1",
						"revision", "", "rotational", "0", "serial", "", "wwn", "")
				}
			}})
	}
	own = append(own, infinibandFamilies(d)...)
	for _, f := range fromSchema("node", d, machineClock) {
		if strings.HasPrefix(f.name, "promhttp_") {
			continue
		}
		own = append(own, onHost(f))
	}
	return append(own, processFamilies(d)...)
}

// emitCPU: user time follows the GPUs' load, idle gives way by as much: the
// modes add up to the time since boot.
func emitCPU(p *page, e *emitter) {
	perGPU := 0.5 / float64(p.m.o.GPUsPerNode)
	modes := []struct {
		mode string
		base float64
		k    float64
	}{
		{"idle", 0.93, -perGPU},
		{"iowait", 0.008, 0},
		{"irq", 0, 0},
		{"nice", 0.002, 0},
		{"softirq", 0.01, 0},
		{"steal", 0, 0},
		{"system", 0.02, 0.2 * perGPU},
		{"user", 0.03, 0.8 * perGPU},
	}
	for cpu := range p.m.o.CPUsPerNode {
		skew := between(hash(p.h, uint64(cpu)), 0, 0.02)
		for _, m := range modes {
			c := curve{kind: counter, base: m.base, pr: p.machine}
			// No two CPUs are alike: what user takes more, idle has less.
			switch m.mode {
			case "idle":
				c.base -= skew
			case "user":
				c.base += skew
			}
			if m.k != 0 {
				c.k, c.st = m.k, p.host.load
			}
			e.add(c, "cpu", strconv.Itoa(cpu), "mode", m.mode)
		}
	}
}

func emitLoad(damp float64) func(*page, *emitter) {
	return func(p *page, e *emitter) {
		e.add(wave(curve{kind: busy, base: 2 * damp, k: 14 * damp, amp: 2 * damp, st: p.host.load}, p.h))
	}
}

func emitMemory(idle float64) func(*page, *emitter) {
	return func(p *page, e *emitter) {
		c := curve{
			kind: gauge, base: idle * memTotal, k: -0.4 * memTotal / float64(p.m.o.GPUsPerNode), st: p.host.load,
			amp: 0.01 * memTotal, whole: true,
		}
		e.add(wave(c, p.h))
	}
}

func emitFilesystem(p *page, e *emitter) {
	for _, f := range p.m.system(p.node).files {
		_, h := e.weight([]string{"device", f.device, "device_error", "", "fstype", f.fstype, "mountpoint", f.mountpoint})
		var c curve
		free := wave(curve{kind: gauge, base: f.size * (1 - f.used), amp: f.size * 0.04, whole: true},
			hash(p.h, hashString(0, cmp.Or(f.folderOf, f.mountpoint))))
		if f.fixed {
			free = curve{kind: gauge, base: math.Round(f.size * (1 - f.used))}
		}
		switch e.fam.name {
		case "node_filesystem_size_bytes":
			c.base = f.size
		case "node_filesystem_free_bytes":
			c = free
		case "node_filesystem_avail_bytes":
			c = free
			c.scale = 0.95 // the rest is root's
		case "node_filesystem_files":
			c.base = 2.4e8
		case "node_filesystem_files_free":
			c = wave(curve{kind: gauge, base: 2.1e8, amp: 1e6, whole: true}, h)
		case "node_filesystem_readonly":
			if f.system {
				c = flag(p.host.of(-1, NodeDiskReadOnly))
			}
			if f.fixed {
				c.base = 1
			}
		}
		if left := c.scale; f.system && c.amp != 0 && e.fam.name != "node_filesystem_files_free" {
			if left == 0 {
				left = 1
			}
			c.over = during(p.host.of(-1, NodeDiskFull), func(e event) float64 { return math.Round(left * f.size * e.or(0.01)) })
		}
		filesystemLives(p, f.mountpoint, func(from, until int64, gone string) {
			c := c
			switch {
			case gone == "":
			case e.fam.name == "node_filesystem_device_error":
				c = curve{base: 1}
			case e.fam.name != "node_filesystem_readonly":
				return // it knows nothing else of a file system that it cannot ask
			}
			e.addIn(from, until, c, "device", f.device, "device_error", gone, "fstype", f.fstype, "mountpoint", f.mountpoint)
		})
	}
}

// processFamilies are the go_* and process_* families of every Go program.
func processFamilies(d Detail) []family { return fromSchema("process", d, exporterClock) }
