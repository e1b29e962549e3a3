package inventory

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/version"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/proxy/identity"
)

const (
	// apiWindow is within what Spillway answers where no metric is named (metadata_range, 55
	// minutes).
	apiWindow = 50 * time.Minute
	// apiLimit bounds the series of one answer, and so what is held.
	apiLimit = 20000
	// apiBytes bounds one answer.
	apiBytes = 256 << 20
	// apiTries is how often a request is made that the server has no room for.
	apiTries = 6
	// apiMaxWait is the longest pause between two tries.
	apiMaxWait = 30 * time.Second
)

// APIOptions say what to ask a query API for. The zero value is good.
type APIOptions struct {
	// External are the labels that the server or the proxy added; answers lose them. Two series
	// that are equal then are handed on as one.
	External []string
	// Window is how far before Now a series may have ended; 0 is 50 minutes, which both servers
	// answer from memory.
	Window time.Duration
	// Now is the end of the window; the zero value is the time of API's call.
	Now time.Time
	// Limit is how many series one answer may have; 0 is 20,000. A proxy's own limit may be lower.
	Limit int
}

// api asks a server.
type api struct {
	client   *http.Client
	base     *url.URL
	external map[string]bool
	from, to time.Time
	limit    int
}

// API reads the series of a Prometheus or of Spillway: first the names, then the series of each.
// Where an answer was cut by a limit, the question is split, by the beginnings of names or by the
// values of labels, until the answers are whole; where that is impossible, that is the error. Other
// warnings are errors too: they say that a shard is missing. Each request is marked as one of an
// inventory.
//
// Types come from the metadata, intervals from the list of targets where the server shows it. A
// metric whose name is that of a histogram's family has native histograms. client may be nil.
func API(client *http.Client, rawURL string, o APIOptions) (Source, error) {
	base, err := url.Parse(rawURL)
	if err != nil {
		return nil, errors.New("the URL of the API does not parse; it is http://HOST:PORT, with the path before /api/v1 if there is one")
	}
	if base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
		return nil, fmt.Errorf("API %q: the URL must be http://HOST:PORT or https://…", base.Redacted())
	}
	base.Path = strings.TrimSuffix(strings.TrimRight(base.Path, "/"), "/api/v1")
	base.RawQuery, base.Fragment = "", ""
	if client == nil {
		client = &http.Client{Timeout: scrapeTimeout}
	}
	marked := *client
	marked.Transport = &asInventory{client.Transport}
	if o.Window < 0 || o.Limit < 0 {
		return nil, errors.New("API: window and limit must not be negative")
	}
	if o.Now.IsZero() {
		o.Now = time.Now()
	}
	a := &api{
		client: &marked, base: base, external: map[string]bool{}, to: o.Now, from: o.Now.Add(-cmp.Or(o.Window, apiWindow)),
		limit: cmp.Or(o.Limit, apiLimit),
	}
	for _, name := range o.External {
		a.external[name] = true
	}
	return a, nil
}

// asInventory says on each request what asks. Spillway writes it into its usage log: all names are
// asked for here, and that is a use of none of them.
type asInventory struct{ next http.RoundTripper }

func (t *asInventory) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("User-Agent", identity.InventoryAgent+"/"+cmp.Or(version.Version, "unknown"))
	return cmp.Or(t.next, http.DefaultTransport).RoundTrip(r)
}

// String is the URL, without a password.
func (a *api) String() string { return a.base.Redacted() }

// Scan asks for the series of one metric after the other, by name.
func (a *api) Scan(ctx context.Context, f func(*Series) error) error {
	err := a.scan(ctx, func(s *Series, _ map[string]string) error { return f(s) })
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// scan hands on each series together with the labels that the server knows it by.
func (a *api) scan(ctx context.Context, f func(s *Series, asked map[string]string) error) error {
	names, err := a.names(ctx)
	if err != nil {
		return fmt.Errorf("%s: names of metrics: %w", a, err)
	}
	types, err := a.types(ctx)
	if err != nil {
		return fmt.Errorf("%s: metadata: %w", a, err)
	}
	intervals := a.intervals(ctx)
	b := labels.NewScratchBuilder(32)
	for _, name := range names {
		typ, family, err := types.of(ctx, name)
		if err != nil {
			return fmt.Errorf("%s: metadata of %s: %w", a, name, err)
		}
		s := Series{Type: typ, Native: family && (typ == model.MetricTypeHistogram || typ == model.MetricTypeGaugeHistogram)}
		seen := hashes{}
		err = a.series(ctx, selector{name: name}, func(ls map[string]string) error {
			if ls[model.MetricNameLabel] != name || name == "" {
				return fmt.Errorf("%s answers a question for metric %q with the series %v; is this a query API?", a, name, labels.FromMap(ls))
			}
			b.Reset()
			for name, value := range ls {
				if value != "" && !a.external[name] {
					b.Add(name, value)
				}
			}
			b.Sort()
			s.Labels = b.Labels()
			if !seen.add(s.Labels) {
				return nil
			}
			s.Interval = intervals[ls[model.JobLabel]]
			return f(&s, ls)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// answer is the envelope of the API.
type answer struct {
	Status   string          `json:"status"`
	Data     json.RawMessage `json:"data"`
	Error    string          `json:"error"`
	Warnings []string        `json:"warnings"`
	Partial  bool            `json:"isPartial"` // of a cluster of VictoriaMetrics
}

// statusError is an answer that is none.
type statusError struct {
	code int
	text string
}

func (e *statusError) Error() string { return e.text }

// toldOfDrops is how a Spillway with drop_rules begins to say what they take away, of which nothing
// is missing here that is stored. One that knows an inventory by its User-Agent does not say it.
var toldOfDrops = regexp.MustCompile(`^(metric|label|series of metric|buckets of metric) .* (is|are) dropped since \d{4}-\d\d-\d\d by rule `)

// get asks and decodes; cut says that a limit shortened the answer. Where a form would be too long
// for an address, post sends it as a body.
func (a *api) get(ctx context.Context, post bool, path string, params url.Values, data any) (cut bool, err error) {
	for try := 1; ; try++ {
		ans, wait, err := a.ask(ctx, post, path, params)
		if err != nil {
			if wait == 0 || try == apiTries {
				return false, err
			}
			select {
			case <-ctx.Done():
				return false, context.Cause(ctx)
			case <-time.After(wait * time.Duration(try)):
			}
			continue
		}
		if ans.Partial {
			return false, fmt.Errorf("the answer of %s is not whole (isPartial): is a node of its storage down?", path)
		}
		for _, w := range ans.Warnings {
			switch {
			case strings.HasPrefix(w, "results truncated due to limit"):
				cut = true
			case strings.HasPrefix(w, "Spillway narrowed the range"):
			case toldOfDrops.MatchString(w):
			default:
				return false, fmt.Errorf("the answer may not be whole: %s", w)
			}
		}
		if err := json.Unmarshal(ans.Data, data); err != nil {
			return false, fmt.Errorf("the answer of %s is not that of a query API: %w", path, err)
		}
		return cut, nil
	}
}

// ask makes one request. wait, if not 0, says that it may go better after a pause.
func (a *api) ask(ctx context.Context, post bool, path string, params url.Values) (ans *answer, wait time.Duration, err error) {
	u := *a.base
	u.Path += "/api/v1/" + path
	method, body := http.MethodGet, io.Reader(http.NoBody)
	if post {
		method, body = http.MethodPost, strings.NewReader(params.Encode())
	} else {
		u.RawQuery = params.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, 0, err
	}
	if post {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	resp, err := a.client.Do(req)
	if err != nil {
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		return nil, 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, apiBytes+1))
	if err != nil {
		return nil, 0, fmt.Errorf("read the answer of %s: %w", path, err)
	}
	if len(text) > apiBytes {
		return nil, 0, fmt.Errorf("the answer of %s is larger than %d bytes; ask for fewer series at once", path, apiBytes)
	}
	ans = &answer{}
	decodeErr := json.Unmarshal(text, ans)
	if resp.StatusCode != http.StatusOK || decodeErr == nil && ans.Status != "success" {
		if resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode == http.StatusServiceUnavailable {
			seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
			if err != nil || seconds < 1 {
				seconds = 1
			}
			wait = min(time.Duration(seconds)*time.Second, apiMaxWait)
		}
		return nil, wait, &statusError{
			resp.StatusCode,
			fmt.Sprintf("%s answers %s: %s", path, resp.Status, cmp.Or(ans.Error, "no reason given")),
		}
	}
	if decodeErr != nil {
		return nil, 0, fmt.Errorf("the answer of %s is not that of a query API: %w", path, decodeErr)
	}
	return ans, 0, nil
}

func (a *api) params(match string) url.Values {
	v := url.Values{"start": {a.seconds(a.from)}, "end": {a.seconds(a.to)}, "limit": {strconv.Itoa(a.limit)}}
	if match != "" {
		v.Set("match[]", match)
	}
	return v
}

func (a *api) seconds(t time.Time) string {
	return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', -1, 64)
}

// first are the characters that names are split by; all others are one more part.
const first = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_:"

// names are all names of metrics, sorted.
func (a *api) names(ctx context.Context) ([]string, error) {
	var names []string
	cut, err := a.get(ctx, false, "label/__name__/values", a.params(""), &names)
	if err != nil {
		return nil, err
	}
	if cut {
		names = nil
		if err := a.namesWith(ctx, "", &names); err != nil {
			return nil, err
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// namesWith adds the names that begin with prefix, which is made of characters of first.
func (a *api) namesWith(ctx context.Context, prefix string, names *[]string) error {
	const deepest = 200
	if len(prefix) > deepest {
		return fmt.Errorf("more than %d names begin with %s", a.limit, prefix)
	}
	ask := func(pattern string) (cut bool, err error) {
		var some []string
		cut, err = a.get(ctx, false, "label/__name__/values", a.params("{__name__=~"+strconv.Quote(pattern)+"}"), &some)
		if err == nil && !cut {
			*names = append(*names, some...)
		}
		return cut, err
	}
	if prefix != "" {
		if _, err := ask(prefix); err != nil {
			return err
		}
	}
	rest := prefix + "[^" + first + "].*"
	if cut, err := ask(rest); err != nil || cut {
		return cmp.Or(err, fmt.Errorf("more names match %s than one answer may have", rest))
	}
	for _, c := range first {
		cut, err := ask(prefix + string(c) + ".*")
		if err != nil {
			return err
		}
		if cut {
			if err := a.namesWith(ctx, prefix+string(c), names); err != nil {
				return err
			}
		}
	}
	return nil
}
