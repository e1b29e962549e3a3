package endpoint

import (
	"context"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

// Defaults of Options.
const (
	DefaultMaxBodyBytes        = 256 << 10
	DefaultMaxReadBytes        = 1 << 20
	DefaultMaxReadDecodedBytes = 4 << 20
)

// Options are what the configuration says about parsing. The zero value has every default.
type Options struct {
	// StrictParameters refuses unknown parameters with 400 instead of dropping them. Those of
	// Ignored pass.
	StrictParameters bool
	// MaxBodyBytes caps the body of a form; 0 is DefaultMaxBodyBytes.
	MaxBodyBytes int64
	// MaxReadBytes caps the compressed body of remote read; 0 is DefaultMaxReadBytes.
	MaxReadBytes int64
	// MaxReadDecodedBytes caps the inflated body of remote read; 0 is DefaultMaxReadDecodedBytes.
	MaxReadDecodedBytes int64
	// Hold takes so many bytes of memory more for the body, before they are used, and for a query
	// string over UnheldQuery; its error is that of Parse. The caller gives them back when he is
	// done with the Request. nil takes none.
	Hold func(bytes int64) error
}

func (o Options) withDefaults() Options {
	for _, f := range []struct {
		field *int64
		def   int64
	}{
		{&o.MaxBodyBytes, DefaultMaxBodyBytes},
		{&o.MaxReadBytes, DefaultMaxReadBytes},
		{&o.MaxReadDecodedBytes, DefaultMaxReadDecodedBytes},
	} {
		if *f.field <= 0 {
			*f.field = f.def
		}
	}
	if o.Hold == nil {
		o.Hold = func(int64) error { return nil }
	}
	return o
}

// maxDropped is how many names of dropped parameters a Request keeps, and maxDroppedName how many
// bytes of each.
const (
	maxDropped     = 16
	maxDroppedName = 64
)

// Parse understands a client's request: it looks up the row, reads the body to its end under the
// cap, and reads every parameter of URL and body. The error is a *qerr.Error: what Lookup says,
// BadData naming the parameter, BodyTooLarge, SlowRequest where the server's read deadline passed,
// Canceled where the client left, or what Options.Hold said. With an error the Request is nil.
//
// Parse sets no deadline of its own: the caller sets the read deadline of the connection.
func Parse(r *http.Request, o Options) (*Request, error) {
	o = o.withDefaults()
	e, label, err := Lookup(r)
	if err != nil {
		return nil, err
	}
	maxBytes := o.MaxBodyBytes
	if e.snappy {
		maxBytes = o.MaxReadBytes
	}
	if n := len(r.URL.RawQuery); n > UnheldQuery {
		if err := o.Hold(int64(n)); err != nil {
			return nil, err
		}
	}
	body, err := readBody(r, maxBytes, o.Hold)
	if err != nil {
		return nil, err
	}
	req := &Request{ID: e.ID, Label: label}
	pairs, err := splitQuery(nil, r.URL.RawQuery, "URL")
	if err != nil {
		return nil, err
	}
	switch {
	case e.snappy:
		if req.ReadQuery, err = parseRead(r.Header, body, o); err != nil {
			return nil, err
		}
	case len(body) > 0:
		if err := formHeaders(r); err != nil {
			return nil, err
		}
		if pairs, err = splitQuery(pairs, string(body), "body"); err != nil {
			return nil, err
		}
	}
	if err := req.fill(e, pairs, o.StrictParameters); err != nil {
		return nil, err
	}
	return req, nil
}

// ParseForm is Parse for a question that does not come over HTTP: the row of the table, and a form
// of its parameters. Rows with a label in their path or with a body of their own have no form.
func ParseForm(id ID, form url.Values, o Options) (*Request, error) {
	e := byID[id]
	if e == nil || e.snappy || id == LabelValues {
		return nil, qerr.New(qerr.NotFound, "the endpoint %s cannot be asked by a form", id)
	}
	pairs, err := splitQuery(nil, form.Encode(), "form")
	if err != nil {
		return nil, err
	}
	req := &Request{ID: id}
	if err := req.fill(e, pairs, o.StrictParameters); err != nil {
		return nil, err
	}
	return req, nil
}

// boundBody is the name of the bound on bodies, policy.BoundBody.
const boundBody = "body"

// unheldBody is how much of a body is not held: no more than the buffers of its connection, which
// are as many. Nearly all bodies are shorter, and a Budget takes 64 KiB for the first byte.
const unheldBody = 8 << 10

// UnheldQuery is the longest query string of a URL that is not held: what any connection may hold
// of a request's head.
const UnheldQuery = 16 << 10

// readBody reads the body to its end: only then does net/http notice that a client leaves. What is
// read is held as it comes, not as it is announced: a client that stalls has memory only for what
// it has sent.
func readBody(r *http.Request, maxBytes int64, hold func(int64) error) ([]byte, error) {
	tooLarge := func(seen string) error {
		e := qerr.New(qerr.BodyTooLarge, "the body of the request is larger than %d bytes", maxBytes)
		e.Bound, e.Value, e.Seen, e.Advice = boundBody, strconv.FormatInt(maxBytes, 10), seen, "send a shorter query or fewer selectors"
		return e
	}
	if r.Body == nil {
		return nil, nil
	}
	if r.ContentLength > maxBytes {
		return nil, tooLarge(strconv.FormatInt(r.ContentLength, 10))
	}
	body, held := make([]byte, 0, 512), 0
	for {
		n, err := r.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
		switch {
		case int64(len(body)) > maxBytes:
			return nil, tooLarge("more than " + strconv.FormatInt(maxBytes, 10))
		case err == io.EOF:
			return body, nil
		case err != nil:
			return nil, bodyError(r.Context(), err, tooLarge)
		case len(body) < cap(body):
			continue
		}
		next := min(2*cap(body), int(maxBytes)+1) // one more, to see that it is larger
		if next > unheldBody {
			if err := hold(int64(next - held)); err != nil {
				return nil, err
			}
			held = next
		}
		body = append(make([]byte, 0, next), body...)
	}
}

// bodyError tells a client that left from one that is slow and from one that sends nonsense. A read
// deadline that passed is asked for first, since net/http cancels the context for it as for any
// other failed read; then the context, since what a cancelled read returns changes between versions
// of Go.
func bodyError(ctx context.Context, err error, tooLarge func(seen string) error) error {
	var (
		timeout  net.Error
		maxBytes *http.MaxBytesError
	)
	if errors.As(err, &timeout) && timeout.Timeout() {
		return qerr.Wrap(qerr.SlowRequest, err, "the body of the request did not arrive in time; send it in one go")
	}
	if ctx.Err() != nil {
		return qerr.FromContext(ctx, err)
	}
	switch {
	case errors.As(err, &maxBytes):
		return tooLarge("more than " + strconv.FormatInt(maxBytes.Limit, 10))
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed), errors.Is(err, syscall.ECONNRESET),
		errors.Is(err, syscall.EPIPE):
		return qerr.Wrap(qerr.Canceled, errors.Join(qerr.ErrClientLeft, err), "the client left before its request was complete")
	default:
		return qerr.Wrap(qerr.BadData, err, "the body of the request cannot be read; check its length and transfer encoding")
	}
}

// formHeaders checks what the headers say about a body that is not empty. About an empty one they
// may say anything: vmalert announces JSON and sends nothing, others send no type at all.
func formHeaders(r *http.Request) error {
	const form = "application/x-www-form-urlencoded"
	if r.Method == http.MethodGet {
		return qerr.New(qerr.BadData, "a GET request must not have a body; put the parameters into the URL or use POST with a form")
	}
	if enc := r.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "identity") {
		return qerr.New(qerr.BadData, "the body has Content-Encoding %s; send the form uncompressed", quoted(enc))
	}
	text := r.Header.Get("Content-Type")
	kind, params, err := mime.ParseMediaType(text)
	switch {
	case text == "":
		return qerr.New(qerr.BadData, "the body has no Content-Type; send it as %s", form)
	case err != nil || kind != form:
		return qerr.New(qerr.BadData, "the body has Content-Type %s; send the parameters as %s, as curl -d and --data-urlencode do, or in the URL", quoted(text), form)
	}
	if charset := params["charset"]; charset != "" && !strings.EqualFold(charset, "utf-8") && !strings.EqualFold(charset, "us-ascii") {
		return qerr.New(qerr.BadData, "the form has charset %s; send it as UTF-8", quoted(charset))
	}
	return nil
}

// pair is one name=value, decoded.
type pair struct{ name, value string }

// splitQuery appends the pairs of a query string or form. Where net/url drops a pair that it cannot
// read, this refuses: a query that lost a parameter is another query.
func splitQuery(pairs []pair, s, where string) ([]pair, error) {
	for len(s) > 0 {
		var part string
		part, s, _ = strings.Cut(s, "&")
		if part == "" {
			continue
		}
		if len(pairs) >= MaxParameters {
			return nil, qerr.New(qerr.BadData, "the request has more than %d parameters, the last one %s; send each once", MaxParameters, quoted(pairs[len(pairs)-1].name))
		}
		rawName, rawValue, _ := strings.Cut(part, "=")
		name, err := url.QueryUnescape(rawName)
		if err != nil {
			return nil, qerr.Wrap(qerr.BadData, err, "the parameter name %s in the %s is not percent-encoded properly", quoted(rawName), where)
		}
		if strings.Contains(part, ";") {
			return nil, qerr.New(qerr.BadData, "invalid parameter %s: it contains a semicolon in the %s; separate parameters with &, and write a semicolon in a value as %%3B",
				quoted(name), where)
		}
		value, err := url.QueryUnescape(rawValue)
		if err != nil {
			return nil, qerr.Wrap(qerr.BadData, err, "invalid parameter %s: its value in the %s is not percent-encoded properly; a percent sign is written %%25", quoted(name), where)
		}
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			return nil, qerr.New(qerr.BadData, "invalid parameter %s: it is not UTF-8", quoted(name))
		}
		if strings.IndexByte(name, 0) >= 0 || strings.IndexByte(value, 0) >= 0 {
			return nil, qerr.New(qerr.BadData, "invalid parameter %s: it contains a NUL byte", quoted(name))
		}
		pairs = append(pairs, pair{name, value})
	}
	return pairs, nil
}

// fill reads the pairs into r by the row's parameters.
func (r *Request) fill(e *Endpoint, pairs []pair, strict bool) error {
	values := make([][]string, len(e.Params))
	for _, p := range pairs {
		i := slices.IndexFunc(e.Params, func(q Param) bool { return q.Name == p.name })
		switch {
		case i < 0 && slices.Contains(Ignored, p.name):
		case i < 0 && strict:
			return qerr.New(qerr.BadData, "unknown parameter %s; %s takes %s", quoted(p.name), e.Path, e.names())
		case i < 0:
			r.drop(p.name)
		case slices.Contains(values[i], p.value): // Grafana repeats its custom parameters
		case !e.Params[i].Repeated && len(values[i]) > 0:
			return qerr.New(qerr.BadData, "invalid parameter %q: it is there twice with different values, %s and %s; send it once", p.name, quoted(values[i][0]), quoted(p.value))
		default:
			values[i] = append(values[i], p.value)
		}
	}
	for i := range e.Params {
		if err := r.set(&e.Params[i], values[i]); err != nil {
			return err
		}
	}
	if e.check != nil {
		return e.check(r)
	}
	return nil
}

// set stores the values of one parameter.
func (r *Request) set(p *Param, values []string) error {
	if len(values) == 0 || !p.Repeated && values[0] == "" {
		switch {
		case !p.Required:
			return nil
		case p.missing != nil:
			return qerr.Prometheus("%s", p.missing.Error())
		}
		values = []string{""} // the parser of the value says what is missing, in Prometheus' words
	}
	if p.MaxCount > 0 && len(values) > p.MaxCount {
		return qerr.New(qerr.BadData, "invalid parameter %q: it has %d values, of which at most %d are served; join selectors by a regular expression such as {__name__=~\"a|b\"}",
			p.Name, len(values), p.MaxCount)
	}
	if p.MaxBytes > 0 {
		for _, v := range values {
			if len(v) > p.MaxBytes {
				return qerr.New(qerr.BadData, "invalid parameter %q: it has %d bytes, of which at most %d make sense", p.Name, len(v), p.MaxBytes)
			}
		}
	}
	if err := p.set(r, values); err != nil {
		return qerr.New(qerr.BadData, "invalid parameter %q: %s", p.Name, err.Error())
	}
	return nil
}

// drop notes the name of an unknown parameter.
func (r *Request) drop(name string) {
	name = cut(name, maxDroppedName)
	at, found := slices.BinarySearch(r.Dropped, name)
	if !found && len(r.Dropped) < maxDropped {
		r.Dropped = slices.Insert(r.Dropped, at, name)
	}
}

// names lists the row's parameters for an error text.
func (e *Endpoint) names() string {
	if len(e.Params) == 0 {
		return "no parameters"
	}
	names := make([]string, len(e.Params))
	for i := range e.Params {
		names[i] = e.Params[i].Name
	}
	return strings.Join(names, ", ")
}

// errNoMatch has Prometheus' words.
var errNoMatch = errors.New("no match[] parameter provided")

// orderedRange refuses a range that ends before it begins.
func orderedRange(r *Request) error {
	if r.Start.Set && r.End.Set && r.End.Ms < r.Start.Ms {
		return qerr.Prometheus(`invalid parameter "end": end timestamp must not be before start time`)
	}
	return nil
}

// pagedRules refuses a page without a size, as Prometheus does.
func pagedRules(r *Request) error {
	if len(r.Filters["group_next_token"]) > 0 && len(r.Filters["group_limit"]) == 0 {
		return qerr.Prometheus(`invalid parameter "group_next_token": group_limit needs to be present in order to paginate over the groups`)
	}
	return nil
}
