package discovery

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/discovery/targetgroup"
)

// TestFilesGone: files that come and go, as a controller writes one for each server, leave nothing
// behind; an empty one that is there stays one that was read.
func TestFilesGone(t *testing.T) {
	dir := t.TempDir()
	s := sourceOf(t, fmt.Sprintf("{files: [%q], relabel_configs: [{source_labels: [__address__], target_label: __spillway_shard__}]}", filepath.Join(dir, "*.yml")))
	tell := func(name, address string) {
		g := &targetgroup.Group{Source: name + ":0"}
		if address != "" {
			g.Targets = []model.LabelSet{{model.AddressLabel: model.LabelValue(address)}}
		}
		s.take([]*targetgroup.Group{g})
	}
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	tell(write("stays.yml", "- targets: [stays:9090]\n"), "stays:9090")
	empty := write("empty.yml", "# to be written\n")
	tell(empty, "")
	for i := range 30 {
		address := fmt.Sprintf("pod-%d:9090", i)
		path := write(fmt.Sprintf("pod-%d.yml", i), fmt.Sprintf("- targets: [%s]\n", address))
		tell(path, address)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		tell(path, "")
	}
	if n := len(s.groups); n != 2 || !s.isRead(empty) || !s.answered() || s.missing() != "" {
		t.Errorf("%d groups are held for 2 files; missing: %q", n, s.missing())
	}
}
