package thanos

import (
	"net/url"
	"strconv"
	"strings"
	"unicode"

	"github.com/spillwayproject/spillway/proxy/endpoint"
)

// lacks are the endpoints of Prometheus that a Thanos Query does not serve.
var lacks = map[endpoint.ID]bool{
	endpoint.Read: true, endpoint.Federate: true, endpoint.TargetsMetadata: true, endpoint.FormatQuery: true, endpoint.ParseQuery: true,
	endpoint.Features: true, endpoint.StatusConfig: true, endpoint.StatusWALReplay: true,
	endpoint.ScrapePools: true, endpoint.Alertmanagers: true,
	endpoint.SearchMetricNames: true, endpoint.SearchLabelNames: true, endpoint.SearchLabelValues: true,
}

// Serves tells whether a Thanos Query has the endpoint at all. It lacks remote read, federation and
// some others.
func Serves(id endpoint.ID) bool { return !lacks[id] }

// Told tells for which endpoints a Thanos Query is told by the request how to deduplicate, which
// stores to ask, and whether a partial answer will do. The others follow its flags.
func Told(id endpoint.ID) bool {
	switch id {
	case endpoint.Query, endpoint.QueryRange, endpoint.Series, endpoint.Labels, endpoint.LabelValues:
		return true
	default:
		return false
	}
}

// Evaluates tells for which endpoints it evaluates PromQL. Only there can a partial answer be told
// from a whole one.
func Evaluates(id endpoint.ID) bool { return id == endpoint.Query || id == endpoint.QueryRange }

// Warns tells for which endpoints it asks all stores that it calls healthy, cannot be told how to
// take a failure, and answers with what the others have and one warning for each store that fails.
func Warns(id endpoint.ID) bool {
	switch id {
	case endpoint.Rules, endpoint.Alerts, endpoint.Targets, endpoint.Metadata, endpoint.QueryExemplars:
		return true
	default:
		return false
	}
}

// OfItself tells whether an answer is about the server, not from its stores.
func OfItself(id endpoint.ID) bool {
	switch id {
	case endpoint.StatusBuildinfo, endpoint.StatusFlags, endpoint.StatusRuntimeinfo:
		return true
	default:
		return false
	}
}

// Instructions are what a Thanos Query is told with a request.
type Instructions struct {
	// Partial allows an answer without stores that fail, where one can be told from a whole one.
	Partial bool
	// ReplicaLabels are the labels by which it tells copies apart; its flag holds where there are
	// none.
	ReplicaLabels []string
	// Without are the stores that it is not to ask.
	Without []string
}

// Write writes them into the parameters of a request to an endpoint for which Told holds.
func (i Instructions) Write(id endpoint.ID, q url.Values) {
	q.Set("dedup", "true")
	q.Set("partial_response", strconv.FormatBool(i.Partial && Evaluates(id)))
	if Evaluates(id) {
		q.Set("max_source_resolution", "0s") // raw samples, whatever the flag query.auto-downsampling says
		q.Set("engine", "prometheus")        // the other one sums in another order and knows fewer functions
	}
	if len(i.ReplicaLabels) > 0 {
		q["replicaLabels[]"] = i.ReplicaLabels
	}
	if len(i.Without) > 0 {
		q.Set("storeMatch[]", storeMatch(i.Without))
	}
}

// LabelPath is the escaped path of a label's values. A Thanos Query since 0.40 takes the name as it
// is, where Prometheus undoes U__; one before takes letters, digits and underscores alone. It is
// false where a name cannot be in a path, or may be read as another one on the way.
func LabelPath(name string) (path string, ok bool) {
	if name == "." || name == ".." || strings.ContainsAny(name, `/\%`) || strings.ContainsFunc(name, unicode.IsControl) {
		return "", false
	}
	return "/api/v1/label/" + url.PathEscape(name) + "/values", true
}

// RefusedLabel tells whether an answer of 400 to a question for a label's values says that the
// server does not take its name, which Spillway has found to be one.
func RefusedLabel(id endpoint.ID, text string) bool {
	return id == endpoint.LabelValues && strings.HasPrefix(text, "invalid label name")
}

// AsStored changes instructions so that series come as the stores have them, each copy by itself.
func AsStored(q url.Values) {
	q.Set("dedup", "false")
	q.Del("replicaLabels[]")
}

// Only changes instructions so that one store alone is asked.
func Only(store string, q url.Values) {
	q.Set("storeMatch[]", "{__address__="+strconv.Quote(store)+"}")
}

// CleanForm takes out of a form what only Spillway says to a Thanos Query, which reads a form
// before the URL; false where there was nothing.
func CleanForm(form url.Values) bool {
	if !form.Has("partial_response") {
		return false
	}
	form.Del("partial_response")
	return true
}

// storeMatch is the selector of all stores but those.
func storeMatch(without []string) string {
	var b strings.Builder
	b.WriteString(`{__address__=~".+"`)
	for _, name := range without {
		b.WriteString(",__address__!=")
		b.WriteString(strconv.Quote(name))
	}
	return b.String() + "}"
}

// NamesLabel tells whether the path of an endpoint has the name of a label, which LabelPath writes.
func NamesLabel(id endpoint.ID) bool { return id == endpoint.LabelValues }
