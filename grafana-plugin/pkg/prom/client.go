package prom

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	jsoniter "github.com/json-iterator/go"
	"golang.org/x/sync/semaphore"
)

const (
	maxErrorBytes = 1 << 20 // of an answer that is an error
	shownBytes    = 200     // of an answer that is shown because it is not what was expected
	maxRedirects  = 5
)

// Client asks one proxy or Prometheus. Its methods may be called at once.
type Client struct {
	base    *url.URL
	http    *http.Client
	partial string // value of partial_response; empty sends none
	budget  *semaphore.Weighted
}

var _ Asker = (*Client)(nil)

// New makes a client of the API under base, such as http://spillway:9090 or https://host/prefix;
// the API's paths are put behind it. client brings TLS, credentials and the bound of time; its
// CheckRedirect is replaced. partialResponse is that of the settings: "" (what the proxy is
// configured for), "warn" or "abort".
func New(base string, client *http.Client, partialResponse string) (*Client, error) {
	if strings.TrimSpace(base) == "" {
		return nil, errors.New("the datasource has no URL; write the proxy's, such as http://spillway:9090")
	}
	u, err := url.Parse(strings.TrimSpace(base))
	if err != nil {
		return nil, fmt.Errorf("the datasource's URL cannot be read; write one such as http://spillway:9090: %w", withoutURL(err))
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("the datasource's URL must begin with http:// or https:// and a host; write one such as http://spillway:9090")
	}
	if u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("the datasource's URL has a part behind ? or #; leave it out, since the API's paths are put behind the URL")
	}
	c := &Client{base: u, http: &http.Client{}, budget: semaphore.NewWeighted(budgetBytes)}
	*c.http = *client
	c.http.CheckRedirect = sameHost
	switch partialResponse {
	case "":
	case "warn":
		c.partial = "true"
	case "abort":
		c.partial = "false"
	default:
		return nil, fmt.Errorf(`partialResponse: %q is neither "warn" nor "abort"`, partialResponse)
	}
	return c, nil
}

// Close ends connections that are idle. Requests that run go on until their contexts end.
func (c *Client) Close() { c.http.CloseIdleConnections() }

type headersKey struct{}

// WithHeaders returns a context whose requests carry h: who asks, and what Grafana passes on of the
// user's identity. Nothing that the client sets itself is replaced by them. The caller chooses
// which: all of h is sent.
func WithHeaders(ctx context.Context, h http.Header) context.Context {
	return context.WithValue(ctx, headersKey{}, h)
}

type maxSeriesKey struct{}

// WithMaxSeries returns a context whose answers keep the first n series; Answer.Left counts the
// others.
func WithMaxSeries(ctx context.Context, n int) context.Context {
	return context.WithValue(ctx, maxSeriesKey{}, n)
}

type wholeKey struct{}

// WithWhole returns a context whose answers are whole, whatever the settings say of partial ones:
// for who would not see their warnings.
func WithWhole(ctx context.Context) context.Context {
	return context.WithValue(ctx, wholeKey{}, true)
}

// Failure is what came in place of an answer: nobody listens, TLS fails, the time is over, the
// connection breaks, or what came is not what the API says.
type Failure struct {
	// Status is 504 where the time was over, 503 where there was no memory for an answer, 502 else:
	// what a gateway answers with.
	Status int
	// Message says what happened and what to do.
	Message string

	cause error
}

func (f *Failure) Error() string {
	if f.cause != nil {
		return f.Message + ": " + f.cause.Error()
	}
	return f.Message
}

// Unwrap returns what happened in net/http's words, nil where there is nothing.
func (f *Failure) Unwrap() error { return f.cause }

// Instant implements Asker. It also takes queries that give a range of samples at one moment.
func (c *Client) Instant(ctx context.Context, query string, at time.Time) (Answer, error) {
	return c.ask(ctx, "query", url.Values{"query": {query}, "time": {unixSeconds(at)}})
}

// Range implements Asker.
func (c *Client) Range(ctx context.Context, query string, from, until time.Time, step time.Duration) (Answer, error) {
	return c.ask(ctx, "query_range", url.Values{
		"query": {query}, "start": {unixSeconds(from)}, "end": {unixSeconds(until)},
		"step": {strconv.FormatFloat(step.Seconds(), 'f', -1, 64)},
	})
}

// Version asks for the version that the API's build information names; of a proxy it is that of its
// oldest server.
func (c *Client) Version(ctx context.Context) (string, error) {
	resp, err := c.send(ctx, http.MethodGet, "status/buildinfo", nil)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return "", refusal(resp)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBytes))
	if err != nil {
		return "", c.failure(ctx, err)
	}
	var info struct {
		Status string `json:"status"`
		Data   struct {
			Version string `json:"version"`
		} `json:"data"`
	}
	if jsoniter.Unmarshal(text, &info) != nil || info.Status != "success" {
		return "", strange(resp, text)
	}
	return info.Data.Version, nil
}

func (c *Client) ask(ctx context.Context, path string, form url.Values) (Answer, error) {
	partial := c.partial
	if whole, _ := ctx.Value(wholeKey{}).(bool); whole {
		partial = "false"
	}
	if partial != "" {
		form.Set("partial_response", partial)
	}
	resp, err := c.send(ctx, http.MethodPost, path, form)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return Answer{}, refusal(resp)
	}
	room := c.room(ctx, resp.ContentLength)
	defer room.release()
	r := bufio.NewReaderSize(&capped{r: resp.Body, left: MaxAnswerBytes, room: room}, shownBytes)
	head, _ := r.Peek(shownBytes) // an error comes again
	if first := strings.TrimLeftFunc(string(head), unicode.IsSpace); len(head) > 0 && !strings.HasPrefix(first, "{") {
		return Answer{}, strange(resp, head)
	}
	most, _ := ctx.Value(maxSeriesKey{}).(int)
	b, err := decodeFirst(r, most)
	if err != nil {
		return Answer{}, c.failure(ctx, err)
	}
	switch {
	case b.status == "error":
		return Answer{}, b.failed.refusal(resp)
	case b.status != "success" || !b.data:
		return Answer{}, &Failure{Status: http.StatusBadGateway, Message: fmt.Sprintf(
			"what answered at %s is no Prometheus API: its answer has no result; check the datasource's URL", c.base.Redacted())}
	case b.resultType == "string":
		return Answer{}, &Failure{Status: http.StatusBadGateway, Message: "the query gives a text, which cannot be shown; ask for numbers"}
	}
	return b.answer, nil
}

// send makes a request and returns its answer's head. The caller closes the body.
func (c *Client) send(ctx context.Context, method, path string, form url.Values) (*http.Response, error) {
	var text io.Reader
	if form != nil {
		text = strings.NewReader(form.Encode())
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base.JoinPath("api/v1", path).String(), text)
	if err != nil {
		return nil, &Failure{Status: http.StatusBadGateway, Message: "the request cannot be made; check the datasource's URL", cause: withoutURL(err)}
	}
	if h, _ := ctx.Value(headersKey{}).(http.Header); len(h) > 0 {
		req.Header = h.Clone()
	}
	req.Header.Set("Accept", "application/json")
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.failure(ctx, err)
	}
	return resp, nil
}

// failure is the error for one that came from net/http or from reading an answer. The context is
// asked first: how a read ends that it cut off is nobody's promise.
func (c *Client) failure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
		if !errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("the query was given up: %w", err)
		}
	}
	var (
		timeout  net.Error
		large    tooLarge
		full     noRoom
		bad      *malformed
		redirect *redirected
		where    = c.base.Redacted()
	)
	switch {
	case errors.As(err, &large):
		return &Failure{Status: http.StatusBadGateway, Message: err.Error()}
	case errors.As(err, &full):
		return &Failure{Status: http.StatusServiceUnavailable, Message: err.Error()}
	case errors.As(err, &bad):
		return &Failure{Status: http.StatusBadGateway, Message: fmt.Sprintf("%s: %s; try again, and check the datasource's URL where it comes again", where, bad.Error())}
	case errors.As(err, &redirect):
		return &Failure{Status: http.StatusBadGateway, Message: redirect.Error()}
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return &Failure{Status: http.StatusGatewayTimeout, cause: withoutURL(err), Message: fmt.Sprintf(
			"%s did not answer in time; choose a shorter time or fewer experiments, or raise the datasource's timeout", where)}
	}
	return &Failure{Status: http.StatusBadGateway, cause: withoutURL(err), Message: fmt.Sprintf("%s cannot be asked; check the datasource's URL and that the proxy runs", where)}
}

// refusal reads an answer with a status that says no.
func refusal(resp *http.Response) error {
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBytes))
	b, bad := decode(strings.NewReader(string(text)))
	if err == nil && bad == nil && b.status == "error" {
		return b.failed.refusal(resp)
	}
	said := shown(text)
	if said == "" {
		said = "without a word"
	}
	r := &Refusal{Status: resp.StatusCode, Message: said, RetryAfter: retryAfter(resp.Header)}
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired:
		r.Advice = "Check the datasource's credentials and headers"
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		r.Advice = "Check the datasource's URL: the API is looked for at /api/v1 behind it"
	}
	return r
}

func (f failed) refusal(resp *http.Response) error {
	r := &Refusal{
		Status: resp.StatusCode, Type: f.errorType, Message: cmp.Or(f.message, "without a word"),
		Bound: f.bound, Value: f.value, Seen: f.seen, Advice: f.advice, RetryAfter: retryAfter(resp.Header),
	}
	// For those who read nothing else, the advice stands behind the sentence too.
	if f.advice != "" {
		r.Message = strings.TrimSuffix(r.Message, "; "+f.advice)
	}
	return r
}

// strange is the error for an answer that is no JSON, such as a page to log in.
func strange(resp *http.Response, text []byte) error {
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	message := fmt.Sprintf("what answered is no Prometheus API but %s: %s", cmp.Or(kind, "of no type"), shown(text))
	switch encoding := resp.Header.Get("Content-Encoding"); {
	case encoding != "":
		message = fmt.Sprintf("the answer is encoded as %q, which was not asked for", encoding)
	case kind == "text/html":
		message += "; a page to log in or an error page of something in between? Check the datasource's URL and credentials"
	default:
		message += "; check the datasource's URL"
	}
	return &Failure{Status: http.StatusBadGateway, Message: message}
}

// shown is the beginning of a text that is not to be trusted, on one line and printable.
func shown(text []byte) string {
	cut := len(text) > shownBytes
	s := strings.ToValidUTF8(string(text[:min(len(text), shownBytes)]), "")
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsGraphic(r) }), " ")
	if cut {
		s += "…"
	}
	return s
}

// retryAfter is the header's wait in seconds; a date is not looked at.
func retryAfter(h http.Header) time.Duration {
	s, err := strconv.ParseUint(h.Get("Retry-After"), 10, 31)
	if err != nil {
		return 0
	}
	return time.Duration(s) * time.Second
}

// redirected is a redirect that was not followed.
type redirected struct{ why, to string }

func (r *redirected) Error() string {
	return fmt.Sprintf("the datasource's URL redirects to %s, and %s; write the right URL into the datasource's settings", r.to, r.why)
}

// sameHost follows redirects that keep the request and its place: credentials and queries go to no
// other host than the one in the settings.
func sameHost(req *http.Request, via []*http.Request) error {
	to := &url.URL{Scheme: req.URL.Scheme, Host: req.URL.Host, Path: req.URL.Path}
	first := via[0]
	switch {
	case req.URL.Scheme != first.URL.Scheme && req.URL.Hostname() == first.URL.Hostname():
		return &redirected{"another scheme is not asked", to.Redacted()}
	case req.URL.Scheme != first.URL.Scheme || req.URL.Host != first.URL.Host:
		return &redirected{"other hosts are not asked", to.Redacted()}
	case req.Method != first.Method:
		return &redirected{"a query does not survive that", to.Redacted()}
	case len(via) >= maxRedirects:
		return &redirected{"there is no end to that", to.Redacted()}
	}
	return nil
}

type tooLarge struct{}

func (tooLarge) Error() string {
	return fmt.Sprintf("the answer has more than %d MiB; choose a shorter time, fewer experiments or one cluster", MaxAnswerBytes>>20)
}

// capped reads at most left bytes; more is an error. Before it reads more than are always read it
// asks for room.
type capped struct {
	r    io.Reader
	left int64
	room *room
}

func (c *capped) Read(p []byte) (int, error) {
	if c.left < 0 {
		return 0, tooLarge{}
	}
	if MaxAnswerBytes-c.left >= smallBytes {
		if err := c.room.take(); err != nil {
			return 0, err
		}
	}
	n, err := c.r.Read(p[:min(int64(len(p)), c.left+1)])
	if c.left -= int64(n); c.left < 0 {
		return n - 1, tooLarge{}
	}
	return n, err
}

// withoutURL takes the request's URL out of net/http's error: it can hold a password, and the
// message names the place already.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

// unixSeconds writes a time in seconds, to the millisecond.
func unixSeconds(t time.Time) string {
	return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', -1, 64)
}
