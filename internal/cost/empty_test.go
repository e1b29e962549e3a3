package cost

import (
	"strings"
	"testing"
	"time"
)

// TestTargetAboutItself: kube-prometheus scrapes two ports of one kube-state-metrics as one job, of
// which the second shows no pod. It is no replica that lacks them all.
func TestTargetAboutItself(t *testing.T) {
	const (
		at  = `job="kube-state-metrics",instance="10.0.1.1:8443"`
		own = `job="kube-state-metrics",instance="10.0.1.1:9443"`
		pod = at + `,namespace="a",pod="p",uid="1"`
	)
	o := smallOptions(t, loaded(t, `load 30s
  up{`+at+`} 1x240
  up{`+own+`} 1x240
  kube_pod_status_phase{`+pod+`,phase="Running"} 1x240
  kube_pod_container_resource_requests{`+pod+`,container="x",resource="nvidia_com_gpu"} 1x240
`).URL())
	b, err := Make(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if b.Total.GPUHours != 2000 || b.Total.Covered != 1 {
		t.Errorf("%s GPU hours are billed, not 2, and %v is covered", b.Total.GPUHours, b.Total.Covered)
	}
	if notes := strings.Join(b.Notes, "\n"); !strings.Contains(notes, "no replicas and were left out: 10.0.1.1:9443.") {
		t.Errorf("the notes are %q", notes)
	}
}

// TestOnlyTheTargetAboutItself: where the port with the pods was down in all of the range and the
// other one answered, the cluster is not covered; where there is no other cluster there is no bill.
func TestOnlyTheTargetAboutItself(t *testing.T) {
	const ibis = `  up{job="kube-state-metrics",cluster="ibis",instance="10.0.1.1:8443"} 0x479
  up{job="kube-state-metrics",cluster="ibis",instance="10.0.1.1:9443"} 1x479
`
	o := fourHours(t, clusterOf("jaguar", "", always, "", 0)+ibis)
	b, err := Make(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if b.Total.GPUHours != 32000 || b.Total.Covered != 0.5 {
		t.Errorf("the total is %+v", b.Total)
	}
	if want := (Gap{"ibis", o.Range.From, o.Range.To}); len(b.Gaps) != 1 || b.Gaps[0] != want {
		t.Errorf("the gaps are %v", b.Gaps)
	}
	want := "The kube-state-metrics of ibis answered, and showed no pod and no node in this time: nothing that it would have told of is in this bill."
	if len(b.Notes) != 1 || b.Notes[0] != want {
		t.Errorf("the notes are %q", b.Notes)
	}
	o = fourHours(t, ibis)
	if b, err := Make(t.Context(), o); err == nil || !strings.Contains(err.Error(), "the kube-state-metrics of ibis answered, and showed no pod and no node") {
		t.Errorf("alone: %+v, %v", b, err)
	}
	// What shows nodes alone, as one of two that share the resources, is there.
	o = fourHours(t, clusterOf("jaguar", `,shard="0"`, always, "", 0)+`
  up{job="kube-state-metrics",cluster="jaguar",instance="n:8080",shard="1"} 1x479
  kube_node_status_condition{job="kube-state-metrics",cluster="jaguar",instance="n:8080",shard="1",node="n",condition="Ready",status="true"} 1x479
`)
	o.Names.ShardLabel = "shard"
	if b, err = Make(t.Context(), o); err != nil || b.Total.Covered < 0.99 {
		t.Errorf("nodes alone: %+v, %v", b, err)
	}
}

// TestPodsOfTheLastMinutes: what was there in the last, shorter hour of a range alone was there.
func TestPodsOfTheLastMinutes(t *testing.T) {
	const (
		at  = `job="kube-state-metrics",instance="10.0.1.1:8443"`
		pod = at + `,namespace="a",pod="p",uid="1"`
	)
	for _, own := range []string{"", `  up{job="kube-state-metrics",instance="10.0.1.1:9443"} 1x180` + "\n"} {
		o := smallOptions(t, loaded(t, "load 30s\n"+own+`  up{`+at+`} 1x180
  kube_pod_status_phase{`+pod+`,phase="Running"} _x120 1x59
  kube_pod_container_resource_requests{`+pod+`,container="x",resource="nvidia_com_gpu"} _x120 1x59
`).URL())
		o.Range.To = smallFrom.Add(90 * time.Minute)
		if b, err := Make(t.Context(), o); err != nil || b.Total.GPUHours != 500 || b.Total.Covered != 1 {
			t.Errorf("with %q: %+v, %v", own, b, err)
		}
	}
}
