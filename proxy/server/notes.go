package server

import (
	"reflect"
	"regexp"
	"slices"
	"strconv"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/parser/posrange"

	"github.com/spillwayproject/spillway/internal/tree"
	"github.com/spillwayproject/spillway/proxy/plan"
)

// notedAt is what a note of PromQL ends with: the line and the column of the text that was
// evaluated, or that there is none.
var notedAt = regexp.MustCompile(` \((?:1:([0-9]{1,9})|[0-9]+:[0-9]+|invalid position|unknown position)\)$`)

// maxPlacedTexts is how many texts, one for each group, are looked at for a note's place.
const maxPlacedTexts = 16

// placed are notes of the shards that were asked for a leaf, as the caller is told them. A place in
// them is one in the text that the shards were sent: it becomes the place of the same part in the
// caller's query, and is left out where that cannot be told.
func (x *exchange) placed(notes []string, l *plan.Leaf) []string {
	if len(notes) == 0 {
		return nil
	}
	query := x.dec.Request.Query
	var sent []string
	if l.Text != "" {
		sent = append(sent, l.Text)
	}
	for _, p := range l.Parts {
		if !slices.Contains(sent, p.Query) && len(sent) <= maxPlacedTexts {
			sent = append(sent, p.Query)
		}
	}
	if len(sent) == 1 && sent[0] == query {
		return notes
	}
	out, places := slices.Clone(notes), map[posrange.Pos][]posrange.Pos(nil)
	for i, n := range notes {
		m := notedAt.FindStringSubmatchIndex(n)
		if m == nil {
			continue
		}
		out[i] = n[:m[0]]
		if m[2] < 0 || len(sent) > maxPlacedTexts { // what is sent, and is not the caller's own text, has one line
			continue
		}
		if places == nil {
			places = sentPlaces(sent, query, l.At)
		}
		col, _ := strconv.Atoi(n[m[2]:m[3]])
		if at := places[posrange.Pos(col-1)]; len(at) == 1 {
			out[i] += " (" + posrange.PositionRange{Start: at[0]}.StartPosInput(query, 0) + ")"
		}
	}
	return out
}

// sentPlaces are, for the places of the texts that were sent, those in the query: of a part of it
// whose nodes are theirs, whatever the matchers and the blanks.
func sentPlaces(sent []string, query string, of posrange.PositionRange) map[posrange.Pos][]posrange.Pos {
	places := map[posrange.Pos][]posrange.Pos{}
	expr, err := tree.Parser.ParseExpr(query)
	if err != nil {
		return places
	}
	for _, text := range sent {
		own, err := tree.Parser.ParseExpr(text)
		if err != nil {
			continue
		}
		parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
			if n == nil || n.PositionRange() != of || !pair(own, n, func(posrange.Pos, posrange.Pos) {}) {
				return nil
			}
			pair(own, n, func(at, in posrange.Pos) {
				if !slices.Contains(places[at], in) {
					places[at] = append(places[at], in)
				}
			})
			return nil
		})
	}
	return places
}

// pair tells whether two expressions have the same nodes, and calls each with the places of every
// pair of them.
func pair(a, b parser.Node, each func(a, b posrange.Pos)) bool {
	if reflect.TypeOf(a) != reflect.TypeOf(b) {
		return false
	}
	switch a := a.(type) {
	case *parser.Call:
		if a.Func.Name != b.(*parser.Call).Func.Name {
			return false
		}
	case *parser.AggregateExpr:
		if a.Op != b.(*parser.AggregateExpr).Op {
			return false
		}
	case *parser.BinaryExpr:
		if a.Op != b.(*parser.BinaryExpr).Op {
			return false
		}
	}
	each(a.PositionRange().Start, b.PositionRange().Start)
	x, y := slices.Collect(parser.ChildrenIter(a)), slices.Collect(parser.ChildrenIter(b))
	if len(x) != len(y) {
		return false
	}
	for i := range x {
		if !pair(x[i], y[i], each) {
			return false
		}
	}
	return true
}
