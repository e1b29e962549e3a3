package usage

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/dashboards"
	log "github.com/spillwayproject/spillway/proxy/usage"
)

// Options say who looks at what.
type Options struct {
	Dashboards []*dashboards.Dashboard
	// Rules are asked by a ruler through the proxy, so that it is in the log like everybody else:
	// each minute, or at their interval where that is longer.
	Rules []rulefmt.RuleGroup
	// Explored are queries that people type; Explored() where it is nil.
	Explored []string
	// Cluster, Nodes and Namespaces fill the variables.
	Cluster    string
	Nodes      []string
	Namespaces []string
	// Users is how many people there are; 25.
	Users int
	// End is the last moment, Length how much before it is told; 24h.
	End    time.Time
	Length time.Duration
	Seed   uint64
}

// Explored are what people ask when something is wrong: about metrics that no dashboard shows, too.
func Explored() []string {
	return []string{
		`topk(20, sum by (namespace) (rate(container_cpu_usage_seconds_total{cluster="$cluster",container!=""}[5m])))`,
		`sum by (resource, verb) (rate(apiserver_request_total{cluster="$cluster",code=~"5.."}[5m]))`,
		`kube_pod_container_status_last_terminated_reason{cluster="$cluster",namespace="$namespace",reason="OOMKilled"}`,
		`node_load5{cluster="$cluster",node="$node"}`,
		`rate(node_disk_io_time_seconds_total{cluster="$cluster",node="$node"}[5m])`,
		`max by (gpu) (DCGM_FI_DEV_MEMORY_TEMP{cluster="$cluster",node="$node"})`,
		`histogram_quantile(0.99, sum by (le) (rate(etcd_disk_wal_fsync_duration_seconds_bucket{cluster="$cluster"}[5m])))`,
		`process_resident_memory_bytes{cluster="$cluster",job="kube-apiserver"}`,
		`count by (phase) (kube_pod_status_phase{cluster="$cluster",namespace="$namespace"} == 1)`,
		`go_goroutines{cluster="$cluster",job="kube-apiserver"}`,
	}
}

// session is one person in front of one dashboard, or nobody.
type session struct {
	user      string
	dashboard *dashboards.Dashboard
	until     time.Time
	vars      dashboards.Vars
	span      time.Duration
}

type writer struct {
	o       Options
	rng     *rand.Rand
	parser  parser.Parser
	queries map[*dashboards.Dashboard][]dashboards.Query
	facts   map[string]log.Facts // by text: panels ask the same again and again
	out     *bufio.Writer
	lines   int
	err     error
}

// Write writes the log and returns how many lines it has.
func Write(w io.Writer, o Options) (lines int, err error) {
	if o.Users == 0 {
		o.Users = 25
	}
	if o.Length == 0 {
		o.Length = 24 * time.Hour
	}
	if o.Explored == nil {
		o.Explored = Explored()
	}
	switch {
	case len(o.Dashboards) == 0 && len(o.Rules) == 0:
		return 0, errors.New("no dashboards and no rules: nobody would look at anything")
	case o.Users < 1 || o.Users > 100_000:
		return 0, fmt.Errorf("users: %d is outside 1 to 100,000", o.Users)
	case len(o.Nodes) == 0 || len(o.Namespaces) == 0 || o.Cluster == "":
		return 0, errors.New("the cluster's name, nodes and namespaces fill the dashboards' variables, and at least one of each is needed")
	case o.End.IsZero() || o.Length < time.Minute || o.Length > 366*24*time.Hour:
		return 0, fmt.Errorf("length: %s before %s is outside a minute to a year before a time", o.Length, o.End)
	}
	l := &writer{
		o: o, rng: rand.New(rand.NewPCG(o.Seed, 0)), parser: parser.NewParser(parser.Options{EnableExperimentalFunctions: true}),
		queries: map[*dashboards.Dashboard][]dashboards.Query{}, facts: map[string]log.Facts{}, out: bufio.NewWriter(w),
	}
	for _, d := range o.Dashboards {
		l.queries[d] = d.Queries()
	}
	sessions := make([]session, o.Users)
	for i := range sessions {
		sessions[i].user = fmt.Sprintf("user-%03d", i)
	}
	for at := o.End.Add(-o.Length).Truncate(time.Minute); at.Before(o.End) && l.err == nil; at = at.Add(time.Minute) {
		for i := range sessions {
			l.minute(&sessions[i], at.Add(time.Duration(i)*time.Minute/time.Duration(o.Users)))
		}
		l.rules(at.Add(time.Minute - time.Millisecond))
	}
	return l.lines, errors.Join(l.err, l.out.Flush())
}

// minute is what one person asks in one minute.
func (l *writer) minute(s *session, at time.Time) {
	if s.dashboard == nil || !at.Before(s.until) {
		s.dashboard = nil
		if busy := 0.02 + 0.1*float64(max(0, 5-abs(at.UTC().Hour()-13)))/5; l.rng.Float64() >= busy {
			return
		}
		l.open(s, at)
		if l.rng.Float64() < 0.3 {
			l.explore(s, at)
		}
	}
	if s.dashboard == nil {
		return
	}
	s.vars.From, s.vars.To = at.Add(-s.span), at
	for i, q := range l.queries[s.dashboard] {
		r := log.Record{
			User: s.user, Dashboard: s.dashboard.UID, Endpoint: "query_range", RangeSeconds: s.span.Seconds(),
			StepSeconds: s.vars.Interval.Seconds(),
		}
		switch {
		case q.Variable != nil:
			r.Endpoint, r.RangeSeconds, r.StepSeconds = "series", s.span.Seconds(), 0
		case q.Panel != nil:
			r.Panel = strconv.Itoa(q.Panel.ID)
			if q.Target.Instant {
				r.Endpoint, r.RangeSeconds, r.StepSeconds = "query", 0, 0
			}
		}
		l.ask(r, q.Where, q.Expr, s.vars, at.Add(time.Duration(i)*time.Millisecond))
	}
}

func abs(n int) int { return max(n, -n) }

// open chooses a dashboard, the first ones more often than the last, and its variables.
func (l *writer) open(s *session, at time.Time) {
	if len(l.o.Dashboards) == 0 {
		return
	}
	i := int(float64(len(l.o.Dashboards)) * l.rng.Float64() * l.rng.Float64())
	s.dashboard = l.o.Dashboards[i]
	s.until = at.Add(time.Duration(3+l.rng.IntN(30)) * time.Minute)
	s.span = []time.Duration{time.Hour, time.Hour, 6 * time.Hour, 24 * time.Hour}[l.rng.IntN(4)]
	s.vars = l.vars(s.span)
	for _, v := range s.dashboard.Variables {
		if _, ok := s.vars.Values[v.Name]; !ok && v.Type != "datasource" {
			s.vars.Values[v.Name] = dashboards.Value{
				Chosen: []string{cmp.Or(string(v.Current.Value), ".*")}, AllValue: v.AllValue,
				Several: v.Multi || v.IncludeAll,
			}
		}
	}
}

func (l *writer) vars(span time.Duration) dashboards.Vars {
	one := func(of []string) dashboards.Value { return dashboards.Value{Chosen: []string{of[l.rng.IntN(len(of))]}} }
	return dashboards.Vars{
		Interval: max(15*time.Second, (span / 1000).Truncate(15*time.Second)), Scrape: 30 * time.Second,
		Values: map[string]dashboards.Value{
			"cluster": {Chosen: []string{l.o.Cluster}}, "node": one(l.o.Nodes),
			"namespace": one(l.o.Namespaces),
		},
	}
}

func (l *writer) explore(s *session, at time.Time) {
	for range 1 + l.rng.IntN(3) {
		if len(l.o.Explored) == 0 {
			return
		}
		q := l.o.Explored[l.rng.IntN(len(l.o.Explored))]
		vars := l.vars(time.Hour)
		vars.From, vars.To = at.Add(-time.Hour), at
		l.ask(log.Record{User: s.user, Endpoint: "query_range", RangeSeconds: 3600, StepSeconds: 15}, "Explore", q, vars, at)
	}
}

// rules are the ruler's questions of one minute.
func (l *writer) rules(at time.Time) {
	for _, g := range l.o.Rules {
		if every := time.Duration(g.Interval); every > time.Minute && at.Truncate(time.Minute).UnixNano()%int64(every) != 0 {
			continue
		}
		for _, r := range g.Rules {
			l.ask(log.Record{User: "ruler", Rule: cmp.Or(r.Alert, r.Record), Endpoint: "query"}, "rule "+cmp.Or(r.Alert, r.Record), r.Expr,
				dashboards.Vars{}, at)
		}
	}
}

// ask writes one line.
func (l *writer) ask(r log.Record, where, expr string, vars dashboards.Vars, at time.Time) {
	if l.err != nil {
		return
	}
	text := expr
	if len(vars.Values) > 0 {
		var err error
		if text, err = dashboards.Substitute(expr, vars); err != nil {
			l.err = fmt.Errorf("%s: %w", where, err)
			return
		}
	}
	facts, ok := l.facts[text]
	if !ok {
		parsed, err := l.parser.ParseExpr(text)
		if err != nil {
			l.err = fmt.Errorf("%s: %w", where, err)
			return
		}
		if r.Endpoint == "series" {
			facts = log.DescribeSelectors([][]*labels.Matcher{parsed.(*parser.VectorSelector).LabelMatchers})
		} else {
			facts = log.Describe(parsed)
		}
		if len(l.facts) >= 10_000 { // nodes and ranges make ever new ones
			clear(l.facts)
		}
		l.facts[text] = facts
	}
	r.Facts = facts
	r.Time, r.ID, r.Verdict = at, fmt.Sprintf("%016x", l.rng.Uint64()), "pass"
	r.Series = 1 + l.rng.Int64N(200)
	r.Samples = r.Series * max(1, int64(r.RangeSeconds/max(1, r.StepSeconds)))
	r.Bytes = 16 * r.Samples
	r.ShardSeconds = 0.001 * float64(1+l.rng.IntN(300))
	r.PeakBytes = 2 * r.Bytes
	if _, l.err = l.out.Write(r.Line()); l.err == nil {
		l.lines++
	}
}
