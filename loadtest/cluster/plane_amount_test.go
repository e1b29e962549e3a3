package cluster

import (
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"
)

// asked reads one model for the checks below.
type asked struct {
	t *testing.T
	m *Model
}

// sum adds up the series of a job's pages whose name and labels ("a=b") are as
// given; an instance can be asked for as "instance=…".
func (a asked) sum(at time.Time, job, name string, match ...string) float64 {
	v, _ := a.read(at, job, name, match...)
	return v
}

func (a asked) read(at time.Time, job, name string, match ...string) (sum float64, n int) {
	a.t.Helper()
	ms := at.UnixMilli()
	for i := range a.m.targets {
		tg := &a.m.targets[i]
		if tg.Job != job {
			continue
		}
		p := a.m.compiler(ms, ms, false).page(tg)
		if !p.answers(ms) {
			continue
		}
		p.collect(familiesOf(job, a.m.o.Detail), func(s *series) {
			if s.name != name || ms < s.from || ms >= s.until {
				return
			}
			for _, want := range match {
				k, v, _ := strings.Cut(want, "=")
				if have := s.label(k); have != v && (k != "instance" || tg.Instance != v) {
					return
				}
			}
			sum += s.curve.at(ms)
			n++
		})
	}
	return sum, n
}

// The middle of the trouble, ten minutes long.
var (
	middle    = testUntil.Add(-stagedFor / 2)
	middleEnd = middle.Add(10 * time.Minute)
	aMoment   = testUntil.Add(-time.Second)
	later     = testUntil.Add(10 * time.Minute)
)

// rate is by how much the sum rises a second in the middle of the trouble.
func (a asked) rate(job, name string, match ...string) float64 {
	a.t.Helper()
	return (a.sum(middleEnd, job, name, match...) - a.sum(middle, job, name, match...)) / middleEnd.Sub(middle).Seconds()
}

// above is the share of the observations in the middle of the trouble that are
// over a bound of the histogram.
func (a asked) above(job, name, le string, match ...string) float64 {
	a.t.Helper()
	all := a.rate(job, name+"_count", match...)
	return 1 - a.rate(job, name+"_bucket", append(match, "le="+le)...)/all
}

func (a asked) near(what string, got, want, tolerance float64) {
	a.t.Helper()
	if !(math.Abs(got-want) <= tolerance*math.Abs(want)) {
		a.t.Errorf("%s is %v, should be about %v", what, got, want)
	}
}

func (a asked) atLeast(what string, got, want float64) {
	a.t.Helper()
	if !(got >= want) {
		a.t.Errorf("%s is %v, should be %v or more", what, got, want)
	}
}

// How much each kind changes, as its comment promises.
var planeAmounts = map[Kind]func(a asked){
	DNSErrors: func(a asked) {
		a.near("share of SERVFAIL", a.rate(JobCoreDNS, "coredns_dns_responses_total", "rcode=SERVFAIL")/a.rate(JobCoreDNS,
			"coredns_dns_responses_total"), 0.3, 0.15)
	},
	DNSSlow: func(a asked) {
		a.near("share above 1 s", a.above(JobCoreDNS, "coredns_dns_request_duration_seconds", "1.024"), 0.47, 0.25)
	},
	APIThrottling: func(a asked) {
		refused := a.rate(JobAPIServer, "apiserver_request_total", "code=429")
		a.near("share of 429", refused/a.rate(JobAPIServer, "apiserver_request_total"), 0.1, 0.3)
		a.near("terminations", a.rate(JobAPIServer, "apiserver_request_terminations_total", "code=429"), refused, 0.01)
		a.near("rejections", a.rate(JobAPIServer, "apiserver_flowcontrol_rejected_requests_total", "flow_schema=service-accounts",
			"reason=concurrency-limit"), refused, 0.01)
		a.near("seats", a.sum(middle, JobAPIServer, "apiserver_flowcontrol_current_executing_seats", "flow_schema=service-accounts"),
			a.sum(middle, JobAPIServer, "apiserver_flowcontrol_current_limit_seats", "priority_level=workload-low"), 0.001)
	},
	APIThrottlingInFlight: func(a asked) {
		a.near("share of 429", a.rate(JobAPIServer, "apiserver_request_total", "code=429")/a.rate(JobAPIServer, "apiserver_request_total"),
			0.1, 0.3)
		if r := a.rate(JobAPIServer, "apiserver_flowcontrol_rejected_requests_total"); r != 0 {
			a.t.Errorf("flow control counts %v rejections a second", r)
		}
		a.near("readers in flight", a.sum(middle, JobAPIServer, "apiserver_current_inflight_requests", "request_kind=readOnly"), 400, 0)
	},
	APIErrors: func(a asked) {
		failed := a.rate(JobAPIServer, "apiserver_request_total", "code=500")
		a.near("share of 500", failed/a.rate(JobAPIServer, "apiserver_request_total"), 0.05, 0.3)
		a.near("rejections", a.rate(JobAPIServer, "apiserver_admission_webhook_rejection_count", "error_type=calling_webhook_error",
			"name="+failingWebhook), failed, 0.01)
	},
	APISlow: func(a asked) {
		a.near("share of GETs of pods above 1 s",
			a.above(JobAPIServer, "apiserver_request_sli_duration_seconds", "1", "verb=GET", "resource=pods"), 0.49, 0.25)
		a.near("share of LISTs of pods above 10 s",
			a.above(JobAPIServer, "apiserver_request_duration_seconds", "10", "verb=LIST", "scope=cluster", "resource=pods"), 0.49, 0.25)
	},
	APIAggregatorDown: func(a asked) {
		a.near("503s", a.rate(JobAPIServer, "apiserver_request_terminations_total", "code=503", "component=aggregator"), 2, 0.01)
		a.near("gauge", a.sum(middle, JobAPIServer, "aggregator_unavailable_apiservice"), 1, 0)
		if _, n := a.read(middle, JobAPIServer, "apiserver_request_total", "code=503"); n > 0 {
			a.t.Error("apiserver_request_total counts 503s")
		}
	},
	APIServerMemory: func(a asked) {
		a.near("memory", a.sum(middle, JobAPIServer, "process_resident_memory_bytes"), 1.5e11, 0.001)
	},
	APIWatchTraffic: func(a asked) {
		a.near("bytes a second", a.rate(JobAPIServer, "apiserver_watch_events_sizes_sum", "resource=endpoints"), 1.5e8, 0.01)
		a.near("events", a.rate(JobAPIServer, "apiserver_watch_events_total", "resource=endpoints"),
			a.rate(JobAPIServer, "apiserver_watch_events_sizes_count", "resource=endpoints"), 0.01)
	},
	EtcdFsyncSlow: func(a asked) {
		a.atLeast("share above 16 ms", a.above(JobEtcd, "etcd_disk_wal_fsync_duration_seconds", "0.016", "instance=10.0.0.11:2381"), 0.9)
		if v := a.above(JobEtcd, "etcd_disk_wal_fsync_duration_seconds", "0.016", "instance=10.0.0.10:2381"); v > 0.01 {
			a.t.Errorf("another member's fsyncs are slow too: %v", v)
		}
	},
	EtcdDBGrows: func(a asked) {
		quota := a.sum(middle, JobEtcd, "etcd_server_quota_backend_bytes")
		a.near("share of the quota at the end", a.sum(aMoment, JobEtcd, "etcd_mvcc_db_total_size_in_bytes")/quota, 0.9, 0.01)
		a.near("share of the quota in the middle", a.sum(middle, JobEtcd, "etcd_mvcc_db_total_size_in_bytes")/quota, 0.61, 0.05)
		if a.sum(middle, JobEtcd, "etcd_mvcc_db_total_size_in_use_in_bytes") > a.sum(middle, JobEtcd, "etcd_mvcc_db_total_size_in_bytes") {
			a.t.Error("more is in use than there is")
		}
	},
	EtcdHung: func(a asked) {
		for job, want := range map[string]int{
			JobAPIServer: http.StatusServiceUnavailable, JobEtcd: http.StatusServiceUnavailable,
			JobAPIServerSLIs: http.StatusOK, JobEtcdEvents: http.StatusOK,
		} {
			i := slices.IndexFunc(a.m.targets, func(t Target) bool { return t.Job == job })
			w := httptest.NewRecorder()
			a.m.Handler(func() time.Time { return middle }).ServeHTTP(w,
				httptest.NewRequest(http.MethodGet, ScrapePath(a.m.targets[i]), nil))
			if w.Code != want {
				a.t.Errorf("%s answers %d, should answer %d", job, w.Code, want)
			}
		}
		a.near("etcd's health", a.sum(middle, JobAPIServerSLIs, "kubernetes_healthcheck", "name=etcd", "type=readyz"), 0, 0)
		a.near("ping's health", a.sum(middle, JobAPIServerSLIs, "kubernetes_healthcheck", "name=ping", "type=readyz"), 1, 0)
		start := testUntil.Add(-stagedFor - time.Second)
		a.atLeast("500s counted unseen", a.sum(later, JobAPIServer, "apiserver_request_total", "code=500", "verb=PUT")-a.sum(start,
			JobAPIServer, "apiserver_request_total", "code=500", "verb=PUT"), 100)
	},
	EtcdNoLeader: func(a asked) {
		a.near("leaders seen", a.sum(middle, JobEtcd, "etcd_server_has_leader")+a.sum(middle, JobEtcd, "etcd_server_is_leader"), 0, 0)
		a.near("commits", a.rate(JobEtcd, "etcd_server_proposals_committed_total"), 0, 0)
		a.near("leaders of events", a.sum(middle, JobEtcdEvents, "etcd_server_has_leader"), 3, 0)
		a.near("leaders after", a.sum(later, JobEtcd, "etcd_server_is_leader"), 1, 0)
		ok, failed := a.rate(JobAPIServer, "apiserver_request_total", "verb=PUT", "code=200", "resource=leases"),
			a.rate(JobAPIServer, "apiserver_request_total", "verb=PUT", "code=500", "resource=leases")
		if ok != 0 || failed == 0 {
			a.t.Errorf("%v writes a second succeed, %v fail", ok, failed)
		}
		if r := a.rate(JobAPIServer, "apiserver_request_total", "verb=GET", "code=200", "resource=pods"); r == 0 {
			a.t.Error("reads fail too")
		}
		a.atLeast("failing /readyz", a.rate(JobAPIServer, "apiserver_request_total", "subresource=/readyz", "code=500"), 0.1)
	},
	EtcdLeaderChurn: func(a asked) {
		n := a.sum(testUntil, JobEtcdEvents, "etcd_server_leader_changes_seen_total") - a.sum(testUntil.Add(-stagedFor-time.Second),
			JobEtcdEvents, "etcd_server_leader_changes_seen_total")
		a.near("changes seen by three members", n, 3*16, 0)
		for at := testUntil.Add(-stagedFor); at.Before(later); at = at.Add(time.Minute) {
			a.near("leaders", a.sum(at, JobEtcdEvents, "etcd_server_is_leader"), 1, 0)
		}
	},
	GangHalfPending: func(a asked) {
		gang := a.m.o.Troubles[0].Target
		phases := func(at time.Time) (running, pending float64) {
			ms := at.UnixMilli()
			a.m.eachExperiment(ms, ms, func(x *experiment) {
				if x.name != gang {
					return
				}
				for rank := range x.size() {
					pod := "pod=" + x.name + "-w-" + string(rune('0'+rank))
					running += a.sum(at, JobKubeStateMetrics, "kube_pod_status_phase", "phase=Running", pod)
					pending += a.sum(at, JobKubeStateMetrics, "kube_pod_status_phase", "phase=Pending", pod)
				}
			})
			return running, pending
		}
		if r, p := phases(middle); r == 0 || p == 0 || math.Abs(r-p) > 1 {
			a.t.Errorf("%v pods run, %v are pending", r, p)
		}
		if r, p := phases(later); r == 0 || p != 0 {
			a.t.Errorf("afterwards %v pods run, %v are pending", r, p)
		}
	},
	PodsPendingGPUsFree: func(a asked) {
		a.atLeast("unschedulable pods", a.sum(middle, JobKubeStateMetrics, "kube_pod_status_unschedulable"), 4)
		all := float64(a.m.o.Nodes * a.m.o.GPUsPerNode)
		busy := a.sum(middle, JobCadvisor, "container_spec_memory_limit_bytes", "container=trainer")
		if _, n := a.read(middle, JobDCGM, "DCGM_FI_DEV_GPU_UTIL", "pod="); float64(n) < all/4 {
			a.t.Errorf("%d of %v GPUs are free (%v)", n, all, busy)
		}
	},
	AutoscalerStuck: func(a asked) {
		age := func(at time.Time) float64 {
			return float64(at.Unix()) - a.sum(at, JobAutoscaler, "cluster_autoscaler_last_activity", "activity=main")
		}
		a.near("age", age(aMoment), stagedFor.Seconds(), 0.02)
		if v := age(later); v > 10 {
			a.t.Errorf("afterwards it stands still for %v s", v)
		}
		if v := age(testUntil.Add(-stagedFor - time.Second)); v > 10 {
			a.t.Errorf("before it stood still for %v s", v)
		}
	},
	AutoscalerScaleUpFailing: func(a asked) {
		a.near("failures a minute", 60*a.rate(JobAutoscaler, "cluster_autoscaler_failed_scale_ups_total"), 3, 0.1)
		a.near("groups in backoff", a.sum(middle, JobAutoscaler, "cluster_autoscaler_node_group_backoff_status"), 1, 0)
		a.near("groups in backoff after", a.sum(later, JobAutoscaler, "cluster_autoscaler_node_group_backoff_status"), 0, 0)
	},
	PrometheusMemoryNearLimit: func(a asked) {
		wss := a.sum(middle, JobCadvisor, "container_memory_working_set_bytes", "pod=prometheus-k8s-0")
		a.near("share of the limit", wss/a.sum(middle, JobCadvisor, "container_spec_memory_limit_bytes", "pod=prometheus-k8s-0"), 0.95,
			0.001)
		a.near("share of the limit", wss/a.sum(middle, JobKubeStateMetrics, "kube_pod_container_resource_limits", "pod=prometheus-k8s-0",
			"resource=memory"), 0.95, 0.001)
		a.near("share of long /api/v1/series", a.above(JobPrometheus, "prometheus_http_request_duration_seconds", "20",
			"handler=/api/v1/series", "instance=10.0.0.10:9090"), 0.29, 0.25)
		other := a.sum(middle, JobCadvisor, "container_memory_working_set_bytes", "pod=prometheus-k8s-1") / promLimit
		if other > 0.6 {
			a.t.Errorf("the other server has %v of its limit", other)
		}
	},
	PrometheusOOMLoop: func(a asked) {
		a.near("restarts", a.sum(aMoment, JobKubeStateMetrics, "kube_pod_container_status_restarts_total", "container=prometheus"), 3, 0)
		a.near("kills", a.sum(later, JobCadvisor, "container_oom_events_total", "container=prometheus"), 3, 0)
		a.near("reason", a.sum(later, JobKubeStateMetrics, "kube_pod_container_status_last_terminated_reason", "container=prometheus",
			"reason=OOMKilled"), 1, 0)
		a.near("ready after", a.sum(later, JobPrometheus, "prometheus_ready"), 2, 0)
		kill := testUntil.Add(-stagedFor + 10*time.Minute)
		a.atLeast("memory right before a kill",
			a.sum(kill.Add(-time.Second), JobCadvisor, "container_memory_working_set_bytes", "pod=prometheus-k8s-1")/promLimit, 0.95)
		a.near("ready right after a kill", a.sum(kill.Add(time.Minute), JobPrometheus, "prometheus_ready"), 1, 0)
	},
	PrometheusReplaying: func(a asked) {
		a.near("ready", a.sum(middle, JobPrometheus, "prometheus_ready", "instance=10.0.0.10:9090"), 0, 0)
		a.near("ready after", a.sum(later, JobPrometheus, "prometheus_ready", "instance=10.0.0.10:9090"), 1, 0)
		a.near("replay", a.sum(later, JobPrometheus, "prometheus_tsdb_data_replay_duration_seconds", "instance=10.0.0.10:9090"),
			stagedFor.Seconds(), 0.01)
		a.near("samples", a.rate(JobPrometheus, "prometheus_tsdb_head_samples_appended_total", "instance=10.0.0.10:9090"), 0, 0)
	},
	CardinalityJump: func(a asked) {
		count := func(at time.Time) (n float64) {
			sz, err := a.m.Sizes(at, 1)
			if err != nil {
				a.t.Fatal(err)
			}
			return float64(sz[JobCoreDNS].Series)
		}
		a.near("series", count(middle)/count(later), 2.5, 0.01)
		before := testUntil.Add(-stagedFor - time.Second)
		a.near("head", a.sum(aMoment, JobPrometheus, "prometheus_tsdb_head_series")/a.sum(before, JobPrometheus,
			"prometheus_tsdb_head_series"), 2.5, 0.1)
		if share := a.sum(aMoment, JobCadvisor, "container_memory_working_set_bytes",
			"container=prometheus") / 2 / promLimit; share > 0.81 {
			a.t.Errorf("memory is at %v of the limit", share)
		}
	},
}

func TestPlaneAmounts(t *testing.T) {
	for _, c := range planeCases {
		t.Run(string(c.kind), func(t *testing.T) {
			check, ok := planeAmounts[c.kind]
			if !ok {
				t.Fatal("no check of how much it changes")
			}
			check(asked{t, stagedPlane(t, c.kind, c.target, c.value)})
		})
	}
}

// TestQuietHead: PrometheusHeadSeriesRunaway forecasts four hours and is about growth by half.
// However little of a quiet server's past it sees, it finds none.
func TestQuietHead(t *testing.T) {
	for seed := range uint64(10) {
		o := planeOptions
		o.Seed, o.Troubles = seed, nil
		a := asked{t, mustNew(t, o)}
		for ord := range promServers {
			head := func(at time.Time) float64 {
				v, n := a.read(at, JobPrometheus, "prometheus_tsdb_head_series", "instance="+promInstance(ord))
				if n != 1 {
					t.Fatalf("%d series of one head", n)
				}
				return v
			}
			const step = time.Minute
			was := head(testUntil)
			for at := testUntil.Add(step); at.Before(testUntil.Add(time.Hour)); at = at.Add(step) {
				is := head(at)
				if growth := 1 + (is-was)/is*(4*time.Hour).Seconds()/step.Seconds(); growth > 1.45 {
					t.Errorf("seed %d, server %d: from %s on the head has grown by %.0f of %.0f within %s, so it is forecast to be %.2f times as large", seed, ord, at, is-was, is, step, growth)
					break
				}
				was = is
			}
		}
	}
}

// allPlaneTroubles is every kind in one hour, one after another and over one
// another.
func allPlaneTroubles(t *testing.T) Options {
	t.Helper()
	o := planeOptions
	o.Detail = Lean
	gang := ""
	at := testUntil.Add(-stagedFor)
	for _, x := range mustNew(t, o).Experiments(at, at) {
		if len(x.Nodes) > 1 && len(x.Runs) > 0 && x.Runs[0].From.Before(at) && x.Runs[0].Until.After(testUntil) {
			gang = x.Name
		}
	}
	for i, c := range planeCases {
		tr := Trouble{
			Kind: c.kind, Target: c.target, Value: c.value,
			From: testUntil.Add(time.Duration(i-len(planeCases)-8) * 2 * time.Minute),
		}
		tr.Until = tr.From.Add(9 * time.Minute)
		switch c.kind {
		case GangHalfPending:
			tr.Target, tr.From, tr.Until = gang, at, at.Add(9*time.Minute)
		case APIWatchTraffic:
			tr.Target = "pods"
		}
		o.Troubles = append(o.Troubles, tr)
	}
	return o
}

// What a curve says of a moment does not depend on the window that its page was
// made for: back-fill and scrape agree. Counters do not fall but where their
// process starts, and histograms stay histograms.
func TestPlaneTroublesInWindows(t *testing.T) {
	m := mustNew(t, allPlaneTroubles(t))
	from, until := testUntil.Add(-70*time.Minute).UnixMilli(), testUntil.UnixMilli()
	type key struct{ target, series string }
	pages, values := 0, 0
	for i := range m.targets {
		tg := &m.targets[i]
		wide := m.compiler(from, until, false).page(tg)
		curves := map[key][]life{}
		name := func(s *series) key { return key{tg.Job + tg.Instance, s.name + strings.Join(s.pairs, ",")} }
		wide.collect(familiesOf(tg.Job, m.o.Detail), func(s *series) { curves[name(s)] = append(curves[name(s)], s.life) })
		for at := from; at < until; at += 7*60e3 + 321 {
			narrow := m.compiler(at, at, false).page(tg)
			if narrow.answers(at) != wide.answers(at) {
				t.Fatalf("%s/%s at %s: answers %v, in a window %v", tg.Job, tg.Instance, time.UnixMilli(at).UTC(), narrow.answers(at),
					wide.answers(at))
			}
			if !narrow.answers(at) {
				continue
			}
			pages++
			alive := 0
			last, lastBucket := "", 0.0
			narrow.collect(familiesOf(tg.Job, m.o.Detail), func(s *series) {
				if at < s.from || at >= s.until {
					return
				}
				alive++
				v := s.curve.at(at)
				in := slices.IndexFunc(curves[name(s)], func(l life) bool { return at >= l.from && at < l.until })
				if in < 0 {
					t.Fatalf("%v is not in the window at %s", name(s), time.UnixMilli(at).UTC())
				}
				if w := curves[name(s)][in].curve.at(at); math.Abs(v-w) > 1e-9*math.Abs(v) {
					t.Fatalf("%v at %s: %v, in the window %v", name(s), time.UnixMilli(at).UTC(), v, w)
				}
				if strings.HasSuffix(s.name, "_bucket") {
					id := s.name + strings.Join(s.pairs[:len(s.pairs)-1], ",")
					if id == last && v < lastBucket {
						t.Fatalf("%v is %v, less than the bucket before (%v)", name(s), v, lastBucket)
					}
					last, lastBucket = id, v
				}
				values++
			})
			inWindow := 0
			for _, lives := range curves {
				for _, l := range lives {
					if at >= l.from && at < l.until {
						inWindow++
					}
				}
			}
			if inWindow != alive {
				t.Fatalf("%s/%s at %s: %d series, in the window %d", tg.Job, tg.Instance, time.UnixMilli(at).UTC(), alive, inWindow)
			}
		}
		// Every half minute, the counters.
		starts := wide.pr.starts
		for k, lives := range curves {
			for _, l := range lives {
				if l.curve.kind != counter || l.curve.pr != wide.pr {
					continue
				}
				was := -1.0
				for at := max(from, l.from); at < min(until, l.until); at += 30e3 {
					v := l.curve.at(at)
					reborn := slices.ContainsFunc(starts, func(s int64) bool { return s > at-30e3 && s <= at })
					if v < was && !reborn {
						t.Fatalf("%v fell from %v to %v at %s", k, was, v, time.UnixMilli(at).UTC())
					}
					was = v
				}
			}
		}
	}
	t.Logf("%d pages, %d values", pages, values)
}

func TestPlaneTroublesRefused(t *testing.T) {
	at := testUntil.Add(-stagedFor)
	single := ""
	for _, x := range mustNew(t, planeOptions).Experiments(at, at) {
		if len(x.Nodes) == 1 {
			single = x.Name
		}
	}
	for _, c := range []struct {
		kind   Kind
		target string
		value  float64
		want   string
	}{
		{"EtcdOnFire", "etcd", 0, "is not one that the model knows"},
		{DNSErrors, "coredns", 0, `give "cluster"`},
		{DNSErrors, "cluster", 1.5, "outside 0.001 to 0.99"},
		{DNSSlow, "cluster", math.NaN(), "not a number"},
		{APIThrottling, "exempt", 0, "service-accounts"},
		{APISlow, "10.0.0.10:2381", 0, "no instance of kube-apiserver"},
		{APIServerMemory, "10.0.0.99:6443", 0, "10.0.0.10:6443"},
		{APIWatchTraffic, "unicorns", 0, "no resource of this cluster"},
		{EtcdFsyncSlow, "etcd", 0, "no instance of etcd or etcd-events"},
		{EtcdHung, "10.0.0.10:2381", 0, "none of the jobs etcd, etcd-events"},
		{EtcdHung, "etcd", 1, "this kind has none"},
		{GangHalfPending, "nobody", 0, "Experiments lists them"},
		{GangHalfPending, single, 0, "has one pod"},
		{PrometheusOOMLoop, "prometheus", 0, "10.0.0.11:9090"},
		{CardinalityJump, "nothing", 0, "none of the jobs"},
		{CardinalityJump, "coredns", 0.5, "outside 1.01 to 100"},
	} {
		o := planeOptions
		o.Troubles = []Trouble{{Kind: c.kind, Target: c.target, From: at, Until: testUntil, Value: c.value}}
		_, err := New(o)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s %v: error %v, should say %q", c.kind, c.target, c.value, err, c.want)
		}
		if errors.Unwrap(err) == nil && err != nil {
			t.Errorf("%s: %v wraps nothing", c.kind, err)
		}
	}
}
