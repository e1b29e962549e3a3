package cost

import (
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"
	"time"
)

// machines are two hours of four nodes, written by hand. a has 8 H100, kept for vision by a taint
// for 90 minutes (with two effects), of which vision holds 2 all the time. b has 4, one of them
// broken, and sandbox holds 1 for an hour. c has one L4, free. d has none.
func machines() string {
	var b strings.Builder
	b.WriteString("load 1m\n")
	const ksm = `job="kube-state-metrics",cluster="jaguar",instance="a"`
	line := func(format string, a ...any) { fmt.Fprintf(&b, "  "+format+"\n", a...) }
	line(`up{%s} 1x119`, ksm)
	node := func(name, labels string, capacity, allocatable int) {
		line(`kube_node_labels{%s,node=%q%s} 1x119`, ksm, name, labels)
		line(`kube_node_status_condition{%s,node=%q,condition="Ready",status="true"} 1x119`, ksm, name)
		line(`kube_node_status_capacity{%s,node=%q,resource="cpu"} 64x119`, ksm, name)
		if capacity > 0 {
			line(`kube_node_status_capacity{%s,node=%q,resource="nvidia_com_gpu"} %dx119`, ksm, name, capacity)
			line(`kube_node_status_allocatable{%s,node=%q,resource="nvidia_com_gpu"} %dx119`, ksm, name, allocatable)
		}
	}
	const h100 = `,label_nvidia_com_gpu_product="NVIDIA-H100-80GB-HBM3"`
	node("a", h100+`,label_eks_amazonaws_com_capacity_type="ON_DEMAND"`, 8, 8)
	node("b", h100+`,label_karpenter_sh_capacity_type="spot"`, 4, 3)
	node("c", `,label_nvidia_com_gpu_product="NVIDIA-L4",label_cloud_google_com_gke_spot="true"`, 1, 1)
	node("d", `,label_kubernetes_azure_com_scalesetpriority="spot"`, 0, 0)
	for _, effect := range []string{"NoSchedule", "NoExecute"} {
		line(`kube_node_spec_taint{%s,node="a",key="team",value="vision",effect=%q} 1x89`, ksm, effect)
	}
	line(`kube_node_spec_taint{%s,node="a",key="pool",value="audio",effect="NoSchedule"} 1x119`, ksm)

	pods := 0
	pod := func(namespace, node, when string, requests ...string) {
		pods++
		of := fmt.Sprintf(`%s,namespace=%q,pod="p",uid="%d"`, ksm, namespace, pods)
		line(`kube_pod_status_phase{%s,phase="Running"} 1%s`, of, when)
		for i, r := range requests {
			resource, v, _ := strings.Cut(r, " ")
			line(`kube_pod_container_resource_requests{%s,container="x%d",node=%q,resource=%q} %s%s`, of, i/2, node, resource, v, when)
		}
	}
	const all, hour, late = "x119", "x59 _x60", "x44 _x60"
	pod("research-vision", "a", all, "nvidia_com_gpu 2", "cpu 20")
	pod("sandbox", "b", hour, "nvidia_com_gpu 1")
	// Work without GPUs: 4 cores and 8 GiB in two containers for two hours, 2 cores for 45 minutes;
	// and a pod beside the GPUs, whose node is paid for by them.
	pod("builds", "d", all, "cpu 3", "memory 4294967296", "cpu 1", "memory 4294967296")
	pod("research-vision", "d", late, "cpu 2")
	pod("kube-system", "a", all, "cpu 0.5", "memory 1073741824")
	pod("sandbox", "d", all) // asks for nothing
	return b.String()
}

func machinesOptions(t *testing.T, directory string) Options {
	t.Helper()
	d, err := ParseDirectory([]byte(directory))
	if err != nil {
		t.Fatal(err)
	}
	return Options{
		Client: testClient(t, loaded(t, machines()).URL()), Range: Range{smallFrom, smallFrom.Add(2 * time.Hour), time.UTC},
		By: []Dimension{Team}, Directory: d, Now: func() time.Time { return smallFrom.Add(48 * time.Hour) },
	}
}

const machinesDirectory = `
currency: USD
prices: {"*H100*": 2.5}
teams:
  - {name: vision, contact: "#vision", namespaces: ["research-vision"]}
`

// wantMachines makes sure that money adds up: rows to the total, what is billed, free and unhealthy
// to what the machines cost, and the fleet's rows to that.
func wantMachines(t testing.TB, b *Bill) {
	t.Helper()
	m := b.Machines
	if m == nil {
		t.Fatal("the machines cost nothing")
		return
	}
	var rows, capacity, held, free, unhealthy, beyond, reserved Hundredths
	for _, r := range b.Rows {
		if r.Cost != nil {
			rows += *r.Cost
		}
	}
	for _, f := range b.Fleet {
		if f.Held+f.Free+f.Unhealthy-f.Beyond != f.Capacity {
			t.Errorf("the GPU hours of a row do not add up: %+v", f)
		}
		if f.CapacityCost == nil {
			continue
		}
		if *f.HeldCost+*f.FreeCost+*f.UnhealthyCost-*f.BeyondCost != *f.CapacityCost {
			t.Errorf("the money of a row does not add up: %+v", f)
		}
		capacity, held, free = capacity+*f.CapacityCost, held+*f.HeldCost, free+*f.FreeCost
		unhealthy, beyond, reserved = unhealthy+*f.UnhealthyCost, beyond+*f.BeyondCost, reserved+*f.ReservedCost
	}
	if rows != m.Billed || m.Billed+m.Free+m.Unhealthy-m.Beyond != m.Cost || capacity != m.Cost || held+free != m.Billed+m.Free ||
		unhealthy != m.Unhealthy || beyond != m.Beyond || reserved != m.Reserved {
		t.Errorf("rows %s; fleet %s = %s held + %s free + %s unhealthy - %s beyond, %s reserved: but the machines are %+v", rows, capacity,
			held, free, unhealthy, beyond, reserved, *m)
	}
}

// TestMachines: what nobody held costs what its model costs, and what is billed, what was free and
// what was broken are together what the machines cost.
func TestMachines(t *testing.T) {
	b, err := Make(t.Context(), machinesOptions(t, machinesDirectory))
	if err != nil {
		t.Fatal(err)
	}
	wantMachines(t, b)
	// 24 GPU hours at 2.50: 4 + 1 held, 12 + 5 free, 2 broken; 8 of the free ones were vision's:
	// 6 of 8 in the first hour, and in the second, of which the taint was there for half, 4 less
	// the 2 that it held. The L4 has no price.
	want := Machines{Cost: 6000, Billed: 1250, Free: 4250, Unhealthy: 500, Reserved: 2000, Unpriced: 2000}
	if *b.Machines != want {
		t.Errorf("the machines are %+v, not %+v", *b.Machines, want)
	}
	if len(b.Reserved) != 1 || b.Reserved[0].Reserved != 12000 || b.Reserved[0].Unused != 8000 || b.Reserved[0].Contact != "#vision" ||
		*b.Reserved[0].Cost != 2000 || b.Reserved[0].Billed {
		t.Errorf("reserved is %+v", b.Reserved)
	}
	golden(t, "machines.txt", b.WriteTable)
	golden(t, "machines.csv", b.WriteCSVOfAll)
}

// TestReservedBilled: where the directory says so the team pays for what was kept for it.
func TestReservedBilled(t *testing.T) {
	o := machinesOptions(t, machinesDirectory+"reserved: billed\n")
	o.By, o.Daily = []Dimension{Team, Model, Cluster, Namespace}, true
	b, err := Make(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	wantMachines(t, b)
	want := Machines{Cost: 6000, Billed: 3250, Free: 2250, Unhealthy: 500, Reserved: 2000, Unpriced: 2000}
	if *b.Machines != want {
		t.Errorf("the machines are %+v, not %+v", *b.Machines, want)
	}
	if b.Total.GPUHours != 13000 || b.Total.Reserved != 8000 || b.Total.Measured != 0 {
		t.Errorf("the total is %+v", b.Total)
	}
	golden(t, "reserved.txt", b.WriteTable)
	golden(t, "reserved.csv", b.WriteCSVOfAll)
}

// TestMoneyRounds: money adds up to the digit at prices that no cent divides.
func TestMoneyRounds(t *testing.T) {
	o := machinesOptions(t, machinesDirectory)
	o.By = []Dimension{Team, Namespace}
	for i := range 12 {
		price := 0.0013 + math.Pi*float64(i)/17
		for _, reserved := range []string{"beside", "billed"} {
			o.Directory.Prices, o.Directory.Reserved = map[string]float64{"*H100*": price, "*L4*": price / 7}, reserved
			b, err := Make(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			wantMachines(t, b)
			if d := float64(b.Machines.Cost)/100 - 24*price - 2*price/7; math.Abs(d) > 0.03 {
				t.Errorf("at %g the machines cost %s, %.3f more than they do", price, b.Machines.Cost, d)
			}
		}
	}
}

// TestMoneyRoundsOfReserved: what was held and what was kept for a team are parts of what is billed
// at any price: at 0.235 of 8 GPUs for two hours, 4 GPU hours held and 9 kept, both end with half a
// cent.
func TestMoneyRoundsOfReserved(t *testing.T) {
	o := optionsOf(t, "reserved: billed\nprices: {'*': 1}\n", nodeText("a", anH100, 8, everyHour), taintText("a", "vision", "Vx89 _x30"),
		podText("v", "a", "nvidia_com_gpu", 2, everyHour))
	for i := 1; i < 700; i += 2 {
		o.Directory.Prices["*"] = float64(5*i) / 1000 // as the file's 0.235
		b, err := Make(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if wantMachines(t, b); t.Failed() {
			t.Fatalf("at a price of %.3f", o.Directory.Prices["*"])
		}
		if d := float64(b.Machines.Cost) - 16*0.5*float64(i); math.Abs(d) > 1 {
			t.Errorf("at %.3f the machines cost %s", o.Directory.Prices["*"], b.Machines.Cost)
		}
	}
}

// TestTwoTeamsReserve: a node that two teams have reserved by one effect is not reserved twice.
func TestTwoTeamsReserve(t *testing.T) {
	o := machinesOptions(t, machinesDirectory)
	o.Client = testClient(t, loaded(t, machines()+
		`  kube_node_spec_taint{job="kube-state-metrics",cluster="jaguar",instance="a",node="a",key="team",value="audio",effect="NoExecute"} 1x119`).URL())
	b, err := Make(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	wantMachines(t, b)
	kept := map[string]Milli{}
	for _, r := range b.Reserved {
		kept[r.Team] = r.Reserved
	}
	// Half of 8 each in the first hour, then 30 minutes against 60; less what vision holds, 2.
	if kept["vision"] != 6667 || kept["audio"] != 9333 || b.Machines.Reserved != 2417 {
		t.Errorf("reserved are %v, %s of money", kept, b.Machines.Reserved)
	}
}

// TestTaintsOfTwoEffects: PreferNoSchedule keeps nobody away and reserves nothing; where NoExecute
// and NoSchedule name two teams the node is kept for the one whose taint evicts, as long as it is
// there.
func TestTaintsOfTwoEffects(t *testing.T) {
	const hour = "Vx59 _x60"
	taint := func(team, effect, course string) string {
		return strings.Replace(taintText("r", team, course), "NoSchedule", effect, 1)
	}
	for _, c := range []struct {
		name   string
		taints []string
		want   map[string]Milli
	}{
		{
			"preferred beside",
			[]string{taint("nlp", "NoSchedule", hour), taint("vision", "PreferNoSchedule", hour)},
			map[string]Milli{"nlp": 8000},
		},
		{"preferred alone", []string{taint("vision", "PreferNoSchedule", hour)}, map[string]Milli{}},
		{"both of one team", []string{taint("nlp", "NoSchedule", hour), taint("nlp", "NoExecute", hour)}, map[string]Milli{"nlp": 8000}},
		{"evicts", []string{taint("nlp", "NoSchedule", hour), taint("vision", "NoExecute", hour)}, map[string]Milli{"vision": 8000}},
		{
			"evicts for a part",
			[]string{taint("nlp", "NoSchedule", hour), taint("vision", "NoExecute", "Vx14 _x105")},
			map[string]Milli{"nlp": 6000, "vision": 2000},
		},
		{
			"both of one team, evicts another",
			[]string{
				taint("nlp", "NoSchedule", hour), taint("nlp", "NoExecute", "_x30 Vx29 _x60"), taint("vision", "NoExecute", "Vx14 _x105"),
			},
			map[string]Milli{"nlp": 6000, "vision": 2000},
		},
		{
			"one after the other",
			[]string{taint("nlp", "NoSchedule", "Vx29 _x90"), taint("vision", "NoExecute", "_x30 Vx29 _x60")},
			map[string]Milli{"nlp": 4000, "vision": 4000},
		},
	} {
		b := billOf(t, twoDollars, append(c.taints, nodeText("r", anH100, 8, hour))...)
		wantMachines(t, b)
		kept := map[string]Milli{}
		for _, r := range b.Reserved {
			kept[r.Team] = r.Reserved
		}
		if !maps.Equal(kept, c.want) {
			t.Errorf("%s: reserved are %v, not %v", c.name, kept, c.want)
		}
	}
}
