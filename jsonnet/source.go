package mixin

import (
	"embed"
	"fmt"
	"io/fs"
	"path"

	"github.com/google/go-jsonnet"
)

//go:embed *.libsonnet lib alerts rules dashboards plugin
var embedded embed.FS

// sourceDir stands before names in messages: it is where the files are in the repository.
const sourceDir = "jsonnet/"

// entry is the file that joins the mixin.
const entry = "mixin.libsonnet"

// importer gives the VM the files of one file system and nothing else. The VM wants the same
// Contents for a file each time.
type importer struct {
	fsys   fs.FS
	asItIs bool // files are not made quick
	seen   map[string]jsonnet.Contents
}

func newImporter(fsys fs.FS) *importer {
	return &importer{fsys: fsys, seen: map[string]jsonnet.Contents{}}
}

// Import implements jsonnet.Importer: a name is relative to the file that imports it.
func (i *importer) Import(from, name string) (jsonnet.Contents, string, error) {
	at := path.Join(path.Dir(from), name)
	if from == "" || path.IsAbs(name) {
		at = name
	}
	if c, ok := i.seen[at]; ok {
		return c, at, nil
	}
	inside := at
	if len(inside) > len(sourceDir) && inside[:len(sourceDir)] == sourceDir {
		inside = inside[len(sourceDir):]
	}
	if !fs.ValidPath(inside) {
		return jsonnet.Contents{}, "", fmt.Errorf("%s is outside of the mixin; it may import only what is in its own folder", at)
	}
	b, err := fs.ReadFile(i.fsys, inside)
	if err != nil {
		return jsonnet.Contents{}, "", fmt.Errorf("import %s: %w", at, err)
	}
	text := string(b)
	if !i.asItIs {
		text = quick(at, text)
	}
	c := jsonnet.MakeContents(text)
	i.seen[at] = c
	return c, at, nil
}

var _ jsonnet.Importer = (*importer)(nil)

func newVM(fsys fs.FS) *jsonnet.VM {
	vm := jsonnet.MakeVM()
	vm.Importer(newImporter(fsys))
	vm.NativeFunction(piecesFunction())
	return vm
}
