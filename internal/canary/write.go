package canary

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/spillwayproject/spillway/internal/clip"
)

// someShown is how many of the clusters that lack something are named, and of those who look for
// it.
const someShown = 5

// WriteText writes what people read: what is gone, what could not be asked, and with all also what
// was never there and what is there at times.
func (r *Report) WriteText(w io.Writer, all bool) error {
	var b strings.Builder
	for _, c := range r.Lost {
		fmt.Fprintf(&b, "LOST     %s: nothing at all is left of it; what its selectors find is not listed\n", plain(c))
	}
	shown := []State{Gone, Unknown}
	if all {
		shown = append(shown, Never, Rare)
	}
	for left := r.Findings; len(left) > 0; {
		n := 1 // findings of one selector in several clusters
		for n < len(left) && left[n].Selector == left[0].Selector && left[n].State == left[0].State && left[n].Why == left[0].Why {
			n++
		}
		if slices.Contains(shown, left[0].State) {
			write(&b, left[:n])
		}
		left = left[n:]
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
	if r.Young && r.Blind() == "" {
		fmt.Fprintf(&b, "Nothing was there on %d days in a row before today, so nothing can be called gone: the servers are new, or keep less than %d days.\n", steady, steady+1)
	}
	if r.Unlabelled {
		b.WriteString("No series has the label of --cluster-label: all of it was taken for one cluster.\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// write writes the findings of one selector.
func write(b *strings.Builder, all []Finding) {
	f := all[0]
	fmt.Fprintf(b, "%-8s %s\n", strings.ToUpper(string(f.State)), plain(f.Selector))
	names, series, ago := []string{}, int64(0), f.DaysAgo
	for _, f := range all {
		series, ago = series+f.Series, min(ago, f.DaysAgo)
		if f.Cluster != "" {
			names = append(names, plain(f.Cluster))
		}
	}
	when := "a day ago"
	if ago > 1 {
		when = fmt.Sprintf("%d days ago", ago)
	}
	var said []string
	switch {
	case len(names) == 1:
		said = append(said, "in "+names[0])
	case len(names) > 1:
		said = append(said, fmt.Sprintf("in %d clusters: %s", len(names), some(names, ", ")))
	}
	switch {
	case f.State == Gone && len(said) > 0:
		said[0] += fmt.Sprintf(", where it found %d series %s", series, when)
	case f.State == Gone:
		said = append(said, fmt.Sprintf("it found %d series %s", series, when))
	case f.Why != "":
		said = append(said, plain(f.Why))
	}
	uses := make([]string, len(f.Uses))
	for i, u := range f.Uses {
		uses[i] = plain(u)
	}
	for _, line := range append(said, some(uses, "; ")) {
		fmt.Fprintf(b, "         %s\n", line)
	}
}

// some are the first of the texts, and how many more there are.
func some(all []string, between string) string {
	text := strings.Join(all[:min(len(all), someShown)], between)
	if n := len(all) - someShown; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}

// plain is a text that somebody else wrote as it may stand on a terminal: short, and quoted where
// it has anything that would move the cursor.
func plain(s string) string {
	s = clip.Text(s, 300)
	if strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// WriteJSON writes all of it.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// WriteMetrics writes what the textfile collector of node_exporter reads. Of a Blind report nobody
// should read it.
func (r *Report) WriteMetrics(w io.Writer) error {
	reg := prometheus.NewRegistry()
	selectors := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "spillway_canary_selectors",
		Help: "Selectors of alerts, recording rules and dashboards, by the cluster that is looked at and by what they find: found, gone, rare, and without a cluster never and unknown.",
	}, []string{"of_cluster", "state"})
	lost := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "spillway_canary_lost_clusters", Help: "Clusters of which no selector finds anything any more, and did on three days in a row.",
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
	if why := r.Blind(); why != "" {
		return errors.New(why)
	}
	if n := r.Count(Gone); n > 0 {
		parts = append(parts, fmt.Sprintf("%d selectors find nothing any more", n))
	}
	if len(r.Lost) > 0 {
		names := make([]string, len(r.Lost))
		for i, c := range r.Lost {
			names[i] = plain(c)
		}
		parts = append(parts, "nothing is left of "+some(names, ", "))
	}
	if n := r.Count(Unknown); n > 0 {
		parts = append(parts, fmt.Sprintf("%d could not be asked", n))
	}
	if len(parts) == 0 {
		return nil
	}
	return errors.New(strings.Join(parts, ", "))
}
