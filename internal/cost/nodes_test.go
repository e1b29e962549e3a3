package cost

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// What a test says of a cluster in a few lines: series of one kube-state-metrics, two hours long.
// The V of a course such as "Vx29 _x90" stands for the value.
const (
	everyHour = "Vx119"
	ofKSM     = `job="kube-state-metrics",cluster="c",instance="a"`
	anH100    = `,label_nvidia_com_gpu_product="NVIDIA-H100"`
)

// nodeText is a node that is ready and offers GPUs.
func nodeText(name, labels string, gpus int, course string) string {
	of := func(v string) string { return strings.ReplaceAll(course, "V", v) }
	text := fmt.Sprintf("  kube_node_labels{%s,node=%q%s} %s\n", ofKSM, name, labels, of("1")) +
		fmt.Sprintf("  kube_node_status_condition{%s,node=%q,condition=\"Ready\",status=\"true\"} %s\n", ofKSM, name, of("1"))
	for _, metric := range []string{"capacity", "allocatable"} {
		text += fmt.Sprintf("  kube_node_status_%s{%s,node=%q,resource=\"nvidia_com_gpu\"} %s\n", metric, ofKSM, name, of(fmt.Sprint(gpus)))
	}
	return text
}

// taintText keeps a node for a team.
func taintText(node, team, course string) string {
	return fmt.Sprintf("  kube_node_spec_taint{%s,node=%q,key=\"team\",value=%q,effect=\"NoSchedule\"} %s\n", ofKSM, node, team,
		strings.ReplaceAll(course, "V", "1"))
}

// podText is a pod that runs and holds so much of a resource.
func podText(namespace, node, resource string, n int, course string) string {
	of := fmt.Sprintf(`%s,namespace=%q,pod="p",uid="%s-%s"`, ofKSM, namespace, namespace, node)
	return fmt.Sprintf("  kube_pod_status_phase{%s,phase=\"Running\"} %s\n", of, strings.ReplaceAll(course, "V", "1")) +
		fmt.Sprintf("  kube_pod_container_resource_requests{%s,container=\"x\",node=%q,resource=%q} %s\n", of, node, resource,
			strings.ReplaceAll(course, "V", fmt.Sprint(n)))
}

// optionsOf is a bill by team of what such lines say.
func optionsOf(t *testing.T, directory string, lines ...string) Options {
	t.Helper()
	d, err := ParseDirectory([]byte(directory))
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("load 1m\n  up{%s} 1x119\n", ofKSM) + strings.Join(lines, "")
	return Options{
		Client: testClient(t, loaded(t, text).URL()), Range: Range{smallFrom, smallFrom.Add(2 * time.Hour), time.UTC},
		By: []Dimension{Team}, Directory: d, NoIdle: true, Now: func() time.Time { return smallFrom.Add(48 * time.Hour) },
	}
}

// billOf makes it.
func billOf(t *testing.T, directory string, lines ...string) *Bill {
	t.Helper()
	b, err := Make(t.Context(), optionsOf(t, directory, lines...))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const twoDollars = "currency: USD\nprices: {'*H100*': 2}\n"

// TestNodeOfHalfAnHour: a healthy node of 8 GPUs that lived for 30 minutes was free for 4 GPU
// hours, and who had reserved it pays for these.
func TestNodeOfHalfAnHour(t *testing.T) {
	const half = "Vx29 _x90"
	b := billOf(t, twoDollars, nodeText("a", anH100, 8, half))
	wantMachines(t, b)
	if f := b.Fleet[0]; f.Capacity != 4000 || f.Free != 4000 || f.Unhealthy != 0 {
		t.Errorf("the fleet is %+v", f)
	}
	b = billOf(t, twoDollars+"reserved: billed\n", nodeText("a", anH100, 8, half), taintText("a", "vision", half))
	wantMachines(t, b)
	if *b.Total.Cost != 800 || b.Reserved[0].Reserved != 4000 || b.Reserved[0].Unused != 4000 {
		t.Errorf("billed %s; %+v", *b.Total.Cost, b.Reserved)
	}
	// Not ready for 10 of its 30 minutes.
	notReady := strings.Replace(nodeText("a", anH100, 8, half), `status="true"} 1x29`, `status="true"} 1x19 0x9`, 1)
	b = billOf(t, twoDollars, notReady)
	wantMachines(t, b)
	if f := b.Fleet[0]; f.Capacity != 4000 || f.Free != 2667 || f.Unhealthy != 1333 {
		t.Errorf("the fleet is %+v", f)
	}
}

// TestReservedOfWhatWasHeld: a team is not billed for what it kept from nobody: it held all of its
// reservation while that was there, and the node stood free before.
func TestReservedOfWhatWasHeld(t *testing.T) {
	const late = "_x30 Vx29 _x60"
	b := billOf(t, twoDollars+"reserved: billed\nteams: [{name: vision, namespaces: [v]}]\n", nodeText("a", anH100, 8, everyHour),
		taintText("a", "vision", late), podText("v", "a", "nvidia_com_gpu", 8, late))
	wantMachines(t, b)
	if r := b.Reserved[0]; b.Total.GPUHours != 4000 || *b.Total.Cost != 800 || r.Reserved != 4000 || r.Unused != 0 {
		t.Errorf("billed %s for %s GPU hours; reserved %+v", *b.Total.Cost, b.Total.GPUHours, r)
	}
	// By the label of its namespace the team is known too, whatever rows are told apart by.
	o := optionsOf(t, twoDollars+"reserved: billed\n", nodeText("a", anH100, 8, everyHour), taintText("a", "vision", late),
		podText("v", "a", "nvidia_com_gpu", 8, late), "  kube_namespace_labels{"+ofKSM+`,namespace="v",label_team="vision"} 1x119`+"\n")
	o.By = []Dimension{Model}
	if b, err := Make(t.Context(), o); err != nil || *b.Total.Cost != 800 {
		t.Errorf("by label it is billed %+v, %v", b.Total, err)
	}
}

// TestDeadPlugin: a node whose device plugin offers none of its cards costs what it costs, as far
// as dcgm-exporter shows the cards; where it does not, the bill names the node.
func TestDeadPlugin(t *testing.T) {
	var cards strings.Builder
	for g := range 8 {
		fmt.Fprintf(&cards, "  DCGM_FI_PROF_GR_ENGINE_ACTIVE{cluster=\"c\",node=\"a\",gpu=\"%d\"} 0x119\n", g)
	}
	b := billOf(t, twoDollars, nodeText("a", anH100, 0, everyHour), nodeText("z", anH100, 8, everyHour), cards.String())
	wantMachines(t, b)
	if f := b.Fleet[0]; f.Capacity != 32000 || f.Unhealthy != 16000 || f.Free != 16000 || len(b.Notes) > 1 {
		t.Errorf("the fleet is %+v; it says %q", f, b.Notes)
	}
	// A node without a model is one without GPUs, whatever is 0 there.
	b = billOf(t, twoDollars, nodeText("a", "", 0, everyHour), nodeText("z", anH100, 8, everyHour))
	if f := b.Fleet[1]; len(b.Fleet) != 2 || f.Capacity != 16000 || strings.Contains(strings.Join(b.Notes, ""), "offer") {
		t.Errorf("the fleet is %+v; it says %q", b.Fleet, b.Notes)
	}
	b = billOf(t, twoDollars, nodeText("a", anH100, 0, everyHour), nodeText("z", anH100, 8, everyHour))
	wantNote(t, b, "Nodes with a GPU model that for an hour or longer offered no nvidia_com_gpu, and of whose cards no exporter told, are in no capacity and cost nothing here: c/a.")
}

// wantNote makes sure that the bill says something, in its table too.
func wantNote(t *testing.T, b *Bill, want string) {
	t.Helper()
	var text strings.Builder
	if err := b.WriteTable(&text); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), want) {
		t.Errorf("it does not say\n%s\nbut\n%s", want, text.String())
	}
}

// TestResource: a resource is spelled as kube-state-metrics spells it; slices of NVIDIA's cards are
// no AMD GPUs; and where nothing is found of it the bill says so.
func TestResource(t *testing.T) {
	lines := nodeText("a", anH100, 8, everyHour) + podText("v", "b", "nvidia_com_mig_7g_80gb", 8, everyHour)
	o := optionsOf(t, twoDollars, lines)
	o.Names.Resource = "nvidia.com/gpu"
	var wrong *OptionError
	const says = "--resource=nvidia.com/gpu: kube-state-metrics spells it with _ for all that is no letter or digit: --resource=nvidia_com_gpu"
	if _, err := Make(t.Context(), o); !errors.As(err, &wrong) || !strings.Contains(err.Error(), says) {
		t.Errorf("it says %v", err)
	}
	o.Names.Resource = "amd_com_gpu"
	b, err := Make(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if b.Total.GPUHours != 0 {
		t.Errorf("billed as AMD's: %s", b.Total.GPUHours)
	}
	wantNote(t, b, "Nodes have a GPU model, and none offered amd_com_gpu: is that how kube-state-metrics spells the resource (--resource)?")
	wantNote(t, b, "No pod requested amd_com_gpu")
	o.Names.Resource = ""
	if b, err = Make(t.Context(), o); err != nil || b.Total.GPUHours == 0 || len(b.Notes) > 0 {
		t.Errorf("%+v, %v", b, err)
	}
}

// TestCurrencyInCSV: what the directory calls its currency is no formula of a sheet.
func TestCurrencyInCSV(t *testing.T) {
	b := billOf(t, "currency: '=1+1'\nprices: {'*': 2}\n", nodeText("a", anH100, 8, everyHour),
		podText("v", "a", "nvidia_com_gpu", 2, everyHour))
	var text strings.Builder
	if err := b.WriteCSVOfAll(&text); err != nil || strings.Contains(text.String(), ",=1+1") ||
		strings.Count(text.String(), ",'=1+1,") != 2 {
		t.Errorf("%v\n%s", err, text.String())
	}
}
