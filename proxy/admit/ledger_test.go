package admit

import "testing"

// TestLedger: what a reader holds is in the budget, in few steps; what is spare is used again
// before more is taken; who takes over gives back for both.
func TestLedger(t *testing.T) {
	b := NewBudget(NewPool(1<<20), Limits{})
	defer b.Close()
	one, other := NewLedger(b), NewLedger(b)
	for range 100 {
		if err := one.Hold(100); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.Held(); one.Used() != 10_000 || got < 10_000 || got > 10_000+ledgerStep {
		t.Errorf("%d used, %d held", one.Used(), got)
	}
	before := b.Held()
	one.Spare(4000)
	if err := one.Hold(4000); err != nil || b.Held() != before {
		t.Errorf("%v: %d held after %d, though as much was spare", err, b.Held(), before)
	}
	if err := other.Hold(50_000); err != nil {
		t.Fatal(err)
	}
	before = b.Held()
	one.Adopt(&other)
	if other.Drop(); one.Used() != 60_000 || other.Used() != 0 || b.Held() != before {
		t.Errorf("%d and %d used, %d held, want what was held before (%d)", one.Used(), other.Used(), b.Held(), before)
	}
	if err := one.Hold(2 << 20); err == nil || one.Used() != 60_000 {
		t.Errorf("more than there is: %v, %d used", err, one.Used())
	}
	if one.Drop(); b.Held() != 0 || one.Used() != 0 {
		t.Errorf("%d held at the end", b.Held())
	}
	var nobody Ledger
	if err := nobody.Hold(1 << 40); err != nil || nobody.Used() != 1<<40 {
		t.Errorf("without a budget: %v", err)
	}
}
