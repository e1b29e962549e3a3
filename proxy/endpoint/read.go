package endpoint

import (
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

// Caps on the messages of a remote read request. They bound memory: 4 MiB of protobuf can hold two
// million empty matchers, which take fifty times as much once decoded. Prometheus itself sends one
// query with a handful of matchers.
const (
	// MaxReadQueries caps the queries of a request.
	MaxReadQueries = 16
	// maxReadMatchers caps the matchers of a query.
	maxReadMatchers = 128
	// maxReadGrouping caps the grouping labels in the hints of a query.
	maxReadGrouping = 256
	// maxReadTypes caps the accepted response types.
	maxReadTypes = 16
)

// parseRead checks the headers of a remote read request and decodes its body. Unknown fields are
// dropped: the result holds what Spillway understood. Its texts are held, as long as those of the
// inflated body; what decoding makes beside them is bounded by the caps above.
func parseRead(h http.Header, body []byte, o Options) (*prompb.ReadRequest, error) {
	if enc := h.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "snappy") {
		return nil, qerr.New(qerr.BadData, "the body has Content-Encoding %s; remote read is compressed with snappy", quoted(enc))
	}
	if t := h.Get("Content-Type"); t != "" && !strings.HasPrefix(t, "application/x-protobuf") &&
		!strings.HasPrefix(t, "application/x-stream-protobuf") {
		return nil, qerr.New(qerr.BadData, "the body has Content-Type %s; remote read is %s", quoted(t), protoType)
	}
	if v := h.Get("X-Prometheus-Remote-Read-Version"); v != "" && !strings.HasPrefix(v, "0.") {
		return nil, qerr.New(qerr.BadData, "remote read version %s is not served; use %s", quoted(v), readVersion)
	}
	n, err := snappy.DecodedLen(body)
	if err != nil {
		return nil, qerr.Wrap(qerr.BadData, err, "the body is not snappy (block format); remote read sends a compressed ReadRequest")
	}
	if most := o.MaxReadDecodedBytes; int64(n) > most {
		e := qerr.New(qerr.BodyTooLarge, "the body of the request inflates to %d bytes, more than %d", n, most)
		e.Bound, e.Value, e.Seen, e.Advice = boundBody, fmt.Sprint(most), fmt.Sprint(n), "ask with fewer or shorter matchers"
		return nil, e
	}
	if n > unheldBody {
		if err := o.Hold(int64(n)); err != nil {
			return nil, err
		}
	}
	raw, err := snappy.Decode(nil, body)
	if err != nil {
		return nil, qerr.Wrap(qerr.BadData, err, "the body is not snappy (block format); remote read sends a compressed ReadRequest")
	}
	req, err := decodeRead(raw)
	if err != nil {
		return nil, qerr.Wrap(qerr.BadData, err, "the body is no remote read request that Spillway serves: %s", err.Error())
	}
	return req, nil
}

// eachField calls f for each field of a message; b is the content of length-delimited fields, n the
// value of varints. Fields of other types are skipped.
func eachField(msg []byte, f func(num protowire.Number, b []byte, n uint64) error) error {
	for len(msg) > 0 {
		num, typ, size := protowire.ConsumeTag(msg)
		if size < 0 {
			return protowire.ParseError(size)
		}
		msg = msg[size:]
		var (
			b []byte
			n uint64
		)
		switch typ {
		case protowire.BytesType:
			b, size = protowire.ConsumeBytes(msg)
			if b == nil {
				b = []byte{}
			}
		case protowire.VarintType:
			n, size = protowire.ConsumeVarint(msg)
		default:
			if size = protowire.ConsumeFieldValue(num, typ, msg); size >= 0 {
				msg = msg[size:]
				continue
			}
		}
		if size < 0 {
			return protowire.ParseError(size)
		}
		msg = msg[size:]
		if err := f(num, b, n); err != nil {
			return err
		}
	}
	return nil
}

// errWrongType is a known field in an unknown shape.
func errWrongType(field string) error { return fmt.Errorf("%s has the wrong wire type", field) }

func text(field string, b []byte) (string, error) {
	switch {
	case b == nil:
		return "", errWrongType(field)
	case !utf8.Valid(b):
		return "", fmt.Errorf("%s is not UTF-8", field)
	}
	s := string(b)
	if strings.IndexByte(s, 0) >= 0 {
		return "", fmt.Errorf("%s contains a NUL byte", field)
	}
	return s, nil
}

func integer(field string, b []byte, n uint64) (int64, error) {
	if b != nil {
		return 0, errWrongType(field)
	}
	return int64(n), nil
}

// decodeRead decodes a ReadRequest field by field, counting before it allocates.
func decodeRead(raw []byte) (*prompb.ReadRequest, error) {
	req := &prompb.ReadRequest{}
	types := 0
	accept := func(n uint64) error {
		if types++; types > maxReadTypes {
			return fmt.Errorf("more than %d accepted response types", maxReadTypes)
		}
		// Of a number over 32 bits an enumeration has the low ones, as protobuf says. A type that a
		// later protocol adds cannot be served here; the client lists others beside it.
		if t := prompb.ReadRequest_ResponseType(uint32(n)); t == prompb.ReadRequest_SAMPLES || t == prompb.ReadRequest_STREAMED_XOR_CHUNKS {
			req.AcceptedResponseTypes = append(req.AcceptedResponseTypes, t)
		}
		return nil
	}
	err := eachField(raw, func(num protowire.Number, b []byte, n uint64) error {
		switch num {
		case 1:
			if b == nil {
				return errWrongType("queries")
			}
			if len(req.Queries) == MaxReadQueries {
				return fmt.Errorf("more than %d queries in one request", MaxReadQueries)
			}
			q, err := decodeReadQuery(b)
			req.Queries = append(req.Queries, q)
			return err
		case 2: // packed or not: a reader has to take both
			if b == nil {
				return accept(n)
			}
			for len(b) > 0 {
				v, size := protowire.ConsumeVarint(b)
				if size < 0 {
					return protowire.ParseError(size)
				}
				if err := accept(v); err != nil {
					return err
				}
				b = b[size:]
			}
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case len(req.Queries) == 0:
		return nil, fmt.Errorf("it has no queries")
	case types > 0 && len(req.AcceptedResponseTypes) == 0:
		return nil, fmt.Errorf("it accepts neither SAMPLES nor STREAMED_XOR_CHUNKS")
	}
	return req, nil
}

func decodeReadQuery(raw []byte) (*prompb.Query, error) {
	q := &prompb.Query{}
	err := eachField(raw, func(num protowire.Number, b []byte, n uint64) (err error) {
		switch num {
		case 1:
			q.StartTimestampMs, err = integer("start_timestamp_ms", b, n)
		case 2:
			q.EndTimestampMs, err = integer("end_timestamp_ms", b, n)
		case 3:
			if b == nil {
				return errWrongType("matchers")
			}
			if len(q.Matchers) == maxReadMatchers {
				return fmt.Errorf("more than %d matchers in one query", maxReadMatchers)
			}
			m := &prompb.LabelMatcher{}
			q.Matchers = append(q.Matchers, m)
			return decodeReadMatcher(b, m)
		case 4:
			if b == nil {
				return errWrongType("hints")
			}
			if q.Hints == nil { // a second occurrence adds to the first, as protobuf says
				q.Hints = &prompb.ReadHints{}
			}
			return decodeReadHints(b, q.Hints)
		}
		return err
	})
	if err == nil && q.EndTimestampMs < q.StartTimestampMs {
		err = fmt.Errorf("a query ends before it begins")
	}
	return q, err
}

func decodeReadMatcher(raw []byte, m *prompb.LabelMatcher) error {
	err := eachField(raw, func(num protowire.Number, b []byte, n uint64) (err error) {
		switch num {
		case 1:
			if b != nil || n > uint64(prompb.LabelMatcher_NRE) {
				return fmt.Errorf("a matcher has an unknown type")
			}
			m.Type = prompb.LabelMatcher_Type(n)
		case 2:
			m.Name, err = text("a matcher's name", b)
		case 3:
			m.Value, err = text("a matcher's value", b)
		}
		return err
	})
	if err == nil && m.Name == "" {
		err = fmt.Errorf("a matcher has no name")
	}
	return err
}

func decodeReadHints(raw []byte, h *prompb.ReadHints) error {
	return eachField(raw, func(num protowire.Number, b []byte, n uint64) (err error) {
		switch num {
		case 1:
			h.StepMs, err = integer("step_ms", b, n)
		case 2:
			h.Func, err = text("func", b)
		case 3:
			h.StartMs, err = integer("start_ms", b, n)
		case 4:
			h.EndMs, err = integer("end_ms", b, n)
		case 5:
			if len(h.Grouping) == maxReadGrouping {
				return fmt.Errorf("more than %d grouping labels", maxReadGrouping)
			}
			var s string
			s, err = text("grouping", b)
			h.Grouping = append(h.Grouping, s)
		case 6:
			var v int64
			v, err = integer("by", b, n)
			h.By = v != 0
		case 7:
			h.RangeMs, err = integer("range_ms", b, n)
		}
		return err
	})
}
