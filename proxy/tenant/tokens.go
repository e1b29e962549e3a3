package tenant

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"io"
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

// of is the file at a path; what was learned of it is kept.
func (f *files) of(path string) *tokenFile {
	t := f.last[path]
	if t == nil {
		t = &tokenFile{path: path}
	}
	f.byPath[path] = t
	return t
}

// tokenFile is what a file has, or had when it could be read last.
type tokenFile struct {
	path string

	mu        sync.Mutex
	looked    time.Time
	sum, last [sha256.Size]byte
	ok        bool
	until     time.Time // how long last is good
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
	if look || now.Sub(t.looked) >= tokenAge {
		t.look(now)
	}
	is = subtle.ConstantTimeCompare(sum[:], t.sum[:]) == 1 && t.ok
	was = subtle.ConstantTimeCompare(sum[:], t.last[:]) == 1 && now.Before(t.until)
	return is, was
}

// look reads the file. An empty one is nobody's token, also not for a moment more.
func (t *tokenFile) look(now time.Time) {
	t.looked = now
	word, err := readToken(t.path)
	if err != nil {
		return
	}
	sum := sha256.Sum256(word)
	switch {
	case len(word) == 0:
		t.ok, t.until = false, time.Time{}
	case t.ok && t.sum != sum:
		t.last, t.until, t.sum = t.sum, now.Add(tokenOverlap), sum
	default:
		t.sum, t.ok = sum, true
	}
}

func readToken(file string) ([]byte, error) {
	f, err := plainfile.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	word, err := io.ReadAll(io.LimitReader(f, maxToken+1))
	if err != nil {
		return nil, err
	}
	if word = bytes.TrimSpace(word); len(word) > maxToken {
		return nil, fmt.Errorf("the token is longer than %d bytes", maxToken)
	}
	return word, nil
}
