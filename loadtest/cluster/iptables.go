package cluster

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/prometheus/common/model"
)

// iptables-exporter (retailnext's): one series for each rule, with the rule's
// whole text in the label rule. Quotes of comments are escaped by iptables-save
// already, so that the label's value has the backslashes in it.

// trafficRules account for traffic: their comment names it, they have no
// target, and packets go on to the next rule. FORWARD sees pods with networks of
// their own, INPUT and OUTPUT what is the host's.
var trafficRules = []struct {
	chain, traffic, match string
	egress                bool    // what pods send to the internet
	idle, perPod          float64 // bytes a second: of the node's daemons, of a gang's pod
}{
	{"FORWARD", "internet-in", "! -s 10.0.0.0/8", false, 10e3, 420e3},
	{"FORWARD", "internet-out", "! -d 10.0.0.0/8", true, 5e3, 0},
	{"FORWARD", "cluster-in", "-s 10.0.0.0/8", false, 900e3, 5e6},
	{"FORWARD", "cluster-out", "-d 10.0.0.0/8", false, 1.1e6, 4e6},
	{"INPUT", "internet-in", "! -s 10.0.0.0/8 ! -i lo", false, 20e3, 0},
	{"OUTPUT", "internet-out", "! -d 10.0.0.0/8 ! -o lo", false, 15e3, 0},
}

// bytesPerPacket is what one packet of accounted traffic carries.
const bytesPerPacket = 1250

// trafficComment is what the accounting rules have as comment.
func trafficComment(traffic string) string { return "accounting traffic=" + traffic }

func ruleText(match, comment string) string {
	return match + ` -m comment --comment \"` + comment + `\"`
}

func iptablesFamilies(d Detail) []family {
	c, g := model.MetricTypeCounter, model.MetricTypeGauge
	own := []family{
		{"iptables_default_bytes_total", "Total bytes matching a chain's default policy.", c, emitChains(d, bytesPerPacket)},
		{"iptables_default_packets_total", "Total packets matching a chain's default policy.", c, emitChains(d, 1)},
		{"iptables_rule_bytes_total", "Total bytes matching a rule.", c, emitRules(d, bytesPerPacket)},
		{"iptables_rule_packets_total", "Total packets matching a rule.", c, emitRules(d, 1)},
		{"iptables_scrape_duration_seconds", "Duration of scraping iptables.", g, func(p *page, e *emitter) {
			e.add(wave(curve{kind: gauge, base: 0.012, amp: 0.006}, p.h))
		}},
		{"iptables_scrape_success", "Whether scraping iptables was successful.", g, func(_ *page, e *emitter) { e.add(curve{base: 1}) }},
	}
	own = append(own, processFamilies(d)...)
	for _, f := range fromSchema("node", d, exporterClock) {
		switch f.name {
		case "promhttp_metric_handler_requests_in_flight", "promhttp_metric_handler_requests_total":
			own = append(own, f)
		}
	}
	return own
}

// chains are the built-in ones and, in Full, those that kube-proxy makes.
func chains(d Detail) [][3]string {
	out := [][3]string{
		{"filter", "FORWARD", "ACCEPT"}, {"filter", "INPUT", "ACCEPT"}, {"filter", "OUTPUT", "ACCEPT"}, {"mangle", "FORWARD", "ACCEPT"},
	}
	if d == Full {
		for _, chain := range []string{"INPUT", "OUTPUT", "POSTROUTING", "PREROUTING"} {
			out = append(out, [3]string{"mangle", chain, "ACCEPT"}, [3]string{"nat", chain, "ACCEPT"})
		}
		out = append(out, [3]string{"nat", "KUBE-SERVICES", "-"})
	}
	return out
}

func emitChains(d Detail, unit float64) func(*page, *emitter) {
	return func(p *page, e *emitter) {
		for _, c := range chains(d) {
			rate := 4000.0
			if c[2] == "-" {
				rate = 0 // a chain without a policy counts nothing
			}
			pairs := []string{"chain", c[1], "policy", c[2], "table", c[0]}
			h := hash(p.h, hashString(0, c[0]+c[1])) // packets and bytes go together
			e.add(e.rate(rate*unit*between(mix(h), 0.3, 1.7), true, h, p.machine), pairs...)
		}
	}
}

// accountingClock is when the accounting rules began to count: with the
// machine, or when they were put back.
func (p *page) accountingClock() (*process, []event) {
	lost := spans(p.host.of(-1, NetworkAccountingLost))
	if len(lost) == 0 {
		return p.machine, nil
	}
	starts := slices.Clone(p.machine.starts)
	for _, l := range lost {
		starts = append(starts, l.until)
	}
	slices.Sort(starts)
	return &process{starts}, lost
}

func emitRules(d Detail, unit float64) func(*page, *emitter) {
	return func(p *page, e *emitter) {
		put := func(from, until int64, c curve, chain, rule, table string) {
			e.addIn(from, until, c, "chain", chain, "rule", rule, "table", table)
		}
		pr, lost := p.accountingClock()
		for _, r := range trafficRules {
			h := hash(p.h, hashString(2, r.chain+r.traffic))
			c := e.rate(r.idle*between(mix(h), 0.5, 1.5), true, h, pr)
			c.k, c.st = r.perPod, p.host.gangs
			if r.egress {
				c.k, c.st = 1, p.host.sent
			}
			// Bytes and packets are one count, in two units.
			c.base, c.amp, c.k = c.base*unit/bytesPerPacket, c.amp*unit/bytesPerPacket, c.k*unit/bytesPerPacket
			without(lost, 0, never, func(from, until int64) {
				put(from, until, c, r.chain, ruleText(r.match, trafficComment(r.traffic)), "mangle")
			})
		}
		// Of every service kube-proxy has a rule, of every endpoint three, with the
		// address and a hash in them.
		services, endpoints := 2, 0
		if d == Full {
			services, endpoints = 8, 40
		}
		more := func(chain, rule string) {
			h := hash(p.h, hashString(3, chain+rule))
			put(0, never, e.rate(40*unit*between(mix(h), 0.3, 1.7), true, h, p.machine), chain, rule, "nat")
		}
		for i := range services {
			name := "research/svc-" + strconv.Itoa(i)
			more("KUBE-SERVICES", ruleText(fmt.Sprintf("-d 10.96.0.%d/32 -p tcp --dport 443", i+10),
				name+" cluster IP")+" -j KUBE-SVC-"+ruleHash(p, i))
		}
		for i := range endpoints {
			ip := fmt.Sprintf("10.244.%d.%d", i/8, i%8+2)
			sep := "KUBE-SEP-" + ruleHash(p, 100+i)
			more("KUBE-SVC-"+ruleHash(p, i%services),
				ruleText("", fmt.Sprintf("research/svc-%d -> %s:8443", i%services, ip))[1:]+" -j "+sep)
			more(sep, ruleText("-s "+ip+"/32", "research/svc-"+strconv.Itoa(i%services))+" -j KUBE-MARK-MASQ")
			more(sep, "-p tcp -m tcp -j DNAT --to-destination "+ip+":8443")
		}
	}
}

// ruleHash is how kube-proxy names chains: the same on every node.
func ruleHash(p *page, i int) string {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
	h := hash(p.m.seed, 'k', uint64(i))
	b := make([]byte, 16)
	for n := range b {
		b[n] = letters[h%32]
		h = mix(h)
	}
	return string(b)
}
