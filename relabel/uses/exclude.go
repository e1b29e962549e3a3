package uses

import (
	"errors"
	"fmt"
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
		clean := strings.TrimSuffix(filepath.ToSlash(p), "/")
		if _, err := filepath.Match(clean, "x"); err != nil || clean == "" {
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

// excluded tells whether a file or folder is left out.
func (s *Set) excluded(path string) bool {
	names := strings.Split(filepath.ToSlash(path), "/")
	for _, e := range s.excludes {
		long := strings.Count(e.pattern, "/") + 1
		if long > len(names) {
			continue
		}
		if ok, err := filepath.Match(e.pattern, strings.Join(names[len(names)-long:], "/")); err == nil && ok {
			e.met = append(e.met, path)
			return true
		}
	}
	return false
}
