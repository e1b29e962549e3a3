package cost

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"
)

// endless is a list without an end, of which it is counted how much was read.
type endless struct {
	begin, again string
	read         int
}

func (e *endless) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if e.begin == "" {
			e.begin = e.again
		}
		some := copy(p[n:], e.begin)
		e.begin = e.begin[some:]
		n += some
	}
	if e.read += n; e.read > 32<<20 {
		return 0, io.ErrUnexpectedEOF
	}
	return n, nil
}

// TestEndlessLists: of a list that has more than was asked for nothing is read beyond that.
func TestEndlessLists(t *testing.T) {
	for _, key := range []string{"seriesCountByMetricName", "seriesCountByLabelValuePair", "labelValueCountByLabelName"} {
		for _, one := range []string{"{},", `{"name":"x","value":1},`, "null,"} {
			var n Names
			body := &endless{begin: `{"data":{"` + key + `":[`, again: one}
			if err := n.Learn(body, time.Now(), 0); err == nil || !strings.Contains(err.Error(), "more than 1000") {
				t.Errorf("%s of %s: %v", key, one, err)
			}
			if body.read > 8*MaxNames*len(one) {
				t.Errorf("%s of %s: %d bytes were read", key, one, body.read)
			}
		}
	}
}

// TestToldInParts: an answer that ends early, or is of another shape, is none; null is an empty
// list, and what is not known is passed over.
func TestToldInParts(t *testing.T) {
	const all = `{"status":"success","data":{"chunks":[1,{"x":[]}],"headStats":{"numSeries":9},"seriesCountByMetricName":[{"name":"up","value":7}],` +
		`"seriesCountByLabelValuePair":null,"memoryInBytesByLabelName":[{"name":"a","value":1}],"labelValueCountByLabelName":[]},"more":[{}]}`
	for i := range all {
		if err := (&told{limit: 9}).read(strings.NewReader(all[:i])); err == nil {
			t.Errorf("%s is taken for an answer", all[:i])
		}
	}
	got := told{limit: 9}
	err := got.read(strings.NewReader(all))
	if err != nil || len(got.metrics.of) != 1 || got.metrics.atMost(hashOf("up")) != 7 || got.head.NumSeries != 9 {
		t.Errorf("%v: %+v", err, got)
	}
	for _, bad := range []string{
		"[]", "7", `{"data":7}`, `{"data":{"seriesCountByMetricName":{}}}`, `{"data":{"seriesCountByMetricName":[[]]}}`,
	} {
		if err := (&told{limit: 9}).read(strings.NewReader(bad)); err == nil {
			t.Errorf("%s is taken for an answer", bad)
		}
	}
}

// TestToldIsSmall: an answer with ten thousand of each is read without being held.
func TestToldIsSmall(t *testing.T) {
	var parts strings.Builder
	for _, key := range []string{"seriesCountByMetricName", "seriesCountByLabelValuePair", "memoryInBytesByLabelName"} {
		parts.WriteString(names(key, strings.Repeat("x", 100), MoreNames, 5))
	}
	body := fmt.Sprintf(`{"data":{"headStats":{"numSeries":9}%s}}`, parts.String())
	var before, after runtime.MemStats
	got := told{limit: MoreNames}
	runtime.GC()
	runtime.ReadMemStats(&before)
	if err := got.read(strings.NewReader(body)); err != nil || !got.pairs.full {
		t.Fatal(err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if kept := int64(after.HeapAlloc) - int64(before.HeapAlloc); kept > 1<<20 {
		t.Errorf("%d KiB are kept of %d KiB", kept>>10, len(body)>>10)
	}
	runtime.KeepAlive(body)
	runtime.KeepAlive(got)
}
