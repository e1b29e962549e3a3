package deny

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestBrokenFile: what is no file of rules is put aside, and the table goes on without; where
// nothing can be written, a rule is in force all the same.
func TestBrokenFile(t *testing.T) {
	for _, text := range []string{
		"", "[]", "{", `{"version":2,"rules":[]}`, `{"version":1,"more":1}`,
	} {
		path := filepath.Join(t.TempDir(), "deny.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var table Table
		if err := table.Open(path, now); err == nil || !strings.Contains(err.Error(), path+".broken") {
			t.Errorf("%q: %v", text, err)
		}
		if kept, err := os.ReadFile(path + ".broken"); err != nil || string(kept) != text {
			t.Errorf("%q was lost: %v", text, err)
		}
		if err := table.Add(Rule{Name: "a", Reason: "b", User: "ann"}, API, now); err != nil {
			t.Error(err)
		}
	}
	var table Table
	if err := table.Open(filepath.Join(t.TempDir(), "gone", "deny.json"), now); err != nil {
		t.Fatal(err)
	}
	var file *FileError
	if err := table.Add(Rule{Name: "a", Reason: "b", User: "ann"}, API, now); !errors.As(err, &file) {
		t.Errorf("a rule that is not kept: %v", err)
	}
	if table.Look(subject(t), now).Rule == nil {
		t.Error("it is not in force")
	}
}

// TestFull: there are so many rules and no more, and those that have ended make room.
func TestFull(t *testing.T) {
	var table Table
	for i := range MaxRegexes {
		if err := table.Add(Rule{Name: fmt.Sprint("x", i), Reason: "b", Regex: "a"}, API, now); err != nil {
			t.Fatal(err)
		}
	}
	if err := table.Add(Rule{Name: "y", Reason: "b", Regex: "a"}, API, now); !errors.Is(err, ErrFull) {
		t.Error(err)
	}
	for i := range MaxRules - MaxRegexes {
		if err := table.Add(Rule{Name: fmt.Sprint("r", i), Reason: "b", User: "a", Until: now.Add(time.Hour)}, API, now); err != nil {
			t.Fatal(err)
		}
	}
	one := Rule{Name: "z", Reason: "b", User: "a"}
	if err := table.Add(one, API, now); !errors.Is(err, ErrFull) {
		t.Error(err)
	}
	if err := table.Add(one, API, now.Add(time.Hour)); err != nil {
		t.Error(err)
	}
	if n := table.Count(now.Add(time.Hour)); n[API] != MaxRegexes+1 || n[Config] != 0 {
		t.Errorf("%v", n)
	}
}

// TestFullOfCrashes: what was under way at many kills takes no place of rules that are added, nor
// theirs of it; of rules of old kills the one that ended first gives way to a new one, and of those
// in force none.
func TestFullOfCrashes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deny.json")
	var table Table
	crash := func(i int) Rule {
		return Rule{Name: fmt.Sprint("c", i), Reason: "b", Digest: fmt.Sprint(i), Until: now.Add(time.Duration(i) * time.Second)}
	}
	for i := range MaxRules {
		if err := table.Add(crash(i), Crash, now); err != nil {
			t.Fatal(err)
		}
	}
	if err := table.Open(path, now); err != nil {
		t.Fatal(err)
	}
	if err := table.Add(crash(MaxRules), Crash, now.Add(-time.Second)); !errors.Is(err, ErrFull) {
		t.Errorf("one more, while all are in force: %v", err)
	}
	if err := table.Add(Rule{Name: "mine", Reason: "b", User: "ann"}, API, now); err != nil {
		t.Errorf("a rule of one's own: %v", err)
	}
	if err := table.Add(crash(MaxRules), Crash, now.Add(time.Minute)); err != nil {
		t.Errorf("one more, where some have ended: %v", err)
	}
	var again Table
	if err := again.Open(path, now); err != nil {
		t.Fatal(err)
	}
	for name, table := range map[string]*Table{"the table": &table, "the next start's": &again} {
		if n := table.Count(now.Add(-time.Second)); n[Crash] != MaxRules || n[API] != 1 {
			t.Errorf("%s has %v", name, n)
		}
		has := map[string]bool{}
		for _, e := range table.List(now.Add(-time.Second)) {
			has[e.Name] = true
		}
		if has["c0"] || !has["c1"] || !has[fmt.Sprint("c", MaxRules)] {
			t.Errorf("%s has c0 %t, c1 %t, the new one %t", name, has["c0"], has["c1"], has[fmt.Sprint("c", MaxRules)])
		}
	}
}

// TestUnreadableFile: a file that cannot be read now is left for the next start, and nothing is
// written over it; which is said of each rule.
func TestUnreadableFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deny.json")
	mine := Rule{Name: "a", Reason: "b", User: "ann"}
	var before Table
	if err := before.Open(path, now); err != nil {
		t.Fatal(err)
	}
	if err := before.Add(mine, API, now); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, path+".real"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o700); err != nil { // which nobody can read as a file, root neither
		t.Fatal(err)
	}
	var table Table
	if err := table.Open(path, now); err == nil || !strings.Contains(err.Error(), "left for the next one") {
		t.Errorf("%v", err)
	}
	var file *FileError
	err := table.Add(Rule{Name: "c", Reason: "b", User: "ann"}, API, now)
	if !errors.As(err, &file) || !strings.Contains(err.Error(), "could not be read") || table.Look(subject(t), now).Rule == nil {
		t.Errorf("a rule that is in force and not kept: %v", err)
	}
	if err := os.Remove(path); err != nil { // it is still there, and empty
		t.Fatal(err)
	}
	if err := os.Rename(path+".real", path); err != nil {
		t.Fatal(err)
	}
	var after Table
	if err := after.Open(path, now); err != nil || len(after.List(now)) != 1 || after.List(now)[0].Name != "a" {
		t.Errorf("the next start: %v, %v", err, after.List(now))
	}
}

// TestPutAsideTwice: what was put aside before is not lost by what is put aside now.
func TestPutAsideTwice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deny.json")
	for i := range maxAside + 1 {
		if err := os.WriteFile(path, []byte(fmt.Sprint("broken ", i)), 0o600); err != nil {
			t.Fatal(err)
		}
		var table Table
		if err := table.Open(path, now); err == nil {
			t.Errorf("%d: nothing is said", i)
		}
		var file *FileError
		err := table.Add(Rule{Name: "a", Reason: "b", User: "ann"}, API, now)
		if full := i == maxAside; errors.As(err, &file) != full {
			t.Errorf("%d: %v", i, err)
		}
	}
	files, err := filepath.Glob(path + ".broken*")
	if err != nil || len(files) != maxAside {
		t.Errorf("%v, %v", files, err)
	}
	for i, name := range append([]string{path + ".broken"}, path+".broken.1", path+".broken.9") {
		want := []string{"broken 0", "broken 1", "broken 9"}[i]
		if text, err := os.ReadFile(name); err != nil || string(text) != want {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
}
