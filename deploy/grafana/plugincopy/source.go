package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
)

const (
	// maxFiles and maxBytes bound what is copied, and what is looked at in the target.
	maxFiles = 2000
	maxBytes = 512 << 20
	// maxText bounds a plugin.json.
	maxText = 1 << 20
)

// manifest is the file that makes a folder a plugin.
const manifest = "plugin.json"

// about is what is read of it.
type about struct {
	ID   string `json:"id"`
	Info struct {
		Version string `json:"version"`
	} `json:"info"`
}

// entry is a folder, or a regular file with its size and whether it is a program.
type entry struct {
	dir, program bool
	size         int64
}

func (e entry) mode() fs.FileMode {
	if e.dir || e.program {
		return 0o755
	}
	return 0o644
}

// plugin is what is copied: the folder ID of root.
type plugin struct {
	about
	root  *os.Root
	tree  map[string]entry // by slash-separated path below the folder; "." is the folder
	count int              // of files
	bytes int64
}

// ids are those that may be the name of a folder.
var ids = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// open reads which plugin a folder holds, and which files it has.
func open(from string) (_ *plugin, err error) {
	p := &plugin{}
	if p.root, err = os.OpenRoot(from); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = p.root.Close() // the error that counts is another
		}
	}()
	all, err := fs.ReadDir(p.root.FS(), ".")
	if err != nil {
		return nil, err
	}
	if len(all) != 1 || !all[0].IsDir() {
		return nil, fmt.Errorf("it holds %d entries, not the folder of one plugin", len(all))
	}
	if p.about, err = read(p.root, all[0].Name()); err != nil {
		return nil, err
	}
	if p.ID != all[0].Name() || !ids.MatchString(p.ID) {
		return nil, fmt.Errorf("the folder %s holds the plugin %q", all[0].Name(), p.ID)
	}
	if p.tree, err = walk(p.root, p.ID); err != nil {
		return nil, err
	}
	for _, e := range p.tree {
		if !e.dir {
			p.count++
			p.bytes += e.size
		}
	}
	return p, nil
}

// read is what a folder's plugin.json says; fs.ErrNotExist where it has none.
func read(root *os.Root, folder string) (about, error) {
	var a about
	name := path.Join(folder, manifest)
	info, err := root.Lstat(name)
	if err != nil {
		return a, err
	}
	if !info.Mode().IsRegular() {
		return a, fmt.Errorf("%s is no file", name)
	}
	f, err := root.Open(name)
	if err != nil {
		return a, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxText+1))
	if err != nil {
		return a, err
	}
	if len(text) > maxText {
		return a, fmt.Errorf("%s is larger than %d bytes", name, maxText)
	}
	if err := json.Unmarshal(text, &a); err != nil {
		return a, fmt.Errorf("%s: %w", name, err)
	}
	return a, nil
}

// errLimit is that of a tree which is larger than what is copied.
var errLimit = fmt.Errorf("more than %d files or %d bytes", maxFiles, maxBytes)

// walk lists a folder: folders and regular files, nothing else.
func walk(root *os.Root, folder string) (map[string]entry, error) {
	tree, bytes := map[string]entry{}, int64(0)
	err := fs.WalkDir(root.FS(), folder, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel := "."
		if name != folder {
			rel = name[len(folder)+1:]
		}
		e := entry{dir: d.IsDir()}
		if !e.dir {
			if !info.Mode().IsRegular() {
				return fmt.Errorf("%s is neither a file nor a folder", name)
			}
			e.size, e.program = info.Size(), info.Mode()&0o100 != 0
			bytes += e.size
		}
		tree[rel] = e
		if len(tree) > maxFiles || bytes > maxBytes {
			return errLimit
		}
		return nil
	})
	return tree, err
}

// absent says whether an error is that something is not there.
func absent(err error) bool { return errors.Is(err, fs.ErrNotExist) }
