package cost

import (
	"fmt"
	"io"
)

// extra is a column that a bill has where the directory asks for what is in it: after all others,
// whose places do not change.
type extra struct {
	title, column string // of the table, of the CSV
	of            func(Row) string
}

// extras are the columns of what the directory asks for.
func (b *Bill) extras() (out []extra) {
	if b.reserved {
		out = append(out, extra{"of it reserved, unused", "reserved_unused_gpu_hours", func(r Row) string { return r.Reserved.String() }})
	}
	if b.work {
		out = append(
			out, extra{"CPU core hours", "cpu_core_hours", func(r Row) string { return r.CPUHours.String() }},
			extra{"GiB hours", "memory_gib_hours", func(r Row) string { return r.MemoryHours.String() }},
			extra{b.inCurrency("cost of CPU work"), "cpu_cost", func(r Row) string { return r.CPUCost.String() }},
		)
	}
	return out
}

// row is the total as a row without keys.
func (t Total) row() Row {
	return Row{
		GPUHours: t.GPUHours, Cost: t.Cost, Unpriced: t.Unpriced, Idle: t.Idle, Measured: t.Measured, Covered: t.Covered,
		IdleCost: t.IdleCost, Reserved: t.Reserved, Work: t.Work,
	}
}

// priced is a cost in a table.
func priced(cost *Hundredths) string {
	if cost == nil {
		return "no price"
	}
	return cost.String()
}

// orNone is what a column shows of a name that may be empty.
func orNone(s string) string {
	if s == "" {
		return None
	}
	return s
}

// writeFleet writes what all GPUs did and cost, and what of them was kept for teams.
func (b *Bill) writeFleet(out io.Writer, t *table) error {
	if len(b.Fleet) == 0 {
		return nil
	}
	fmt.Fprintf(out, "\nAll GPUs, in GPU hours (no part of the bill):\n")
	dated := func(day string, cells ...string) {
		if b.Daily {
			cells = append([]string{day}, cells...)
		}
		t.line(cells...)
	}
	head := []string{"cluster", "model", "capacity", "held", "free", "unhealthy", "beyond capacity"}
	if b.Machines != nil {
		head = append(head, b.inCurrency("cost"), "cost of free", "of unhealthy")
	}
	dated("day", head...)
	for _, f := range b.Fleet {
		cells := []string{
			visible(f.Cluster), visible(f.Model), f.Capacity.String(), f.Held.String(), f.Free.String(),
			f.Unhealthy.String(), f.Beyond.String(),
		}
		if b.Machines != nil {
			cells = append(cells, priced(f.CapacityCost), priced(f.FreeCost), priced(f.UnhealthyCost))
		}
		dated(f.Day, cells...)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if err := b.writeReserved(out, t, dated); err != nil {
		return err
	}
	b.writeMachines(out)
	return nil
}

// writeReserved writes what taints kept for teams.
func (b *Bill) writeReserved(out io.Writer, t *table, dated func(day string, cells ...string)) error {
	if len(b.Reserved) == 0 {
		return nil
	}
	which := "a part of what was free, and in no row"
	if b.reserved {
		which = "billed to the team, above"
	}
	fmt.Fprintf(out, "\nReserved for a team, in GPU hours (unused: %s):\n", which)
	head := []string{"cluster", "team", "model", "reserved", "unused"}
	if b.Machines != nil {
		head = append(head, b.inCurrency("cost of unused"))
	}
	dated("day", head...)
	for _, r := range b.Reserved {
		cells := []string{visible(r.Cluster), visible(r.Team), visible(r.Model), r.Reserved.String(), r.Unused.String()}
		if b.Machines != nil {
			cells = append(cells, priced(r.Cost))
		}
		dated(r.Day, cells...)
	}
	return t.Flush()
}

// writeMachines writes what all GPUs cost, and who pays for it.
func (b *Bill) writeMachines(out io.Writer) {
	m := b.Machines
	if m == nil {
		return
	}
	fmt.Fprintf(out, "\nAll GPUs cost %s: %s is billed, %s was free", b.inCurrency(m.Cost.String()), m.Billed, m.Free)
	if m.Reserved > 0 && !b.reserved {
		fmt.Fprintf(out, " (%s of it reserved)", m.Reserved)
	}
	fmt.Fprintf(out, ", %s unhealthy", m.Unhealthy)
	if m.Beyond > 0 {
		fmt.Fprintf(out, "; %s of what is billed was beyond capacity", m.Beyond)
	}
	fmt.Fprintln(out, ".")
	if m.Unpriced > 0 {
		fmt.Fprintf(out, "%s GPU hours of capacity are of models without a price: they are in no money.\n", m.Unpriced)
	}
}

// inCurrency is a word or an amount with the currency, where there is one.
func (b *Bill) inCurrency(s string) string {
	if b.Currency == "" {
		return s
	}
	return s + " " + visible(b.Currency)
}
