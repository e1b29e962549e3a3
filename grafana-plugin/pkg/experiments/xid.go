package experiments

import (
	"slices"
	"strconv"
)

// Class says what a fault asks for. The first seven are those of Xids in jsonnet/lib/xid.libsonnet.
type Class string

const (
	ClassDead   Class = "dead"   // cordon now and reboot; still there: send it back
	ClassHard   Class = "hard"   // drain, reset the GPU
	ClassAction Class = "action" // what the driver wants has changed, perhaps to nothing
	ClassLink   Class = "link"   // NVLink and PCIe: once is a retry
	ClassSoft   Class = "soft"   // let the job end, then reset the GPU
	ClassApp    Class = "app"    // the job brought it on itself
	ClassInfo   Class = "info"   // nothing is to be done
	// ClassUnknown is that of Xids which are not in the table: treated as soft.
	ClassUnknown Class = "unknown"
	// ClassMemory is what DCGM says of memory without an Xid.
	ClassMemory Class = "memory"
	// ClassThermal is heat, and what is slowed down by it.
	ClassThermal Class = "thermal"
	// ClassUnmeasured is GPUs of which nobody knows how they are.
	ClassUnmeasured Class = "unmeasured"
)

// Classes are all of them, the worst first.
var Classes = []Class{
	ClassDead, ClassHard, ClassMemory, ClassAction, ClassLink, ClassSoft, ClassUnknown, ClassThermal, ClassUnmeasured,
	ClassApp, ClassInfo,
}

// rank is smaller for worse classes; one that a site made up itself stands with the unknown.
func (c Class) rank() int {
	if i := slices.Index(Classes, c); i >= 0 {
		return i
	}
	return slices.Index(Classes, ClassUnknown)
}

// Action is what a researcher does about a fault of the class, a sentence or two.
func (c Class) Action() string {
	switch c {
	case ClassDead:
		return "The job is lost here: restart it without this node. Operators cordon and reboot the node, and send the GPU back if it stays."
	case ClassHard:
		return "Restart the job without this node. Operators drain it and reset the GPU."
	case ClassAction:
		return "The recovery that the driver wants has changed, perhaps to none: operators know which. The Xid beside it says what happened."
	case ClassLink:
		return "Once is a retry. Twice in a day slows every job that spans the link: restart without this node."
	case ClassSoft, ClassUnknown:
		return "Let the job end; operators reset the GPU before the next one."
	case ClassApp:
		return "The job brought it on itself: look at its own log. The GPU is fine."
	case ClassInfo:
		return "Nothing is to be done: the driver tells of what it has mended itself, or of what another Xid beside it says."
	case ClassMemory:
		return "Save a checkpoint; operators reset the GPU when the job has ended."
	case ClassThermal:
		return "It slows the jobs that wait for it: tell the operators, who look at the cooling."
	case ClassUnmeasured:
		return "Nothing is known of these GPUs: operators look at dcgm-exporter on this node."
	}
	return "Ask the operators."
}

// Xid is one of NVIDIA's errors.
type Xid struct {
	Number int64
	Class  Class
	Name   string
}

// Xids are those that are known, by number: the same as in jsonnet/lib/xid.libsonnet, and a test
// compares both. A site that moved one to another class has that class in the recorded series
// gpu:xid_errors:count5m, and it goes before this one.
var Xids = []Xid{
	{13, ClassApp, "graphics engine exception"},
	{31, ClassApp, "GPU memory page fault"},
	{43, ClassApp, "GPU stopped processing"},
	{45, ClassApp, "preemptive cleanup after earlier errors"},
	{46, ClassHard, "GPU stopped processing, reset needed"},
	{48, ClassHard, "double-bit ECC error"},
	{54, ClassSoft, "auxiliary power not connected"},
	{62, ClassHard, "internal micro-controller halt"},
	{63, ClassSoft, "row remapping recorded"},
	{64, ClassHard, "row remapping failed"},
	{68, ClassApp, "video processor exception"},
	{74, ClassLink, "NVLink error"},
	{79, ClassDead, "GPU has fallen off the bus"},
	{92, ClassSoft, "high rate of single-bit ECC errors"},
	{94, ClassSoft, "contained ECC error"},
	{95, ClassHard, "uncontained ECC error"},
	{109, ClassHard, "context switch timeout"},
	{110, ClassHard, "security fault"},
	{119, ClassHard, "GSP RPC timeout"},
	{120, ClassHard, "GSP error"},
	{121, ClassInfo, "C2C link corrected error"},
	{136, ClassHard, "NVLink training failed"},
	{137, ClassApp, "NVLink privilege error"},
	{140, ClassHard, "unrecovered ECC error"},
	{141, ClassInfo, "CUDA fast path error"},
	{143, ClassHard, "GPU initialisation failed"},
	{144, ClassLink, "NVLink SAW error"},
	{145, ClassLink, "NVLink RLW error"},
	{146, ClassLink, "NVLink TLW error"},
	{147, ClassLink, "NVLink TREX error"},
	{148, ClassLink, "NVLink NVLPW error"},
	{149, ClassLink, "NVLink NETIR error"},
	{150, ClassLink, "NVLink MSE error"},
	{151, ClassDead, "key rotation error"},
	{154, ClassAction, "recovery action changed"},
	{155, ClassLink, "NVLink down by software"},
	{156, ClassHard, "resource retired"},
	{158, ClassHard, "GPU fatal timeout"},
	{160, ClassInfo, "channel retirement event"},
	{161, ClassInfo, "channel retirement failure"},
	{162, ClassInfo, "power smoothing engaged again"},
	{163, ClassInfo, "power smoothing disengaged"},
	{167, ClassSoft, "PCIe fatal timeout"},
	{169, ClassSoft, "SEC2 halt"},
	{171, ClassInfo, "uncorrectable DRAM error"},
	{172, ClassInfo, "uncorrectable SRAM error"},
}

// XidOf returns what is known of the Xid that a label says; for others the name is "not in the
// table" and the class ClassUnknown. ok is false for what is no Xid: 0, which means none, or no
// number.
func XidOf(label string) (x Xid, ok bool) {
	n, err := strconv.ParseInt(label, 10, 64)
	if err != nil || n <= 0 {
		return Xid{}, false
	}
	i, found := slices.BinarySearchFunc(Xids, n, func(x Xid, n int64) int { return int(x.Number - n) })
	if !found {
		return Xid{n, ClassUnknown, "not in the table"}, true
	}
	return Xids[i], true
}
