package fakeshard

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// A Step is one thing that a shard does with a request: an operation and its arguments, as written
// in the text of a script.
type Step struct {
	Op   string
	Args []string
}

// A Script is what a shard does with one request, in order.
//
// When it ends, the response is completed if anything was sent or a status was set; otherwise the
// healthy answer of the endpoint is given, so that "delay 2s" alone is a slow but healthy shard.
type Script []Step

// Op describes one operation of the language.
type Op struct {
	Name  string
	Usage string // its arguments: <x> must be given, [x] may be
	Does  string

	min, max int // number of arguments
	check    func(args []string) error
	ends     bool // nothing can follow it
	onAccept bool // may stand in a script for a connection, before any request was read
}

// Steps returns every operation of the language, in the order in which a reader wants to learn
// them.
func Steps() []Op { return append([]Op(nil), ops...) }

var ops = []Op{
	{Name: "accept", Does: "read the request; every script begins so, whether it says it or not", onAccept: true},
	{
		Name: "delay", Usage: "<duration>", Does: "wait; ends early when the peer leaves", min: 1, max: 1, check: first(argDuration),
		onAccept: true,
	},
	{Name: "compute", Usage: "<duration>", Does: "work on whether the peer is there or not, as Prometheus does for /series; the request stays in flight", min: 1, max: 1, check: first(argDuration)},
	{Name: "wait", Usage: "<name>", Does: "wait until the test calls Release(name); ends early when the peer leaves", min: 1, max: 1, onAccept: true},
	{Name: "stall", Does: "do nothing more until the peer leaves or the shard is closed", ends: true, onAccept: true},
	{Name: "reset", Does: "reset the connection (RST) at once", ends: true, onAccept: true},
	{Name: "close", Does: "close the connection (FIN) at once, with whatever was sent", ends: true, onAccept: true},
	{Name: "truncate", Does: "send the head if it was not sent, then close without the end of the body", ends: true},
	{Name: "raw", Usage: "<text>", Does: "write bytes to the wire, outside all framing", min: 1, max: 1, onAccept: true},

	{Name: "status", Usage: "<code>", Does: "set the status (200 if never set)", min: 1, max: 1, check: first(argStatus)},
	{Name: "header", Usage: "<name> <value>...", Does: "set a header; it may be set twice", min: 2, max: math.MaxInt, check: checkHeader},
	{Name: "skew", Usage: "<duration>", Does: "send a Date that is this far from the truth (-1h is in the past)", min: 1, max: 1, check: first(argSignedDuration)},
	{Name: "flood", Usage: "<size>", Does: "add header lines of about that many bytes", min: 1, max: 1, check: first(argSize)},
	{Name: "redirect", Usage: "[url] [code]", Does: "a redirect (302) to url; without one, to the request's own URL: a loop", max: 2, check: checkRedirect},
	{Name: "flush", Does: "send the head now"},

	{Name: "chunked", Does: "frame the body in chunks: the default, except for answer and error"},
	{Name: "length", Usage: "<bytes>", Does: "declare this Content-Length, true or not", min: 1, max: 1, check: first(argSize)},
	{Name: "badlength", Usage: "[text]", Does: "declare a Content-Length that is no number", max: 1},
	{Name: "badchunk", Does: "send a chunk whose size is no number, then close", ends: true},
	{Name: "unframed", Does: "declare no length: the body ends with the connection, so a cut cannot be told from the end"},

	{Name: "send", Usage: "<text>", Does: "send text as part of the body, at once", min: 1, max: 1},
	{Name: "answer", Does: "the healthy answer for this endpoint"},
	{
		Name: "error", Usage: "<code> <type> <message>...", Does: "a Prometheus error answer", min: 3, max: math.MaxInt,
		check: first(argStatus),
	},
	{Name: "generate", Usage: "<size> [kind]", Does: "a valid answer of that many bytes, made while it is sent; kind is by default what the endpoint gives", min: 1, max: 2, check: checkGenerate},
	{Name: "garbage", Usage: "[kind]", Does: "bytes (random, the default), html (a login page), shape (valid JSON of the wrong shape), null, deep (100,000 levels), cut (JSON that ends too soon), empty, wire (not HTTP at all)", max: 1, check: checkGarbage},

	{Name: "gzip", Usage: "[on|bad|cut|double|bomb] [size]", Does: "from here on compress; bad: claim to, but do not; cut: leave the stream unfinished; double: compress twice, claim once; bomb: send size (10GiB) of JSON as about a thousandth of that", max: 2, check: checkGzip},
	{Name: "drip", Usage: "<size>/<duration>", Does: "from here on send the body in pieces of this size with this pause before each", min: 1, max: 1, check: first(argRate)},
	{Name: "limit", Usage: "<size> stall|reset|close", Does: "once this many bytes of the body were sent, stall, reset or close", min: 2, max: 2, check: checkLimit},
}

var opByName = func() map[string]*Op {
	m := make(map[string]*Op, len(ops))
	for i := range ops {
		m[ops[i].Name] = &ops[i]
	}
	return m
}()

// Parse reads a script: steps separated by semicolons or new lines, each an operation and its
// arguments separated by blanks. An argument with blanks, semicolons or quotes in it is quoted: '…'
// and `…` take everything as it stands, "…" knows Go's escapes. What follows a # at the beginning
// of a word is a comment, up to the end of its line. Durations are Go's (1.5s); sizes are bytes
// with an optional unit (100, 64KiB, 10GiB, 1MB); Steps lists the operations. An empty text is an
// empty script.
//
// The error names the step and says what it would take.
func Parse(text string) (Script, error) {
	words, err := split(text)
	if err != nil {
		return nil, err
	}
	var s Script
	for _, w := range words {
		s = append(s, Step{Op: w[0], Args: w[1:]})
	}
	if len(s) == 0 {
		return nil, nil
	}
	return s, s.Validate()
}

// MustParse is Parse for texts that are part of a program; it panics where Parse returns an error.
func MustParse(text string) Script {
	s, err := Parse(text)
	if err != nil {
		panic(err)
	}
	return s
}

// Validate reports the first step that a shard could not run.
func (s Script) Validate() error {
	for i, st := range s {
		op := opByName[st.Op]
		if op == nil {
			return fmt.Errorf("step %d: there is no step %q; known are %s", i+1, st.Op, opNames())
		}
		if len(st.Args) < op.min || len(st.Args) > op.max {
			return fmt.Errorf("step %d: %s has %d arguments; write it as %q", i+1, st.Op, len(st.Args),
				strings.TrimSpace(op.Name+" "+op.Usage))
		}
		if op.check != nil {
			if err := op.check(st.Args); err != nil {
				return fmt.Errorf("step %d: %s: %w", i+1, st.Op, err)
			}
		}
		if op.ends && i != len(s)-1 {
			return fmt.Errorf("step %d: nothing can follow %s, but %s does", i+1, st.Op, s[i+1].Op)
		}
	}
	return nil
}

// validateAccept is Validate for a script that runs before a request was read.
func (s Script) validateAccept() error {
	if err := s.Validate(); err != nil {
		return err
	}
	for i, st := range s {
		if !opByName[st.Op].onAccept {
			return fmt.Errorf("step %d: %s needs a request; before one was read only delay, wait, stall, reset, close, raw and accept make sense", i+1, st.Op)
		}
	}
	return nil
}

// String writes the script on one line, so that Parse gives the same script again.
func (s Script) String() string {
	var b strings.Builder
	for i, st := range s {
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(quote(st.Op))
		for _, a := range st.Args {
			b.WriteByte(' ')
			b.WriteString(quote(a))
		}
	}
	return b.String()
}

func opNames() string {
	names := make([]string, len(ops))
	for i, o := range ops {
		names[i] = o.Name
	}
	return strings.Join(names, ", ")
}

// split cuts a text into steps and these into words.
func split(text string) (steps [][]string, err error) {
	var step []string
	end := func() {
		if len(step) > 0 {
			steps = append(steps, step)
			step = nil
		}
	}
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		switch {
		case r == ';' || r == '\n':
			end()
			i += n
		case r == '#':
			if j := strings.IndexByte(text[i:], '\n'); j >= 0 {
				i += j
			} else {
				i = len(text)
			}
		case unicode.IsSpace(r):
			i += n
		default:
			w, size, err := word(text[i:])
			if err != nil {
				return nil, fmt.Errorf("step %d: %w", len(steps)+1, err)
			}
			step = append(step, w)
			i += size
		}
	}
	end()
	return steps, nil
}

// word reads the word at the beginning of text, which is not empty, and says how many bytes of text
// it took.
func word(text string) (string, int, error) {
	switch text[0] {
	case '\'', '`':
		j := strings.IndexByte(text[1:], text[0])
		if j < 0 {
			return "", 0, fmt.Errorf("the quote %c is never closed", text[0])
		}
		return text[1 : 1+j], j + 2, nil
	case '"':
		q, err := strconv.QuotedPrefix(text)
		if err != nil {
			return "", 0, errors.New(`the quote " is never closed, or has an escape in it that Go does not know`)
		}
		w, err := strconv.Unquote(q)
		if err != nil {
			return "", 0, fmt.Errorf("%s: %w", q, err)
		}
		return w, len(q), nil
	}
	j := strings.IndexFunc(text, func(r rune) bool { return r == ';' || unicode.IsSpace(r) })
	if j < 0 {
		j = len(text)
	}
	return text[:j], j, nil
}

// quote writes a word so that word reads it back.
func quote(w string) string {
	plain := w != "" && !strings.ContainsFunc(w, func(r rune) bool {
		return r == ';' || r == '\'' || r == '`' || r == '"' || r == '#' || unicode.IsSpace(r) || !unicode.IsPrint(r)
	})
	switch {
	case plain && utf8.ValidString(w):
		return w
	case !strings.ContainsAny(w, "'\n\r") && utf8.ValidString(w):
		return "'" + w + "'"
	}
	return strconv.Quote(w)
}

// The arguments' parsers. A script is validated with the same functions that later read its
// arguments, so reading them cannot fail then.

func first[T any](parse func(string) (T, error)) func([]string) error {
	return func(args []string) error { _, err := parse(args[0]); return err }
}

func argDuration(a string) (time.Duration, error) {
	d, err := time.ParseDuration(a)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a duration; write 10ms, 1.5s or 2m", a)
	}
	return d, nil
}

func argSignedDuration(a string) (time.Duration, error) {
	d, err := time.ParseDuration(a)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration; write -1h, 1.5s or 2m", a)
	}
	return d, nil
}

func argStatus(a string) (int, error) {
	n, err := strconv.Atoi(a)
	if err != nil || n < 200 || n > 999 {
		return 0, fmt.Errorf("%q is not a final status; write one of 200 to 599", a)
	}
	return n, nil
}

var units = []struct {
	name  string
	bytes int64
}{
	{"KiB", 1 << 10},
	{"MiB", 1 << 20},
	{"GiB", 1 << 30},
	{"TiB", 1 << 40},
	{"kB", 1e3},
	{"KB", 1e3},
	{"MB", 1e6},
	{"GB", 1e9},
	{"TB", 1e12},
	{"B", 1},
}

func argSize(a string) (int64, error) {
	num, unit := a, int64(1)
	for _, u := range units {
		if n, ok := strings.CutSuffix(a, u.name); ok {
			num, unit = n, u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(num, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/unit {
		return 0, fmt.Errorf("%q is not a size; write 100, 64KiB or 10GiB", a)
	}
	return n * unit, nil
}

type rate struct {
	bytes int64
	every time.Duration
}

func argRate(a string) (rate, error) {
	b, d, ok := strings.Cut(a, "/")
	if !ok {
		return rate{}, fmt.Errorf("%q is not a rate; write 1B/10ms", a)
	}
	n, err := argSize(b)
	if err != nil {
		return rate{}, err
	}
	if n < 1 {
		return rate{}, errors.New("pieces of no bytes would never end; write 1B/10ms")
	}
	every, err := argDuration(d)
	return rate{bytes: n, every: every}, err
}

func checkHeader(args []string) error {
	if args[0] == "" || strings.ContainsFunc(args[0], func(r rune) bool { return r <= ' ' || r == ':' || r >= 0x7f }) {
		return fmt.Errorf("%q is not a header's name; for bytes that are no HTTP use raw", args[0])
	}
	if strings.ContainsAny(strings.Join(args[1:], " "), "\r\n") {
		return errors.New("a value of several lines; for bytes that are no HTTP use raw")
	}
	return nil
}

func checkRedirect(args []string) error {
	if len(args) > 0 {
		if _, err := url.Parse(args[0]); err != nil {
			return fmt.Errorf("%q is not a URL", args[0])
		}
	}
	if len(args) > 1 {
		if n, err := argStatus(args[1]); err != nil || n < 300 || n > 399 {
			return fmt.Errorf("%q is not a redirect's status; write one of 300 to 399", args[1])
		}
	}
	return nil
}

func checkGenerate(args []string) error {
	if _, err := argSize(args[0]); err != nil {
		return err
	}
	if len(args) > 1 {
		if _, ok := shapes[args[1]]; !ok {
			return fmt.Errorf("there is no kind %q; known are %s", args[1], shapeNames())
		}
	}
	return nil
}

func checkGarbage(args []string) error {
	if len(args) > 0 {
		if _, ok := garbage[args[0]]; !ok && args[0] != "wire" {
			return fmt.Errorf("there is no kind %q; known are bytes, html, shape, null, deep, cut, empty and wire", args[0])
		}
	}
	return nil
}

func checkGzip(args []string) error {
	if len(args) == 0 {
		return nil
	}
	switch args[0] {
	case "on", "bad", "cut", "double":
		if len(args) > 1 {
			return fmt.Errorf("%s has no size, only bomb has", args[0])
		}
	case "bomb":
		if len(args) > 1 {
			_, err := argSize(args[1])
			return err
		}
	default:
		return fmt.Errorf("there is no kind %q; known are on, bad, cut, double and bomb", args[0])
	}
	return nil
}

func checkLimit(args []string) error {
	switch args[1] {
	case "stall", "reset", "close":
	default:
		return fmt.Errorf("at a limit the shard can stall, reset or close, not %q", args[1])
	}
	_, err := argSize(args[0])
	return err
}
