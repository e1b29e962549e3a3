package uses

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/spillwayproject/spillway/internal/plainfile"
)

// files are the path itself, if it is a file, or all files below it with one of the extensions, if
// any are given, packed (.gz) or not, in order. Hidden files and folders and node_modules are left
// out: Kubernetes mounts each file a second time in such a folder. So are npm's own two files,
// whose names it reserves, and what is excluded; a warning names what is no regular file. It is an
// error if there are none.
func (s *Set) files(path string, extensions ...string) ([]string, error) {
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
			unread := strings.HasPrefix(e.Name(), ".") ||
				slices.Contains([]string{"node_modules", "package.json", "package-lock.json"}, e.Name())
			if s.excluded(at, e.IsDir(), !unread) || unread {
				continue
			}
			mode := e.Type()
			if mode&fs.ModeSymlink != 0 {
				info, err := os.Stat(at)
				if err != nil {
					return err
				}
				mode = info.Mode()
			}
			switch {
			case mode.IsDir():
				if err := walk(at); err != nil {
					return err
				}
			case len(extensions) > 0 && !slices.Contains(extensions, extension(at)):
			case mode.IsRegular():
				out = append(out, at)
			default:
				s.irregular(at)
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

// extension is that of a file, in small letters; of one that is packed (.gz), of what is in it.
func extension(file string) string {
	return filepath.Ext(strings.TrimSuffix(strings.ToLower(file), ".gz"))
}

// readFile reads a file, and unpacks one that is packed.
func readFile(file string) ([]byte, error) {
	text, err := plainfile.Read(file)
	if err != nil || !strings.EqualFold(filepath.Ext(file), ".gz") {
		return eight(text), err
	}
	if text, err = unzip(text, maxFile); err != nil {
		return nil, fmt.Errorf("%s: unpack it: %w", file, err)
	}
	return eight(text), nil
}

// eight is a text in UTF-8, also of one in UTF-16, as PowerShell 5 writes with > and Out-File.
func eight(text []byte) []byte {
	var order binary.ByteOrder
	switch {
	case bytes.HasPrefix(text, []byte{0xff, 0xfe}):
		order = binary.LittleEndian
	case bytes.HasPrefix(text, []byte{0xfe, 0xff}):
		order = binary.BigEndian
	default:
		return text
	}
	var units []uint16
	for i := 2; i+1 < len(text); i += 2 {
		units = append(units, order.Uint16(text[i:]))
	}
	return []byte(string(utf16.Decode(units)))
}

// unzip unpacks what is at most so many bytes.
func unzip(packed []byte, most int) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	out, err := io.ReadAll(io.LimitReader(r, int64(most)+1))
	if err == nil && len(out) > most {
		err = fmt.Errorf("it is larger than %d MiB", most>>20)
	}
	return out, err
}

// irregular warns, once, of what is below a folder and no regular file: to open a pipe would wait
// until somebody writes into it.
func (s *Set) irregular(at string) {
	warning := at + " is no regular file, and is not read: what is used in it counts as unused"
	if !slices.Contains(s.Warnings, warning) {
		s.Warnings = append(s.Warnings, warning)
	}
}

// parse reads the values of a file: one of JSON, any number of YAML.
func parse(name string, text []byte) ([]*node, error) {
	if extension(name) == ".json" {
		n, err := parseJSON(text, 1)
		return []*node{n}, err
	}
	return parseYAML(text, 1)
}

// objects calls f for each Kubernetes object among the documents, those in lists of objects one by
// one, and for what is no such object.
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

// asking are words one of which stands in every document that asks Prometheus something.
var asking = []string{"expr", "query", "queries", "promql", "metric", "panels", "targets"}

// mayAsk tells whether anything could be asked in a text.
func mayAsk(text []byte) bool {
	lower := bytes.ToLower(text)
	return slices.ContainsFunc(asking, func(word string) bool { return bytes.Contains(lower, []byte(word)) })
}

// asksNothing tells whether a text that does not parse is a template, of a chart, and nothing in it
// could be a query. It may fill in those of others.
func (s *Set) asksNothing(text []byte) bool {
	if !bytes.Contains(text, []byte("{{")) || mayAsk(text) {
		return false
	}
	if fillingIn.Match(text) {
		s.givings = append(s.givings, giving{more: true})
	}
	return true
}

// fillingIn finds the names of templates that a text fills in.
var fillingIn = regexp.MustCompile(`\b(?:templateName|templateRef|templateVariables|analysisTemplates)\b`)

// unreadable is the error about a file that does not parse, with what to do where a program has to
// make something of it first.
func unreadable(file string, text []byte, err error) error {
	err = at(file, err)
	switch {
	case bytes.Contains(text, []byte("{{")):
		return fmt.Errorf("%w: it has templates, as charts do: render it first (helm template CHART), and give what comes out; what nobody uses is left out by its name (--exclude)", err)
	case bytes.Contains(text, []byte("\t")) && strings.Contains(err.Error(), "cannot start any token"):
		return fmt.Errorf("%w: YAML is indented with spaces, and a tab stands there", err)
	}
	return err
}

// unrendered is an error about sources of jsonnet at a path that nobody has rendered: what they ask
// would be dropped.
func (s *Set) unrendered(path string) error {
	sources, err := s.files(path, ".jsonnet", ".libsonnet")
	sources = slices.DeleteFunc(sources, func(file string) bool { // a single file is given whatever it is
		return !slices.Contains([]string{".jsonnet", ".libsonnet"}, strings.ToLower(filepath.Ext(file)))
	})
	if err != nil || len(sources) == 0 {
		return nil
	}
	asks := 0
	for _, source := range sources {
		if text, err := plainfile.Read(source); err == nil && mayAsk(text) {
			asks++
		}
	}
	if asks == 0 {
		return nil
	}
	return fmt.Errorf("%s: what is in it is jsonnet that is not rendered (%d files, such as %s): render it first (jsonnet -J vendor -m OUT FILE), and give the folder OUT", path, len(sources), sources[0])
}

// besideUnrendered notes such sources beside files that were read.
func (s *Set) besideUnrendered(path string) {
	if err := s.unrendered(path); err != nil {
		s.notRendered(err.Error())
	}
}

// notRendered notes sources that are there and not read, once.
func (s *Set) notRendered(why string) {
	if !slices.Contains(s.Unrendered, why) {
		s.Unrendered = append(s.Unrendered, why)
		s.Warnings = append(s.Warnings, why)
	}
}

// nothingFound warns that a path has nothing of what its flag is for, with the number of queries
// that were found there all the same.
func (s *Set) nothingFound(path, what string, before int) {
	text := path + ": there is nothing in it that scales by metrics of Prometheus"
	if what != "" {
		text = path + ": there are no " + what + " in it"
	}
	if n := len(s.Uses) - before; n > 0 {
		text += "; " + number(int64(n), "query", "queries") + " of other documents in it count as uses"
	}
	s.Warnings = append(s.Warnings, text)
}
