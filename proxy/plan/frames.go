package plan

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/prometheus/prometheus/prompb"
	"google.golang.org/protobuf/encoding/protowire"

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
	if err := f.hold(2 * int64(size)); err != nil {
		return err
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
	made, err := structs(f.buf)
	if err == nil {
		err = f.hold(2*int64(size) + made)
	}
	if err != nil {
		return err
	}
	resp.Reset()
	return resp.Unmarshal(f.buf)
}

// hold sees that so many bytes are held.
func (f *frames) hold(need int64) error {
	if need <= f.held {
		return nil
	}
	if err := f.budget.Hold(need - f.held); err != nil {
		return err
	}
	f.held = need
	return nil
}

// What one of each takes once it is decoded, without its text and data: twice its size, since
// slices grow by doubling. On the wire each may have two bytes.
const (
	seriesStruct = 2*8 + 48
	labelStruct  = 2 * 32
	chunkStruct  = 2 * 48
)

// structs is what decoding a frame makes besides the text and data in it. What it does not take for
// protobuf is an error, and is not decoded: two readers that differ about a tag could count one
// thing and make another.
func structs(frame []byte) (bytes int64, err error) {
	err = eachBytes(frame, func(num protowire.Number, series []byte) error {
		if num != 1 {
			return nil
		}
		bytes += seriesStruct
		return eachBytes(series, func(num protowire.Number, _ []byte) error {
			switch num {
			case 1:
				bytes += labelStruct
			case 2:
				bytes += chunkStruct
			}
			return nil
		})
	})
	return bytes, err
}

// eachBytes calls f for each field of a message that is counted by bytes.
func eachBytes(msg []byte, f func(num protowire.Number, content []byte) error) error {
	for len(msg) > 0 {
		num, typ, n := protowire.ConsumeTag(msg)
		if n < 0 {
			return protowire.ParseError(n)
		}
		size := protowire.ConsumeFieldValue(num, typ, msg[n:])
		if size < 0 {
			return protowire.ParseError(size)
		}
		if typ == protowire.BytesType {
			content, _ := protowire.ConsumeBytes(msg[n:]) // which has just been looked at
			if err := f(num, content); err != nil {
				return err
			}
		}
		msg = msg[n+size:]
	}
	return nil
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
