package server

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// fleetChild is so many scripted shards; it prints their addresses in one line and ends with its
// standard input.
func fleetChild(count string) int {
	n, err := strconv.Atoi(count)
	if err != nil {
		panic(err)
	}
	var urls []string
	for i := range n {
		s, err := fakeshard.New(fakeshard.Config{Series: []map[string]string{{
			"__name__": "up", "instance": fmt.Sprintf("i%d", i),
			"job": "fake",
		}}})
		if err != nil {
			panic(err)
		}
		defer s.Close()
		urls = append(urls, s.URL())
	}
	fmt.Println(strings.Join(urls, ","))
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// ownCPU is the processor time of this process so far, user and system.
func ownCPU(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkIdle reports what Spillway costs over shards that nobody asks anything, four to a group:
// processor time in a minute, and the size of /metrics. The shards are another process. -benchtime
// 1x is one minute.
func BenchmarkIdle(b *testing.B) {
	for _, n := range []int{40, 800} {
		b.Run(fmt.Sprintf("shards=%d", n), func(b *testing.B) {
			urls := strings.Split(startChild(b, "shards", strconv.Itoa(n)).url, ",")
			var cfg strings.Builder
			cfg.WriteString("groups:\n")
			for i, u := range urls {
				if i%4 == 0 {
					fmt.Fprintf(&cfg, "  - name: g%03d\n    labels: {cluster: g%03d}\n    shards:\n", i/4, i/4)
				}
				fmt.Fprintf(&cfg, "      - replicas: [{url: %q}]\n", u)
			}
			s, _ := startProxy(b, b.Context(), cfg.String(), func(o *Options) { o.DrainTimeout = time.Second })
			time.Sleep(40 * time.Second) // what is read once was read, and read anew once
			b.ResetTimer()
			began := ownCPU(b)
			for range b.N {
				time.Sleep(time.Minute)
			}
			b.ReportMetric((ownCPU(b)-began).Seconds()/float64(b.N), "cpu-s/min")
			families, err := s.opts.Gatherer.Gather()
			if err != nil {
				b.Fatal(err)
			}
			size := &countingWriter{}
			for _, f := range families {
				if _, err := expfmt.MetricFamilyToText(size, f); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(size.n)/1e6, "metrics-MB")
			b.ReportMetric(0, "ns/op")
		})
	}
}

type countingWriter struct{ n int64 }

// Write implements io.Writer.
func (w *countingWriter) Write(p []byte) (int, error) { w.n += int64(len(p)); return len(p), nil }
