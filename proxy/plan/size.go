package plan

import (
	"strings"
	"unicode/utf8"
)

const (
	// wholeText is how many bytes of a text every call shows, and cutText how many a longer one
	// does that another call of the node has shown whole.
	wholeText, cutText = 1 << 10, 256

	// What JSON takes beside the texts: keys, marks and numbers, each number at its longest.
	explanationBytes, nodeBytes, callBytes, segmentBytes = 1024, 128, 320, 96
)

// asks adds a call. A long text stands once in a node, not once for each shard: hundreds of them
// are asked the same.
func (n *Node) asks(c *Call) {
	n.Calls = append(n.Calls, c)
	if len(c.Query) <= wholeText {
		return
	}
	for _, o := range n.whole {
		if o.Query == c.Query {
			c.Query = strings.ToValidUTF8(c.Query[:cutText], "") + "… (as " + o.Shard + ")" // without half a rune
			return
		}
	}
	n.whole = append(n.whole, c)
}

// Size is how many bytes the explanation takes as JSON whose HTML is not escaped, or somewhat more.
func (e *Explanation) Size() int64 {
	n := explanationBytes + sizeOf(e.Query, e.Verdict, e.Reason, e.Slow) + sizeOf(e.Shadow...) + e.Plan.size()
	if e.Estimate != nil {
		n += sizeOf(e.Estimate.By)
	}
	return n
}

func (n *Node) size() int64 {
	if n == nil {
		return 0
	}
	all := nodeBytes + sizeOf(string(n.Mode), n.Expr, n.Why)
	for _, c := range n.Calls {
		all += callBytes + sizeOf(c.Shard, c.Replica, c.Query)
		for _, s := range c.Segments {
			all += segmentBytes + sizeOf(s.Slice, s.Copy)
		}
	}
	for _, c := range n.Children {
		all += c.size()
	}
	return all
}

// sizeOf is the size of texts as JSON has them, with their quotes and a comma.
func sizeOf(texts ...string) (n int64) {
	for _, s := range texts {
		n += int64(len(s)) + 3
		for _, r := range s {
			switch {
			case r == '"' || r == '\\':
				n++
			case r < ' ' || r == utf8.RuneError || r == '\u2028' || r == '\u2029': // \u and four digits
				n += 5
			}
		}
	}
	return n
}
