package cost

import (
	"bufio"
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
	fmt.Fprintf(out, "GPU hours from %s to %s (%s), by %s\n\n", b.From.Format(stampLayout), b.To.Format(stampLayout), b.Timezone,
		names(b.By))
	t := &table{Writer: tabwriter.NewWriter(out, 0, 0, 2, ' ', 0), money: b.Total.Cost != nil}
	b.writeRows(t)
	if err := t.Flush(); err != nil {
		return err
	}
	if t.money && b.Total.Unpriced > 0 {
		fmt.Fprintf(out, "\n%s GPU hours are of models without a price: they are in the hours and not in the money.\n", b.Total.Unpriced)
	}
	for _, said := range b.Missing() {
		fmt.Fprintf(out, "\n%s\n", said)
	}
	if err := b.writeBudgets(out, t); err != nil {
		return err
	}
	b.writeGaps(out)
	if err := b.writeFleet(out, t); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nA pod's beginning and end are known to %s, the distance of two scrapes. The rows add up to what the servers say was allocated.\n", b.Resolution)
	return out.Flush()
}

// Missing are sentences about what is missing from the bill: prices of classes of nodes, then its
// notes.
func (b *Bill) Missing() (said []string) {
	for _, c := range b.Borrowed {
		said = append(said, fmt.Sprintf("%s GPU hours on %s nodes have no price of that class: they are billed at the price of their model.", c.GPUHours, visible(c.Class)))
	}
	return append(said, b.Notes...)
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
	head := []string{}
	if b.Daily {
		head = append(head, "day")
	}
	for _, d := range b.By {
		head = append(head, string(d))
	}
	head = append(head, "GPU hours")
	if t.money {
		head = append(head, b.inCurrency("cost"))
	}
	head = append(head, "idle", "covered")
	for _, x := range b.extras() {
		head = append(head, x.title)
	}
	t.line(head...)
	cells := func(first []string, r Row) {
		first = append(first, r.GPUHours.String())
		if t.money {
			cost := priced(r.Cost)
			if r.GPUHours == 0 && r.Cost == nil { // work without GPUs
				cost = None
			}
			first = append(first, cost)
		}
		first = append(first, share(r.Idle, r.Measured), percent(r.Covered))
		for _, x := range b.extras() {
			first = append(first, x.of(r))
		}
		t.line(first...)
	}
	for _, r := range b.Rows {
		var first []string
		if b.Daily {
			first = append(first, r.Day)
		}
		for _, k := range r.Keys {
			first = append(first, visible(k))
		}
		cells(first, r)
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
	cells(total, b.Total.row())
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
