package usage

import (
	"fmt"
	"os"
	"sync"
)

// Two processes that write one file rename it under each other's hands: files grow to twice
// max_size, and the oldest go too soon. So whoever writes holds the system's lock on the file,
// which goes with the process. Logs of one process may share a file: a reload opens it anew before
// the requests that write by the old configuration have ended.
var holders = struct {
	mu sync.Mutex
	by map[*rotating]os.FileInfo // what the logs of this process have locked
}{by: map[*rotating]os.FileInfo{}}

// hold locks the opened file. The error says that another process has it.
func (r *rotating) hold(f file, info os.FileInfo) error {
	opened, ok := f.(*os.File)
	if !ok {
		return nil
	}
	holders.mu.Lock()
	defer holders.mu.Unlock()
	if !tryLock(opened) {
		holders.by[r] = info
		return nil
	}
	for _, own := range holders.by {
		if os.SameFile(own, info) {
			return nil // it is tried again with the next write
		}
	}
	return fmt.Errorf("another process writes to %s; give each Spillway a file of its own", r.path)
}

// holds tells whether the lock is ours.
func (r *rotating) holds() bool {
	holders.mu.Lock()
	defer holders.mu.Unlock()
	return holders.by[r] != nil
}

// letGo is called when the file was closed, which gives the lock back.
func (r *rotating) letGo() {
	holders.mu.Lock()
	defer holders.mu.Unlock()
	delete(holders.by, r)
}
