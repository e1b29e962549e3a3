package tree

import (
	"bytes"
	"strings"
	"unicode"

	"github.com/prometheus/prometheus/promql/parser"
)

// lineLength is Prometheus' own: what is longer is written on several lines.
const lineLength = 100

// Pretty is e.Pretty(0) in time that is linear in its length. Prometheus' own prints the whole of
// each node anew, to see whether it fits on a line: a second for a chain of a thousand operators.
func Pretty(e parser.Expr) string {
	p := printer{spans: map[parser.Expr]span{}}
	p.print(e)
	l := layout{text: p.out, spans: p.spans}
	l.write(e, 0)
	return string(l.out)
}

// layout writes a printed expression on lines.
type layout struct {
	text  []byte
	spans map[parser.Expr]span
	out   []byte
	left  bool // what comes next stands at the left: space before it is dropped
}

func (l *layout) add(s string) {
	if l.left {
		if s = strings.TrimLeftFunc(s, unicode.IsSpace); s == "" {
			return
		}
		l.left = false
	}
	l.out = append(l.out, s...)
}

func (l *layout) indent(level int) {
	if l.left {
		return
	}
	for range level {
		l.out = append(l.out, "  "...)
	}
}

// plain writes a node as it is printed.
func (l *layout) plain(e parser.Expr) {
	at := l.spans[e]
	l.add(string(l.text[at.start:at.end]))
}

// fits tells whether a node stands on one line.
func (l *layout) fits(e parser.Expr) bool {
	at := l.spans[e]
	return at.end-at.start <= lineLength
}

func (l *layout) write(e parser.Expr, level int) {
	switch n := e.(type) {
	case *parser.StepInvariantExpr:
		l.write(n.Expr, level)
		return
	case *parser.UnaryExpr:
		l.indent(level)
		l.add(n.Op.String())
		start := len(l.out)
		l.left = true
		l.write(n.Expr, level)
		l.left = false
		l.out = append(l.out[:start], bytes.TrimRightFunc(l.out[start:], unicode.IsSpace)...)
		return
	case *parser.SubqueryExpr:
		if l.fits(n) {
			l.plain(n) // without an indent, as Prometheus has it
			return
		}
		l.write(n.Expr, level)
		inner := l.spans[n.Expr]
		l.add(string(l.text[inner.end:l.spans[n].end]))
		return
	case *parser.AggregateExpr, *parser.BinaryExpr, *parser.Call, *parser.ParenExpr:
		if !l.fits(e) {
			l.split(e, level)
			return
		}
	}
	l.indent(level)
	l.plain(e)
}

// split writes a node on several lines.
func (l *layout) split(e parser.Expr, level int) {
	switch n := e.(type) {
	case *parser.AggregateExpr:
		l.indent(level)
		l.add(n.ShortString())
		l.add("(\n")
		if n.Op.IsAggregatorWithParam() {
			l.write(n.Param, level+1)
			l.add(",\n")
		}
		l.write(n.Expr, level+1)
	case *parser.BinaryExpr:
		l.write(n.LHS, level+1)
		l.add("\n")
		l.indent(level)
		l.add(n.ShortString())
		l.add("\n")
		l.write(n.RHS, level+1)
		return
	case *parser.Call:
		l.indent(level)
		l.add(n.Func.Name)
		l.add("(\n")
		for i, arg := range n.Args {
			if i > 0 {
				l.add(",\n")
			}
			l.write(arg, level+1)
		}
	case *parser.ParenExpr:
		l.indent(level)
		l.add("(\n")
		l.write(n.Expr, level+1)
	}
	l.add("\n")
	l.indent(level)
	l.add(")")
}
