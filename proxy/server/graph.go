package server

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/identity"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/qerr"
	"github.com/spillwayproject/spillway/proxy/ui"
)

const (
	// graphExprs is how many of a link's queries are shown.
	graphExprs = 4
	// graphRange is the stretch of time of a plot where the link names none, as in Prometheus.
	graphRange = time.Hour
	// graphPoints is how many steps a plot has at most.
	graphPoints = 240
	// graphTimeout is how long the page waits for one answer; the configuration's own timeout
	// stands where it is shorter.
	graphTimeout = 10 * time.Second
)

// shown is a query of a link as the page shows it: its value, a plot of it and its plan, or what
// went wrong with each.
type shown struct {
	Query string
	Link  template.URL // where else it is drawn; empty for nowhere

	Rows     []ui.Row
	More     int
	Empty    bool // it was answered, with nothing
	Problem  string
	Warnings []string

	Plot        template.HTML
	PlotProblem string
	Span        string // of the plot, for people

	Plan      *plan.Explanation
	PlanError string
}

// moment is which instant and which stretch of time a link asks for, by Prometheus' names for them.
type moment struct {
	at   time.Time // the instant, and the plot's end; never zero
	set  bool      // it is the link's
	span time.Duration
	step time.Duration
}

// readMoment reads the parameters of one query of a link: g0.moment_input or g0.end_input,
// g0.range_input. What it cannot read is as good as not there: a link in an alert has to open.
func readMoment(q url.Values, prefix string, now time.Time) moment {
	m := moment{at: now, span: graphRange}
	for _, name := range []string{"moment_input", "end_input"} {
		for _, layout := range []string{time.DateTime, "2006-01-02 15:04", time.RFC3339} {
			if at, err := time.ParseInLocation(layout, q.Get(prefix+name), time.UTC); err == nil && !m.set {
				m.at, m.set = at, true
			}
		}
	}
	if d, err := model.ParseDuration(q.Get(prefix + "range_input")); err == nil && d > 0 {
		m.span = time.Duration(d)
	}
	m.step = max((m.span / graphPoints).Truncate(time.Second), time.Second)
	return m
}

// show asks for all that the page shows of one query.
func (s *Server) show(r *http.Request, query string, m moment) shown {
	one := shown{Query: query, Link: s.graphLink(query, m), Span: model.Duration(m.span).String()}
	var err error
	if one.Plan, err = s.ask(r, Question{Query: query}, false); err != nil {
		one.PlanError = publicly(err)
	}
	form := url.Values{"query": {query}, "time": {seconds(m.at)}, "limit": {strconv.Itoa(ui.MaxRows)}, "timeout": {graphTimeout.String()}}
	st := s.acquire()
	defer st.release()
	drawn := admit.NewBudget(st.pool, admit.Limits{}).By(identity.HolderOf(r))
	defer drawn.Close()
	a, err := s.look(r, endpoint.Query, form, drawn)
	if err != nil {
		one.Problem = publicly(err)
		return one // a plot would fail likewise, and ask the servers once more
	}
	one.Rows, one.More = a.Rows()
	one.Empty, one.Warnings = len(one.Rows) == 0, append(a.Warnings, a.Infos...)
	from := m.at.Add(-m.span)
	form = url.Values{
		"query": {query}, "start": {seconds(from)}, "end": {seconds(m.at)}, "step": {strconv.FormatFloat(m.step.Seconds(), 'f', -1, 64)},
		"limit": {strconv.Itoa(ui.MaxLines + 1)}, "timeout": {graphTimeout.String()},
	}
	if a, err = s.look(r, endpoint.QueryRange, form, drawn); err != nil {
		one.PlotProblem = publicly(err)
		return one
	}
	if lines := a.Lines(); len(lines) > 0 {
		one.Plot = ui.Plot(lines, from, m.at, m.step)
	}
	return one
}

// look puts a query to the road of all queries, in this process, on behalf of a request. The budget
// holds the answer, as its JSON and as it is read, until it is drawn.
func (s *Server) look(from *http.Request, id endpoint.ID, form url.Values, drawn *admit.Budget) (*ui.Answer, error) {
	req, err := endpoint.ParseForm(id, form, endpoint.Options{})
	if err != nil {
		return nil, err
	}
	kept := &keptAnswer{nowhere: nowhere{http.Header{}}, budget: drawn}
	switch _, qe := s.road(kept, from, &inner{req: req, page: true}); {
	case kept.err != nil:
		return nil, kept.err
	case kept.over:
		return nil, qerr.New(qerr.TooExpensive, "the answer has more than %d MiB; ask for a part of the query", maxKept>>20)
	case qe != nil:
		return nil, qe
	}
	if err := drawn.Hold(int64(readFactor * len(kept.body))); err != nil {
		return nil, err
	}
	a, err := ui.Read(kept.body)
	if err != nil {
		return nil, qerr.Wrap(qerr.Internal, err, "Spillway failed to draw this answer; its log has the cause")
	}
	return a, nil
}

const (
	// maxKept is the largest answer that is drawn, in bytes of JSON.
	maxKept = 8 << 20
	// readFactor is how much longer than its JSON an answer is once it is read, one copy of the
	// JSON included: of samples twice, of histograms' buckets four times.
	readFactor = 4
)

// keptAnswer is an http.ResponseWriter that keeps an answer of at most so many bytes, 0 is maxKept;
// one that is longer ends its request. So does one that finds no memory, where it is held.
type keptAnswer struct {
	nowhere
	most   int
	budget *admit.Budget // holds what is kept; nil where nothing does
	body   []byte
	over   bool
	err    error // of the budget
}

// Write implements io.Writer.
func (k *keptAnswer) Write(p []byte) (int, error) {
	if k.over = k.over || len(k.body)+len(p) > cmp.Or(k.most, maxKept); k.over {
		return 0, errors.New("the answer is too long to be kept")
	}
	if k.err = k.budget.Hold(int64(len(p))); k.err != nil {
		return 0, k.err
	}
	k.body = append(k.body, p...)
	return len(p), nil
}

func seconds(t time.Time) string {
	return strconv.FormatFloat(float64(t.UnixMilli())/1000, 'f', -1, 64)
}

// checkGraphURL tells what is wrong with Options.GraphURL.
func checkGraphURL(link string) error {
	if link == "" {
		return nil
	}
	u, err := url.Parse(link)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("the graph URL %q is not an http or https address", link)
	}
	if !strings.Contains(link, "{expr}") && !strings.Contains(link, "{expr_json}") {
		return fmt.Errorf("the graph URL %q has no place for the query: put {expr}, or {expr_json} inside JSON, where it belongs; docs/explain.md has one for Grafana", link)
	}
	return nil
}

// graphLink is Options.GraphURL with the query in it.
func (s *Server) graphLink(query string, m moment) template.URL {
	if s.opts.GraphURL == "" {
		return ""
	}
	text, err := json.Marshal(query)
	if err != nil {
		return ""
	}
	return template.URL(strings.NewReplacer(
		"{expr}", url.QueryEscape(query),
		"{expr_json}", url.QueryEscape(string(text[1:len(text)-1])),
		"{from}", strconv.FormatInt(m.at.Add(-m.span).UnixMilli(), 10),
		"{until}", strconv.FormatInt(m.at.UnixMilli(), 10),
	).Replace(s.opts.GraphURL))
}
