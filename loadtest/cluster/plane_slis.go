package cluster

import "github.com/prometheus/common/model"

// JobAPIServerSLIs is the API servers' second page, /metrics/slis: the results
// of their own health checks and nothing else. It answers when /metrics does not.
const JobAPIServerSLIs = "apiserver-slis"

// healthchecks of an API server, and which of its three questions ask them.
var healthchecks = []struct {
	name  string
	types []string
}{
	{"ping", []string{"healthz", "livez", "readyz"}},
	{"log", []string{"healthz", "livez", "readyz"}},
	{"etcd", []string{"healthz", "livez", "readyz"}},
	{"etcd-readiness", []string{"readyz"}},
	{"informer-sync", []string{"readyz"}},
	{"autoregister-completion", []string{"healthz", "livez", "readyz"}},
	{"poststarthook/start-apiextensions-controllers", []string{"healthz", "livez", "readyz"}},
	{"poststarthook/priority-and-fairness-config-consumer", []string{"healthz", "livez", "readyz"}},
	{"shutdown", []string{"readyz"}},
}

func sliFamilies() []family {
	return []family{
		{"kubernetes_healthcheck", "Result of each health check when it was last asked, 1 is success.", model.MetricTypeGauge, emitHealthchecks},
		{"kubernetes_healthchecks_total", "How often each health check was asked, by result.", model.MetricTypeCounter, emitHealthchecks},
		{"process_start_time_seconds", "Start time of the process since unix epoch in seconds.", model.MetricTypeGauge, func(p *page, e *emitter) {
			e.add(curve{kind: since, pr: p.pr})
		}},
	}
}

// emitHealthchecks: the kubelet asks for livez and readyz, a load balancer for
// readyz, and hardly anybody for healthz.
func emitHealthchecks(p *page, e *emitter) {
	ill := p.uncommitted(JobEtcd) // nobody asks after the events' etcd
	perSecond := map[string]float64{"healthz": 0.02, "livez": 0.1, "readyz": 0.5}
	for _, c := range healthchecks {
		for _, typ := range c.types {
			pairs := []string{"name", c.name, "type", typ}
			asksEtcd := (c.name == "etcd" || c.name == "etcd-readiness") && len(ill) > 0
			if e.fam.typ == model.MetricTypeGauge {
				v := curve{base: 1}
				if asksEtcd {
					v.set(0, active(ill))
				}
				e.add(v, pairs...)
				continue
			}
			w, h := e.weight(pairs)
			good := e.rate(perSecond[typ]*w, true, h, p.pr)
			bad := curve{}
			if asksEtcd {
				good.held(active(ill))
				bad.more(p.pr, levels(ill, func(event) float64 { return perSecond[typ] * w }))
			}
			e.add(good, append(pairs, "status", "success")...)
			switch {
			case typ == "readyz" && (c.name == "informer-sync" || c.name == "etcd-readiness"):
				// Not ready at first: as the 500s of /readyz right after a start.
				if bad.kind == constant {
					bad.base = 1
				} else {
					bad.plus = 1
				}
				e.add(bad, append(pairs, "status", "error")...)
			case asksEtcd:
				e.addIn(ill[0].from, never, bad, append(pairs, "status", "error")...)
			}
		}
	}
}
