package shard

import (
	"context"
	"errors"
	"io"
	"time"
)

// What servers say about themselves is read whole. One that says much, because it is large or
// because it is broken, waits for others of its kind, so that however many servers do so at once,
// what is held of their pages is bounded.

const (
	// smallPage is what may be read of any number of pages at once; most of them are smaller.
	smallPage = 64 << 10
	// middlePage is what may be read of middlePages at once. Configurations of a megabyte exist.
	middlePage, middlePages = 1 << 20, 8
	// One page at a time may be larger, up to maxFactBytes.
	largePages = 1
	// deskTime is how long a page may take from when it has a desk: a server that stalls in the
	// middle of one keeps others waiting for so long.
	deskTime = 3 * time.Second
)

var (
	// errDesk is what a page fails with that is not read, for others that are.
	errDesk = errors.New("other servers say so much about themselves that it was not read in time what this one says")
	// errSlowPage is why a page ends at its desk.
	errSlowPage = errors.New("it took more than " + deskTime.String() + " to send what it says about itself")
)

// desks are the places at which pages are read that are not small. All servers of a process share
// them, but for the lists of stores, without which no answer of a Thanos Query counts: these have
// desks of their own. The zero value has none.
type desks struct{ middle, large chan struct{} }

func newDesks() desks {
	return desks{middle: make(chan struct{}, middlePages), large: make(chan struct{}, largePages)}
}

// read calls use with what r has, which use may not keep; end ends r where it takes too long.
// Whoever waits for the large desk keeps a middle one, and never the other way round, so that
// nobody waits for anybody who waits for him.
func (d *desks) read(ctx context.Context, r io.Reader, end context.CancelCauseFunc, use func(page []byte) error) error {
	page := make([]byte, 0, 4<<10)
	for {
		n, err := r.Read(page[len(page):cap(page)])
		page = page[:len(page)+n]
		switch {
		case err == io.EOF:
			return use(page)
		case err != nil:
			return err
		case len(page) < cap(page):
			continue
		}
		size := 2 * cap(page)
		switch cap(page) {
		case smallPage:
			leave, err := sit(ctx, d.middle, end)
			if err != nil {
				return err
			}
			defer leave()
			size = middlePage
		case middlePage:
			leave, err := sit(ctx, d.large, end)
			if err != nil {
				return err
			}
			defer leave()
			size = maxFactBytes + 1 // the reader has a bound of its own
		}
		page = append(make([]byte, 0, size), page...)
	}
}

func sit(ctx context.Context, desk chan struct{}, end context.CancelCauseFunc) (leave func(), err error) {
	select {
	case desk <- struct{}{}:
		late := time.AfterFunc(deskTime, func() { end(errSlowPage) })
		return func() {
			late.Stop()
			<-desk
		}, nil
	case <-ctx.Done():
		return nil, errDesk
	}
}
