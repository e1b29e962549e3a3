package plan

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/prometheus/prometheus/prompb"

	"github.com/spillwayproject/spillway/proxy/admit"
)

// maxFrame is the largest frame of streamed chunks that is read, in bytes. Prometheus cuts frames
// at 1 MiB plus one chunk; the setting --storage.remote.read-max-bytes-in-frame may raise it.
const maxFrame = 8 << 20

// frames reads a stream of chunked read responses: for each frame its size as a varint, its CRC-32
// (Castagnoli), its bytes. Prometheus' own reader cannot say beforehand what it will allocate; this
// one holds each frame, and what its decoding copies, in the budget first.
type frames struct {
	r      *bufio.Reader
	budget *admit.Budget
	buf    []byte
	held   int64
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func newFrames(r io.Reader, budget *admit.Budget) *frames {
	return &frames{r: bufio.NewReaderSize(r, 32<<10), budget: budget}
}

// next decodes one frame into resp; io.EOF is the end between two frames. A refusal by the budget
// is returned as it is.
func (f *frames) next(resp *prompb.ChunkedReadResponse) error {
	size, err := binary.ReadUvarint(f.r)
	if err != nil {
		return err // io.EOF only where nothing was read: ReadUvarint says io.ErrUnexpectedEOF otherwise
	}
	if size > maxFrame {
		return fmt.Errorf("a frame of %d bytes; at most %d are read", size, maxFrame)
	}
	// The bytes, and once more for the strings and chunks that decoding copies out of them.
	if need := 2 * int64(size); need > f.held {
		if err := f.budget.Hold(need - f.held); err != nil {
			return err
		}
		f.held = need
	}
	var sum [4]byte
	if _, err := io.ReadFull(f.r, sum[:]); err != nil {
		return cutShort(err)
	}
	if uint64(cap(f.buf)) < size {
		f.buf = make([]byte, size)
	}
	f.buf = f.buf[:size]
	if _, err := io.ReadFull(f.r, f.buf); err != nil {
		return cutShort(err)
	}
	if crc32.Checksum(f.buf, castagnoli) != binary.BigEndian.Uint32(sum[:]) {
		return errors.New("a frame whose checksum is wrong")
	}
	resp.Reset()
	return resp.Unmarshal(f.buf)
}

// close gives back what was held for reading; what a caller kept of the frames it has charged
// itself.
func (f *frames) close() {
	f.budget.Drop(f.held)
	f.held = 0
}

func cutShort(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
