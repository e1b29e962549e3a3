package policy

import (
	"strconv"

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
	if most := satMul(most, matchBytesFactor); n > most {
		return refuseBytes(most, n, "the match[] of this request are %d bytes long together and at most %s (%d times max_query_bytes) are read", n, bytesText(most), matchBytesFactor)
	}
	return nil
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
