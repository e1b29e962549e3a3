package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/proxy/usage"
)

// TestUsageWhileItIsWritten: of a log that is rotated and written to while it is read comes what
// was there when it was opened, without a line that is half written.
func TestUsageWhileItIsWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "usage.jsonl")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(path+".1", "1\n")
	write(path, "2\n3")
	parts, err := usage.OpenParts(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, move := range [][2]string{{path + ".1", path + ".2"}, {path, path + ".1"}} {
		if err := os.Rename(move[0], move[1]); err != nil {
			t.Fatal(err)
		}
	}
	write(path, "4\n")
	var out strings.Builder
	for _, p := range parts {
		if err := wholeLines(&out, p.ReadCloser); err != nil {
			t.Error(err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	if out.String() != "1\n2\n" {
		t.Errorf("it printed %q", out.String())
	}
}
