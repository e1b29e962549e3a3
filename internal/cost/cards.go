package cost

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
)

// What is billed are cards. Where a card is shared, its node hands out more GPUs than it has cards:
// with time slicing and with MIG's strategy "single" under the name of a whole GPU, and NVIDIA's
// feature discovery ends the product in -SHARED or -MIG-… (GKE has labels of its own for that);
// with its renameByDefault as nvidia.com/gpu.shared, and the product stays as it is; with MIG's
// strategy "mixed" under names of their own, which say how many of a card's seven parts a slice
// has. The recording rules count the same way (node:gpu_share:ratio and node:gpu_slice:ratio).

const (
	wholeResource  = "nvidia_com_gpu"
	sharedResource = wholeResource + "_shared"
	sliceResources = "nvidia_com_mig_[1-7]g_.+"
	sevenths       = 7
	// gkeModel names the model of a card where no feature discovery does, within the whole window.
	gkeModel = "label_cloud_google_com_gke_accelerator"
)

var (
	// gkeShares are the labels that GKE gives to nodes whose GPUs are slices, or are shared.
	gkeShares = []string{
		"label_cloud_google_com_gke_gpu_partition_size", "label_cloud_google_com_gke_max_shared_clients_per_gpu",
	}
	sharedModel   = regexp.MustCompile(`^(.+?)(?:-SHARED|-MIG-.+)$`)
	sliceResource = regexp.MustCompile(`^nvidia_com_mig_([1-7])g_.+$`)
)

// sizeOf is how many of a card's seven parts one of a resource has; 0 is a GPU.
func sizeOf(resource string) float64 {
	m := sliceResource.FindStringSubmatch(resource)
	if m == nil {
		return 0
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		panic(fmt.Sprintf("the size of %s: %v", resource, err)) // it is a digit
	}
	return v
}

// device is a resource that somebody has some of: a container, or a node as one replica of
// kube-state-metrics shows it.
type device struct{ of, resource string }

// sortedDevices are the keys in order: floats do not add up to the same in another one.
func sortedDevices(m map[device]float64) []device {
	return slices.SortedFunc(maps.Keys(m), func(a, b device) int {
		return cmp.Or(cmp.Compare(a.of, b.of), cmp.Compare(a.resource, b.resource))
	})
}

// parts are what the GPUs, the sevenths and the renamed shares of a node are of its cards.
type parts struct{ gpu, seventh, share float64 }

var whole = parts{1, 1.0 / sevenths, 1}

// of is what one of a resource is of a card.
func (p parts) of(resource string) float64 {
	if size := sizeOf(resource); size > 0 {
		return size * p.seventh
	}
	if resource == sharedResource {
		return p.share
	}
	return p.gpu
}

// partsOf is what a node's GPUs and sevenths are of its cards: cards are those that DCGM saw there,
// 0 for none, gpus, shares and slices what the node hands out, slices in sevenths.
func partsOf(shared bool, cards, perNode, gpus, shares, slices float64) parts {
	p := whole
	if shared {
		have := cards
		if have == 0 {
			have = perNode
		}
		if have < gpus {
			p.gpu = have / gpus
		}
	}
	if have := cmp.Or(cards, perNode); shares > 0 {
		if gpus < have { // else they were renamed within the window
			have -= gpus
		}
		p.share = min(1, have/shares)
	}
	// What two slices of 3g leave of a card nobody else can have.
	if rest := cards - gpus; rest > 0 && slices > 0 {
		p.seventh = rest / slices
	}
	return p
}
