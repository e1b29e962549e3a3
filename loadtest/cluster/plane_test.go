package cluster

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// planeOptions is a cluster with at least one gang.
var planeOptions = Options{Seed: 5, Nodes: 8, GPUsPerNode: 2, CPUsPerNode: 1, APIServers: 1, Detail: Full}

// The troubles of these tests last for the half hour before testUntil.
const stagedFor = 30 * time.Minute

// reading is one series at one moment; run is the last comparison that met it.
type reading struct {
	value float64
	run   int
}

// eachSample calls f for all series of all pages at one moment. The key is "job
// family", a tab, and the series with its target; for a page that does not answer
// "job down", a tab and the target. It is valid within the call only.
func eachSample(t *testing.T, m *Model, at time.Time, f func(key []byte, v float64)) {
	t.Helper()
	var key []byte
	ms := at.UnixMilli()
	for i := range m.targets {
		tg := &m.targets[i]
		p := m.compiler(ms, ms, false).page(tg)
		if !p.answers(ms) {
			f(append(append(append(key[:0], tg.Job...), " down\t"...), tg.Instance...), 1)
			continue
		}
		p.collect(familiesOf(tg.Job, m.o.Detail), func(s *series) {
			if ms < s.from || ms >= s.until {
				return
			}
			key = append(append(append(key[:0], tg.Job...), ' '), s.fam.name...)
			key = append(append(append(append(key, '\t'), tg.Instance...), '{'), s.name...)
			for _, l := range s.pairs {
				key = append(append(key, ','), l...)
			}
			f(key, s.curve.at(ms))
		})
	}
}

func readPages(t *testing.T, m *Model, at time.Time) map[string]*reading {
	out := map[string]*reading{}
	eachSample(t, m, at, func(key []byte, v float64) { out[string(key)] = &reading{value: v} })
	return out
}

// differences says by "job family" how the pages of m differ from those without
// its trouble: + and - for values, n for series that are new, g for those gone.
// What is gone with its whole page is not listed.
func differences(t *testing.T, without map[string]*reading, m *Model, at time.Time, run int) map[string]string {
	marks, down := map[string]string{}, map[string]bool{}
	mark := func(key, c string) {
		key, _, _ = strings.Cut(key, "\t")
		if !strings.Contains(marks[key], c) {
			b := strings.Split(marks[key]+c, "")
			slices.Sort(b)
			marks[key] = strings.Join(b, "")
		}
	}
	eachSample(t, m, at, func(key []byte, v float64) {
		was, ok := without[string(key)]
		switch {
		case !ok:
			mark(string(key), "n")
			down[string(key)] = true
		case v > was.value:
			mark(string(key), "+")
		case v < was.value:
			mark(string(key), "-")
		}
		if ok {
			was.run = run
		}
	})
	for key, s := range without {
		if s.run == run {
			continue
		}
		job, rest, _ := strings.Cut(key, " ")
		_, rest, _ = strings.Cut(rest, "\t")
		instance, _, _ := strings.Cut(rest, "{")
		if !down[job+" down\t"+instance] {
			mark(key, "g")
		}
	}
	return marks
}

func runningGang(t *testing.T, m *Model) string {
	t.Helper()
	at := testUntil.Add(-stagedFor)
	for _, x := range m.Experiments(at, at) {
		for _, r := range x.Runs {
			if len(x.Nodes) > 1 && r.From.Before(at) && r.Until.After(testUntil.Add(20*time.Minute)) {
				return x.Name
			}
		}
	}
	t.Fatal("no gang runs; choose another seed")
	return ""
}

// planeCases say what each kind changes while it lasts and afterwards, a family
// or (with *) a group of them a line, and how: see differences; ? is anything.
// What is not listed must not change.
var planeCases = []struct {
	kind          Kind
	target        string // "": a running gang
	value         float64
	during, after string
}{
	{DNSErrors, WholeCluster, 0.3, `
		coredns coredns_dns_request_duration_seconds +
		coredns coredns_dns_requests_total +
		coredns coredns_dns_responses_total +
		coredns coredns_forward_healthcheck_broken_total +`, `
		coredns coredns_dns_request_duration_seconds +
		coredns coredns_dns_requests_total +
		coredns coredns_dns_responses_total +
		coredns coredns_forward_healthcheck_broken_total +`},
	{DNSSlow, WholeCluster, 0, `
		coredns coredns_dns_request_duration_seconds +-
		coredns coredns_proxy_request_duration_seconds +-`, `
		coredns coredns_dns_request_duration_seconds +-
		coredns coredns_proxy_request_duration_seconds +-`},
	{APIThrottling, "service-accounts", 0, `
		kube-apiserver apiserver_flowcontrol_current_executing_requests +
		kube-apiserver apiserver_flowcontrol_current_executing_seats +
		kube-apiserver apiserver_flowcontrol_rejected_requests_total +
		kube-apiserver apiserver_request_terminations_total +
		kube-apiserver apiserver_request_total +`, `
		kube-apiserver apiserver_flowcontrol_rejected_requests_total +
		kube-apiserver apiserver_request_terminations_total +
		kube-apiserver apiserver_request_total +`},
	{APIThrottlingInFlight, WholeCluster, 0, `
		kube-apiserver apiserver_current_inflight_requests +
		kube-apiserver apiserver_request_terminations_total +
		kube-apiserver apiserver_request_total +`, `
		kube-apiserver apiserver_request_terminations_total +
		kube-apiserver apiserver_request_total +`},
	{APIErrors, WholeCluster, 0, `
		kube-apiserver apiserver_admission_webhook_rejection_count +
		kube-apiserver apiserver_admission_webhook_request_total n
		kube-apiserver apiserver_request_duration_seconds +
		kube-apiserver apiserver_request_sli_duration_seconds +
		kube-apiserver apiserver_request_total +`, `
		kube-apiserver apiserver_admission_webhook_rejection_count +
		kube-apiserver apiserver_admission_webhook_request_total n
		kube-apiserver apiserver_request_duration_seconds +
		kube-apiserver apiserver_request_sli_duration_seconds +
		kube-apiserver apiserver_request_total +`},
	{APISlow, WholeCluster, 3, `
		kube-apiserver apiserver_current_inflight_requests +
		kube-apiserver apiserver_request_duration_seconds +-
		kube-apiserver apiserver_request_sli_duration_seconds +-`, `
		kube-apiserver apiserver_request_duration_seconds +-
		kube-apiserver apiserver_request_sli_duration_seconds +-`},
	{APIAggregatorDown, WholeCluster, 2, `
		kube-apiserver aggregator_unavailable_apiservice +
		kube-apiserver apiserver_request_terminations_total n`, `
		kube-apiserver apiserver_request_terminations_total n`},
	{APIServerMemory, "10.0.0.10:6443", 1.5e11, `
		kube-apiserver go_memstats_* +
		kube-apiserver process_resident_memory_bytes +
		kube-apiserver process_virtual_memory_bytes +`, ``},
	{APIWatchTraffic, "endpoints", 1.5e8, `
		kube-apiserver apiserver_watch_events_sizes +
		kube-apiserver apiserver_watch_events_total +`, `
		kube-apiserver apiserver_watch_events_sizes +
		kube-apiserver apiserver_watch_events_total +`},
	{EtcdFsyncSlow, "10.0.0.11:2381", 0, `
		etcd etcd_disk_backend_commit_duration_seconds +-
		etcd etcd_disk_wal_fsync_duration_seconds +-
		etcd etcd_disk_wal_write_duration_seconds +-
		etcd etcd_server_slow_apply_total +`, `
		etcd etcd_disk_backend_commit_duration_seconds +-
		etcd etcd_disk_wal_fsync_duration_seconds +-
		etcd etcd_disk_wal_write_duration_seconds +-
		etcd etcd_server_slow_apply_total +`},
	{EtcdDBGrows, JobEtcd, 0, `
		etcd etcd_mvcc_db_total_size_in_bytes +
		etcd etcd_mvcc_db_total_size_in_use_in_bytes +`, ``},
	{EtcdHung, JobEtcd, 0, `
		apiserver-slis kubernetes_healthcheck -
		apiserver-slis kubernetes_healthchecks_total +-n
		etcd down n
		kube-apiserver down n`, `
		apiserver-slis kubernetes_healthchecks_total +-n
		etcd process_start_time_seconds +
		etcd * -
		kube-apiserver apiserver_request_duration_seconds +-
		kube-apiserver apiserver_request_sli_duration_seconds +-
		kube-apiserver apiserver_request_total +-n
		kube-apiserver etcd_request_errors_total +`},
	{EtcdNoLeader, JobEtcd, 0, `
		apiserver-slis kubernetes_healthcheck -
		apiserver-slis kubernetes_healthchecks_total +-n
		etcd etcd_mvcc_put_total -
		etcd etcd_mvcc_txn_total -
		etcd etcd_server_has_leader -
		etcd etcd_server_health_failures +
		etcd etcd_server_is_leader -
		etcd etcd_server_proposals_applied_total -
		etcd etcd_server_proposals_committed_total -
		etcd etcd_server_proposals_failed_total +
		etcd etcd_server_proposals_pending +
		etcd grpc_server_handled_total +
		kube-apiserver apiserver_request_duration_seconds +-
		kube-apiserver apiserver_request_sli_duration_seconds +-
		kube-apiserver apiserver_request_total +-n
		kube-apiserver etcd_request_errors_total +`, `
		apiserver-slis kubernetes_healthchecks_total +-n
		etcd etcd_mvcc_put_total -
		etcd etcd_mvcc_txn_total -
		etcd etcd_server_health_failures +
		etcd etcd_server_leader_changes_seen_total +
		etcd etcd_server_proposals_applied_total -
		etcd etcd_server_proposals_committed_total -
		etcd etcd_server_proposals_failed_total +
		etcd grpc_server_handled_total +
		kube-apiserver apiserver_request_duration_seconds +-
		kube-apiserver apiserver_request_sli_duration_seconds +-
		kube-apiserver apiserver_request_total +-n
		kube-apiserver etcd_request_errors_total +`},
	// 16 changes: ten minutes before the end and afterwards another member leads.
	{EtcdLeaderChurn, JobEtcdEvents, 16, `
		etcd-events etcd_server_is_leader +-
		etcd-events etcd_server_leader_changes_seen_total +
		etcd-events etcd_server_proposals_failed_total +`, `
		etcd-events etcd_server_is_leader +-
		etcd-events etcd_server_leader_changes_seen_total +
		etcd-events etcd_server_proposals_failed_total +`},
	{GangHalfPending, "", 0, `
		cadvisor container_* gn
		cluster-autoscaler cluster_autoscaler_unschedulable_pods_count +
		dcgm-exporter DCGM_FI_* ?
		kube-scheduler scheduler_pending_pods +
		kube-state-metrics kube_job_status_failed +
		kube-state-metrics kube_pod_status_unschedulable n
		kube-state-metrics kube_pod_* gn
		kubelet kubelet_* -
		node-exporter node_cpu_seconds_total +-
		node-exporter node_load* -
		node-exporter node_memory_* +
		node-exporter node_infiniband_* -`, `
		cadvisor container_* gn
		dcgm-exporter DCGM_FI_* -
		kube-state-metrics kube_job_status_failed +
		kube-state-metrics kube_pod_* gn
		node-exporter node_cpu_seconds_total +-
		node-exporter node_infiniband_* -`},
	// Ten minutes later the freed pools have not all been taken again.
	{PodsPendingGPUsFree, WholeCluster, 0, `
		cadvisor container_* g
		cluster-autoscaler cluster_autoscaler_unschedulable_pods_count +
		dcgm-exporter DCGM_FI_* ?
		kube-scheduler scheduler_pending_pods +
		kube-state-metrics kube_job_* gn
		kube-state-metrics kube_pod_* ?
		kubelet kubelet_* -
		node-exporter node_* ?`, `
		cadvisor container_* g
		dcgm-exporter DCGM_FI_* ?
		kube-state-metrics kube_job_* g
		kube-state-metrics kube_pod_* g
		kubelet kubelet_* -
		node-exporter node_* ?`},
	{AutoscalerStuck, WholeCluster, 0, `
		cluster-autoscaler cluster_autoscaler_function_duration_seconds -
		cluster-autoscaler cluster_autoscaler_last_activity -`, `
		cluster-autoscaler cluster_autoscaler_function_duration_seconds -`},
	{AutoscalerScaleUpFailing, WholeCluster, 3, `
		cluster-autoscaler cluster_autoscaler_failed_scale_ups_total +
		cluster-autoscaler cluster_autoscaler_node_group_backoff_status n`, `
		cluster-autoscaler cluster_autoscaler_failed_scale_ups_total +
		cluster-autoscaler cluster_autoscaler_node_group_backoff_status n`},
	{PrometheusMemoryNearLimit, "10.0.0.10:9090", 0.95, `
		cadvisor container_memory_cache +
		cadvisor container_memory_rss +
		cadvisor container_memory_usage_bytes +
		cadvisor container_memory_working_set_bytes +
		prometheus go_memstats_heap_inuse_bytes +
		prometheus process_resident_memory_bytes +
		prometheus prometheus_http_request_duration_seconds +-`, `
		prometheus prometheus_http_request_duration_seconds +-`},
	// At the moment looked at the server has just been killed again.
	{PrometheusOOMLoop, "10.0.0.11:9090", 3, `
		cadvisor container_oom_events_total +
		cadvisor container_start_time_seconds +
		cadvisor container_* -
		kube-state-metrics kube_pod_container_status_last_terminated_reason n
		kube-state-metrics kube_pod_container_status_restarts_total +
		kube-state-metrics kube_pod_container_status_waiting_reason n
		kube-state-metrics kube_pod_status_ready +-
		prometheus down n`, `
		cadvisor container_oom_events_total +
		cadvisor container_start_time_seconds +
		cadvisor container_* -
		kube-state-metrics kube_pod_container_status_last_terminated_reason n
		kube-state-metrics kube_pod_container_status_restarts_total +
		prometheus process_start_time_seconds +
		prometheus prometheus_tsdb_data_replay_duration_seconds +
		prometheus prometheus_config_last_reload_success_timestamp_seconds +
		prometheus prometheus_tsdb_lowest_timestamp_seconds +
		prometheus * -`},
	{PrometheusReplaying, "10.0.0.10:9090", 0, `
		cadvisor container_memory_* +
		cadvisor container_start_time_seconds +
		cadvisor container_* -
		kube-state-metrics kube_pod_container_status_last_terminated_reason n
		kube-state-metrics kube_pod_container_status_restarts_total +
		kube-state-metrics kube_pod_status_ready +-
		prometheus process_start_time_seconds +
		prometheus process_resident_memory_bytes +
		prometheus go_memstats_heap_inuse_bytes +
		prometheus prometheus_config_last_reload_success_timestamp_seconds +
		prometheus prometheus_tsdb_lowest_timestamp_seconds +
		prometheus prometheus_ready -
		prometheus * -`, `
		cadvisor container_start_time_seconds +
		cadvisor container_* -
		kube-state-metrics kube_pod_container_status_last_terminated_reason n
		kube-state-metrics kube_pod_container_status_restarts_total +
		prometheus process_start_time_seconds +
		prometheus prometheus_tsdb_data_replay_duration_seconds +
		prometheus prometheus_config_last_reload_success_timestamp_seconds +
		prometheus prometheus_tsdb_lowest_timestamp_seconds +
		prometheus * -`},
	{CardinalityJump, JobCoreDNS, 2.5, `
		cadvisor container_memory_* +
		coredns request_debug_total n
		prometheus go_memstats_heap_inuse_bytes +
		prometheus process_resident_memory_bytes +
		prometheus prometheus_tsdb_head_series +`, ``},
}

func TestPlaneTroubles(t *testing.T) {
	m := mustNew(t, planeOptions)
	before, during, after := testUntil.Add(-stagedFor-10*time.Minute), testUntil.Add(-10*time.Minute), testUntil.Add(10*time.Minute)
	clean := map[time.Time]map[string]*reading{}
	for _, at := range []time.Time{before, during, after} {
		clean[at] = readPages(t, m, at)
	}
	seen := map[Kind]bool{}
	run := 0
	for _, c := range planeCases {
		seen[c.kind] = true
		t.Run(string(c.kind), func(t *testing.T) {
			s := stagedPlane(t, c.kind, c.target, c.value)
			for _, x := range []struct {
				name string
				at   time.Time
				want string
			}{{"before", before, ""}, {"during", during, c.during}, {"after", after, c.after}} {
				run++
				compareChanges(t, x.name, differences(t, clean[x.at], s, x.at, run), x.want)
			}
		})
	}
	for k := range planeKinds {
		if !seen[k] {
			t.Errorf("%s has no case here", k)
		}
	}
}

// The table in the docs has a row for each kind, with what Value 0 means.
func TestPlaneKindsAreDocumented(t *testing.T) {
	b, err := os.ReadFile("../../docs/simulated-cluster.md")
	if err != nil {
		t.Fatal(err)
	}
	for k, kind := range planeKinds {
		_, row, ok := strings.Cut(string(b), "\n| `"+string(k)+"` | ")
		if !ok {
			t.Errorf("docs/simulated-cluster.md has no row for %s", k)
			continue
		}
		row, _, _ = strings.Cut(row, "\n")
		value := strings.TrimSpace(strings.Split(row, "|")[1])
		def := strings.Replace(strconv.FormatFloat(kind.value, 'g', -1, 64), "e+", "e", 1)
		def = strings.Replace(def, "e0", "e", 1)
		switch {
		case kind.hi == 0:
			if value != "" {
				t.Errorf("%s has no value; the docs say %q", k, value)
			}
		case kind.value != 0 && !strings.Contains(value, "("+def+")"):
			t.Errorf("%s: 0 means %s; the docs say %q", k, def, value)
		}
		if _, ok := kinds[k]; !ok {
			t.Errorf("%s is not in kinds", k)
		}
	}
}

func stagedPlane(t *testing.T, k Kind, target string, value float64) *Model {
	t.Helper()
	o := planeOptions
	if target == "" {
		target = runningGang(t, mustNew(t, o))
	}
	o.Troubles = []Trouble{{Kind: k, Target: target, From: testUntil.Add(-stagedFor), Until: testUntil, Value: value}}
	return mustNew(t, o)
}

// compareChanges matches each change with the first line that names it; each
// line has to be of use.
func compareChanges(t *testing.T, when string, got map[string]string, want string) {
	t.Helper()
	type line struct {
		family, marks string
		used          bool
	}
	var lines []*line
	for _, l := range strings.Split(strings.TrimSpace(want), "\n") {
		if w := strings.Fields(l); len(w) == 3 {
			lines = append(lines, &line{family: w[0] + " " + w[1], marks: w[2]})
		}
	}
	for family, marks := range got {
		i := slices.IndexFunc(lines, func(l *line) bool {
			prefix, group := strings.CutSuffix(l.family, "*")
			return l.family == family || group && strings.HasPrefix(family, prefix)
		})
		switch {
		case i < 0:
			t.Errorf("%s: %s %s, which is not expected", when, family, marks)
		case lines[i].marks != "?" && lines[i].marks != marks:
			t.Errorf("%s: %s %s, expected %s", when, family, marks, lines[i].marks)
		}
		if i >= 0 {
			lines[i].used = true
		}
	}
	for _, l := range lines {
		if !l.used {
			t.Errorf("%s: %s does not change, expected %s", when, l.family, l.marks)
		}
	}
}
