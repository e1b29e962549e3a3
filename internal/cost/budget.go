package cost

import (
	"fmt"
	"io"
	"math"
	"slices"
)

// PerMonth is what a budget is for.
const PerMonth = "month"

// Budget is what a team may spend.
type Budget struct {
	// Amount may be 0: of a team that may spend nothing.
	Amount float64 `yaml:"amount"`
	// Per is month: a calendar month of the bill's time zone.
	Per string `yaml:"per"`
}

// check is what is wrong with a budget at a path of the directory.
func (g *Budget) check(path string, bad func(format string, args ...any)) {
	if g == nil {
		return
	}
	if !(g.Amount >= 0) || g.Amount > maxBudget {
		bad("%s.amount: %v is no budget: it must be 0 or more, and %g at most; without a budget leave the key out", path, g.Amount, float64(maxBudget))
	}
	if g.Per != PerMonth {
		bad("%s.per: %q is not known: a budget is one per %s", path, g.Per, PerMonth)
	}
}

// maxBudget is far above any, and in hundredths a whole number still.
const maxBudget = 1e12

// checkBudgets finds budgets that nothing could ever be spent of.
func (d *Directory) checkBudgets() error {
	if len(d.First) > 0 || len(d.Prices) > 0 || len(d.Classes) > 0 || d.billsWork() {
		return nil
	}
	for i, t := range d.Teams {
		if t.Budget != nil {
			return fmt.Errorf("teams[%d].budget: nothing has a price, so that nothing would ever be spent: give prices in the directory, or --price", i)
		}
	}
	return nil
}

// HasBudgets reports whether any team has one.
func (d *Directory) HasBudgets() bool {
	return slices.ContainsFunc(d.Teams, func(t TeamEntry) bool { return t.Budget != nil })
}

// BudgetRow is what a team may spend, and what of it is left.
type BudgetRow struct {
	Team    string `json:"team"`
	Contact string `json:"contact,omitempty"`
	// Months are how many the budget is for: 1 where the range lies within one, else the months of
	// the range and their parts.
	Months float64    `json:"months"`
	Budget Hundredths `json:"budget"`
	// Spent is what the team is billed for the range, for GPUs and for work without.
	Spent Hundredths `json:"spent"`
	// Left is less than 0 where more was spent.
	Left Hundredths `json:"left"`
	// Projected is what the whole month comes to if it goes on as in the range, which lies within
	// it; nil where the range does not.
	Projected *Hundredths `json:"projected"`
	Over      bool        `json:"over_budget"`
	// Unpriced are the team's hours of models without a price: they are not in Spent.
	Unpriced Milli `json:"unpriced_gpu_hours"`
}

// spending is what a team is billed, over all of the range.
type spending struct{ money, unpriced float64 }

func (l *ledger) spent(team string) *spending {
	if l.teams[team] == nil {
		l.teams[team] = &spending{}
	}
	return l.teams[team]
}

// months are how many calendar months of its time zone the range has; within is the one that it
// lies in, of no length where it touches several.
func (r Range) months() (months float64, within Day) {
	from := r.From.In(r.Location)
	for y, m := from.Year(), from.Month(); ; m++ {
		begin, end := dayStart(y, m, 1, r.Location), dayStart(y, m+1, 1, r.Location)
		if !begin.Before(r.To) {
			return months, Day{}
		}
		if !r.From.Before(begin) && !r.To.After(end) {
			return 1, Day{Name: begin.In(r.Location).Format("2006-01"), From: begin, To: end}
		}
		first, last := begin, end
		if r.From.After(first) {
			first = r.From
		}
		if r.To.Before(last) {
			last = r.To
		}
		months += float64(last.Sub(first)) / float64(end.Sub(begin))
	}
}

// budgets holds what teams spent against what they may.
func (r *run) budgets(b *Bill) {
	months, month := r.o.Range.months()
	b.month = month.Name
	for _, t := range r.o.Directory.Teams {
		if t.Budget == nil {
			continue
		}
		s := r.l.spent(t.Name)
		row := BudgetRow{
			Team: t.Name, Contact: t.Contact, Months: math.Round(months*1e4) / 1e4,
			Budget: Hundredths(math.Round(t.Budget.Amount * 100 * months)),
			Spent:  b.spentBy(t.Name, s), Unpriced: Milli(math.Round(s.unpriced / float64(hourMillis) * 1000)),
		}
		row.Left = row.Budget - row.Spent
		row.Over = row.Left < 0
		if month.Name != "" {
			of := float64(month.To.Sub(month.From)) / float64(r.o.Range.To.Sub(r.o.Range.From))
			row.Projected = new(Hundredths(math.Round(float64(row.Spent) * of)))
		}
		b.Budgets = append(b.Budgets, row)
	}
}

// spentBy is what a team is billed: the sum of its rows where they tell teams apart, since each of
// them is rounded.
func (b *Bill) spentBy(team string, s *spending) (sum Hundredths) {
	i := slices.Index(b.By, Team)
	if i < 0 {
		return Hundredths(math.Round(s.money * 100))
	}
	for _, r := range b.Rows {
		if r.Keys[i] != team {
			continue
		}
		for _, c := range []*Hundredths{r.Cost, r.CPUCost} {
			if c != nil {
				sum += *c
			}
		}
	}
	return sum
}

// OverBudget is a sentence for each team that spent more than its budget.
func (b *Bill) OverBudget() (said []string) {
	for _, g := range b.Budgets {
		if g.Over {
			said = append(said, fmt.Sprintf("%s is over its budget of %s by %s", visible(g.Team), b.inCurrency(g.Budget.String()), -g.Left))
		}
	}
	return said
}

// writeBudgets writes what teams may spend and what is left of it.
func (b *Bill) writeBudgets(out io.Writer, t *table) error {
	if len(b.Budgets) == 0 {
		return nil
	}
	head := []string{"team", b.inCurrency("budget"), "spent", "left"}
	if b.month == "" {
		fmt.Fprintf(out, "\nBudgets (of %g months):\n", b.Budgets[0].Months)
	} else {
		fmt.Fprintf(out, "\nBudgets of %s (spent: from %s to %s):\n", b.month, b.From.Format(stampLayout), b.To.Format(stampLayout))
		head = append(head, "at the month's end")
	}
	t.line(head...)
	for _, g := range b.Budgets {
		cells := []string{visible(g.Team), g.Budget.String(), g.Spent.String(), g.Left.String()}
		if g.Projected != nil {
			cells = append(cells, g.Projected.String())
		}
		t.line(cells...)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, said := range b.OverBudget() {
		fmt.Fprintln(out, said+".")
	}
	for _, g := range b.Budgets {
		if p := g.Projected; p != nil && *p > g.Budget && !g.Over {
			fmt.Fprintf(out, "If it goes on like this %s will be over its budget by %s at the end of %s.\n", visible(g.Team), *p-g.Budget, b.month)
		}
		if g.Unpriced > 0 {
			fmt.Fprintf(out, "%s GPU hours of %s have no price: they are in no spending.\n", g.Unpriced, visible(g.Team))
		}
	}
	return nil
}

// stampLayout is how the table writes a moment.
const stampLayout = "2006-01-02 15:04"
