package canary

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
)

// usesShown is how many of those who look for something are named.
const usesShown = 5

// WriteText writes what people read: what is gone, what could not be asked, and with all also what
// was never there and what is there at times.
func (r *Report) WriteText(w io.Writer, all bool) error {
	var b strings.Builder
	for _, c := range r.Lost {
		fmt.Fprintf(&b, "LOST     %s: nothing at all is left of it; what its selectors find is not listed\n", c)
	}
	shown := []State{Gone, Unknown}
	if all {
		shown = append(shown, Never, Rare)
	}
	for _, f := range r.Findings {
		if !slices.Contains(shown, f.State) {
			continue
		}
		fmt.Fprintf(&b, "%-8s %s\n", strings.ToUpper(string(f.State)), f.Selector)
		switch {
		case f.State == Gone && f.Cluster != "":
			fmt.Fprintf(&b, "         in %s, where it found %d series a day ago\n", f.Cluster, f.Series)
		case f.State == Gone:
			fmt.Fprintf(&b, "         it found %d series a day ago\n", f.Series)
		case f.Why != "":
			fmt.Fprintf(&b, "         %s\n", f.Why)
		case f.Cluster != "":
			fmt.Fprintf(&b, "         in %s\n", f.Cluster)
		}
		more := ""
		if n := len(f.Uses) - usesShown; n > 0 {
			more = fmt.Sprintf(" and %d more", n)
		}
		fmt.Fprintf(&b, "         %s%s\n", strings.Join(f.Uses[:min(len(f.Uses), usesShown)], "; "), more)
	}
	fmt.Fprintf(&b, "%d selectors asked: %d gone, %d not known, %d never there in %d days, %d there at times", r.Selectors, r.Count(Gone),
		r.Count(Unknown), r.Count(Never), days, r.Count(Rare))
	if !all && r.Count(Never)+r.Count(Rare) > 0 {
		b.WriteString(" (--all lists them)")
	}
	if r.Skipped > 0 {
		fmt.Fprintf(&b, "; %d name no metric and were not asked", r.Skipped)
	}
	b.WriteString("\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// WriteJSON writes all of it.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// WriteMetrics writes what the textfile collector of node_exporter reads.
func (r *Report) WriteMetrics(w io.Writer) error {
	reg := prometheus.NewRegistry()
	selectors := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "spillway_canary_selectors",
		Help: "Selectors of alerts, recording rules and dashboards, by the cluster that is looked at and by what they find: found, gone, rare, and without a cluster never and unknown.",
	}, []string{"of_cluster", "state"})
	lost := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "spillway_canary_lost_clusters", Help: "Clusters of which no selector finds anything any more, and did on each of the last three days.",
	})
	last := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "spillway_canary_last_run_timestamp_seconds", Help: "When the canary asked last, Unix time.",
	})
	reg.MustRegister(selectors, lost, last)
	for _, c := range slices.Sorted(maps.Keys(r.Clusters)) {
		for _, s := range []State{Found, Gone, Rare, Never, Unknown} {
			if n := r.Clusters[c][s]; n > 0 || s == Gone {
				selectors.WithLabelValues(c, string(s)).Set(float64(n))
			}
		}
	}
	lost.Set(float64(len(r.Lost)))
	last.Set(float64(r.At.Unix()))
	families, err := reg.Gather()
	if err != nil {
		return err
	}
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(w, f); err != nil {
			return err
		}
	}
	return nil
}

// Err is the error of a report by which something is to be done; nil where nothing is.
func (r *Report) Err() error {
	var parts []string
	if n := r.Count(Gone); n > 0 {
		parts = append(parts, fmt.Sprintf("%d selectors find nothing any more", n))
	}
	if n := len(r.Lost); n > 0 {
		parts = append(parts, fmt.Sprintf("nothing is left of %s", strings.Join(r.Lost, ", ")))
	}
	if n := r.Count(Unknown); n > 0 {
		parts = append(parts, fmt.Sprintf("%d could not be asked", n))
	}
	if len(parts) == 0 {
		return nil
	}
	return errors.New(strings.Join(parts, ", "))
}
