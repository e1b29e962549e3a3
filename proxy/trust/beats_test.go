package trust

import (
	"fmt"
	"strings"
	"testing"
)

// TestBeatQuery: of up only successful scrapes count; of what else a heartbeat may be, all samples.
func TestBeatQuery(t *testing.T) {
	for heartbeat, count := range map[string]string{
		"up": "sum", `up{job=~"node|kubelet"}`: "sum", `{__name__="up",job="node"}`: "sum", `{"up"}`: "sum",
		"node_uname_info": "count", `{__name__=~"up"}`: "count", `up_since{job="up"}`: "count",
	} {
		if got, want := New(heartbeat, 2).beatQuery("5m"),
			fmt.Sprintf("sum by (job) (%s_over_time(%s[5m]) + %d)", count, heartbeat, beatUnit); got != want {
			t.Errorf("want %s, got %s", want, got)
		}
	}
}

// TestBucketsAreBounded: the oldest are forgotten.
func TestBucketsAreBounded(t *testing.T) {
	h := New("up", 2)
	for i := range int64(maxBuckets + 1) {
		h.buckets[i*bucketMs] = finding{}
	}
	h.trim()
	if _, oldest := h.buckets[0]; oldest || len(h.buckets) > maxBuckets {
		t.Errorf("%d buckets, the oldest still there: %t", len(h.buckets), oldest)
	}
}

// TestDecodeOfNoResult: an answer without a result does not tell that there is nothing.
func TestDecodeOfNoResult(t *testing.T) {
	for rest, want := range map[string]bool{
		`"data":{"resultType":"vector","result":[]}`: true, `"data":{"resultType":"vector","result":null}`: false,
		`"data":{"resultType":"matrix"}`: false, `"data":null`: false, `"data":{}`: false,
	} {
		if got, err := Decode(strings.NewReader(`{"status":"success",` + rest + `}`)); (err == nil) != want || len(got) > 0 {
			t.Errorf("%s: %v, %v", rest, got, err)
		}
	}
}

// FuzzDecode: whatever a server sends, the decoder returns, within bounds.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"job":"a"},"values":[[300,"10737418440"],[600.5,"1"]]}]}}`,
		`{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1,"NaN"]}]}}`,
		`{"status":"success","data":{"resultType":"matrix","result":[{"values":[[]]}]}}`,
		`{"status":"success","data":{"resultType":"matrix","result":[{"values":[[1e300,"1"]]}]}}`,
		`{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}`, `null`, `[`, ``,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := Decode(strings.NewReader(text))
		if err != nil {
			return
		}
		for end, at := range got {
			for job, b := range at.jobs {
				if b.series < 0 || b.samples < 0 {
					t.Errorf("%q at %d: %+v", job, end, b)
				}
			}
		}
	})
}
