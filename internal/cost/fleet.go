package cost

import (
	"cmp"
	"maps"
	"math"
	"slices"
)

// FleetRow is what the GPUs of one model in one cluster did: held, unhealthy and free are capacity,
// but for what was held beyond it, by pods whose node was gone. Money adds up the same way, and is
// nil where none of them has a price.
type FleetRow struct {
	Day           string      `json:"day,omitempty"`
	Cluster       string      `json:"cluster"`
	Model         string      `json:"model"`
	Capacity      Milli       `json:"capacity_gpu_hours"`
	Held          Milli       `json:"held_gpu_hours"`
	Unhealthy     Milli       `json:"unhealthy_gpu_hours"`
	Free          Milli       `json:"free_gpu_hours"`
	Beyond        Milli       `json:"beyond_capacity_gpu_hours"`
	CapacityCost  *Hundredths `json:"capacity_cost"`
	HeldCost      *Hundredths `json:"held_cost"`
	UnhealthyCost *Hundredths `json:"unhealthy_cost"`
	FreeCost      *Hundredths `json:"free_cost"`
	BeyondCost    *Hundredths `json:"beyond_capacity_cost"`
	// Unpriced is the part of the capacity that has no price: it is in no cost.
	Unpriced Milli `json:"unpriced_gpu_hours"`
	// Reserved is the part of Free that was kept for a team.
	Reserved     Milli       `json:"reserved_unused_gpu_hours"`
	ReservedCost *Hundredths `json:"reserved_unused_cost"`
}

// ReservedRow is what of one model a taint of its nodes kept for a team.
type ReservedRow struct {
	Day     string `json:"day,omitempty"`
	Cluster string `json:"cluster"`
	Model   string `json:"model"`
	Team    string `json:"team"`
	Contact string `json:"contact,omitempty"`
	// Reserved is what was kept for the team, whoever held it, and healthy or not; Unused is what
	// of it stood free.
	Reserved Milli       `json:"reserved_gpu_hours"`
	Unused   Milli       `json:"unused_gpu_hours"`
	Cost     *Hundredths `json:"unused_cost"`
	// Billed says whether what stood free is in the team's rows of the bill.
	Billed bool `json:"billed"`
}

// Machines is what all GPUs cost, and how much of that the bill has:
// billed + free + unhealthy - beyond = cost, digit for digit.
type Machines struct {
	Cost   Hundredths `json:"cost"`
	Billed Hundredths `json:"billed_cost"`
	// Free is what nobody held and nobody is billed for.
	Free      Hundredths `json:"free_cost"`
	Unhealthy Hundredths `json:"unhealthy_cost"`
	// Beyond was held, and billed, on nodes that were not there.
	Beyond Hundredths `json:"beyond_capacity_cost"`
	// Reserved was kept for teams and stood free: a part of Billed where the directory says
	// "reserved: billed", of Free where it does not.
	Reserved Hundredths `json:"reserved_unused_cost"`
	// Unpriced is the capacity without a price.
	Unpriced Milli `json:"unpriced_gpu_hours"`
}

// state is what some GPUs did, in GPU ms or in money. What was free and kept for a team is in the
// reserves.
type state struct{ held, unhealthy, free, beyond float64 }

func (s *state) add(o state, times float64) {
	s.held += o.held * times
	s.unhealthy += o.unhealthy * times
	s.free += o.free * times
	s.beyond += o.beyond * times
}

// reserve is what was kept for a team, in GPU ms, and the money of what of it stood free.
type reserve struct{ kept, unused, money float64 }

// stock is the GPUs of one model in one cluster.
type stock struct {
	hours, money state
	reserves     map[string]*reserve // by team
	unpriced     float64             // GPU ms of capacity
	priced       bool
}

type stockKey struct {
	day            int
	cluster, model string
}

func (l *ledger) stock(day int, cluster, model string) *stock {
	if !l.o.Daily {
		day = 0
	}
	k := stockKey{day, cluster, model}
	if l.stocks[k] == nil {
		l.stocks[k] = &stock{reserves: map[string]*reserve{}}
	}
	return l.stocks[k]
}

// book adds what the GPUs of a node did; kept is what of them was kept for each team, unused what
// of that stood free.
func (s *stock) book(did state, kept, unused map[string]float64, price float64, priced bool) {
	capacity := did.held + did.unhealthy + did.free - did.beyond
	free := did.free
	for _, team := range sortedKeys(kept) {
		if s.reserves[team] == nil {
			s.reserves[team] = &reserve{}
		}
		r, ms := s.reserves[team], unused[team]
		r.kept += kept[team]
		r.unused += ms
		r.money += ms / float64(hourMillis) * price
		did.free -= ms
	}
	did.free = max(0, min(did.free, free))
	s.hours.add(did, 1)
	if !priced {
		s.unpriced += capacity
		return
	}
	s.priced = true
	s.money.add(did, price/float64(hourMillis))
}

// samples are the samples of something of a node, in ms: one says what a sample of a resource is.
func (p *page) samples(k nodeKey, of map[device]float64, one func(resource string) float64) (ms float64) {
	for _, d := range sortedDevices(of) {
		if s, ok := p.of[replicaKey{k.cluster, d.of}]; ok && p.readings[s].chosen[d.of] {
			ms += of[d] * one(d.resource) * p.readings[s].share()
		}
	}
	return ms
}

// fleet books what the GPUs did that nobody held. A GPU that is held is held, whatever its node's
// health; of the others those that the kubelet does not offer, or whose node is not ready, are
// unhealthy, and the rest is free.
func (p *page) fleet() {
	f := p.f
	coveredOf := map[string]float64{}
	for s, src := range p.sources {
		coveredOf[src.cluster] = max(coveredOf[src.cluster], float64(p.readings[s].covered))
	}
	itself := func(string) float64 { return 1 }
	for _, k := range p.gpuNodes() {
		at := at[nodeKey]{k, p.i}
		// A node may be younger than the window, or gone before its end: what is a part of the time
		// is a part of its own.
		there := p.samples(k, f.fleet[seen][at], itself)
		if there == 0 {
			there = coveredOf[k.cluster]
		}
		part := f.partsOf(at)
		total, offered, held := p.samples(k, f.fleet[capacity][at], part.of), p.samples(k, f.fleet[allocatable][at], part.of), p.onNode[k]
		switch {
		// No device plugin hands them out; where one did before, the capacity stays there as 0.
		case len(f.fleet[capacity][at]) == 0 || total == 0 && f.claims.nodes[k]:
			total = f.claims.cards[at] * there
			offered = total
		// The device plugin is dead.
		case total == 0 && f.model[at] != "":
			total = f.claims.cards[at] * there
		}
		if there > 0 {
			offered *= min(1, p.samples(k, f.fleet[ready][at], itself)/there)
		}
		idle := max(0, total-held)
		did := state{held: held, unhealthy: min(idle, max(0, total-offered)), beyond: max(0, held-total)}
		did.free = idle - did.unhealthy
		p.stand(k, did, p.keptFor(k, total, there))
	}
}

// gpuNodes are the nodes that have GPUs or on which some were held, in order.
func (p *page) gpuNodes() []nodeKey {
	nodes := maps.Clone(p.onNode)
	for k := range p.f.fleet[capacity] {
		if k.w == p.i {
			nodes[k.key] = 0
		}
	}
	for k := range p.f.claims.cards {
		if k.w == p.i && p.f.fleet[ready][k] != nil {
			nodes[k.key] = 0
		}
	}
	return slices.SortedFunc(maps.Keys(nodes), func(a, b nodeKey) int {
		return cmp.Or(cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.name, b.name))
	})
}

// stand books what the GPUs of a node did, and what of them stood free for a team.
func (p *page) stand(k nodeKey, did state, kept map[string]float64) {
	at := at[nodeKey]{k, p.i}
	model, class := p.f.model[at], p.f.class[at]
	price, _, priced := p.o.Directory.ClassPrice(model, class)
	unused := p.unused(k, did, kept)
	p.l.stock(p.w.day, k.cluster, model).book(did, kept, unused, price, priced)
	if p.o.Directory.Reserved != reservedBilled {
		return
	}
	for _, team := range sortedKeys(unused) {
		p.l.hold(holding{day: p.w.day, cluster: k.cluster, model: model, class: class, ms: unused[team], reservedFor: team})
	}
}

// fleetRows fills in what all GPUs did and cost. Each row adds up in whole thousandths of hours and
// hundredths of money, and its money to that of the bill.
func (r *run) fleetRows(b *Bill, days []Day) {
	keys := slices.SortedFunc(maps.Keys(r.l.stocks), func(a, b stockKey) int {
		return cmp.Or(cmp.Compare(a.day, b.day), cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.model, b.model))
	})
	const perMilli = float64(hourMillis) / 1000
	var of []int // the row of the fleet that a row of what was reserved is a part of
	var kept []float64
	for i, k := range keys {
		s := r.l.stocks[k]
		teams := sortedKeys(s.reserves)
		// held + unhealthy + free - beyond = capacity, in whole thousandths too.
		hours := []float64{s.hours.held / perMilli, s.hours.unhealthy / perMilli, s.hours.free / perMilli}
		for _, team := range teams {
			hours = append(hours, s.reserves[team].unused/perMilli)
		}
		parts := apportion(hours)
		row := FleetRow{
			Cluster: k.cluster, Model: cmp.Or(k.model, None), Held: Milli(parts[0]), Unhealthy: Milli(parts[1]), Free: Milli(parts[2]),
			Beyond: Milli(math.Round(s.hours.beyond / perMilli)), Unpriced: Milli(math.Round(s.unpriced / perMilli)),
		}
		if r.o.Daily {
			row.Day = days[k.day].Name
		}
		for n, team := range teams {
			v := s.reserves[team]
			b.Reserved = append(b.Reserved, ReservedRow{
				Day: row.Day, Cluster: k.cluster, Model: row.Model, Team: team, Contact: r.o.Directory.contact(team),
				Reserved: Milli(math.Round(v.kept / perMilli)), Unused: Milli(parts[3+n]),
				Billed: b.reserved,
			})
			row.Reserved += Milli(parts[3+n])
			of, kept = append(of, i), append(kept, v.money*100)
		}
		row.Free += row.Reserved
		row.Capacity = row.Held + row.Unhealthy + row.Free - row.Beyond
		b.Fleet = append(b.Fleet, row)
	}
	r.fleetMoney(b, keys, of, kept)
}

// fleetMoney fills in what the rows of the fleet cost, and the sum of all: of says to which of them
// each row of what was reserved belongs, unused what that costs in hundredths.
func (r *run) fleetMoney(b *Bill, keys []stockKey, of []int, unused []float64) {
	if len(keys) == 0 || !slices.ContainsFunc(keys, func(k stockKey) bool { return r.l.stocks[k].priced }) {
		return
	}
	m := &Machines{}
	column := func(of func(s state) float64) []float64 {
		vs := make([]float64, len(keys))
		for i, k := range keys {
			vs[i] = of(r.l.stocks[k].money) * 100
		}
		return vs
	}
	if b.Total.Cost != nil {
		m.Billed = *b.Total.Cost
	}
	// What pods held is what is billed; where the directory says so, together with what was kept
	// for teams: the two are rounded together then, since each alone may end with half a hundredth.
	var held, kept []int64
	if mine := column(func(s state) float64 { return s.held }); b.reserved {
		both := apportionTo(slices.Concat(mine, unused), int64(m.Billed))
		held, kept = both[:len(keys)], both[len(keys):]
	} else {
		held, kept = apportionTo(mine, int64(m.Billed)), apportion(unused)
	}
	for _, v := range kept {
		m.Reserved += Hundredths(v)
	}
	if b.reserved {
		m.Free -= m.Reserved
	}
	unhealthy := apportion(column(func(s state) float64 { return s.unhealthy }))
	free := apportion(column(func(s state) float64 { return s.free }))
	beyond := apportion(column(func(s state) float64 { return s.beyond }))
	for n, i := range of {
		if r.l.stocks[keys[i]].priced {
			b.Reserved[n].Cost = new(Hundredths(kept[n]))
		}
	}
	for i, k := range keys {
		row := &b.Fleet[i]
		m.Unpriced += row.Unpriced
		if !r.l.stocks[k].priced {
			continue
		}
		var reserved Hundredths
		for n, at := range of {
			if at == i {
				reserved += Hundredths(kept[n])
			}
		}
		row.HeldCost, row.UnhealthyCost = new(Hundredths(held[i])), new(Hundredths(unhealthy[i]))
		row.BeyondCost = new(Hundredths(beyond[i]))
		row.ReservedCost, row.FreeCost = new(reserved), new(Hundredths(free[i])+reserved)
		row.CapacityCost = new(*row.HeldCost + *row.UnhealthyCost + *row.FreeCost - *row.BeyondCost)
		m.Cost += *row.CapacityCost
		m.Free += *row.FreeCost
		m.Unhealthy += *row.UnhealthyCost
		m.Beyond += *row.BeyondCost
	}
	b.Machines = m
}
