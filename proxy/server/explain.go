package server

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

// explainHeader asks the road of a query for its plan: explainPlan instead of an answer, explainRun beside it.
const (
	explainHeader = "X-Spillway-Explain"
	explainPlan   = "plan"
	explainRun    = "1"
)

// maxExplanation is the largest explanation, or answer for a page, that is taken, in bytes of JSON. A plan over a hundred shards has some 20 KiB for each of its selectors.
const maxExplanation = 8 << 20

// Question is a query to explain. Times and the step are written as in the Prometheus API; empty ones are not sent.
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

// request is the question as a request to the API, on behalf of from.
func (q Question) request(from *http.Request) (*http.Request, error) {
	form, path := url.Values{"query": {q.Query}}, "/api/v1/query"
	set := func(name, value string) {
		if value != "" {
			form.Set(name, value)
		}
	}
	if q.Start+q.End+q.Step != "" {
		if q.Start == "" || q.End == "" || q.Step == "" || q.Time != "" {
			return nil, qerr.New(qerr.BadData, "start, end and step go together, for a range query; an instant query has a time, or none for now")
		}
		path += "_range"
	}
	set("time", q.Time)
	set("start", q.Start)
	set("end", q.End)
	set("step", q.Step)
	r, err := inside(from, path, form)
	if err != nil {
		return nil, err
	}
	r.Header.Set(explainHeader, explainPlan)
	if q.Analyze {
		r.Header.Set(explainHeader, explainRun)
	}
	return r, nil
}

// inside is a request to the API from within this process. What is true of from, which asks it, is true of it: the caller, and that it can leave.
func inside(from *http.Request, path string, form url.Values) (*http.Request, error) {
	r, err := http.NewRequestWithContext(from.Context(), http.MethodGet, path+"?"+form.Encode(), nil)
	if err != nil {
		return nil, err
	}
	r.Header = from.Header.Clone()
	for _, h := range []string{"Content-Type", "Content-Encoding", "Content-Length"} { // of a body that is not sent on
		r.Header.Del(h)
	}
	r.RemoteAddr, r.TLS, r.Host = from.RemoteAddr, from.TLS, from.Host
	return r, nil
}

// ExplainQuery explains one query for a program that does not serve: it may be called instead of Run. The replicas are probed first, for at most 10 s. What the
// API answers to the query with an error, this returns as one with the same sentence. Close ends what it has started.
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
	return s.ask(from, q)
}

// Close ends a server that was not Run.
func (s *Server) Close() {
	s.stop()
	s.state.Load().retire()
}

// ask puts a question to the road of a query, in this process, on behalf of a request.
func (s *Server) ask(from *http.Request, q Question) (e *plan.Explanation, err error) {
	r, err := q.request(from)
	if err != nil {
		return nil, err
	}
	rec := &record{header: http.Header{}, dataless: q.Analyze}
	if err := rec.run(s.serveAPI, r); err != nil {
		return nil, err
	}
	if rec.status != http.StatusOK {
		return nil, &answered{status: rec.status, retryAfter: rec.header.Get("Retry-After"), body: rec.body}
	}
	var answer struct {
		Data     *plan.Explanation
		Spillway struct{ Explain *plan.Explanation }
	}
	if err := json.Unmarshal(rec.body, &answer); err != nil {
		return nil, qerr.Wrap(qerr.Internal, err, "Spillway failed to explain this query; its log has the cause")
	}
	if e = answer.Data; q.Analyze {
		e = answer.Spillway.Explain
	}
	if e == nil || e.Verdict == "" {
		return nil, qerr.Wrap(qerr.Internal, errors.New("the answer has no explanation"), "Spillway failed to explain this query; its log has the cause")
	}
	return e, nil
}

// answered is an error as the API answered it.
type answered struct {
	status     int
	retryAfter string
	body       []byte
}

// Error is the sentence that a client would read.
func (a *answered) Error() string {
	var e struct {
		Error    string
		Spillway struct{ Advice string }
	}
	if json.Unmarshal(a.body, &e) != nil || e.Error == "" {
		return "the query was answered with status " + strconv.Itoa(a.status)
	}
	if e.Spillway.Advice != "" && !strings.Contains(e.Error, e.Spillway.Advice) {
		return e.Error + "; " + e.Spillway.Advice
	}
	return e.Error
}

// publicly is an error in the words that a client may read.
func publicly(err error) string {
	var a *answered
	if errors.As(err, &a) {
		return a.Error()
	}
	return qerr.From(err).Message
}

// record is an http.ResponseWriter that keeps an answer of at most maxExplanation bytes. With dataless the value of the member data, however large, becomes
// null: what a query came to is of no interest when it is explained.
type record struct {
	header   http.Header
	status   int
	body     []byte
	dataless bool
	over     bool

	// Where the reading of the JSON stands, with dataless.
	depth    int
	key      []byte // of the member that is read, at depth 1
	inKey    bool
	inText   bool // within a string
	escaped  bool
	dropping bool
}

// run serves a request into the record.
func (c *record) run(serve func(http.ResponseWriter, *http.Request), r *http.Request) (err error) {
	defer func() {
		switch p := recover(); {
		case p == nil:
		case p != http.ErrAbortHandler:
			panic(p)
		case c.over:
			err = qerr.New(qerr.TooExpensive, "the answer has more than %d MiB; ask for a part of the query", maxExplanation>>20)
		case r.Context().Err() != nil:
			err = qerr.From(qerr.ErrClientLeft)
		default:
			err = qerr.New(qerr.ShardFailed, "the query failed after its answer had begun; ask for the plan alone, without analyze")
		}
	}()
	serve(c, r)
	if c.status == 0 {
		c.status = http.StatusOK
	}
	return nil
}

// Header implements http.ResponseWriter.
func (c *record) Header() http.Header { return c.header }

// WriteHeader implements http.ResponseWriter.
func (c *record) WriteHeader(status int) {
	if c.status == 0 {
		c.status = status
	}
}

// Write implements io.Writer.
func (c *record) Write(p []byte) (int, error) {
	c.WriteHeader(http.StatusOK)
	if !c.dataless {
		c.keep(p...)
	} else {
		for _, b := range p {
			c.read(b)
		}
	}
	if c.over {
		return 0, errors.New("the answer is too long to be kept")
	}
	return len(p), nil
}

func (c *record) keep(p ...byte) {
	if c.over = c.over || len(c.body)+len(p) > maxExplanation; !c.over {
		c.body = append(c.body, p...)
	}
}

// read takes one byte of a JSON object.
func (c *record) read(b byte) {
	switch {
	case c.inText:
		switch {
		case c.escaped:
			c.escaped = false
		case b == '\\':
			c.escaped = true
		case b == '"':
			c.inText, c.inKey = false, false
		}
		if c.inKey && len(c.key) < len("data")+1 {
			c.key = append(c.key, b)
		}
	case b == '"':
		c.inText = true
	case b == '{' || b == '[':
		if c.depth++; c.depth == 1 {
			c.key, c.inKey = nil, true
		}
	case b == '}' || b == ']':
		if c.depth--; c.depth == 0 {
			c.dropping = false
		}
	case b == ',' && c.depth == 1:
		c.key, c.inKey, c.dropping = nil, true, false
	case b == ':' && c.depth == 1 && string(c.key) == "data":
		c.keep([]byte(":null")...)
		c.dropping = true
	}
	if !c.dropping {
		c.keep(b)
	}
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
	// The admin's own headers are none of the query's business.
	e, err := s.ask((&http.Request{RemoteAddr: r.RemoteAddr, Header: http.Header{}, Host: r.Host}).WithContext(r.Context()), q)
	var a *answered
	switch {
	case errors.As(err, &a):
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if a.retryAfter != "" {
			w.Header().Set("Retry-After", a.retryAfter)
		}
		w.WriteHeader(a.status)
		_, _ = w.Write(a.body) // the caller may be gone
	case err != nil:
		qerr.From(err).WriteTo(w)
	default:
		adminData(w, e)
	}
}

// readQuestion reads the parameters of explain. They are few, so unlike the API's none is passed over.
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
