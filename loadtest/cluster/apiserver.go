package cluster

import (
	"math"

	"github.com/prometheus/common/model"
)

// The bounds of the API server's own histograms, as it exports them.
var (
	requestLEs, requestBounds   = leSet("0.005|0.025|0.05|0.1|0.2|0.4|0.6|0.8|1|1.25|1.5|2|3|4|5|6|8|10|15|20|30|45|60|+Inf")
	sliLEs, sliBounds           = leSet("0.05|0.1|0.2|0.4|0.6|0.8|1|1.25|1.5|2|3|4|5|6|8|10|15|20|30|45|60|+Inf")
	responseLEs, responseBounds = leSet("1000|10000|100000|1e+06|1e+07|1e+08|1e+09|+Inf")
	bodyLEs, bodyBounds         = leSet("50000|150000|250000|350000|450000|550000|650000|750000|850000|950000|1.05e+06|1.15e+06|1.25e+06|1.35e+06|1.45e+06|1.55e+06|1.65e+06|1.75e+06|1.85e+06|1.95e+06|2.05e+06|2.15e+06|2.25e+06|2.35e+06|2.45e+06|2.55e+06|2.65e+06|2.75e+06|2.85e+06|2.95e+06|3.05e+06|+Inf")
)

func leSet(s string) ([]string, []float64) {
	f := schemaFamily{family: family{typ: model.MetricTypeHistogram}}
	if err := f.parseLabels("le{" + s + "}"); err != nil {
		panic(err)
	}
	return f.les, f.bounds
}

// request is one line of traffic at an API server.
type request struct {
	r                *apiResource
	verb, scope, sub string
	perSecond        float64
	median           float64 // of the duration, s
}

func (q *request) pairs(dry bool) []string {
	p := []string{"component", "apiserver"}
	if dry {
		p = append(p, "dry_run", "")
	}
	return append(p, "group", q.r.group, "resource", q.r.resource, "scope", q.scope, "subresource", q.sub, "verb", q.verb, "version",
		q.r.version)
}

// requests lists the traffic of one instance. Busy clusters ask more.
func (m *Model) requests() []request {
	var out []request
	load := 0.2 + float64(m.o.Nodes)/1000
	for i := range m.kinds {
		r := &m.kinds[i]
		for _, verb := range r.verbs {
			q := request{r: r, verb: verb, scope: "resource", perSecond: r.weight * load, median: 0.006}
			switch verb {
			case "LIST":
				q.scope, q.median, q.perSecond = "cluster", 0.05, r.weight*load/6
				if m.o.Detail == Full && r.scope == "namespace" {
					n := q
					n.scope, n.median = "namespace", 0.02
					out = append(out, n)
				}
			case "WATCH":
				q.scope, q.median, q.perSecond = "cluster", 420, r.weight*load/30
			case "POST", "PUT", "PATCH", "DELETE":
				q.median, q.perSecond = 0.012, r.weight*load/3
			}
			out = append(out, q)
		}
		if r.resource == "pods" || r.resource == "nodes" {
			out = append(out, request{r: r, verb: "PATCH", scope: "resource", sub: "status", perSecond: r.weight * load, median: 0.009})
		}
	}
	probe := &apiResource{}
	for _, sub := range []string{"/readyz", "/livez"} {
		out = append(out, request{r: probe, verb: "GET", sub: sub, perSecond: 0.5, median: 0.004})
	}
	return out
}

func apiServerFamilies(d Detail) []family {
	own := []family{
		{"apiserver_request_total", "Requests to the API server by verb, resource, scope and HTTP code.", model.MetricTypeCounter, emitRequestTotal},
		{"apiserver_request_duration_seconds", "Response latency of requests, watches and other long ones included.", model.MetricTypeHistogram, emitRequestDuration},
		{"apiserver_request_sli_duration_seconds", "Response latency without the time in webhooks and queues, long-running requests excluded.", model.MetricTypeHistogram, emitRequestSLI},
		{"apiserver_response_sizes", "Response sizes in bytes of reading requests.", model.MetricTypeHistogram, emitResponseSizes},
		{"apiserver_request_terminations_total", "Requests that the server ended by itself, in self-defence or because a backend is gone.", model.MetricTypeCounter, emitTerminations},
	}
	own = append(own,
		family{"apiserver_resource_objects", "Number of stored objects at the time of last check.", model.MetricTypeGauge, emitObjects},
		family{"process_resident_memory_bytes", "Resident memory size in bytes.", model.MetricTypeGauge, func(p *page, e *emitter) {
			c := curve{kind: gauge, base: 4e8 + 4e6*float64(p.m.o.Nodes), whole: true}
			c.amp = c.base / 8
			e.add(wave(c, p.h))
		}})
	if d == Full {
		own = append(own,
			family{"apiserver_storage_objects", "Number of stored objects at the time of last check split by kind (the name before apiserver_resource_objects).", model.MetricTypeGauge, emitObjects},
			family{
				"apiserver_request_body_size_bytes", "Request body sizes of writing requests.", model.MetricTypeHistogram,
				emitBodySizes,
			},
			family{"apiserver_selfrequest_total", "Requests of the API server to itself.", model.MetricTypeCounter, emitSelfRequests})
	}
	return own
}

func (p *page) eachRequest(e *emitter, dry bool, f func(q *request, rate curve, h uint64, pairs []string)) {
	for i := range p.cluster.requests {
		q := &p.cluster.requests[i]
		pairs := q.pairs(dry)
		w, h := e.weight(pairs)
		f(q, e.rate(q.perSecond*w, true, h, p.pr), h, pairs)
	}
}

func emitRequestTotal(p *page, e *emitter) {
	tr := p.apiTroubles()
	p.eachRequest(e, true, func(q *request, c curve, h uint64, pairs []string) {
		lost := tr.lost(q)
		failed := curve{}
		if lost != nil {
			failed.more(p.pr, levels(lost, func(event) float64 { return c.base }))
			c.held(active(lost))
		}
		code := "200"
		if q.verb == "POST" {
			code = "201"
		}
		e.add(c, append([]string{"code", code}, pairs...)...)
		if q.sub != "" && q.sub[0] == '/' {
			// Right after a start the server is not ready and says so in 500s that
			// are no user's errors; they stay in the counter for ever.
			if failed.kind == constant {
				failed.base = float64(16 + h%48)
			} else {
				failed.plus = float64(16 + h%48)
			}
			e.add(failed, append([]string{"code", "500"}, pairs...)...)
			return
		}
		other := map[string]string{"GET": "404", "PUT": "409", "PATCH": "409", "POST": "409", "LIST": "410", "DELETE": "404"}[q.verb]
		if other != "" && (q.r.weight >= 1 || p.m.o.Detail == Full) {
			e.add(e.rate(q.perSecond*0.004, true, h+7, p.pr), append([]string{"code", other}, pairs...)...)
		}
		if q.r.weight >= 6 && q.verb != "WATCH" {
			refused := curve{}
			if tr.throttled != nil && q.isListOfPods() {
				refused.more(p.pr, tr.throttled)
			}
			if tr.failing != nil && q.isPostOfPods() {
				failed.more(p.pr, tr.failing)
			}
			e.add(refused, append([]string{"code", "429"}, pairs...)...)
			e.add(failed, append([]string{"code", "500"}, pairs...)...)
		} else if lost != nil {
			e.addIn(lost[0].from, never, failed, append([]string{"code", "500"}, pairs...)...)
		}
	})
}

func emitRequestDuration(p *page, e *emitter) {
	p.eachRequest(e, true, func(q *request, c curve, h uint64, pairs []string) {
		d := dist{q.median * between(mix(h+3), 0.7, 1.5), 0.9}
		e.histogram(0, never, c, d, requestLEs, requestBounds, pairs...)
	})
}

func emitRequestSLI(p *page, e *emitter) {
	p.eachRequest(e, false, func(q *request, c curve, h uint64, pairs []string) {
		if q.verb == "WATCH" {
			return
		}
		d := dist{q.median * between(mix(h+3), 0.6, 1.3), 0.85}
		e.histogram(0, never, c, d, sliLEs, sliBounds, pairs...)
	})
}

func emitResponseSizes(p *page, e *emitter) {
	p.eachRequest(e, false, func(q *request, c curve, h uint64, pairs []string) {
		if q.verb != "GET" && q.verb != "LIST" {
			return
		}
		d := dist{2500, 1}
		if q.verb == "LIST" {
			d.median = 900 * float64(p.m.o.Nodes+20)
		}
		e.histogram(0, never, c, d, responseLEs, responseBounds, pairs...)
	})
}

func emitBodySizes(p *page, e *emitter) {
	p.eachRequest(e, false, func(q *request, c curve, h uint64, _ []string) {
		switch q.verb {
		case "POST", "PUT", "PATCH", "DELETE":
		default:
			return
		}
		if q.sub != "" {
			return
		}
		verb := map[string]string{"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[q.verb]
		e.histogram(0, never, c, dist{4000, 1.2}, bodyLEs, bodyBounds, "group", q.r.group, "resource", q.r.resource, "verb", verb)
	})
}

// emitObjects: what etcd holds follows the size of the cluster.
func emitObjects(p *page, e *emitter) {
	n := float64(p.m.o.Nodes)
	for i := range p.m.kinds {
		r := &p.m.kinds[i]
		var c curve
		switch r.resource {
		case "nodes":
			c.base = n
		case "leases":
			c.base = n + 12
		case "pods":
			c = curve{kind: gauge, base: n * float64(p.m.daemonCount()+1), amp: n / 10, whole: true}
		case "events":
			c = curve{kind: gauge, base: 60 + 4*n, amp: 30 + n, whole: true}
		default:
			w, _ := e.weight([]string{"", r.resource})
			c.base = math.Round(200 * w)
		}
		_, h := e.weight([]string{"", r.group, "", r.resource})
		if e.fam.name == "apiserver_resource_objects" {
			e.add(wave(c, h), "group", r.group, "resource", r.resource)
			continue
		}
		name := r.resource
		if r.group != "" {
			name += "." + r.group
		}
		e.add(wave(c, h), "resource", name)
	}
}

func emitTerminations(p *page, e *emitter) {
	r := apiResource{version: "v1", resource: "pods"}
	for _, code := range []string{"429", "504"} {
		q := request{r: &r, verb: "LIST", scope: "cluster"}
		e.add(curve{}, append([]string{"code", code}, q.pairs(false)...)...)
	}
}

func emitSelfRequests(p *page, e *emitter) {
	for _, res := range []string{"configmaps", "namespaces", "nodes", "pods", "services", "leases"} {
		group := ""
		if res == "leases" {
			group = "coordination.k8s.io"
		}
		for _, verb := range []string{"GET", "LIST", "WATCH"} {
			w, h := e.weight([]string{"", res, "", verb})
			e.add(e.rate(0.05*w, true, h, p.pr), "group", group, "resource", res, "subresource", "", "verb", verb)
		}
	}
}
