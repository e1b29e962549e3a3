package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Problem is one thing that is wrong with a configuration file.
type Problem struct {
	// Path is where, written like groups[0].shards[0].replicas[0].url; empty for the file as a
	// whole.
	Path string
	// Line is the line of the file, from 1; 0 where there is none.
	Line int
	// Message says what is wrong and what to do.
	Message string
}

// String is one line: the path, the message and the line of the file.
func (p Problem) String() string {
	var b strings.Builder
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	b.WriteString(p.Message)
	if p.Line > 0 {
		b.WriteString(" (line " + strconv.Itoa(p.Line) + ")")
	}
	return b.String()
}

// Problems is the error of Load and Parse: everything that is wrong, sorted by line. It is never
// empty where it is an error.
type Problems []Problem

// Error is one problem a line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// maxProblems bounds what one file can make us say; the rest is counted in the last line.
const maxProblems = 200

// maxCollected is where problems are no longer collected but counted: a file of 4 MiB can have a
// million of them.
const maxCollected = 5 * maxProblems

// sorted returns the problems by line, then path, cut at maxProblems; uncollected is how many there
// are besides.
func (ps Problems) sorted(uncollected int) Problems {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Path, b.Path), cmp.Compare(a.Message, b.Message))
	})
	ps = slices.Compact(ps)
	if over := len(ps) - maxProblems + uncollected; over > 0 {
		ps = append(ps[:min(len(ps), maxProblems):maxProblems], Problem{Message: fmt.Sprintf("and %d more problems", over)})
	}
	return ps
}
