package alerts_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/spillwayproject/spillway/alerts"
)

// What is embedded is every file of the two folders.
func TestEmbedded(t *testing.T) {
	for dir, fsys := range map[string]fs.FS{"global": alerts.Global(), "shard": alerts.Shard()} {
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) == 0 {
			t.Fatalf("%d files in %s: %v", len(entries), dir, err)
		}
		for _, e := range entries {
			want, err := os.ReadFile(filepath.Join(dir, e.Name()))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := fs.ReadFile(fsys, e.Name()); err != nil || string(got) != string(want) {
				t.Errorf("%s/%s is embedded as %d bytes, %v", dir, e.Name(), len(got), err)
			}
		}
	}
}
