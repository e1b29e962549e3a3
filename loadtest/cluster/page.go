package cluster

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
)

// ErrDown is returned for a target that does not answer at the moment asked
// about: its node is down or its process is being restarted.
var ErrDown = errors.New("target is down at this time of the model")

// ContentType of the pages.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

func (m *Model) pageAt(t Target, at int64) (*page, error) {
	i, ok := m.index[targetKey{t.Job, t.Instance}]
	if !ok {
		return nil, fmt.Errorf("no target %s/%s in cluster %s; Targets lists them", t.Job, t.Instance, m.o.Cluster)
	}
	if at < m.start {
		return nil, fmt.Errorf("%s is before the cluster was built (%s)", time.UnixMilli(at).UTC().Format(time.RFC3339),
			m.o.Start.UTC().Format(time.RFC3339))
	}
	p := m.compiler(at, at, false).page(&m.targets[i])
	if !p.answers(at) {
		return nil, fmt.Errorf("%s/%s: %w", t.Job, t.Instance, ErrDown)
	}
	return p, nil
}

// WritePage writes the page that the target shows at a moment, in the
// Prometheus text format 0.0.4. The page is a stream: nothing of it is held but
// one series. It returns ErrDown (wrapped), before anything is written, when
// the target does not answer then.
func (m *Model) WritePage(w io.Writer, t Target, at time.Time) error {
	ms := at.UnixMilli()
	p, err := m.pageAt(t, ms)
	if err != nil {
		return err
	}
	bw := bufio.NewWriterSize(w, 32<<10)
	var head *family
	buf := make([]byte, 0, 1024)
	p.collect(familiesOf(t.Job, m.o.Detail), func(s *series) {
		if ms < s.from || ms >= s.until {
			return
		}
		buf = buf[:0]
		if head != s.fam {
			// A family without a series has no head either, as on real pages.
			head = s.fam
			buf = appendHead(buf, head)
		}
		buf = appendSample(buf, s, s.curve.at(ms))
		bw.Write(buf) //nolint:errcheck // bufio keeps the error; Flush returns it
	})
	if err := bw.Flush(); err != nil {
		return fmt.Errorf("write page of %s/%s: %w", t.Job, t.Instance, err)
	}
	return nil
}

func appendHead(b []byte, f *family) []byte {
	b = append(b, "# HELP "...)
	b = append(b, f.name...)
	b = append(b, ' ')
	b = append(b, helpEscaper.Replace(f.help)...)
	b = append(b, "\n# TYPE "...)
	b = append(b, f.name...)
	b = append(b, ' ')
	if f.typ == model.MetricTypeUnknown {
		b = append(b, "untyped"...)
	} else {
		b = append(b, f.typ...)
	}
	return append(b, '\n')
}

var (
	helpEscaper  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	labelEscaper = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

func appendSample(b []byte, s *series, v float64) []byte {
	b = append(b, s.name...)
	for i := 0; i < len(s.pairs); i += 2 {
		if i == 0 {
			b = append(b, '{')
		} else {
			b = append(b, ',')
		}
		b = append(b, s.pairs[i]...)
		b = append(b, '=', '"')
		if strings.ContainsAny(s.pairs[i+1], "\\\n\"") {
			b = append(b, labelEscaper.Replace(s.pairs[i+1])...)
		} else {
			b = append(b, s.pairs[i+1]...)
		}
		b = append(b, '"')
	}
	if len(s.pairs) > 0 {
		b = append(b, '}')
	}
	b = append(b, ' ')
	b = appendValue(b, v)
	return append(b, '\n')
}

func appendValue(b []byte, v float64) []byte {
	if v == math.Trunc(v) && math.Abs(v) < 1e15 {
		return strconv.AppendInt(b, int64(v), 10)
	}
	return strconv.AppendFloat(b, v, 'g', -1, 64)
}

// Series calls yield for each series of the target at a moment, with the labels
// that Prometheus stores for the page itself: no target labels, le and quantile
// in their canonical form ("1.0" where the page says "1"), labels with empty
// values left out. It is WritePage without the text. Errors are as there.
func (m *Model) Series(t Target, at time.Time, yield func(l labels.Labels, value float64, typ model.MetricType)) error {
	ms := at.UnixMilli()
	p, err := m.pageAt(t, ms)
	if err != nil {
		return err
	}
	b := labels.NewScratchBuilder(16)
	p.collect(familiesOf(t.Job, m.o.Detail), func(s *series) {
		if ms < s.from || ms >= s.until {
			return
		}
		yield(s.labels(&b), s.curve.at(ms), s.fam.typ)
	})
	return nil
}

// labels builds the stored form of the series' own labels.
func (s *series) labels(b *labels.ScratchBuilder) labels.Labels {
	b.Reset()
	b.Add(model.MetricNameLabel, s.name)
	for i := 0; i < len(s.pairs); i += 2 {
		if v := s.stored(i); v != "" {
			b.Add(s.pairs[i], v)
		}
	}
	b.Sort()
	return b.Labels()
}

// stored is the value of the label at pairs[i] as a server stores it.
func (s *series) stored(i int) string {
	k, v := s.pairs[i], s.pairs[i+1]
	if (k == "le" && s.fam.typ == model.MetricTypeHistogram) || (k == "quantile" && s.fam.typ == model.MetricTypeSummary) {
		return canonicalFloat(v)
	}
	return v
}

// canonicalFloat is how Prometheus 3 stores le and quantile: always a float.
func canonicalFloat(v string) string {
	f, err := strconv.ParseFloat(v, 64)
	if err != nil {
		return v
	}
	return labels.FormatOpenMetricsFloat(f)
}

// Handler serves the pages at /scrape/{job}/{instance} (both path-escaped) as
// they are when clock says, and /sd, all targets in the form of Prometheus'
// HTTP service discovery. A target that is down answers 503.
func (m *Model) Handler(clock func() time.Time) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /scrape/{job}/{instance}", func(w http.ResponseWriter, r *http.Request) {
		t, ok := m.Find(r.PathValue("job"), r.PathValue("instance"))
		if !ok {
			http.Error(w, "no such target; GET /sd lists them", http.StatusNotFound)
			return
		}
		w.Header().Set("Content-Type", ContentType)
		cw := &countingWriter{w: w}
		err := m.WritePage(cw, t, clock())
		switch {
		case err == nil:
		case cw.n == 0:
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		default:
			// Half a page is out: it must not look whole.
			panic(http.ErrAbortHandler)
		}
	})
	mux.HandleFunc("GET /sd", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		bw := bufio.NewWriterSize(w, 32<<10)
		enc := json.NewEncoder(bw)
		now, n := clock().UnixMilli(), 0
		for i := range m.targets {
			if within(m.absent(m.targets[i].node), now) {
				continue
			}
			bw.WriteByte("[,"[min(n, 1)]) //nolint:errcheck // bufio keeps the error, and
			n++
			if err := enc.Encode(m.sdGroup(&m.targets[i], r.Host)); err != nil {
				return // the client left: nothing to tell it
			}
		}
		bw.WriteString("]\n") //nolint:errcheck // as above
		_ = bw.Flush()
	})
	return mux
}

type countingWriter struct {
	w io.Writer
	n int
}

func (c *countingWriter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += n
	return n, err
}

type sdGroup struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

func (m *Model) sdGroup(t *Target, host string) sdGroup {
	g := sdGroup{[]string{host}, map[string]string{
		"job": t.Job, "instance": t.Instance, "__metrics_path__": ScrapePath(*t), "__scheme__": "http",
	}}
	t.Labels.Range(func(l labels.Label) { g.Labels[l.Name] = l.Value })
	return g
}

// ScrapePath is where Handler serves the target's page.
func ScrapePath(t Target) string {
	return "/scrape/" + url.PathEscape(t.Job) + "/" + url.PathEscape(t.Instance)
}
