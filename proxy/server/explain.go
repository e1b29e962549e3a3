package server

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// explainHeader asks the road of a query for its plan: explainPlan instead of an answer, explainRun
// beside it.
const (
	explainHeader = "X-Spillway-Explain"
	explainPlan   = "plan"
	explainRun    = "1"
)

// Question is a query to explain. Times and the step are written as in the Prometheus API; empty
// ones are not sent.
type Question struct {
	// Query is PromQL.
	Query string
	// Time is the instant of an instant query; now where empty.
	Time string
	// Start, End and Step make it a range query; all or none.
	Start, End, Step string
	// Analyze runs the query too, so that the explanation has what it really took.
	Analyze bool
}

// read understands the question.
func (q Question) read(o endpoint.Options) (*endpoint.Request, error) {
	form, id := url.Values{"query": {q.Query}}, endpoint.Query
	set := func(name, value string) {
		if value != "" {
			form.Set(name, value)
		}
	}
	if q.Start+q.End+q.Step != "" {
		if q.Start == "" || q.End == "" || q.Step == "" || q.Time != "" {
			return nil, qerr.New(qerr.BadData, "start, end and step go together, for a range query; an instant query has a time, or none for now")
		}
		id = endpoint.QueryRange
	}
	set("time", q.Time)
	set("start", q.Start)
	set("end", q.End)
	set("step", q.Step)
	return endpoint.ParseForm(id, form, o)
}

// ExplainQuery explains one query for a program that does not serve: it may be called instead of
// Run. The replicas are probed first, for at most 10 s. Where the API would answer the query with
// an error, ExplainQuery returns an error with the same sentence. Close ends what it has started.
func (s *Server) ExplainQuery(ctx context.Context, q Question) (*plan.Explanation, error) {
	st := s.acquire()
	defer st.release()
	st.top.Start(s.background)
	wait, cancel := context.WithTimeout(ctx, 10*time.Second)
	err := st.top.WaitFirstProbe(wait)
	cancel()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		s.log.Warn("explaining although not every replica has answered its first probe", "err", err)
	}
	from, err := http.NewRequestWithContext(ctx, http.MethodGet, "/", nil)
	if err != nil {
		return nil, err
	}
	return s.ask(from, q, true)
}

// Close ends a server that was not Run.
func (s *Server) Close() {
	s.end()
	s.state.Load().retire()
}

// ask explains a query on behalf of a request, an operator's or that of whoever may ask the query
// itself: it goes the road of all queries, and no answer is kept. One that is run is seen and ended
// as any other. The error is a *qerr.Error.
func (s *Server) ask(from *http.Request, q Question, operator bool) (*plan.Explanation, error) {
	req, err := q.read(endpoint.Options{})
	if err != nil {
		return nil, qerr.From(err)
	}
	a := &account{only: !q.Analyze}
	_, qe := s.road(nowhere{http.Header{}}, from, &inner{req: req, account: a, operator: operator, page: q.Analyze})
	switch {
	case qe != nil && a.told == nil:
		return nil, qe
	case a.told == nil:
		return nil, qerr.Wrap(qerr.Internal, errors.New("the answer has no explanation"), "Spillway failed to explain this query; its log has the cause")
	}
	return a.told, nil
}

// nowhere takes an answer that nobody reads.
type nowhere struct{ header http.Header }

// Header implements http.ResponseWriter.
func (n nowhere) Header() http.Header { return n.header }

// WriteHeader implements http.ResponseWriter.
func (nowhere) WriteHeader(int) {}

// Write implements io.Writer.
func (nowhere) Write(p []byte) (int, error) { return len(p), nil }

// publicly is an error in the words that a client may read.
func publicly(err error) string {
	e := qerr.From(err)
	if e.Advice != "" && !strings.Contains(e.Message, e.Advice) {
		return e.Message + "; " + e.Advice
	}
	return e.Message
}

// explainParameters are what the admin resource explain takes.
var explainParameters = []string{"query", "time", "start", "end", "step", "analyze"}

// adminExplain answers GET explain of the admin API.
func (s *Server) adminExplain(w http.ResponseWriter, r *http.Request) {
	q, err := readQuestion(r.URL.RawQuery)
	if err != nil {
		qerr.From(err).WriteTo(w)
		return
	}
	e, err := s.ask(asNobody(r), q, true)
	if err != nil {
		qerr.From(err).WriteTo(w)
		return
	}
	adminData(w, e)
}

// asNobody is r without its headers: the admin's own are none of a query's business.
func asNobody(r *http.Request) *http.Request {
	return (&http.Request{RemoteAddr: r.RemoteAddr, Header: http.Header{}, Host: r.Host}).WithContext(r.Context())
}

// readQuestion reads the parameters of explain. They are few, so unlike the API's none is passed
// over.
func readQuestion(raw string) (q Question, err error) {
	form, err := url.ParseQuery(raw)
	if err != nil {
		return q, qerr.Wrap(qerr.BadData, err, "the parameters cannot be read; percent-encode them (curl -G --data-urlencode 'query=…')")
	}
	for _, name := range slices.Sorted(maps.Keys(form)) {
		if !slices.Contains(explainParameters, name) {
			return q, qerr.New(qerr.BadData, "explain does not know the parameter %.64q; it takes %s", name, strings.Join(explainParameters, ", "))
		}
		if len(form[name]) > 1 {
			return q, qerr.New(qerr.BadData, "the parameter %s stands %d times; once is enough", name, len(form[name]))
		}
	}
	q = Question{Query: form.Get("query"), Time: form.Get("time"), Start: form.Get("start"), End: form.Get("end"), Step: form.Get("step")}
	if strings.TrimSpace(q.Query) == "" {
		return q, qerr.New(qerr.BadData, "explain needs a query: explain?query=sum(up), with start, end and step for a range query, and analyze=1 to run it too")
	}
	if v := form.Get("analyze"); v != "" {
		if q.Analyze, err = strconv.ParseBool(v); err != nil {
			return q, qerr.New(qerr.BadData, "analyze takes 1 or 0, not %.64q", v)
		}
	}
	return q, nil
}
