package cost

import (
	"strings"
	"testing"
)

// TestClassPrice: a class' own price goes before the model's, and the model's is borrowed only
// where the node is bought otherwise than on demand.
func TestClassPrice(t *testing.T) {
	d, err := ParseDirectory([]byte("prices: {'*H100*': 2.5, L4: 1}\nclasses: {spot: {'*': 0.5, '*H100*': 1.1}, reserved: {'*H100*': 1.9}}"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		model, class string
		price        float64
		borrowed, ok bool
	}{
		{"NVIDIA-H100", "", 2.5, false, true},
		{"NVIDIA-H100", "on-demand", 2.5, false, true},
		{"NVIDIA-H100", "spot", 1.1, false, true},
		{"NVIDIA-H100", "reserved", 1.9, false, true},
		{"NVIDIA-H100", "capacity-block", 2.5, true, true},
		{"L4", "reserved", 1, true, true},
		{"A100", "spot", 0.5, false, true},
		{"A100", "reserved", 0, false, false},
	} {
		if price, borrowed, ok := d.ClassPrice(c.model, c.class); price != c.price || borrowed != c.borrowed || ok != c.ok {
			t.Errorf("%s of class %q costs %v (borrowed %v, known %v), not %v (%v, %v)", c.model, c.class, price, borrowed, ok, c.price,
				c.borrowed, c.ok)
		}
	}
	for value, want := range map[string]string{
		"SPOT": "spot", "ON_DEMAND": "on-demand", "CAPACITY_BLOCK": "capacity-block", "true": "spot", "false": "on-demand", "": "",
		"Regular": "on-demand", "reserved": "reserved",
	} {
		if got := classOf(value); got != want {
			t.Errorf("%q is class %q, not %q", value, got, want)
		}
	}
}

// TestClasses: two hours in which 4 H100 hours were held on demand and 1 on a spot node.
func TestClasses(t *testing.T) {
	o := machinesOptions(t, machinesDirectory+"classes: {spot: {'*H100*': 1.1, '*L4*': 0.2}}\n")
	o.By = []Dimension{Team, Class}
	b, err := Make(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	wantMachines(t, b)
	// On demand 16 GPU hours at 2.50, spot 8 at 1.10 and 2 at 0.20.
	want := Machines{Cost: 4920, Billed: 1110, Free: 3000 + 550 + 40, Unhealthy: 220, Reserved: 2000}
	if *b.Machines != want || b.Borrowed != nil {
		t.Errorf("the machines are %+v, not %+v; borrowed %v", *b.Machines, want, b.Borrowed)
	}
	golden(t, "classes.csv", b.WriteCSV)

	// A class without a price of its own has the model's, and the bill says so.
	o.Directory.Classes = map[string]map[string]float64{"reserved": {"*": 1}}
	if b, err = Make(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := b.WriteTable(&text); err != nil {
		t.Fatal(err)
	}
	const says = "1.000 GPU hours on spot nodes have no price of that class: they are billed at the price of their model."
	if *b.Total.Cost != 1250 || !strings.Contains(text.String(), says) {
		t.Errorf("billed %s:\n%s", *b.Total.Cost, text.String())
	}
	// Without prices by class, and without rows by class, it is nobody's question.
	o.Directory.Classes, o.By = nil, []Dimension{Team}
	if b, err = Make(t.Context(), o); err != nil || b.Borrowed != nil {
		t.Errorf("borrowed %v, %v", b.Borrowed, err)
	}
}
