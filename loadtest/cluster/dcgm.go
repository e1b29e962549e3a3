package cluster

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"
)

// dcgm-exporter: one line for each GPU and field, with the pod that holds the
// GPU while it runs. No go_* or process_* series, as on the real page.

var xidText = map[float64]string{
	0: "No Error", 13: "Graphics Engine Exception", 31: "GPU memory page fault", 43: "GPU stopped processing",
	45: "Preemptive cleanup, due to previous errors",
	48: "Double Bit ECC Error", 63: "ECC page retirement or row remapping recording event", 64: "ECC page retirement or row remapper recording failure", 74: "NVLINK Error",
	79: "GPU has fallen off the bus", 92: "High single-bit ECC error rate", 94: "Contained ECC error", 95: "Uncontained ECC error",
	119: "GSP RPC Timeout", 120: "GSP Error",
}

// gpuField makes the curve of one field of one device.
type gpuField func(p *page, s *nodeState, d device, h uint64) curve

func used(idle, whenBusy, moves float64, whole bool) gpuField {
	return func(_ *page, s *nodeState, d device, h uint64) curve {
		c := wave(curve{kind: busy, base: idle, k: whenBusy, amp: moves, st: s.busy(d), whole: whole}, h)
		return c
	}
}

func fixed(v float64) gpuField {
	return func(*page, *nodeState, device, uint64) curve { return curve{base: v} }
}

// driven is a counter of idle a second, plus whenBusy while the GPU works.
func driven(idle, whenBusy float64) gpuField {
	return func(_ *page, s *nodeState, d device, _ uint64) curve {
		return curve{kind: counter, whole: true, base: idle, k: whenBusy, st: s.busy(d), pr: &s.machine}
	}
}

// leaky gives a field the rare minutes in which DCGM's blank value leaks out.
func leaky(f gpuField) gpuField {
	return func(p *page, s *nodeState, d device, h uint64) curve {
		c := f(p, s, d, h)
		c.sentinel = mix(h+11) | 1
		return c
	}
}

func power(p *page, s *nodeState, d device, h uint64) curve {
	g := p.m.gpuModel(s.node)
	return used(g.idleW, g.busyW, 25, false)(p, s, d, h)
}

func energy(p *page, s *nodeState, d device, h uint64) curve {
	g := p.m.gpuModel(s.node)
	return driven(g.idleW*1000, g.busyW*1000)(p, s, d, h) // mJ
}

// frame is the memory of a device, and what the driver takes of it, in MiB.
func (p *page) frame(d device) (all, own float64) {
	size := p.m.size(p.node, d)
	return p.m.gpuModel(p.node).fbMiB * size, 612 * size
}

func fbUsed(p *page, s *nodeState, d device, _ uint64) curve {
	all, own := p.frame(d)
	return curve{kind: gauge, base: own, k: 0.86 * all, st: s.holding(d), whole: true}
}

func fbFree(p *page, s *nodeState, d device, _ uint64) curve {
	all, own := p.frame(d)
	return curve{kind: gauge, base: all - own, k: -0.86 * all, st: s.holding(d), whole: true}
}

// rare is a counter that moves on few GPUs: r a second on one in n, else 0.
func rare(n uint64, r float64) gpuField {
	return func(_ *page, s *nodeState, d device, h uint64) curve {
		c := curve{kind: counter, whole: true, pr: &s.machine}
		if h%n == 0 {
			c.base = r
		}
		return c
	}
}

// violation is a counter of nanoseconds, or of microseconds where DCGM is an old one.
func violation(f gpuField) gpuField {
	return func(p *page, s *nodeState, d device, h uint64) curve {
		c := f(p, s, d, h)
		if p.m.kind(s.node).Microseconds {
			c.base, c.k = c.base/1000, c.k/1000
		}
		return c
	}
}

type dcgmField struct {
	name, help string
	typ        model.MetricType
	detail     Detail
	curve      gpuField
}

var dcgmFields = []dcgmField{
	{"DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", model.MetricTypeGauge, Lean, leaky(used(0, 92, 6, true))},
	{"DCGM_FI_DEV_MEM_COPY_UTIL", "Memory utilization (in %).", model.MetricTypeGauge, Full, used(0, 55, 12, true)},
	{"DCGM_FI_DEV_ENC_UTIL", "Encoder utilization (in %).", model.MetricTypeGauge, Full, fixed(0)},
	{"DCGM_FI_DEV_DEC_UTIL", "Decoder utilization (in %).", model.MetricTypeGauge, Full, fixed(0)},
	{
		"DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz).", model.MetricTypeGauge, Lean,
		stuck(used(345, 1600, 35, true), GPUThrottled, func(event) float64 { return 1065 }),
	},
	{"DCGM_FI_DEV_MEM_CLOCK", "Memory clock frequency (in MHz).", model.MetricTypeGauge, Full, fixed(2619)},
	{
		"DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", model.MetricTypeGauge, Lean,
		leaky(stuck(used(31, 34, 4, true), GPUHot, func(e event) float64 { return e.or(92) })),
	},
	{
		"DCGM_FI_DEV_MEMORY_TEMP", "Memory temperature (in C).", model.MetricTypeGauge, Lean,
		leaky(stuck(used(38, 40, 4, true), GPUHot, func(e event) float64 { return e.or(92) + 6 })),
	},
	{"DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", model.MetricTypeGauge, Lean, leaky(power)},
	{"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "Total energy consumption since boot (in mJ).", model.MetricTypeCounter, Full, energy},
	{"DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB).", model.MetricTypeGauge, Full, fbFree},
	{"DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).", model.MetricTypeGauge, Lean, fbUsed},
	{"DCGM_FI_DEV_FB_RESERVED", "Framebuffer memory reserved (in MiB).", model.MetricTypeGauge, Full, fixed(551)},
	{
		"DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "Total number of PCIe retries.", model.MetricTypeCounter, Lean,
		faster(rare(40, 0.002), GPUPCIeReplay, func(e event) float64 { return e.or(30) / 60 }),
	},
	{"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "Total number of NVLink bandwidth counters for all lanes.", model.MetricTypeCounter, Full, driven(0, 2.4e5)},
	{
		"DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "Total number of NVLink retries.", model.MetricTypeCounter, Lean,
		faster(rare(60, 0.001), GPUNVLinkErrors, func(e event) float64 { return e.or(2) / 2 }),
	},
	{
		"DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "Total number of NVLink recovery errors.", model.MetricTypeCounter, Lean,
		faster(fixed(0), GPUNVLinkErrors, func(e event) float64 { return e.or(2) / 60 }),
	},
	{
		"DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS", "Number of times link went from Up to recovery, succeeded and link came back up.",
		model.MetricTypeCounter, Lean,
		faster(fixed(0), GPUNVLinkErrors, func(e event) float64 { return e.or(2) / 120 }),
	},
	{
		"DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS", "Number of times link went from Up to recovery, failed and link was declared down.",
		model.MetricTypeCounter, Lean,
		faster(fixed(0), GPUNVLinkErrors, func(e event) float64 { return e.or(2) / 120 }),
	},
	{
		"DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "Total number of single-bit volatile ECC errors.", model.MetricTypeCounter, Lean,
		faster(rare(50, 0.0004), GPUCorrectableECC, func(e event) float64 { return e.or(10) / 60 }),
	},
	{
		"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "Total number of double-bit volatile ECC errors.", model.MetricTypeCounter, Lean,
		jumps(false, func(e event) float64 { return e.or(1) }, GPUUncorrectableECC),
	},
	{
		"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "Number of remapped rows for uncorrectable errors.", model.MetricTypeCounter, Lean,
		jumps(true, once, GPUUncorrectableECC, GPURowRemapPending),
	},
	{"DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "Number of remapped rows for correctable errors.", model.MetricTypeCounter, Full, fixed(0)},
	{"DCGM_FI_DEV_ROW_REMAP_FAILURE", "Whether remapping of rows has failed.", model.MetricTypeGauge, Lean, flagged(GPURowRemapFailure)},
	{
		"DCGM_FI_DEV_ROW_REMAP_PENDING", "Whether remapping of rows is pending.", model.MetricTypeGauge, Lean,
		flagged(GPURowRemapPending, GPUUncorrectableECC),
	},
	{"DCGM_FI_DEV_THERMAL_VIOLATION", "Throttling duration due to thermal constraints (in ns).", model.MetricTypeCounter, Lean, violation(faster(rare(30, 9e5), GPUThrottled, func(e event) float64 { return e.or(0.2) * 1e9 }))},
	{"DCGM_FI_DEV_POWER_VIOLATION", "Throttling duration due to power constraints (in ns).", model.MetricTypeCounter, Lean, violation(driven(0, 2e6))},
	{
		"DCGM_FI_PROF_GR_ENGINE_ACTIVE", "Ratio of time the graphics engine is active.", model.MetricTypeGauge, Lean,
		used(0, 0.93, 0.05, false),
	},
	{"DCGM_FI_PROF_SM_ACTIVE", "The ratio of cycles an SM has at least 1 warp assigned.", model.MetricTypeGauge, Lean, used(0, 0.81, 0.08, false)},
	{
		"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "Ratio of cycles the tensor (HMMA) pipe is active.", model.MetricTypeGauge, Lean,
		used(0, 0.44, 0.08, false),
	},
	{"DCGM_FI_PROF_DRAM_ACTIVE", "Ratio of cycles the device memory interface is active sending or receiving data.", model.MetricTypeGauge, Lean, used(0, 0.52, 0.08, false)},
	{"DCGM_FI_PROF_PCIE_TX_BYTES", "The number of bytes of active PCIe tx data including both header and payload.", model.MetricTypeGauge, Lean, used(4e5, 9e8, 2e8, true)},
	{"DCGM_FI_PROF_PCIE_RX_BYTES", "The number of bytes of active PCIe rx data including both header and payload.", model.MetricTypeGauge, Lean, used(4e5, 1.1e9, 2e8, true)},
	{"DCGM_FI_PROF_NVLINK_TX_BYTES", "The number of bytes of active NVLink tx data including both header and payload.", model.MetricTypeGauge, Lean, used(0, 8e10, 1e10, true)},
	{"DCGM_FI_PROF_NVLINK_RX_BYTES", "The number of bytes of active NVLink rx data including both header and payload.", model.MetricTypeGauge, Lean, used(0, 8e10, 1e10, true)},
}

// onCard says whether DCGM has a value of a field for the card. Of links it has one set of counters
// or the other: DCGM_FI_DEV_NVLINK_COUNT_… is "NVLink5+ only" in its dcgm_fields.h, and its health
// check calls the others "Pre-Blackwell only".
func onCard(g gpuModel, field string) bool {
	switch {
	case strings.HasPrefix(field, "DCGM_FI_DEV_NVLINK_COUNT_"):
		return g.nvlink5
	case strings.HasPrefix(field, "DCGM_FI_DEV_NVLINK_") && strings.HasSuffix(field, "_ERROR_COUNT_TOTAL"):
		return !g.nvlink5
	}
	return true
}

func dcgmFamilies(d Detail) []family {
	var out []family
	for i := range dcgmFields {
		f := &dcgmFields[i]
		if f.detail > d {
			continue
		}
		out = append(out, family{f.name, f.help, f.typ, func(p *page, e *emitter) {
			if !onCard(p.m.gpuModel(p.node), f.name) {
				return
			}
			p.eachDevice(func(d device, h holder, pairs []string) {
				seed := hash(p.h, hashString(0, f.name), uint64(d.gpu))
				if d.slice >= 0 {
					seed = hash(seed, uint64(d.slice))
				}
				e.addIn(h.from, h.until, f.curve(p, p.host, d, seed), pairs...)
			})
		}})
	}
	return append(out,
		family{"DCGM_FI_DEV_XID_ERRORS", "Value of the last XID error encountered.", model.MetricTypeGauge, emitXidGauge},
		family{"DCGM_EXP_CLOCK_EVENTS_COUNT", "Count of clock events within the user-specified time window (see clock-events-count-window-size param).", model.MetricTypeGauge, emitClockEvents},
		family{"DCGM_EXP_XID_ERRORS_COUNT", "Count of XID Errors within user-specified time window (see xid-count-window-size param).", model.MetricTypeGauge, emitXidCount},
	)
}

func (m *Model) gpuUUID(node, gpu int) string {
	return "GPU-" + uuid(hash(m.seed, 'G', uint64(node), uint64(gpu)))
}

// eachDevice calls f for each GPU, or slice of one, and each pod that held it in
// the window, and not for the time in which the GPU is off the bus.
func (p *page) eachDevice(f func(d device, h holder, pairs []string)) {
	g := p.m.gpuModel(p.node)
	versions := p.m.driversOf(p.node)
	for _, d := range p.m.devices(p.node) {
		n := strconv.Itoa(d.gpu)
		base := append([]string{
			"gpu", n, "UUID", p.m.gpuUUID(p.node, d.gpu), "pci_bus_id", fmt.Sprintf("00000000:%02X:00.0", 0x19+d.gpu*0x11), "device",
			"nvidia" + n, "modelName", g.name,
		}, p.m.instance(p.node, d)...)
		base = append(base, "Hostname", p.m.nodeName(p.node), "DCGM_FI_DRIVER_VERSION", "")
		lost := p.host.lost(d.gpu)
		for _, h := range p.host.holders(d) {
			if h.until <= p.from || h.from > p.until {
				continue
			}
			pairs := base
			if h.pod != nil {
				pairs = append(base[:len(base):len(base)], "container", h.pod.container, "namespace", h.pod.space.name, "pod", h.pod.name)
				if p.m.o.Claims { // the claim of its template is named after the pod, with five letters more
					pairs = append(pairs, "dra_claim_name", h.pod.name+"-gpus-"+h.pod.uid[:5], "dra_claim_namespace", h.pod.space.name,
						"dra_device_name", "gpu-"+n, "dra_driver_name", "gpu.nvidia.com", "dra_pool_name", p.m.nodeName(p.node))
				}
			}
			for _, v := range versions {
				pairs[len(base)-1] = v.version
				without(lost, max(h.from, v.from), min(h.until, v.until), func(from, until int64) {
					f(d, holder{from, until, h.pod}, pairs)
				})
			}
		}
	}
}

// emitXidGauge: the last Xid, which never goes back to 0 until the machine is
// restarted; its text is in labels, so a new Xid is a new series.
func emitXidGauge(p *page, e *emitter) {
	p.eachDevice(func(d device, h holder, pairs []string) {
		at, code := int64(0), 0.0
		part := func(until int64) {
			if a, b := max(at, h.from), min(until, h.until); a < b {
				e.addIn(a, b, curve{base: code},
					append(pairs[:len(pairs):len(pairs)], "err_code", strconv.Itoa(int(code)), "err_msg", xidText[code])...)
			}
		}
		xids, boots := p.host.xids[d.gpu], p.machine.starts[1:]
		for len(xids)+len(boots) > 0 {
			if len(boots) > 0 && (len(xids) == 0 || boots[0] <= xids[0].from) {
				part(boots[0])
				at, code = boots[0], 0
				boots = boots[1:]
				continue
			}
			part(xids[0].from)
			at, code = xids[0].from, xids[0].value
			xids = xids[1:]
		}
		part(never)
	})
}

// xidWindow is dcgm-exporter's default.
const xidWindow = 300 * second

// emitXidCount: how often each Xid was seen in the last five minutes; the
// series is there only while it was.
func emitXidCount(p *page, e *emitter) {
	p.eachDevice(func(d device, h holder, pairs []string) {
		lost := p.host.lost(d.gpu)
		// What a GPU says that is off the bus nobody hears, and so nobody counts.
		xids := slices.DeleteFunc(slices.Clone(p.host.xids[d.gpu]), func(x event) bool {
			return slices.ContainsFunc(lost, func(l event) bool { return x.from >= l.from && x.from < l.until })
		})
		for i := range p.machine.starts {
			// A restart forgets the window.
			end, n := never, len(xids)
			if i+1 < len(p.machine.starts) {
				end = p.machine.starts[i+1]
				n = sort.Search(n, func(k int) bool { return xids[k].from > end })
			}
			for _, c := range xidCounts(xids[:n]) {
				if a, b := max(c.from, h.from), min(c.until, h.until, end); a < b {
					e.addIn(a, b, curve{base: c.count},
						append(pairs[:len(pairs):len(pairs)], "window_size_in_ms", "300000", "xid", strconv.Itoa(int(c.xid)))...)
				}
			}
			xids = xids[n:]
		}
	})
}

// xidCount is a stretch of time in which an Xid was seen so often within the window.
type xidCount struct {
	xid, count  float64
	from, until int64
}

// xidCounts cuts time where an Xid comes, and where it leaves the window: the same one twice within
// five minutes is one series that counts two.
func xidCounts(events []event) []xidCount {
	var out []xidCount
	edges := map[float64][]int64{}
	for _, x := range events {
		edges[x.value] = append(edges[x.value], x.from, x.from+xidWindow)
	}
	for _, xid := range slices.Sorted(maps.Keys(edges)) {
		times := edges[xid]
		slices.Sort(times)
		times = slices.Compact(times)
		for i, from := range times[:len(times)-1] {
			n := 0.0
			for _, x := range events {
				if x.value == xid && x.from <= from && from < x.from+xidWindow {
					n++
				}
			}
			if n > 0 {
				out = append(out, xidCount{xid, n, from, times[i+1]})
			}
		}
	}
	return out
}
