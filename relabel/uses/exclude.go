package uses

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// exclusion is a pattern of files that are left out, with those that it has met.
type exclusion struct {
	pattern string
	met     []string
}

// Exclude leaves out files, and folders with all that is in them, below the folders that
// Dashboards, Rules and Autoscalers are given after this. A pattern is one of filepath.Match:
// without a slash it is one of names (values.yaml, *.tmpl.json), with slashes one of the ends of
// paths (charts/*/values.yaml). A path that is given itself is read, whatever it is called. What a
// file uses that is left out may be dropped: Excluded says so. It is an error where a pattern is
// none.
func (s *Set) Exclude(patterns ...string) error {
	var errs []error
	for _, p := range patterns {
		clean := path.Clean(filepath.ToSlash(p)) // of ./values.yaml and charts/, too
		if _, err := filepath.Match(clean, "x"); err != nil || clean == "." {
			errs = append(errs, fmt.Errorf("%q is no pattern of files: write values.yaml, *.json or charts/*/templates (* and ? match within a name, [a-z] one character)", p))
			continue
		}
		s.excludes = append(s.excludes, &exclusion{pattern: clean})
	}
	return errors.Join(errs...)
}

// Excluded warns of each pattern with what it left out. A pattern that has met nothing is an error:
// whoever gave it thinks that something is left out.
func (s *Set) Excluded() error {
	var errs []error
	for _, e := range s.excludes {
		if len(e.met) == 0 {
			errs = append(errs, fmt.Errorf("nothing is called %s below the folders that are read: it leaves nothing out", e.pattern))
			continue
		}
		slices.Sort(e.met)
		met := slices.Compact(e.met)
		s.Warnings = append(s.Warnings, fmt.Sprintf("%s: left out by its name, such as %s (%s): what is used in there counts as unused", e.pattern, met[0], number(int64(len(met)), "path", "paths")))
	}
	return errors.Join(errs...)
}

// excluded tells whether a file or folder is left out. Each pattern that meets it, or something
// below it, has met something; read says that it would be read otherwise.
func (s *Set) excluded(at string, isDir, read bool) bool {
	if !s.meets(at) {
		return false
	}
	if _, known := s.leftOut[at]; known || !read {
		return true
	}
	files := 1
	if isDir {
		files = 0
		_ = filepath.WalkDir(at, func(below string, d fs.DirEntry, err error) error { // what cannot be read is left out anyway
			if err == nil && below != at {
				s.meets(below)
				if !d.IsDir() {
					files++
				}
			}
			return nil
		})
	}
	if s.leftOut == nil {
		s.leftOut = map[string]int{}
	}
	s.leftOut[at] = files
	return true
}

// meets tells whether a pattern is one of a path, and notes it for each that is.
func (s *Set) meets(at string) bool {
	names := strings.Split(filepath.ToSlash(at), "/")
	met := false
	for _, e := range s.excludes {
		long := strings.Count(e.pattern, "/") + 1
		if long > len(names) {
			continue
		}
		if ok, err := filepath.Match(e.pattern, strings.Join(names[len(names)-long:], "/")); err == nil && ok {
			met = true
			e.met = append(e.met, at)
		}
	}
	return met
}

// namedPlaces is how many of the places that are left out an alarm names.
const namedPlaces = 5

// LeftOut says, for people, what Exclude has left out: how many files, and where, the places with
// most of them first. It is empty where nothing was.
func (s *Set) LeftOut() string {
	files := 0
	places := sortedKeys(s.leftOut)
	for _, n := range s.leftOut {
		files += n
	}
	if files == 0 {
		return ""
	}
	slices.SortStableFunc(places, func(a, b string) int { return s.leftOut[b] - s.leftOut[a] })
	var named []string
	for _, at := range places[:min(len(places), namedPlaces)] {
		named = append(named, fmt.Sprintf("%s (%d)", at, s.leftOut[at]))
	}
	if more := len(places) - len(named); more > 0 {
		named = append(named, fmt.Sprintf("and %d more", more))
	}
	return fmt.Sprintf("%s in %s", number(int64(files), "file", "files"), strings.Join(named, ", "))
}
