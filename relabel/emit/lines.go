package emit

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// splitLines cuts text behind each line end, as YAML counts lines (CR LF, LF, CR, and the three of
// Unicode), so that the line numbers of its nodes are indexes here.
func splitLines(text string) []string {
	var lines []string
	for len(text) > 0 {
		n := lineEnd(text)
		lines, text = append(lines, text[:n]), text[n:]
	}
	return lines
}

func lineEnd(text string) int {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\n':
			return i + 1
		case '\r':
			if strings.HasPrefix(text[i+1:], "\n") {
				return i + 2
			}
			return i + 1
		case 0xc2:
			if strings.HasPrefix(text[i:], "\u0085") {
				return i + 2
			}
		case 0xe2:
			if strings.HasPrefix(text[i:], "\u2028") || strings.HasPrefix(text[i:], "\u2029") {
				return i + 3
			}
		}
	}
	return len(text)
}

const lineEnds = "\r\n\u0085\u2028\u2029"

// content is a line without its end.
func content(line string) string { return strings.TrimRight(line, lineEnds) }

func indent(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }

func blank(line string) bool { return strings.TrimSpace(content(line)) == "" }

func isComment(line string) bool { return strings.HasPrefix(strings.TrimLeft(line, " \t"), "#") }

// file is a text in lines, with the line end that it uses.
type file struct {
	lines []string
	eol   string
}

func newFile(text string) *file {
	f := &file{lines: splitLines(text), eol: "\n"}
	if len(f.lines) > 0 && strings.HasSuffix(f.lines[0], "\r\n") {
		f.eol = "\r\n"
	}
	return f
}

func (f *file) String() string { return strings.Join(f.lines, "") }

// insert puts lines before index at. Behind a last line without an end, the last new line has none
// either: cut then gives back what was there.
func (f *file) insert(at int, lines []string) {
	if len(lines) == 0 {
		return
	}
	put := make([]string, len(lines))
	for i, l := range lines {
		put[i] = l + f.eol
	}
	if at == len(f.lines) && at > 0 && content(f.lines[at-1]) == f.lines[at-1] {
		f.lines[at-1] += f.eol
		put[len(put)-1] = lines[len(lines)-1]
	}
	f.lines = append(f.lines[:at:at], append(put, f.lines[at:]...)...)
}

// cut takes the lines [from, to) out.
func (f *file) cut(from, to int) {
	if to == len(f.lines) && from > 0 && from < to && content(f.lines[to-1]) == f.lines[to-1] {
		f.lines[from-1] = content(f.lines[from-1])
	}
	f.lines = append(f.lines[:from:from], f.lines[to:]...)
}

// ours is a block that an earlier merge wrote: the lines from begin to end, both marks included.
type ours struct {
	id         string
	begin, end int
	changed    bool
}

var (
	beginLine = regexp.MustCompile(`^ *` + markBegin + `(.+) ([0-9a-f]{16})\s*$`)
	endLine   = regexp.MustCompile(`^ *` + markEnd + `(.+?)\s*$`)
)

// findOurs finds the blocks of an earlier merge. A mark without its partner is an error: what lies
// between cannot be known.
func findOurs(lines []string) ([]ours, error) {
	var out []ours
	open := -1
	var sum string
	for i, line := range lines {
		text := content(line)
		if m := beginLine.FindStringSubmatch(text); m != nil {
			if open >= 0 {
				return nil, fmt.Errorf("line %d: rule %s begins before rule %s of line %d has ended: its end mark was removed; put `%s%s` back, or remove "+
					"the block", i+1, m[1], out[len(out)-1].id, open+1,
					markEnd, out[len(out)-1].id)
			}
			out, open, sum = append(out, ours{id: m[1], begin: i}), i, m[2]
			continue
		}
		if m := endLine.FindStringSubmatch(text); m != nil {
			if open < 0 || out[len(out)-1].id != m[1] {
				return nil, fmt.Errorf("line %d: rule %s ends and never began: its begin mark was removed or changed; remove this line, and the rule "+
					"above it if it is not yours", i+1, m[1])
			}
			b := &out[len(out)-1]
			b.end = i
			b.changed = checksum(inner(lines[b.begin:i])) != sum
			open = -1
			continue
		}
		if strings.HasPrefix(strings.TrimLeft(text, " "), markBegin) {
			return nil, fmt.Errorf("line %d: this mark has no checksum at its end: it was changed by hand; remove the block, or its marks to keep it as yours", i+1)
		}
	}
	if open >= 0 {
		return nil, fmt.Errorf("line %d: rule %s begins and never ends: put `%s%s` back behind it, or remove the "+
			"block", open+1, out[len(out)-1].id, markEnd, out[len(out)-1].id)
	}
	return out, nil
}

// inner are the lines behind the begin mark without the mark's own indentation.
func inner(lines []string) []string {
	margin := strings.Repeat(" ", indent(lines[0]))
	var out []string
	for _, l := range lines[1:] {
		out = append(out, strings.TrimPrefix(content(l), margin))
	}
	return out
}

// where names a line for a message.
func where(line int) string { return "line " + strconv.Itoa(line) }
