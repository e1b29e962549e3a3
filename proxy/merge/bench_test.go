package merge

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"

	jsoniter "github.com/json-iterator/go"

	"github.com/spillwayproject/spillway/proxy/admit"
)

// perCPU runs a benchmark over a document and reports megabytes for each second of CPU time, which
// other users of the machine do not change.
func perCPU(b *testing.B, doc []byte, once func(io.Reader) error) {
	b.Helper()
	b.ReportAllocs()
	b.SetBytes(int64(len(doc)))
	start := cpuSeconds(b)
	for b.Loop() {
		if err := once(bytes.NewReader(doc)); err != nil {
			b.Fatal(err)
		}
	}
	if used := cpuSeconds(b) - start; used > 0 {
		b.ReportMetric(float64(len(doc))*float64(b.N)/1e6/used, "MB/cpu-s")
	}
}

func cpuSeconds(b *testing.B) float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return float64(u.Utime.Sec+u.Stime.Sec) + float64(u.Utime.Usec+u.Stime.Usec)/1e6
}

func BenchmarkPass(b *testing.B) {
	rl := NewRelabel(map[string]string{"cluster": "jaguar"}, []string{"replica"})
	const start = 1700000000781
	for _, points := range []int{120, 1, 0} {
		doc, name, asked := matrixDoc(20000, points), fmt.Sprintf("20000x%d", points),
			&Asked{Type: "matrix", Grid: Grid{Start: start, End: start + int64(points)*30000, Step: 30000}}
		if points == 0 {
			doc, name, asked = vectorDoc(20000), "20000", &Asked{Type: "vector", Grid: Grid{Start: start, End: start}}
		}
		for with, rl := range map[string]*Relabel{"": nil, "/relabel": rl} {
			b.Run(name+with, func(b *testing.B) {
				pool := admit.NewPool(1 << 30)
				perCPU(b, doc, func(r io.Reader) error {
					budget := admit.NewBudget(pool, roomy)
					defer budget.Close()
					w := NewWriter(io.Discard, budget)
					defer w.Close()
					_, err := Pass(b.Context(), w, Source{Name: "a", Body: r, Relabel: rl, Asked: asked}, budget)
					return err
				})
			})
		}
	}
	// The base: what a proxy that looks at nothing does.
	b.Run("copy", func(b *testing.B) {
		buf := make([]byte, 32<<10)
		perCPU(b, matrixDoc(20000, 120), func(r io.Reader) error {
			_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{r}, buf)
			return err
		})
	})
}

// vectorDoc is the answer to an instant query.
func vectorDoc(series int) []byte {
	doc := bytes.ReplaceAll(matrixDoc(series, 1), []byte(`"values":[[`), []byte(`"value":[`))
	return bytes.Replace(bytes.ReplaceAll(doc, []byte(`"]]`), []byte(`"]`)), []byte(`"matrix"`), []byte(`"vector"`), 1)
}

func seriesDoc(n int) []byte {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `%s{"__name__":"container_cpu_usage_seconds_total","container":"main","instance":"10.0.%d.%d:10250","namespace":"research-%d","pod":"train-%d"}`, comma(i), i/256%256, i%256, i%17, i)
	}
	return []byte(envelope("[" + b.String() + "]"))
}

// BenchmarkScan compares ways to look at every value of a document.
func BenchmarkScan(b *testing.B) {
	for name, doc := range map[string][]byte{"matrix": matrixDoc(1000, 120), "series": seriesDoc(20000)} {
		b.Run(name+"/scanner", func(b *testing.B) {
			perCPU(b, doc, skipAll)
		})
		b.Run(name+"/encoding-json", func(b *testing.B) {
			perCPU(b, doc, func(r io.Reader) error {
				dec := json.NewDecoder(r)
				for {
					if _, err := dec.Token(); err == io.EOF {
						return nil
					} else if err != nil {
						return err
					}
				}
			})
		})
		b.Run(name+"/jsoniter", func(b *testing.B) {
			perCPU(b, doc, func(r io.Reader) error {
				it := jsoniter.Parse(jsoniter.ConfigFastest, r, scanBuffer)
				it.Skip()
				return it.Error
			})
		})
	}
}

func BenchmarkMergeSeries(b *testing.B) {
	doc := seriesDoc(10000)
	pool := admit.NewPool(1 << 30)
	perCPU(b, doc, func(r io.Reader) error {
		budget := admit.NewBudget(pool, roomy)
		defer budget.Close()
		w := NewWriter(io.Discard, budget)
		defer w.Close()
		_, err := MergeSeries(b.Context(), w, 0, []Source{{Name: "a", Body: r}, {Name: "b", Body: bytes.NewReader(doc)}}, budget)
		return err
	})
}

func BenchmarkMergeStrings(b *testing.B) {
	var list strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&list, `%s"pod-%08d"`, comma(i), i)
	}
	doc := []byte(envelope("[" + list.String() + "]"))
	pool := admit.NewPool(1 << 30)
	perCPU(b, doc, func(r io.Reader) error {
		budget := admit.NewBudget(pool, roomy)
		defer budget.Close()
		w := NewWriter(io.Discard, budget)
		defer w.Close()
		_, err := MergeStrings(b.Context(), w, 0, []Strings{
			ShardStrings(b.Context(), Source{Name: "a", Body: r}, false, budget),
			ShardStrings(b.Context(), Source{Name: "b", Body: bytes.NewReader(doc)}, false, budget),
		}, budget)
		return err
	})
}
