package cost

import (
	"bufio"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
)

// WriteJSON writes all of the bill as one JSON object.
func (b *Bill) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	return e.Encode(b)
}

// WriteCSV writes the rows with a header line, and nothing else: no total, so that a sheet's own
// sum is the total. The column kind tells rows (billed) from days of a cluster of which nothing is
// known (not_covered): these have empty fields, not zeros.
func (b *Bill) WriteCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	head := []string{"kind"}
	if b.Daily {
		head = append(head, "day")
	}
	for _, d := range b.By {
		head = append(head, string(d))
	}
	head = append(head, "contact", "gpu_hours", "cost", "currency", "unpriced_gpu_hours", "idle_gpu_hours", "measured_gpu_hours", "covered")
	lines := [][]string{head}
	for _, r := range b.Rows {
		line := []string{"billed"}
		if b.Daily {
			line = append(line, r.Day)
		}
		for _, k := range r.Keys {
			line = append(line, formulaSafe(k))
		}
		cost, currency := "", ""
		if r.Cost != nil {
			cost, currency = r.Cost.String(), b.Currency
		}
		idle := ""
		if r.Measured > 0 {
			idle = r.Idle.String()
		}
		lines = append(lines, append(line, formulaSafe(r.Contact), r.GPUHours.String(), cost, currency, r.Unpriced.String(), idle,
			r.Measured.String(), strconv.FormatFloat(r.Covered, 'f', 4, 64)))
	}
	if b.Daily {
		for _, d := range b.Days {
			if d.CoveredHours > 0 {
				continue
			}
			line := []string{"not_covered", d.Day}
			for _, by := range b.By {
				if by == Cluster {
					line = append(line, formulaSafe(d.Cluster))
				} else {
					line = append(line, "")
				}
			}
			lines = append(lines, append(line, "", "", "", "", "", "", "", "0.0000"))
		}
	}
	return c.WriteAll(lines)
}

// formulaSafe keeps a sheet from taking what somebody named a namespace or an experiment for a
// formula.
func formulaSafe(s string) string {
	if s != None && strings.ContainsAny(s[:min(1, len(s))], "=+-@\t\r") {
		return "'" + s
	}
	return s
}

// gapsShown is how many gaps the table lists; all are in the JSON.
const gapsShown = 20

// WriteTable writes the bill to be read: the rows, their sum, what was not covered, and what all
// GPUs did.
func (b *Bill) WriteTable(w io.Writer) error {
	out := bufio.NewWriter(w)
	stamp := func(t time.Time) string { return t.Format("2006-01-02 15:04") }
	fmt.Fprintf(out, "GPU hours from %s to %s (%s), by %s\n\n", stamp(b.From), stamp(b.To), b.Timezone, names(b.By))
	t := &table{Writer: tabwriter.NewWriter(out, 0, 0, 2, ' ', 0), money: b.Total.Cost != nil}
	b.writeRows(t)
	if err := t.Flush(); err != nil {
		return err
	}
	if t.money && b.Total.Unpriced > 0 {
		fmt.Fprintf(out, "\n%s GPU hours are of models without a price: they are in the hours and not in the money.\n", b.Total.Unpriced)
	}
	b.writeGaps(out)
	if err := b.writeFleet(out, t); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nA pod's beginning and end are known to %s, the distance of two scrapes. The rows add up to what the servers say was allocated.\n", b.Resolution)
	return out.Flush()
}

// table is text in columns.
type table struct {
	*tabwriter.Writer
	money bool // there is a column of it
}

func (t *table) line(cells ...string) {
	fmt.Fprintln(t, strings.TrimRight(strings.Join(cells, "\t"), "\t"))
}

// writeRows writes the bill's rows, the days of which nothing is known, and the sum.
func (b *Bill) writeRows(t *table) {
	price := "cost"
	if b.Currency != "" {
		price += " " + visible(b.Currency)
	}
	head := []string{}
	if b.Daily {
		head = append(head, "day")
	}
	for _, d := range b.By {
		head = append(head, string(d))
	}
	head = append(head, "GPU hours")
	if t.money {
		head = append(head, price)
	}
	t.line(append(head, "idle", "covered")...)
	cells := func(first []string, hours Milli, cost *Hundredths, idle, measured Milli, covered float64) {
		first = append(first, hours.String())
		if t.money {
			c := "no price"
			if cost != nil {
				c = cost.String()
			}
			first = append(first, c)
		}
		t.line(append(first, share(idle, measured), percent(covered))...)
	}
	for _, r := range b.Rows {
		var first []string
		if b.Daily {
			first = append(first, r.Day)
		}
		for _, k := range r.Keys {
			first = append(first, visible(k))
		}
		cells(first, r.GPUHours, r.Cost, r.Idle, r.Measured, r.Covered)
	}
	if b.Daily {
		for _, d := range b.Days {
			if d.CoveredHours > 0 {
				continue
			}
			first := []string{d.Day}
			for _, by := range b.By {
				first = append(first, map[bool]string{true: visible(d.Cluster), false: None}[by == Cluster])
			}
			first[1] = "not covered" + map[bool]string{true: ": " + visible(d.Cluster)}[d.Cluster != ""]
			first = append(first, "unknown")
			if t.money {
				first = append(first, "unknown")
			}
			t.line(append(first, "unknown", percent(0))...)
		}
	}
	total := make([]string, len(b.By), len(b.By)+1)
	if b.Daily {
		total = append(total, "")
	}
	total[0] = "all"
	cells(total, b.Total.GPUHours, b.Total.Cost, b.Total.Idle, b.Total.Measured, b.Total.Covered)
}

// writeGaps writes what was not covered.
func (b *Bill) writeGaps(out io.Writer) {
	if len(b.Gaps) > 0 {
		fmt.Fprintf(out, "\nNot covered, and so not in the bill (nobody knows what ran):\n")
		for i, g := range b.Gaps {
			if i == gapsShown {
				fmt.Fprintf(out, "  and %d more: --format=json has all\n", len(b.Gaps)-gapsShown)
				break
			}
			fmt.Fprintf(out, "  %s%s to %s (%s)\n", prefixed(g.Cluster), g.From.Format(time.DateTime), g.To.Format(time.DateTime),
				g.To.Sub(g.From).Round(time.Second))
		}
	}
}

// writeFleet writes what all GPUs did.
func (b *Bill) writeFleet(out io.Writer, t *table) error {
	if len(b.Fleet) > 0 {
		fmt.Fprintf(out, "\nAll GPUs, in GPU hours (no part of the bill):\n")
		head := []string{"cluster", "model", "capacity", "held", "free", "unhealthy", "beyond capacity"}
		if b.Daily {
			head = append([]string{"day"}, head...)
		}
		t.line(head...)
		for _, f := range b.Fleet {
			cells := []string{
				visible(f.Cluster), visible(f.Model), f.Capacity.String(), f.Held.String(), f.Free.String(),
				f.Unhealthy.String(), f.Beyond.String(),
			}
			if b.Daily {
				cells = append([]string{f.Day}, cells...)
			}
			t.line(cells...)
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	return nil
}

func prefixed(cluster string) string {
	if cluster == "" {
		return ""
	}
	return visible(cluster) + " "
}

// share is how much of what was measured was idle.
func share(part, whole Milli) string {
	if whole == 0 {
		return "unknown"
	}
	return percent(float64(part) / float64(whole))
}

// percent never rounds up to 100 %, nor down to 0 %: what is missing must be seen.
func percent(v float64) string {
	p := v * 100
	switch {
	case v >= 1:
		return "100%"
	case p > 99.9:
		return "99.9%"
	case p > 0 && p < 0.1:
		return "0.1%"
	}
	return strconv.FormatFloat(p, 'f', 1, 64) + "%"
}

// visible keeps names that others chose from breaking lines or steering a terminal.
func visible(s string) string {
	if s == "" {
		return None
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}
