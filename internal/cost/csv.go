package cost

import (
	"encoding/csv"
	"io"
	"slices"
	"strconv"
)

// WriteCSV writes the rows with a header line, and nothing else: no total, so that a sheet's own
// sum is the total. The column kind tells rows (billed) from days of a cluster, or clusters where
// the bill has no days, of which nothing is known (not_covered): these have empty fields, not
// zeros. What else is missing is said by Missing.
func (b *Bill) WriteCSV(w io.Writer) error { return csv.NewWriter(w).WriteAll(b.lines()) }

// WriteCSVOfAll writes lines of what is in no row too: of the kinds free, reserved_unused,
// unhealthy and beyond_capacity, by as much of --by as these have, a cluster, a model and a team.
// The cost of billed, free, reserved_unused and unhealthy, less that of beyond_capacity, is what
// the machines cost.
func (b *Bill) WriteCSVOfAll(w io.Writer) error {
	return csv.NewWriter(w).WriteAll(append(b.lines(), b.unbilledLines()...))
}

// lines are the header, the rows, and days of which nothing is known.
func (b *Bill) lines() [][]string {
	head := []string{"kind"}
	if b.Daily {
		head = append(head, "day")
	}
	for _, d := range b.By {
		head = append(head, string(d))
	}
	head = append(head, "contact", "gpu_hours", "cost", "currency", "unpriced_gpu_hours", "idle_gpu_hours", "measured_gpu_hours", "covered")
	for _, x := range b.extras() {
		head = append(head, x.column)
	}
	lines := [][]string{head}
	for _, r := range b.Rows {
		line := []string{"billed"}
		if b.Daily {
			line = append(line, r.Day)
		}
		for _, k := range r.Keys {
			line = append(line, formulaSafe(k))
		}
		cost, currency := b.money(r.Cost)
		idle := ""
		if r.Measured > 0 {
			idle = r.Idle.String()
		}
		line = append(line, formulaSafe(r.Contact), r.GPUHours.String(), cost, currency, r.Unpriced.String(), idle,
			r.Measured.String(), strconv.FormatFloat(r.Covered, 'f', 4, 64))
		for _, x := range b.extras() {
			line = append(line, x.of(r))
		}
		lines = append(lines, line)
	}
	for _, d := range b.dark() {
		line := b.line("not_covered", d.Day, map[Dimension]string{Cluster: d.Cluster})
		line[len(line)-1-len(b.extras())] = "0.0000"
		lines = append(lines, line)
	}
	return lines
}

// dark are the days of clusters of which nothing is known, those of clusters that are gone too.
// Where the bill has no days they are the clusters of which nothing is known in all of it.
func (b *Bill) dark() (out []DayCoverage) {
	var days, known []string
	for _, d := range b.Days {
		if !slices.Contains(days, d.Day) {
			days = append(days, d.Day)
		}
		if d.CoveredHours > 0 {
			known = append(known, d.Cluster)
		}
	}
	told := map[string]bool{}
	for _, d := range b.Days {
		switch {
		case b.Daily && d.CoveredHours == 0:
			out = append(out, d)
		case !b.Daily && !slices.Contains(known, d.Cluster) && !told[d.Cluster]:
			told[d.Cluster] = true
			out = append(out, DayCoverage{Cluster: d.Cluster})
		}
	}
	for _, c := range b.lost {
		if !b.Daily {
			days = []string{""}
		}
		for _, day := range days {
			out = append(out, DayCoverage{Day: day, Cluster: orNone(c)})
		}
	}
	return out
}

// line is one of another kind than billed: its keys, and fields that are empty.
func (b *Bill) line(kind, day string, keys map[Dimension]string, more ...string) []string {
	line := []string{kind}
	if b.Daily {
		line = append(line, day)
	}
	for _, by := range b.By {
		line = append(line, formulaSafe(keys[by]))
	}
	return append(append(line, more...), make([]string, 8-len(more)+len(b.extras()))...)
}

// money is a cost with its currency, both empty where there is none.
func (b *Bill) money(cost *Hundredths) (amount, currency string) {
	if cost == nil {
		return "", ""
	}
	return cost.String(), formulaSafe(b.Currency)
}

// unbilledLines are what nobody is billed for, and what was billed of GPUs that were not there.
func (b *Bill) unbilledLines() (lines [][]string) {
	add := func(kind, day string, keys map[Dimension]string, contact string, hours Milli, cost *Hundredths) {
		if hours == 0 && (cost == nil || *cost == 0) {
			return
		}
		amount, currency := b.money(cost)
		unpriced := Milli(0)
		if cost == nil {
			unpriced = hours
		}
		lines = append(lines, b.line(kind, day, keys, formulaSafe(contact), hours.String(), amount, currency, unpriced.String()))
	}
	for _, f := range b.Fleet {
		keys := map[Dimension]string{Cluster: orNone(f.Cluster), Model: f.Model}
		free := f.FreeCost
		if free != nil {
			free = new(*free - *f.ReservedCost)
		}
		add("free", f.Day, keys, "", f.Free-f.Reserved, free)
		add("unhealthy", f.Day, keys, "", f.Unhealthy, f.UnhealthyCost)
		add("beyond_capacity", f.Day, keys, "", f.Beyond, f.BeyondCost)
	}
	for _, r := range b.Reserved {
		if !r.Billed {
			keys := map[Dimension]string{Cluster: orNone(r.Cluster), Model: r.Model, Team: r.Team}
			add("reserved_unused", r.Day, keys, r.Contact, r.Unused, r.Cost)
		}
	}
	return lines
}
