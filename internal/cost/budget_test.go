package cost

import (
	"math"
	"strings"
	"testing"
	"time"
)

// TestMonths: how many months a range has, by the calendar of its time zone.
func TestMonths(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		from, to string
		loc      *time.Location
		months   float64
		within   string
	}{
		{"2026-11", "2026-12", time.UTC, 1, "2026-11"},
		{"2026-11-01", "2026-11-02", time.UTC, 1, "2026-11"},
		{"2026-11-20T06:00", "2026-11-21", time.UTC, 1, "2026-11"},
		{"2026-03", "2026-04", berlin, 1, "2026-03"}, // an hour is missing in it
		{"2026-03-01T00:00:00Z", "2026-04-01T00:00:00Z", berlin, 1 - 1/743.0 + 2/720.0, ""},
		{"2026-10", "2027-01", time.UTC, 3, ""},
		{"2026-10-17", "2026-11-16", time.UTC, 15/31.0 + 0.5, ""},
	} {
		r, err := ParseRange(c.from, c.to, c.loc, time.Date(2028, 1, 1, 0, 0, 0, 0, time.UTC))
		if err != nil {
			t.Fatal(err)
		}
		months, within := r.months()
		if math.Abs(months-c.months) > 1e-9 || within.Name != c.within {
			t.Errorf("%s to %s in %s: %v months within %q, not %v within %q", c.from, c.to, c.loc, months, within.Name, c.months, c.within)
		}
	}
}

const budgetsDirectory = `
currency: USD
prices: {"*H100*": 2.5}
cpu_price: 0.03
teams:
  - {name: vision, contact: "#vision", namespaces: [research-vision], budget: {amount: 10.04, per: month}}
  - {name: builds, namespaces: [builds], budget: {amount: 80, per: month}}
  - {name: quiet, budget: {amount: 7, per: month}}
  - {name: rest, namespaces: [sandbox]}
`

// TestBudgets: vision is billed 4 GPU hours at 2.50 and 1.5 core hours at 0.03 in two hours of
// November, builds 8 core hours: 0.24, of a month of 360 times as long 86.40.
func TestBudgets(t *testing.T) {
	o := machinesOptions(t, budgetsDirectory)
	for _, by := range []Dimension{Team, Model} { // that rows do not tell teams apart changes nothing
		o.By = []Dimension{by}
		b, err := Make(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		want := []BudgetRow{
			{
				Team: "vision", Contact: "#vision", Months: 1, Budget: 1004, Spent: 1005, Left: -1,
				Projected: new(Hundredths(1005 * 360)), Over: true,
			},
			{Team: "builds", Months: 1, Budget: 8000, Spent: 24, Left: 7976, Projected: new(Hundredths(8640))},
			{Team: "quiet", Months: 1, Budget: 700, Left: 700, Projected: new(Hundredths(0))},
		}
		if by == Model {
			// 10.045 is one cent more or less, by where it is rounded.
			want[0].Spent, want[0].Left, want[0].Projected = b.Budgets[0].Spent, b.Budgets[0].Left, b.Budgets[0].Projected
			want[0].Over = b.Budgets[0].Over
			if d := b.Budgets[0].Spent - 1005; d*d > 1 {
				t.Errorf("vision spent %s", b.Budgets[0].Spent)
			}
		}
		if len(b.Budgets) != len(want) {
			t.Fatalf("the budgets are %+v", b.Budgets)
		}
		for i, g := range b.Budgets {
			w := want[i]
			if *g.Projected != *w.Projected {
				t.Errorf("%s: projected %s, not %s", g.Team, *g.Projected, *w.Projected)
			}
			g.Projected, w.Projected = nil, nil
			if g != w {
				t.Errorf("%+v, not %+v", g, w)
			}
		}
		if by == Team {
			golden(t, "budgets.txt", b.WriteTable)
			if said := strings.Join(b.OverBudget(), "; "); said != "vision is over its budget of 10.04 USD by 0.01" {
				t.Errorf("it says %q", said)
			}
		}
	}

	// Where the range touches two months there is a part of each budget, and no projection: an hour
	// of October and one of November.
	o.By, o.Range.Location = []Dimension{Team}, time.FixedZone("UTC-1", -3600)
	b, err := Make(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if g := b.Budgets[1]; g.Projected != nil || g.Months != 0.0027 || g.Budget != 22 || g.Left != -2 || !g.Over { // 80 × (1/744 + 1/720)
		t.Errorf("over the end of a month: %+v", g)
	}
}

// TestBudgetWithoutPrices: a budget of which nothing could be spent is a mistake.
func TestBudgetWithoutPrices(t *testing.T) {
	o := machinesOptions(t, "teams: [{name: a}, {name: b, budget: {amount: 1, per: month}}]")
	if _, err := Make(t.Context(), o); err == nil || !strings.Contains(err.Error(), "teams[1].budget: nothing has a price") {
		t.Errorf("without prices: %v", err)
	}
	// Hours of models without a price are told, since they are not in what was spent.
	o = machinesOptions(t, "prices: {L4: 1}\nteams: [{name: b, namespaces: [sandbox], budget: {amount: 1, per: month}}]")
	b, err := Make(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := b.WriteTable(&text); err != nil || !strings.Contains(text.String(), "1.000 GPU hours of b have no price: they are in no spending.") {
		t.Errorf("%v\n%s", err, text.String())
	}
}

// TestBudgetByLabel: what a team spends is known by its namespaces' label too, whatever rows show.
func TestBudgetByLabel(t *testing.T) {
	o := machinesOptions(t, "prices: {'*H100*': 2.5}\nteams: [{name: lab, budget: {amount: 2, per: month}}]")
	o.By = []Dimension{Model}
	o.Client = testClient(t, loaded(t, machines()+
		`  kube_namespace_labels{job="kube-state-metrics",cluster="jaguar",instance="a",namespace="sandbox",label_team="lab"} 1x119`).URL())
	b, err := Make(t.Context(), o)
	if err != nil || b.Budgets[0].Spent != 250 || !b.Budgets[0].Over {
		t.Errorf("%+v, %v", b.Budgets, err)
	}
}
