package server

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/metadata"
	"github.com/prometheus/prometheus/rules"
	apiv1 "github.com/prometheus/prometheus/web/api/v1"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/internal/randseed"
)

// archive is a random topology of scripted servers that have rules, alerts and metadata, in
// Prometheus' own types. Replicas of a shard load the same rules; now and then one has not loaded a
// file yet, and what has fired on which is up to each.
type archive struct {
	t      testing.TB
	rng    *rand.Rand
	groups []*archiveGroup
	base   string
	asked  *everything // for its client and its way to ask
}

type archiveGroup struct {
	name   string
	labels labels.Labels
	shards [][]*archiveServer
}

type archiveServer struct {
	rules    []*apiv1.RuleGroup
	metadata map[string][]metadata.Metadata
}

// urgencies are the states in the order of urgency.
var urgencies = []string{"unknown", "inactive", "pending", "firing"}

func newArchive(t testing.TB, rng *rand.Rand) *archive {
	a := &archive{t: t, rng: rng}
	files := a.files()
	var cfg strings.Builder
	cfg.WriteString("groups:\n")
	for _, name := range []string{"jaguar", "ibis", "heron"}[:1+rng.IntN(3)] {
		g := &archiveGroup{name: name, labels: labels.FromStrings("cluster", name)}
		fmt.Fprintf(&cfg, "  - name: %s\n    labels: {cluster: %s}\n    replica_labels: [replica]\n    shards:\n", name, name)
		for range 1 + rng.IntN(2) {
			cfg.WriteString("      - replicas:\n")
			var replicas []*archiveServer
			loaded := slices.DeleteFunc(slices.Clone(files), func(*apiv1.RuleGroup) bool { return rng.IntN(3) == 0 })
			known := a.metadata()
			for range 1 + rng.IntN(2) {
				s := &archiveServer{metadata: known}
				if rng.IntN(4) == 0 { // one that scrapes another version of a target
					s.metadata = a.metadata()
				}
				for _, def := range loaded {
					if rng.IntN(10) > 0 {
						s.rules = append(s.rules, a.evaluated(def))
					}
				}
				fake := fakeshard.Start(t, fakeshard.Config{Answer: s.answer})
				fmt.Fprintf(&cfg, "          - {url: %q}\n", fake.URL())
				replicas = append(replicas, s)
			}
			g.shards = append(g.shards, replicas)
		}
		a.groups = append(a.groups, g)
	}
	_, a.base = startProxy(t, t.Context(), cfg.String())
	return a
}

// files are the definitions that shards load: groups of rules, by file and name in order.
func (a *archive) files() (out []*apiv1.RuleGroup) {
	for f := range 1 + a.rng.IntN(3) {
		for n := range 1 + a.rng.IntN(3) {
			g := &apiv1.RuleGroup{File: fmt.Sprintf("/etc/rules-%d.yml", f), Name: fmt.Sprintf("group-%d", n), Interval: 15}
			for r := range 1 + a.rng.IntN(4) {
				set := labels.FromStrings("severity", []string{"page", "warn"}[a.rng.IntN(2)])
				if a.rng.IntN(3) == 0 {
					g.Rules = append(g.Rules, apiv1.RecordingRule{
						Name: fmt.Sprintf("job:r%d:sum", r), Query: "sum by (job) (up)",
						Labels: set, Health: rules.HealthGood, Type: "recording",
					})
					continue
				}
				g.Rules = append(g.Rules, apiv1.AlertingRule{
					Name: fmt.Sprintf("Alert%d", r), Query: fmt.Sprintf("up == %d", r), Duration: 60, Labels: set,
					Annotations: labels.FromStrings("summary", "it is down"), Type: "alerting",
				})
			}
			out = append(out, g)
		}
	}
	return out
}

// evaluated is the group as one server has evaluated it.
func (a *archive) evaluated(def *apiv1.RuleGroup) *apiv1.RuleGroup {
	g := *def
	g.LastEvaluation = time.Unix(1_800_000_000+a.rng.Int64N(60), 0).UTC()
	g.EvaluationTime = a.rng.Float64()
	g.Rules = nil
	for _, r := range def.Rules {
		switch r := r.(type) {
		case apiv1.RecordingRule:
			if a.rng.IntN(6) == 0 {
				r.Health, r.LastError = rules.HealthBad, "it does not evaluate"
			}
			r.LastEvaluation = g.LastEvaluation
			g.Rules = append(g.Rules, r)
		case apiv1.AlertingRule:
			r.Health, r.LastEvaluation, r.State, r.Alerts = rules.HealthGood, g.LastEvaluation, "inactive", []*apiv1.Alert{}
			if a.rng.IntN(8) == 0 {
				r.State, r.Health = "unknown", rules.HealthUnknown // not evaluated yet
			} else {
				for i := range a.rng.IntN(4) {
					b := labels.NewBuilder(r.Labels)
					b.Set("alertname", r.Name)
					b.Set("instance", fmt.Sprintf("node-%d", a.rng.IntN(3)))
					b.Set("n", strconv.Itoa(i)) // a server has no two alerts with equal labels
					if a.rng.IntN(4) == 0 {
						b.Set("cluster", "stored")
						b.Set("replica", "stored")
					}
					state := urgencies[2+a.rng.IntN(2)]
					since := time.Unix(1_799_999_000+a.rng.Int64N(900), 0).UTC()
					r.Alerts = append(r.Alerts, &apiv1.Alert{
						Labels: b.Labels(), Annotations: r.Annotations, State: state, ActiveAt: &since,
						Value: strconv.Itoa(a.rng.IntN(3)),
					})
					if slices.Index(urgencies, state) > slices.Index(urgencies, r.State) {
						r.State = state
					}
				}
			}
			g.Rules = append(g.Rules, r)
		}
	}
	return &g
}

func (a *archive) metadata() map[string][]metadata.Metadata {
	out := map[string][]metadata.Metadata{}
	for n := range 12 {
		if a.rng.IntN(3) == 0 {
			continue
		}
		name := fmt.Sprintf("metric_%d", n)
		if n == 11 {
			name = "metric.größe"
		}
		for v := range 1 + a.rng.IntN(3) {
			out[name] = append(out[name], metadata.Metadata{
				Type: []model.MetricType{"counter", "gauge"}[a.rng.IntN(2)],
				Help: fmt.Sprintf("Help %d of \"%s\".\n", v, name), Unit: []string{"", "bytes"}[a.rng.IntN(2)],
			})
		}
		slices.SortFunc(out[name], compareMetadata)
		out[name] = slices.Compact(out[name])
	}
	return out
}

func compareMetadata(a, b metadata.Metadata) int {
	return strings.Compare(fmt.Sprint(a.Type, a.Unit, a.Help), fmt.Sprint(b.Type, b.Unit, b.Help))
}

// answer is what the server says, with the filters of Prometheus.
func (s *archiveServer) answer(r fakeshard.Record) (fakeshard.Answer, bool) {
	var data any
	switch r.Path {
	case "/api/v1/rules":
		data = apiv1.RuleDiscovery{RuleGroups: s.filtered(r.Form)}
	case "/api/v1/alerts":
		alerts := []*apiv1.Alert{}
		for _, g := range s.rules {
			for _, r := range g.Rules {
				if r, ok := r.(apiv1.AlertingRule); ok {
					alerts = append(alerts, r.Alerts...)
				}
			}
		}
		data = apiv1.AlertDiscovery{Alerts: alerts}
	case "/api/v1/metadata":
		out := map[string][]metadata.Metadata{}
		limit, per := number1(r.Form.Get("limit")), number1(r.Form.Get("limit_per_metric"))
		for name, list := range s.metadata { // in no order, as there
			if m := r.Form.Get("metric"); m != "" && m != name || limit > 0 && len(out) >= limit {
				continue
			}
			if per > 0 {
				list = list[:min(per, len(list))]
			}
			out[name] = list
		}
		data = out
	default:
		return fakeshard.Answer{}, false
	}
	body, err := json.Marshal(map[string]any{"status": "success", "data": data})
	if err != nil {
		panic(err)
	}
	return fakeshard.Answer{Status: 200, Header: http.Header{"Content-Type": {"application/json"}}, Body: body}, true
}

func number1(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return n
}

// filtered are the groups that the form leaves.
func (s *archiveServer) filtered(form url.Values) []*apiv1.RuleGroup {
	out := []*apiv1.RuleGroup{}
	among := func(key, v string) bool { return len(form[key]) == 0 || slices.Contains(form[key], v) }
	for _, g := range s.rules {
		if !among("rule_group[]", g.Name) || !among("file[]", g.File) {
			continue
		}
		kept := *g
		kept.Rules = nil
		for _, r := range g.Rules {
			switch r := r.(type) {
			case apiv1.AlertingRule:
				if form.Get("type") == "record" || !among("rule_name[]", r.Name) {
					continue
				}
				if form.Get("exclude_alerts") == "true" {
					r.Alerts = nil
				}
				kept.Rules = append(kept.Rules, r)
			case apiv1.RecordingRule:
				if form.Get("type") != "alert" && among("rule_name[]", r.Name) {
					kept.Rules = append(kept.Rules, r)
				}
			}
		}
		if len(kept.Rules) > 0 {
			out = append(out, &kept)
		}
	}
	return out
}

// wireAlert, wireRule and wireGroup are an answer as a client reads it.
type wireAlert struct {
	Labels   map[string]string
	State    string
	ActiveAt *time.Time
	Value    string
}

type wireRule struct {
	Type, Name, Query, State, Health, LastError string
	Labels                                      map[string]string
	Alerts                                      []wireAlert
}

type wireGroup struct {
	File, Name string
	Rules      []wireRule
}

// TestEveryDocument asks random topologies for rules, alerts and metadata, and compares with what
// the servers have.
func TestEveryDocument(t *testing.T) {
	seed := randseed.Of(t, testSeed)
	counts := map[string]int{}
	for i := 0; i*perFleet < *everythingRequests; i++ {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, uint64(1_000_000+i)))
			a := newArchive(t, rng)
			a.asked = &everything{fleet: &fleet{t: t, rng: rng}, base: a.base, client: newClient(t), counts: counts}
			for range min(perFleet, *everythingRequests-i*perFleet) {
				switch rng.IntN(3) {
				case 0:
					a.checkRules()
				case 1:
					a.checkAlerts()
				case 2:
					a.checkMetadata()
				}
			}
		})
	}
	t.Logf("compared: %v", counts)
}

// shown is an alert's label set in the answers.
func (g *archiveGroup) shown(l labels.Labels) string {
	m := l.Map()
	delete(m, "replica")
	g.labels.Range(func(l labels.Label) { m[l.Name] = l.Value })
	return labels.FromMap(m).String()
}

// urgent compares alerts: the most urgent first, and of these the oldest.
func urgent(a, b *apiv1.Alert) int {
	return cmp.Or(slices.Index(urgencies, b.State)-slices.Index(urgencies, a.State), a.ActiveAt.Compare(*b.ActiveAt))
}

// urgentAlerts are the alerts that stay, by labels, beside those of other servers: as many of equal
// labels as one server lists, and of the first, second and so on of each the most urgent.
func urgentAlerts(into map[string][]*apiv1.Alert, g *archiveGroup, list []*apiv1.Alert) {
	list = slices.SortedStableFunc(slices.Values(list), urgent)
	nth := map[string]int{}
	for _, a := range list {
		key := g.shown(a.Labels)
		n := nth[key]
		nth[key]++
		if n == len(into[key]) {
			into[key] = append(into[key], a)
		} else if urgent(a, into[key][n]) < 0 {
			into[key][n] = a
		}
	}
}

// sameAlerts compares alerts by labels; values of equally urgent and equally old ones may be
// either's.
func (a *archive) sameAlerts(what string, got []wireAlert, want map[string][]*apiv1.Alert) {
	a.t.Helper()
	seen := map[string]int{}
	last := labels.EmptyLabels()
	for _, g := range got {
		l := labels.FromMap(g.Labels)
		n := seen[l.String()]
		if d := labels.Compare(last, l); d > 0 || d == 0 && n == 0 {
			a.t.Errorf("%s: the alert %s stands behind %s", what, l, last)
		}
		last = l
		w := want[l.String()]
		seen[l.String()]++
		if n >= len(w) || w[n].State != g.State || g.ActiveAt == nil || !w[n].ActiveAt.Equal(*g.ActiveAt) {
			a.t.Errorf("%s: the alert %s is %+v, want the %d. of %+v", what, l, g, n+1, w)
		}
	}
	for key := range want {
		if seen[key] < len(want[key]) {
			a.t.Errorf("%s: the alert %s is missing %d times", what, key, len(want[key])-seen[key])
		}
	}
}

func (a *archive) checkAlerts() {
	got, ok := a.asked.fetchGet("/api/v1/alerts", nil)
	if !ok {
		return
	}
	var data struct{ Alerts []wireAlert }
	if err := json.Unmarshal(got.data, &data); err != nil || len(got.warnings) > 0 {
		a.t.Errorf("alerts: %v, warnings %q", err, got.warnings)
	}
	want := map[string][]*apiv1.Alert{}
	for _, g := range a.groups {
		for _, s := range slices.Concat(g.shards...) {
			var list []*apiv1.Alert
			for _, rg := range s.rules {
				for _, r := range rg.Rules {
					if r, ok := r.(apiv1.AlertingRule); ok {
						list = append(list, r.Alerts...)
					}
				}
			}
			urgentAlerts(want, g, list)
		}
	}
	a.sameAlerts("alerts", data.Alerts, want)
	a.asked.counts["alerts"]++
}

func (a *archive) checkRules() {
	form := url.Values{}
	pick := func(key string, values ...string) {
		for range a.rng.IntN(3) {
			form.Add(key, values[a.rng.IntN(len(values))])
		}
	}
	if a.rng.IntN(2) == 0 {
		switch a.rng.IntN(5) {
		case 0:
			form.Set("type", []string{"alert", "record"}[a.rng.IntN(2)])
		case 1:
			pick("rule_name[]", "Alert0", "Alert1", "Alert2", "job:r1:sum", "none")
		case 2:
			pick("rule_group[]", "group-0", "group-1", "none")
		case 3:
			pick("file[]", "/etc/rules-0.yml", "/etc/rules-2.yml")
		case 4:
			form.Set("exclude_alerts", "true")
		}
	}
	what := fmt.Sprintf("rules %v", form)
	var got []wireGroup
	page := 0
	if a.rng.IntN(2) == 0 {
		page = 1 + a.rng.IntN(3)
		what += fmt.Sprintf(" in pages of %d", page)
	}
	token := ""
	for {
		asked := url.Values{}
		for k, v := range form {
			asked[k] = v
		}
		if page > 0 {
			asked.Set("group_limit", strconv.Itoa(page))
			if token != "" {
				asked.Set("group_next_token", token)
			}
		}
		answer, ok := a.asked.fetchGet("/api/v1/rules", asked)
		if !ok {
			return
		}
		var data struct {
			Groups         []wireGroup
			GroupNextToken string
		}
		if err := json.Unmarshal(answer.data, &data); err != nil || len(answer.warnings) > 0 {
			a.t.Errorf("%s: %v, warnings %q", what, err, answer.warnings)
		}
		got = append(got, data.Groups...)
		token = data.GroupNextToken
		if page > 0 && len(data.Groups) > page || token != "" && len(data.Groups) != page {
			a.t.Errorf("%s: %d groups, token %q", what, len(data.Groups), token)
			return
		}
		if token == "" {
			break
		}
	}
	wants := map[string]*wanted{}
	for _, g := range a.groups {
		for _, s := range slices.Concat(g.shards...) {
			for _, rg := range s.filtered(form) {
				key := rg.File + " " + rg.Name
				w := wants[key]
				if w == nil {
					w = &wanted{map[string]*wireRule{}, nil, map[string]map[string][]*apiv1.Alert{}}
					wants[key] = w
				}
				for _, r := range rg.Rules {
					w.add(g, r)
				}
			}
		}
	}
	last := ""
	for _, g := range got {
		key := g.File + " " + g.Name
		w := wants[key]
		if w == nil || key <= last {
			a.t.Errorf("%s: the group %s is unexpected, or stands behind %s", what, key, last)
			continue
		}
		delete(wants, key)
		last = key
		var order []string
		for _, r := range g.Rules {
			id := r.Type + " " + r.Name + labels.FromMap(r.Labels).String()
			order = append(order, id)
			x := w.rules[id]
			if x == nil || x.State != r.State || x.Health != r.Health || x.Query != r.Query || x.LastError != r.LastError {
				a.t.Errorf("%s: %s is %+v, want %+v", what, id, r, x)
			}
			a.sameAlerts(what+" "+id, r.Alerts, w.alerts[id])
		}
		if !slices.Equal(order, w.order) {
			a.t.Errorf("%s: the rules of %s are %q, want %q", what, key, order, w.order)
		}
	}
	for key := range wants {
		a.t.Errorf("%s: the group %s is missing", what, key)
	}
	a.asked.counts["rules"]++
}

// wanted is a merged group of rules.
type wanted struct {
	rules  map[string]*wireRule
	order  []string
	alerts map[string]map[string][]*apiv1.Alert
}

// add merges one server's rule: the most urgent state, the worst health, the union of the alerts.
func (w *wanted) add(g *archiveGroup, r apiv1.Rule) {
	var one wireRule
	var alerts []*apiv1.Alert
	switch r := r.(type) {
	case apiv1.AlertingRule:
		one = wireRule{
			Type: r.Type, Name: r.Name, Query: r.Query, State: r.State, Health: string(r.Health), LastError: r.LastError,
			Labels: r.Labels.Map(),
		}
		alerts = r.Alerts
	case apiv1.RecordingRule:
		one = wireRule{Type: r.Type, Name: r.Name, Query: r.Query, Health: string(r.Health), LastError: r.LastError, Labels: r.Labels.Map()}
	}
	id := one.Type + " " + one.Name + labels.FromMap(one.Labels).String()
	have := w.rules[id]
	if have == nil {
		w.rules[id], w.alerts[id] = &one, map[string][]*apiv1.Alert{}
		w.order = append(w.order, id)
	} else {
		if slices.Index(urgencies, one.State) > slices.Index(urgencies, have.State) {
			have.State = one.State
		}
		worst := []string{"unknown", "ok", "err"}
		if slices.Index(worst, one.Health) > slices.Index(worst, have.Health) {
			have.Health, have.LastError = one.Health, one.LastError
		}
	}
	urgentAlerts(w.alerts[id], g, alerts)
}

// checkMetadata compares types, helps and units: of each shard those of one replica, and nothing
// that nobody has.
func (a *archive) checkMetadata() {
	form := url.Values{}
	if a.rng.IntN(3) == 0 {
		form.Set("metric", []string{"metric_1", "metric_2", "metric.größe", "none"}[a.rng.IntN(4)])
	}
	limit, per := 0, 0
	if a.rng.IntN(3) == 0 {
		limit = 1 + a.rng.IntN(14)
		form.Set("limit", strconv.Itoa(limit))
	}
	if a.rng.IntN(4) == 0 {
		per = 1 + a.rng.IntN(4)
		form.Set("limit_per_metric", strconv.Itoa(per))
	}
	what := fmt.Sprintf("metadata %v", form)
	got, ok := a.asked.fetchGet("/api/v1/metadata", form)
	if !ok {
		return
	}
	var data map[string][]metadata.Metadata
	if err := json.Unmarshal(got.data, &data); err != nil {
		a.t.Errorf("%s: %v", what, err)
	}
	if len(got.warnings) > 1 || len(got.warnings) == 1 && !got.cut || got.cut && limit == 0 {
		a.t.Errorf("%s: warnings %q", what, got.warnings)
	}
	if limit > 0 && len(data) > limit {
		a.t.Errorf("%s: %d of at most %d metrics", what, len(data), limit)
	}
	all := map[string][]metadata.Metadata{}
	missing := ""
	for _, g := range a.groups {
		for si, replicas := range g.shards {
			best := "?"
			for _, s := range replicas {
				lack := ""
				for name, list := range s.metadata {
					if m := form.Get("metric"); m != "" && m != name {
						continue
					}
					all[name] = append(all[name], list...)
					for _, one := range list {
						if full := per > 0 && len(data[name]) == per; !full && !slices.Contains(data[name], one) { // so many were asked for
							lack = fmt.Sprintf("%s[%d]: %s %+v", g.name, si, name, one)
						}
					}
				}
				if lack == "" || best == "?" {
					best = lack
				}
			}
			if missing == "" {
				missing = best
			}
		}
	}
	if missing != "" && !got.cut {
		a.t.Errorf("%s: %s is missing, and no warning says that the answer was cut: %q", what, missing, got.warnings)
	}
	for name, list := range data {
		if per > 0 && len(list) > per {
			a.t.Errorf("%s: %d of at most %d entries of %s", what, len(list), per, name)
		}
		for i, one := range list {
			if !slices.Contains(all[name], one) || slices.Contains(list[:i], one) {
				a.t.Errorf("%s: nobody has %s %+v, or it stands twice", what, name, one)
			}
		}
	}
	a.asked.counts["metadata"]++
}
