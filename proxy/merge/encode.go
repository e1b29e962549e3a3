package merge

import (
	"encoding/json"
	"io"
	"math"
	"strconv"
	"sync"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/promql"

	"github.com/spillwayproject/spillway/proxy/admit"
)

// Encoder writes results of Spillway's own evaluation, byte for byte as Prometheus' HTTP API
// encodes them, as a stream bounded in bytes.
type Encoder struct {
	w     io.Writer
	buf   []byte
	n     int64
	limit int64
	err   error

	// Look, where set, is asked whenever something is written; its error ends the answer.
	Look func() error

	// Stats, where set, is the object stats that follows the result.
	Stats any
}

// NewEncoder returns an encoder to w that writes at most maxBytes (max_response_bytes).
func NewEncoder(w io.Writer, maxBytes int64) *Encoder {
	return &Encoder{w: w, limit: maxBytes, buf: (*encodeBuffers.Get().(*[]byte))[:0]}
}

// encodeBuffers are those of encoders that have come to their end. One that a huge label set made
// large is not kept.
var encodeBuffers = sync.Pool{New: func() any { b := make([]byte, 0, encodeFlush+1<<10); return &b }}

func (e *Encoder) release() {
	if b := e.buf; b != nil && cap(b) <= 4*encodeFlush {
		encodeBuffers.Put(&b)
	}
	e.buf = nil
}

// encodeFlush is how much an Encoder gathers before it writes.
const encodeFlush = 16 << 10

func (e *Encoder) flush(all bool) bool {
	if e.err != nil {
		return false
	}
	if len(e.buf) < encodeFlush && !all {
		return true
	}
	e.n += int64(len(e.buf))
	if e.n > e.limit {
		e.err = admit.TooManyBytes(e.limit, e.n, "the answer is")
		return false
	}
	if e.Look != nil {
		if e.err = e.Look(); e.err != nil {
			return false
		}
	}
	_, e.err = e.w.Write(e.buf)
	e.buf = e.buf[:0]
	return e.err == nil
}

func (e *Encoder) head(resultType string) {
	e.buf = append(e.buf, `{"resultType":"`...)
	e.buf = append(e.buf, resultType...)
	e.buf = append(e.buf, `","result":`...)
}

func (e *Encoder) tail() error {
	if e.Stats != nil && e.err == nil {
		var b []byte
		if b, e.err = json.Marshal(e.Stats); e.err != nil {
			return e.err
		}
		e.buf = append(append(e.buf, `,"stats":`...), b...)
	}
	e.buf = append(e.buf, '}')
	e.flush(true)
	e.release()
	return e.err
}

// Vector writes the data object of an instant vector.
func (e *Encoder) Vector(v promql.Vector) error {
	e.head("vector")
	e.buf = append(e.buf, '[')
	for i := range v {
		if i > 0 {
			e.buf = append(e.buf, ',')
		}
		s := &v[i]
		e.buf = append(e.buf, `{"metric":`...)
		e.buf = AppendLabels(e.buf, s.Metric)
		if s.H == nil {
			e.buf = append(e.buf, `,"value":`...)
			e.buf = appendPoint(e.buf, s.T, s.F)
		} else {
			e.buf = append(e.buf, `,"histogram":`...)
			e.buf = appendHPoint(e.buf, s.T, s.H)
		}
		e.buf = append(e.buf, '}')
		if !e.flush(false) {
			return e.err
		}
	}
	e.buf = append(e.buf, ']')
	return e.tail()
}

// Matrix writes the data object of a range vector.
func (e *Encoder) Matrix(m promql.Matrix) error {
	e.head("matrix")
	e.buf = append(e.buf, '[')
	for i := range m {
		if i > 0 {
			e.buf = append(e.buf, ',')
		}
		e.buf = append(e.buf, `{"metric":`...)
		e.buf = AppendLabels(e.buf, m[i].Metric)
		for j, p := range m[i].Floats {
			if j == 0 {
				e.buf = append(e.buf, `,"values":[`...)
			} else {
				e.buf = append(e.buf, ',')
			}
			e.buf = appendPoint(e.buf, p.T, p.F)
			if !e.flush(false) {
				return e.err
			}
		}
		if len(m[i].Floats) > 0 {
			e.buf = append(e.buf, ']')
		}
		for j, p := range m[i].Histograms {
			if j == 0 {
				e.buf = append(e.buf, `,"histograms":[`...)
			} else {
				e.buf = append(e.buf, ',')
			}
			e.buf = appendHPoint(e.buf, p.T, p.H)
			if !e.flush(false) {
				return e.err
			}
		}
		if len(m[i].Histograms) > 0 {
			e.buf = append(e.buf, ']')
		}
		e.buf = append(e.buf, '}')
		if !e.flush(false) {
			return e.err
		}
	}
	e.buf = append(e.buf, ']')
	return e.tail()
}

// Table writes the data object of a table: a matrix where ranged, else an instant vector. It writes
// at most limit series (0 is no limit) and tells whether it left out any.
func (e *Encoder) Table(t *Table, ranged bool, limit int) (cut bool, err error) {
	series := t.Series
	if cut = limit > 0 && len(series) > limit; cut {
		series = series[:limit]
	}
	kind := "vector"
	if ranged {
		kind = "matrix"
	}
	e.head(kind)
	e.buf = append(e.buf, '[')
	for i := range series {
		if i > 0 {
			e.buf = append(e.buf, ',')
		}
		e.buf = append(e.buf, `{"metric":`...)
		e.buf = AppendLabels(e.buf, series[i].Labels)
		open := `,"value":`
		if ranged {
			open = `,"values":[`
		}
		for j, v := range series[i].Values {
			if isStale(v) {
				continue
			}
			e.buf = append(e.buf, open...)
			e.buf = appendPoint(e.buf, t.Grid.Time(j), v)
			if open = ","; !e.flush(false) {
				return cut, e.err
			}
		}
		if ranged {
			e.buf = append(e.buf, ']')
		}
		e.buf = append(e.buf, '}')
		if !e.flush(false) {
			return cut, e.err
		}
	}
	e.buf = append(e.buf, ']')
	return cut, e.tail()
}

// Scalar writes the data object of a scalar.
func (e *Encoder) Scalar(s promql.Scalar) error { return e.single("scalar", s) }

// String writes the data object of a string.
func (e *Encoder) String(s promql.String) error { return e.single("string", s) }

// single uses the type's own marshaler, as Prometheus' codec does: its times and floats are
// formatted otherwise than those of points.
func (e *Encoder) single(resultType string, v json.Marshaler) error {
	b, err := v.MarshalJSON()
	if err != nil {
		return err
	}
	e.head(resultType)
	e.buf = append(e.buf, b...)
	return e.tail()
}

func appendPoint(dst []byte, t int64, v float64) []byte {
	dst = append(dst, '[')
	dst = AppendTimestamp(dst, t)
	dst = append(dst, ',')
	dst = AppendFloat(dst, v)
	return append(dst, ']')
}

func appendHPoint(dst []byte, t int64, h *histogram.FloatHistogram) []byte {
	dst = append(dst, '[')
	dst = AppendTimestamp(dst, t)
	dst = append(dst, ',')
	dst = AppendHistogram(dst, h)
	return append(dst, ']')
}

// AppendTimestamp appends milliseconds as Prometheus writes them: seconds with up to three
// decimals.
func AppendTimestamp(dst []byte, ms int64) []byte {
	u := uint64(ms)
	if ms < 0 {
		dst = append(dst, '-')
		u = -u
	}
	dst = strconv.AppendUint(dst, u/1000, 10)
	if f := u % 1000; f != 0 {
		dst = append(dst, '.', byte('0'+f/100), byte('0'+f/10%10), byte('0'+f%10))
	}
	return dst
}

// AppendFloat appends a value as Prometheus writes it: a string, since JSON has no NaN and no
// infinities.
func AppendFloat(dst []byte, f float64) []byte {
	format := byte('f')
	if abs := math.Abs(f); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	dst = append(dst, '"')
	dst = strconv.AppendFloat(dst, f, format, -1, 64)
	return append(dst, '"')
}

// AppendHistogram appends a native histogram as Prometheus writes it: count, sum and the buckets
// that are not empty.
func AppendHistogram(dst []byte, h *histogram.FloatHistogram) []byte {
	dst = append(dst, `{"count":`...)
	dst = AppendFloat(dst, h.Count)
	dst = append(dst, `,"sum":`...)
	dst = AppendFloat(dst, h.Sum)
	found := false
	for it := h.AllBucketIterator(); it.Next(); {
		b := it.At()
		if b.Count == 0 {
			continue
		}
		if !found {
			dst = append(dst, `,"buckets":[`...)
		} else {
			dst = append(dst, ',')
		}
		found = true
		// 0: lower end open, upper closed; 1: the reverse; 2: both open; 3: both closed.
		ends := byte('2')
		switch {
		case b.LowerInclusive && b.UpperInclusive:
			ends = '3'
		case b.LowerInclusive:
			ends = '1'
		case b.UpperInclusive:
			ends = '0'
		}
		dst = append(dst, '[', ends, ',')
		dst = AppendFloat(dst, b.Lower)
		dst = append(dst, ',')
		dst = AppendFloat(dst, b.Upper)
		dst = append(dst, ',')
		dst = AppendFloat(dst, b.Count)
		dst = append(dst, ']')
	}
	if found {
		dst = append(dst, ']')
	}
	return append(dst, '}')
}
