package cost

import (
	"hash/maphash"
	"math"
	"math/bits"
	"strconv"
	"sync"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// Print stands for a text, or for the shape of one: 128 bits of a hash that nobody can foresee.
type Print [2]uint64

// printer gathers words, each ended by a byte that no UTF-8 has, and hashes them at once.
type printer struct{ b []byte }

// printers are those that nobody uses now.
var printers = sync.Pool{New: func() any { return &printer{make([]byte, 0, 1024)} }}

// maxPrinterBytes is how much room a printer may keep for the next text.
const maxPrinterBytes = 64 << 10

func newPrinter() *printer { return printers.Get().(*printer) }

func (p *printer) write(words ...string) {
	for _, w := range words {
		p.b = append(append(p.b, w...), 0xff)
	}
}

func (p *printer) number(n int64) { p.b = append(strconv.AppendInt(p.b, n, 36), 0xff) }

// sum is the print of what was gathered. The printer is somebody else's then.
func (p *printer) sum() Print {
	sum := Print{maphash.Bytes(keySeeds[0], p.b), maphash.Bytes(keySeeds[1], p.b)}
	if cap(p.b) <= maxPrinterBytes {
		p.b = p.b[:0]
		printers.Put(p)
	}
	return sum
}

// PrintOf is the print of words.
func PrintOf(words ...string) Print {
	p := newPrinter()
	p.write(words...)
	return p.sum()
}

// PrintOfSelector is the print of a selector, or of its shape, as a tenant's answers show it.
func PrintOfSelector(tenant string, ms []*labels.Matcher, shape bool) Print {
	p := newPrinter()
	p.write("selector", tenant)
	p.matchers(ms, shape)
	return p.sum()
}

// PrintOfShape is the print of what all texts have in common that differ in the values of labels
// alone, as those of a dashboard's panel do whose variable is another one. The words are told
// apart.
func PrintOfShape(expr parser.Expr, selectors [][]*labels.Matcher, words ...string) Print {
	p := newPrinter()
	p.write("shape")
	p.write(words...)
	if expr != nil {
		p.node(expr)
		return p.sum()
	}
	for _, ms := range selectors {
		p.matchers(ms, true)
	}
	return p.sum()
}

// matchers of a shape have no values but of the metric's name: of others how many they are, or what
// they have in common.
func (p *printer) matchers(ms []*labels.Matcher, shape bool) {
	for _, m := range ms {
		p.write(m.Name, m.Type.String())
		if !shape || m.Name == model.MetricNameLabel {
			p.write(m.Value)
		} else {
			p.write(width(m))
		}
	}
	p.write("}")
}

// width is how much of a label's values a matcher asks for, as far as its text tells: one value,
// none, up to 2, 4, 8 or more of them, any, those that begin alike, or others. What one node showed
// says something of another one, and nothing of all of them.
func width(m *labels.Matcher) string {
	switch {
	case m.Value == "":
		return "none"
	case m.Type == labels.MatchEqual || m.Type == labels.MatchNotEqual:
		return "1"
	case m.Value == ".*" || m.Value == ".+":
		return "any"
	case len(m.SetMatches()) > 0:
		return strconv.Itoa(1 << bits.Len(uint(len(m.SetMatches())-1)))
	case m.Prefix() != "":
		return "begin"
	}
	return "others"
}

// node goes through an expression. Its depth is that of the expression, which policy bounds.
func (p *printer) node(node parser.Node) {
	switch n := node.(type) {
	case *parser.VectorSelector:
		p.matchers(n.LabelMatchers, true)
		p.number(int64(n.OriginalOffset))
		p.at(n.Timestamp, n.StartOrEnd)
	case *parser.MatrixSelector:
		p.write("[]")
		p.number(int64(n.Range))
	case *parser.SubqueryExpr:
		p.write("[:]")
		p.number(int64(n.Range))
		p.number(int64(n.Step))
		p.number(int64(n.OriginalOffset))
		p.at(n.Timestamp, n.StartOrEnd)
	case *parser.AggregateExpr:
		p.write(n.Op.String(), strconv.FormatBool(n.Without))
		p.write(n.Grouping...)
	case *parser.BinaryExpr:
		p.write(n.Op.String(), strconv.FormatBool(n.ReturnBool))
		if vm := n.VectorMatching; vm != nil {
			p.write(vm.Card.String(), strconv.FormatBool(vm.On))
			p.write(vm.MatchingLabels...)
			p.write("include")
			p.write(vm.Include...)
		}
	case *parser.Call:
		p.write(n.Func.Name)
	case *parser.NumberLiteral:
		p.number(int64(math.Float64bits(n.Val)))
	case *parser.StringLiteral:
		p.write(n.Val)
	case *parser.UnaryExpr:
		p.write("unary", n.Op.String())
	}
	p.write("(")
	for child := range parser.ChildrenIter(node) {
		p.node(child)
	}
	p.write(")")
}

// at is the moment that a selector is fixed to.
func (p *printer) at(timestamp *int64, ends parser.ItemType) {
	if timestamp != nil {
		p.write("@")
		p.number(*timestamp)
	}
	if ends != 0 {
		p.write(ends.String())
	}
}
