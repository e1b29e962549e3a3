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
	"strings"
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
	// leastPause is after what time a file that could not be written is tried again, slowPause
	// where its disk was only too slow. The pause doubles, up to mostPause, until it was well for
	// as long.
	leastPause, slowPause, mostPause = time.Minute, time.Second, 10 * time.Minute
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

// file is what writing needs of an *os.File.
type file interface {
	io.WriterAt
	io.Closer
	Truncate(size int64) error
}

// Journal is an open file. Its methods may be called by any goroutine; those of a nil Journal do
// nothing.
//
// Invariant: while off, what stands in the file is of before; from the moment that it is written
// anew, of the live ones, each change goes through ops.
type Journal struct {
	f    file
	tell func(error)
	ops  chan op // what one goroutine writes
	stop chan struct{}
	done sync.WaitGroup

	mu     sync.Mutex
	free   []int
	live   map[int]*Slot
	closed bool
	off    bool // closed, or nothing is written until the file is tried again
	ill    bool // the file has failed, and was not written anew since
	pause  time.Duration
	well   time.Time // when it was written anew last
	room   int       // what the file had to hold when it failed
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
// those that held most first. tell is told why when the file cannot be written, or a disk does not
// take in time what is written: from then on the file has nobody, until it could be written again,
// which is tried after a pause, and told as nil. The caller closes it.
func Open(path string, tell func(error)) (*Journal, []Leftover, error) {
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
	return open(f, tell), left, nil
}

// open begins a journal in a file that was read. One that cannot be written is tried again later:
// who was under way before is known all the same.
func open(f file, tell func(error)) *Journal {
	j := &Journal{f: f, tell: tell, ops: make(chan op, 2*Slots), stop: make(chan struct{}), live: map[int]*Slot{}}
	for i := range Slots {
		j.free = append(j.free, Slots-1-i)
	}
	if err := j.put([]byte(magic)); err != nil {
		j.fail(err)
	}
	j.done.Go(j.write)
	j.done.Go(j.sample)
	return j
}

// take makes the file ours, and reads what is in it.
func take(f *os.File) ([]Leftover, error) {
	if err := lock(f); err != nil {
		return nil, fmt.Errorf("another process has it open: %w", err)
	}
	const most = len(magic) + Slots*SlotBytes
	text, err := io.ReadAll(io.LimitReader(f, int64(most)+1))
	if err != nil {
		return nil, err
	}
	if len(text) > most || !bytes.HasPrefix(text, []byte(magic)) && !strings.HasPrefix(magic, string(text)) {
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
	return left, nil
}

// put makes the file have a text and nothing else.
func (j *Journal) put(text []byte) error {
	if err := j.f.Truncate(0); err != nil {
		return err
	}
	_, err := j.f.WriteAt(text, 0)
	return err
}

// patience is how long a request waits until its slot is written: a disk that does not take it in
// this time keeps nobody waiting.
const patience = 10 * time.Millisecond

// errSlow is the failure of a disk that has not taken what was written long before.
var errSlow = errors.New("the disk does not take what is written into the journal")

// Enter writes a request into a free slot; held tells what it holds, and may be asked at any time
// until Leave. It is nil where there is no room. While the file cannot be written the slot is kept
// until it can be.
func (j *Journal) Enter(what Leftover, held func() int64) *Slot {
	if j == nil {
		return nil
	}
	what.Text = clip.Text(what.Text, maxText)
	j.mu.Lock()
	if j.closed || len(j.free) == 0 {
		j.mu.Unlock()
		return nil
	}
	s := &Slot{at: j.free[len(j.free)-1], what: what, held: held}
	j.free = j.free[:len(j.free)-1]
	j.live[s.at] = s
	if j.off {
		j.mu.Unlock()
		return s
	}
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

// fail has nothing written any more, until the file is tried again: at the next kill what stands in
// it would accuse who was under way now. The caller holds j.mu.
func (j *Journal) fail(err error) {
	if j.off {
		return
	}
	if !j.ill && time.Since(j.well) >= mostPause {
		j.pause = 0
	}
	least := leastPause
	if errors.Is(err, errSlow) {
		least = slowPause
	}
	j.off, j.pause = true, min(max(2*j.pause, least), mostPause)
	if !j.ill {
		j.ill = true
		go j.tell(err) // whoever is told may take his time
	}
}

// write writes what is sent, in its order, until Close, and the whole file anew some time after it
// has failed.
func (j *Journal) write() {
	again := time.NewTimer(mostPause)
	defer again.Stop()
	for emptied, waits := false, false; ; {
		switch pause, off := j.pauses(); {
		case !off:
			emptied, waits = false, false
		case !waits:
			waits, emptied = true, j.f.Truncate(0) == nil
			again.Reset(pause)
		case !emptied:
			emptied = j.f.Truncate(0) == nil
		}
		select {
		case o, more := <-j.ops:
			if !more {
				return
			}
			j.do(o)
		case <-again.C:
			if waits {
				j.renew()
				waits = false
			}
		}
	}
}

// do writes a slot.
func (j *Journal) do(o op) {
	if _, off := j.pauses(); !off {
		at := len(magic) + o.at*SlotBytes
		if _, err := j.f.WriteAt(o.text, int64(at)); err != nil {
			j.mu.Lock()
			j.room = max(j.room, at+SlotBytes)
			j.fail(err)
			j.mu.Unlock()
		}
	}
	if o.done != nil {
		close(o.done)
	}
}

// pauses tells whether nothing is written, and how long the pause is then.
func (j *Journal) pauses() (time.Duration, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.pause, j.off
}

// renew writes the file anew, with those that are under way now, and as long as it had to be when
// it failed: a disk that has no more room than for the few of a quiet moment is as full as before.
// Who comes and goes meanwhile is written after them.
func (j *Journal) renew() {
	text := []byte(magic)
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return
	}
	for range len(j.ops) { // of before, and nobody sends more: what it says is in live, or over
		if o := <-j.ops; o.done != nil {
			close(o.done)
		}
	}
	for i := range Slots {
		if s := j.live[i]; s != nil {
			text = append(text, make([]byte, len(magic)+i*SlotBytes-len(text))...)
			text = append(text, s.text()...)
		}
	}
	text = append(text, make([]byte, max(j.room-len(text), 0))...)
	j.off = false
	j.mu.Unlock()
	err := j.put(text)
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case err != nil:
		j.fail(err)
	case !j.off: // not behind again
		j.ill, j.well = false, time.Now()
		go j.tell(nil)
	}
}

// Working tells whether what is under way stands in the file.
func (j *Journal) Working() bool {
	if j == nil {
		return false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return !j.closed && !j.ill
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
	if !j.off {
		j.send(op{s.at, make([]byte, SlotBytes), nil})
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
			held := s.held()
			changed := held != s.what.Held
			if s.what.Held = held; changed && !j.off {
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
	j.closed, j.off = true, true
	close(j.stop)
	close(j.ops) // nobody sends any more
	j.mu.Unlock()
	j.done.Wait()
	return errors.Join(j.f.Truncate(0), j.f.Close())
}
