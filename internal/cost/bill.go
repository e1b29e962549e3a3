package cost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// DefaultMaxGap is how long a pause between two scrapes may be and still count as covered:
// Prometheus' own lookback.
const DefaultMaxGap = 5 * time.Minute

// Options say which bill to make.
type Options struct {
	Client *Client
	Range  Range
	// Daily makes rows for each day.
	Daily bool
	// By is what rows are told apart by, in the order of columns; at least one, none twice.
	By []Dimension
	// Directory says whose namespaces are and what GPUs cost; nil is the zero value.
	Directory *Directory
	// Priced are keys of the directory's First prices that must be the price of some model:
	// where one is of none, there is no bill.
	Priced []string
	Names  Names
	// MaxGap is DefaultMaxGap where it is 0.
	MaxGap time.Duration
	// NoIdle leaves out how busy the GPUs were.
	NoIdle bool
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Progress, where set, is told of every day that was read.
	Progress func(day string, done, of int)
}

// Milli is a number of thousandths: GPU hours are kept so, because whole numbers add up.
type Milli int64

// Hundredths is money: cents, or what the currency has in their place.
type Hundredths int64

// String writes m as 12.345.
func (m Milli) String() string { return strconv.FormatFloat(float64(m)/1000, 'f', 3, 64) }

// MarshalJSON writes m as the number 12.345.
func (m Milli) MarshalJSON() ([]byte, error) { return []byte(m.String()), nil }

// Hours is m as a number of whole ones.
func (m Milli) Hours() float64 { return float64(m) / 1000 }

// String writes h as 12.34.
func (h Hundredths) String() string { return strconv.FormatFloat(float64(h)/100, 'f', 2, 64) }

// MarshalJSON writes h as the number 12.34.
func (h Hundredths) MarshalJSON() ([]byte, error) { return []byte(h.String()), nil }

// Bill is what was held, by whom. Its rows add up to its total, digit for digit.
type Bill struct {
	From     time.Time   `json:"from"`
	To       time.Time   `json:"to"`
	Timezone string      `json:"timezone"`
	By       []Dimension `json:"by"`
	Daily    bool        `json:"daily"`
	Currency string      `json:"currency,omitempty"`
	// Resolution is the usual distance of two scrapes: each beginning and end of a pod is known to
	// it.
	Resolution string `json:"resolution"`
	Rows       []Row  `json:"rows"`
	Total      Total  `json:"total"`
	// Days says for each day of the range and each cluster how much of it was covered.
	Days []DayCoverage `json:"days"`
	// Hours are those that were not covered as a whole; all others were.
	Hours []Hour `json:"hours_not_covered"`
	// Gaps are the same to the millisecond, one after the other.
	Gaps []Gap `json:"gaps"`
	// Fleet is what all GPUs did, those that nobody held too. It is no part of the bill.
	Fleet []FleetRow `json:"fleet"`
	// Machines is what all GPUs cost; nil where none has a price.
	Machines *Machines `json:"machines,omitempty"`
	// Reserved is what was kept for teams.
	Reserved []ReservedRow `json:"reserved,omitempty"`
	// Borrowed are classes of nodes that were billed at the price of the model, for want of their
	// own; nil where the directory has no prices by class and no row tells them apart.
	Borrowed []ClassHours `json:"classes_at_model_price,omitempty"`

	// Notes are sentences about what is probably missing from the bill.
	Notes []string `json:"notes,omitempty"`
	// Budgets are those of the directory, in its order.
	Budgets []BudgetRow `json:"budgets,omitempty"`

	month    string   // in which all of the range lies, such as 2026-11; empty where it touches several
	lost     []string // clusters that there were in the week before
	reserved bool     // whether what stood free of it is billed
	work     bool     // whether work without GPUs is
}

// Row is one line of a bill.
type Row struct {
	Day      string   `json:"day,omitempty"`
	Keys     []string `json:"keys"` // in the order of Bill.By; None where there is nothing
	Contact  string   `json:"contact,omitempty"`
	GPUHours Milli    `json:"gpu_hours"`
	// Cost is nil where no GPU of the row has a price.
	Cost *Hundredths `json:"cost"`
	// Unpriced are the hours of models without a price: they are in GPUHours and not in Cost.
	Unpriced Milli `json:"unpriced_gpu_hours"`
	// Idle is held and not busy, of the Measured hours, in which it is known. It is billed: this is
	// not a deduction.
	Idle     Milli `json:"idle_gpu_hours"`
	Measured Milli `json:"measured_gpu_hours"`
	// Covered is the part of the row's time, 0 to 1, that was covered, in the clusters it has hours
	// in.
	Covered float64 `json:"covered"`
	// IdleCost is what Idle costs, of models with a price.
	IdleCost *Hundredths `json:"idle_cost"`
	// Reserved is the part of GPUHours that nobody held, and was kept for the team: only where the
	// directory says that it is billed.
	Reserved Milli `json:"reserved_unused_gpu_hours,omitzero"`
	Work
}

// Total is the sum of all rows.
type Total struct {
	GPUHours Milli       `json:"gpu_hours"`
	Cost     *Hundredths `json:"cost"`
	Unpriced Milli       `json:"unpriced_gpu_hours"`
	Idle     Milli       `json:"idle_gpu_hours"`
	Measured Milli       `json:"measured_gpu_hours"`
	Covered  float64     `json:"covered"`
	IdleCost *Hundredths `json:"idle_cost"`
	Reserved Milli       `json:"reserved_unused_gpu_hours,omitzero"`
	Work
}

// Work is what pods without GPUs requested on nodes without GPUs. All of it is nil where the
// directory has no price of it. Its cost is not in the cost of GPUs.
type Work struct {
	CPUHours    *Milli      `json:"cpu_core_hours,omitempty"`
	MemoryHours *Milli      `json:"memory_gib_hours,omitempty"`
	CPUCost     *Hundredths `json:"cpu_cost,omitempty"` // of both
}

// DayCoverage is one day of one cluster. Where CoveredHours is 0 nothing is known of it: no row has
// anything of that day, which does not say that nothing was held.
type DayCoverage struct {
	Day          string  `json:"day"`
	Cluster      string  `json:"cluster"`
	Hours        float64 `json:"hours"` // 23 or 25 where clocks are changed
	CoveredHours float64 `json:"covered_hours"`
}

// Imbalance is why there is no bill: in one window its rows were not what the servers say was
// allocated.
type Imbalance struct {
	Cluster           string
	From, To          time.Time
	Of                string  // what is counted; empty for GPU hours
	Billed, Allocated float64 // hours of it
}

func (e *Imbalance) Error() string {
	in := ""
	if e.Cluster != "" {
		in = " in " + e.Cluster
	}
	return fmt.Sprintf("the bill does not add up%s from %s to %s: its rows have %.4f %s, allocated were %.4f, a difference of %.4f; a server answered two queries differently: "+
		"ask again once its data has settled, and look at the shards if that does not help", in, e.From.Format(time.RFC3339), e.To.Format(time.RFC3339), e.Billed,
		cmp.Or(e.Of, hoursOf[ofGPUs].name), e.Allocated, e.Billed-e.Allocated)
}

// OptionError is what is wrong with the options, before any server was asked.
type OptionError struct{ error }

// Unwrap returns the problems.
func (e *OptionError) Unwrap() error { return e.error }

func (o *Options) check() error {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Directory == nil {
		o.Directory = &Directory{}
	}
	if o.MaxGap == 0 {
		o.MaxGap = DefaultMaxGap
	}
	o.Names = o.Names.withDefaults()
	errs := []error{o.Names.validate(), o.Directory.Validate(), o.Directory.checkBudgets()}
	if o.Range.Location == nil {
		o.Range.Location = time.UTC
	}
	errs = append(errs, o.Range.check(o.Now()))
	if o.Client == nil {
		errs = append(errs, errors.New("there is no client"))
	}
	if o.MaxGap < time.Second || o.MaxGap > time.Hour {
		errs = append(errs, fmt.Errorf("--max-gap=%s: it can be 1s to 1h", o.MaxGap))
	}
	if len(o.By) == 0 {
		errs = append(errs, errors.New("--by is empty: name at least one of "+names(Dimensions)))
	}
	for i, d := range o.By {
		if !slices.Contains(Dimensions, d) {
			errs = append(errs, fmt.Errorf("--by: %q is none of %s", d, names(Dimensions)))
		}
		if slices.Contains(o.By[:i], d) {
			errs = append(errs, fmt.Errorf("--by: %s is there twice", d))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return &OptionError{err}
	}
	return nil
}

func names(ds []Dimension) string {
	out := make([]string, len(ds))
	for i, d := range ds {
		out[i] = string(d)
	}
	return strings.Join(out, ", ")
}

// Make asks the servers and makes the bill. It fails with an *Imbalance where the rows do not add
// up to what was allocated.
func Make(ctx context.Context, o Options) (*Bill, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	days := o.Range.Days()
	r := &run{o: o, q: o.Names.queries(), gap: o.MaxGap.Milliseconds(), size: map[string][2]int{}, l: newLedger(&o, days)}
	r.found = found{
		dark: map[nodeKey]float64{}, offeredOn: map[at[string]]bool{}, requestedOn: map[at[string]]bool{},
		exportedOn: map[at[string]]bool{},
	}
	if err := r.scrapes(ctx); err != nil {
		return nil, err
	}
	ws := refine(windows(days), r.sources, r.gap)
	for i := range days {
		n := 0
		for n < len(ws) && ws[n].day == i {
			n++
		}
		for _, stretch := range stretches(ws[:n]) {
			f, err := r.read(ctx, stretch)
			if err == nil {
				err = r.book(stretch, f)
			}
			if err != nil {
				return nil, err
			}
		}
		ws = ws[n:]
		if o.Progress != nil {
			o.Progress(days[i].Name, i+1, len(days))
		}
	}
	if err := r.exported(ctx); err != nil {
		return nil, err
	}
	return r.bill(days)
}

// bill closes the ledger.
func (r *run) bill(days []Day) (*Bill, error) {
	o, l := r.o, r.l
	if err := l.unmatched(); err != nil {
		return nil, err
	}
	b := &Bill{
		From: o.Range.From.In(o.Range.Location), To: o.Range.To.In(o.Range.Location), Timezone: o.Range.Location.String(), By: o.By,
		Daily: o.Daily, Currency: o.Directory.Currency, reserved: o.Directory.Reserved == reservedBilled,
	}
	accounts := make([]*account, 0, len(l.rows))
	for _, id := range sortedKeys(l.rows) {
		accounts = append(accounts, l.rows[id])
	}
	slices.SortStableFunc(accounts, func(a, b *account) int {
		return cmp.Or(cmp.Compare(a.day, b.day), cmp.Compare(b.held, a.held), cmp.Compare(b.workMoney, a.workMoney),
			slices.Compare(a.keys, b.keys))
	})
	sum := 0.0
	for _, a := range accounts {
		sum += a.units
	}
	// Each window was compared sample by sample; this finds what would be lost between there and
	// the rows.
	if math.Abs(sum-l.allocated) > 1e-9*max(1, l.allocated) {
		return nil, &Imbalance{From: b.From, To: b.To, Billed: sum / float64(hourMillis), Allocated: l.allocated / float64(hourMillis)}
	}
	r.rows(b, accounts, days)
	r.told(b, days)
	longest, silent := int64(0), r.silentClusters()
	for _, c := range silent {
		b.Gaps = append(b.Gaps, Gap{c, b.From, b.To})
	}
	for _, s := range r.sources {
		for _, p := range s.replicas {
			longest = max(longest, p.usual)
		}
		if slices.Contains(silent, s.cluster) {
			continue
		}
		for _, g := range s.gaps(o.Range.From.UnixMilli(), o.Range.To.UnixMilli(), r.gap) {
			b.Gaps = append(b.Gaps, Gap{s.cluster, time.UnixMilli(g[0]).In(o.Range.Location), time.UnixMilli(g[1]).In(o.Range.Location)})
		}
	}
	slices.SortStableFunc(b.Gaps, func(a, b Gap) int { return strings.Compare(a.Cluster, b.Cluster) })
	b.Resolution = (time.Duration(longest) * time.Millisecond).String()
	r.fleetRows(b, days)
	b.Borrowed = l.borrowedRows()
	r.budgets(b)
	b.Notes, b.lost = r.notes(), r.lost
	return b, nil
}

// rows fills in a row for each account, and their totals.
func (r *run) rows(b *Bill, accounts []*account, days []Day) {
	column := func(of func(*account) float64) []int64 {
		vs := make([]float64, len(accounts))
		for i, a := range accounts {
			vs[i] = of(a)
		}
		return apportion(vs)
	}
	const perMilli = float64(hourMillis) / 1000
	held := column(func(a *account) float64 { return a.held / perMilli })
	unpriced := column(func(a *account) float64 { return a.unpriced / perMilli })
	measured := column(func(a *account) float64 { return a.measured / perMilli })
	idle := column(func(a *account) float64 { return (a.measured - a.active) / perMilli })
	money := column(func(a *account) float64 { return a.money * 100 })
	idleMoney := column(func(a *account) float64 { return a.idleMoney * 100 })
	reserved := column(func(a *account) float64 { return a.reserved / perMilli })
	work := r.work(b, accounts, column)
	for i, a := range accounts {
		row := Row{
			Keys: a.keys, Contact: a.contact, GPUHours: Milli(held[i]), Unpriced: Milli(unpriced[i]), Measured: Milli(measured[i]),
			Idle: Milli(idle[i]), Reserved: Milli(reserved[i]), Work: work[i],
		}
		row.Covered = r.l.coverage(a.day, r.o.Daily, sortedKeys(a.clusters))
		if r.o.Daily {
			row.Day = days[a.day].Name
		}
		b.Total.GPUHours += row.GPUHours
		b.Total.Unpriced += row.Unpriced
		b.Total.Measured += row.Measured
		b.Total.Idle += row.Idle
		b.Total.Reserved += row.Reserved
		if a.priced {
			row.Cost, row.IdleCost = new(Hundredths(money[i])), new(Hundredths(idleMoney[i]))
			if b.Total.Cost == nil {
				b.Total.Cost, b.Total.IdleCost = new(Hundredths), new(Hundredths)
			}
			*b.Total.Cost += *row.Cost
			*b.Total.IdleCost += *row.IdleCost
		}
		b.Rows = append(b.Rows, row)
	}
}

// told fills in how much of the time is known of each cluster.
func (r *run) told(b *Bill, days []Day) {
	l, location := r.l, r.o.Range.Location
	clusters := sortedKeys(l.covered)
	b.Total.Covered = l.coverage(0, false, clusters)
	for i, d := range days {
		for _, c := range clusters {
			b.Days = append(b.Days, DayCoverage{
				Day: d.Name, Cluster: c, Hours: d.To.Sub(d.From).Hours(),
				CoveredHours: l.covered[c][i] / float64(hourMillis),
			})
		}
	}
	for _, c := range clusters {
		for _, h := range l.hours[c] {
			if whole := float64(h.to - h.from); h.covered < whole-1 {
				b.Hours = append(b.Hours, Hour{
					c, time.UnixMilli(h.from).In(location), time.UnixMilli(h.to).In(location),
					h.covered / 1000,
				})
			}
		}
	}
}

// coverage is the part of a day, or of all days, that was covered in some clusters.
func (l *ledger) coverage(day int, daily bool, clusters []string) float64 {
	covered, whole := 0.0, 0.0
	for _, c := range clusters {
		for i, d := range l.days {
			if daily && i != day {
				continue
			}
			covered += l.covered[c][i]
			whole += float64(d.To.Sub(d.From).Milliseconds())
		}
	}
	if whole == 0 {
		return 0
	}
	return min(1, covered/whole)
}

// apportion rounds numbers so that what they are rounded to adds up to their rounded sum: those
// that lose most by rounding down are rounded up.
func apportion(vs []float64) []int64 {
	sum := 0.0
	for _, v := range vs {
		sum += v
	}
	return apportionTo(vs, int64(math.Round(sum)))
}

// apportionTo rounds numbers so that what they are rounded to adds up to sum, which is theirs but
// for rounding.
func apportionTo(vs []float64, sum int64) []int64 {
	out := make([]int64, len(vs))
	order := make([]int, len(vs))
	given := int64(0)
	for i, v := range vs {
		out[i] = int64(math.Floor(v))
		given += out[i]
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(vs[b]-float64(out[b]), vs[a]-float64(out[a])) })
	missing := sum - given
	for _, i := range order {
		if missing <= 0 {
			break
		}
		out[i]++
		missing--
	}
	return out
}
