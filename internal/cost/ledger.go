package cost

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Dimension is what a bill's rows can be told apart by.
type Dimension string

// The dimensions.
const (
	Cluster    Dimension = "cluster"
	Team       Dimension = "team"
	Person     Dimension = "person"
	Namespace  Dimension = "namespace"
	Experiment Dimension = "experiment"
	Model      Dimension = "model"
)

// Dimensions are all there are, in the order of columns.
var Dimensions = []Dimension{Cluster, Team, Person, Namespace, Experiment, Model}

// None is what a row shows where there is nothing: no person, no experiment, no model that the node
// is labelled with.
const None = "-"

// holding is what one pod held in one window.
type holding struct {
	day                       int
	cluster, namespace, label string // label: the team that the namespace's label names
	experiment, model         string
	ms                        float64 // GPU ms, of cards
	units                     float64 // the same as nodes hand them out: shares and slices for whole ones
	active                    float64 // the part of it in which the GPUs worked
	measured                  bool    // whether active is known
}

// account is what one row adds up, in GPU ms.
type account struct {
	day      int
	keys     []string
	clusters map[string]bool
	contact  string

	held, units, measured, active, unpriced float64
	money                                   float64
	priced                                  bool
}

// stock is the GPUs of one model in one cluster, in GPU ms.
type stock struct{ capacity, held, unhealthy, free, beyond float64 }

func (s *stock) add(total, held, unhealthy, free, beyond float64) {
	s.capacity += total
	s.held += held
	s.unhealthy += unhealthy
	s.free += free
	s.beyond += beyond
}

type stockKey struct {
	day            int
	cluster, model string
}

// ledger adds up windows. It is the same whatever the order of answers is.
type ledger struct {
	o         *Options
	days      []Day
	rows      map[string]*account
	stocks    map[stockKey]*stock
	models    map[string]bool // of which something was held
	owners    map[[2]string]Owner
	allocated float64               // GPU ms, as nodes hand them out and the servers count them
	covered   map[string][]float64  // ms, by cluster and day
	hours     map[string][]hourSeen // by cluster, rising
}

// hourSeen is how much of an hour was covered.
type hourSeen struct {
	hour     int
	from, to int64
	covered  float64
}

func newLedger(o *Options, days []Day) *ledger {
	return &ledger{
		o: o, days: days, rows: map[string]*account{}, stocks: map[stockKey]*stock{}, models: map[string]bool{},
		owners: map[[2]string]Owner{}, covered: map[string][]float64{}, hours: map[string][]hourSeen{},
	}
}

func (l *ledger) needs(d Dimension) bool { return slices.Contains(l.o.By, d) }

func (l *ledger) owner(namespace, label string) Owner {
	k := [2]string{namespace, label}
	o, ok := l.owners[k]
	if !ok {
		o = l.o.Directory.Owner(namespace, label)
		l.owners[k] = o
	}
	return o
}

// hold books what a pod held.
func (l *ledger) hold(h holding) {
	owner := l.owner(h.namespace, h.label)
	keys := make([]string, len(l.o.By))
	for i, d := range l.o.By {
		v := ""
		switch d {
		case Cluster:
			v = h.cluster
		case Team:
			v = owner.Team
		case Person:
			v = owner.Person
		case Namespace:
			v = h.namespace
		case Experiment:
			v = h.experiment
		case Model:
			v = h.model
		}
		if v == "" {
			v = None
		}
		keys[i] = v
	}
	day := 0
	if l.o.Daily {
		day = h.day
	}
	id := string(rune(day)) + "\x00" + strings.Join(keys, "\x00")
	a := l.rows[id]
	if a == nil {
		a = &account{day: day, keys: keys, clusters: map[string]bool{}}
		if l.needs(Team) || l.needs(Person) {
			a.contact = owner.Contact
		}
		l.rows[id] = a
	}
	a.clusters[h.cluster] = true
	a.held += h.ms
	a.units += h.units
	if h.measured {
		a.measured += h.ms
		a.active += h.ms * min(1, h.active)
	}
	l.models[h.model] = true
	if p, ok := l.o.Directory.Price(h.model); ok {
		a.priced = true
		a.money += h.ms / float64(hourMillis) * p
	} else {
		a.unpriced += h.ms
	}
}

func (l *ledger) fleetOf(day int, cluster, model string) *stock {
	if !l.o.Daily {
		day = 0
	}
	k := stockKey{day, cluster, model}
	if l.stocks[k] == nil {
		l.stocks[k] = &stock{}
	}
	return l.stocks[k]
}

// cover books how much of a window each cluster's scrapes cover: where kube-state-metrics has
// shards, what all of them cover.
func (l *ledger) cover(w window, sources []*source, readings []reading) {
	least := map[string]float64{}
	for s, src := range sources {
		c := float64(readings[s].covered)
		if v, ok := least[src.cluster]; !ok || c < v {
			least[src.cluster] = c
		}
	}
	for _, c := range sortedKeys(least) {
		if l.covered[c] == nil {
			l.covered[c] = make([]float64, len(l.days))
		}
		l.covered[c][w.day] += least[c]
		hs := l.hours[c]
		if n := len(hs); n > 0 && hs[n-1].hour == w.hour {
			hs[n-1].to, hs[n-1].covered = w.to, hs[n-1].covered+least[c]
			continue
		}
		l.hours[c] = append(hs, hourSeen{hour: w.hour, from: w.from, to: w.to, covered: least[c]})
	}
}

// unmatched names the prices that were asked for and are of no model: a bill that leaves out their
// money would look like one without any.
func (l *ledger) unmatched() error {
	seen := maps.Clone(l.models)
	for k := range l.stocks {
		seen[k.model] = true
	}
	delete(seen, "")
	models := sortedKeys(seen)
	var errs []error
	for _, key := range l.o.Priced {
		if slices.ContainsFunc(models, func(model string) bool { return priceFor(key, model) >= 0 }) ||
			len(l.models) == 0 && len(models) == 0 {
			continue
		}
		have := "no node says which model it has; --model-label names the label that does"
		if len(models) > 0 {
			have = "the models of this time are " + strings.Join(models, ", ")
		}
		errs = append(errs, fmt.Errorf("--price=%s=%v: there is no such GPU model: %s; a * at the beginning or end stands for anything", key, l.o.Directory.Prices[key], have))
	}
	return errors.Join(errs...)
}
