package inventory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
)

// MaxPageBytes is the largest page that is read, uncompressed.
const MaxPageBytes = 1 << 30

// Content types of pages, as a target would send them.
const (
	textType        = "text/plain; version=0.0.4"
	openMetricsType = "application/openmetrics-text; version=1.0.0"
	protobufType    = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
)

// page is what one target answered.
type page struct {
	// where names it in errors.
	where       string
	body        []byte
	contentType string
	// target are the labels of the target: job and instance among them, none of them empty.
	target labels.Labels
	// honor says that labels of the page win over those of the target.
	honor bool
}

// sample is a series of a page with its value: float unless h is not nil. Histograms are good until
// the next one.
type sample struct {
	Series
	value float64
	h     *histogram.FloatHistogram
}

// parseError tells a page that is wrong from a caller that has enough.
type parseError struct{ err error }

func (e *parseError) Error() string { return e.err.Error() }
func (e *parseError) Unwrap() error { return e.err }

// each calls f for each series of the page once. A series that stands there twice is stored once by
// the server: the first counts, as there. The error names the page and, where it has lines, the
// line.
func (p *page) each(ctx context.Context, f func(*sample) error) error {
	err := p.parse(ctx, f)
	var bad *parseError
	switch {
	case !errors.As(err, &bad):
		return err
	case isProtobuf(p.contentType):
		return fmt.Errorf("%s: %w", p.where, bad.err)
	}
	line, text := p.badLine(ctx)
	return fmt.Errorf("%s:%d: %w%s", p.where, line, bad.err, advice(p.contentType, text, bad.err))
}

func (p *page) parse(ctx context.Context, f func(*sample) error) error {
	if len(p.body) == 0 {
		return nil // to the server, a target without series
	}
	// Both parts of a histogram that is native and classic are read: a server with
	// scrape_native_histograms and always_scrape_classic_histograms has them, and others fewer. An
	// inventory may have more than what is stored, never less.
	parser, err := textparse.New(p.body, p.contentType, labels.NewSymbolTable(), textparse.ParserOptions{
		KeepClassicOnClassicAndNativeHistograms: true, FallbackContentType: "text/plain",
	})
	if parser == nil {
		return &parseError{err}
	}
	var (
		types    = map[string]model.MetricType{}
		seen     = map[string]struct{}{}
		key      []byte
		builder  = labels.NewBuilder(labels.EmptyLabels())
		s        sample
		lastName string
	)
	for n := 0; ; n++ {
		if n%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return &parseError{err}
		}
		switch entry {
		case textparse.EntryType:
			name, typ := parser.Type()
			types[string(name)] = typ
			lastName = ""
			continue
		case textparse.EntrySeries, textparse.EntryHistogram:
		default:
			continue
		}
		// The value is read even where nobody wants it: the protobuf parser goes on to the classic
		// part of a histogram only when its native part was read.
		s.Native = entry == textparse.EntryHistogram
		s.read(parser)
		parser.Labels(&s.Labels)
		s.Labels = withTarget(builder, s.Labels, p.target, p.honor)
		name := s.Labels.Get(model.MetricNameLabel)
		if name == "" {
			return &parseError{errors.New("a series has no metric name")}
		}
		if !s.Labels.IsValid(model.UTF8Validation) {
			return &parseError{fmt.Errorf("a metric or label name is not valid: %s", s.Labels)}
		}
		key = s.Labels.Bytes(key[:0])
		if _, twice := seen[string(key)]; twice {
			continue
		}
		seen[string(key)] = struct{}{}
		if name != lastName {
			s.Type, lastName = typeOf(types, name), name
		}
		if err := f(&s); err != nil {
			return err
		}
	}
}

func (s *sample) read(parser textparse.Parser) {
	s.value, s.h = 0, nil
	if !s.Native {
		_, _, s.value = parser.Series()
		return
	}
	_, _, h, fh := parser.Histogram()
	if s.h = fh; h != nil {
		s.h = h.ToFloat(nil)
	}
}

// withTarget adds the labels of the target as the server does: those of the page that clash win
// where honor_labels is set, and otherwise get exported_ before their name, shorter names first, as
// often as it takes.
func withTarget(b *labels.Builder, ls, target labels.Labels, honor bool) labels.Labels {
	b.Reset(ls)
	if honor {
		target.Range(func(l labels.Label) {
			if !ls.Has(l.Name) { // an empty one wins too, and goes
				b.Set(l.Name, l.Value)
			}
		})
		return b.Labels()
	}
	var clash []labels.Label
	target.Range(func(l labels.Label) {
		if old := ls.Get(l.Name); old != "" {
			clash = append(clash, labels.Label{Name: l.Name, Value: old})
		}
		b.Set(l.Name, l.Value)
	})
	slices.SortStableFunc(clash, func(a, b labels.Label) int { return len(a.Name) - len(b.Name) })
	for _, l := range clash {
		name := model.ExportedLabelPrefix + l.Name
		for b.Get(name) != "" {
			name = model.ExportedLabelPrefix + name
		}
		b.Set(name, l.Value)
	}
	return b.Labels()
}

// suffixes are what the series of a family have behind the family's name, and of which types.
var suffixes = []struct {
	suffix string
	types  []model.MetricType
}{
	{"_bucket", []model.MetricType{model.MetricTypeHistogram, model.MetricTypeGaugeHistogram}},
	{"_sum", []model.MetricType{model.MetricTypeHistogram, model.MetricTypeGaugeHistogram, model.MetricTypeSummary}},
	{"_count", []model.MetricType{model.MetricTypeHistogram, model.MetricTypeGaugeHistogram, model.MetricTypeSummary}},
	{"_gsum", []model.MetricType{model.MetricTypeGaugeHistogram}},
	{"_gcount", []model.MetricType{model.MetricTypeGaugeHistogram}},
	{"_total", []model.MetricType{model.MetricTypeCounter}},
	{"_info", []model.MetricType{model.MetricTypeInfo}},
}

// typeOf is the type of a series by its name, given those of the families.
func typeOf(types map[string]model.MetricType, name string) model.MetricType {
	if t, ok := types[name]; ok {
		return t
	}
	for _, s := range suffixes {
		if family, ok := strings.CutSuffix(name, s.suffix); ok {
			if t, ok := types[family]; ok && slices.Contains(s.types, t) {
				return t
			}
		}
	}
	return model.MetricTypeUnknown
}

func isProtobuf(contentType string) bool {
	return strings.HasPrefix(contentType, "application/vnd.google.protobuf")
}

func isOpenMetrics(contentType string) bool {
	return strings.HasPrefix(contentType, "application/openmetrics-text")
}

const eof = "# EOF"

// badLine finds the first line that is wrong, for the parsers do not say: it is the last of the
// shortest beginning that does not parse. Reading is a single pass, so if a beginning fails, all
// longer ones do.
func (p *page) badLine(ctx context.Context) (number int, text string) {
	var ends []int
	for i := 0; i < len(p.body); {
		n := bytes.IndexByte(p.body[i:], '\n')
		if n < 0 {
			n = len(p.body) - i - 1
		}
		i += n + 1
		ends = append(ends, i)
	}
	part := *p
	i := sort.Search(len(ends), func(i int) bool {
		part.body = bytes.Clone(p.body[:ends[i]])
		if isOpenMetrics(p.contentType) && !bytes.HasSuffix(bytes.TrimRight(part.body, "\n"), []byte(eof)) {
			if !bytes.HasSuffix(part.body, []byte("\n")) {
				part.body = append(part.body, '\n')
			}
			part.body = append(part.body, eof+"\n"...)
		}
		var bad *parseError
		return errors.As(part.parse(ctx, func(*sample) error { return nil }), &bad)
	})
	if i >= len(ends) { // all is well but for the end
		i = len(ends) - 1
	}
	from := 0
	if i > 0 {
		from = ends[i-1]
	}
	return i + 1, string(p.body[from:ends[i]])
}

// advice is what to do about a page that does not parse, where that can be guessed.
func advice(contentType, line string, err error) string {
	line = strings.TrimSpace(line)
	switch {
	case strings.HasPrefix(line, "<"):
		return "; this looks like HTML, perhaps of a login: fetch the page of metrics itself"
	case isOpenMetrics(contentType) && strings.Contains(err.Error(), eof):
		return "; an OpenMetrics page ends with " + eof + ": without it the page was cut short"
	case !isOpenMetrics(contentType) && strings.Contains(line, " # {"):
		return "; exemplars are of OpenMetrics: give the file the extension .om"
	}
	return ""
}

// points are the sample as a Sampled source hands it on.
func (s *sample) points(t int64) ([]promql.FPoint, []promql.HPoint) {
	if s.h != nil {
		return nil, []promql.HPoint{{T: t, H: s.h}}
	}
	return []promql.FPoint{{T: t, F: s.value}}, nil
}

// withSamples is what Sampled sources call for each series.
type withSamples = func(s *Series, floats []promql.FPoint, histograms []promql.HPoint) error
