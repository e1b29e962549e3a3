package merge

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/spillwayproject/spillway/proxy/admit"
)

// valueKinds are the kinds of numbers that servers answer with: small integers, counters, and rates
// with as many digits as a float64 has.
var valueKinds = []struct {
	name string
	next func(r *rand.Rand, before float64) float64
}{
	{"ones", func(*rand.Rand, float64) float64 { return 1 }},
	{"counters", func(r *rand.Rand, before float64) float64 { return before + float64(r.IntN(100000)) }},
	{"rates", func(r *rand.Rand, _ float64) float64 { return r.ExpFloat64() * 10 }},
}

// gridDoc is an answer on a grid as Prometheus writes it, series sorted: a vector where the grid is
// an instant.
func gridDoc(g Grid, from, series int, next func(r *rand.Rand, before float64) float64) []byte {
	return gridPart(g, from, series, 1, next)
}

// dealt is one answer over so many shards.
func dealt(g Grid, shards, series int, next func(r *rand.Rand, before float64) float64) [][]byte {
	var docs [][]byte
	for i := range shards {
		docs = append(docs, gridPart(g, i, series/shards, shards, next))
	}
	return docs
}

// gridPart is an answer of series from, from+every, from+2*every, ...
func gridPart(g Grid, from, series, every int, next func(r *rand.Rand, before float64) float64) []byte {
	r := rand.New(rand.NewPCG(uint64(from), 7))
	var b bytes.Buffer
	resultType := "matrix"
	if g.Len() == 1 {
		resultType = "vector"
	}
	fmt.Fprintf(&b, `{"status":"success","data":{"resultType":%q,"result":[`, resultType)
	var point []byte
	for i := range series {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"metric":{"__name__":"container_cpu_usage_seconds_total","container":"main","id":"/kubepods/burstable/pod%08x","instance":"10.0.%d.%d:10250","namespace":"research-%d","node":"gpu-%d","pod":"train-%d"}`,
			from+i*every, i/256%256, i%256, i%17, i%500, i)
		v := r.Float64() * 1e6
		if resultType == "matrix" {
			b.WriteString(`,"values":[`)
		} else {
			b.WriteString(`,"value":`)
		}
		for j := range g.Len() {
			v = next(r, float64(int64(v)))
			if j > 0 {
				b.WriteByte(',')
			}
			point = appendPoint(point[:0], g.Time(j), v)
			b.Write(point)
		}
		if resultType == "matrix" {
			b.WriteByte(']')
		}
		b.WriteByte('}')
	}
	b.WriteString(`]}}`)
	return b.Bytes()
}

// hour is the grid of a dashboard: an hour at 30 s.
var hour = Grid{Start: 1_700_000_000_781, End: 1_700_003_600_781, Step: 30_000}

func perPoint(b *testing.B, points int) {
	b.Helper()
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(points), "ns/point")
}

func BenchmarkDecodeTable(b *testing.B) {
	for _, shape := range []struct {
		series int
		grid   Grid
	}{{20000, hour}, {10, hour}, {20000, Grid{Start: hour.Start, End: hour.Start}}} {
		for _, kind := range valueKinds {
			doc := gridDoc(shape.grid, 0, shape.series, kind.next)
			b.Run(fmt.Sprintf("%dx%d/%s", shape.series, shape.grid.Len(), kind.name), func(b *testing.B) {
				pool := admit.NewPool(1 << 30)
				perCPU(b, doc, func(r io.Reader) error {
					budget := admit.NewBudget(pool, roomy)
					defer budget.Close()
					t, _, err := DecodeTable(b.Context(), Source{Name: "a", Body: r}, shape.grid, budget)
					t.Close()
					return err
				})
				perPoint(b, shape.series*shape.grid.Len())
			})
		}
	}
}

func BenchmarkParseFloat(b *testing.B) {
	for _, text := range []string{"1", "123456", "1234567.25", "0.06666666666666667", "1234.5678901234567", "1.2345e-07"} {
		room := make([]byte, len(text)+1+plainRoom)
		copy(room[copy(room, text):], `"`)
		b.Run(text+"/plain", func(b *testing.B) {
			for b.Loop() {
				if _, end := plainFloat(room, 0); end < 0 {
					b.Fatal()
				}
			}
		})
		b.Run(text+"/strconv", func(b *testing.B) {
			for b.Loop() {
				if _, err := strconv.ParseFloat(text, 64); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkSplice(b *testing.B) {
	rl := NewRelabel(map[string]string{"cluster": "jaguar"}, []string{"replica"})
	for _, grid := range []Grid{hour, {Start: hour.Start, End: hour.Start}} {
		for _, shards := range []int{1, 4} {
			for name, rl := range map[string]*Relabel{"": nil, "/relabel": rl} {
				docs := dealt(grid, shards, 20000, valueKinds[2].next)
				b.Run(fmt.Sprintf("20000x%d/%d%s", grid.Len(), shards, name), func(b *testing.B) {
					pool := admit.NewPool(1 << 30)
					perCPU(b, bytes.Join(docs, nil), func(io.Reader) error {
						budget := admit.NewBudget(pool, roomy)
						defer budget.Close()
						w := NewWriter(io.Discard, budget)
						defer w.Close()
						var sources []Source
						for _, doc := range docs {
							sources = append(sources, Source{Name: "a", Body: bytes.NewReader(doc), Relabel: rl})
						}
						_, err := Splice(b.Context(), w, 0, sources, budget)
						return err
					})
					perPoint(b, 20000*grid.Len())
				})
			}
		}
	}
}

// BenchmarkFold folds the tables of four shards, the same groups in each: its own part, without
// decoding.
func BenchmarkFold(b *testing.B) {
	for _, grid := range []Grid{hour, {Start: hour.Start, End: hour.Start}} {
		for op, name := range map[FoldOp]string{FoldSum: "sum", FoldCount: "count", FoldMax: "max"} {
			b.Run(fmt.Sprintf("4x20000x%d/%s", grid.Len(), name), func(b *testing.B) {
				b.ReportAllocs()
				doc := gridDoc(grid, 0, 20000, valueKinds[1].next)
				for b.Loop() {
					b.StopTimer()
					var tables []*Table
					for range 4 {
						t, _, err := DecodeTable(b.Context(), Source{Name: "a", Body: bytes.NewReader(doc)}, grid, nil)
						if err != nil {
							b.Fatal(err)
						}
						tables = append(tables, t)
					}
					b.StartTimer()
					t, err := Fold(op, tables, nil)
					if err != nil {
						b.Fatal(err)
					}
					t.Close()
				}
				perPoint(b, 4*20000*grid.Len())
			})
		}
	}
}
