package cost

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// node is a machine of H100s, one of whose kind of pods holds all that it hands out for an hour.
type sharedNode struct {
	name, product string
	has           map[string]int // resources that it hands out, all of them held
	cards         int            // that DCGM sees; 0: it sees none
	free          int            // of the resource named first in has, that nobody holds
}

// load is the node's hour as kube-state-metrics and DCGM say it, each minute.
func (n sharedNode) load() string {
	var b strings.Builder
	ksm := func(metric, labels string, v int) {
		fmt.Fprintf(&b, "  %s{job=\"kube-state-metrics\",cluster=\"jaguar\",instance=\"a\",%s} %dx59\n", metric, labels, v)
	}
	pod := fmt.Sprintf("namespace=%q,pod=\"w\",uid=\"u-%s\"", n.name, n.name)
	ksm("kube_pod_status_phase", pod+`,phase="Running"`, 1)
	ksm("kube_node_labels", fmt.Sprintf("node=%q,", n.name)+n.labels(), 1)
	ksm("kube_node_status_condition", fmt.Sprintf("node=%q,condition=\"Ready\",status=\"true\"", n.name), 1)
	for _, resource := range sortedKeys(n.has) {
		of := fmt.Sprintf("node=%q,resource=%q", n.name, resource)
		ksm("kube_node_status_capacity", of, n.has[resource]+n.free)
		ksm("kube_node_status_allocatable", of, n.has[resource]+n.free)
		ksm("kube_pod_container_resource_requests", pod+`,container="x",`+of, n.has[resource])
	}
	for i := range n.cards {
		of := fmt.Sprintf("node=%q,gpu=\"%d\",namespace=%q,pod=\"w\"", n.name, i, n.name)
		fmt.Fprintf(&b, "  DCGM_FI_PROF_GR_ENGINE_ACTIVE{cluster=\"jaguar\",%s} 1x59\n", of)
	}
	return b.String()
}

// labels are those of the node by which its cards are known, as NVIDIA's feature discovery writes
// them, or of a product like nvidia-l4/10 those of GKE: ten clients for each, or slices of a size.
func (n sharedNode) labels() string {
	accelerator, of, gke := strings.Cut(n.product, "/")
	if !gke {
		return fmt.Sprintf("label_nvidia_com_gpu_product=%q", n.product)
	}
	how := "partition_size"
	if !strings.Contains(of, "g.") {
		how = "max_shared_clients_per_gpu"
	}
	how = "label_cloud_google_com_gke_" + strings.Replace("gpu_"+how, "gpu_max", "max", 1)
	return fmt.Sprintf("label_cloud_google_com_gke_accelerator=%q,%s=%q", accelerator, how, of)
}

// TestSharedCards: a machine of eight cards at $2.50 costs $20 an hour, however it is cut.
func TestSharedCards(t *testing.T) {
	const h100, gpu, mig = "NVIDIA-H100-80GB-HBM3", "nvidia_com_gpu", "nvidia_com_mig_"
	nodes := []struct {
		sharedNode
		hours, free string
	}{
		{sharedNode{"whole", h100, map[string]int{gpu: 8}, 8, 0}, "8.000", "0.000"},
		{sharedNode{"sliced", h100 + "-SHARED", map[string]int{gpu: 32}, 8, 0}, "8.000", "0.000"},
		{sharedNode{"unmeasured", h100 + "-SHARED", map[string]int{gpu: 32}, 0, 0}, "8.000", "0.000"},
		{sharedNode{"single", h100 + "-MIG-1g.10gb", map[string]int{gpu: 56}, 8, 0}, "8.000", "0.000"},
		// As GKE labels them, which has no feature discovery.
		{sharedNode{"gke-single", "nvidia-h100-80gb/1g.10gb", map[string]int{gpu: 56}, 8, 0}, "8.000", "0.000"},
		{sharedNode{"gke-clients", "nvidia-h100-80gb/4", map[string]int{gpu: 32}, 0, 0}, "8.000", "0.000"},
		// What renameByDefault calls shares; the GPUs that the node had before stay there as 0.
		{sharedNode{"renamed", h100, map[string]int{gpu + "_shared": 32, gpu: 0}, 8, 0}, "8.000", "0.000"},
		{sharedNode{"renamed-unmeasured", h100, map[string]int{gpu + "_shared": 32}, 0, 0}, "8.000", "0.000"},
		{sharedNode{"renamed-half", h100, map[string]int{gpu + "_shared": 4}, 2, 4}, "1.000", "1.000"},
		// Half of the shares of two cards: of a node with fewer cards than --cards-per-node.
		{sharedNode{"half", h100 + "-SHARED", map[string]int{gpu: 4}, 2, 4}, "1.000", "1.000"},
		// Four cards whole, four in two slices of 3g each, which leave a seventh to nobody.
		{sharedNode{"mixed", h100, map[string]int{gpu: 4, mig + "3g_40gb": 8}, 8, 0}, "8.000", "0.000"},
		// The same where nobody sees the cards: 24 sevenths and four.
		{sharedNode{"dark", h100, map[string]int{gpu: 4, mig + "3g_40gb": 8}, 0, 0}, "7.429", "0.000"},
	}
	text := "load 1m\n  up{job=\"kube-state-metrics\",cluster=\"jaguar\",instance=\"a\"} 1x59\n"
	for _, n := range nodes {
		text += n.load()
	}
	o := smallOptions(t, loaded(t, text).URL())
	o.Range, o.By = Range{smallFrom, smallFrom.Add(time.Hour), time.UTC}, []Dimension{Namespace, Model}
	o.Directory.Prices["nvidia-h100-80gb"] = 2.5
	b, err := Make(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]Row{}
	for _, r := range b.Rows {
		rows[strings.Join(r.Keys, " ")] = r
	}
	for _, n := range nodes {
		model := h100
		if gke, _, ok := strings.Cut(n.product, "/"); ok {
			model = gke
		}
		r, ok := rows[n.name+" "+model]
		if !ok {
			t.Errorf("%s has no row of model %s: %v", n.name, model, b.Rows)
			continue
		}
		if r.GPUHours.String() != n.hours || r.Cost == nil {
			t.Errorf("%s: %s GPU hours are billed for %v, want %s", n.name, r.GPUHours, r.Cost, n.hours)
		} else if n.hours == "8.000" && *r.Cost != 2000 {
			t.Errorf("%s: a machine of $20 costs %s", n.name, r.Cost)
		}
	}
	var capacity, held, free Milli
	for _, f := range b.Fleet {
		capacity, held, free = capacity+f.Capacity, held+f.Held, free+f.Free
	}
	if capacity != held+free || free != 2000 {
		t.Errorf("of %s card hours %s were held and %s free, want 2.000 free and nothing else", capacity, held, free)
	}
}

// TestModelOfNodeThatJoins: GKE names the accelerator of a node at once, NVIDIA's feature discovery
// its product minutes later; all of the node's time is of that product.
func TestModelOfNodeThatJoins(t *testing.T) {
	const gke = `,label_cloud_google_com_gke_accelerator="nvidia-h100-80gb"`
	lines := []string{podText("v", "a", "nvidia_com_gpu", 8, everyHour)}
	for labels, course := range map[string]string{gke: "1x3 stale", gke + anH100: "_x4 1x115"} {
		lines = append(lines, fmt.Sprintf("  kube_node_labels{%s,node=\"a\"%s} %s\n", ofKSM, labels, course))
	}
	_, offers, _ := strings.Cut(nodeText("a", "", 8, everyHour), "\n") // all but its labels
	o := optionsOf(t, twoDollars, append(lines, offers)...)
	o.By = []Dimension{Model}
	b, err := Make(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Rows) != 1 || b.Rows[0].Keys[0] != "NVIDIA-H100" || b.Rows[0].GPUHours != 16000 || b.Rows[0].Cost == nil ||
		*b.Rows[0].Cost != 3200 {
		t.Errorf("the rows are %+v", b.Rows)
	}
	if len(b.Fleet) != 1 || b.Fleet[0].Model != "NVIDIA-H100" || b.Fleet[0].Capacity != 16000 {
		t.Errorf("the fleet is %+v", b.Fleet)
	}
}

func TestCardsPerNode(t *testing.T) {
	n := Names{CardsPerNode: -1}.withDefaults()
	if err := n.validate(); err == nil || !strings.Contains(err.Error(), "--cards-per-node=-1") {
		t.Errorf("-1 cards: %v", err)
	}
}
