package experiments

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/model"
	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

// setupAt is when the clusters of testdata/setup.load are looked at.
var setupAt = time.UnixMilli(0).Add(100 * time.Minute)

func TestDiagnose(t *testing.T) {
	w := worldOf(t, "setup")
	const gpus, network = NeedPods | NeedHours | NeedGPUs, NeedInfiniband | NeedEthernet | NeedNVLink
	for _, tc := range []struct {
		cluster string
		needs   Need
		want    []string // each "what is missing => what mends it"
	}{
		{"full", NeedAll, nil},
		{"idle", gpus, nil},
		{"cpu-only", gpus, nil},
		{"others-gpus", gpus, nil},
		{"nowhere", gpus, []string{`no series about pods in cluster "nowhere" (kube_pod_info) => check the cluster's name`}},
		{"no-pods", gpus, []string{`no series about pods in cluster "no-pods" => scrape kube-state-metrics`}},
		{"no-labels", gpus, []string{`no labels of pods in cluster "no-labels" (kube_pod_labels) => --metric-labels-allowlist=pods=[experiment,jobset.sigs.k8s.io/jobset-name,` +
			`training.kubeflow.org/job-name,ray.io/cluster,leaderworkerset.sigs.k8s.io/name,kueue.x-k8s.io/pod-group-name,volcano.sh/job-name,batch.kubernetes.io/job-name,job-name,team]`}},
		{"no-names", gpus, []string{`none of label_experiment, label_jobset => Give your pods one of these labels and let it through: kube-state-metrics with --metric-labels-allowlist=pods=[experiment,`}},
		{"no-rules", gpus, []string{`rules of experiments are missing in cluster "no-rules" => experimentLabels: [label_experiment, label_jobset_sigs_k8s_io_jobset_name, `}},
		{"no-requests", gpus, []string{`what containers ask for => --metric-allowlist=^kube_pod_container_resource_requests$`}},
		{"no-allocated", gpus, []string{`rules of GPUs are missing in cluster "no-allocated" => rendered/alerts/global/gpu-rules.yaml into the ruler`}},
		{"no-dcgm", gpus, []string{`no series of dcgm-exporter in cluster "no-dcgm" => deploy/exporters/dcgm-counters.csv`}},
		{"no-profiling", gpus, []string{
			`does not export DCGM_FI_PROF_PIPE_TENSOR_ACTIVE in cluster "no-profiling" => capability SYS_ADMIN`,
			`does not export DCGM_FI_PROF_DRAM_ACTIVE in cluster "no-profiling" => capability SYS_ADMIN`,
			`no experiment:gpu:power => rendered/alerts/global/experiment-rules.yaml`,
		}},
		{"set-aside", gpus, []string{`stand under exported_pod => honorLabels: true`}},
		{"no-pod", gpus, []string{`no label pod, though experiments hold GPUs => DCGM_EXPORTER_KUBERNETES=true`}},
		{"no-node", gpus, []string{`no label node => deploy/exporters/prometheus.yml of Spillway does: Xids, heat and NVLink are read by node`}},
		{"no-faults", NeedFaults, []string{`tells nothing in cluster "no-faults" of sick GPUs => DCGM_EXP_XID_ERRORS_COUNT`}},
		{"no-fault-rules", NeedFaults, []string{`no node:gpu_temp_celsius:max => rendered/alerts/shard/gpu-rules.yaml into each Prometheus`}},
		{"no-faults", network, []string{
			`nothing in cluster "no-faults" of InfiniBand => --collector.infiniband`, `of Ethernet => --collector.netdev`, `of NVLink (DCGM_FI_PROF_NVLINK_RX_BYTES) => SYS_ADMIN`,
		}},
		{"no-labels", network, []string{
			`no series of node_exporter => node-exporter.flags`,
			`no series of node_exporter => node-exporter.flags`,
		}},
	} {
		t.Run(tc.cluster, func(t *testing.T) {
			found, _, err := Diagnose(t.Context(), w.asker, settingsOf(t, ""), tc.needs, []string{tc.cluster}, setupAt)
			if err != nil {
				t.Fatal(err)
			}
			for i, f := range found {
				if i < len(tc.want) {
					missing, fix, _ := strings.Cut(tc.want[i], " => ")
					if !strings.Contains(f.Missing, missing) && !containsAll(f.Missing, missing) || !strings.Contains(f.Fix, fix) {
						t.Errorf("finding %d is\n%s\n%s\nwant %s", i, f.Missing, f.Fix, tc.want[i])
					}
				}
				if !f.Everywhere || !slices.Equal(f.Clusters, []string{tc.cluster}) || f.Need == 0 ||
					strings.Contains(f.Missing+f.Fix, "%!") || strings.Contains(f.Fix, "node: Hostname") {
					t.Errorf("%+v", f)
				}
			}
			if len(found) != len(tc.want) {
				t.Errorf("%d findings, want %d: %+v", len(found), len(tc.want), found)
			}
		})
	}
	// Of these the rules for the use of GPUs alone are missing; the other fields are not exported
	// here.
	found, _, err := diagnose(t.Context(), w.asker, settingsOf(t, ""), NeedGPUs, []model.Metric{model.Util},
		[]string{"no-gpu-rules"}, setupAt)
	if err != nil || len(found) != 1 || !strings.Contains(found[0].Missing, `DCGM_FI_DEV_GPU_UTIL with pods, and no experiment:gpu:util`) {
		t.Errorf("no-gpu-rules: %+v, %v", found, err)
	}
}

// containsAll tells whether the words of a sentence stand in another one, in any order.
func containsAll(s, words string) bool {
	return !slices.ContainsFunc(strings.Fields(words), func(w string) bool { return !strings.Contains(s, w) })
}

// Of all clusters, those that lack the same stand in one finding, which says that others do not.
func TestDiagnoseAll(t *testing.T) {
	w := worldOf(t, "setup")
	found, _, err := Diagnose(t.Context(), w.asker, settingsOf(t, `{"labels":["label_experiment","label_our_run"]}`), NeedPods, nil,
		setupAt)
	if err != nil {
		t.Fatal(err)
	}
	want := [][]string{{"no-pods"}, {"no-labels"}, {"no-names", "no-rules"}}
	if len(found) != len(want) {
		t.Fatalf("%+v", found)
	}
	for i, f := range found {
		if f.Everywhere || !slices.Equal(f.Clusters, want[i]) {
			t.Errorf("finding %d: %+v, want clusters %q", i, f, want[i])
		}
	}
	if f := found[1].Fix; !strings.Contains(f, "pods=[experiment,our_run,team] (write our_run as your pods spell it") {
		t.Errorf("a label of one's own: %s", f)
	}
	// Where some clusters have what is needed, nothing is an answer, and the others are a notice.
	r := w.run(t, settingsOf(t, ""), `{"queryType":"pending"}`, time.Hour, 100*time.Minute)
	if err := r.Empty(t.Context(), NeedPods, "pods that wait"); err != nil {
		t.Error(err)
	}
	if len(r.notices) != 5 || !strings.Contains(r.notices[4].Text, "no pods that wait of what is chosen between 1970-01-01 01:00:00 and 1970-01-01 01:40:00 UTC") ||
		!strings.Contains(r.notices[1].Text, "--metric-labels-allowlist") {
		t.Errorf("%q", r.notices)
	}
	if len(r.executed) < 4 {
		t.Errorf("what was asked is not noted: %q", r.executed)
	}
	// Where all that are chosen lack it, it is an error.
	r = w.run(t, settingsOf(t, ""), `{"queryType":"pending","clusters":["no-labels","no-rules"]}`, time.Hour, 100*time.Minute)
	var setup *SetupError
	if err := r.Empty(t.Context(), NeedPods, "pods that wait"); !errors.As(err, &setup) || len(setup.Findings) != 2 {
		t.Errorf("the two lack different things: %v", err)
	}
	r = w.run(t, settingsOf(t, ""), `{"queryType":"pending","clusters":["no-labels"]}`, time.Hour, 100*time.Minute)
	if err := r.Empty(t.Context(), NeedPods, "pods that wait"); !errors.As(err, &setup) || len(setup.Findings) != 1 ||
		!strings.Contains(err.Error(), "allowlist") {
		t.Errorf("%v", err)
	}
}

// fixed answers every question alike, or as real does.
type fixed struct {
	answer prom.Answer
	err    error
	real   prom.Asker
	asked  []string
}

func (f *fixed) Instant(ctx context.Context, query string, at time.Time) (prom.Answer, error) {
	f.asked = append(f.asked, query)
	if f.real != nil {
		return f.real.Instant(ctx, query, at)
	}
	return f.answer, f.err
}

func (f *fixed) Range(_ context.Context, query string, _, _ time.Time, _ time.Duration) (prom.Answer, error) {
	f.asked = append(f.asked, query)
	return f.answer, f.err
}

func TestDiagnoseNothing(t *testing.T) {
	f := &fixed{}
	found, _, err := Diagnose(t.Context(), f, settingsOf(t, ""), NeedAll, nil, setupAt)
	if err != nil || len(found) != 1 || !found[0].Everywhere ||
		!strings.Contains(found[0].Missing, "no series at all that this datasource may read") ||
		!strings.Contains(found[0].Fix, "credentials") {
		t.Errorf("%+v, %v", found, err)
	}
	f = &fixed{answer: prom.Answer{Warnings: []string{"shard ibis is away"}}}
	found, warnings, err := Diagnose(t.Context(), f, settingsOf(t, ""), NeedPods, []string{"c"}, setupAt)
	if err != nil || len(found) != 1 || !strings.Contains(found[0].Missing, "shard ibis is away") ||
		!slices.Equal(warnings, []string{"shard ibis is away"}) {
		t.Errorf("with a warning: %+v, %q, %v", found, warnings, err)
	}
	// An error of the proxy is no finding, and ends the questions.
	broken := errors.New("no")
	f = &fixed{err: broken}
	if found, _, err = Diagnose(t.Context(), f, settingsOf(t, ""), NeedAll, nil, setupAt); !errors.Is(err, broken) || found != nil ||
		len(f.asked) != 1 {
		t.Errorf("%+v, %v after %q", found, err, f.asked)
	}
}

// Whatever a cluster is called, the questions are PromQL, and they are as few as is promised.
func TestDiagnoseQuestions(t *testing.T) {
	f := &fixed{}
	if _, _, err := Diagnose(t.Context(), f, settingsOf(t, ""), NeedAll, []string{"a\"\n|", `b\`, "%s"}, setupAt); err != nil {
		t.Fatal(err)
	}
	p := parser.NewParser(parser.Options{})
	for _, q := range f.asked {
		if _, err := p.ParseExpr(q); err != nil {
			t.Errorf("%s: %v", q, err)
		}
	}
	w := worldOf(t, "setup")
	for clusters, most := range map[string]int{"full": 16, "no-gpu-rules": 60} {
		f := &fixed{real: w.asker}
		if _, _, err := Diagnose(t.Context(), f, settingsOf(t, ""), NeedAll, []string{clusters}, setupAt); err != nil ||
			len(f.asked) > most {
			t.Errorf("%s: %d questions, %v", clusters, len(f.asked), err)
		}
	}
}

// Where rules stand still nothing seems to run, and nobody knows: that is told from a cluster in
// which nothing runs.
func TestDiagnoseRulesThatStandStill(t *testing.T) {
	w := worldOf(t, "ruler")
	for _, after := range []time.Duration{200 * minute, 1900 * minute} {
		for _, clusters := range [][]string{{"still"}, {"quiet"}, nil} {
			found, _, err := Diagnose(t.Context(), w.asker, settingsOf(t, ""), NeedPods, clusters, time.UnixMilli(0).Add(after))
			if err != nil {
				t.Fatal(err)
			}
			if slices.Equal(clusters, []string{"quiet"}) {
				if len(found) > 0 {
					t.Errorf("in a cluster in which nothing runs after %s: %+v", after, found)
				}
				continue
			}
			if len(found) != 1 || found[0].Need != NeedPods || found[0].Everywhere != (clusters != nil) ||
				!strings.Contains(found[0].Missing, `The recording rules stand still in cluster "still"`) ||
				!strings.Contains(found[0].Fix, "ruler") {
				t.Errorf("of %q after %s: %+v", clusters, after, found)
			}
		}
	}
}

// A cluster whose last experiment ended days ago is set up: an alert on it has nothing to show, and
// is no error. Where the proxy does not let one look back a month, less is known.
func TestNothingRunsForDays(t *testing.T) {
	w := worldOf(t, "ruler")
	r := w.run(t, settingsOf(t, ""), `{"queryType":"status","clusters":["quiet"]}`, 1890*minute, 1900*minute)
	r.Alert = true
	frames, err := r.Do(t.Context())
	if err != nil || len(frames) != 1 || len(frames[0].Fields) > 0 {
		t.Errorf("%d frames, %v", len(frames), err)
	}
	var setup *SetupError
	for until, known := range map[time.Duration]bool{900 * minute: true, 1900 * minute: false} {
		r = w.run(t, settingsOf(t, ""), `{"queryType":"status","clusters":["quiet"]}`, until-10*minute, until)
		r.asker = bounded{w.asker, 25 * time.Hour}
		if _, err := r.Do(t.Context()); known && err != nil || !known && !errors.As(err, &setup) {
			t.Errorf("until %s, where a month is refused: %v", until, err)
		}
	}
}

// Clusters that have another label than cluster are one for the datasource; that is told, and so is
// a cluster that is recorded twice.
func TestDiagnoseClustersThatAreOne(t *testing.T) {
	w := worldOf(t, "merged")
	for _, c := range []struct{ clusters, want []string }{
		{nil, []string{"", "c"}}, {[]string{"c"}, []string{"c"}}, {[]string{"one"}, nil},
	} {
		found, _, err := Diagnose(t.Context(), w.asker, settingsOf(t, ""), NeedPods, c.clusters, time.UnixMilli(0).Add(90*minute))
		if err != nil {
			t.Fatal(err)
		}
		if c.want == nil {
			if len(found) > 0 {
				t.Errorf("of %q: %+v", c.clusters, found)
			}
			continue
		}
		if len(found) != 1 || !slices.Equal(found[0].Clusters, c.want) ||
			!strings.Contains(found[0].Missing, "cannot be told apart in cluster") || !strings.Contains(found[0].Fix, "clusterLabel") {
			t.Errorf("of %q: %+v", c.clusters, found)
		}
	}
}
