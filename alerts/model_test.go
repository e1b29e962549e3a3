package alerts_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/loadtest/cluster"
)

// shown is what the pages of one job show of one family.
type shown struct {
	typ    string
	labels map[string]bool
	le     map[string]bool
}

// simulated is what the simulated cluster's pages show, by job and family, while it has troubles:
// some series are only there then.
func simulated(t *testing.T) map[string]map[string]*shown {
	t.Helper()
	at := time.Date(2026, 3, 2, 6, 0, 0, 0, time.UTC)
	o := cluster.Options{
		Seed: 3, Cluster: "jaguar", Nodes: 24, NodesPerRack: 4, GPUModels: []string{"H100", "B200"}, Detail: cluster.Full,
		Exporters: cluster.AllExporters,
	}
	stage := func(kind cluster.Kind, target string, value float64) {
		o.Troubles = append(o.Troubles,
			cluster.Trouble{Kind: kind, Target: target, From: at.Add(-2 * time.Minute), Until: at.Add(time.Hour), Value: value})
	}
	for n := range 12 { // some of them hold a pod
		stage(cluster.GPUXidFatal, fmt.Sprintf("gpu-%05d/0", n), 48)
	}
	stage(cluster.GPUThrottled, "gpu-00013/1", 0)
	stage(cluster.NodeNotReady, "gpu-00014", 0)
	stage(cluster.PodsPendingGPUsFree, "cluster", 0)
	m, err := cluster.New(o)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]map[string]*shown{}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	var page bytes.Buffer
	for _, target := range m.Targets() {
		families := out[target.Job]
		if families == nil {
			families = map[string]*shown{}
			out[target.Job] = families
		}
		page.Reset()
		if err := m.WritePage(&page, target, at); errors.Is(err, cluster.ErrDown) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		parsed, err := parser.TextToMetricFamilies(&page)
		if err != nil {
			t.Fatalf("page of %s: %v", target.Job, err)
		}
		for name, family := range parsed {
			f := families[name]
			if f == nil {
				f = &shown{strings.ToLower(family.GetType().String()), map[string]bool{}, map[string]bool{}}
				families[name] = f
			}
			for _, s := range family.GetMetric() {
				for _, l := range s.GetLabel() {
					f.labels[l.GetName()] = true
				}
				for _, b := range s.GetHistogram().GetBucket() {
					f.le[labels.FormatOpenMetricsFloat(b.GetUpperBound())] = true
				}
			}
		}
	}
	return out
}

// notSimulated are metrics that the simulated cluster's pages lack, with the reason.
var notSimulated = map[string]string{
	"DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION": commentedOut,
	"DCGM_FI_DEV_GPU_RECOVERY_ACTION":     commentedOut,

	"prometheus_remote_storage_highest_timestamp_in_seconds": newServers,
	"prometheus_remote_storage_samples_pending":              newServers,

	"reloader_last_reload_successful": "no operator made its servers, so that they have no config-reloader beside them",
}

const newServers = "its servers are new, and what each queue says itself, which they have, is read first"

const commentedOut = "an exporter that is too old does not start with it: its line in deploy/exporters/dcgm-counters.csv is commented out"

// Every metric that the rules name is on the pages of the simulated cluster, of the same type and
// with the labels that the real exporter has.
func TestModelHasWhatRulesName(t *testing.T) {
	pages := simulated(t)
	for job, j := range readFacts(t) {
		if !j.modelled() {
			continue
		}
		if pages[job] == nil {
			t.Errorf("the simulated cluster has no job %s", job)
			continue
		}
		for name, want := range j.Metrics {
			got := pages[job][name]
			if why := notSimulated[name]; why != "" {
				if got != nil {
					t.Errorf("the simulated %s has %s, which it is said to lack: %s", job, name, why)
				}
				continue
			}
			if got == nil {
				t.Errorf("the simulated %s has no %s", job, name)
				continue
			}
			if got.typ != want.Type {
				t.Errorf("the simulated %s has %s as a %s, really a %s", job, name, got.typ, want.Type)
			}
			all := setOf(slices.Concat(want.Labels, j.Common, j.Optional, j.Target, j.Operated)...)
			for l := range got.labels {
				if !all.has(l) {
					t.Errorf("the simulated %s has %s with the label %s, which is not among %v", job, name, l, all)
				}
			}
			for _, l := range slices.Concat(want.Labels, j.Common) {
				if !strings.HasSuffix(l, "*") && !got.labels[l] {
					t.Errorf("the simulated %s has %s without the label %s; it has %v", job, name, l, slices.Sorted(maps.Keys(got.labels)))
				}
			}
			for _, le := range want.Buckets {
				if !got.le[canonicalLe(le)] {
					t.Errorf("the simulated %s has %s without the bucket %s", job, name, le)
				}
			}
		}
	}
}
