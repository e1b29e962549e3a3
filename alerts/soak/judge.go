package soak

import (
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/rules"
)

// Fired is one time that one alert fired.
type Fired struct {
	Labels labels.Labels
	// From is when it began to fire, Until when it was last seen to, and its group's interval
	// later.
	From, Until time.Time
	// By is the incident that explains it; nil means that it is false.
	By *Incident
}

// Alert and Severity are what its labels say.
func (f *Fired) Alert() string    { return f.Labels.Get(labels.AlertName) }
func (f *Fired) Severity() string { return f.Labels.Get("severity") }

// judge knows what was staged and what fired.
type judge struct {
	incidents []*Incident
	fired     []*Fired
}

// watch notes what fires of one group.
type watch struct {
	fired []*Fired
	open  map[string]*Fired
}

// see notes what fires of one rule at one evaluation.
func (j *watch) see(a *rules.AlertingRule, at time.Time, interval time.Duration) {
	if j.open == nil {
		j.open = map[string]*Fired{}
	}
	a.ForEachActiveAlert(func(x *rules.Alert) {
		if x.State != rules.StateFiring {
			return
		}
		key := string(x.Labels.Bytes(nil))
		f := j.open[key]
		if f == nil || !f.From.Equal(x.FiredAt) {
			f = &Fired{Labels: x.Labels, From: x.FiredAt}
			j.open[key] = f
			j.fired = append(j.fired, f)
		}
		f.Until = at.Add(interval)
	})
}

// explain finds the incident of each alert, and notes when wanted ones came first.
func (j *judge) explain() {
	for _, f := range j.fired {
		for _, i := range j.incidents {
			if !i.explains(f) {
				continue
			}
			if f.By == nil {
				f.By = i
			}
			if name := f.Alert(); slices.Contains(i.sort.want, name) && !f.From.Before(i.From) {
				if i.found == nil {
					i.found = map[string]time.Duration{}
				}
				if _, ok := i.found[name]; !ok {
					i.found[name] = f.From.Sub(i.From)
				}
			}
		}
	}
}

// explains says whether the incident may raise the alert, there and then.
func (i *Incident) explains(f *Fired) bool {
	if name := f.Alert(); !slices.Contains(i.sort.want, name) && !slices.Contains(i.sort.beside, name) {
		return false
	}
	if f.From.Before(i.From) || f.From.After(i.end()) || f.Until.After(i.end()) {
		return false
	}
	if i.sort.on == aShare || i.sort.on == aServer { // no node's
		return true
	}
	node, gpu, _ := strings.Cut(i.Target, "/")
	if f.Labels.Get("node") != node {
		return false
	}
	g := f.Labels.Get("gpu")
	return g == "" || gpu == "" || g == gpu
}
