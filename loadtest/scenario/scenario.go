package scenario

import (
	"fmt"
	"net/url"
)

// A Scenario is one kind of storm: what each caller asks, over and over.
type Scenario struct {
	// Name is the word for it on the command line; Title the heading of its report, where %d is the
	// number of callers.
	Name, Title string
	// Asks are sent in turn by every caller, each beginning at another one.
	Asks []Ask
}

// An Ask is one request of a caller.
type Ask struct {
	// Name is for tables: "POST, limit=1000".
	Name string
	// Method is GET or POST; the parameters are in the URL or in the body accordingly.
	Method, Path string
	Params       url.Values
	// Check says what is wrong with a whole 200 answer of at most maxParsed bytes, nil if it is of
	// use, and counts what was found.
	Check func(body []byte) (Found, error)
}

// Found is what an answer holds.
type Found struct {
	// Series in the answer.
	Series int
	// Warnings are the answer's own.
	Warnings []string
}

// Killer is the query of the incident: every series that has a bucket bound. Grafana sent it by
// itself when somebody opened a page. The newest ones send limit=40000 along, older ones nothing.
var Killer = Scenario{
	Name:  "oom",
	Title: "%d callers ask for every histogram series",
	Asks: []Ask{
		killerAsk("GET", 0),
		killerAsk("POST", 0),
		killerAsk("GET", 40000),
		killerAsk("POST", 40000),
	},
}

// All are the scenarios, by name. A new storm is a row here.
var All = map[string]Scenario{Killer.Name: Killer}

func killerAsk(method string, limit int) Ask {
	a := Ask{Name: method, Method: method, Path: "/api/v1/series", Params: url.Values{"match[]": {`{le!=""}`}}, Check: checkBuckets}
	if limit > 0 {
		a.Name += fmt.Sprintf(", limit=%d", limit)
		a.Params.Set("limit", fmt.Sprint(limit))
	}
	return a
}
