package cost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/spillwayproject/spillway/internal/clip"
	"github.com/spillwayproject/spillway/internal/pause"
)

const (
	maxAnswerBytes = 64 << 20 // of one answer; more is treated as a query to be halved
	maxErrorBytes  = 64 << 10
	// attempts is how often a query is sent that is turned away for now (429, 503, a connection
	// that breaks).
	attempts = 6
	// firstPause doubles with each attempt, up to maxPause; a server's own Retry-After goes before,
	// up to maxRetryAfter.
	firstPause    = time.Second
	maxPause      = 20 * time.Second
	maxRetryAfter = 2 * time.Minute
)

// Client asks one Prometheus HTTP API, one query at a time and never for a partial answer.
type Client struct {
	base *url.URL
	http *http.Client
	// Log, where set, is told of pauses and repetitions.
	Log func(format string, args ...any)

	wait    func(context.Context, time.Duration) error // sleep; tests have their own
	reached bool                                       // there was a connection once
}

// NewClient returns a client of the API below base, such as http://127.0.0.1:9090 or
// https://host/prefix. hc holds credentials and time limits; nil is a client that gives each
// request two minutes.
func NewClient(base string, hc *http.Client) (*Client, error) {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("--url=%s is no URL of a Prometheus API: write http://host:9090 or https://host/prefix", base)
	}
	if hc == nil {
		hc = &http.Client{Timeout: 2 * time.Minute}
	}
	return &Client{base: u, http: hc}, nil
}

// refusal is an answer that will not get better by repetition: the query is too much for the server
// (422, or an answer over maxAnswerBytes), or was still turned away after all attempts. Halving the
// query may help.
type refusal struct{ why string }

func (e *refusal) Error() string { return e.why }

// passing is a failure that a repetition may mend.
type passing struct {
	err   error
	after time.Duration // the server's own wish; 0: none
	gone  bool          // there was no connection: a smaller query has none either
}

func (e *passing) Error() string { return e.err.Error() }
func (e *passing) Unwrap() error { return e.err }

// series is one series of an answer.
type series struct {
	Metric map[string]string `json:"metric"`
	Values []pair            `json:"values"`
}

// pair is a sample: seconds and a value.
type pair struct {
	t int64 // ms
	v float64
}

func (p *pair) UnmarshalJSON(b []byte) error {
	var raw [2]json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil {
		return err
	}
	sec, err := strconv.ParseFloat(string(raw[0]), 64)
	if err != nil {
		return fmt.Errorf("the time of a sample: %w", err)
	}
	var text string
	if err := json.Unmarshal(raw[1], &text); err != nil {
		return fmt.Errorf("the value of a sample: %w", err)
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return fmt.Errorf("the value of a sample: %w", err)
	}
	p.t, p.v = int64(sec*1000+0.5), v
	return nil
}

// samples asks for the raw samples of a range selector.
func (c *Client) samples(ctx context.Context, query string, at int64) ([]series, error) {
	return c.ask(ctx, "/api/v1/query", url.Values{"query": {query}, "time": {stamp(at)}})
}

// rangeQuery evaluates a query at from, from+step, …, to, all in ms.
func (c *Client) rangeQuery(ctx context.Context, query string, from, to, step int64) ([]series, error) {
	return c.ask(ctx, "/api/v1/query_range",
		url.Values{"query": {query}, "start": {stamp(from)}, "end": {stamp(to)}, "step": {stamp(step)}})
}

func stamp(ms int64) string { return strconv.FormatFloat(float64(ms)/1000, 'f', 3, 64) }

// ask repeats what was turned away for now.
func (c *Client) ask(ctx context.Context, path string, form url.Values) ([]series, error) {
	form.Set("partial_response", "false")
	usual := firstPause
	for n := 1; ; n++ {
		out, err := c.once(ctx, path, form)
		var p *passing
		switch {
		case err == nil:
			return out, nil
		case ctx.Err() != nil:
			return nil, fmt.Errorf("%w (%s)", context.Cause(ctx), cut(err.Error()))
		case !errors.As(err, &p):
			return nil, err
		case n == attempts && p.gone:
			return nil, fmt.Errorf("%d attempts: %w", n, err)
		case n == attempts:
			return nil, &refusal{fmt.Sprintf("%d attempts: %v", n, err)}
		}
		wait := usual + rand.N(usual/2)
		if p.after > 0 {
			wait = min(p.after, maxRetryAfter)
		}
		c.say("asked again in %s: %v", wait.Round(100*time.Millisecond), err)
		sleep := pause.For
		if c.wait != nil {
			sleep = c.wait
		}
		if cause := sleep(ctx, wait); cause != nil {
			return nil, fmt.Errorf("%w (%s)", cause, cut(err.Error()))
		}
		usual = min(2*usual, maxPause)
	}
}

func (c *Client) say(format string, args ...any) {
	if c.Log != nil {
		c.Log(format, args...)
	}
}

// answer is the body of every answer.
type answer struct {
	Status    string   `json:"status"`
	ErrorType string   `json:"errorType"`
	Error     string   `json:"error"`
	Warnings  []string `json:"warnings"`
	IsPartial bool     `json:"isPartial"` // of a cluster of VictoriaMetrics
	Data      struct {
		ResultType string   `json:"resultType"`
		Result     []series `json:"result"`
	} `json:"data"`
}

func (c *Client) once(ctx context.Context, path string, form url.Values) ([]series, error) {
	u := c.base.JoinPath(path)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, u.String(), strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := c.http.Do(req)
	if err != nil {
		var dial *net.OpError
		gone := errors.As(err, &dial) && dial.Op == "dial"
		if gone && !c.reached {
			return nil, fmt.Errorf("--url=%s cannot be reached: %w; is the server running, and the address right?", c.base.Redacted(), dial)
		}
		return nil, &passing{err: err, gone: gone}
	}
	c.reached = true
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, failure(resp, u.Host)
	}
	body := &counted{r: io.LimitReader(resp.Body, maxAnswerBytes+1)}
	var a answer
	err = json.NewDecoder(body).Decode(&a)
	switch {
	case body.n > maxAnswerBytes:
		return nil, &refusal{fmt.Sprintf("the answer of %s is larger than %d MiB", u.Host, maxAnswerBytes>>20)}
	case err != nil && body.err != nil && !errors.Is(body.err, io.EOF):
		return nil, &passing{err: fmt.Errorf("the answer of %s broke off: %w", u.Host, body.err)}
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, &passing{err: fmt.Errorf("the answer of %s broke off", u.Host)}
	case err != nil:
		return nil, fmt.Errorf("%s did not answer as a Prometheus API does: %w", u, err)
	case a.Status != "success":
		return nil, fmt.Errorf("%s answered 200 and %s: %s", u.Host, a.ErrorType, cut(a.Error))
	case a.IsPartial:
		return nil, fmt.Errorf("%s answered with a part of it only (isPartial), and a bill takes whole answers only: is a node of its storage down?", u.Host)
	case len(a.Warnings) > 0:
		return nil, fmt.Errorf("%s answered with a warning, and a bill takes whole answers only: %s", u.Host, cut(strings.Join(a.Warnings, "; ")))
	case a.Data.ResultType != "matrix":
		return nil, fmt.Errorf("%s answered with a %q where a matrix was asked for", u.Host, cut(a.Data.ResultType))
	}
	return a.Data.Result, nil
}

// failure is what a status other than 200 says.
func failure(resp *http.Response, host string) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBytes))
	said := strings.TrimSpace(string(text))
	var a answer
	if json.Unmarshal(text, &a) == nil && a.Error != "" {
		said = a.Error
	}
	err := fmt.Errorf("%s answered %s: %s", host, resp.Status, cut(said))
	switch resp.StatusCode {
	case http.StatusUnprocessableEntity:
		return &refusal{err.Error()}
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return &passing{err: err, after: retryAfter(resp.Header.Get("Retry-After"), time.Now())}
	}
	return err
}

// retryAfter reads the header of this name, seconds or a date; 0 where it says nothing of use.
func retryAfter(h string, now time.Time) time.Duration {
	if n, err := strconv.Atoi(strings.TrimSpace(h)); err == nil && n >= 0 {
		return min(time.Duration(n), 1e6) * time.Second
	}
	if t, err := http.ParseTime(h); err == nil {
		return max(0, t.Sub(now))
	}
	return 0
}

// cut keeps what a server wrote to one line of a bearable length.
func cut(s string) string {
	s = strings.Join(strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }), " ")
	return clip.Text(s, 500)
}

// counted counts what is read and keeps the reader's own error, which a decoder hides.
type counted struct {
	r   io.Reader
	n   int64
	err error
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	if err != nil {
		c.err = err
	}
	return n, err
}
