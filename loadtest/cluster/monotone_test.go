package cluster

import (
	"testing"
	"time"
)

// TestBucketsRiseTogether: between two scrapes no bucket gains more than a larger one, whatever
// goes wrong. Rounding each bucket by itself would, and Prometheus then says that it had to mend
// the histogram.
func TestBucketsRiseTogether(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	m, err := New(Options{Nodes: 4, Start: start.Add(-48 * time.Hour), Exporters: AllExporters, Troubles: []Trouble{
		{Kind: APISlow, Target: WholeCluster, Value: 2, From: start.Add(10 * time.Minute), Until: start.Add(30 * time.Minute)},
		{Kind: APIErrors, Target: WholeCluster, From: start.Add(20 * time.Minute), Until: start.Add(40 * time.Minute)},
		{Kind: DNSSlow, Target: WholeCluster, From: start.Add(15 * time.Minute), Until: start.Add(35 * time.Minute)},
		{Kind: EtcdFsyncSlow, Target: "10.0.0.10:2381", From: start.Add(5 * time.Minute), Until: start.Add(25 * time.Minute)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	histograms := 0
	for _, job := range []string{JobAPIServer, JobEtcd, JobCoreDNS, JobAutoscaler, JobPrometheus} {
		for i := range m.targets {
			if m.targets[i].Job != job || m.targets[i].ord > 0 {
				continue
			}
			last := map[string][]float64{}
			for at := start; at.Before(start.Add(45 * time.Minute)); at = at.Add(time.Minute) {
				p, err := m.pageAt(m.targets[i], at.UnixMilli())
				if err != nil {
					t.Fatal(err)
				}
				now := map[string][]float64{}
				p.collect(familiesOf(job, Lean), func(s *series) {
					if n := len(s.pairs); n > 1 && s.pairs[n-2] == "le" {
						key := s.name
						for _, x := range s.pairs[:n-2] {
							key += "/" + x
						}
						now[key] = append(now[key], s.curve.at(at.UnixMilli()))
					}
				})
				histograms = max(histograms, len(now))
				for key, values := range now {
					before := last[key]
					if len(before) != len(values) {
						continue
					}
					for n := 1; n < len(values); n++ {
						if small, large := values[n-1]-before[n-1], values[n]-before[n]; small > large {
							t.Fatalf("%s at %s: bucket %d gains %v, and the next larger one %v", key, at.Sub(start), n-1, small, large)
						}
					}
				}
				last = now
			}
		}
	}
	if histograms < 10 {
		t.Errorf("%d histograms were looked at", histograms)
	}
}
