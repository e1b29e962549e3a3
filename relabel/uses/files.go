package uses

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// readFile reads a file of at most maxFile bytes.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s: it is larger than %d MiB", path, maxFile>>20)
	}
	return text, nil
}

// files are the path itself, if it is a file, or all files below it with one of the extensions, in order. Hidden files and folders and node_modules are left
// out: Kubernetes mounts each file a second time in such a folder. It is an error if there are none.
func files(path string, extensions ...string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	var out []string
	seen := map[string]bool{} // folders, so that a link back ends nowhere
	var walk func(dir string) error
	walk = func(dir string) error {
		real, err := filepath.EvalSymlinks(dir)
		if err != nil || seen[real] {
			return err
		}
		seen[real] = true
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			at := filepath.Join(dir, e.Name())
			if strings.HasPrefix(e.Name(), ".") || e.Name() == "node_modules" {
				continue
			}
			isDir := e.IsDir()
			if e.Type()&fs.ModeSymlink != 0 {
				info, err := os.Stat(at)
				if err != nil {
					return err
				}
				isDir = info.IsDir()
			}
			if isDir {
				if err := walk(at); err != nil {
					return err
				}
			} else if slices.Contains(extensions, strings.ToLower(filepath.Ext(at))) {
				out = append(out, at)
			}
		}
		return nil
	}
	if err := walk(path); err != nil {
		return nil, err
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s: no file with %s is below it", path, strings.Join(extensions, " or "))
	}
	return out, nil
}

// parse reads the values of a file: one of JSON, any number of YAML.
func parse(name string, text []byte) ([]*node, error) {
	if strings.EqualFold(filepath.Ext(name), ".json") {
		n, err := parseJSON(text, 1)
		return []*node{n}, err
	}
	return parseYAML(text, 1)
}

// objects calls f for each Kubernetes object among the documents, those in lists of objects one by one, and for what is no such object.
func objects(docs []*node, f func(*node) error) error {
	var errs []error
	for _, n := range docs {
		if strings.HasSuffix(n.text("kind"), "List") && n.get("items") != nil && n.text("apiVersion") != "" {
			errs = append(errs, objects(n.list("items"), f))
			continue
		}
		errs = append(errs, f(n))
	}
	return errors.Join(errs...)
}

// foreign tells whether it is a Kubernetes object of another kind than those named.
func foreign(n *node, kinds ...string) bool {
	kind := n.text("kind")
	return n.text("apiVersion") != "" && kind != "" && !slices.Contains(kinds, kind)
}
