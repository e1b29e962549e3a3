package cluster

import "maps"

// How the API servers' pages follow troubles: their own, and those of etcd.

// apiTroubles is what concerns the requests of one API server.
type apiTroubles struct {
	throttled *steps  // 429s a second, nil: none
	failing   *steps  // 500s a second of a webhook
	main      []event // etcd or the events' etcd commits nothing
	events    []event
}

func (p *page) apiTroubles() apiTroubles {
	tr := apiTroubles{main: p.uncommitted(JobEtcd), events: p.uncommitted(JobEtcdEvents)}
	if refused := append(p.throttled(), p.troubles(APIThrottlingInFlight)...); len(refused) > 0 {
		tr.throttled = levels(refused, p.shareOfRequests)
	}
	if evs := p.troubles(APIErrors); len(evs) > 0 {
		tr.failing = levels(evs, p.shareOfRequests)
	}
	return tr
}

// throttled are the events of APIThrottling, whatever the flow schema.
func (p *page) throttled() []event {
	var out []event
	if p.m.tl.kinds[APIThrottling] {
		for _, row := range tables["f"].rows {
			out = append(out, p.m.tl.staged[eventKey{APIThrottling, row[0]}]...)
		}
	}
	return out
}

// uncommitted is when an etcd job takes no writes, by time.
func (p *page) uncommitted(job string) []event {
	var out []event
	for _, k := range []Kind{EtcdHung, EtcdNoLeader} {
		out = append(out, p.m.tl.staged[eventKey{k, job}]...)
	}
	return byTime(out)
}

// shareOfRequests is how many requests a second more make up the event's share
// of all requests of one instance.
func (p *page) shareOfRequests(e event) float64 {
	all := 0.0
	for i := range p.cluster.requests {
		all += p.cluster.requests[i].perSecond
	}
	return all * e.value / (1 - e.value)
}

// lost says when a request fails because etcd does not commit: writes, and the
// question whether the server is ready. Reads come out of the watch cache.
func (tr *apiTroubles) lost(q *request) []event {
	switch q.verb {
	case "POST", "PUT", "PATCH", "DELETE":
		if q.r.resource == "events" {
			return tr.events
		}
		return tr.main
	}
	if q.sub == "/readyz" {
		return tr.main
	}
	return nil
}

func (q *request) isListOfPods() bool {
	return q.verb == "LIST" && q.scope == "cluster" && q.r.isPods()
}
func (q *request) isPostOfPods() bool { return q.verb == "POST" && q.r.isPods() }
func (r *apiResource) isPods() bool   { return r.resource == "pods" && r.group == "" }

// metricsAPI is the aggregated API that APIAggregatorDown takes away.
const metricsAPI = "v1beta1.metrics.k8s.io"

// failingWebhook is the one behind APIErrors.
const failingWebhook = "gpu-quota.platform.example"

// apiServerReactions are how the families of one API server follow troubles.
func apiServerReactions() map[string]reaction {
	r := map[string]reaction{}
	for _, part := range []map[string]reaction{apiRequestReactions(), apiCalleeReactions(), apiWatchReactions(), apiHeapReactions()} {
		maps.Copy(r, part)
	}
	return r
}

// apiRequestReactions are those of requests, and of what holds them back.
func apiRequestReactions() map[string]reaction {
	r := map[string]reaction{
		"apiserver_request_duration_seconds":     reactLatency,
		"apiserver_request_sli_duration_seconds": reactLatency,
		"apiserver_current_inflight_requests":    reactInflight,
		"apiserver_request_terminations_total":   reactTerminations,
		"apiserver_flowcontrol_rejected_requests_total": func(p *page) change {
			return eachThrottled(p, func(s *series, evs []event) {
				if s.label("reason") == "concurrency-limit" {
					s.curve.more(p.pr, levels(evs, p.shareOfRequests))
				}
			})
		},
	}
	// A client at its limit has all of its priority level's seats.
	for _, name := range []string{"apiserver_flowcontrol_current_executing_seats", "apiserver_flowcontrol_current_executing_requests"} {
		r[name] = func(p *page) change {
			return eachThrottled(p, func(s *series, evs []event) { s.curve.over = levels(evs, func(event) float64 { return seatLimit }) })
		}
	}
	return r
}

// reactTerminations: what is throttled ends with 429, and what nobody answers behind the aggregator
// with 503.
func reactTerminations(p *page) change {
	var c change
	if tr := p.apiTroubles(); tr.throttled != nil {
		c.each = func(s *series) {
			if s.label("code") == "429" {
				s.curve.more(p.pr, tr.throttled)
			}
		}
	}
	if evs := p.troubles(APIAggregatorDown); len(evs) > 0 {
		c.then = func(e *emitter) {
			gone := curve{}
			gone.more(p.pr, levels(evs, eventValue))
			e.addIn(evs[0].from, never, gone, "code", "503", "component", "aggregator", "group", "metrics.k8s.io", "resource",
				"pods", "scope", "cluster",
				"subresource", "", "verb", "LIST", "version", "v1beta1")
		}
	}
	return c
}

// apiCalleeReactions are those of what the servers call: webhooks, aggregated APIs and etcd.
func apiCalleeReactions() map[string]reaction {
	return map[string]reaction{
		"aggregator_unavailable_apiservice": func(p *page) change {
			return setWhile(p.troubles(APIAggregatorDown), 1, "name", metricsAPI)
		},
		"apiserver_admission_webhook_rejection_count": func(p *page) change {
			evs := p.troubles(APIErrors)
			if len(evs) == 0 {
				return change{}
			}
			return change{each: func(s *series) {
				if s.label("name") == failingWebhook {
					s.curve.more(p.pr, levels(evs, p.shareOfRequests))
				}
			}}
		},
		"apiserver_admission_webhook_request_total": func(p *page) change {
			return afterFirst(p.troubles(APIErrors), func(e *emitter, evs []event) {
				c := curve{}
				c.more(p.pr, levels(evs, p.shareOfRequests))
				e.addIn(evs[0].from, never, c, "code", "503", "name", failingWebhook, "operation", "CREATE", "rejected", "true", "type",
					"validating")
			})
		},
		"etcd_request_errors_total": func(p *page) change {
			tr := p.apiTroubles()
			if len(tr.main)+len(tr.events) == 0 {
				return change{}
			}
			return change{each: func(s *series) {
				evs := tr.main
				if s.label("resource") == "events" {
					evs = tr.events
				}
				if op := s.label("operation"); len(evs) > 0 && (op == "create" || op == "update") {
					s.curve.more(p.pr, levels(evs, func(event) float64 { return 1 }))
				}
			}}
		},
	}
}

// apiWatchReactions are those of what watchers are sent.
func apiWatchReactions() map[string]reaction {
	return map[string]reaction{
		"apiserver_watch_events_sizes": func(p *page) change {
			return eachWatched(p, func(s *series, evs []event, rate func(event) float64) {
				extra(s, p.pr, evs, rate, bigEvents)
			})
		},
		"apiserver_watch_events_total": func(p *page) change {
			return eachWatched(p, func(s *series, evs []event, rate func(event) float64) {
				s.curve.more(p.pr, levels(evs, rate))
			})
		},
	}
}

// apiHeapReactions are those of the process: the heap is what grows, and the rest goes along.
func apiHeapReactions() map[string]reaction {
	r := map[string]reaction{}
	for name, part := range map[string]float64{
		"process_resident_memory_bytes": 1, "process_virtual_memory_bytes": 1.1, "go_memstats_sys_bytes": 1.02,
		"go_memstats_heap_sys_bytes":   0.98,
		"go_memstats_heap_inuse_bytes": 0.9, "go_memstats_heap_alloc_bytes": 0.86, "go_memstats_alloc_bytes": 0.86,
		"go_memstats_next_gc_bytes": 0.97,
	} {
		r[name] = func(p *page) change {
			evs := p.troubles(APIServerMemory)
			if len(evs) == 0 {
				return change{}
			}
			return change{each: func(s *series) { s.curve.over = levels(evs, func(e event) float64 { return e.value * part }) }}
		}
	}
	return r
}

// seatLimit is each priority level's limit in schema/apiserver.txt.
const seatLimit = 120

// bigEvents are objects that every change sends whole to every watcher.
var bigEvents = dist{60000, 0.3}

func eventValue(e event) float64 { return e.value }

// setWhile sets the gauges of one label's value while events last.
func setWhile(evs []event, value float64, name, want string) change {
	if len(evs) == 0 {
		return change{}
	}
	st := active(evs)
	return change{each: func(s *series) {
		if name == "" || s.label(name) == want {
			s.curve.set(value, st)
		}
	}}
}

// afterFirst emits what exists only once the first event has begun.
func afterFirst(evs []event, emit func(*emitter, []event)) change {
	if len(evs) == 0 {
		return change{}
	}
	return change{then: func(e *emitter) { emit(e, evs) }}
}

func eachThrottled(p *page, f func(*series, []event)) change {
	if !p.m.tl.kinds[APIThrottling] {
		return change{}
	}
	return change{each: func(s *series) {
		if evs := p.m.tl.staged[eventKey{APIThrottling, s.label("flow_schema")}]; len(evs) > 0 {
			f(s, evs)
		}
	}}
}

func eachWatched(p *page, f func(s *series, evs []event, rate func(event) float64)) change {
	if !p.m.tl.kinds[APIWatchTraffic] {
		return change{}
	}
	rate := func(e event) float64 { return e.value / bigEvents.mean() / float64(p.m.o.APIServers) }
	return change{each: func(s *series) {
		if evs := p.m.tl.staged[eventKey{APIWatchTraffic, s.label("resource")}]; len(evs) > 0 {
			f(s, evs, rate)
		}
	}}
}

// reactLatency: what waits for etcd waits until etcd's client gives up; of what
// is merely slow every second request is.
func reactLatency(p *page) change {
	tr := p.apiTroubles()
	slow, failing := p.troubles(APISlow), p.troubles(APIErrors)
	if len(tr.main)+len(tr.events)+len(slow)+len(failing) == 0 {
		return change{}
	}
	drag := slower(slow, 0.5, func(e event, s *series) dist {
		if s.label("verb") == "LIST" && s.label("scope") == "cluster" {
			return dist{10 * e.value, 0.5}
		}
		return dist{e.value, 0.5}
	})
	return change{each: func(s *series) {
		q := request{
			r: &apiResource{resource: s.label("resource"), group: s.label("group")}, verb: s.label("verb"),
			sub: s.label("subresource"),
		}
		if evs := tr.lost(&q); len(evs) > 0 {
			slower(evs, 1, func(event, *series) dist { return dist{7, 0.2} })(s)
		}
		if len(slow) > 0 && q.verb != "WATCH" {
			drag(s)
		}
		if len(failing) > 0 && q.isPostOfPods() && q.sub == "" {
			extra(s, p.pr, failing, p.shareOfRequests, dist{0.012, 0.9})
		}
	}}
}

// reactInflight: requests that take longer are more at a time; at the plain
// limit they are as many as it allows.
func reactInflight(p *page) change {
	slow, full := p.troubles(APISlow), p.troubles(APIThrottlingInFlight)
	if len(slow)+len(full) == 0 {
		return change{}
	}
	return change{each: func(s *series) {
		limit, part := 400.0, 0.7
		if s.label("request_kind") == "mutating" {
			limit, part = 200, 0.3
		}
		if len(full) > 0 {
			s.curve.over = levels(full, func(event) float64 { return limit })
		}
		if len(slow) > 0 {
			st := levels(slow, func(e event) float64 {
				return min(limit/2, part*e.value/2*p.shareOfRequests(event{value: 0.5}))
			})
			s.curve.k, s.curve.st = 1, st
		}
	}}
}
