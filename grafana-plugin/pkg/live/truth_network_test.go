package live

import (
	"math"
	"regexp"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/loadtest/cluster"
)

// notEthernet are interfaces that carry what others are counted for, or nothing of the machine's
// own.
var notEthernet = regexp.MustCompile(`^(lo|ib.*|bond.*|br.*|vlan.*|.*[.].*)$`)

func all(labels.Labels) bool { return true }

func isEthernet(l labels.Labels) bool { return !notEthernet.MatchString(l.Get("device")) }

// line is what one direction of a view is on a node's pages: the sum of the series of metric that
// keep chooses, or its rate of five minutes.
type line struct {
	job, metric string
	keep        func(labels.Labels) bool
	rate        bool
}

var networkTruth = map[string]map[string]line{
	"infiniband": {
		"received":    {cluster.JobNode, "node_infiniband_port_data_received_bytes_total", all, true},
		"transmitted": {cluster.JobNode, "node_infiniband_port_data_transmitted_bytes_total", all, true},
	},
	"ethernet": {
		"received":    {cluster.JobNode, "node_network_receive_bytes_total", isEthernet, true},
		"transmitted": {cluster.JobNode, "node_network_transmit_bytes_total", isEthernet, true},
	},
	"nvlink": {
		"received":    {cluster.JobDCGM, "DCGM_FI_PROF_NVLINK_RX_BYTES", all, false},
		"transmitted": {cluster.JobDCGM, "DCGM_FI_PROF_NVLINK_TX_BYTES", all, false},
	},
	"errors": {
		"link down":      {cluster.JobNode, "node_infiniband_link_downed_total", all, true},
		"link recovered": {cluster.JobNode, "node_infiniband_link_error_recovery_total", all, true},
		"received":       {cluster.JobNode, "node_infiniband_port_errors_received_total", all, true},
	},
}

func testNetwork(t *testing.T, s *stage) {
	for view, lines := range networkTruth {
		t.Run(view, func(t *testing.T) { s.network(t, view, lines) })
	}
}

// network compares a view: which lines there are, and some of the points of each.
func (s *stage) network(t *testing.T, view string, lines map[string]line) {
	got, must, may := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, p := range s.of(spread) {
		if p.Scheduled.IsZero() {
			continue
		}
		low, high := marks(p.Scheduled, p.Removed, s.from, s.until)
		for direction := range lines {
			k := p.cluster + "|" + p.Node + "|" + direction
			if low > 0 {
				must[k] = true
			}
			if high > 0 {
				may[k] = true
			}
		}
	}
	compared, most := 0, 0.0
	for _, f := range s.frames(t, `{"queryType":"network","view":"`+view+`","experiments":["`+spread+`"]}`) {
		l := f.Fields[1].Labels
		got[l["cluster"]+"|"+l["node"]+"|"+l["direction"]] = true
		truth, ok := lines[l["direction"]]
		if !ok {
			continue // between tells
		}
		for i := 20; i < f.Fields[0].Len(); i += 53 {
			at := f.Fields[0].At(i).(time.Time)
			v, _ := f.Fields[1].FloatAt(i)
			// A rate of five minutes ends at most an evaluation and a scrape before the point; a
			// reading is the last scrape's.
			reach, fine := late, 5*time.Second
			if truth.rate {
				reach, fine = every+3*late, 15*time.Second
			}
			low, high := math.Inf(1), math.Inf(-1)
			for back := time.Duration(0); back <= reach; back += fine {
				until := at.Add(-back)
				w, ok := s.sum(t, l["cluster"], l["node"], truth, until)
				if !ok {
					continue
				}
				if !truth.rate {
					low, high = min(low, w), max(high, w)
					continue
				}
				// The first sample of the window may come a scrape after its beginning: what rate()
				// extrapolates is the mean from there on. Which of a pair is read, and so when it
				// was scraped, is the proxy's to choose.
				for _, missed := range []time.Duration{0, late} {
					before, ok := s.sum(t, l["cluster"], l["node"], truth, until.Add(missed-5*time.Minute))
					if ok {
						mean := (w - before) / (5*time.Minute - missed).Seconds()
						low, high = min(low, mean), max(high, mean)
					}
				}
			}
			slack := 1e6 // of bytes a second; the curves of NVLink move a little between two looks
			if view == "errors" {
				slack = 0
			}
			if v < 0.97*low-slack || v > 1.03*high+slack {
				t.Errorf("%v at %s: %v, and in truth between %v and %v", l, at.UTC(), v, low, high)
			}
			compared++
			most = max(most, v)
		}
	}
	between(t, "lines", got, must, may)
	// Links of the model have no errors.
	if compared < 10 || (most == 0) != (view == "errors") {
		t.Errorf("%d points were compared, the largest of them %v", compared, most)
	}
}

// sum is that of what a line is made of, as a node's page has it at a moment; not ok where the page
// does not answer.
func (s *stage) sum(t *testing.T, name, node string, of line, at time.Time) (sum float64, ok bool) {
	t.Helper()
	for _, tg := range s.models[name].Targets() {
		if tg.Job != of.job || tg.Labels.Get("node") != node {
			continue
		}
		if err := s.models[name].Series(tg, at, func(l labels.Labels, v float64, _ metricType) {
			// from there on a reading is one of DCGM's signs for "no value"
			if l.Get("__name__") == of.metric && of.keep(l) && (of.rate || v < 1e14) {
				sum, ok = sum+v, true
			}
		}); err != nil {
			t.Logf("%s does not answer at %s: %v", node, at, err)
			return 0, false
		}
	}
	return sum, ok
}
