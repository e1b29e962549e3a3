package report

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// A table is what both the text and the page show.
type table struct {
	head  []string
	right []bool // columns of numbers
	rows  [][]string
}

func (r *Report) memoryTable() table {
	t := table{
		head:  []string{"", "process", "idle MiB", "peak MiB", "grown by", "after MiB", ""},
		right: []bool{false, false, true, true, true, true, false},
	}
	for _, run := range r.Runs {
		name := run.Name
		for _, p := range run.Processes {
			m := run.Memory(p)
			row := []string{name, p.Name, mib(m.Idle), mib(m.Peak), growth(m.Peak - m.Idle), mib(m.After), ""}
			if p.Died != 0 {
				row[5] = "-"
				row[6] = "died at " + seconds(p.Died)
				if p.Death != "" {
					row[6] += ": " + p.Death
				}
			}
			t.rows = append(t.rows, row)
			name = "" // once for each run
		}
	}
	return t
}

func (r *Report) requestTable() table {
	t := table{
		head:  []string{"", "asked", "answered", "p50", "p99", "slowest", "largest answer", "outcomes"},
		right: []bool{false, true, true, true, true, true, true, false},
	}
	for _, run := range r.Runs {
		a := run.Answers()
		if a.Asked == 0 {
			continue
		}
		var outcomes []string
		for _, o := range a.Outcomes {
			outcomes = append(outcomes, fmt.Sprintf("%d × %s", o.Count, o.Name))
		}
		t.rows = append(t.rows, []string{
			run.Name, fmt.Sprint(a.Asked), fmt.Sprint(a.OK), seconds(a.P50), seconds(a.P99), seconds(a.Max), size(a.Bytes),
			strings.Join(outcomes, ", "),
		})
	}
	return t
}

// size writes bytes with the unit that fits.
func size(bytes int64) string {
	switch {
	case bytes >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20))
	case bytes >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(bytes)/(1<<10))
	}
	return fmt.Sprintf("%d B", bytes)
}

// text writes the table with its columns aligned.
func (t table) text(b *strings.Builder) {
	width := make([]int, len(t.head))
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range append([][]string{t.head}, t.rows...) {
		var line strings.Builder
		for i, cell := range row {
			if i > 0 {
				line.WriteString("  ")
			}
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if t.right[i] {
				line.WriteString(pad + cell)
			} else {
				line.WriteString(cell + pad)
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

// WriteText writes the report for a terminal: title, one line for each run, the tables, the notes.
func (r *Report) WriteText(w io.Writer) error {
	if err := r.Validate(); err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString(r.Title + "\n")
	if r.Lead != "" {
		b.WriteString(r.Lead + "\n")
	}
	b.WriteString("\n")
	for _, run := range r.Runs {
		b.WriteString(run.Name + ": " + run.Summary() + "\n")
	}
	b.WriteString("\nResident memory")
	if r.Limit > 0 {
		fmt.Fprintf(&b, " (%s: %s MiB)", r.limitName(), mib(r.Limit))
	}
	b.WriteString("\n")
	r.memoryTable().text(&b)
	if t := r.requestTable(); len(t.rows) > 0 {
		b.WriteString("\nRequests\n")
		t.text(&b)
	}
	for _, t := range r.Tables {
		b.WriteString("\n" + t.Name + "\n")
		table{t.Head, t.Right, t.Rows}.text(&b)
	}
	for i, n := range r.Notes {
		if i == 0 {
			b.WriteString("\n")
		}
		b.WriteString(n + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) limitName() string {
	if r.LimitName == "" {
		return "memory limit"
	}
	return r.LimitName
}
