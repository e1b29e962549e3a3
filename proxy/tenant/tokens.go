package tenant

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/spillwayproject/spillway/internal/plainfile"
)

const (
	// maxToken is the longest token that stands in a file.
	maxToken = 4096
	// tokenAge is how long a token file is not looked at again, unless somebody shows a token that
	// stands in none.
	tokenAge = time.Second
	// tokenOverlap is how long a token is good after another one has taken its place: who has read
	// the file just before is on the way.
	tokenOverlap = 5 * time.Second
	// tokenGone is how long a token is good after its file was read last, where it cannot be any
	// more: it may be away for a moment, or for ever.
	tokenGone = 10 * time.Minute
	// maxReads is how many files are read in a second for those who show tokens that are nobody's.
	maxReads = 1000
)

// token is a tenant's.
type token struct {
	tenant *Tenant
	*tokenFile
}

// files are those of tokens. They outlive a reload.
type files struct {
	mu   sync.Mutex
	left float64 // reads for those who are nobody; maxReads at most
	at   time.Time

	byPath map[string]*tokenFile
	last   map[string]*tokenFile // of the directory before
}

func newFiles(prev *Directory) *files {
	f := &files{left: maxReads, byPath: map[string]*tokenFile{}}
	if prev != nil {
		prev.files.mu.Lock()
		defer prev.files.mu.Unlock()
		f.left, f.at, f.last = prev.files.left, prev.files.at, prev.files.byPath
	}
	return f
}

// of is the file at a path; what was learned of it is kept. What becomes of it is logged there.
func (f *files) of(path string, log *slog.Logger) *tokenFile {
	t := f.last[path]
	if t == nil {
		t = &tokenFile{path: path}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.log = log
	f.byPath[path] = t
	return t
}

// tokenFile is what a file has, or had when it could be read last.
type tokenFile struct {
	path string

	mu        sync.Mutex
	log       *slog.Logger
	looked    time.Time
	good      time.Time // when it was read last with success
	failed    bool      // it cannot be read
	sum, last [sha256.Size]byte
	ok        bool
	until     time.Time // how long last is good
}

// Unreadable is how many files of tokens cannot be read now. A nil directory has none.
func (d *Directory) Unreadable(now time.Time) (n int) {
	if d == nil {
		return 0
	}
	for _, t := range d.tokens {
		if t.away(now) {
			n++
		}
	}
	return n
}

// away tells whether the file cannot be read.
func (t *tokenFile) away(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refresh(now, false)
	return t.failed
}

// renewed is whose token it is, that stood in no file when they were read last: they are read
// again, as far as there are reads left for that. nil is nobody's.
func (d *Directory) renewed(sum [sha256.Size]byte, now time.Time) *Tenant {
	if len(d.tokens) == 0 {
		return nil
	}
	f := d.files
	f.mu.Lock()
	defer f.mu.Unlock()
	if t := d.holder(sum, now, false); t != nil {
		return t // another request has looked meanwhile
	}
	if !f.at.IsZero() {
		f.left = min(maxReads, f.left+maxReads*max(0, now.Sub(f.at).Seconds()))
	}
	f.at = now
	if f.left < float64(len(d.tokens)) {
		return nil
	}
	f.left -= float64(len(d.tokens))
	return d.holder(sum, now, true)
}

// holder compares with all tokens, however soon one fits. One that is in force is before one that
// was; one that several tenants have is nobody's.
func (d *Directory) holder(sum [sha256.Size]byte, now time.Time, look bool) *Tenant {
	var holders, before []*Tenant
	for _, t := range d.tokens {
		is, was := t.is(sum, now, look)
		if is {
			holders = append(holders, t.tenant)
		}
		if was {
			before = append(before, t.tenant)
		}
	}
	if len(holders) == 0 {
		holders = before
	}
	if len(holders) != 1 {
		return nil
	}
	return holders[0]
}

// is tells whether the file has the token, or had it until a moment ago.
func (t *tokenFile) is(sum [sha256.Size]byte, now time.Time, look bool) (is, was bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.refresh(now, look)
	is = subtle.ConstantTimeCompare(sum[:], t.sum[:]) == 1 && t.ok
	was = subtle.ConstantTimeCompare(sum[:], t.last[:]) == 1 && now.Before(t.until)
	return is, was
}

// refresh reads the file, if that is due or wanted, and forgets a token whose file has been away
// for too long. It is called with mu held.
func (t *tokenFile) refresh(now time.Time, look bool) {
	if look || now.Sub(t.looked) >= tokenAge {
		t.look(now)
	}
	if t.failed && t.ok && now.Sub(t.good) >= tokenGone {
		t.ok, t.until = false, time.Time{}
		t.log.Error("the token of a tenant could not be read for too long, and is nobody's from now on; all its requests are refused until the file is back", "file", t.path)
	}
}

// look reads the file. An empty one is nobody's token, also not for a moment more. What was there
// before another token is good for a while from when that came: no longer ago than it was seen, nor
// than the file says.
func (t *tokenFile) look(now time.Time) {
	t.looked = now
	word, changed, err := readToken(t.path)
	if err != nil {
		if !t.failed && t.ok {
			t.log.Warn("the token of a tenant cannot be read any more; the last one is good for a while, and nobody's then", "for", tokenGone, "err", err)
		}
		t.failed = true
		return
	}
	if changed.Before(t.good) {
		changed = t.good
	}
	t.good, t.failed = now, false
	sum := sha256.Sum256(word)
	switch {
	case len(word) == 0:
		t.ok, t.until = false, time.Time{}
	case t.ok && t.sum != sum:
		if changed.After(now) {
			changed = now
		}
		t.last, t.until, t.sum = t.sum, changed.Add(tokenOverlap), sum
	default:
		t.sum, t.ok = sum, true
	}
}

// readToken is what a file has, and when that was written.
func readToken(file string) (word []byte, changed time.Time, err error) {
	f, err := plainfile.Open(file)
	if err != nil {
		return nil, changed, err
	}
	defer f.Close()
	is, err := f.Stat()
	if err != nil {
		return nil, changed, err
	}
	if word, err = io.ReadAll(io.LimitReader(f, maxToken+1)); err != nil {
		return nil, changed, err
	}
	if word = bytes.TrimSpace(word); len(word) > maxToken {
		return nil, changed, fmt.Errorf("the token is longer than %d bytes", maxToken)
	}
	return word, is.ModTime(), nil
}
