package emit

import (
	"bufio"
	"fmt"
	"io"
	"time"

	"github.com/spillwayproject/spillway/relabel"
)

// Prometheus writes one YAML document for each job that has rules: its metric_relabel_configs, to
// be put into the job's scrape_configs entry, behind the rules that it has; Merge does that. Jobs
// are sorted. Each rule asks for its job, since nobody knows here where it will stand. Nothing is
// written when a rule is refused.
func Prometheus(p *relabel.Plan, w io.Writer) error {
	jobs, err := byJob(p)
	if err != nil {
		return err
	}
	var out []string
	out = append(out, header(p)...)
	if len(jobs) > 0 {
		out = append(out, "# They go last in each list, behind the rules that the job has: they were proven for what comes out of those.")
	}
	for _, j := range jobs {
		out = append(out, "---", "# job: "+comment(j.job))
		if line := share(p, j.job); line != "" {
			out = append(out, line)
		}
		out = append(out, "metric_relabel_configs:")
		for _, r := range j.rules {
			block, err := ruleBlock(r, p.Owner, false)
			if err != nil {
				return err
			}
			for _, line := range block {
				out = append(out, "  "+line)
			}
		}
	}
	return write(w, out)
}

// header says what the rules were made of.
func header(p *relabel.Plan) []string {
	shown := "each with a proof that no known use changes beyond the risk that stands above it"
	if why := p.Unproven(); why != "" {
		shown = "each held against every series; " + why
	}
	lines := []string{
		fmt.Sprintf("# Drop rules of the plan of %s, written by `spillway relabel emit`.", p.Made.UTC().Format(time.RFC3339)),
		fmt.Sprintf("# They drop %d of %s, %s.", p.Dropped.Series, plural(p.Stored.Series, "series", "series"), shown),
	}
	if p.Owner != "" {
		lines = append(lines, "# Owner: "+comment(p.Owner)+".")
	}
	for _, a := range p.Alarms {
		lines = append(lines, "# ATTENTION: "+comment(a))
	}
	if len(p.Rules) == 0 {
		lines = append(lines, "# The plan has no rules: nothing goes.")
	}
	return lines
}

func share(p *relabel.Plan, job string) string {
	for _, j := range p.Jobs {
		if j.Job == job && j.Stored.Series > 0 {
			return fmt.Sprintf("# %d of %s go.", j.Dropped.Series, plural(j.Stored.Series, "series", "series"))
		}
	}
	return ""
}

func write(w io.Writer, lines []string) error {
	b := bufio.NewWriter(w)
	for _, l := range lines {
		b.WriteString(l)
		b.WriteByte('\n')
	}
	if err := b.Flush(); err != nil {
		return fmt.Errorf("write the rules: %w", err)
	}
	return nil
}
