package fakeshard

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"net/http"
	"slices"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
)

const (
	streamedType = "application/x-streamed-protobuf; proto=prometheus.ChunkedReadResponse"
	sampledType  = "application/x-protobuf"

	samplesPerChunk  = 120 // as Prometheus' head cuts them
	healthyStepMs    = 15_000
	maxHealthyPoints = 11_000 // per series: what is healthy is small
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendFrame writes a message in the framing of the streamed protocol: its length, its checksum,
// itself.
func appendFrame(dst, message []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(message)))
	dst = binary.BigEndian.AppendUint32(dst, crc32.Checksum(message, castagnoli))
	return append(dst, message...)
}

// xorChunk holds n samples of value 1 from start on.
func xorChunk(startMs, stepMs int64, n int) (prompb.Chunk, error) {
	c := chunkenc.NewXORChunk()
	app, err := c.Appender()
	if err != nil {
		return prompb.Chunk{}, fmt.Errorf("make a chunk: %w", err)
	}
	for i := range int64(n) {
		app.Append(0, startMs+i*stepMs, 1)
	}
	return prompb.Chunk{MinTimeMs: startMs, MaxTimeMs: startMs + int64(n-1)*stepMs, Type: prompb.Chunk_XOR, Data: c.Bytes()}, nil
}

// A frameMaker makes the endless frames of step generate. It keeps one message and writes only what
// changes into it.
type frameMaker struct {
	message []byte
	counter int // where the twelve digits stand in message
}

// series appends a frame with a series of its own and one chunk.
func (f *frameMaker) series(dst []byte, g *generator, i int64) []byte {
	if f.message == nil {
		chunk, err := xorChunk(g.start.UnixMilli(), healthyStepMs, samplesPerChunk)
		if err != nil {
			panic(err) // a chunk of 120 equal floats; only memory could fail
		}
		const first = "000000000000"
		f.message = marshalFrame(g.name, "node-"+first, chunk)
		f.counter = bytes.LastIndex(f.message, []byte(first))
	}
	appendCounter(f.message[:f.counter], i)
	return appendFrame(dst, f.message)
}

// next appends a frame with the next chunk of always the same series.
func (f *frameMaker) next(dst []byte, g *generator, i int64) []byte {
	chunk, err := xorChunk(g.start.UnixMilli()+i*samplesPerChunk*healthyStepMs, healthyStepMs, samplesPerChunk)
	if err != nil {
		panic(err) // as above
	}
	return appendFrame(dst, marshalFrame(g.name, "node-0", chunk))
}

func marshalFrame(name, instance string, chunk prompb.Chunk) []byte {
	m := prompb.ChunkedReadResponse{ChunkedSeries: []*prompb.ChunkedSeries{{
		Labels: []prompb.Label{{Name: "__name__", Value: name}, {Name: "instance", Value: instance}},
		Chunks: []prompb.Chunk{chunk},
	}}}
	b, err := m.Marshal()
	if err != nil {
		panic(err) // marshalling to memory has no reason to fail
	}
	return b
}

// remoteRead answers with the series that match, in the form that the request prefers. As in
// Prometheus, equality matchers on external labels are taken out, and the labels added to series
// that lack them.
func (s *Shard) remoteRead(r *Record) Answer {
	bad := func(err error) Answer {
		a := textAnswer("text/plain; charset=utf-8", err.Error()+"\n")
		a.Status = http.StatusBadRequest
		return a
	}
	if r.Method != http.MethodPost {
		a := bad(errors.New("remote read is a POST"))
		a.Status = http.StatusMethodNotAllowed
		return a
	}
	req, err := r.ReadRequest()
	if err != nil {
		return bad(err)
	}
	streamed := false
	for _, t := range req.AcceptedResponseTypes {
		if t == prompb.ReadRequest_STREAMED_XOR_CHUNKS || t == prompb.ReadRequest_SAMPLES {
			streamed = t == prompb.ReadRequest_STREAMED_XOR_CHUNKS
			break
		}
	}
	var frames []byte
	var resp prompb.ReadResponse
	for qi, q := range req.Queries {
		found, err := s.readSeries(q)
		if err != nil {
			return bad(err)
		}
		result := &prompb.QueryResult{}
		var chunks []prompb.Chunk // the same for all series
		for _, lset := range found {
			if !streamed {
				ts := &prompb.TimeSeries{Labels: lset}
				for t, n := q.StartTimestampMs, 0; t <= q.EndTimestampMs && n < maxHealthyPoints; t, n = t+healthyStepMs, n+1 {
					ts.Samples = append(ts.Samples, prompb.Sample{Timestamp: t, Value: 1})
				}
				result.Timeseries = append(result.Timeseries, ts)
				continue
			}
			if chunks == nil {
				left := int(min((q.EndTimestampMs-q.StartTimestampMs)/healthyStepMs+1, maxHealthyPoints))
				for t := q.StartTimestampMs; left > 0; t += samplesPerChunk * healthyStepMs {
					chunk, err := xorChunk(t, healthyStepMs, min(left, samplesPerChunk))
					if err != nil {
						return errorAnswer(http.StatusInternalServerError, "internal", err.Error())
					}
					chunks = append(chunks, chunk)
					left -= samplesPerChunk
				}
			}
			cs := &prompb.ChunkedSeries{Labels: lset, Chunks: chunks}
			m := prompb.ChunkedReadResponse{ChunkedSeries: []*prompb.ChunkedSeries{cs}, QueryIndex: int64(qi)}
			b, err := m.Marshal()
			if err != nil {
				return errorAnswer(http.StatusInternalServerError, "internal", err.Error())
			}
			frames = appendFrame(frames, b)
		}
		resp.Results = append(resp.Results, result)
	}
	if streamed {
		return Answer{Status: http.StatusOK, Header: http.Header{"Content-Type": {streamedType}}, Body: frames}
	}
	b, err := resp.Marshal()
	if err != nil {
		return errorAnswer(http.StatusInternalServerError, "internal", err.Error())
	}
	return Answer{
		Status: http.StatusOK, Header: http.Header{"Content-Type": {sampledType}, "Content-Encoding": {"snappy"}},
		Body: snappy.Encode(nil, b),
	}
}

// readSeries returns the labels of the series that one query of a remote read selects, with the
// external labels, sorted.
func (s *Shard) readSeries(q *prompb.Query) ([][]prompb.Label, error) {
	var ms []*labels.Matcher
	for _, m := range q.Matchers {
		t := labels.MatchType(m.Type) // the two enumerations are the same: equal, not equal, regexp, not regexp
		if v, ok := s.cfg.ExternalLabels[m.Name]; ok && t == labels.MatchEqual && v == m.Value {
			continue
		}
		lm, err := labels.NewMatcher(t, m.Name, m.Value)
		if err != nil {
			return nil, fmt.Errorf("matcher on %s: %w", m.Name, err)
		}
		ms = append(ms, lm)
	}
	var out [][]prompb.Label
	for _, series := range s.series {
		if !matches(series, ms) {
			continue
		}
		all := maps.Clone(s.cfg.ExternalLabels)
		if all == nil {
			all = map[string]string{}
		}
		maps.Copy(all, series)
		var lset []prompb.Label
		for _, k := range slices.Sorted(maps.Keys(all)) {
			lset = append(lset, prompb.Label{Name: k, Value: all[k]})
		}
		out = append(out, lset)
	}
	return out, nil
}
