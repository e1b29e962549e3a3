package main

import (
	"fmt"
	"strings"
	"time"
)

// unreleased is the heading of what no version has yet.
const unreleased = "Unreleased"

// section finds what stands below the heading of a version: where its first line and where the next
// heading begins; ok tells whether there is one. A heading is `## 1.2.3 / 2006-01-02`.
func section(text, version string) (from, until int, ok bool) {
	at := 0
	for line := range strings.Lines(text) {
		begin := at
		at += len(line)
		rest, heading := strings.CutPrefix(line, "## ")
		switch {
		case !heading:
		case ok:
			return from, begin, true
		default:
			name, _, _ := strings.Cut(strings.TrimSpace(rest), " / ")
			if name == version {
				from, ok = at, true
			}
		}
	}
	return from, len(text), ok
}

// entries are the lines of a section, without empty ones around them. A section without an entry is
// an error.
func entries(text string, version string) (string, error) {
	from, until, ok := section(text, version)
	body := strings.TrimSpace(text[from:until])
	switch {
	case !ok && version == unreleased:
		return "", fmt.Errorf("CHANGELOG.md has no section %s", unreleased)
	case !ok:
		return "", fmt.Errorf("CHANGELOG.md has no section %s: make cut VERSION=%s gives it the unreleased lines; commit them first", version, version)
	case !strings.Contains("\n"+body, "\n- ["):
		return "", fmt.Errorf("the section %s of CHANGELOG.md is empty: there is nothing to release", version)
	}
	return body, nil
}

// notes are what a release says is new.
func notes(text, version string) ([]byte, error) {
	body, err := entries(text, strings.TrimPrefix(version, "v"))
	return []byte(body + "\n"), err
}

// cut gives the unreleased lines to a version, and leaves the heading for the next ones.
func cut(text, version string, day time.Time) (string, error) {
	if _, _, there := section(text, version); there {
		return "", fmt.Errorf("CHANGELOG.md has a section %s already", version)
	}
	body, err := entries(text, unreleased)
	if err != nil {
		return "", err
	}
	from, until, _ := section(text, unreleased)
	heading := fmt.Sprintf("\n## %s / %s\n\n%s\n", version, day.Format(time.DateOnly), body)
	if until < len(text) {
		heading += "\n"
	}
	return text[:from] + heading + text[until:], nil
}
