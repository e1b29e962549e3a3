package uses

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestLogOfNULs: NUL bytes, which a machine that died leaves, or somebody who cuts a log that is
// being written, end no reading: what follows them is read, and they are told.
func TestLogOfNULs(t *testing.T) {
	few, many := strings.Repeat("\x00", 499_993), strings.Repeat("\x00", maxLine+1<<20)
	a, b := asked(2*time.Hour, "query", "x"), asked(time.Hour, "query", "y")
	for name, tc := range map[string]struct{ text, told string }{
		"at the end":       {a + b + few, "1 stretch of NUL bytes"},
		"a line":           {few + "\n" + a + b, "1 stretch of NUL bytes"},
		"between":          {a + few + b, "1 stretch of NUL bytes"},
		"longer than such": {a + many + b + many, "2 stretches of NUL bytes"},
		"none":             {a + b, ""},
	} {
		set := new(Set)
		if err := Log(t.Context(), set, filepath.Join(folder(t, "u", tc.text), "u"), LogOptions{Now: logNow}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		told := slices.ContainsFunc(set.Warnings, func(w string) bool { return strings.Contains(w, "NUL") && strings.Contains(w, tc.told) })
		if told != (tc.told != "") || len(set.Uses) != 2 {
			t.Errorf("%s: %d uses, want 2; told %q", name, len(set.Uses), set.Warnings)
		}
	}
}
