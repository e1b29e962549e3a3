package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/backend"
	"github.com/grafana/grafana-plugin-sdk-go/data"

	"github.com/spillwayproject/spillway/grafana-plugin/pkg/experiments"
	"github.com/spillwayproject/spillway/grafana-plugin/pkg/model"
)

const (
	// defaultDays is how many days back what is chosen from is listed where no days are given,
	// mostDays the most that can be: as many as runs that are compared are looked for.
	defaultDays, mostDays = 7, 30
	// defaultLimit is how many names of experiments are listed where no limit is given: one more
	// than a query may choose, so that a variable that stands for all of them is refused where
	// there are more.
	defaultLimit = model.MaxNames + 1
)

// resource answers one path with what becomes JSON.
type resource func(ctx context.Context, d *Datasource, params url.Values) (any, error)

// resources are all there are.
var resources = map[string]resource{
	"experiments": listExperiments,
	"teams":       names("team"),
	"clusters":    names("cluster"),
	"namespaces":  names("namespace"),
	"nodes":       names("node"),
	"health": func(ctx context.Context, d *Datasource, _ url.Values) (any, error) {
		return d.health(ctx)
	},
}

// CallResource implements backend.CallResourceHandler. Its error is that of sending.
func (d *Datasource) CallResource(ctx context.Context, req *backend.CallResourceRequest, sender backend.CallResourceResponseSender) error {
	ctx, cancel := d.inTime(asked(ctx, req.PluginContext, d.headers(req.PluginContext, req.GetHTTPHeaders(), nil)))
	defer cancel()
	return sender.Send(d.resource(ctx, req))
}

func (d *Datasource) resource(ctx context.Context, req *backend.CallResourceRequest) (resp *backend.CallResourceResponse) {
	defer func() {
		if p := recover(); p != nil {
			resp = answer(http.StatusInternalServerError, message{panicked(ctx, p).Error()})
		}
	}()
	ask, ok := resources[strings.TrimPrefix(req.Path, "/")]
	if !ok {
		return answer(http.StatusNotFound,
			message{"there is no such resource; there are " + strings.Join(slices.Sorted(maps.Keys(resources)), ", ")})
	}
	if req.Method != http.MethodGet {
		resp := answer(http.StatusMethodNotAllowed, message{"resources are read with GET"})
		resp.Headers["Allow"] = []string{http.MethodGet}
		return resp
	}
	var params url.Values
	u, err := url.Parse(req.URL)
	if err == nil {
		params, err = url.ParseQuery(u.RawQuery)
	}
	if err != nil {
		return answer(http.StatusBadRequest, message{"the parameters cannot be read: " + err.Error()})
	}
	if d.broken != nil {
		return answer(http.StatusBadRequest, message{d.broken.Error()})
	}
	body, err := ask(ctx, d, params)
	if err = public(ctx, err); err != nil {
		status := statusOf(err)
		if status == http.StatusUnauthorized {
			status = http.StatusBadGateway // Grafana's front end would take it for the end of its own session
		}
		return answer(status, message{err.Error()})
	}
	return answer(http.StatusOK, body)
}

type message struct {
	Message string `json:"message"`
}

func answer(status int, body any) *backend.CallResourceResponse {
	text, err := json.Marshal(body)
	if err != nil { // all bodies are of types that can be written
		panic(err)
	}
	return &backend.CallResourceResponse{Status: status, Body: text, Headers: map[string][]string{
		"Content-Type": {"application/json"}, "X-Content-Type-Options": {"nosniff"}, "Cache-Control": {"no-store"},
	}}
}

// run is a run over the time that is listed, which chooses what the parameters do. experiments and
// others narrow alike; q narrows experiments only.
func (d *Datasource) run(params url.Values) (*experiments.Run, error) {
	raw, err := json.Marshal(model.Query{
		Type: model.Experiments, Search: params.Get("q"), Experiments: given(params["experiment"]), Clusters: given(params["cluster"]),
		Namespaces: given(params["namespace"]), Teams: given(params["team"]),
	})
	if err != nil {
		return nil, err
	}
	query, err := model.ParseQuery("parameters", "", raw)
	if err != nil {
		return nil, err
	}
	days := defaultDays
	if v := params.Get("days"); v != "" {
		if days, err = strconv.Atoi(v); err != nil || days < 1 || days > mostDays {
			return nil, fmt.Errorf("days: %q is no number from 1 to %d", v, mostDays)
		}
	}
	now := d.now()
	return experiments.NewRun(d.asker, d.settings, query, now.Add(-time.Duration(days)*24*time.Hour), now), nil
}

// given is a list without empty values: a parameter without a value chooses nothing in particular.
func given(values []string) []string {
	return slices.DeleteFunc(slices.Clone(values), func(v string) bool { return v == "" })
}

// found is an experiment in the list.
type found struct {
	Name      string `json:"name"`
	Team      string `json:"team"`
	Cluster   string `json:"cluster"`
	Namespace string `json:"namespace"`
	State     string `json:"state"`
}

// listExperiments lists as many names as the limit says, a name in each cluster, namespace and team
// that it is of, and MaxRows of these at most. A warning says how many names are left out that
// nobody asked to leave out.
func listExperiments(ctx context.Context, d *Datasource, params url.Values) (any, error) {
	limit := defaultLimit
	if v := params.Get("limit"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("limit: %q is no number above 0", v)
		}
		limit = n
	}
	run, err := d.run(params)
	if err != nil {
		return nil, err
	}
	list, err := run.Recent(ctx)
	if err != nil {
		return nil, err
	}
	out := []found{}
	names, more := map[string]bool{}, map[string]bool{}
	for _, e := range list[:min(d.settings.MaxRows, len(list))] {
		if !names[e.Name] && len(names) == limit {
			break
		}
		names[e.Name] = true
		out = append(out, found{e.Name, e.Team, e.Cluster, e.Namespace, e.State})
	}
	for _, e := range list[len(out):] {
		if !names[e.Name] {
			more[e.Name] = true
		}
	}
	if len(more) > 0 && (params.Get("limit") == "" || len(names) < limit) {
		run.Notice(data.NoticeSeverityWarning, "%d experiments are not listed, since others were seen later; choose a team or a cluster, or raise the list's "+
			"limit or the datasource's maxRows.", len(more))
	}
	return listOf(params, out, run), nil
}

// listOf is a list as it is answered: with what is missing from it where the parameter warnings
// asks for that, else alone.
func listOf(params url.Values, list any, run *experiments.Run) any {
	if !params.Has("warnings") {
		return list
	}
	return struct {
		List     any      `json:"list"`
		Warnings []string `json:"warnings"`
	}{list, run.Warnings()}
}

func names(label string) resource {
	return func(ctx context.Context, d *Datasource, params url.Values) (any, error) {
		run, err := d.run(params)
		if err != nil {
			return nil, err
		}
		list, err := run.Names(ctx, label)
		return listOf(params, list, run), err
	}
}
