package inventory

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// write writes a file below dir.
func write(t testing.TB, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// read is what a source has, one line a series, sorted; a series that comes twice stands there
// twice.
func read(t testing.TB, src Source) []string {
	t.Helper()
	var out []string
	if err := src.Scan(t.Context(), func(s *Series) error { out = append(out, describe(s)); return nil }); err != nil {
		t.Fatal(err)
	}
	slices.Sort(out)
	return out
}

func describe(s *Series) string {
	line := s.Labels.String() + " " + string(s.Type)
	if s.Native {
		line += " native"
	}
	if s.Interval > 0 {
		line += " " + s.Interval.String()
	}
	return line
}

func sameLines(t testing.TB, got, want []string) {
	t.Helper()
	if slices.Equal(got, want) {
		return
	}
	for _, g := range got {
		if !slices.Contains(want, g) {
			t.Errorf("too much: %s", g)
		}
	}
	for _, w := range want {
		if !slices.Contains(got, w) {
			t.Errorf("missing: %s", w)
		}
	}
	if !t.Failed() {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// fixed is a source of given series.
type fixed []Series

func (f fixed) String() string { return fmt.Sprintf("%d series", len(f)) }

func (f fixed) Scan(ctx context.Context, yield func(*Series) error) error {
	for i := range f {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		s := f[i]
		if err := yield(&s); err != nil {
			return err
		}
	}
	return nil
}

// reused hands on labels whose memory it writes over with the next ones, as blocks do.
type reused struct{ n int }

func (r reused) String() string { return "reused" }

func (r reused) Scan(_ context.Context, yield func(*Series) error) error {
	b := labels.NewScratchBuilder(4)
	var s Series
	for i := range r.n {
		b.Reset()
		b.Add("__name__", "m")
		b.Add("job", "j")
		b.Add("v", strconv.Itoa(i%7))
		b.Overwrite(&s.Labels)
		if err := yield(&s); err != nil {
			return err
		}
	}
	b.Reset()
	b.Add("__name__", "X")
	b.Add("xxx", "Y")
	b.Overwrite(&s.Labels)
	return nil
}
