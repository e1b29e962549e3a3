package rehearse

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"sync"
	"time"
)

// Options say how two servers are compared. The zero value of each field but the sides is its
// default.
type Options struct {
	// From is the server of now, To the one of after.
	From, To *Side
	// At is the time that all questions look at; five minutes ago.
	At time.Time
	// Parallel is how many questions are under way, each at both servers; 4.
	Parallel int
	// Most is how many questions are asked; MaxQuestions.
	Most int
	// Tolerance is how far, of itself, a value may be from the other; 1e-9, as far as Spillway's
	// exactness goes (docs/exactness.md).
	Tolerance float64
	// CostChange is by how much, of itself, the number of samples may grow or shrink; 0.1.
	CostChange float64
	// IgnoreLabels are labels that only one of the two sets, such as those of Spillway's groups.
	IgnoreLabels []string
	// MaxAnswerBytes is the largest answer that is compared; 16 MiB.
	MaxAnswerBytes int64
	// Progress is told how many questions were asked, of how many; nil for nobody.
	Progress func(asked, of int)

	costs bool // the two count alike
}

func (o *Options) setDefaults() {
	o.At = cmp.Or(o.At, time.Now().Add(-5*time.Minute))
	o.Parallel = cmp.Or(o.Parallel, 4)
	o.Most = min(cmp.Or(o.Most, MaxQuestions), MaxQuestions)
	o.Tolerance = cmp.Or(o.Tolerance, 1e-9)
	o.CostChange = cmp.Or(o.CostChange, 0.1)
	o.MaxAnswerBytes = cmp.Or(o.MaxAnswerBytes, 16<<20)
}

// Failure is a question that could not be compared.
type Failure struct {
	Question Question `json:"question"`
	Why      string   `json:"why"`
}

// Report is what came of it.
type Report struct {
	// From and To say what the servers are.
	From string `json:"from"`
	To   string `json:"to"`
	// At is the time that was looked at.
	At time.Time `json:"at"`
	// Asked is how many questions were, Empty of how many both answers had nothing in them, and
	// Refused how many both refused alike: these show little.
	Asked   int `json:"asked"`
	Empty   int `json:"empty"`
	Refused int `json:"refused"`
	// Broken is how many of the refused are no PromQL, as far as it is known here.
	Broken int `json:"broken"`
	// Passing is how many differed once, and not when they were asked again.
	Passing int `json:"passing"`
	// Ties is how many differed only in which of several series with equal values topk or bottomk
	// took, which no server promises.
	Ties int `json:"ties"`
	// CostCompared is for how many the cost was: none where one is a Prometheus and the other a
	// Spillway, which count different things.
	CostCompared int `json:"cost_compared"`
	// Changes are what would change, the gravest first.
	Changes []Change `json:"changes"`
	// Failures are what could not be compared.
	Failures []Failure `json:"failures"`
	// Skipped is how many requests of the log were not asked again, by why.
	Skipped map[string]int64 `json:"skipped"`
	// BesideRules is how many queries stand beside the rules, such as those of dashboards, and were
	// not asked.
	BesideRules int `json:"beside_rules"`
}

// result is what came of one question.
type result struct {
	q             *Question
	before, after answer
}

// Run asks both servers all questions. It returns what it has, with the error, when ctx ends.
func Run(ctx context.Context, questions *Questions, o Options) (*Report, error) {
	o.setDefaults()
	for _, s := range []*Side{o.From, o.To} {
		s.ignore = o.IgnoreLabels
		if err := s.probe(ctx); err != nil {
			return nil, err
		}
	}
	o.costs = o.From.spillway == o.To.spillway // Spillway counts what shards send, Prometheus what it reads
	r := &Report{
		From: o.From.name(), To: o.To.name(), At: o.At.UTC(), Changes: []Change{}, Failures: []Failure{}, Skipped: questions.skipped,
		BesideRules: questions.beside,
	}
	list := questions.list(o.Most)
	var again []*Question
	o.all(ctx, list, func(res *result, asked int) {
		if o.Progress != nil {
			o.Progress(asked, len(list))
		}
		if r.count(&o, res) {
			again = append(again, res.q)
		}
	})
	ties := looser{}
	o.all(ctx, again, func(res *result, _ int) { r.settle(&o, res, ties) })
	o.all(ctx, slices.Collect(maps.Keys(ties)), func(res *result, _ int) { r.tie(&o, res, ties) })
	for _, left := range ties {
		r.Changes = append(r.Changes, left.change)
	}
	order := map[Kind]int{Refused: 0, Answer: 1, Notes: 2, Cost: 3}
	slices.SortStableFunc(r.Changes, func(a, b Change) int {
		x, y := &a.Question, &b.Question
		return cmp.Or(order[a.Kind]-order[b.Kind], cmp.Compare(y.Count, x.Count), x.compare(y))
	})
	slices.SortFunc(r.Failures, func(a, b Failure) int {
		return cmp.Or(a.Question.compare(&b.Question), cmp.Compare(a.Why, b.Why))
	})
	if ctx.Err() != nil {
		return r, fmt.Errorf("after %d of %d questions: %w", r.Asked, len(list), context.Cause(ctx))
	}
	return r, nil
}

func (s *Side) name() string {
	kind := "Prometheus"
	if s.spillway {
		kind = "Spillway, as Prometheus" // which is the version that it tells clients
	}
	shown := s.URL
	if u, err := url.Parse(s.URL); err == nil {
		shown = u.Redacted()
	}
	if s.features != "" {
		return fmt.Sprintf("%s (%s %s with %s)", shown, kind, s.version, s.features)
	}
	return fmt.Sprintf("%s (%s %s)", shown, kind, s.version)
}

// all asks questions, some at a time, and tells what came of each, one after the other.
func (o *Options) all(ctx context.Context, list []*Question, tell func(res *result, asked int)) {
	var (
		mu    sync.Mutex
		wg    sync.WaitGroup
		asked int
		next  = make(chan *Question)
	)
	for range o.Parallel {
		wg.Go(func() {
			for q := range next {
				res := &result{q: q}
				var other sync.WaitGroup
				other.Go(func() { res.after = o.To.ask(ctx, q, o.At, o.MaxAnswerBytes) })
				res.before = o.From.ask(ctx, q, o.At, o.MaxAnswerBytes)
				other.Wait()
				if ctx.Err() != nil {
					continue // it was not answered, which says nothing
				}
				mu.Lock()
				asked++
				tell(res, asked)
				mu.Unlock()
			}
		})
	}
	for _, q := range list {
		select {
		case next <- q:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(next)
	wg.Wait()
}

// count takes note of a result, and tells whether it must be looked at again.
func (r *Report) count(o *Options, res *result) bool {
	r.Asked++
	if res.before.failed != "" || res.after.failed != "" {
		return true
	}
	if o.costs && res.before.cost >= 0 && res.after.cost >= 0 {
		r.CostCompared++
	}
	_, _, _, differ := o.compare(&res.before, &res.after)
	switch {
	case differ:
		return true
	case res.before.error != "":
		r.Refused++
		if _, err := promql.ParseExpr(res.q.Query); err != nil {
			r.Broken++
		}
	case len(res.before.data) == 0:
		r.Empty++
	}
	return false
}

// settle takes note of what a question came to when it was asked a second time.
func (r *Report) settle(o *Options, res *result, ties looser) {
	for _, side := range []struct {
		server *Side
		failed string
	}{{o.From, res.before.failed}, {o.To, res.after.failed}} {
		if side.failed != "" {
			r.Failures = append(r.Failures, Failure{*res.q, side.server.name() + ": " + side.failed})
			return
		}
	}
	kind, was, is, differ := o.compare(&res.before, &res.after)
	if !differ {
		r.Passing++
		return
	}
	if c := (Change{kind, *res.q, was, is}); !ties.take(o, res, c) {
		r.Changes = append(r.Changes, c)
	}
}

// tie takes note of a question of which it is known now whether it differed in ties.
func (r *Report) tie(o *Options, res *result, ties looser) {
	if !ties.settle(o, res) {
		return
	}
	if left := ties[res.q].besides; left != nil {
		r.Changes = append(r.Changes, *left)
	} else {
		r.Ties++
	}
	delete(ties, res.q)
}

// Write prints the report as text.
func (r *Report) Write(to io.Writer) error {
	w := bufio.NewWriter(to)
	fmt.Fprintf(w, "from %s\nto   %s\nat   %s\n\n", r.From, r.To, r.At.Format(time.RFC3339))
	fmt.Fprintf(w, "%d questions, %d changes, %d that could not be compared\n", r.Asked, len(r.Changes), len(r.Failures))
	fmt.Fprintf(w, "of the others %d had no series in either answer and %d were refused alike; %d differed once and not again; the cost of %d was compared\n",
		r.Empty, r.Refused, r.Passing, r.CostCompared)
	if r.Broken > 0 {
		fmt.Fprintf(w, "%d of those refused alike are no PromQL\n", r.Broken)
	}
	if r.Ties > 0 {
		fmt.Fprintf(w, "%d differed only in which of several equal values topk or bottomk took\n", r.Ties)
	}
	for _, why := range slices.Sorted(maps.Keys(r.Skipped)) {
		fmt.Fprintf(w, "%d requests of the log were not asked again: %s\n", r.Skipped[why], why)
	}
	if r.BesideRules > 0 {
		fmt.Fprintf(w, "%d queries that stand beside the rules, such as those of dashboards, were not asked, since they may have variables; "+
			"the usage log has what they really ask\n", r.BesideRules)
	}
	for _, c := range r.Changes {
		fmt.Fprintf(w, "\n%s: %s\n  before: %s\n  after:  %s\n", c.Kind, c.Question.say(), c.Before, c.After)
	}
	for _, f := range r.Failures {
		fmt.Fprintf(w, "\nnot compared: %s\n  %s\n", f.Question.say(), f.Why)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// ShowsNothing says why no change is no good news: no question had an answer that could be
// compared. It is empty where one had.
func (r *Report) ShowsNothing() string {
	if r.Asked == 0 || r.Empty+r.Refused < r.Asked {
		return ""
	}
	were := "were"
	if r.Refused == 1 {
		were = "was"
	}
	return fmt.Sprintf("nothing was compared: of %d questions %d had no series in either answer and %d %s refused alike: see that both servers have data of %s (--time)",
		r.Asked, r.Empty, r.Refused, were, r.At.Format(time.RFC3339))
}

func (q *Question) say() string {
	out := string(q.Endpoint) + " " + q.Query
	if q.Range > 0 {
		out += " over " + q.Range.String()
	}
	if q.Step > 0 {
		out += " each " + q.Step.String()
	}
	if q.Count > 0 {
		out += fmt.Sprintf(", asked %d times", q.Count)
	}
	if q.Who != "" {
		out += ", by " + q.Who
	}
	return out
}
