package canary

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/spillwayproject/spillway/internal/clip"
)

const (
	// atOnce is how many queries are under way.
	atOnce = 4
	// attempts is how often a query is sent that is turned away for now; the pause before another
	// one doubles.
	attempts   = 4
	firstPause = 2 * time.Second
	// inARow is after how many questions in a row that nobody answered no more are asked.
	inARow = 2 * atOnce
)

// NewAPI is a client of the API below base; hc brings credentials and the bound of time.
func NewAPI(base string, hc *http.Client) (promv1.API, error) {
	c, err := api.NewClient(api.Config{Address: base, Client: hc})
	if err != nil || !strings.HasPrefix(base, "http://") && !strings.HasPrefix(base, "https://") {
		return nil, fmt.Errorf("--url=%s is no URL of a Prometheus API: write http://host:9090 or https://host/prefix", base)
	}
	return promv1.NewAPI(c), nil
}

// questions are those of one run.
type questions struct {
	Options

	mu     sync.Mutex
	failed int // questions in a row that nobody answered
}

// count is a query for how many series something gives in each cluster.
func (q *questions) count(expr string) string {
	if q.ClusterLabel == "" {
		return "count(" + expr + ")"
	}
	return "count by (" + q.ClusterLabel + ") (" + expr + ")"
}

// days asks how many series the selector finds in each cluster, on each day.
func (q *questions) days(ctx context.Context, selector string) (map[string]seen, error) {
	const day = 24 * time.Hour
	r := promv1.Range{Start: q.Now.Add(-days * day), End: q.Now, Step: day}
	v, err := q.ask(ctx, func() (model.Value, promv1.Warnings, error) { return q.API.QueryRange(ctx, q.count(selector), r) })
	if err != nil {
		return nil, err
	}
	m, ok := v.(model.Matrix)
	if !ok {
		return nil, fmt.Errorf("the answer is a %s and not a matrix", v.Type())
	}
	out := map[string]seen{}
	for _, s := range m {
		var n seen
		for _, p := range s.Values {
			if i := int(p.Timestamp.Time().Sub(r.Start).Round(day) / day); i >= 0 && i <= days {
				n[i] = int64(p.Value)
			}
		}
		out[string(s.Metric[model.LabelName(q.ClusterLabel)])] = n
	}
	return out, nil
}

// recent asks in which clusters the selector has found anything within the grace.
func (q *questions) recent(ctx context.Context, selector string) (map[string]bool, error) {
	return q.now(ctx, "present_over_time("+selector+"["+model.Duration(grace).String()+"])")
}

// now asks in which clusters an expression has a value.
func (q *questions) now(ctx context.Context, expr string) (map[string]bool, error) {
	v, err := q.ask(ctx, func() (model.Value, promv1.Warnings, error) { return q.API.Query(ctx, q.count(expr), q.Now) })
	if err != nil {
		return nil, err
	}
	all, ok := v.(model.Vector)
	if !ok {
		return nil, fmt.Errorf("the answer is a %s and not a vector", v.Type())
	}
	out := map[string]bool{}
	for _, s := range all {
		out[string(s.Metric[model.LabelName(q.ClusterLabel)])] = true
	}
	return out, nil
}

// promQLWarning are PromQL's own warnings; by any other a part of the series is not in the answer.
var promQLWarning = regexp.MustCompile(`^PromQL (info|warning)`)

// ask asks, again where it is turned away for now, but not where it took too long. An answer of a
// part of the servers is none: what the others have would be called gone.
func (q *questions) ask(ctx context.Context, query func() (model.Value, promv1.Warnings, error)) (model.Value, error) {
	if q.silent() {
		return nil, fmt.Errorf("not asked: %d questions in a row had no answer", inARow)
	}
	wait := firstPause
	for i := 1; ; i++ {
		v, warnings, err := query()
		if err == nil {
			q.answered(true)
			for _, w := range warnings {
				if !promQLWarning.MatchString(w) {
					return nil, fmt.Errorf("the answer came with a warning: %s", clip.Said(w))
				}
			}
			return v, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		var said *promv1.Error
		var slow net.Error
		refused := errors.As(err, &said) && !slices.Contains([]promv1.ErrorType{promv1.ErrServer, promv1.ErrTimeout}, said.Type) &&
			!strings.Contains(said.Msg, "429")
		late := said != nil && said.Type == promv1.ErrTimeout || errors.As(err, &slow) && slow.Timeout()
		if refused || late || i == attempts {
			q.answered(refused)
			return nil, err
		}
		if err := q.Pause(ctx, wait); err != nil {
			return nil, err
		}
		wait *= 2
	}
}

// answered notes whether a question had an answer, be it a refusal.
func (q *questions) answered(is bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.failed++; is {
		q.failed = 0
	}
}

// silent tells whether nobody answers any more.
func (q *questions) silent() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.failed >= inARow
}

// sentence is what an error says, with what the server wrote: the client keeps that apart where it
// is no answer in Prometheus' form.
func sentence(err error) string {
	var said *promv1.Error
	if !errors.As(err, &said) {
		return err.Error()
	}
	var body struct{ Error string }
	switch {
	case json.Unmarshal([]byte(said.Detail), &body) == nil && body.Error != "":
		return said.Msg + ": " + body.Error
	case said.Type == promv1.ErrBadResponse:
		return "the answer is not that of a Prometheus API, is the address right? " + said.Msg
	case said.Type == promv1.ErrClient:
		return said.Msg + ": is the address right, and may the canary ask there (--http.config.file)?"
	}
	return err.Error()
}
