package fakeshard

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A shape is a kind of endless answer: a beginning, units made one at a time, an end. Only the unit
// at hand is in memory.
type shape struct {
	contentType string
	head, tail  string
	sep         string
	pad         byte // fills what is left before the tail, so that the size is exact; 0: the size is rounded up to a whole unit
	unit        func(dst []byte, g *generator, i int64) []byte
}

// A generator holds what units need to know of the request.
type generator struct {
	name  string    // the metric asked for, where that can be told
	start time.Time // of the window, or the time of the evaluation
	step  time.Duration
	frame frameMaker
}

const jsonType = "application/json"

// counted is the usual unit: a text before and after a counter of twelve digits, so that units are
// distinct and in order.
func counted(before, after string) func([]byte, *generator, int64) []byte {
	return func(dst []byte, _ *generator, i int64) []byte {
		dst = append(dst, before...)
		dst = appendCounter(dst, i)
		return append(dst, after...)
	}
}

func appendCounter(dst []byte, i int64) []byte {
	var digits [12]byte
	for k := len(digits) - 1; k >= 0; k-- {
		digits[k] = byte('0' + i%10)
		i /= 10
	}
	return append(dst, digits[:]...)
}

// list is the shape of an answer whose data is, or ends with, a list.
func list(head, tail, before, after string) shape {
	return shape{
		contentType: jsonType, head: `{"status":"success","data":` + head, tail: tail + "}",
		sep: ",", pad: ' ', unit: counted(before, after),
	}
}

// shapes are the kinds of step generate.
var shapes = map[string]shape{
	"series": list("[", "]", `{"__name__":"fake_series_bucket","instance":"node-`, `:9100","job":"fake","le":"+Inf"}`),
	"values": list("[", "]", `"value_`, `"`),
	"search": {
		contentType: "application/x-ndjson; charset=utf-8", head: `{"results":[`,
		tail: "]}\n" + `{"status":"success","has_more":true}` + "\n",
		sep:  ",", pad: ' ', unit: counted(`{"name":"value_`, `"}`),
	},
	// one label value that never ends
	"string": {
		contentType: jsonType, head: `{"status":"success","data":["`, tail: `"]}`, pad: 'a',
		unit: func(dst []byte, _ *generator, _ int64) []byte { return append(dst, strings.Repeat("a", 1024)...) },
	},
	"vector": {
		contentType: jsonType, head: `{"status":"success","data":{"resultType":"vector","result":[`, tail: "]}}", sep: ",", pad: ' ',
		unit: func(dst []byte, g *generator, i int64) []byte {
			dst = g.appendMetric(dst, i)
			dst = append(dst, `,"value":`...)
			dst = appendPoint(dst, g.start, i)
			return append(dst, '}')
		},
	},
	"matrix": {
		contentType: jsonType, head: `{"status":"success","data":{"resultType":"matrix","result":[`, tail: "]}}", sep: ",", pad: ' ',
		unit: func(dst []byte, g *generator, i int64) []byte {
			dst = g.appendMetric(dst, i)
			dst = append(dst, `,"values":[`...)
			for k := range 10 {
				if k > 0 {
					dst = append(dst, ',')
				}
				dst = appendPoint(dst, g.start.Add(time.Duration(k)*g.step), i)
			}
			return append(dst, `]}`...)
		},
	},
	// one series with points that never end, a step apart
	"points": {
		contentType: jsonType, head: `{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":"fake_series"},"values":[`, tail: "]}]}}",
		sep: ",", pad: ' ',
		unit: func(dst []byte, g *generator, i int64) []byte {
			return appendPoint(dst, g.start.Add(time.Duration(i)*g.step), i)
		},
	},
	"exemplars":      list("[", "]", `{"seriesLabels":{"__name__":"fake_series_bucket","instance":"node-`, `"},"exemplars":[{"labels":{"trace_id":"0af7651916cd43dd"},"value":"1","timestamp":1755000000}]}`),
	"metadata":       list("{", "}", `"fake_metric_`, `":[{"type":"counter","help":"A metric.","unit":""}]`),
	"targets":        list(`{"activeTargets":[`, `],"droppedTargets":[],"droppedTargetCounts":{}}`, `{"discoveredLabels":{},"labels":{"instance":"node-`, `","job":"fake"},"scrapePool":"fake","scrapeUrl":"http://127.0.0.1:9100/metrics","globalUrl":"http://127.0.0.1:9100/metrics","lastError":"","lastScrape":"2026-01-01T00:00:00Z","lastScrapeDuration":0.01,"health":"up","scrapeInterval":"15s","scrapeTimeout":"10s"}`),
	"targetmetadata": list("[", "]", `{"target":{"instance":"node-`, `","job":"fake"},"metric":"up","type":"gauge","help":"Up.","unit":""}`),
	"scrapepools":    list(`{"scrapePools":[`, `]}`, `"pool-`, `"`),
	"alertmanagers": list(
		`{"activeAlertmanagers":[`, `],"droppedAlertmanagers":[]}`, `{"url":"http://alertmanager-`, `:9093/api/v2/alerts"}`),
	"rules":    list(`{"groups":[`, `]}`, `{"name":"group-`, `","file":"rules.yml","rules":[{"name":"fake:rule","query":"vector(1)","health":"ok","evaluationTime":0.001,"lastEvaluation":"2026-01-01T00:00:00Z","type":"recording"}],"interval":60,"limit":0,"evaluationTime":0.001,"lastEvaluation":"2026-01-01T00:00:00Z"}`),
	"alerts":   list(`{"alerts":[`, `]}`, `{"labels":{"alertname":"Fake","instance":"node-`, `"},"annotations":{},"state":"firing","activeAt":"2026-01-01T00:00:00Z","value":"1e+00"}`),
	"tsdb":     list(`{"headStats":{"numSeries":1,"numLabelPairs":1,"chunkCount":1,"minTime":0,"maxTime":1},"labelValueCountByLabelName":[],"memoryInBytesByLabelName":[],"seriesCountByLabelValuePair":[],"seriesCountByMetricName":[`, `]}`, `{"name":"fake_metric_`, `","value":1}`),
	"flags":    list("{", "}", `"flag.`, `":"1"`),
	"features": list(`{"promql":{`, `}}`, `"feature_`, `":true`),
	// a data that is one text without end: status/config and the other small ones
	"config": {
		contentType: jsonType, head: `{"status":"success","data":{"yaml":"global: {}\n`, tail: `"}}`, pad: '#',
		unit: func(dst []byte, _ *generator, i int64) []byte {
			return append(appendCounter(append(dst, `# `...), i), `\n`...)
		},
	},
	"text": {
		contentType: "text/plain; version=0.0.4; charset=utf-8", head: "# TYPE fake_series untyped\n", pad: '\n',
		unit: counted(`fake_series{instance="node-`, "\"} 1 1755000000000\n"),
	},
	// remote read: many series of one chunk each, or one series whose chunks never end
	"chunks":     {contentType: streamedType, unit: func(dst []byte, g *generator, i int64) []byte { return g.frame.series(dst, g, i) }},
	"longchunks": {contentType: streamedType, unit: func(dst []byte, g *generator, i int64) []byte { return g.frame.next(dst, g, i) }},
	"json": {
		contentType: jsonType, head: `{"status":"success","data":[`, tail: "]}", sep: ",", pad: ' ',
		unit: counted(`{"number":"`, `"}`),
	},
}

func shapeNames() string {
	names := make([]string, 0, len(shapes))
	for n := range shapes {
		names = append(names, n)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// shapesByPath says what generate makes for an endpoint where the script does not say.
var shapesByPath = []struct{ path, shape string }{
	{"/api/v1/query", "vector"},
	{"/api/v1/query_range", "matrix"},
	{"/api/v1/query_exemplars", "exemplars"},
	{"/api/v1/series", "series"},
	{"/api/v1/labels", "values"},
	{"/api/v1/label/*/values", "values"},
	{"/api/v1/search/*", "search"},
	{"/api/v1/metadata", "metadata"},
	{"/api/v1/rules", "rules"},
	{"/api/v1/alerts", "alerts"},
	{"/api/v1/targets", "targets"},
	{"/api/v1/targets/metadata", "targetmetadata"},
	{"/api/v1/scrape_pools", "scrapepools"},
	{"/api/v1/alertmanagers", "alertmanagers"},
	{"/api/v1/read", "chunks"},
	{"/federate", "text"},
	{"/api/v1/features", "features"},
	{"/api/v1/status/tsdb", "tsdb"},
	{"/api/v1/status/flags", "flags"},
	{"/api/v1/status/*", "config"},
}

func shapeFor(s *Shard, r *Record) string {
	if p, ok := s.strip(r.Path); ok {
		for _, m := range shapesByPath {
			if ok, _ := path.Match(m.path, p); ok { // the patterns are ours
				return m.shape
			}
		}
	}
	return "json"
}

func (g *generator) appendMetric(dst []byte, i int64) []byte {
	dst = append(dst, `{"metric":{"__name__":`...)
	dst = strconv.AppendQuote(dst, g.name)
	dst = append(dst, `,"instance":"node-`...)
	dst = appendCounter(dst, i)
	return append(dst, `"}`...)
}

func appendPoint(dst []byte, t time.Time, i int64) []byte {
	dst = append(dst, '[')
	dst = strconv.AppendFloat(dst, float64(t.UnixMilli())/1000, 'f', -1, 64)
	dst = append(dst, `,"`...)
	dst = strconv.AppendInt(dst, i, 10)
	return append(dst, `"]`...)
}

// generate sends an answer of a kind with exactly size bytes, or a little more where the kind
// cannot be padded or its smallest answer is larger.
func (x *execution) generate(size int64, kind string) error {
	sh := shapes[kind]
	x.setDefault("Content-Type", sh.contentType)
	g := newGenerator(x.rec)
	const block = 32 << 10
	buf := make([]byte, 0, block+4096)
	buf = append(buf, sh.head...)
	left := size - int64(len(sh.head)) - int64(len(sh.tail))
	for i := int64(0); left > 0; i++ {
		from := len(buf)
		if i > 0 {
			buf = append(buf, sh.sep...)
		}
		buf = sh.unit(buf, g, i)
		if n := int64(len(buf) - from); n > left && sh.pad != 0 {
			buf = buf[:from]
			break
		}
		left -= int64(len(buf) - from)
		if len(buf) >= block {
			if err := x.body(buf); err != nil {
				return err
			}
			buf = buf[:0]
		}
	}
	if left > 0 {
		buf = append(buf, bytes.Repeat([]byte{sh.pad}, int(left))...) // less than a unit
	}
	return x.body(append(buf, sh.tail...))
}

// newGenerator reads what it can from the request; for what is missing or cannot be read it takes
// now and 15 s.
func newGenerator(r *Record) *generator {
	g := &generator{name: "fake_series", start: time.Now().Truncate(time.Millisecond), step: 15 * time.Second}
	for _, p := range []string{"time", "start"} {
		if t, ok := parseTime(r.Form.Get(p)); ok {
			g.start = t
		}
	}
	if v := r.Form.Get("step"); v != "" {
		if f, err := strconv.ParseFloat(v, 64); err == nil && f > 0 && f < 1e6 {
			g.step = time.Duration(f * float64(time.Second))
		} else if d, err := time.ParseDuration(v); err == nil && d > 0 {
			g.step = d
		}
	}
	if req, err := r.ReadRequest(); err == nil && len(req.Queries) > 0 {
		q := req.Queries[0]
		g.start = time.UnixMilli(q.StartTimestampMs)
		for _, m := range q.Matchers {
			if m.Name == "__name__" && m.Type == 0 && m.Value != "" {
				g.name = m.Value
			}
		}
	}
	return g
}

// parseTime reads the two forms of time that Prometheus takes.
func parseTime(v string) (time.Time, bool) {
	if f, err := strconv.ParseFloat(v, 64); err == nil && f > -1e11 && f < 1e11 {
		return time.UnixMilli(int64(f * 1000)).UTC(), true
	}
	t, err := time.Parse(time.RFC3339Nano, v)
	return t, err == nil
}

// garbage makes bodies that are no answer. Each is sent with status 200 unless the script says
// otherwise.
var garbage = map[string]struct {
	contentType string
	body        func() []byte
}{
	"bytes": {jsonType, func() []byte {
		r := rand.New(rand.NewPCG(1, 2))
		b := make([]byte, 4096)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return b
	}},
	"html": {"text/html; charset=utf-8", func() []byte {
		return []byte("<!DOCTYPE html>\n<html><head><title>Sign in</title></head><body><form action=\"/login\" method=\"post\"><input name=\"user\"><input name=\"password\" type=\"password\"></form></body></html>\n")
	}},
	// wrong for every endpoint: where the answer has a list this has an object, and where it has
	// texts this has objects and numbers
	"shape": {jsonType, func() []byte {
		return []byte(`{"status":"success","data":{"resultType":"vector","result":{"not":"a list"},"groups":7,"alerts":7,"activeTargets":7,"scrapePools":7,"activeAlertmanagers":7,"yaml":7,"version":7}}`)
	}},
	"null": {jsonType, func() []byte { return []byte("null") }},
	"deep": {jsonType, func() []byte {
		const levels = 100_000
		return []byte(`{"status":"success","data":` + strings.Repeat("[", levels) + strings.Repeat("]", levels) + "}")
	}},
	"cut":   {jsonType, func() []byte { return []byte(`{"status":"success","data":[{"__name__":"up","inst`) }},
	"empty": {jsonType, func() []byte { return nil }},
}

func (x *execution) garbage(kind string) error {
	if kind == "wire" {
		if err := x.wire("\x16\x03\x01 SSH-2.0-not-a-web-server\r\n\r\n\x00\xff\xfe"); err != nil {
			return err
		}
		return errCut
	}
	g := garbage[kind]
	return x.answer(Answer{Header: map[string][]string{"Content-Type": {g.contentType}}, Body: g.body()})
}

// gzip turns compression on, or sends a bomb.
func (x *execution) gzip(kind, size string) error {
	x.header.Set("Content-Encoding", "gzip")
	zip := func(into zipSink) { x.zip = append(x.zip, gzip.NewWriter(into)) }
	switch kind {
	case "on", "cut":
		zip(zipSink{x})
		x.zipCut = kind == "cut"
	case "double":
		zip(zipSink{x})
		x.zip = append(x.zip, gzip.NewWriter(x.zip[0]))
	case "bomb":
		x.spoke = true
		n, _ := argSize(size)
		return x.bomb(n)
	}
	return nil
}

// bomb sends about size bytes of valid JSON, series with labels of 1 MiB, as gzip members of which
// each is compressed only once.
func (x *execution) bomb(size int64) error {
	member := func(text string) ([]byte, error) {
		var b bytes.Buffer
		z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
		if err != nil {
			return nil, err
		}
		if _, err := z.Write([]byte(text)); err != nil {
			return nil, err
		}
		err = z.Close()
		return b.Bytes(), err
	}
	unit := `{"__name__":"bomb","pad":"` + strings.Repeat("a", 1<<20) + `"}`
	var parts [3][]byte
	for i, text := range []string{`{"status":"success","data":[` + unit, "," + unit, "]}"} {
		var err error
		if parts[i], err = member(text); err != nil {
			return fmt.Errorf("make a gzip bomb: %w", err)
		}
	}
	if err := x.plain(parts[0]); err != nil {
		return err
	}
	for n := int64(len(unit)); n < size; n += int64(len(unit)) + 1 {
		if err := x.plain(parts[1]); err != nil {
			return err
		}
	}
	return x.plain(parts[2])
}
