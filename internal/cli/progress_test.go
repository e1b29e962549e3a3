package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestProgressInLines is what a log file or a CI sees: a line for each step's end, and for long
// ones a line every ten seconds.
func TestProgressInLines(t *testing.T) {
	var out strings.Builder
	p := newProgress(&out, false)
	now := time.Unix(0, 0)
	p.now = func() time.Time { return now }
	for _, s := range []struct {
		after       time.Duration
		step        string
		done, total int64
	}{
		{0, "inventory", 1, 0},
		{time.Second, "inventory", 5, 0},
		{9 * time.Second, "inventory", 50, 0},
		{time.Second, "inventory", 60, 0},
		{time.Second, "proof", 0, 200},
		{12 * time.Second, "proof", 100, 200},
		{time.Second, "proof", 200, 200},
	} {
		now = now.Add(s.after)
		p.at(s.step, s.done, s.total)
	}
	p.end()
	p.end()
	want := "inventory: 50 after 10s\ninventory: 60 in 12s\nproof: 100 of 200 (50 %) after 12s\nproof: 200 in 13s\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
}

func TestProgressQuiet(t *testing.T) {
	var out strings.Builder
	p := newProgress(&out, true)
	p.at("inventory", 1, 0)
	p.end()
	if out.Len() > 0 {
		t.Errorf("said %q", out.String())
	}
}

// TestProgressBar draws on a file that is taken for a terminal: the bar is there, and its goroutine
// ends with the step (goleak).
func TestProgressBar(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "screen"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p := newProgress(f, false)
	if p.terminal {
		t.Fatal("a file is no terminal")
	}
	p.terminal = true
	p.at("inventory", 10, 0)
	p.at("proof", 10, 20)
	p.at("proof", 20, 20)
	p.end()
	text, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"inventory 10", "proof 20 / 20", "100.00%"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q on the screen:\n%q", want, text)
		}
	}
}
