package journal

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/spillwayproject/spillway/internal/clip"
	"github.com/spillwayproject/spillway/internal/plainfile"
)

const (
	// SlotBytes is the size of a slot, Slots how many there are.
	SlotBytes, Slots = 512, 4096
	// sampled is how often slots learn what their requests hold.
	sampled = time.Second
	// maxText is how much of a request's text a slot has.
	maxText = 200
)

// magic begins the file; what follows it are slots.
const magic = "spillway journal 1\n"

// Leftover is a request that was under way when the process was killed.
type Leftover struct {
	// Digest names the request's endpoint and text, as whoever entered it computed that.
	Digest string `json:"d"`
	// Endpoint and Text are for people; the text is cut.
	Endpoint string `json:"e"`
	Text     string `json:"t"`
	// Began is when it began.
	Began time.Time `json:"b"`
	// Held is how many bytes it held when it was last looked at, within a second of the end; 0
	// where it was younger than that.
	Held int64 `json:"h"`
}

// Journal is an open file. Its methods may be called by any goroutine; those of a nil Journal do
// nothing.
type Journal struct {
	f    *os.File
	stop chan struct{}
	done sync.WaitGroup

	mu     sync.Mutex
	free   []int
	live   map[int]*Slot
	failed error // the first
	closed bool
}

// Slot is a request that is under way.
type Slot struct {
	at   int
	what Leftover
	held func() int64
}

// Open opens the file, or makes it, and says which requests were under way when it was last open,
// those that held most first. The caller closes it.
func Open(path string) (*Journal, []Leftover, error) {
	if err := plainfile.Check(path); err != nil {
		return nil, nil, err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, err
	}
	left, err := take(f)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	j := &Journal{f: f, stop: make(chan struct{}), live: map[int]*Slot{}}
	for i := range Slots {
		j.free = append(j.free, Slots-1-i)
	}
	j.done.Go(j.sample)
	return j, left, nil
}

// take makes the file ours: it reads what is in it, and empties it.
func take(f *os.File) ([]Leftover, error) {
	if err := lock(f); err != nil {
		return nil, fmt.Errorf("another process has it open: %w", err)
	}
	const most = len(magic) + Slots*SlotBytes
	text, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	if err != nil {
		return nil, err
	}
	if len(text) > most || len(text) > 0 && !bytes.HasPrefix(text, []byte(magic)) {
		return nil, errors.New("it is no journal of Spillway's; name another file, or remove it")
	}
	var left []Leftover
	for at := len(magic); at < len(text); at += SlotBytes {
		slot := bytes.TrimRight(text[at:min(at+SlotBytes, len(text))], "\x00\n")
		var l Leftover
		if json.Unmarshal(slot, &l) == nil && l.Digest != "" { // half a slot tells nothing
			left = append(left, l)
		}
	}
	slices.SortFunc(left, func(a, b Leftover) int {
		return cmp.Or(cmp.Compare(b.Held, a.Held), a.Began.Compare(b.Began), cmp.Compare(a.Digest, b.Digest))
	})
	if err := f.Truncate(0); err != nil {
		return nil, err
	}
	_, err = f.WriteAt([]byte(magic), 0)
	return left, err
}

// Enter writes a request into a free slot; held tells what it holds, and may be asked at any time
// until Leave. It is nil where there is no room, or the file cannot be written.
func (j *Journal) Enter(what Leftover, held func() int64) *Slot {
	if j == nil {
		return nil
	}
	what.Text = clip.Text(what.Text, maxText)
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed || len(j.free) == 0 {
		return nil
	}
	s := &Slot{at: j.free[len(j.free)-1], what: what, held: held}
	j.free = j.free[:len(j.free)-1]
	j.live[s.at] = s
	j.write(s)
	return s
}

// write writes a slot as it is. The file may be locked by nobody else.
func (j *Journal) write(s *Slot) {
	text, err := json.Marshal(s.what)
	if len(text) > SlotBytes-1 { // a text of characters that are written by six others
		what := s.what
		what.Text = ""
		text, err = json.Marshal(what)
	}
	if err == nil {
		b := make([]byte, SlotBytes)
		b[copy(b, text)] = '\n'
		_, err = j.f.WriteAt(b, int64(len(magic)+s.at*SlotBytes))
	}
	if j.failed == nil {
		j.failed = err
	}
}

// Leave clears the slot of a request that has ended.
func (j *Journal) Leave(s *Slot) {
	if j == nil || s == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return
	}
	delete(j.live, s.at)
	j.free = append(j.free, s.at)
	if _, err := j.f.WriteAt(make([]byte, SlotBytes), int64(len(magic)+s.at*SlotBytes)); j.failed == nil {
		j.failed = err
	}
}

// sample tells the slots what their requests hold, until Close.
func (j *Journal) sample() {
	ticker := time.NewTicker(sampled)
	defer ticker.Stop()
	for {
		select {
		case <-j.stop:
			return
		case <-ticker.C:
		}
		j.mu.Lock()
		for _, s := range j.live {
			if held := s.held(); held != s.what.Held {
				s.what.Held = held
				j.write(s)
			}
		}
		j.mu.Unlock()
	}
}

// Failed is the first error of writing the file; nil where all went well.
func (j *Journal) Failed() error {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.failed
}

// Close empties the file and closes it: an orderly end makes nobody suspect.
func (j *Journal) Close() error {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	closed := j.closed
	j.closed = true
	j.mu.Unlock()
	if closed {
		return nil
	}
	close(j.stop)
	j.done.Wait()
	return errors.Join(j.f.Truncate(0), j.f.Close())
}
