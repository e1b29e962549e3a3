package soak

import (
	"io/fs"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/spillwayproject/spillway/internal/randseed"
	"github.com/spillwayproject/spillway/loadtest/cluster"
)

// few are rule files by name, for soaks that look at one alert; what they read is in all -rules.
func few(t *testing.T, edit map[string]func(text string) string) Rules {
	t.Helper()
	read := func(files fs.FS, keep func(name string) bool) fstest.MapFS {
		out := fstest.MapFS{}
		names, err := fs.Glob(files, "*.yaml")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if !keep(name) {
				continue
			}
			text, err := fs.ReadFile(files, name)
			if err != nil {
				t.Fatal(err)
			}
			if f := edit[name]; f != nil {
				changed := f(string(text))
				if changed == string(text) {
					t.Fatalf("%s: the edit changes nothing", name)
				}
				text = []byte(changed)
			}
			out[name] = &fstest.MapFile{Data: text}
		}
		return out
	}
	all := shipped()
	return Rules{
		Global: read(all.Global, func(n string) bool { return strings.HasSuffix(n, "-rules.yaml") || edit[n] != nil }),
		Shard:  read(all.Shard, func(n string) bool { return strings.HasSuffix(n, "-rules.yaml") }),
	}
}

// TestSoakSeesFaults: rules that are wrong are found to be.
func TestSoakSeesFaults(t *testing.T) {
	seed := randseed.Of(t, *seed)
	soak := func(t *testing.T, r Rules) *Report {
		t.Helper()
		o := Options{
			Rules: r, Seed: seed, Severities: []string{"auto"}, Length: 6 * time.Hour,
			Cluster: cluster.Options{Nodes: 4, GPUsPerNode: 2},
		}
		o.only = func(s *sort) bool { return s.name == "full disk" }
		rep, err := Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		return rep
	}
	disks := func(from, to string) Rules {
		return few(t, map[string]func(string) string{"node.yaml": func(text string) string {
			return regexp.MustCompile(from).ReplaceAllString(text, to)
		}})
	}
	full := `(node:filesystem_used:ratio\{mountpoint=~"[^"]*"\}) > 0\.95`
	of := func(r *Report, alert string) (false_, missed int) {
		for _, f := range r.False("auto") {
			if f.Alert() == alert {
				false_++
			}
		}
		for _, m := range r.Missed {
			if m.Alert == alert {
				missed++
			}
		}
		return false_, missed
	}
	t.Run("as they are", func(t *testing.T) {
		r := soak(t, few(t, map[string]func(string) string{"node.yaml": func(text string) string { return text + "\n# \n" }}))
		if len(r.incidents) == 0 {
			t.Fatal("nothing was staged")
		}
		if f, m := of(r, "NodeFilesystemFull"); f+m > 0 {
			t.Errorf("%d false, %d missed:\n%s", f, m, r)
		}
	})
	t.Run("fires always", func(t *testing.T) {
		r := soak(t, disks(full, "$1 > 0"))
		if f, _ := of(r, "NodeFilesystemFull"); f < 4 {
			t.Errorf("%d false alerts for 4 nodes whose disks are said to be full:\n%s", f, r)
		}
	})
	t.Run("never ends", func(t *testing.T) {
		r := soak(t, disks(full, "max_over_time($1[4h]) > 0.95"))
		if f, _ := of(r, "NodeFilesystemFull"); f == 0 {
			t.Errorf("an alert that stays for hours is not found to be false:\n%s", r)
		}
	})
	t.Run("is gone", func(t *testing.T) {
		r := soak(t, disks("alert: NodeFilesystemFull", "alert: SomethingElse"))
		if _, m := of(r, "NodeFilesystemFull"); m != len(r.incidents) || m == 0 {
			t.Errorf("%d missed of %d", m, len(r.incidents))
		}
	})
}

// TestRunRefuses: rules that nothing could come of are an error.
func TestRunRefuses(t *testing.T) {
	for want, r := range map[string]Rules{
		"rules.shard: no files": {},
		"nothing to judge":      {Global: fstest.MapFS{}, Shard: fstest.MapFS{}},
		"names no family": {Shard: fstest.MapFS{}, Global: fstest.MapFS{"node.yaml": {
			Data: []byte("groups: [{name: a, rules: [{alert: A, expr: '{job=\"x\"}', labels: {severity: auto}}]}]"),
		}}},
	} {
		if _, err := Run(t.Context(), Options{Rules: r}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
