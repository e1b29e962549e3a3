package identity

import (
	"net/http"
	"strings"
)

// HeaderVia names, in each call to a server, the Spillways that a request has come through: their
// ids, 16 hexadecimal digits each, the first one first and separated by commas. It is what Via is
// for in RFC 9110, section 7.6.3, under a name by which no server changes what it answers: nginx,
// for one, compresses nothing that has a Via.
const HeaderVia = "X-Spillway-Via"

// HeaderVerdict says in each answer of a Spillway what it decided about the request. No other
// server sends it, so that a Spillway before it knows whose answer that is.
const HeaderVerdict = "X-Spillway-Verdict"

const (
	idDigits = 16
	// maxVia is how many Spillways may stand one behind the other.
	maxVia = 8
)

// Via is the Spillways that a request has come through, as in HeaderVia; empty is none.
type Via string

// ViaOf is what the request says. What no Spillway writes is taken for nothing, so that no byte
// that a client makes up reaches a server by it.
func ViaOf(r *http.Request) Via {
	said := r.Header.Get(HeaderVia)
	if len(said) > (maxVia+1)*(idDigits+1) {
		return ""
	}
	for id := range strings.SplitSeq(said, ",") {
		if len(id) != idDigits || strings.Trim(id, "0123456789abcdef") != "" {
			return ""
		}
	}
	return Via(said)
}

// And is the way with one more Spillway at its end.
func (v Via) And(id string) Via {
	if v == "" {
		return Via(id)
	}
	return v + "," + Via(id)
}

// Loops tells that a request which has come this way to the Spillway with the id goes in a circle:
// it has been here.
func (v Via) Loops(id string) bool { return strings.Contains(string(v), id) }

// TooLong tells that it names more Spillways than can stand one behind the other. A client can make
// that up, as it cannot the id of one.
func (v Via) TooLong() bool { return strings.Count(string(v), ",") >= maxVia }
