package admit

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"
)

// BenchmarkLanes is how long ten light callers wait behind two thousand heavy calls that three
// addresses have queued: in order of arrival (one flow), with flows, and with a lane of their own.
// A heavy call holds its place for 20 ms, a light one for 1 ms; x-alone compares the light ones'
// 99th percentile, wait and call, with that of a call that does not wait.
func BenchmarkLanes(b *testing.B) {
	oncall := []Lane{{Name: "oncall", Share: 0.5}, {Name: "default", Share: 0.5}}
	for _, c := range []struct {
		name  string
		lanes []Lane
		flows bool
	}{{"arrival", nil, false}, {"flows", nil, true}, {"lanes", oncall, true}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				took := storm(NewGate(24, 20, c.lanes), c.flows)
				slices.Sort(took)
				b.ReportMetric(0, "ns/op")
				b.ReportMetric(took[len(took)*99/100].Seconds()*1000, "x-alone") // which takes 1 ms
			}
		})
	}
}

// storm is how long light calls took, each with its wait.
func storm(g *Gate, flows bool) (took []time.Duration) {
	var heavy, light sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	for i := range 2000 {
		heavy.Go(func() {
			a := Asker{Peer: fmt.Sprint("heavy ", i%3)}
			if flows {
				a.Flow = uint64(i % 3)
			}
			p, err := g.Wait(ctx, a, 1)
			if err == nil {
				time.Sleep(20 * time.Millisecond)
				g.Leave(&p, 1)
			}
		})
	}
	for {
		if n, _ := g.Waiting(); n >= 1900 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	var mu sync.Mutex
	for i := range 10 {
		light.Go(func() {
			a := Asker{Lane: "oncall", Peer: fmt.Sprint("light ", i)}
			if flows {
				a.Flow = uint64(100 + i)
			}
			for range 20 {
				began := time.Now()
				if p, err := g.Wait(ctx, a, 1); err == nil {
					waited := time.Since(began)
					time.Sleep(time.Millisecond)
					g.Leave(&p, 1)
					mu.Lock()
					took = append(took, waited+time.Millisecond)
					mu.Unlock()
				}
				time.Sleep(2 * time.Millisecond)
			}
		})
	}
	light.Wait()
	cancel()
	heavy.Wait()
	return took
}
