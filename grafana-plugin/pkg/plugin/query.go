package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync/atomic"

	"github.com/grafana/grafana-plugin-sdk-go/backend"
	"github.com/grafana/grafana-plugin-sdk-go/data"
	"github.com/grafana/grafana-plugin-sdk-go/experimental/concurrent"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/experiments"
	"github.com/spillwayproject/spillway/grafana-plugin/pkg/model"
	"github.com/spillwayproject/spillway/grafana-plugin/pkg/prom"
)

// maxAtOnce is how many queries of one request run at once, where Grafana's configuration does not
// say less; the SDK allows no more.
const maxAtOnce = 10

// QueryData implements backend.QueryDataHandler. Each query has its own answer or error.
func (d *Datasource) QueryData(ctx context.Context, req *backend.QueryDataRequest) (*backend.QueryDataResponse, error) {
	atOnce := maxAtOnce
	if c := req.PluginContext.GrafanaConfig; c != nil {
		if n, err := c.ConcurrentQueryCount(); err == nil && n >= 1 && n < maxAtOnce {
			atOnce = n
		}
	}
	if n := len(req.Queries); n > maxQueries {
		resp := backend.NewQueryDataResponse()
		for _, q := range req.Queries {
			resp.Responses[q.RefID] = failed(fmt.Errorf("the request has %d queries, and at most %d are answered; "+
				"make several panels of this one", n, maxQueries))
		}
		return resp, nil
	}
	ctx = asked(ctx, req.PluginContext, d.queryHeaders(req.PluginContext, req.GetHTTPHeaders(), req.Headers))
	most := cmp.Or(d.mostPoints, maxPoints)
	var points atomic.Int64
	return concurrent.QueryData(ctx, req, func(ctx context.Context, q concurrent.Query) backend.DataResponse {
		resp := backend.DataResponse{}
		if points.Load() <= most {
			resp = d.query(ctx, q.DataQuery)
		}
		if points.Add(pointsOf(resp.Frames)) > most {
			return failed(fmt.Errorf("the answers to this request have more than %d points, which is the most that are held at once; "+
				"make several panels of this one, or show fewer series", most))
		}
		return resp
	}, atOnce)
}

// pointsOf is how many points frames have: of a series one at each time, of a table one in each
// cell.
func pointsOf(frames data.Frames) int64 {
	var n int64
	for _, f := range frames {
		columns := len(f.Fields)
		if f.Meta != nil && f.Meta.Type == data.FrameTypeTimeSeriesMulti {
			columns = 1
		}
		n += int64(f.Rows()) * int64(columns)
	}
	return n
}

func (d *Datasource) query(ctx context.Context, q backend.DataQuery) (resp backend.DataResponse) {
	defer func() {
		if p := recover(); p != nil {
			resp = failed(panicked(ctx, p))
		}
	}()
	if d.broken != nil {
		return failed(d.broken)
	}
	ctx, cancel := d.inTime(ctx)
	defer cancel()
	query, err := model.ParseQuery(q.RefID, q.QueryType, q.JSON)
	if err != nil {
		return failed(err)
	}
	if !q.TimeRange.From.Before(q.TimeRange.To) {
		return failed(fmt.Errorf("query %s: the time range ends before it begins", q.RefID))
	}
	// A range such as today ends in the future, where nothing is.
	until := q.TimeRange.To
	if now := d.now(); until.After(now) {
		until = now
	}
	if !q.TimeRange.From.Before(until) {
		return failed(fmt.Errorf("query %s: the time range begins in the future", q.RefID))
	}
	run := experiments.NewRun(d.asker, d.settings, query, q.TimeRange.From, until)
	run.MaxPoints, run.Interval = q.MaxDataPoints, q.Interval
	who, _ := ctx.Value(callerKey{}).(caller)
	run.Alert = who.alert
	frames, err := run.Do(ctx)
	if err != nil {
		return failed(public(ctx, err))
	}
	return backend.DataResponse{Frames: frames, Status: backend.StatusOK}
}

// errPanic is the fault of this program; the log has the rest.
var errPanic = errors.New("the datasource's plugin failed to answer this; Grafana's log has the cause")

func panicked(ctx context.Context, p any) error {
	backend.Logger.FromContext(ctx).Error("a request panicked", "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	return errPanic
}

// public is err without what is for the log only: the stack of a handler that panicked.
func public(ctx context.Context, err error) error {
	if errors.Is(err, experiments.ErrPanic) {
		return panicked(ctx, err)
	}
	return err
}

// failed is the answer of a query that ended with err.
func failed(err error) backend.DataResponse {
	status := statusOf(err)
	if status == http.StatusInternalServerError {
		return backend.DataResponse{Error: err, Status: backend.Status(status), ErrorSource: backend.ErrorSourcePlugin}
	}
	return backend.DataResponse{
		Error: backend.DownstreamError(err), Status: backend.Status(status),
		ErrorSource: backend.ErrorSourceDownstream,
	}
}

// statusOf is the HTTP status of an error; only a fault of this program is 500 (a proxy's own
// becomes 502).
func statusOf(err error) int {
	var (
		refusal *prom.Refusal
		failure *prom.Failure
		setup   *experiments.SetupError
	)
	switch {
	case errors.Is(err, errPanic):
		return http.StatusInternalServerError
	case errors.As(err, &setup):
		return http.StatusFailedDependency
	case errors.As(err, &refusal):
		if refusal.Status < 400 || refusal.Status == http.StatusInternalServerError {
			return http.StatusBadGateway
		}
		return refusal.Status
	case errors.As(err, &failure):
		return failure.Status
	case errors.Is(err, context.Canceled):
		return 499 // whoever asked has left, as nginx and the proxy count it
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout
	}
	return http.StatusBadRequest // what is asked, or the settings, cannot be: the error says what
}
