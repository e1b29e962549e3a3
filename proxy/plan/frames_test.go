package plan

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"testing"

	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage/remote"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

type flusher struct{ bytes.Buffer }

func (*flusher) Flush() {}

func stream(t testing.TB, series ...*prompb.ChunkedSeries) []byte {
	var out flusher
	w := remote.NewChunkedWriter(&out, &out)
	for _, s := range series {
		b, err := (&prompb.ChunkedReadResponse{ChunkedSeries: []*prompb.ChunkedSeries{s}}).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	return out.Bytes()
}

func oneSeries(name string, data []byte) *prompb.ChunkedSeries {
	return &prompb.ChunkedSeries{
		Labels: []prompb.Label{{Name: "__name__", Value: name}},
		Chunks: []prompb.Chunk{{Type: prompb.Chunk_XOR, MaxTimeMs: 9, Data: data}},
	}
}

func readAll(data []byte, budget *admit.Budget) (names []string, err error) {
	f := newFrames(bytes.NewReader(data), budget)
	defer f.close()
	for {
		var resp prompb.ChunkedReadResponse
		if err := f.next(&resp); err != nil {
			if err == io.EOF {
				return names, nil
			}
			return names, err
		}
		for _, s := range resp.ChunkedSeries {
			for _, l := range s.Labels {
				names = append(names, l.Value)
			}
		}
	}
}

func testBudget(pool *admit.Pool) *admit.Budget {
	return admit.NewBudget(pool, admit.Limits{MaxSeries: 100, MaxSamples: 100, MaxBytes: 1 << 30})
}

func TestFrames(t *testing.T) {
	whole := stream(t, oneSeries("a", []byte{1, 2}), oneSeries("b", bytes.Repeat([]byte{7}, 5000)))
	pool := admit.NewPool(1 << 20)
	budget := testBudget(pool)
	names, err := readAll(whole, budget)
	if err != nil || len(names) != 2 || names[0] != "a" || names[1] != "b" {
		t.Fatalf("%v %v", names, err)
	}
	// Every shorter stream but the one that ends between two frames is an error, never fewer
	// series.
	first := len(stream(t, oneSeries("a", []byte{1, 2})))
	for n := range whole {
		if _, err := readAll(whole[:n], budget); err == nil && n != 0 && n != first {
			t.Fatalf("%d of %d bytes were taken for a whole stream", n, len(whole))
		}
	}
	for i := 1; i < len(whole); i += 97 {
		damaged := bytes.Clone(whole)
		damaged[i] ^= 0x10
		if names, err := readAll(damaged, budget); err == nil {
			t.Errorf("a flipped bit at %d was not noticed: %v", i, names)
		}
	}
	budget.Close()
	if pool.InUse() != 0 {
		t.Errorf("%d bytes are still held", pool.InUse())
	}
}

func TestFramesHoldBeforeTheyAllocate(t *testing.T) {
	budget := testBudget(admit.NewPool(1 << 20))
	defer budget.Close()
	_, err := readAll(stream(t, oneSeries("a", make([]byte, 2<<20))), budget)
	var e *qerr.Error
	if !errors.As(err, &e) || e.Kind != qerr.Overloaded {
		t.Errorf("a frame larger than the memory: %v", err)
	}
	huge := binary.AppendUvarint(nil, maxFrame+1)
	if _, err := readAll(append(huge, 0, 0, 0, 0), budget); err == nil || errors.As(err, new(*qerr.Error)) {
		t.Error("a frame over the cap was read")
	}
}

// TestFramesHoldWhatDecodingMakes: what takes two bytes of a frame each, and fifty times as much
// once it is decoded, is held before it is made.
func TestFramesHoldWhatDecodingMakes(t *testing.T) {
	framed := func(msg []byte) []byte {
		out := binary.AppendUvarint(nil, uint64(len(msg)))
		return append(binary.BigEndian.AppendUint32(out, crc32.Checksum(msg, castagnoli)), msg...)
	}
	within := func(field byte, content []byte) []byte {
		return append(binary.AppendUvarint([]byte{field<<3 | 2}, uint64(len(content))), content...)
	}
	const n = 1 << 20
	for name, msg := range map[string][]byte{
		"series": bytes.Repeat(within(1, nil), n),
		"labels": within(1, bytes.Repeat(within(1, nil), n)),
		"chunks": within(1, bytes.Repeat(within(2, nil), n)),
	} {
		budget := testBudget(admit.NewPool(48 << 20))
		_, err := readAll(framed(msg), budget)
		if e := qerr.From(err); err == nil || e.Kind != qerr.Overloaded {
			t.Errorf("%d %s in %d bytes: %v", n, name, len(msg), err)
		}
		budget.Close()
	}
	var resp prompb.ChunkedReadResponse
	for range 50 {
		resp.ChunkedSeries = append(resp.ChunkedSeries, oneSeries("a", make([]byte, 150)), oneSeries("b", nil))
	}
	msg, err := resp.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := structs(msg); err != nil || got != 100*(seriesStruct+labelStruct+chunkStruct) {
		t.Errorf("%d bytes for 100 series, %v", got, err)
	}
	if _, err := structs(msg[:len(msg)-1]); err == nil {
		t.Error("what is cut is counted")
	}
	// prompb takes the lower 32 bits of a field's number, and would go on here.
	evaded := append(protowire.AppendVarint(nil, (1<<32+5)<<3), bytes.Repeat(within(1, nil), 1000)...)
	if names, err := readAll(framed(evaded), testBudget(admit.NewPool(48<<20))); err == nil || errors.As(err, new(*qerr.Error)) {
		t.Errorf("%v, %v", names, err)
	}
}

func FuzzFrames(f *testing.F) {
	f.Add(stream(f, oneSeries("a", []byte{1, 2})))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		pool := admit.NewPool(4 << 20)
		budget := testBudget(pool)
		_, _ = readAll(data, budget)
		budget.Close()
		if pool.InUse() != 0 {
			t.Errorf("%d bytes are still held", pool.InUse())
		}
	})
}
