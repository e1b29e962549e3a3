// Package journal remembers across a kill which requests were under way: a file has a slot for each
// request, written when it begins and cleared when it ends. What stands there at the next start was
// under way when the process was killed, and may have been why.
//
// # Promises
//
// A slot is written before the request is worked on, and is there after kill -9 and after the
// kernel's out-of-memory killer, which take a process and not what it has written. Once a second
// the slot learns how much memory its request holds. It is cleared a moment after its request has
// ended, so that one may still stand there that ended just before a kill. An orderly end leaves no
// slot filled. Nothing is flushed to the disk, so that a machine that loses power may lose the last
// slots.
//
// One goroutine writes. A request waits for its slot 10 ms at most, and for nothing when it ends.
// A file that fails, or a disk that takes nothing for thousands of slots, is told once, and has
// nobody in it from then on. It is tried again after a minute, later after up to ten, where the
// disk was only slow after a second: emptied, and written with those who are under way then. It is
// as long then as it had to be when it failed: a full disk is one until it has room for that. Who
// was under way at a kill is told to the next start though nothing can be written there.
//
// # Refusals
//
// A file that holds something else, and one that another process has open. A request that finds no
// free slot is served and not remembered.
//
// # Memory
//
// Slots of SlotBytes each in the file, 2 MiB in all; in memory a few words for each request that is
// under way.
package journal
