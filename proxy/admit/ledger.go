package admit

// Ledger is what one reader holds of a budget. It takes more than it needs at a time, so that
// readers at work together seldom meet at the budget's lock. It belongs to one goroutine. The zero
// value counts, and refuses nothing.
type Ledger struct {
	budget     *Budget
	used, held int64
}

// NewLedger returns a ledger that holds nothing of the budget yet.
func NewLedger(b *Budget) Ledger { return Ledger{budget: b} }

// ledgerStep is the least that a Ledger takes at a time, once it holds as much; before that it
// doubles, from firstStep on.
const ledgerStep, firstStep = 16 << 10, 2 << 10

// Hold takes n bytes. The errors are those of Budget.Hold; nothing is taken then.
func (l *Ledger) Hold(n int64) error {
	l.used += n
	if need := l.used - l.held; need > 0 {
		need = max(need, min(ledgerStep, max(l.held, firstStep)))
		if err := l.budget.Hold(need); err != nil {
			l.used -= n
			return err
		}
		l.held += need
	}
	return nil
}

// Spare says that n of the bytes are free for what is held next.
func (l *Ledger) Spare(n int64) { l.used -= n }

// Used is how many bytes were asked for and not given back.
func (l *Ledger) Used() int64 { return l.used }

// Budget is the budget that the bytes are taken from.
func (l *Ledger) Budget() *Budget { return l.budget }

// Adopt takes over what another ledger of the same budget holds, and leaves it nothing.
func (l *Ledger) Adopt(from *Ledger) {
	l.used += from.used
	l.held += from.held
	from.used, from.held = 0, 0
}

// Drop gives all of it back.
func (l *Ledger) Drop() {
	l.budget.Drop(l.held)
	l.used, l.held = 0, 0
}
