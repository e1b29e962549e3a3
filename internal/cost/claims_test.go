package cost

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestClaims: two hours of a node of nine cards that pods have through ResourceClaims. What each
// pod had is in the comments; in the second hour the exporter is silent, and pods keep what they
// have.
func TestClaims(t *testing.T) {
	var b strings.Builder
	b.WriteString("load 1m\n")
	line := func(format string, a ...any) { fmt.Fprintf(&b, "  "+format+"\n", a...) }
	ksm := `job="kube-state-metrics",cluster="jaguar",instance="a"`
	line(`up{%s} 1x119`, ksm)
	line(`kube_node_labels{%s,node="n",label_nvidia_com_gpu_product="NVIDIA-H100-80GB-HBM3"} 1x119`, ksm)
	line(`kube_node_status_condition{%s,node="n",condition="Ready",status="true"} 1x119`, ksm)
	line(`kube_node_status_capacity{%s,node="cpus",resource="cpu"} 64x119`, ksm)
	line(`kube_node_status_condition{%s,node="cpus",condition="Ready",status="true"} 1x119`, ksm)
	runs := func(namespace, uid, when string) {
		line(`kube_pod_status_phase{%s,namespace=%q,pod="w",uid=%q,phase="Running"} %s`, ksm, namespace, uid, when)
	}
	has := func(namespace, gpu, slice, when string) {
		labels := fmt.Sprintf(`cluster="jaguar",job="dcgm-exporter",node="n",gpu=%q`, gpu)
		if slice != "" {
			id, profile, _ := strings.Cut(slice, " ")
			labels += fmt.Sprintf(",GPU_I_ID=%q,GPU_I_PROFILE=%q", id, profile)
		}
		if namespace != "" {
			labels += fmt.Sprintf(`,namespace=%q,pod="w",dra_driver_name="gpu.nvidia.com",dra_claim_namespace=%q`, namespace, namespace)
		}
		line("DCGM_FI_DEV_GPU_TEMP{%s} %s", labels, when)
	}
	const first, second, all = "1x59 _x60", "_x60 1x59", "1x119"
	// Two cards, for both hours; of the second one only kube-state-metrics knows.
	runs("whole", "1", all)
	has("whole", "0", "", first)
	has("whole", "1", "", first)
	// One card for an hour, and in the last half of it with another one: 0.75 and 0.25.
	runs("long", "2", first)
	has("long", "2", "", first)
	runs("short", "3", "_x30 1x29 _x60")
	has("short", "2", "", "_x30 1x29 _x60")
	// Two cards for a third of an hour, then one of the same name has one for the rest: 4/3.
	runs("again", "4", "1x19 _x100")
	has("again", "3", "", "1x19 stale _x99")
	has("again", "4", "", "1x19 stale _x99")
	runs("again", "5", "_x20 1x39 _x60")
	has("again", "5", "", "_x20 1x39 _x60")
	// Three sevenths and one of a card that is cut in seven, three are free; half of one that is
	// cut in two of 3g.
	runs("slices", "6", first)
	has("slices", "6", "1 3g.40gb", first)
	has("slices", "6", "2 1g.10gb+me", first)
	has("", "6", "3 3g.40gb", first)
	has("slices", "7", "1 3g.40gb", first)
	has("", "7", "2 3g.40gb", first)
	// NVIDIA's exporter looks on by a claim of its own.
	for i := range 8 {
		has("gpu-operator", strconv.Itoa(i), "", first)
	}
	runs("gpu-operator", "10", all)
	// The node had a device plugin before, which left a capacity of 0.
	line(`kube_node_status_capacity{%s,node="n",resource="nvidia_com_gpu"} 0x119`, ksm)
	line(`kube_node_status_allocatable{%s,node="n",resource="nvidia_com_gpu"} 0x119`, ksm)
	// Runs without a GPU beside one that has some.
	runs("whole", "7", all)
	// Ran in the second hour only, when nobody said what it had; another one of its name had a card
	// in the first.
	runs("late", "8", second)
	runs("late", "9", "1x9 _x110")
	has("late", "8", "", "1x9 stale _x109")

	text := strings.Replace(b.String(), `pod="w",uid="7"`, `pod="cpu",uid="7"`, 1)
	o := smallOptions(t, loaded(t, text).URL())
	o.Range, o.By = Range{smallFrom, smallFrom.Add(2 * time.Hour), time.UTC}, []Dimension{Namespace, Model}
	bill, err := Make(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, r := range bill.Rows {
		got[strings.Join(r.Keys, " ")] = r.GPUHours.Hours()
	}
	want := map[string]float64{"whole": 4, "long": 0.75, "short": 0.25, "again": 4.0 / 3, "slices": 4.0/7 + 0.5, "late": 1.0 / 6}
	for namespace, hours := range want { // rows are rounded so that they add up
		if k := namespace + " NVIDIA-H100-80GB-HBM3"; math.Abs(got[k]-hours) > 0.001 {
			t.Errorf("%s: %.3f GPU hours are billed, want %.3f", k, got[k], hours)
		}
	}
	if len(got) != len(want) {
		t.Errorf("the rows are %v", got)
	}
	// Nine cards in the first hour; of the second nobody knows but what a pod kept.
	for _, f := range bill.Fleet {
		if f.Capacity+f.Beyond != f.Held+f.Free+f.Unhealthy || f.Capacity != 9000 || f.Beyond != 2000 || f.Unhealthy != 0 {
			t.Errorf("the fleet is %+v", f)
		}
	}
}
