package policy

import (
	"strconv"

	"github.com/prometheus/prometheus/prompb"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

const (
	// matchBytesFactor times MaxQueryBytes is how long all match[] of a request may be together.
	// Grafana writes a multi-value variable as one long regular expression, 138 kB of names among
	// them, which costs little to read; what stands outside string literals is held to
	// MaxQueryBytes.
	matchBytesFactor = 4
	// maxMatches is the number of match[] of a request. Federation jobs list a few dozen.
	maxMatches = 64
)

// queryBytes bounds the length of query texts before anything reads them.
type queryBytes struct{}

func (queryBytes) Name() string { return BoundMaxQueryBytes }

func (queryBytes) Check(q *Query) error {
	most := q.Limits.MaxQueryBytes
	if n := int64(len(q.Request.Query)); n > most {
		return refuseBytes(most, n, "the query text is %d bytes long and max_query_bytes is %s", n, bytesText(most))
	}
	texts := matchTexts(q.Request)
	if len(texts) > maxMatches {
		return qerr.Refuse(BoundQueryShape, strconv.Itoa(maxMatches)+" match[]", strconv.Itoa(len(texts))+" match[]",
			"join selectors that differ in one label into one with a regular expression, or send several requests",
			"the request has %d match[] and at most %d are read", len(texts), maxMatches)
	}
	var n int64
	for _, s := range texts {
		n += int64(len(s))
	}
	most = satMul(most, matchBytesFactor)
	if n > most {
		return refuseBytes(most, n, "the match[] of this request are %d bytes long together and at most %s (%d times max_query_bytes) are read", n, bytesText(most), matchBytesFactor)
	}
	if n := matcherBytes(q.Request.ReadQuery); n > most {
		return refuseBytes(most, n, "the matchers of this remote read are %d bytes long together and at most %s (%d times max_query_bytes) are read", n, bytesText(most), matchBytesFactor)
	}
	return nil
}

// matcherBytes is how long the names and values in all queries of a remote read are together. A
// compressed request may have many times its own length of them.
func matcherBytes(r *prompb.ReadRequest) (n int64) {
	for _, one := range r.GetQueries() {
		for _, m := range one.GetMatchers() {
			n += int64(len(m.GetName()) + len(m.GetValue()))
		}
	}
	return n
}

func refuseBytes(most, seen int64, format string, args ...any) error {
	return qerr.Refuse(BoundMaxQueryBytes, bytesText(most), strconv.FormatInt(seen, 10)+"B",
		"replace long lists of alternatives by a shorter regular expression, or move the expression into a recording rule", format, args...)
}

// bytesText writes a number of bytes as the configuration does, in the largest unit that divides
// it.
func bytesText(n int64) string {
	unit := 0
	for ; n != 0 && n%1024 == 0 && unit < len(byteUnits)-1; unit++ {
		n /= 1024
	}
	return strconv.FormatInt(n, 10) + byteUnits[unit]
}

var byteUnits = []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
