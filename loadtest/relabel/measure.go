package relabel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"text/tabwriter"
	"time"
)

// What is to be reached at the largest size.
const (
	MaxTime   = 5 * time.Minute
	MaxMemory = 4 << 30 // bytes, resident at most
)

// MeasureOptions say what is measured.
type MeasureOptions struct {
	// Program is the spillway binary.
	Program string
	// Sizes are the numbers of series, one plan each.
	Sizes []int
	// Options are those of the data; Series is set by Sizes.
	Options Options
	// Dir is where data is made and removed again: about 300 bytes for each series. The temporary
	// folder where it is empty.
	Dir string
	// Say is told what happens, one line each; nil is nobody.
	Say func(format string, args ...any)
}

// Measured is one plan.
type Measured struct {
	Series int `json:"series"`
	// Took is the wall time of the whole command, CPU its processor time, both in seconds;
	// PeakBytes its largest resident memory.
	Took      float64 `json:"took_s"`
	CPU       float64 `json:"cpu_s"`
	PeakBytes int64   `json:"peak_bytes"`
	// Rules and Dropped are what it proposes.
	Rules   int   `json:"rules"`
	Dropped int64 `json:"dropped"`
	// Blocks is how many bytes the blocks have on disk.
	Blocks int64 `json:"blocks_bytes"`
}

// Measure makes each size's data and runs `spillway relabel plan` on it, as a process of its own,
// replay included.
func Measure(ctx context.Context, o MeasureOptions) (out []Measured, err error) {
	if o.Say == nil {
		o.Say = func(string, ...any) {}
	}
	for _, size := range o.Sizes {
		m, err := o.measure(ctx, size)
		if err != nil {
			return out, fmt.Errorf("%d series: %w", size, err)
		}
		out = append(out, *m)
	}
	return out, nil
}

func (o MeasureOptions) measure(ctx context.Context, size int) (_ *Measured, err error) {
	dir, err := os.MkdirTemp(o.Dir, "spillway-relabel-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	data, looked := filepath.Join(dir, "data"), filepath.Join(dir, "uses")
	opts := o.Options
	opts.Series = size
	began := time.Now()
	if err := errors.Join(MakeBlocks(ctx, data, opts), MakeUses(looked, opts)); err != nil {
		return nil, err
	}
	m := &Measured{Series: size}
	if err := filepath.WalkDir(data, func(_ string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			m.Blocks += info.Size()
		}
		return err
	}); err != nil {
		return nil, err
	}
	o.Say("%d series made in %s, %d MiB", size, time.Since(began).Round(time.Second), m.Blocks>>20)
	opts, err = opts.complete()
	if err != nil {
		return nil, err
	}
	plan := filepath.Join(dir, "plan.json")
	cmd := exec.CommandContext(ctx, o.Program, "relabel", "plan", "--scrape="+data, "--dashboards="+filepath.Join(looked, "dashboards"),
		"--usage="+filepath.Join(looked, "usage.jsonl"),
		"--now="+opts.Now.Format(time.RFC3339), "--window=30d", "--quiet", "--out="+plan)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	began = time.Now()
	text, err := cmd.CombinedOutput()
	m.Took = time.Since(began).Seconds()
	if err != nil {
		return nil, fmt.Errorf("spillway relabel plan: %w\n%s", err, text)
	}
	o.Say("%s", text)
	m.CPU = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds()
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		m.PeakBytes = usage.Maxrss << 10 // Linux counts KiB
	}
	body, err := os.ReadFile(plan)
	if err != nil {
		return nil, err
	}
	var got struct {
		Rules   []struct{}
		Stored  struct{ Series int64 }
		Dropped struct{ Series int64 }
	}
	if err := json.Unmarshal(body, &got); err != nil {
		return nil, err
	}
	if got.Stored.Series != int64(size) {
		return nil, fmt.Errorf("the plan saw %d series", got.Stored.Series)
	}
	m.Rules, m.Dropped = len(got.Rules), got.Dropped.Series
	return m, nil
}

// WriteTable writes the figures, and whether the last one keeps the bounds.
func WriteTable(w io.Writer, all []Measured) error {
	t := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	fmt.Fprint(t, "| series\t| blocks MiB\t| s\t| CPU s\t| peak RSS MiB\t| bytes of memory a series\t| rules\t| series dropped\t|\n| ---\t| ---\t| ---\t| ---\t| ---\t| ---\t| ---\t| ---\t|\n")
	for _, m := range all {
		fmt.Fprintf(t, "| %d\t| %d\t| %.0f\t| %.0f\t| %d\t| %d\t| %d\t| %d\t|\n", m.Series, m.Blocks>>20, m.Took, m.CPU, m.PeakBytes>>20, m.PeakBytes/int64(max(1, m.Series)), m.Rules, m.Dropped)
	}
	if err := t.Flush(); err != nil || len(all) == 0 {
		return err
	}
	last := all[len(all)-1]
	word := map[bool]string{true: "reached", false: "NOT reached"}
	_, err := fmt.Fprintf(w, "\nAt %d series: %.0f s, bound %.0f s, %s; %d MiB, bound %d MiB, %s.\n", last.Series,
		last.Took, MaxTime.Seconds(), word[last.Took <= MaxTime.Seconds()], last.PeakBytes>>20, MaxMemory>>20,
		word[last.PeakBytes <= MaxMemory])
	return err
}
