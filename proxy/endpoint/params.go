package endpoint

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Kind is how the value of a parameter is read.
type Kind string

// The kinds of values.
const (
	// KindPromQL is PromQL text, passed on as it is.
	KindPromQL Kind = "PromQL"
	// KindSelector is one series selector, passed on as it is.
	KindSelector Kind = "selector"
	// KindTime is an instant: Unix seconds with a fraction, or RFC 3339.
	KindTime Kind = "time"
	// KindDuration is seconds with a fraction, or a duration such as 5m.
	KindDuration Kind = "duration"
	// KindNumber is a whole number.
	KindNumber Kind = "number"
	// KindBool is what strconv.ParseBool reads.
	KindBool Kind = "bool"
	// KindEnum is one of a few words.
	KindEnum Kind = "enum"
	// KindText is any other text.
	KindText Kind = "text"
)

// Param is one parameter of an endpoint.
type Param struct {
	// Name is the parameter's name, with [] where Prometheus writes it so.
	Name string
	// Kind is how a value is read.
	Kind Kind
	// Repeated parameters may have several values: equal ones are merged, the order is kept, those
	// of the URL come first. Of all others one value is allowed; sending it again with the same
	// value is no error.
	Repeated bool
	// Required parameters must be there and not be empty. An empty value of any other single-valued
	// parameter counts as absent.
	Required bool
	// MaxBytes caps one value; 0 leaves it to the cap of the body or the head.
	MaxBytes int
	// MaxCount caps the values of a repeated parameter; 0 leaves it to MaxParameters.
	MaxCount int
	// Words are the values of KindEnum.
	Words []string
	// Min and Max bound a value of KindNumber; a Max of 0 is none.
	Min, Max int
	// Example is a value as clients send it.
	Example string
	// Doc is one sentence for the documentation.
	Doc string

	escaped string // the name in a query string
	// missing is the error of a required parameter that is absent; nil has one made from the name.
	missing error
	// set stores values: at least one, and exactly one where not Repeated.
	set func(r *Request, values []string) error
	// get returns the values to send; none where unset.
	get func(r *Request) []string
}

// with returns the parameter after edits, which keeps the rows of the table short.
func (p Param) with(edit func(*Param)) Param {
	edit(&p)
	return p
}

func promqlParam() Param {
	p := textParam("query", 0, "up", "The PromQL expression.", func(r *Request) *string { return &r.Query })
	p.Kind, p.Required = KindPromQL, true
	// Prometheus' own words, which its parser says about an empty text.
	p.missing = errors.New(`invalid parameter "query": unknown position: parse error: no expression found in input`)
	return p
}

func textParam(name string, maxBytes int, example, doc string, field func(*Request) *string) Param {
	return Param{
		Name: name, Kind: KindText, MaxBytes: maxBytes, Example: example, Doc: doc,
		set: func(r *Request, v []string) error { *field(r) = v[0]; return nil },
		get: func(r *Request) []string { return nonEmpty(*field(r)) },
	}
}

func matchParam(doc string) Param {
	return Param{
		Name: "match[]", Kind: KindSelector, Repeated: true, MaxCount: MaxMatches, Example: `up{job="node"}`, Doc: doc,
		set: func(r *Request, v []string) error { r.Match = v; return nil },
		get: func(r *Request) []string { return r.Match },
	}
}

func timeParam(name, doc string, field func(*Request) *Time) Param {
	return Param{
		Name: name, Kind: KindTime, Example: "1755000000.5", Doc: doc, MaxBytes: 64,
		set: func(r *Request, v []string) (err error) { *field(r), err = parseTime(v[0]); return err },
		get: func(r *Request) []string {
			if t := *field(r); t.Set {
				return []string{formatTime(t)}
			}
			return nil
		},
	}
}

func startParam() Param {
	return timeParam("start", "The begin of the time range, inclusive.", func(r *Request) *Time { return &r.Start })
}

func endParam() Param {
	return timeParam("end", "The end of the time range, inclusive; not before start.", func(r *Request) *Time { return &r.End })
}

// listedEndParam is the end of a list of what is stored. Before start it is no error, to Prometheus
// neither.
func listedEndParam() Param {
	return endParam().with(func(p *Param) {
		p.Doc = "The end of the time range, inclusive; nothing is found where it is before start."
	})
}

func required(p Param) Param {
	p.Required = true
	return p
}

func durationParam(name, example, doc string, parse func(string) (time.Duration, error), field func(*Request) *time.Duration) Param {
	return Param{
		Name: name, Kind: KindDuration, Example: example, Doc: doc, MaxBytes: 64,
		set: func(r *Request, v []string) (err error) { *field(r), err = parse(v[0]); return err },
		get: func(r *Request) []string {
			if d := *field(r); d > 0 {
				return []string{formatDuration(d)}
			}
			return nil
		},
	}
}

func timeoutParam() Param {
	return durationParam("timeout", "30s", "The client's own bound on the time. It can only lower Spillway's; zero and negative values are no bound.",
		parseTimeout, func(r *Request) *time.Duration { return &r.Timeout })
}

func lookbackParam() Param {
	return durationParam("lookback_delta", "5m", "How far an instant selector looks back; the server's default where absent or 0.",
		parseLookback, func(r *Request) *time.Duration { return &r.LookbackDelta })
}

func limitParam(doc string) Param {
	return numberParam("limit", doc, func(r *Request) *int { return &r.Limit })
}

func numberParam(name, doc string, field func(*Request) *int) Param {
	return Param{
		Name: name, Kind: KindNumber, Example: "1000", Doc: doc, MaxBytes: 32,
		set: func(r *Request, v []string) (err error) { *field(r), err = parseLimit(v[0]); return err },
		get: func(r *Request) []string {
			if n := *field(r); n > 0 {
				return []string{strconv.Itoa(n)}
			}
			return nil
		},
	}
}

func statsParam() Param {
	return textParam("stats", 64, "all", "Asks for statistics of the query: true or all. Over several shards it is evaluated from its series then; where these are more than may be held at once, the shards compute what they can, and an info says that statistics are left out; for five minutes the same query is not evaluated for them again.", func(r *Request) *string { return &r.Stats })
}

const partialName = "partial_response"

func partialParam() Param {
	return Param{
		Name: partialName, Kind: KindBool, Example: "false", MaxBytes: 16,
		Doc: "Thanos' way to choose what happens when a shard fails: true answers with a warning, false with an error. The configuration decides where absent.",
		set: func(r *Request, v []string) error {
			b, err := parseBool(v[0])
			r.PartialResponse = &b
			return err
		},
		get: func(r *Request) []string {
			if r.PartialResponse == nil {
				return nil
			}
			return []string{strconv.FormatBool(*r.PartialResponse)}
		},
	}
}

// filterParam is a parameter kept as text in Request.Filters; read checks one value and returns its
// canonical form.
func filterParam(name string, kind Kind, example, doc string, read func(string) (string, error)) Param {
	return Param{
		Name: name, Kind: kind, Example: example, Doc: doc, MaxBytes: 4096,
		set: func(r *Request, values []string) error {
			out := make([]string, 0, len(values))
			for _, v := range values {
				v, err := read(v)
				if err != nil {
					return err
				}
				out = append(out, v)
			}
			if r.Filters == nil {
				r.Filters = make(map[string][]string)
			}
			r.Filters[name] = out
			return nil
		},
		get: func(r *Request) []string { return r.Filters[name] },
	}
}

// filterList is a filterParam with any number of values.
func filterList(name string, kind Kind, example, doc string) Param {
	p := filterParam(name, kind, example, doc, anyText)
	p.Repeated = true
	return p
}

// enumParam is a filterParam of one of the words; read makes what reads them.
func enumParam(name, example, doc string, read func(...string) func(string) (string, error), words ...string) Param {
	return filterParam(name, KindEnum, example, doc, read(words...)).with(func(p *Param) { p.Words = words })
}

// boundedParam is a filterParam with a number in [lo, hi].
func boundedParam(name, example, doc string, lo, hi int) Param {
	return filterParam(name, KindNumber, example, doc, numberBetween(lo, hi)).with(func(p *Param) { p.Min, p.Max = lo, hi })
}

func anyText(s string) (string, error) { return s, nil }

// oneOf reads one of the words, in any case, as Prometheus does.
func oneOf(words ...string) func(string) (string, error) {
	return func(s string) (string, error) {
		if l := strings.ToLower(s); slices.Contains(words, l) {
			return l, nil
		}
		return "", fmt.Errorf("not supported value %s; write %s", quoted(s), strings.Join(words, " or "))
	}
}

func boolText(s string) (string, error) {
	b, err := parseBool(strings.ToLower(s))
	return strconv.FormatBool(b), err
}

func parseBool(s string) (bool, error) {
	b, err := strconv.ParseBool(s)
	if err != nil {
		return false, fmt.Errorf("%s is neither true nor false", quoted(s))
	}
	return b, nil
}

// numberBetween reads a whole number in [lo, hi].
func numberBetween(lo, hi int) func(string) (string, error) {
	return func(s string) (string, error) {
		n, err := strconv.Atoi(s)
		if err != nil || n < lo || n > hi {
			return "", fmt.Errorf("%s is not a whole number from %d to %d", quoted(s), lo, hi)
		}
		return strconv.Itoa(n), nil
	}
}

// parseLimit reads a limit; 0 is none, as Grafana means it.
func parseLimit(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0, fmt.Errorf("%s is not a whole number", quoted(s))
	}
	if n < 0 {
		return 0, errors.New("limit must be non-negative")
	}
	return n, nil
}

func nonEmpty(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}
