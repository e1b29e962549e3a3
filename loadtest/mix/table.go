package mix

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// WriteMarkdown writes the tables: each load, its queries, the great many series, the goals.
func (r *Result) WriteMarkdown(w io.Writer) error {
	var sb strings.Builder
	hints := "told which shard holds which node (shard_by, hashmod)"
	if !r.Hints {
		hints = "not told which shard holds what"
	}
	fmt.Fprintf(&sb, "%d series (%d buckets), %d nodes, %d samples; %d shards, Spillway %s; %d rounds of %d requests on each path. %s.\n", r.Series, r.Buckets, r.Nodes, r.Samples, r.Shards, hints, r.Rounds, r.Requests, r.Machine)
	for i := range r.Loads {
		r.Loads[i].markdown(&sb)
	}
	if r.Bulk != nil {
		r.Bulk.markdown(&sb)
	}
	sb.WriteString("\n| goal | figure | bound | reached | |\n| --- | --- | --- | --- | --- |\n")
	for _, g := range r.Goals {
		fmt.Fprintf(&sb, "| %s | %s | %s | %s | %s |\n", g.Name, g.number(g.Figure), g.number(g.Bound), yes(g.Reached), g.Why)
	}
	for _, wrong := range r.Wrong {
		fmt.Fprintf(&sb, "\nWRONG: %s\n", wrong)
	}
	_, err := io.WriteString(w, sb.String())
	return err
}

func (g Goal) number(v float64) string {
	switch g.Unit {
	case "":
		return fmt.Sprintf("%.0f", v)
	case "MiB":
		return fmt.Sprintf("%.0f MiB", v)
	}
	return fmt.Sprintf("%.2f %s", v, g.Unit)
}

// known writes a figure that is there only where a process could be looked at.
func known(format string, v float64) string {
	if v == 0 {
		return "-"
	}
	return fmt.Sprintf(format, v)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "NO"
}

func (l *Load) markdown(sb *strings.Builder) {
	fmt.Fprintf(sb, "\n%d at a time:\n\n| path | p50 ms | p99 ms | p50 / direct | geometric mean / direct | requests/s | CPU s per 1,000: proxy | servers | together | proxy / ReverseProxy | peak RSS MiB | failed |\n", l.Concurrency)
	sb.WriteString("| --- " + strings.Repeat("| --- ", 11) + "|\n")
	for _, p := range l.Paths {
		fmt.Fprintf(sb, "| %s | %.2f | %.1f | %.2f | %.2f | %.0f | %s | %.2f | %.2f | %s | %s | %d |\n",
			p.Name, p.P50, p.P99, p.P50Ratio, p.GeoMean, p.PerSecond, known("%.2f", p.ProxyCPU), p.ServersCPU, p.ProxyCPU+p.ServersCPU,
			known("%.2f", p.ReverseCPU), known("%.0f", p.PeakMiB), p.Failed)
	}
	sb.WriteString("\n| p50 in ms (ratio to direct) | shards ")
	for _, p := range l.Paths {
		sb.WriteString("| " + p.Name + " ")
	}
	sb.WriteString("|\n| --- | --- " + strings.Repeat("| --- ", len(l.Paths)) + "|\n")
	for i, q := range l.Paths[0].Queries {
		fmt.Fprintf(sb, "| %s | %s ", q.Name, q.Shards)
		for _, p := range l.Paths {
			if p.Name == Direct {
				fmt.Fprintf(sb, "| %.2f ", p.Queries[i].P50)
				continue
			}
			fmt.Fprintf(sb, "| %.2f (%.2f) ", p.Queries[i].P50, p.Queries[i].Ratio)
		}
		sb.WriteString("|\n")
	}
	for _, p := range l.Paths {
		if p.Error != "" {
			fmt.Fprintf(sb, "\n%s failed: %s\n", p.Name, p.Error)
		}
	}
}

func (b *Bulk) markdown(sb *strings.Builder) {
	fmt.Fprintf(sb, "\n`%s` over an hour: %d series, %d points, %.1f MB:\n\n| path | s | CPU s of the proxy | idle RSS MiB | peak over idle MiB |\n| --- | --- | --- | --- | --- |\n", b.Query, b.Series, b.Points, float64(b.Bytes)/1e6)
	for _, p := range b.Paths {
		over := "-"
		if p.IdleMiB > 0 { // over it may well be 0
			over = fmt.Sprintf("%.0f", p.OverIdleMiB)
		}
		fmt.Fprintf(sb, "| %s | %.2f | %s | %s | %s |\n", p.Name, p.Seconds, known("%.2f", p.ProxyCPU), known("%.0f", p.IdleMiB), over)
	}
	fmt.Fprintf(sb, "| the slowest shard, asked alone | %.2f | | | |\n| the slowest shard, all asked at once | %.2f | | | |\n", b.SlowestAlone, b.SlowestAtOnce)
	for _, f := range b.Failed {
		fmt.Fprintf(sb, "\nfailed: %s\n", f)
	}
}

// Save writes mix.md, mix.json, mix.svg and mix.png into dir, which is made where it is missing.
func (r *Result) Save(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("save the result: %w", err)
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("save the result: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "mix.json"), append(text, '\n'), 0o666); err != nil {
		return fmt.Errorf("save the result: %w", err)
	}
	for name, write := range map[string]func(io.Writer) error{"mix.md": r.WriteMarkdown, "mix.svg": r.WriteSVG, "mix.png": r.WritePNG} {
		var sb strings.Builder
		if err := write(&sb); err != nil {
			return fmt.Errorf("save %s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(sb.String()), 0o666); err != nil {
			return fmt.Errorf("save the result: %w", err)
		}
	}
	return nil
}
