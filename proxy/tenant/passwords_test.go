package tenant

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/spillwayproject/spillway/proxy/config"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// hashing is how long a password takes to be checked in these tests.
const hashing = 60 * time.Millisecond

func noPasswords() *Passwords {
	return &Passwords{seen: map[bool]map[[sha256.Size]byte]bool{true: {}, false: {}}}
}

// given is the password of that text, coming from an address.
func (p *Passwords) given(ctx context.Context, from, user, text string, checked *int) (bool, error) {
	return p.check(ctx, from, user, sha256.Sum256([]byte(text)), func() bool {
		*checked++ // one at a time: the race detector sees others
		time.Sleep(hashing)
		return text == "right"
	})
}

// TestGuessersKeepNobodyWaiting: however many wrong passwords come from one address, those of
// others are checked each after one of them; and of many with the same password one is.
func TestGuessersKeepNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, checked := noPasswords(), 0
		kinds := map[qerr.Kind]int{}
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range 300 {
			all.Go(func() {
				_, err := p.given(t.Context(), "192.0.2.1", "", fmt.Sprint(i), &checked)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					kinds[qerr.Unauthorized]++
				} else {
					kinds[qerr.From(err).Kind]++
				}
			})
		}
		synctest.Wait()
		began := time.Now()
		for range 40 { // a dashboard, after a restart
			all.Go(func() {
				if right, err := p.given(t.Context(), "192.0.2.2", "ann", "right", &checked); !right || err != nil {
					t.Errorf("the right one: %v, %v", right, err)
				}
				if took := time.Since(began); took > 3*hashing {
					t.Errorf("it took %s", took)
				}
			})
		}
		all.Wait()
		if n := int(patience / hashing); checked > n+2 || kinds[qerr.Unauthorized] < n-3 || kinds[qerr.Overloaded] < 260 {
			t.Errorf("%d were checked, of the guesses came %v", checked, kinds)
		}
		if p.busy || len(p.lines) > 0 {
			t.Errorf("in the end somebody waits: %+v", p)
		}
	})
}

// TestGuessesBehindOneAddress: behind a gateway all have one address. However many guess there, at
// names that are nobody's and at one that is somebody's, of the others each has its turn.
func TestGuessesBehindOneAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, checked := noPasswords(), 0
		var all sync.WaitGroup
		const tenants = 12
		right := func(i int) string { return fmt.Sprint("right of ", i) }
		check := func(user, text string) (bool, error) {
			return p.check(t.Context(), "192.0.2.1", user, sha256.Sum256([]byte(text)), func() bool {
				checked++
				time.Sleep(hashing)
				return text == "right of "+user
			})
		}
		for i := range 300 {
			all.Go(func() { _, _ = check("", fmt.Sprint(i)) })
			all.Go(func() { _, _ = check("0", fmt.Sprint("0 ", i)) })
		}
		synctest.Wait()
		began := time.Now()
		for i := 1; i <= tenants; i++ {
			all.Go(func() {
				if ok, err := check(fmt.Sprint(i), right(i)); !ok || err != nil {
					t.Errorf("%d: %v, %v", i, ok, err)
				}
				if took := time.Since(began); took > (tenants+3)*hashing {
					t.Errorf("%d waited for %s", i, took)
				}
			})
		}
		all.Wait()
		if n := int(patience / hashing); checked > n+2 || p.busy || len(p.lines) > 0 {
			t.Errorf("%d were checked; in the end somebody waits: %+v", checked, p)
		}
	})
}

// TestLeavingTheLine: whoever leaves, or fails, keeps nobody waiting.
func TestLeavingTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, checked := noPasswords(), 0
		ctx, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		all.Go(func() {
			defer func() { _ = recover() }()
			_, _ = p.check(t.Context(), "a", "", [32]byte{1}, func() bool { time.Sleep(hashing); panic("bcrypt") })
		})
		synctest.Wait()
		for i := range 3 {
			all.Go(func() {
				if _, err := p.given(ctx, "a", "", fmt.Sprint(i), &checked); qerr.From(err).Kind != qerr.Canceled {
					t.Errorf("who left: %v", err)
				}
			})
		}
		all.Go(func() {
			if right, err := p.given(t.Context(), "a", "", "right", &checked); !right || err != nil {
				t.Errorf("who stayed: %v, %v", right, err)
			}
		})
		synctest.Wait()
		leave()
		all.Wait()
		if checked != 1 || p.busy || len(p.lines) > 0 {
			t.Errorf("%d were checked; in the end %+v", checked, p)
		}
	})
}

// TestLinesAreOfAddresses: it is the address of the connection whose line one waits in.
func TestLinesAreOfAddresses(t *testing.T) {
	hash, err := bcrypt.GenerateFromPassword([]byte("pass"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	d := directory(t, config.Tenant{Name: "b", BasicAuth: config.TenantPassword{Username: "bob", PasswordBcrypt: config.Secret(hash)}})
	synctest.Test(t, func(t *testing.T) {
		d.words.wait("", "", [32]byte{}) // nobody else has a turn
		var all sync.WaitGroup
		for i, from := range []string{"192.0.2.1:1", "192.0.2.1:2", "[2001:db8::1]:1", "[2001:db8::2]:1"} {
			all.Go(func() {
				_, _ = d.Identify(request(t, func(r *http.Request) {
					r.SetBasicAuth("bob", fmt.Sprint(i))
					r.RemoteAddr = from
					r.Header.Set("X-Forwarded-For", fmt.Sprintf("203.0.113.%d", i))
				}))
			})
		}
		synctest.Wait()
		lines := map[string]int{}
		for _, l := range d.words.lines {
			lines[l.from] = len(l.waiting)
		}
		if len(lines) != 2 || lines["192.0.2.1"] != 2 || lines["2001:db8::/64"] != 2 {
			t.Errorf("they wait in the lines %v", lines)
		}
		d.words.next()
		all.Wait()
	})
}
