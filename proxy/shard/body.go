package shard

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

const (
	// gzipRatio is how many times larger than sent an answer may become. Label-heavy JSON reaches
	// 100, a bomb 1,030.
	gzipRatio = 300
	// gzipFree is what may be inflated before the ratio is looked at.
	gzipFree = 256 << 10
	// headBytes is how much of an answer's beginning is kept for the log, should it turn out to be
	// no answer.
	headBytes = 200
)

var (
	errRatio       = errors.New("a gzip body that inflates more than " + strconv.Itoa(gzipRatio) + " times")
	errDoubleGzip  = errors.New("a gzip body inside a gzip body")
	errNotJSON     = errors.New("a body that does not begin as a JSON object")
	errTooLarge    = errors.New("over max_response_bytes")
	errEmptyBody   = errors.New("an empty body")
	gzipReaderPool sync.Pool
)

// counter counts the bytes that came over the wire.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// body is an answer's body as its reader sees it: inflated, bounded in bytes, in ratio and in the
// time between two reads, every error a *qerr.Error that names the replica. It is not safe for
// concurrent use, as any io.Reader. It holds 200 bytes and, for gzip, the inflater's window.
type body struct {
	call    *call
	wire    counter
	gz      *gzip.Reader
	gzipped bool
	json    bool
	max     int64
	read    int64
	head    []byte
	again   []byte // read before its time; see startsEmpty
	err     error
	closed  bool
	raw     io.Closer
}

// Read reads what the shard sent. The context is asked before the error: what a cancelled read
// returns says nothing about who cancelled it.
func (b *body) Read(p []byte) (int, error) {
	if b.closed {
		return 0, errors.New("shard: read from a closed answer")
	}
	if len(b.again) > 0 {
		n := copy(p, b.again)
		b.again = b.again[n:]
		return n, nil
	}
	if b.err != nil {
		return 0, b.err
	}
	if len(p) == 0 {
		return 0, nil
	}
	if b.call.ctx.Err() != nil {
		return 0, b.fail(b.call.ctx.Err())
	}
	// One byte over the bound tells a body that ends there from one that goes on.
	if room := b.max - b.read + 1; int64(len(p)) > room {
		p = p[:room]
	}
	b.call.arm()
	began := time.Now()
	n, err := b.source(p)
	b.call.reading.Add(int64(time.Since(began)))
	b.call.disarm()
	b.read += int64(n)
	if len(b.head) < headBytes {
		b.head = append(b.head, p[:min(n, headBytes-len(b.head))]...)
	}
	switch {
	case b.read > b.max:
		return 0, b.fail(errTooLarge)
	case b.gzipped && b.read > gzipFree && b.read > gzipRatio*b.wire.n:
		return 0, b.fail(errRatio)
	case b.json && n > 0:
		if first := bytes.TrimLeft(b.head, " \t\r\n"); len(first) > 0 {
			switch {
			case b.gzipped && first[0] == 0x1f:
				return 0, b.fail(errDoubleGzip)
			case first[0] != '{':
				return 0, b.fail(errNotJSON)
			}
			b.json = false // looked at once
		}
	case err == io.EOF && b.json && b.read == 0:
		return 0, b.fail(errEmptyBody)
	}
	if err == io.EOF {
		b.err = io.EOF
		b.call.end(nil)
		return n, io.EOF
	}
	if err != nil {
		return n, b.fail(err)
	}
	return n, nil
}

func (b *body) source(p []byte) (int, error) {
	if !b.gzipped {
		return b.wire.Read(p)
	}
	if b.gz == nil {
		var err error
		if z, ok := gzipReaderPool.Get().(*gzip.Reader); ok {
			b.gz, err = z, z.Reset(&b.wire)
		} else {
			b.gz, err = gzip.NewReader(&b.wire)
		}
		if err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return 0, err
		}
	}
	return b.gz.Read(p)
}

// fail makes err the body's last word and ends the call.
func (b *body) fail(err error) error {
	e := b.call.explain(err, b)
	b.err = e
	b.call.end(e)
	return e
}

// Close gives the answer up. A body that was not read to its end costs its connection; nothing is
// drained.
func (b *body) Close() error {
	if b.closed {
		return nil
	}
	b.closed = true
	b.call.end(errEarlyClose) // nothing where the body had come to its end
	if b.err == io.EOF {
		b.call.settle(nil, time.Now())
	}
	err := b.raw.Close()
	if b.gz != nil {
		gzipReaderPool.Put(b.gz)
		b.gz = nil
	}
	return err
}

// malformed is the error of an answer whose bytes arrived but make no sense.
func (b *body) malformed(cause error) *qerr.Error {
	return b.call.malformed(cause, b.head)
}
