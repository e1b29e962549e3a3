package fakeshard

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/util/strutil"
)

// sortSeries checks the configured series and puts them in the order in which Prometheus would give
// them.
func sortSeries(in []map[string]string) ([]map[string]string, error) {
	if in == nil {
		return []map[string]string{
			{"__name__": "up", "instance": "node-0:9100", "job": "fake"},
			{"__name__": "up", "instance": "node-1:9100", "job": "fake"},
		}, nil
	}
	out := slices.Clone(in)
	for i, s := range out {
		if s["__name__"] == "" {
			return nil, fmt.Errorf("series[%d] has no __name__: a shard has none without", i)
		}
	}
	slices.SortStableFunc(out, func(a, b map[string]string) int { return labels.Compare(labels.FromMap(a), labels.FromMap(b)) })
	return out, nil
}

// errorAnswer is an error as Prometheus gives it.
func errorAnswer(status int, errorType, message string) Answer {
	return jsonAnswer(status, map[string]string{"status": "error", "errorType": errorType, "error": message})
}

func dataAnswer(data any) Answer {
	return jsonAnswer(http.StatusOK, struct {
		Status string `json:"status"`
		Data   any    `json:"data"`
	}{"success", data})
}

// resultAnswer is the answer to a query, its keys in Prometheus' order.
func resultAnswer(kind string, result any) Answer {
	return dataAnswer(struct {
		ResultType string `json:"resultType"`
		Result     any    `json:"result"`
	}{kind, result})
}

func jsonAnswer(status int, v any) Answer {
	b, err := json.Marshal(v)
	if err != nil {
		// Only Config.Queries can hold what is not JSON.
		status, b = http.StatusInternalServerError, []byte(`{"status":"error","errorType":"internal","error":"an answer in fakeshard.Config.Queries is not JSON"}`)
	}
	return Answer{Status: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: b}
}

func textAnswer(contentType, body string) Answer {
	return Answer{Status: http.StatusOK, Header: http.Header{"Content-Type": {contentType}}, Body: []byte(body)}
}

// healthy answers a request as a small Prometheus in good health would.
func (s *Shard) healthy(r *Record) Answer {
	if s.cfg.Answer != nil {
		s.mu.Lock() // the peer may leave, and be recorded, meanwhile
		seen := *r
		s.mu.Unlock()
		if a, ok := s.cfg.Answer(seen); ok {
			return a
		}
	}
	p, ok := s.strip(r.Path)
	if !ok {
		return errorAnswer(http.StatusNotFound, "not_found", "the fake shard serves "+s.cfg.Prefix+"/api/v1/")
	}
	if name, ok := strings.CutPrefix(p, "/api/v1/label/"); ok {
		if name, ok := strings.CutSuffix(name, "/values"); ok {
			return s.metadata(r, valueOf(name))
		}
	}
	switch p {
	case "/-/healthy", "/-/ready":
		return textAnswer("text/plain; charset=utf-8", "Prometheus Server is Ready.\n")
	case "/metrics":
		return textAnswer("text/plain; version=0.0.4; charset=utf-8; escaping=underscores", s.metrics(r))
	case "/federate":
		return s.federate(r)
	case "/api/v1/query":
		return s.query(r, false)
	case "/api/v1/query_range":
		return s.query(r, true)
	case "/api/v1/series":
		found, err := s.match(r.Form["match[]"])
		if err != nil {
			return errorAnswer(http.StatusBadRequest, "bad_data", err.Error())
		}
		return limited(found, r)
	case "/api/v1/labels":
		return s.metadata(r, func(set map[string]string) []string { return slices.Collect(maps.Keys(set)) })
	case "/api/v1/search/metric_names":
		return s.search(r, "name", valueOf("__name__"))
	case "/api/v1/search/label_names":
		return s.search(r, "name", func(set map[string]string) []string { return slices.Collect(maps.Keys(set)) })
	case "/api/v1/search/label_values":
		return s.search(r, "value", valueOf(r.Form.Get("label")))
	case "/api/v1/read":
		return s.remoteRead(r)
	case "/api/v1/query_exemplars":
		return dataAnswer([]any{map[string]any{
			"seriesLabels": s.firstSeries(),
			"exemplars": []any{map[string]any{
				"labels": map[string]string{"trace_id": "0af7651916cd43dd"}, "value": "1",
				"timestamp": float64(s.start.UnixMilli()) / 1000,
			}},
		}})
	case "/api/v1/metadata":
		out := map[string]any{}
		for _, set := range s.series {
			if m := r.Form.Get("metric"); m == "" || m == set["__name__"] {
				out[set["__name__"]] = []any{map[string]string{"type": "gauge", "help": "A series of the fake shard.", "unit": ""}}
			}
		}
		return dataAnswer(out)
	case "/api/v1/format_query":
		return dataAnswer(r.Form.Get("query"))
	case "/api/v1/parse_query":
		return dataAnswer(map[string]any{
			"type": "vectorSelector", "name": "up", "matchers": []any{}, "offset": 0, "timestamp": nil,
			"startOrEnd": nil,
		})
	}
	if data, ok := s.about(p); ok {
		return dataAnswer(data)
	}
	return errorAnswer(http.StatusNotFound, "not_found", "the fake shard has no "+p)
}

// about answers what concerns the server itself.
func (s *Shard) about(p string) (data any, ok bool) {
	const rfc = time.RFC3339
	now := time.Now().UTC().Format(rfc)
	switch p {
	case "/api/v1/features":
		return map[string]map[string]bool{
			"api": {"exclude_alerts": true, "search": true}, "promql": {"at_modifier": true, "negative_offset": true},
			"promql_functions": {"rate": true, "sum_over_time": true},
		}, true
	case "/api/v1/rules":
		rule := map[string]any{
			"name": "fake:up", "query": "up", "health": "ok", "evaluationTime": 0.001, "lastEvaluation": now,
			"type": "recording",
		}
		return map[string]any{"groups": []any{map[string]any{
			"name": "fake", "file": "rules.yml", "rules": []any{rule}, "interval": 60,
			"limit": 0, "evaluationTime": 0.001, "lastEvaluation": now,
		}}}, true
	case "/api/v1/alerts":
		return map[string]any{"alerts": []any{map[string]any{
			"labels": map[string]string{"alertname": "Fake", "severity": "none"}, "annotations": map[string]string{}, "state": "firing",
			"activeAt": s.start.UTC().Format(rfc), "value": "1e+00",
		}}}, true
	case "/api/v1/targets":
		target := map[string]any{
			"discoveredLabels": map[string]string{"__address__": "node-0:9100"},
			"labels":           map[string]string{"instance": "node-0:9100", "job": "fake"}, "scrapePool": "fake",
			"scrapeUrl": "http://node-0:9100/metrics", "globalUrl": "http://node-0:9100/metrics", "lastError": "", "lastScrape": now,
			"lastScrapeDuration": 0.01, "health": "up",
			"scrapeInterval": "15s", "scrapeTimeout": "10s",
		}
		return map[string]any{"activeTargets": []any{target}, "droppedTargets": []any{}, "droppedTargetCounts": map[string]int{"fake": 0}},
			true
	case "/api/v1/scrape_pools":
		return map[string]any{"scrapePools": []string{"fake"}}, true
	case "/api/v1/alertmanagers":
		return map[string]any{
			"activeAlertmanagers":  []any{map[string]string{"url": "http://alertmanager-0:9093/api/v2/alerts"}},
			"droppedAlertmanagers": []any{map[string]string{"url": "http://alertmanager-9:9093/api/v2/alerts"}},
		}, true
	case "/api/v1/targets/metadata":
		return []any{map[string]any{
			"target": map[string]string{"instance": "node-0:9100", "job": "fake"}, "metric": "up", "type": "gauge",
			"help": "Up.", "unit": "",
		}}, true
	}
	return s.status(p)
}

// status answers what the server says of how it runs.
func (s *Shard) status(p string) (data any, ok bool) {
	const rfc = time.RFC3339
	now := time.Now().UTC().Format(rfc)
	switch p {
	case "/api/v1/status/buildinfo":
		return map[string]string{
			"version": s.cfg.Version, "revision": "fake", "branch": "HEAD", "buildUser": "fake",
			"buildDate": "20261001-00:00:00", "goVersion": "go1.26.8",
		}, true
	case "/api/v1/status/config":
		return map[string]string{"yaml": s.configYAML()}, true
	case "/api/v1/status/flags":
		flags := map[string]string{
			"query.lookback-delta": "5m", "query.max-concurrency": "20", "query.max-samples": "50000000", "query.timeout": "2m",
			"storage.remote.read-concurrent-limit": "10", "storage.remote.read-max-bytes-in-frame": "1048576",
			"storage.remote.read-sample-limit": "50000000",
			"enable-feature":                   "", "web.enable-admin-api": "false", "web.enable-lifecycle": "false",
		}
		maps.Copy(flags, s.cfg.Flags)
		return flags, true
	case "/api/v1/status/runtimeinfo":
		return map[string]any{
			"startTime": s.start.UTC().Format(rfc), "CWD": "/", "hostname": "fake", "serverTime": now, "reloadConfigSuccess": true,
			"lastConfigTime":  s.start.UTC().Format(rfc),
			"corruptionCount": 0, "goroutineCount": 42, "GOMAXPROCS": 2, "GOMEMLIMIT": 1 << 30, "GOGC": "75", "GODEBUG": "",
			"storageRetention": "15d",
		}, true
	case "/api/v1/status/tsdb":
		return s.tsdb(), true
	case "/api/v1/status/walreplay":
		return map[string]int{"min": 0, "max": 0, "current": 0}, true
	}
	return nil, false
}

func (s *Shard) tsdb() map[string]any {
	type stat struct {
		Name  string `json:"name"`
		Value int    `json:"value"`
	}
	count := map[string]int{}
	for _, set := range s.series {
		count[set["__name__"]]++
	}
	var names []stat
	for _, n := range slices.Sorted(maps.Keys(count)) {
		names = append(names, stat{n, count[n]})
	}
	return map[string]any{
		"headStats": map[string]int64{
			"numSeries": int64(len(s.series)), "numLabelPairs": 4,
			"chunkCount": int64(len(s.series)), "minTime": s.start.UnixMilli(), "maxTime": time.Now().UnixMilli(),
		},
		"seriesCountByMetricName": names, "labelValueCountByLabelName": []stat{{"__name__", len(names)}},
		"memoryInBytesByLabelName":    []stat{{"__name__", 8}},
		"seriesCountByLabelValuePair": []stat{},
	}
}

func (s *Shard) configYAML() string {
	var b strings.Builder
	b.WriteString("global:\n  scrape_interval: 15s\n  scrape_timeout: 10s\n  evaluation_interval: 1m\n")
	if len(s.cfg.ExternalLabels) > 0 {
		b.WriteString("  external_labels:\n")
		for _, k := range slices.Sorted(maps.Keys(s.cfg.ExternalLabels)) {
			fmt.Fprintf(&b, "    %s: %q\n", k, s.cfg.ExternalLabels[k])
		}
	}
	return b.String()
}

// firstSeries is some series of the shard; it has none if the test wants it empty.
func (s *Shard) firstSeries() map[string]string {
	if len(s.series) == 0 {
		return map[string]string{}
	}
	return s.series[0]
}

// match returns the series that any of the selectors selects; without selectors, all.
func (s *Shard) match(selectors []string) ([]map[string]string, error) {
	if len(selectors) == 0 {
		return s.series, nil
	}
	sets, err := parser.NewParser(parser.Options{}).ParseMetricSelectors(selectors)
	if err != nil {
		return nil, fmt.Errorf("invalid parameter \"match[]\": %w", err)
	}
	found := []map[string]string{}
	for _, series := range s.series {
		if slices.ContainsFunc(sets, func(ms []*labels.Matcher) bool { return matches(series, ms) }) {
			found = append(found, series)
		}
	}
	return found, nil
}

func matches(series map[string]string, ms []*labels.Matcher) bool {
	return !slices.ContainsFunc(ms, func(m *labels.Matcher) bool { return !m.Matches(series[m.Name]) })
}

// valueOf gives the value that a series has of a label.
func valueOf(name string) func(map[string]string) []string {
	return func(set map[string]string) []string {
		if v, ok := set[name]; ok {
			return []string{v}
		}
		return nil
	}
}

// search answers a search for the subsequences search[] in the texts that get finds, in the order
// of the texts alone.
func (s *Shard) search(r *Record, key string, get func(map[string]string) []string) Answer {
	found, err := s.match(r.Form["match[]"])
	if err != nil {
		return errorAnswer(http.StatusBadRequest, "bad_data", err.Error())
	}
	var all []string
	for _, set := range found {
		all = append(all, get(set)...)
	}
	slices.Sort(all)
	all = slices.DeleteFunc(slices.Compact(all), func(v string) bool {
		return len(r.Form["search[]"]) > 0 &&
			!slices.ContainsFunc(r.Form["search[]"], func(term string) bool { return strutil.NewSubsequenceMatcher(term).Score(v) > 0 })
	})
	limit, err := strconv.Atoi(r.Form.Get("limit"))
	if err != nil {
		limit = 100
	}
	more := len(all) > limit
	results := []map[string]string{}
	for _, v := range all[:min(limit, len(all))] {
		results = append(results, map[string]string{key: v})
	}
	batch, _ := json.Marshal(map[string]any{"results": results}) // strings alone
	last := fmt.Sprintf(`{"status":"success","has_more":%v}`, more)
	return Answer{
		Status: http.StatusOK, Header: http.Header{"Content-Type": {"application/x-ndjson; charset=utf-8"}},
		Body: append(append(batch, '\n'), last+"\n"...),
	}
}

// metadata answers /labels and /label/*/values: the distinct texts that get finds in the matching
// series.
func (s *Shard) metadata(r *Record, get func(map[string]string) []string) Answer {
	found, err := s.match(r.Form["match[]"])
	if err != nil {
		return errorAnswer(http.StatusBadRequest, "bad_data", err.Error())
	}
	out := []string{}
	for _, set := range found {
		out = append(out, get(set)...)
	}
	slices.Sort(out)
	return limited(slices.Compact(out), r)
}

// limited answers a list cut at the request's limit, with the warning that Prometheus gives then.
func limited[T any](all []T, r *Record) Answer {
	out := struct {
		Status   string   `json:"status"`
		Data     []T      `json:"data"`
		Warnings []string `json:"warnings,omitempty"`
	}{Status: "success", Data: all}
	if n, err := strconv.Atoi(r.Form.Get("limit")); err == nil && n > 0 && n < len(all) {
		out.Data, out.Warnings = all[:n], []string{"results truncated due to limit"}
	}
	return jsonAnswer(http.StatusOK, out)
}

// query answers an instant or a range query: what is configured for its text, a scalar for a number
// or the sum of two, the series that a mere selector selects, each with the value 1, else what
// Prometheus' engine makes of these.
func (s *Shard) query(r *Record, asRange bool) Answer {
	text := r.Form.Get("query")
	if text == "" {
		return errorAnswer(http.StatusBadRequest, "bad_data", `invalid parameter "query": unknown position: parse error: no expression found in input`)
	}
	if data, ok := s.cfg.Queries[text]; ok {
		return dataAnswer(json.RawMessage(data))
	}
	times, err := evaluationTimes(r, asRange)
	if err != nil {
		return errorAnswer(http.StatusBadRequest, "bad_data", err.Error())
	}
	points := func(v string) []any {
		out := make([]any, len(times))
		for i, t := range times {
			out[i] = []any{t, v}
		}
		return out
	}
	if v, ok := number(text); ok {
		if !asRange {
			return resultAnswer("scalar", points(v)[0])
		}
		return resultAnswer("matrix", []any{map[string]any{"metric": map[string]string{}, "values": points(v)}})
	}
	found, err := s.match([]string{text})
	if err != nil {
		return s.evaluate(text, times, newGenerator(r).step, asRange)
	}
	result := make([]any, 0, len(found))
	for _, set := range found {
		if asRange {
			result = append(result, map[string]any{"metric": set, "values": points("1")})
		} else {
			result = append(result, map[string]any{"metric": set, "value": points("1")[0]})
		}
	}
	if asRange {
		return resultAnswer("matrix", result)
	}
	return resultAnswer("vector", result)
}

// number evaluates a number or a sum of two: the query with which Grafana asks whether a datasource
// is there.
func number(text string) (string, bool) {
	sum := 0.0
	terms := strings.Split(text, "+")
	if len(terms) > 2 {
		return "", false
	}
	for _, t := range terms {
		f, err := strconv.ParseFloat(strings.TrimSpace(t), 64)
		if err != nil {
			return "", false
		}
		sum += f
	}
	return strconv.FormatFloat(sum, 'f', -1, 64), true
}

// evaluationTimes are the seconds at which a query is evaluated.
func evaluationTimes(r *Record, asRange bool) ([]float64, error) {
	seconds := func(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
	if !asRange {
		if v := r.Form.Get("time"); v != "" {
			t, ok := parseTime(v)
			if !ok {
				return nil, fmt.Errorf("invalid parameter \"time\": cannot parse %q to a valid timestamp", v)
			}
			return []float64{seconds(t)}, nil
		}
		return []float64{seconds(time.Now())}, nil
	}
	start, ok1 := parseTime(r.Form.Get("start"))
	end, ok2 := parseTime(r.Form.Get("end"))
	step := newGenerator(r).step
	if !ok1 || !ok2 || r.Form.Get("step") == "" {
		return nil, errors.New("invalid parameter: start, end and step are needed")
	}
	const maxPoints = 11_000 // Prometheus' own
	if end.Before(start) || end.Sub(start)/step > maxPoints {
		return nil, errors.New("exceeded maximum resolution of 11,000 points per timeseries, or end is before start")
	}
	var times []float64
	for t := start; !t.After(end); t = t.Add(step) {
		times = append(times, seconds(t))
	}
	return times, nil
}

// federate answers the matching series as text, with the external labels that they lack.
func (s *Shard) federate(r *Record) Answer {
	const contentType = "text/plain; version=0.0.4; charset=utf-8"
	if len(r.Form["match[]"]) == 0 {
		return textAnswer(contentType, "")
	}
	found, err := s.match(r.Form["match[]"])
	if err != nil {
		a := textAnswer("text/plain; charset=utf-8", err.Error()+"\n")
		a.Status = http.StatusBadRequest
		return a
	}
	var b strings.Builder
	last := ""
	for _, set := range found {
		name := set["__name__"]
		if name != last {
			fmt.Fprintf(&b, "# TYPE %s untyped\n", name)
			last = name
		}
		all := maps.Clone(s.cfg.ExternalLabels)
		if all == nil {
			all = map[string]string{}
		}
		maps.Copy(all, set)
		delete(all, "__name__")
		pairs := make([]string, 0, len(all))
		for _, k := range slices.Sorted(maps.Keys(all)) {
			pairs = append(pairs, k+"="+strconv.Quote(all[k]))
		}
		fmt.Fprintf(&b, "%s{%s} 1 %d\n", name, strings.Join(pairs, ","), time.Now().UnixMilli())
	}
	return textAnswer(contentType, b.String())
}

// metrics is the page of the shard's own metrics, or those of them that are asked for by name.
func (s *Shard) metrics(r *Record) string {
	values := map[string]float64{
		"process_start_time_seconds": float64(s.start.Unix()), "process_resident_memory_bytes": 120 << 20,
		"go_gc_gomemlimit_bytes": math.MaxInt64, "go_gc_heap_live_bytes": 40 << 20,
		"go_memstats_sys_bytes": 100 << 20, "go_memstats_heap_sys_bytes": 90 << 20, "go_memstats_heap_released_bytes": 10 << 20,
		"prometheus_engine_queries": 0, "prometheus_engine_queries_concurrent_max": 20, "prometheus_ready": 1,
		"prometheus_tsdb_data_replay_duration_seconds": 0.5, "prometheus_tsdb_head_series": float64(len(s.series)),
	}
	maps.Copy(values, s.cfg.Metrics)
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if wanted := r.Form["name[]"]; !math.IsNaN(values[name]) && (len(wanted) == 0 || slices.Contains(wanted, name)) {
			fmt.Fprintf(&b, "# HELP %s Of the fake shard.\n# TYPE %s gauge\n%s %g\n", name, name, name, values[name])
		}
	}
	return b.String()
}
