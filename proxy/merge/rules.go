package merge

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// alert is an active alert as rules and alerts show it.
type alert struct {
	Labels          labels.Labels `json:"labels"`
	Annotations     labels.Labels `json:"annotations"`
	State           string        `json:"state"`
	ActiveAt        *time.Time    `json:"activeAt,omitempty"`
	KeepFiringSince *time.Time    `json:"keepFiringSince,omitempty"`
	Value           string        `json:"value"`

	source int  // whose list has it
	copies bool // that list is of several servers, so that its equals are copies of one
	nth    int  // among its equals in that list
}

// rule is an alerting or a recording rule; fields of the other kind are nil.
type rule struct {
	State          *string        `json:"state,omitempty"`
	Name           string         `json:"name"`
	Query          string         `json:"query"`
	Duration       *float64       `json:"duration,omitempty"`
	KeepFiringFor  *float64       `json:"keepFiringFor,omitempty"`
	Labels         labels.Labels  `json:"labels"`
	Annotations    *labels.Labels `json:"annotations,omitempty"`
	Alerts         *[]alert       `json:"alerts,omitempty"`
	Health         string         `json:"health"`
	LastError      string         `json:"lastError,omitempty"`
	EvaluationTime float64        `json:"evaluationTime"`
	LastEvaluation time.Time      `json:"lastEvaluation"`
	Type           string         `json:"type"`

	place  int  // in its group
	source int  // whose list has it
	copies bool // that list is of several servers, so that its equals are copies of one
	nth    int  // among its equals in that group
}

type ruleGroup struct {
	Name           string    `json:"name"`
	File           string    `json:"file"`
	Rules          []rule    `json:"rules"`
	Interval       float64   `json:"interval"`
	Limit          int       `json:"limit"`
	EvaluationTime float64   `json:"evaluationTime"`
	LastEvaluation time.Time `json:"lastEvaluation"`
}

type ruleDiscovery struct {
	Groups    []ruleGroup `json:"groups"`
	NextToken string      `json:"groupNextToken,omitempty"`
}

type alertDiscovery struct {
	Alerts []alert `json:"alerts"`
}

func (d *ruleDiscovery) empty() []string { return without(map[string]int{"groups": len(d.Groups)}) }

func (d *alertDiscovery) empty() []string { return without(map[string]int{"alerts": len(d.Alerts)}) }

// RulesPage is the part of the rule groups that a client asked for (group_limit and
// group_next_token), to be cut from the merged list: the shards are asked for all groups. The zero
// value is everything.
type RulesPage struct {
	// Limit is the number of groups; 0 is all.
	Limit int
	// Token is where the page begins; empty is the beginning.
	Token string
}

// MergeRules writes the rule groups of all shards, sorted by file and name. Groups with the same
// file and name are one group. In it, rules of different sources with the same type, name, query,
// duration and labels are one rule: its state is the most urgent (firing before pending before
// inactive), its health the worst (err before ok before unknown, since a replica that just started
// has evaluated nothing yet), its alerts the union of all. A rule that one source lists twice is
// there twice. Alerts are relabelled, which tells clusters apart; equal ones are one alert, by the
// same rule of urgency. External labels on the rules of a Stamped source are removed.
func MergeRules(ctx context.Context, w *Writer, page RulesPage, shards []Source, budget *admit.Budget) (Result, error) {
	d, err := readDocuments[ruleDiscovery](ctx, shards, budget)
	defer d.release()
	if err != nil {
		return d.res, err
	}
	type groupKey struct{ file, name string }
	groups := map[groupKey]*ruleGroup{}
	for i, doc := range d.docs {
		for _, g := range doc.Groups {
			for j := range g.Rules {
				g.Rules[j].place, g.Rules[j].source, g.Rules[j].copies = j, i, shards[i].Stamped
			}
			if keep := shards[i].Keep; keep != nil {
				g.Rules = slices.DeleteFunc(g.Rules, func(r rule) bool { return !keep(written(shards[i].Relabel.Labels(r.Labels))) })
				if len(g.Rules) == 0 {
					continue
				}
			}
			for j := range g.Rules {
				r := &g.Rules[j]
				if shards[i].Stamped {
					r.Labels = shards[i].Relabel.Strip(r.Labels)
				}
				if r.Alerts != nil {
					for k := range *r.Alerts {
						a := &(*r.Alerts)[k]
						a.Labels, a.source, a.copies = shards[i].Relabel.Labels(a.Labels), i, shards[i].Stamped
					}
					if keep := shards[i].Keep; keep != nil {
						*r.Alerts = slices.DeleteFunc(*r.Alerts, func(a alert) bool { return !keep(a.Labels) })
					}
				}
			}
			key := groupKey{g.File, g.Name}
			if have, ok := groups[key]; ok {
				have.merge(&g)
			} else {
				groups[key] = &g
			}
		}
	}
	out := ruleDiscovery{Groups: make([]ruleGroup, 0, len(groups))}
	for _, g := range groups {
		g.Rules = mergeRules(g.Rules)
		out.Groups = append(out.Groups, *g)
	}
	slices.SortFunc(out.Groups, func(a, b ruleGroup) int {
		return cmp.Or(strings.Compare(a.File, b.File), strings.Compare(a.Name, b.Name))
	})
	if err := page.cut(&out); err != nil {
		return d.res, err
	}
	d.res.Series = len(out.Groups)
	return d.res, writeData(w, out)
}

// written are those of a rule's labels that have a value in the rule. A template has one in each of
// its alerts only, whose it is by that; its own text may be anybody's.
func written(ls labels.Labels) labels.Labels {
	b := labels.NewBuilder(ls)
	ls.Range(func(l labels.Label) {
		if strings.Contains(l.Value, "{{") {
			b.Del(l.Name)
		}
	})
	return b.Labels()
}

// cut leaves the page's groups.
func (p RulesPage) cut(d *ruleDiscovery) error {
	if p.Limit <= 0 {
		return nil
	}
	if p.Token != "" {
		i := slices.IndexFunc(d.Groups, func(g ruleGroup) bool { return groupToken(g) == p.Token })
		if i < 0 {
			return qerr.New(qerr.BadData, "invalid parameter \"group_next_token\": there is no such group any more; begin again without it")
		}
		d.Groups = d.Groups[i:]
	}
	if len(d.Groups) > p.Limit {
		d.NextToken = groupToken(d.Groups[p.Limit])
		d.Groups = d.Groups[:p.Limit]
	}
	return nil
}

// groupToken names a group as Prometheus does.
func groupToken(g ruleGroup) string {
	h := sha256.Sum256([]byte(g.File + ";" + g.Name))
	return hex.EncodeToString(h[:])
}

// merge takes the other group's rules, and its figures where it was evaluated later.
func (g *ruleGroup) merge(o *ruleGroup) {
	g.Rules = append(g.Rules, o.Rules...)
	later := cmp.Or(o.LastEvaluation.Compare(g.LastEvaluation), cmp.Compare(o.EvaluationTime, g.EvaluationTime),
		cmp.Compare(o.Interval, g.Interval), cmp.Compare(o.Limit, g.Limit))
	if later > 0 {
		g.LastEvaluation, g.EvaluationTime, g.Interval, g.Limit = o.LastEvaluation, o.EvaluationTime, o.Interval, o.Limit
	}
}

// mergeRules makes equal rules one, the first that a source has of them with the first of another,
// and so on. Rules keep their place; where the shards' files differ, the lowest place counts, then
// the rule's identity.
func mergeRules(list []rule) []rule {
	slices.SortFunc(list, func(a, b rule) int {
		return cmp.Or(a.compareIdentity(&b), cmp.Compare(a.source, b.source), cmp.Compare(a.place, b.place))
	})
	for i := 1; i < len(list); i++ {
		if a, b := &list[i-1], &list[i]; a.source == b.source && !b.copies && a.compareIdentity(b) == 0 {
			b.nth = a.nth + 1
		}
	}
	slices.SortStableFunc(list, func(a, b rule) int {
		return cmp.Or(a.compareIdentity(&b), cmp.Compare(a.nth, b.nth), cmp.Compare(a.place, b.place))
	})
	out := list[:0]
	for i := range list {
		if n := len(out); n > 0 && out[n-1].nth == list[i].nth && out[n-1].compareIdentity(&list[i]) == 0 {
			out[n-1].merge(&list[i])
			continue
		}
		out = append(out, list[i])
	}
	for i := range out {
		switch r := &out[i]; {
		case r.Alerts != nil && *r.Alerts != nil:
			*r.Alerts = mergeAlerts(*r.Alerts)
		case r.Alerts == nil && r.Type == "alerting": // exclude_alerts, which Prometheus writes as null
			r.Alerts = new([]alert)
		}
	}
	slices.SortStableFunc(out, func(a, b rule) int { return cmp.Compare(a.place, b.place) })
	return out
}

func (r *rule) compareIdentity(o *rule) int {
	return cmp.Or(strings.Compare(r.Type, o.Type), strings.Compare(r.Name, o.Name), strings.Compare(r.Query, o.Query),
		cmp.Compare(deref(r.Duration), deref(o.Duration)),
		cmp.Compare(deref(r.KeepFiringFor), deref(o.KeepFiringFor)), labels.Compare(r.Labels, o.Labels),
		labels.Compare(deref(r.Annotations), deref(o.Annotations)))
}

func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

// merge takes what is more urgent, worse or later in o. Its result does not depend on which of the
// two is o.
func (r *rule) merge(o *rule) {
	if r.State == nil || o.State != nil && urgency(*o.State) > urgency(*r.State) {
		r.State = o.State
	}
	if c := cmp.Or(cmp.Compare(illness(o.Health), illness(r.Health)), strings.Compare(o.Health, r.Health),
		strings.Compare(o.LastError, r.LastError)); c > 0 {
		r.Health, r.LastError = o.Health, o.LastError
	}
	if cmp.Or(o.LastEvaluation.Compare(r.LastEvaluation), cmp.Compare(o.EvaluationTime, r.EvaluationTime)) > 0 {
		r.LastEvaluation, r.EvaluationTime = o.LastEvaluation, o.EvaluationTime
	}
	switch {
	case o.Alerts == nil || *o.Alerts == nil:
	case r.Alerts == nil:
		r.Alerts = o.Alerts
	default:
		*r.Alerts = append(*r.Alerts, *o.Alerts...)
	}
}

func urgency(state string) int {
	switch state {
	case "firing":
		return 3
	case "pending":
		return 2
	case "inactive":
		return 1
	default: // unknown: not evaluated yet
		return 0
	}
}

func illness(health string) int {
	switch health {
	case "err":
		return 2
	case "ok":
		return 1
	default:
		return 0
	}
}

// mergeAlerts sorts alerts by their labels and, of equal labels, the most urgent first, then the
// oldest, then the one with the least value and annotations. Two rules may have alerts with equal
// labels: of these there are as many as the source with most lists. The first of each source are
// one alert, which is the most urgent of them, then the second, and so on.
func mergeAlerts(list []alert) []alert {
	slices.SortFunc(list, func(a, b alert) int {
		return cmp.Or(labels.Compare(a.Labels, b.Labels), cmp.Compare(a.source, b.source), a.compareUrgency(&b))
	})
	for i := 1; i < len(list); i++ {
		if a, b := &list[i-1], &list[i]; a.source == b.source && !b.copies && labels.Equal(a.Labels, b.Labels) {
			b.nth = a.nth + 1
		}
	}
	slices.SortFunc(list, func(a, b alert) int {
		return cmp.Or(labels.Compare(a.Labels, b.Labels), cmp.Compare(a.nth, b.nth), a.compareUrgency(&b))
	})
	return slices.CompactFunc(list, func(a, b alert) bool { return a.nth == b.nth && labels.Equal(a.Labels, b.Labels) })
}

// compareUrgency puts the most urgent first.
func (a *alert) compareUrgency(b *alert) int {
	return cmp.Or(-cmp.Compare(urgency(a.State), urgency(b.State)),
		compareTimes(a.ActiveAt, b.ActiveAt), compareTimes(a.KeepFiringSince, b.KeepFiringSince),
		strings.Compare(a.Value, b.Value), labels.Compare(a.Annotations, b.Annotations))
}

// compareTimes puts the earlier first, and none last.
func compareTimes(a, b *time.Time) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	}
	return a.Compare(*b)
}

// MergeAlerts writes the active alerts of all shards, relabelled, sorted by labels, each as often
// as the source has it that has most of it: of equal ones the most urgent, then the oldest.
func MergeAlerts(ctx context.Context, w *Writer, shards []Source, budget *admit.Budget) (Result, error) {
	d, err := readDocuments[alertDiscovery](ctx, shards, budget)
	defer d.release()
	if err != nil {
		return d.res, err
	}
	all := []alert{}
	for i, doc := range d.docs {
		for _, a := range doc.Alerts {
			a.Labels, a.source, a.copies = shards[i].Relabel.Labels(a.Labels), i, shards[i].Stamped
			if keep := shards[i].Keep; keep == nil || keep(a.Labels) {
				all = append(all, a)
			}
		}
	}
	all = mergeAlerts(all)
	d.res.Series = len(all)
	return d.res, writeData(w, alertDiscovery{all})
}
