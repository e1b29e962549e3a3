package promfiles

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"
	"github.com/prometheus/prometheus/model/labels"
)

func TestLinkBlocksTakesBlocksOnly(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	id := ulid.MustNew(1, nil).String()
	for _, name := range []string{
		id + "/meta.json", id + "/chunks/000001", "wal/00000000", "lock", "notes/meta.json",
		id + ".tmp-for-deletion/meta.json",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(from, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(from, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// A half-made block of an earlier try is replaced.
	if err := os.MkdirAll(filepath.Join(to, id+".tmp-for-creation", "chunks", "000009"), 0o755); err != nil {
		t.Fatal(err)
	}
	ids, err := LinkBlocks(t.Context(), from, to)
	if err != nil || len(ids) != 1 || ids[0].String() != id {
		t.Fatalf("%v, %v", ids, err)
	}
	entries, err := os.ReadDir(to)
	if err != nil || len(entries) != 1 {
		t.Fatalf("%v, %v", entries, err)
	}
	if b, err := os.ReadFile(filepath.Join(to, id, "chunks", "000001")); err != nil || string(b) != id+"/chunks/000001" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := os.Stat(filepath.Join(to, id, "chunks", "000009")); err == nil {
		t.Error("the half-made block is in the whole one")
	}
}

func TestCopyFile(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	if err := os.WriteFile(from, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := copyFile(from, to); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(to); err != nil || string(b) != "x" {
		t.Errorf("%q, %v", b, err)
	}
	if err := copyFile(filepath.Join(dir, "none"), to); err == nil {
		t.Error("a file that is not there was copied")
	}
}

func TestWithExternalLabels(t *testing.T) {
	ab := labels.FromStrings("a", "$b")
	for _, tc := range []struct {
		text string
		ls   labels.Labels
		want string
	}{
		{"rubbish: [", labels.EmptyLabels(), "rubbish: ["},
		{"", ab, "global:\n    external_labels:\n        a: $$b\n"},
		{"global: {scrape_interval: 7s, external_labels: {c: d}}\nrule_files: [x]", ab, "global:\n    external_labels:\n        a: $$b\n    scrape_interval: 7s\nrule_files:\n    - x\n"},
		{"global:\n", ab, "global:\n    external_labels:\n        a: $$b\n"},
		{"rubbish: [", ab, "error: put external labels into the configuration: "},
		{"global: 7", ab, "error: put external labels into the configuration: its global section is not a map"},
	} {
		got, err := WithExternalLabels(tc.text, tc.ls)
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != tc.want && !(err != nil && strings.HasPrefix(got, tc.want)) {
			t.Errorf("%q\ngot  %q\nwant %q", tc.text, got, tc.want)
		}
	}
}
