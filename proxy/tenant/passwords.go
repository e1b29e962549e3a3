package tenant

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/spillwayproject/spillway/proxy/identity"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// Passwords are those that were checked. One is checked at a time: bcrypt takes a processor for
// some 60 ms. Whose is next goes by the address that it came from, each in its turn, so that
// whoever guesses keeps others waiting for one check at a time, however many of his own wait; and
// at one address, such as that of a gateway, by the user, all names that are nobody's being one:
// guesses at one keep another one waiting no longer. Who sends so many can tell by the wait which
// names are somebody's. They outlive a reload.
type Passwords struct {
	key  [32]byte
	mu   sync.Mutex
	seen map[bool]map[[sha256.Size]byte]bool // right or not, by the keyed hash of name, hash and password

	busy  bool    // one is being checked
	lines []*line // of addresses from which somebody waits, in the order of their turns
}

// line is who waits at one address.
type line struct {
	from    string
	waiting []*waiter      // the first to come first; never empty
	turns   map[string]int // when each user had the last one
	turn    int            // how many there were
}

// following is which of those who wait is the next: of the users whose turn is the longest ago,
// the first to come.
func (l *line) following() (first int) {
	for i, w := range l.waiting {
		if l.turns[w.user] < l.turns[l.waiting[first].user] {
			first = i
		}
	}
	return first
}

// waiter waits for his turn, or until somebody else with the same password had it.
type waiter struct {
	user string // empty: a name that is nobody's
	key  [sha256.Size]byte
	over chan struct{} // closed when he waits no more
	// What was found out, before over is closed.
	mine  bool // it is his turn
	right bool // or it was another one's, and the password is
}

// NewPasswords are none yet.
func NewPasswords() *Passwords {
	p := &Passwords{seen: map[bool]map[[sha256.Size]byte]bool{true: {}, false: {}}}
	_, _ = rand.Read(p.key[:]) // never fails, by its documentation
	return p
}

// Right tells whether a user has the password that a request gives, of which this is the hash: by
// what is remembered, or else as compare says, when it is the turn of the request's address and of
// the user there; somebody tells that there is such a user. The error is a *qerr.Error: Overloaded
// where its turn has not come in time, or that the client left.
func (p *Passwords) Right(r *http.Request, user string, somebody bool, hash, password string, compare func() bool) (bool, error) {
	key := p.keyOf(user, hash, password)
	if right, known := p.known(key); known {
		return right, nil
	}
	if !somebody {
		user = ""
	}
	return p.check(r.Context(), identity.HolderOf(r), user, key, compare)
}

// keyOf is by what a password that was checked is remembered.
func (p *Passwords) keyOf(user, hash, password string) [sha256.Size]byte {
	mac := hmac.New(sha256.New, p.key[:])
	fmt.Fprintf(mac, "%d %d %d ", len(user), len(hash), len(password))
	_, _ = io.WriteString(mac, user+hash+password) // a hash takes everything
	return [sha256.Size]byte(mac.Sum(nil))
}

// check tells whether a password that is not known is right, as compare says, once it is the turn
// of whoever comes from that address with it.
func (p *Passwords) check(ctx context.Context, from, user string, key [sha256.Size]byte, compare func() bool) (right bool, err error) {
	if w := p.wait(from, user, key); w != nil {
		timer := time.NewTimer(patience)
		defer timer.Stop()
		select {
		case <-w.over:
		case <-timer.C:
			err = errBusy
		case <-ctx.Done():
			err = qerr.FromContext(ctx, context.Cause(ctx))
		}
		if err != nil && p.leave(from, w) {
			return false, err
		}
		if !w.mine {
			return w.right, nil
		}
	}
	defer p.next()
	right, known := p.known(key)
	if !known {
		right = compare()
		p.learn(key, right)
	}
	return right, nil
}

// errBusy is what those are told whose turn has not come in time.
var errBusy = func() *qerr.Error {
	e := qerr.New(qerr.Overloaded, "many passwords are being checked, one after the other; come again in a moment")
	e.RetryAfter = time.Second
	return e
}()

// wait takes a place in the line of an address; nil where it is his turn at once.
func (p *Passwords) wait(from, user string, key [sha256.Size]byte) *waiter {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.busy {
		p.busy = true
		return nil
	}
	i := slices.IndexFunc(p.lines, func(l *line) bool { return l.from == from })
	if i < 0 {
		i, p.lines = len(p.lines), append(p.lines, &line{from: from, turns: map[string]int{}})
	}
	w := &waiter{user: user, key: key, over: make(chan struct{})}
	p.lines[i].waiting = append(p.lines[i].waiting, w)
	return w
}

// leave gives the place up; false where he waits no more.
func (p *Passwords) leave(from string, w *waiter) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.lines {
		if i := slices.Index(l.waiting, w); l.from == from && i >= 0 {
			l.waiting = slices.Delete(l.waiting, i, i+1)
			p.tidy()
			return true
		}
	}
	return false
}

// next is the next one's turn, if somebody waits.
func (p *Passwords) next() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.lines) == 0 {
		p.busy = false
		return
	}
	l := p.lines[0]
	i := l.following()
	w := l.waiting[i]
	l.waiting = slices.Delete(l.waiting, i, i+1)
	l.turn++
	l.turns[w.user] = l.turn
	p.lines = append(p.lines[1:], l) // behind all others
	p.tidy()
	w.mine = true
	close(w.over)
}

// tidy takes empty lines away. p.mu is held.
func (p *Passwords) tidy() {
	p.lines = slices.DeleteFunc(p.lines, func(l *line) bool { return len(l.waiting) == 0 })
}

func (p *Passwords) known(key [sha256.Size]byte) (right, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.seen[true][key] {
		return true, true
	}
	return false, p.seen[false][key]
}

// learn remembers what came of a check, and tells all who wait with the same password.
func (p *Passwords) learn(key [sha256.Size]byte, right bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.seen[right]) >= maxKnown {
		p.seen[right] = map[[sha256.Size]byte]bool{}
	}
	p.seen[right][key] = true
	for _, l := range p.lines {
		l.waiting = slices.DeleteFunc(l.waiting, func(w *waiter) bool {
			if w.key == key {
				w.right = right
				close(w.over)
			}
			return w.key == key
		})
	}
	p.tidy()
}
