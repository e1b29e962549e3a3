package rehearse

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spillwayproject/spillway/internal/clip"
)

// Side is one of the two servers.
type Side struct {
	// URL is its address, up to but without /api/v1.
	URL string
	// Client brings credentials and the bound of time; nil is one without either.
	Client *http.Client

	spillway bool
	version  string
	features string   // that a Prometheus was started with, as text
	ignore   []string // labels
}

// answer is what a server said to a question.
type answer struct {
	failed string // why there is none that could be compared
	error  string // the error, or refusal, as a sentence to compare: what differs in each is masked
	kind   string // of the error: its type, and the bound
	data   []row  // sorted by key
	notes  []string
	cost   int64 // samples; -1 where the server does not tell
	mode   string
}

// row is a series, or what else an answer lists.
type row struct {
	key    string // labels as text, by which rows are sorted
	points []point
}

type point struct {
	at    string // seconds, as sent
	value any    // text, or the object of a histogram
}

// body is the wire format of an answer.
type body struct {
	Status    string
	Data      json.RawMessage
	ErrorType string
	Error     string
	Warnings  []string
	Infos     []string
	IsPartial bool // of a cluster of VictoriaMetrics
	Spillway  struct {
		Bound   string
		Explain struct{ Plan *node }
	}
}

// node is what is looked at of Spillway's plan.
type node struct {
	Mode     string
	Calls    []struct{ Samples int64 }
	Children []*node
}

func (n *node) samples() (sum int64) {
	if n == nil {
		return 0
	}
	for _, c := range n.Calls {
		sum += c.Samples
	}
	for _, c := range n.Children {
		sum += c.samples()
	}
	return sum
}

type data struct {
	ResultType string
	Result     json.RawMessage
	Stats      struct {
		Samples *struct{ TotalQueryableSamples int64 }
	}
}

type series struct {
	Metric     map[string]string
	Value      []any
	Values     [][]any
	Histogram  []any
	Histograms [][]any
}

// probe finds out what a server is.
func (s *Side) probe(ctx context.Context) error {
	s.URL = strings.TrimSuffix(s.URL, "/")
	if !strings.HasPrefix(s.URL, "http://") && !strings.HasPrefix(s.URL, "https://") {
		return fmt.Errorf("%q is no URL of a Prometheus API; write http://host:9090 or https://host/prefix", s.URL)
	}
	if s.Client == nil {
		s.Client = &http.Client{}
	}
	resp, text, err := s.get(ctx, "/api/v1/status/buildinfo", nil, 1<<20)
	if err != nil {
		return fmt.Errorf("%s: %w", s.URL, err)
	}
	var b body
	var info struct{ Version string }
	if err := json.Unmarshal(text, &b); err != nil || b.Status != "success" || json.Unmarshal(b.Data, &info) != nil {
		return fmt.Errorf("%s is no Prometheus API: /api/v1/status/buildinfo answered %d %s", s.URL, resp.StatusCode, clip.Said(string(text)))
	}
	s.spillway, s.version = resp.Header.Get("X-Spillway-Request-Id") != "", info.Version
	if !s.spillway {
		s.features = s.enabled(ctx)
	}
	return nil
}

// enabled are the features that a Prometheus was started with (--enable-feature), as text; empty
// where there are none and where it does not tell.
func (s *Side) enabled(ctx context.Context) string {
	_, text, err := s.get(ctx, "/api/v1/status/flags", nil, 1<<20)
	var b body
	var flags map[string]string
	if err != nil || json.Unmarshal(text, &b) != nil || b.Status != "success" || json.Unmarshal(b.Data, &flags) != nil {
		return ""
	}
	return clip.Text(strings.ReplaceAll(flags["enable-feature"], ",", ", "), 300)
}

var errTooLarge = errors.New("the answer is too large to be compared")

// get asks and reads all of an answer.
func (s *Side) get(ctx context.Context, path string, form url.Values, most int64) (*http.Response, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+path, strings.NewReader(form.Encode()))
	if form == nil {
		req, err = http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, nil)
	}
	if err != nil {
		return nil, nil, err
	}
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if s.spillway {
		req.Header.Set("X-Spillway-Explain", "1")
	}
	resp, err := s.Client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	if err == nil && int64(len(text)) > most {
		err = errTooLarge
	}
	return resp, text, err
}

// ask asks a question, a second time where it was turned away for now.
func (s *Side) ask(ctx context.Context, q *Question, at time.Time, most int64) answer {
	form := q.form(at)
	if !s.spillway {
		form.Set("stats", "true")
	}
	for attempt := 0; ; attempt++ {
		resp, text, err := s.get(ctx, q.path(), form, most)
		busy := err == nil && (resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= 500)
		if attempt < 2 && (busy || err != nil && !errors.Is(err, errTooLarge)) && ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-time.After(time.Second << attempt):
			}
			continue
		}
		if err != nil {
			return answer{failed: err.Error()}
		}
		return s.read(q, resp, text)
	}
}

// read decodes an answer.
func (s *Side) read(q *Question, resp *http.Response, text []byte) answer {
	var b body
	if err := json.Unmarshal(text, &b); err != nil || b.Status == "" {
		return answer{failed: fmt.Sprintf("status %d, which is no answer of a Prometheus API: %s", resp.StatusCode, clip.Said(string(text)))}
	}
	if b.IsPartial {
		return answer{failed: "it answered with a part only (isPartial): is a node of its storage down?"}
	}
	a := answer{cost: -1}
	for _, note := range slices.Concat(b.Warnings, b.Infos) {
		a.notes = append(a.notes, mask(note))
	}
	slices.Sort(a.notes)
	a.notes = slices.Compact(a.notes)
	if b.Status != "success" {
		a.error, a.kind = mask(b.Error), strings.TrimSpace(b.ErrorType+" "+b.Spillway.Bound)
		return a
	}
	var err error
	if strings.HasSuffix(q.path(), "/series") {
		err = a.list(b.Data, s.ignore)
	} else {
		var d data
		if err = json.Unmarshal(b.Data, &d); err == nil {
			err = a.result(&d, s.ignore)
		}
		switch {
		case s.spillway && b.Spillway.Explain.Plan != nil:
			a.cost, a.mode = b.Spillway.Explain.Plan.samples(), b.Spillway.Explain.Plan.Mode
		case d.Stats.Samples != nil:
			a.cost = d.Stats.Samples.TotalQueryableSamples
		}
	}
	if err != nil {
		return answer{failed: "its data is none: " + err.Error()}
	}
	slices.SortFunc(a.data, func(x, y row) int { return strings.Compare(x.key, y.key) })
	return a
}

// list takes the label sets of series.
func (a *answer) list(text json.RawMessage, ignore []string) error {
	var sets []map[string]string
	if err := json.Unmarshal(text, &sets); err != nil {
		return err
	}
	for _, set := range sets {
		a.data = append(a.data, row{key: labelText(set, ignore)})
	}
	return nil
}

func (a *answer) result(d *data, ignore []string) error {
	switch d.ResultType {
	case "scalar", "string":
		var pair []any
		if err := json.Unmarshal(d.Result, &pair); err != nil {
			return err
		}
		a.data = []row{{key: d.ResultType}}
		return a.data[0].add(pair)
	case "vector", "matrix":
	default:
		return fmt.Errorf("resultType %q", clip.Text(d.ResultType, 40))
	}
	var list []series
	if err := json.Unmarshal(d.Result, &list); err != nil {
		return err
	}
	for _, s := range list {
		r := row{key: labelText(s.Metric, ignore)}
		pairs := slices.Concat(s.Values, s.Histograms)
		if s.Value != nil {
			pairs = append(pairs, s.Value)
		}
		if s.Histogram != nil {
			pairs = append(pairs, s.Histogram)
		}
		for _, p := range pairs {
			if err := r.add(p); err != nil {
				return err
			}
		}
		slices.SortStableFunc(r.points, func(x, y point) int { return compareNumbers(x.at, y.at) })
		a.data = append(a.data, r)
	}
	return nil
}

// add adds a pair of a time and a value.
func (r *row) add(pair []any) error {
	at, ok := 0.0, false
	if len(pair) == 2 {
		at, ok = pair[0].(float64)
	}
	if !ok {
		return errors.New("a point is no pair of a time and a value")
	}
	r.points = append(r.points, point{at: number(at), value: pair[1]})
	return nil
}

// masked is what differs in each answer of one server: its address, times and durations.
var masked = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z?|[\w.-]+:\d{2,5}\b|\b\d+(\.\d+)?(ms|s|m|h)\b`)

// mask takes out of a sentence what differs each time.
func mask(text string) string { return masked.ReplaceAllString(text, "…") }
