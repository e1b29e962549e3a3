package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"
)

// buffer is how much of a file is held.
const buffer = 64 << 10

// install puts the plugin into a folder, and says whether it was done or there already, and what
// could not be removed there that does no harm.
func install(ctx context.Context, p *plugin, to string) (done string, warnings []string, err error) {
	if err := target(to); err != nil {
		return "", nil, err
	}
	dst, err := os.OpenRoot(to)
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = dst.Close() }() // what was written is synced
	dir, err := dst.Open(".")
	if err != nil {
		return "", nil, err
	}
	defer func() { _ = dir.Close() }() // with it goes the lock
	if err := waitFor(ctx, dir); err != nil {
		return "", nil, err
	}
	there, warnings, err := place(dst, p.ID)
	if err != nil {
		return "", nil, err
	}
	if there {
		if same, err := equal(ctx, p, dst); err != nil {
			return "", nil, err
		} else if same {
			return "was there already in", warnings, nil
		}
	}
	temp := temporary(p.ID) + strings.ToLower(rand.Text())
	if err := write(ctx, p, dst, temp); err != nil {
		return "", nil, errors.Join(err, dst.RemoveAll(temp))
	}
	left, err := swap(dst, func(a, b string) error { return exchange(dir, a, b) }, temp, p.ID, there)
	if err != nil {
		return "", nil, err
	}
	if left != "" {
		warnings = append(warnings, left)
	}
	return "was copied into", append(warnings, flush(dir)...), nil
}

// flush writes a folder to its disk. The plugin is in place by now, and a file system that cannot
// do this, as some that are mounted over a network, is no reason to keep Grafana from starting.
func flush(dir interface{ Sync() error }) []string {
	if err := dir.Sync(); err != nil {
		return []string{fmt.Sprintf("the folder may not be on its disk yet (%v): if the machine loses its power now, copy the plugin again", err)}
	}
	return nil
}

// target makes the folder on a new volume, of which Grafana would make it.
func target(to string) error {
	info, err := os.Stat(to)
	if absent(err) {
		if err = os.Mkdir(to, 0o755); err == nil || errors.Is(err, fs.ErrExist) { // by another copier
			info, err = os.Stat(to)
		}
	}
	if err != nil {
		return fmt.Errorf("mount a volume there: %w", err)
	}
	if !info.IsDir() {
		return errors.New("it is no folder")
	}
	return nil
}

// temporary is how the names begin that copies have until they are whole.
func temporary(id string) string { return "." + id + ".copy-" }

// waitFor takes the lock of the target, for which others may be ahead. A file system that has no
// locks is used without, and one of NFS may have them among the pods of one node only.
func waitFor(ctx context.Context, dir *os.File) error {
	for {
		busy := lock(dir)
		if !busy {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("another one copies into it: %w", context.Cause(ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// place looks at the target, removes what an interrupted copy left there, and says whether the
// plugin's folder is there, and what could not be removed.
func place(dst *os.Root, id string) (there bool, warnings []string, err error) {
	if a, err := read(dst, "."); err == nil {
		return false, nil, fmt.Errorf("it is the folder of the plugin %q itself; name the folder above it", a.ID)
	} else if !absent(err) {
		return false, nil, err
	}
	all, err := fs.ReadDir(dst.FS(), ".")
	if err != nil {
		return false, nil, err
	}
	if len(all) > maxFiles {
		return false, nil, fmt.Errorf("it holds %d entries: that is no folder of plugins", len(all))
	}
	for _, d := range all {
		switch {
		case strings.HasPrefix(d.Name(), temporary(id)):
			left, err := discard(dst, d.Name())
			if err != nil {
				return false, nil, err
			}
			if left != "" {
				warnings = append(warnings, left)
			}
		case d.Name() == id:
			if there, err = ours(dst, d); err != nil {
				return false, nil, err
			}
		case d.IsDir():
			if a, err := read(dst, d.Name()); err == nil && a.ID == id {
				return false, nil, fmt.Errorf("the plugin is there already as %s, and Grafana would find it twice; remove one", d.Name())
			}
		}
	}
	return there, warnings, nil
}

// ours says whether what has the plugin's name is the plugin, of whatever version; an empty folder
// is nobody's.
func ours(dst *os.Root, d fs.DirEntry) (bool, error) {
	id := d.Name()
	if !d.IsDir() {
		return false, fmt.Errorf("%s is there, and no folder", id)
	}
	a, err := read(dst, id)
	switch {
	case absent(err):
		inside, err := fs.ReadDir(dst.FS(), id)
		if err == nil && len(inside) > 0 {
			err = fmt.Errorf("the folder %s is there, and holds no plugin but %s", id, inside[0].Name())
		}
		return true, err
	case err != nil:
		return false, err
	case a.ID != id:
		return false, fmt.Errorf("the folder %s holds another plugin, %q", id, a.ID)
	}
	return true, nil
}

// equal compares the plugin's folder in the target with the source: names, sizes, whether a file is
// a program, then every byte.
func equal(ctx context.Context, p *plugin, dst *os.Root) (bool, error) {
	tree, err := walk(dst, p.ID)
	if err != nil || !maps.Equal(tree, p.tree) {
		return false, nil // links, or too much: not what is copied
	}
	one, two := make([]byte, buffer/2), make([]byte, buffer/2)
	for name, e := range tree {
		if e.dir {
			continue
		}
		a, err := p.root.Open(path.Join(p.ID, name))
		if err != nil {
			return false, err
		}
		b, err := dst.Open(path.Join(p.ID, name))
		if err != nil {
			return false, errors.Join(err, a.Close())
		}
		same := true
		for same && err == nil {
			var n, m int
			n, err = io.ReadFull(a, one)
			m, _ = io.ReadFull(b, two) // where it ends sooner, n is not m
			same = bytes.Equal(one[:n], two[:m])
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
		}
		_, _ = a.Close(), b.Close() // they were only read
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return false, err
		}
		if !same {
			return false, nil
		}
	}
	return true, nil
}

// order is how the plugin is written: folders first, each before what is in it, and plugin.json
// last. Before it, Grafana finds no plugin there.
func (p *plugin) order() []string {
	rank := func(name string) int {
		switch {
		case p.tree[name].dir:
			return 0
		case name == manifest:
			return 2
		}
		return 1
	}
	names := slices.Sorted(maps.Keys(p.tree))
	slices.SortStableFunc(names, func(a, b string) int { return rank(a) - rank(b) })
	return names
}

// write copies the plugin into a new folder.
func write(ctx context.Context, p *plugin, dst *os.Root, temp string) error {
	buf := make([]byte, buffer)
	for _, name := range p.order() {
		e, to := p.tree[name], path.Join(temp, name)
		var err error
		if e.dir {
			err = errors.Join(dst.Mkdir(to, e.mode()), dst.Chmod(to, e.mode())) // whatever the umask
		} else {
			err = copyFile(ctx, p.root, path.Join(p.ID, name), dst, to, e, buf)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func copyFile(ctx context.Context, src *os.Root, from string, dst *os.Root, to string, e entry, buf []byte) error {
	in, err := src.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := dst.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, e.mode())
	if err != nil {
		return err
	}
	// Without ReadFrom and WriteTo, which would not look at ctx.
	n, err := io.CopyBuffer(struct{ io.Writer }{out}, io.LimitReader(&reader{ctx, in}, e.size+1), buf)
	if err == nil && n != e.size {
		err = fmt.Errorf("%s has %d bytes, and had %d", from, n, e.size)
	}
	return errors.Join(err, out.Chmod(e.mode()), out.Sync(), out.Close())
}

// reader ends with its context.
type reader struct {
	ctx context.Context
	in  io.Reader
}

func (r *reader) Read(b []byte) (int, error) {
	if err := context.Cause(r.ctx); err != nil {
		return 0, err
	}
	return r.in.Read(b)
}

// swap gives the copy the plugin's name, and removes what had it: at once where the names can be
// exchanged, and otherwise with a moment in which nothing is there. It says what could not be
// removed.
func swap(dst *os.Root, exchange func(a, b string) error, temp, id string, there bool) (left string, err error) {
	if !there {
		if err := dst.Rename(temp, id); err != nil {
			return "", errors.Join(err, dst.RemoveAll(temp))
		}
		return "", nil
	}
	old := temp
	if exchange(temp, id) != nil { // a file system that cannot
		old += "-old"
		if err := dst.Rename(id, old); err != nil {
			return "", errors.Join(err, dst.RemoveAll(temp))
		}
		if err := dst.Rename(temp, id); err != nil {
			return "", errors.Join(err, dst.Rename(old, id), dst.RemoveAll(temp))
		}
	}
	if left, err = discard(dst, old); err != nil {
		return "", fmt.Errorf("the new files are in place, but %w", err)
	}
	return left, nil
}

// discard removes what an earlier copy left, or the version of before: first what makes it a
// plugin, which Grafana would find beside the new one. Of the rest it says what could not be
// removed: a file that is still open, on NFS, or another user's.
func discard(dst *os.Root, name string) (left string, err error) {
	file := path.Join(name, manifest)
	if info, err := dst.Lstat(name); err == nil && info.IsDir() { // and no link to something else
		_ = dst.Remove(file) // whether it is gone is seen below
	}
	err = dst.RemoveAll(name)
	if err == nil {
		return "", nil
	}
	if _, there := dst.Lstat(file); !absent(there) {
		return "", fmt.Errorf("%s has to be removed by hand, or Grafana finds the plugin twice: %w", file, err)
	}
	return fmt.Sprintf("%s is no plugin any more, and cannot be removed, which the next start tries again: %v", name, err), nil
}
