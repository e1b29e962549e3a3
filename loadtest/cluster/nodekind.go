package cluster

import (
	"math"
	"strconv"
)

// Sharing is how the device plugin of a node hands out its GPUs.
type Sharing int

const (
	// WholeGPUs: one GPU is one nvidia.com/gpu.
	WholeGPUs Sharing = iota
	// TimeSliced: each GPU is four nvidia.com/gpu, which take turns on it (MPS looks the same from
	// outside). The product ends in -SHARED, and dcgm-exporter names one of the pods on a GPU.
	TimeSliced
	// MIGSingle: each GPU is cut into seven slices of 1g, all of which are nvidia.com/gpu; the
	// product ends in the profile. dcgm-exporter shows slices.
	MIGSingle
	// MIGMixed: the first half of the GPUs are whole, the others cut into two slices of 3g, which
	// are resources of their own.
	MIGMixed
)

// System is the operating system of a node.
type System int

const (
	// Ubuntu has a root that is written to.
	Ubuntu System = iota
	// ContainerOptimized is Google's: a verified root, and /mnt/stateful_partition.
	ContainerOptimized
	// Bottlerocket is Amazon's: a verified root, and /local, a folder of which is /var.
	Bottlerocket
	// Talos has a squashed root, and /var.
	Talos
)

// NodeKind is how the machines of a rack are set up. The zero value is a node of whole GPUs with
// Ubuntu and today's DCGM.
type NodeKind struct {
	Sharing Sharing
	System  System
	// Microseconds says that DCGM counts violations in µs, as it did up to 4.0; else in ns.
	Microseconds bool
}

// kind is how a node is set up: racks take the kinds in turn.
func (m *Model) kind(node int) NodeKind {
	if len(m.o.NodeKinds) == 0 {
		return NodeKind{}
	}
	return m.o.NodeKinds[m.rack(node)%len(m.o.NodeKinds)]
}

// alike is how many nodes from n on, at most want, share their GPUs as n does: a gang runs on such.
func (m *Model) alike(n, want int) int {
	k := m.kind(n).Sharing
	for i := 1; i < want; i++ {
		if m.kind(n+i).Sharing != k {
			return i
		}
	}
	return want
}

// cut is how one GPU is handed out: in n parts, each one of a resource. Parts with a profile are
// slices of MIG.
type cut struct {
	n                 int
	resource, profile string
}

const gpuResource = "nvidia_com_gpu"

func (m *Model) cut(node, gpu int) cut {
	g := m.gpuModel(node)
	switch m.kind(node).Sharing {
	case TimeSliced:
		return cut{n: 4, resource: gpuResource}
	case MIGSingle:
		return cut{n: 7, resource: gpuResource, profile: "1g." + g.slice1}
	case MIGMixed:
		if gpu >= (m.o.GPUsPerNode+1)/2 {
			return cut{n: 2, resource: "nvidia_com_mig_3g_" + g.slice3, profile: "3g." + g.slice3}
		}
	}
	return cut{n: 1, resource: gpuResource}
}

// product is the label nvidia.com/gpu.product, as gpu-feature-discovery writes it.
func (m *Model) product(node int) string {
	g := m.gpuModel(node)
	switch m.kind(node).Sharing {
	case TimeSliced:
		return g.product + "-SHARED"
	case MIGSingle:
		return g.product + "-MIG-1g." + g.slice1
	}
	return g.product
}

// device is what DCGM has a line of its own for: a GPU (slice is -1), or a slice of one.
type device struct{ gpu, slice int }

// devices are those of a node, by GPU.
func (m *Model) devices(node int) []device {
	var out []device
	for gpu := range m.o.GPUsPerNode {
		c := m.cut(node, gpu)
		if c.profile == "" {
			out = append(out, device{gpu, -1})
			continue
		}
		for i := range c.n {
			out = append(out, device{gpu, i})
		}
	}
	return out
}

// instance are the labels of a slice; none of a whole GPU. The driver numbers slices of one GPU
// from 1 where they are two, and from 7 where they are seven.
func (m *Model) instance(node int, d device) []string {
	if d.slice < 0 {
		return nil
	}
	c := m.cut(node, d.gpu)
	id := d.slice + 1
	if c.n == 7 {
		id = d.slice + 7
	}
	return []string{"GPU_I_ID", strconv.Itoa(id), "GPU_I_PROFILE", c.profile}
}

// whole is how many GPUs from one on are handed out whole.
func (m *Model) whole(node, gpu int) int {
	n := 0
	for gpu+n < m.o.GPUsPerNode && m.cut(node, gpu+n).n == 1 {
		n++
	}
	return n
}

// size is the part of its GPU that a device is.
func (m *Model) size(node int, d device) float64 {
	if d.slice < 0 {
		return 1
	}
	return 1 / float64(m.cut(node, d.gpu).n)
}

// lane is a device on which a pod works, and how hard.
type lane struct {
	device
	load float64
}

// lanes are the devices on which a pod of the pool works, each with its load: a pod that has a part
// of a GPU is a part of the GPU's load, and all of its slice's.
func (m *Model) lanes(node int, p *pool, load float64) []lane {
	var out []lane
	for g := p.gpu; g < p.gpu+p.gpus; g++ {
		if p.parts == 0 {
			out = append(out, lane{device{g, -1}, load})
			continue
		}
		out = append(out, lane{device{g, -1}, inParts(load, p.parts)})
		if m.cut(node, g).profile != "" {
			out = append(out, lane{device{g, p.part}, load})
		}
	}
	return out
}

// inParts is the load of a pod that has one of n parts of a GPU, in 64ths as steps want it.
func inParts(load float64, n int) float64 { return math.Round(64*load/float64(n)) / 64 }

// offer is how many of a resource each GPU of a node is.
type offer struct {
	resource string
	of       []float64 // by GPU
}

// offers lists what the device plugin of a node hands out; of claims there is no plugin.
func (m *Model) offers(node int) []offer {
	if m.o.Claims {
		return nil
	}
	var out []offer
	for gpu := range m.o.GPUsPerNode {
		c := m.cut(node, gpu)
		i := 0
		for i < len(out) && out[i].resource != c.resource {
			i++
		}
		if i == len(out) {
			out = append(out, offer{c.resource, make([]float64, m.o.GPUsPerNode)})
		}
		out[i].of[gpu] = float64(c.n)
	}
	return out
}

// fileSystem is one that node_exporter sees.
type fileSystem struct {
	device, fstype, mountpoint string
	size, used                 float64
	folderOf                   string // the mount point that it is a folder of, mounted once more
	fixed                      bool   // read-only from the start
	system                     bool   // what NodeDiskFull and NodeDiskReadOnly take
}

// scratch is where the jobs of a node keep what they can lose.
const scratch = "/mnt/scratch"

var scratchFS = fileSystem{device: "/dev/nvme1n1", fstype: "xfs", mountpoint: scratch, size: 3.8e12, used: 0.55}

// system is what tells an operating system on the pages of its nodes.
type system struct {
	image, kernel string
	files         []fileSystem
	release       []string // labels of node_os_info
}

// The mounts are those that node_exporter shows on such nodes, by the systems' own
// documentation. An image is as full as it was built, a squashed one to its last
// block.
var systems = map[System]system{
	Ubuntu: {
		image: "Ubuntu 22.04.5 LTS", kernel: "6.8.0-1021-nvidia",
		files: []fileSystem{{device: "/dev/nvme0n1p2", fstype: "ext4", mountpoint: "/", size: 4.7e11, used: 0.38, system: true}, scratchFS},
		release: []string{
			"build_id", "", "id", "ubuntu", "id_like", "debian", "image_id", "", "image_version", "", "name", "Ubuntu", "pretty_name",
			"Ubuntu 22.04.5 LTS", "variant", "", "variant_id", "", "version", "22.04.5 LTS (Jammy Jellyfish)", "version_codename", "jammy",
			"version_id", "22.04",
		},
	},
	ContainerOptimized: {
		image: "Container-Optimized OS from Google", kernel: "6.6.87+",
		files: []fileSystem{
			{device: "/dev/dm-0", fstype: "ext2", mountpoint: "/", size: 2.08e9, used: 0.62, fixed: true},
			{device: "/dev/nvme0n1p1", fstype: "ext4", mountpoint: "/mnt/stateful_partition", size: 4.6e11, used: 0.38, system: true},
			{device: "/dev/nvme0n1p8", fstype: "ext4", mountpoint: "/usr/share/oem", size: 1.2e7, used: 0.02, fixed: true},
			scratchFS,
		},
		release: []string{
			"build_id", "18867.90.97", "id", "cos", "id_like", "", "image_id", "", "image_version", "", "name", "Container-Optimized OS",
			"pretty_name", "Container-Optimized OS from Google", "variant", "", "variant_id", "", "version", "121", "version_codename", "",
			"version_id", "121",
		},
	},
	Bottlerocket: {
		image: "Bottlerocket OS 1.49.0 (aws-k8s-1.34-nvidia)", kernel: "6.12.46",
		files: []fileSystem{
			{device: "/dev/dm-0", fstype: "ext4", mountpoint: "/", size: 9.5e8, used: 0.67, fixed: true},
			{device: "/dev/nvme2n1p1", fstype: "xfs", mountpoint: "/local", size: 4.6e11, used: 0.38, system: true},
			{device: "/dev/nvme2n1p1", fstype: "xfs", mountpoint: "/var", folderOf: "/local", size: 4.6e11, used: 0.38, system: true},
			scratchFS,
		},
		release: []string{
			"build_id", "1f4a1b4c", "id", "bottlerocket", "id_like", "", "image_id", "", "image_version", "", "name", "Bottlerocket",
			"pretty_name", "Bottlerocket OS 1.49.0 (aws-k8s-1.34-nvidia)", "variant", "", "variant_id", "aws-k8s-1.34-nvidia", "version",
			"1.49.0 (aws-k8s-1.34-nvidia)", "version_codename", "", "version_id", "1.49.0",
		},
	},
	Talos: {
		image: "Talos (v1.11.3)", kernel: "6.12.48-talos",
		files: []fileSystem{
			{device: "/dev/loop0", fstype: "squashfs", mountpoint: "/", size: 7.9e7, used: 1, fixed: true},
			{device: "/dev/nvme0n1p6", fstype: "xfs", mountpoint: "/var", size: 4.6e11, used: 0.38, system: true},
			{device: "/dev/nvme0n1p5", fstype: "xfs", mountpoint: "/system/state", size: 9.2e7, used: 0.07},
			scratchFS,
		},
		release: []string{
			"build_id", "", "id", "talos", "id_like", "", "image_id", "", "image_version", "", "name", "Talos", "pretty_name",
			"Talos (v1.11.3)", "variant", "", "variant_id", "", "version", "v1.11.3", "version_codename", "", "version_id", "v1.11.3",
		},
	},
}

func (m *Model) system(node int) system { return systems[m.kind(node).System] }
