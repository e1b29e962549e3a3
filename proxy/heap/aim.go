package heap

// Aim makes a Watch set Go's memory limit as it goes, so that garbage stays in proportion to what
// is held. Under one limit that is large enough for the worst case, garbage may fill all of it
// while little is held: what is allocated while a collection is under way counts as alive until the
// next one, and where other programs take the processors a collection is long. The heap may then
// double, and double again, over a few megabytes that are in use.
type Aim struct {
	// Most is the limit where requests hold all that they may. Tight and Full are shares of it,
	// whatever the limit is at the moment.
	Most int64
	// Claimed is what requests say that they hold, and Room the limit that this much needs.
	Claimed func() int64
	Room    func(claimed int64) int64
}

// aimStep is what the limit changes by at least: setting it makes the collector reckon anew.
const aimStep = 8 << 20

// SetAim says where the memory limit is to be from now on; nil leaves it where it is.
func (w *Watch) SetAim(a *Aim) {
	w.aim.Store(a)
	if a == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.at = 0
	w.aimAt(a, w.o.read())
}

// Limit is Go's memory limit that Tight and Full are shares of: the most of an Aim, else the
// runtime's.
func (w *Watch) Limit() int64 { return w.limit(w.o.read()) }

func (w *Watch) limit(r Reading) int64 {
	if a := w.aim.Load(); a != nil {
		return a.Most
	}
	return r.Limit
}

// aimAt sets the limit: room for what requests claim, and an eighth more than is really held, since
// a collector whose limit is too low works without pause. What was found alive at one look
// may have been made while it was looked for; what was found at two is held. The caller holds the
// mutex.
func (w *Watch) aimAt(a *Aim, now Reading) {
	held := min(now.Live, w.liveBefore) + now.Other
	limit := min(max(a.Room(a.Claimed()), held+held/8), a.Most)
	if limit > w.at-aimStep && limit < w.at+aimStep {
		return
	}
	w.at = limit
	w.o.set(limit)
}
