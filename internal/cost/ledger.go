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
	Class      Dimension = "class" // of node: spot, on-demand, reserved
)

// Dimensions are all there are, in the order of columns.
var Dimensions = []Dimension{Cluster, Team, Person, Namespace, Experiment, Model, Class}

// None is what a row shows where there is nothing: no person, no experiment, no model that the node
// is labelled with.
const None = "-"

// holding is what one pod held in one window.
type holding struct {
	day                       int
	cluster, namespace, label string // label: the team that the namespace's label names
	experiment, model, class  string
	ms                        float64 // GPU ms, of cards
	units                     float64 // the same as nodes hand them out: shares and slices for whole ones
	active                    float64 // the part of it in which the GPUs worked
	measured                  bool    // whether active is known
	cores, gib                float64 // core ms and GiB ms of work without GPUs
	reservedFor               string  // the team for which this was kept, where nobody held it
}

// account is what one row adds up, in GPU ms.
type account struct {
	day      int
	keys     []string
	clusters map[string]bool
	contact  string

	held, units, measured, active, unpriced float64
	reserved                                float64 // the part of held that nobody held, and was kept for a team
	money, idleMoney                        float64
	cores, gib, workMoney                   float64 // of work without GPUs
	priced                                  bool
}

// ledger adds up windows. It is the same whatever the order of answers is.
type ledger struct {
	o         *Options
	days      []Day
	rows      map[string]*account
	stocks    map[stockKey]*stock
	models    map[string]bool      // of which something was held
	teams     map[string]*spending // by team, whatever rows are told apart by
	borrowed  map[string]float64   // GPU ms by class, held at the model's price for want of their own
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
		borrowed: map[string]float64{}, teams: map[string]*spending{}, owners: map[[2]string]Owner{}, covered: map[string][]float64{},
		hours: map[string][]hourSeen{},
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
	if h.reservedFor != "" {
		owner = Owner{Team: h.reservedFor, Contact: l.o.Directory.contact(h.reservedFor)}
	}
	price, borrowed, priced := l.o.Directory.ClassPrice(h.model, h.class)
	l.account(h, owner).add(h, price, priced)
	if spent := l.spent(owner.Team); priced {
		spent.money += h.ms / float64(hourMillis) * price
	} else {
		spent.unpriced += h.ms
	}
	if borrowed {
		l.borrowed[h.class] += h.ms
	}
	l.models[h.model] = true
}

// work books what a pod without GPUs requested.
func (l *ledger) work(h holding) {
	owner := l.owner(h.namespace, h.label)
	a := l.account(h, owner)
	a.clusters[h.cluster] = true
	a.cores += h.cores
	a.gib += h.gib
	money := l.o.Directory.workPrice(h.cores, h.gib) / float64(hourMillis)
	a.workMoney += money
	l.spent(owner.Team).money += money
}

// account is the row that a holding belongs to.
func (l *ledger) account(h holding, owner Owner) *account {
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
		case Class:
			v = h.class
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
	return a
}

// add books a holding at a price.
func (a *account) add(h holding, price float64, priced bool) {
	a.clusters[h.cluster] = true
	a.held += h.ms
	a.units += h.units
	if h.reservedFor != "" {
		a.reserved += h.ms
	}
	if priced {
		a.priced = true
		a.money += h.ms / float64(hourMillis) * price
	} else {
		a.unpriced += h.ms
	}
	if h.measured {
		active := h.ms * min(1, h.active)
		a.measured += h.ms
		a.active += active
		a.idleMoney += (h.ms - active) / float64(hourMillis) * price
	}
}

// cover books how much of a window each cluster's scrapes cover: where kube-state-metrics has
// shards, what all of them cover; nothing where one of them never answered.
func (l *ledger) cover(w window, sources []*source, readings []reading, silent []string) {
	least := map[string]float64{}
	for s, src := range sources {
		c := float64(readings[s].covered)
		if v, ok := least[src.cluster]; !ok || c < v {
			least[src.cluster] = c
		}
	}
	for _, c := range silent {
		least[c] = 0
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
		errs = append(errs, fmt.Errorf("--price=%s=%v: there is no such GPU model: %s; a * at the beginning or end stands for anything", key, l.o.Directory.First[key], have))
	}
	return errors.Join(errs...)
}
