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
	// Rule tells that it was asked for a rule, as far as its caller is to be believed.
	Rule bool `json:"r,omitempty"`
	// Began is when it began.
	Began time.Time `json:"b"`
	// Held is how many bytes it held when it was last looked at, within a second of the end; 0
	// where it was younger than that.
	Held int64 `json:"h"`
}

// Journal is an open file. Its methods may be called by any goroutine; those of a nil Journal do
// nothing.
type Journal struct {
	f      *os.File
	failed func(error)
	ops    chan op // what one goroutine writes
	stop   chan struct{}
	done   sync.WaitGroup

	mu   sync.Mutex
	free []int
	live map[int]*Slot
	off  bool // closed, or the file has failed
}

// Slot is a request that is under way.
type Slot struct {
	at   int
	what Leftover
	held func() int64
}

// op is what is to be written into a slot.
type op struct {
	at   int
	text []byte
	done chan struct{} // closed when it is; nil where nobody waits
}

// Open opens the file, or makes it, and says which requests were under way when it was last open,
// those that held most first. failed is told once when the file cannot be written, or a disk does
// not take in time what is written: from then on nothing is remembered. The caller closes it.
func Open(path string, failed func(error)) (*Journal, []Leftover, error) {
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
	j := &Journal{f: f, failed: failed, ops: make(chan op, 2*Slots), stop: make(chan struct{}), live: map[int]*Slot{}}
	for i := range Slots {
		j.free = append(j.free, Slots-1-i)
	}
	j.done.Go(j.write)
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

// patience is how long a request waits until its slot is written: a disk that does not take it in
// this time keeps nobody waiting.
const patience = 10 * time.Millisecond

// errSlow is the failure of a disk that has not taken what was written long before.
var errSlow = errors.New("the disk does not take what is written into the journal")

// Enter writes a request into a free slot; held tells what it holds, and may be asked at any time
// until Leave. It is nil where there is no room, or the file has failed.
func (j *Journal) Enter(what Leftover, held func() int64) *Slot {
	if j == nil {
		return nil
	}
	what.Text = clip.Text(what.Text, maxText)
	j.mu.Lock()
	if j.off || len(j.free) == 0 {
		j.mu.Unlock()
		return nil
	}
	s := &Slot{at: j.free[len(j.free)-1], what: what, held: held}
	j.free = j.free[:len(j.free)-1]
	j.live[s.at] = s
	written := make(chan struct{})
	j.send(op{s.at, s.text(), written})
	j.mu.Unlock()
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-written:
	case <-late.C:
	}
	return s
}

// text is the slot as it stands in the file.
func (s *Slot) text() []byte {
	text, err := json.Marshal(s.what)
	if len(text) > SlotBytes-1 { // a text of characters that are written by six others
		what := s.what
		what.Text = ""
		text, err = json.Marshal(what)
	}
	b := make([]byte, SlotBytes)
	if err == nil { // it never fails
		b[copy(b[:SlotBytes-1], text)] = '\n'
	}
	return b
}

// send has something written, if the writer is not far behind. The caller holds j.mu.
func (j *Journal) send(o op) {
	select {
	case j.ops <- o:
	default:
		j.fail(errSlow)
	}
}

// fail ends the journal. Nobody is remembered any more, in the file either: at the next kill its
// slots would accuse who was under way now. The caller holds j.mu.
func (j *Journal) fail(err error) {
	if !j.off {
		j.off = true
		clear(j.live)
		go j.failed(err) // whoever is told may take his time
	}
}

// write writes what is sent, in its order, until Close.
func (j *Journal) write() {
	emptied := false
	for o := range j.ops {
		if j.fine() {
			if _, err := j.f.WriteAt(o.text, int64(len(magic)+o.at*SlotBytes)); err != nil {
				j.mu.Lock()
				j.fail(err)
				j.mu.Unlock()
			}
		}
		if !emptied && !j.fine() {
			emptied = j.f.Truncate(0) == nil
		}
		if o.done != nil {
			close(o.done)
		}
	}
}

// fine tells whether requests are remembered.
func (j *Journal) fine() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return !j.off
}

// Leave clears the slot of a request that has ended.
func (j *Journal) Leave(s *Slot) {
	if j == nil || s == nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.off {
		return
	}
	delete(j.live, s.at)
	j.free = append(j.free, s.at)
	j.send(op{s.at, make([]byte, SlotBytes), nil})
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
			if held := s.held(); held != s.what.Held && !j.off {
				s.what.Held = held
				j.send(op{s.at, s.text(), nil})
			}
		}
		j.mu.Unlock()
	}
}

// Close empties the file and closes it: an orderly end makes nobody suspect. It waits for what is
// being written.
func (j *Journal) Close() error {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	select {
	case <-j.stop:
		j.mu.Unlock()
		return nil
	default:
	}
	j.off = true
	close(j.stop)
	close(j.ops) // nobody sends any more
	j.mu.Unlock()
	j.done.Wait()
	return errors.Join(j.f.Truncate(0), j.f.Close())
}
