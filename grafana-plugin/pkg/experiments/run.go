package experiments

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/data"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/model"
	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

const (
	maxQueries  = 200 // of one query of a panel
	keptQueries = 8   // of them for what is asked at the end, as which clusters are lost
	parallel    = 4   // of them at once
	// minStep is the least step of a range query: recorded series have a sample each minute,
	// scraped ones each 15 to 30 s.
	minStep = 15 * time.Second
)

// Handler answers one query.
type Handler func(ctx context.Context, r *Run) (data.Frames, error)

// Handlers has one for each of model.QueryTypes.
var Handlers = map[model.QueryType]Handler{
	model.Experiments: experimentsTable, model.Status: status, model.Pods: podsTable, model.Nodes: nodesTable,
	model.GPUTimeSeries: gpuTimeSeries,
	model.GPUHealth:     gpuHealth, model.Network: network, model.Pending: pendingTable, model.Events: events, model.Cost: cost,
	model.Compare:    compare,
	model.Stragglers: stragglers, model.PromQL: promqlQuery,
}

// Run is one query of a panel while it is answered. Its methods may be called at once.
type Run struct {
	Query    model.Query
	Settings model.Settings
	// From and Until are the panel's time range.
	From, Until time.Time
	// MaxPoints is how many points a series of the panel can show; 0 means 1000.
	MaxPoints int64
	// Interval is what Grafana computed for the panel; steps are at least as long.
	Interval time.Duration
	// Alert tells that an alert is evaluated, which sees no notices: what a bound leaves out is an
	// error then.
	Alert bool

	asker prom.Asker

	mu       sync.Mutex
	executed []string
	notices  []data.Notice
	missed   []string // what LeftOut said, each once
	told     set      // clusters of which noticeLost said that they are lost
}

// NewRun makes a run that asks asker.
func NewRun(asker prom.Asker, settings model.Settings, query model.Query, from, until time.Time) *Run {
	return &Run{Query: query, Settings: settings, From: from, Until: until, asker: asker}
}

// Do answers the query: the handler's frames with executed queries and notices in the first one's
// Meta. There is always a frame to carry them.
func (r *Run) Do(ctx context.Context) (data.Frames, error) {
	handle, ok := Handlers[r.Query.Type]
	if !ok {
		return nil, fmt.Errorf("queries of type %q have no handler", r.Query.Type)
	}
	frames, err := handle(ctx, r)
	if err != nil {
		return nil, err
	}
	if r.Query.Type != model.PromQL || chooses(r.Query.Expr) {
		if err := r.tellLost(ctx); err != nil {
			return nil, err
		}
	}
	if r.Alert && len(r.missed) > 0 {
		return nil, fmt.Errorf("an alert is not evaluated on a part of what is asked: %s", strings.Join(r.missed, "\n"))
	}
	if len(frames) == 0 {
		frames = data.Frames{data.NewFrame("")}
	}
	for _, f := range frames {
		f.RefID = r.Query.RefID
	}
	if frames[0].Meta == nil {
		frames[0].Meta = &data.FrameMeta{}
	}
	slices.Sort(r.executed) // questions are asked at once
	frames[0].Meta.ExecutedQueryString = strings.Join(r.executed, "\n")
	frames[0].AppendNotices(r.notices...)
	return frames, nil
}

// Instant asks at the moment at and notes the query and its warnings.
func (r *Run) Instant(ctx context.Context, query string, at time.Time) ([]prom.Series, error) {
	a, err := r.instant(ctx, query, at)
	return a.Series, err
}

func (r *Run) instant(ctx context.Context, query string, at time.Time) (prom.Answer, error) {
	if err := r.note(query); err != nil {
		return prom.Answer{}, err
	}
	a, err := r.asker.Instant(ctx, query, at)
	r.warn(a)
	return a, err
}

// Range asks over the panel's range in steps of Step.
func (r *Run) Range(ctx context.Context, query string) ([]prom.Series, error) {
	return r.RangeOf(ctx, query, r.From, r.Until, r.Step())
}

// RangeOf asks over another range. from is brought down to a multiple of step, so that a panel that
// is drawn again asks for the same points, and subqueries in steps of step look at them too.
func (r *Run) RangeOf(ctx context.Context, query string, from, until time.Time, step time.Duration) ([]prom.Series, error) {
	a, err := r.rangeOf(ctx, query, from, until, step)
	return a.Series, err
}

func (r *Run) rangeOf(ctx context.Context, query string, from, until time.Time, step time.Duration) (prom.Answer, error) {
	if err := r.note(query); err != nil {
		return prom.Answer{}, err
	}
	a, err := r.asker.Range(ctx, query, multiple(from, step), until, step)
	r.warn(a)
	return a, err
}

// Step is that of range queries, in whole seconds; not longer than the range, in which there would
// be no point else.
func (r *Run) Step() time.Duration {
	points := r.MaxPoints
	if points <= 0 {
		points = 1000
	}
	points = min(points, 11_000) // what Prometheus allows
	step := max(minStep, r.Interval, (r.Until.Sub(r.From)+time.Duration(points)-1)/time.Duration(points))
	step = min(step, max(minStep, r.length()))
	return (step + time.Second - 1).Truncate(time.Second)
}

// Notice adds one to the answer. Those that are there already are not added again.
func (r *Run) Notice(severity data.NoticeSeverity, format string, args ...any) {
	n := data.Notice{Severity: severity, Text: fmt.Sprintf(format, args...)}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.notices, n) {
		r.notices = append(r.notices, n)
	}
}

// Warnings are the texts of the notices that are more than words about what is there.
func (r *Run) Warnings() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := []string{}
	for _, n := range r.notices {
		if n.Severity != data.NoticeSeverityInfo {
			out = append(out, n.Text)
		}
	}
	return out
}

// LeftOut is a warning of what a bound leaves out that nobody asked to leave out. Where an alert
// asks it ends the query: what should fire may be among it.
func (r *Run) LeftOut(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.Notice(data.NoticeSeverityWarning, "%s", text)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.missed, text) {
		r.missed = append(r.missed, text)
	}
}

func (r *Run) note(query string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.executed) == maxQueries {
		return fmt.Errorf("this takes more than %d queries; choose a shorter time, fewer experiments or one cluster", maxQueries)
	}
	r.executed = append(r.executed, query)
	return nil
}

// room is how many more questions may be asked of details.
func (r *Run) room() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(0, maxQueries-keptQueries-len(r.executed))
}

func (r *Run) warn(a prom.Answer) {
	for _, w := range a.Warnings {
		r.Notice(data.NoticeSeverityWarning, "%s", w)
	}
	for _, i := range a.Infos {
		r.Notice(data.NoticeSeverityInfo, "%s", i)
	}
	if a.Histograms > 0 {
		r.LeftOut("%d series are native histograms, which are left out here; use histogram_quantile or histogram_avg", a.Histograms)
	}
}
