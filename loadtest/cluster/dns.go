package cluster

// dnsReactions: how CoreDNS' pages follow troubles. Some answers fail even on a
// good day; a failing upstream makes clients ask again, so failures come on top.
func dnsReactions() map[string]reaction {
	slow := func(p *page) change {
		evs := p.troubles(DNSSlow)
		if len(evs) == 0 {
			return change{}
		}
		return change{each: slower(evs, 0.5, func(e event, _ *series) dist { return dist{e.value, 0.4} })}
	}
	return map[string]reaction{
		"coredns_dns_responses_total": func(p *page) change {
			return change{then: func(e *emitter) {
				pairs := []string{"plugin", "forward", "rcode", "SERVFAIL", "server", "dns://:53", "view", "", "zone", "."}
				_, h := e.weight(pairs)
				c := e.rate(usualServfails, true, h, p.pr)
				if evs := p.troubles(DNSErrors); len(evs) > 0 {
					c.more(p.pr, levels(evs, servfails))
				}
				e.add(c, pairs...)
			}}
		},
		"coredns_dns_requests_total": func(p *page) change {
			evs := p.troubles(DNSErrors)
			if len(evs) == 0 {
				return change{}
			}
			return change{each: func(s *series) {
				if s.label("type") == "A" && s.label("proto") == "udp" {
					s.curve.more(p.pr, levels(evs, servfails))
				}
			}}
		},
		"coredns_dns_request_duration_seconds": func(p *page) change {
			c, evs := slow(p), p.troubles(DNSErrors)
			if len(evs) == 0 {
				return c
			}
			drag := c.each
			return change{each: func(s *series) {
				if drag != nil {
					drag(s)
				}
				// Refused at once: errors are no slower than answers.
				extra(s, p.pr, evs, servfails, dist{0.001, 1})
			}}
		},
		"coredns_proxy_request_duration_seconds": slow,
		"coredns_forward_healthcheck_broken_total": func(p *page) change {
			evs := p.troubles(DNSErrors)
			if len(evs) == 0 {
				return change{}
			}
			return change{each: func(s *series) { s.curve.more(p.pr, levels(evs, func(event) float64 { return 0.5 })) }}
		},
	}
}

const (
	dnsAnswers     = 110 // a second from each server, as in schema/coredns.txt
	usualServfails = 0.05
)

// servfails is how many failures a second more are the event's share of answers.
func servfails(e event) float64 { return dnsAnswers * e.value / (1 - e.value) }
