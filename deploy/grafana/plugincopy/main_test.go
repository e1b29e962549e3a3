package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const id = "acme-runs-datasource"

// files are a plugin's; a name that ends in ! is a program.
func files(version string) map[string]string {
	return map[string]string{
		id + "/plugin.json":         fmt.Sprintf(`{"id":%q,"info":{"version":%q}}`, id, version),
		id + "/module.js":           "front end " + version,
		id + "/gpx_runs_linux_arm!": strings.Repeat(version, 100_000),
		id + "/img/logo.svg":        "<svg/>",
		id + "/dashboards/a/b.json": "{}",
	}
}

// put writes files below a folder.
func put(t *testing.T, dir string, all map[string]string) string {
	t.Helper()
	for name, text := range all {
		mode := fs.FileMode(0o600)
		if strings.HasSuffix(name, "!") {
			name, mode = strings.TrimSuffix(name, "!"), 0o700
		}
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// found is what is below a folder, in the form of files.
func found(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, file) // it is below
		if !info.Mode().IsRegular() {
			out[filepath.ToSlash(name)] = info.Mode().String()
			return nil
		}
		text, err := os.ReadFile(file)
		if info.Mode()&0o100 != 0 {
			name += "!"
		}
		out[filepath.ToSlash(name)] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func copies(t *testing.T, from, to string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := run(t.Context(), []string{"--from=" + from, "--to=" + to}, &out)
	return out.String(), err
}

// TestCopy: a new plugin, the same again, another version, and a file that somebody changed: each
// time what is there is the source and nothing else, and what belongs to others stays.
func TestCopy(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	one, next := put(t, t.TempDir(), files("1.0.0")), files("2.0.0")
	delete(next, id+"/img/logo.svg")
	two := put(t, t.TempDir(), next)
	others := map[string]string{"other-app/plugin.json": `{"id":"other-app"}`, "note.txt": "mine", "broken/plugin.json": "{"}
	to := put(t, t.TempDir(), others)
	inode := func() uint64 {
		info, err := os.Stat(filepath.Join(to, id))
		if err != nil {
			t.Fatal(err)
		}
		return info.Sys().(*syscall.Stat_t).Ino
	}
	is := func(from, said string, err error, want string) {
		t.Helper()
		if err != nil || !strings.Contains(said, want) {
			t.Errorf("%v: %s; want %s", err, said, want)
		}
		all := found(t, from)
		maps.Copy(all, others)
		if got := found(t, to); !maps.Equal(got, all) {
			t.Errorf("there are %q, want %q", slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(all)))
		}
		entries, err := os.ReadDir(to)
		if err != nil || len(entries) != 4 {
			t.Errorf("%v: the target has %d entries: %v", err, len(entries), entries)
		}
	}
	said, err := copies(t, one, to)
	is(one, said, err, id+" 1.0.0 was copied into "+to+": 5 files, ")
	first := inode()
	if said, err = copies(t, one, to); inode() != first {
		t.Error("what was the same was written anew")
	}
	is(one, said, err, "was there already in")
	said, err = copies(t, two, to)
	is(two, said, err, id+" 2.0.0 was copied into")
	for name, change := range map[string]func(file string) error{
		"module.js":          func(f string) error { return os.WriteFile(f, []byte("front end 2.0.1"), 0o600) },
		"gpx_runs_linux_arm": func(f string) error { return os.Chmod(f, 0o600) },
		"dashboards/a/b.json": func(f string) error {
			return os.Rename(f, f+"x")
		},
		"link": func(f string) error { return os.Symlink("/etc/passwd", f) },
	} {
		if err := change(filepath.Join(to, id, name)); err != nil {
			t.Fatal(err)
		}
		said, err = copies(t, two, to)
		is(two, said, err, "was copied into")
	}
	said, err = copies(t, one, to)
	is(one, said, err, "1.0.0 was copied")
	// Grafana, another user, reads it, whatever the umask.
	for name, want := range map[string]fs.FileMode{"": 0o755, "img": 0o755, "module.js": 0o644, "gpx_runs_linux_arm": 0o755} {
		if info, err := os.Stat(filepath.Join(to, id, name)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%v: %q has %v, want %s", err, name, info, want)
		}
	}
	// An empty folder is nobody's, and what an interrupted copy left goes.
	if err := os.RemoveAll(filepath.Join(to, id)); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(to, id), 0o700); err != nil {
		t.Fatal(err)
	}
	put(t, to, map[string]string{temporary(id) + "abc/plugin.json": "{"})
	said, err = copies(t, one, to)
	is(one, said, err, "was copied into")
}

// TestNewVolume: the folder is made on a volume that nobody has used.
func TestNewVolume(t *testing.T) {
	from, to := put(t, t.TempDir(), files("1.0.0")), filepath.Join(t.TempDir(), "plugins")
	if said, err := copies(t, from, to); err != nil || !maps.Equal(found(t, to), found(t, from)) {
		t.Errorf("%v: %s", err, said)
	}
}

// TestNewVolumeOfSeveral: who finds that another one has just made the folder takes it.
func TestNewVolumeOfSeveral(t *testing.T) {
	for i, dir := 0, t.TempDir(); i < 2000 && !t.Failed(); i++ {
		var all sync.WaitGroup
		begin := make(chan struct{})
		for range 4 {
			all.Go(func() {
				<-begin
				if err := target(filepath.Join(dir, fmt.Sprint(i))); err != nil {
					t.Error(err)
				}
			})
		}
		close(begin)
		all.Wait()
	}
}

// TestRefused: what is not safe to copy, or to copy over, is told, and nothing in the target
// changes.
func TestRefused(t *testing.T) {
	good := put(t, t.TempDir(), files("1.0.0"))
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	linked := put(t, t.TempDir(), files("1.0.0"))
	if err := os.Symlink("/etc/passwd", filepath.Join(linked, id, "link")); err != nil {
		t.Fatal(err)
	}
	huge := put(t, t.TempDir(), files("1.0.0"))
	if err := os.Truncate(filepath.Join(huge, id, "module.js"), maxBytes+1); err != nil {
		t.Fatal(err)
	}
	many := files("1.0.0")
	for i := range maxFiles {
		many[fmt.Sprintf("%s/img/%d", id, i)] = ""
	}
	with := func(all map[string]string) string { return put(t, t.TempDir(), all) }
	aside := with(nil)
	if err := os.Symlink(good+"/"+id, filepath.Join(aside, id)); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct{ from, to, want string }{
		"no target":        {good, filepath.Join(t.TempDir(), "none", "plugins"), "mount a volume there"},
		"a file":           {good, file, "it is no folder"},
		"a plugin":         {good, with(map[string]string{"plugin.json": `{"id":"b"}`}), `the folder of the plugin "b" itself`},
		"another":          {good, with(map[string]string{id + "/plugin.json": `{"id":"b"}`}), `holds another plugin, "b"`},
		"no plugin":        {good, with(map[string]string{id + "/notes": ""}), "holds no plugin but notes"},
		"in the way":       {good, with(map[string]string{id: ""}), "is there, and no folder"},
		"a link":           {good, aside, "is there, and no folder"},
		"broken":           {good, with(map[string]string{id + "/plugin.json": "{"}), "plugin.json: unexpected end"},
		"twice":            {good, with(map[string]string{"renamed/plugin.json": `{"id":"` + id + `"}`}), "is there already as renamed"},
		"source gone":      {filepath.Join(good, "none"), t.TempDir(), "no such file"},
		"source empty":     {t.TempDir(), t.TempDir(), "it holds 0 entries"},
		"source of two":    {with(map[string]string{"a/plugin.json": "{}", "b/plugin.json": "{}"}), t.TempDir(), "it holds 2 entries"},
		"source unnamed":   {with(map[string]string{"a/plugin.json": "{}"}), t.TempDir(), `the folder a holds the plugin ""`},
		"source no plugin": {with(map[string]string{"a/b": ""}), t.TempDir(), "a/plugin.json: no such file"},
		"source links":     {linked, t.TempDir(), "link is neither a file nor a folder"},
		"source huge":      {huge, t.TempDir(), "more than 2000 files or 536870912 bytes"},
		"source of many":   {with(many), t.TempDir(), "more than 2000 files"},
		"source wordy":     {with(map[string]string{"a/plugin.json": strings.Repeat(" ", maxText+1)}), t.TempDir(), "is larger than"},
	} {
		before := map[string]string{}
		if info, err := os.Stat(tc.to); err == nil && info.IsDir() {
			before = found(t, tc.to)
		}
		said, err := copies(t, tc.from, tc.to)
		if err == nil || !strings.Contains(err.Error(), tc.want) || said != "" {
			t.Errorf("%s: %v %q; want %q", name, err, said, tc.want)
		}
		if info, err := os.Stat(tc.to); err == nil && info.IsDir() && !maps.Equal(found(t, tc.to), before) {
			t.Errorf("%s: the target changed", name)
		}
	}
	for _, args := range [][]string{{"left"}, {"--speed=1"}, {"--timeout=soon"}} {
		if err := run(t.Context(), args, io.Discard); err == nil {
			t.Errorf("%q is taken", args)
		}
	}
}

// TestOrder: what is half written is no plugin.
func TestOrder(t *testing.T) {
	p, err := open(put(t, t.TempDir(), files("1.0.0")))
	if err != nil {
		t.Fatal(err)
	}
	defer p.root.Close()
	want := strings.Fields(". dashboards dashboards/a img dashboards/a/b.json gpx_runs_linux_arm img/logo.svg module.js " + manifest)
	if got := p.order(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestInterrupted: a copy that is stopped, or finds no room, leaves nothing behind, and the version
// of before in its place.
func TestInterrupted(t *testing.T) {
	one, two := put(t, t.TempDir(), files("1.0.0")), put(t, t.TempDir(), files("2.0.0"))
	to := t.TempDir()
	if _, err := copies(t, one, to); err != nil {
		t.Fatal(err)
	}
	untouched := func() {
		t.Helper()
		if got := found(t, to); !maps.Equal(got, found(t, one)) {
			t.Errorf("there are %q", slices.Sorted(maps.Keys(got)))
		}
	}
	if err := run(t.Context(), []string{"--from=" + two, "--to=" + to, "--timeout=1ns"}, io.Discard); err == nil ||
		!strings.Contains(err.Error(), "it took more than 1ns (-timeout)") {
		t.Error(err)
	}
	untouched()
	// A source that changes while it is copied.
	p, err := open(two)
	if err != nil {
		t.Fatal(err)
	}
	defer p.root.Close()
	p.tree["module.js"] = entry{size: 3}
	if _, _, err := install(t.Context(), p, to); err == nil || !strings.Contains(err.Error(), "module.js has 4 bytes, and had 3") {
		t.Error(err)
	}
	untouched()
	// A file that is gone, after some were written.
	if err := os.Remove(filepath.Join(two, id, "plugin.json")); err != nil {
		t.Fatal(err)
	}
	p.tree["module.js"] = entry{size: int64(len("front end 2.0.0"))}
	if _, _, err := install(t.Context(), p, to); err == nil {
		t.Error("it was copied without plugin.json")
	}
	untouched()
}

// TestSwap: where names can be exchanged nothing else is renamed; where they cannot, the copy comes
// in the place of what was there all the same, and what was there stays where it cannot go.
func TestSwap(t *testing.T) {
	never := func(string, string) error { return errors.ErrUnsupported }
	for name, tc := range map[string]struct {
		exchange func(root *os.Root) func(a, b string) error
		blocked  bool // nothing can be renamed to the name that the old one gets
		want     string
	}{
		"exchanged": {func(root *os.Root) func(a, b string) error {
			return func(a, b string) error {
				return errors.Join(root.Rename(a, "x"), root.Rename(b, a), root.Rename("x", b))
			}
		}, true, "2"},
		"renamed": {func(*os.Root) func(a, b string) error { return never }, false, "2"},
		"back again": {func(root *os.Root) func(a, b string) error {
			return func(a, _ string) error { return errors.Join(errors.ErrUnsupported, root.RemoveAll(a)) }
		}, false, "1"},
		"impossible": {func(*os.Root) func(a, b string) error { return never }, true, "1"},
	} {
		dir := put(t, t.TempDir(), map[string]string{id + "/plugin.json": "1", ".copy/plugin.json": "2"})
		if tc.blocked {
			put(t, dir, map[string]string{".copy-old/x": ""})
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		_, err = swap(root, tc.exchange(root), ".copy", id, true)
		if (err == nil) != (tc.want == "2") {
			t.Errorf("%s: %v", name, err)
		}
		got := found(t, dir)
		delete(got, ".copy-old/x")
		if len(got) != 1 || got[id+"/plugin.json"] != tc.want {
			t.Errorf("%s: left are %q", name, got)
		}
		if err := root.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestFolderThatIsNotSynced: a plugin that is in place is not taken for missing since its folder
// cannot be written to its disk at once.
func TestFolderThatIsNotSynced(t *testing.T) {
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if got := flush(dir); len(got) > 0 {
		t.Errorf("a folder that can be written to its disk: %q", got)
	}
	if err := dir.Close(); err != nil {
		t.Fatal(err)
	}
	if got := flush(dir); len(got) != 1 || !strings.Contains(got[0], "may not be on its disk yet") {
		t.Errorf("a folder that cannot: %q", got)
	}
}
