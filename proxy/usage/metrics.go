package usage

import "github.com/prometheus/client_golang/prometheus"

// Metrics count what became of lines. They outlive a Log, so that a reload that opens another one
// does not set them back.
type Metrics struct {
	lines, dropped, shortened, errors prometheus.Counter
}

// NewMetrics returns metrics registered with reg, which may be nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		lines: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillway_usage_log_lines_total",
			Help: "Lines written to the usage log.",
		}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillway_usage_log_dropped_total",
			Help: "Lines that were not written to the usage log, because the disk was too slow or refused them.",
		}),
		shortened: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillway_usage_log_shortened_total",
			Help: "Lines of the usage log without what makes them long, since their caller had had its share of it.",
		}),
		errors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "spillway_usage_log_errors_total",
			Help: "Failed attempts to open, write or rotate the usage log.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.lines, m.dropped, m.shortened, m.errors)
	}
	return m
}
