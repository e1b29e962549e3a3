package cluster

import (
	"embed"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/common/model"
)

// The schema files are tables of families whose series do not come and go:
// one line each, tab separated:
//
//	name  type  detail  value  labels  help
//
// value is one of
//
//	=V        always V
//	+ R       counter of R a second           # R   the same, whole numbers
//	~ B,A     gauge of B, moving by A         % B,A the same, whole numbers
//	h R,M,S   histogram or summary of R observations a second, log-normal with
//	          median M and sigma S            s R,M the same with sigma 0.5
//	start     when the process started        now   the time of the scrape
//
// labels are name{a|b|c}, multiplied out. @table:label,label,… in front sets
// those labels together from each row of a table in tables.go. le{…} and
// quantile{…} belong to histograms and summaries.
//
//go:embed schema/*.txt
var schemaFS embed.FS

type schemaLabel struct {
	name   string
	values []string
}

type schemaFamily struct {
	family
	detail Detail
	value  byte
	num    [3]float64
	labels []schemaLabel
	table  string // "" or the name of a table
	cols   []string
	les    []string
	bounds []float64
}

var (
	schemaOnce sync.Once
	schemas    map[string][]schemaFamily
)

// schema returns the families of one file, by its name without ending. The
// files are part of the program: a mistake in them panics at first use, and a
// test reads them all.
func schema(name string) []schemaFamily {
	schemaOnce.Do(func() {
		schemas = map[string][]schemaFamily{}
		entries, err := schemaFS.ReadDir("schema")
		if err != nil {
			panic(err)
		}
		for _, e := range entries {
			b, err := schemaFS.ReadFile("schema/" + e.Name())
			if err != nil {
				panic(err)
			}
			fams, err := parseSchema(string(b))
			if err != nil {
				panic(fmt.Sprintf("cluster: %s: %v", e.Name(), err))
			}
			schemas[strings.TrimSuffix(e.Name(), ".txt")] = fams
		}
	})
	s, ok := schemas[name]
	if !ok {
		panic("cluster: no schema " + name)
	}
	return s
}

func parseSchema(text string) ([]schemaFamily, error) {
	var out []schemaFamily
	for i, line := range strings.Split(text, "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		f, err := parseSchemaLine(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		out = append(out, f)
	}
	return out, nil
}

func parseSchemaLine(line string) (schemaFamily, error) {
	col := strings.Split(line, "\t")
	if len(col) != 6 {
		return schemaFamily{}, fmt.Errorf("%d columns, not 6", len(col))
	}
	f := schemaFamily{family: family{name: col[0], help: col[5], typ: model.MetricType(col[1])}}
	switch f.typ {
	case "untyped":
		f.typ = model.MetricTypeUnknown
	case model.MetricTypeCounter, model.MetricTypeGauge, model.MetricTypeHistogram, model.MetricTypeSummary:
	default:
		return f, fmt.Errorf("type %q", col[1])
	}
	switch col[2] {
	case "1":
		f.detail = Lean
	case "2":
		f.detail = Full
	default:
		return f, fmt.Errorf("detail %q is neither 1 nor 2", col[2])
	}
	if err := f.parseValue(col[3]); err != nil {
		return f, err
	}
	return f, f.parseLabels(col[4])
}

func (f *schemaFamily) parseValue(v string) error {
	switch {
	case v == "start":
		f.value = 's' + 1
	case v == "now":
		f.value = 'n'
	case len(v) < 2 || !strings.ContainsRune("=+#~%hs", rune(v[0])):
		return fmt.Errorf("value %q", v)
	default:
		f.value = v[0]
		for i, s := range strings.Split(strings.TrimSpace(v[1:]), ",") {
			x, err := strconv.ParseFloat(s, 64)
			if err != nil || i >= len(f.num) {
				return fmt.Errorf("value %q", v)
			}
			f.num[i] = x
		}
		if f.value == 's' {
			f.num[2] = 0.5
		}
	}
	if hist := f.value == 'h' || f.value == 's'; hist != (f.typ == model.MetricTypeHistogram || f.typ == model.MetricTypeSummary) {
		return fmt.Errorf("value %q does not fit type %s", v, f.typ)
	}
	return nil
}

func (f *schemaFamily) parseLabels(s string) error {
	if strings.HasPrefix(s, "@") {
		head, rest, _ := strings.Cut(s, " ")
		s = rest
		name, cols, ok := strings.Cut(head[1:], ":")
		if !ok {
			return fmt.Errorf("labels %q: @table:label,… expected", head)
		}
		f.table, f.cols = name, strings.Split(cols, ",")
	}
	for s = strings.TrimSpace(s); s != ""; s = strings.TrimSpace(s) {
		name, rest, ok := strings.Cut(s, "{")
		if !ok {
			return fmt.Errorf("labels %q: name{…} expected", s)
		}
		vals, rest, ok := strings.Cut(rest, "}")
		if !ok {
			return fmt.Errorf("labels %q: no }", s)
		}
		s = rest
		values := splitList(vals)
		if name == "le" || name == "quantile" {
			f.les = values
			for _, v := range values {
				if v == "+Inf" {
					break
				}
				x, err := strconv.ParseFloat(v, 64)
				if err != nil {
					return fmt.Errorf("le %q", v)
				}
				f.bounds = append(f.bounds, x)
			}
			continue
		}
		f.labels = append(f.labels, schemaLabel{name, values})
	}
	if f.typ == model.MetricTypeHistogram && (len(f.les) == 0 || f.les[len(f.les)-1] != "+Inf") {
		return fmt.Errorf("a histogram needs le values that end in +Inf")
	}
	return nil
}

// fromSchema turns the lines of a file into families of a page. clock picks
// the process whose start is the counters' zero.
func fromSchema(name string, d Detail, clock func(*page) *process) []family {
	var out []family
	for i := range schema(name) {
		s := &schemas[name][i]
		if s.detail > d {
			continue
		}
		f := s.family
		f.emit = func(p *page, e *emitter) { s.emitAll(p, e, clock(p)) }
		out = append(out, f)
	}
	return out
}

func exporterClock(p *page) *process { return p.pr }
func machineClock(p *page) *process  { return p.machine }

func (f *schemaFamily) emitAll(p *page, e *emitter, pr *process) {
	pairs := make([]string, 0, 16)
	if f.table == "" {
		f.product(p, e, pr, pairs, 0)
		return
	}
	t := p.m.table(f.table)
	for _, row := range t.rows {
		pairs = pairs[:0]
		for _, c := range f.cols {
			pairs = append(pairs, c, row[t.col(c)])
		}
		f.product(p, e, pr, pairs, 0)
	}
}

func (f *schemaFamily) product(p *page, e *emitter, pr *process, pairs []string, i int) {
	if i == len(f.labels) {
		f.one(e, pr, pairs)
		return
	}
	l := &f.labels[i]
	for _, v := range l.values {
		if v == "@cpus" {
			for c := range p.m.o.CPUsPerNode {
				f.product(p, e, pr, append(pairs, l.name, strconv.Itoa(c)), i+1)
			}
			continue
		}
		f.product(p, e, pr, append(pairs, l.name, v), i+1)
	}
}

func (f *schemaFamily) one(e *emitter, pr *process, pairs []string) {
	w, h := e.weight(pairs)
	switch f.value {
	case '=':
		e.add(curve{base: f.num[0]}, pairs...)
	case '+', '#':
		e.add(e.rate(f.num[0]*w, f.value == '#', h, pr), pairs...)
	case '~', '%':
		if f.num[1] == 0 {
			w = 1 // a limit or a size: the same everywhere
		}
		c := wave(curve{kind: gauge, base: f.num[0] * w, amp: f.num[1] * w, whole: f.value == '%'}, h)
		e.add(c, pairs...)
	case 's' + 1:
		e.add(curve{kind: since, pr: pr}, pairs...)
	case 'n':
		e.add(curve{kind: now}, pairs...)
	default:
		total := e.rate(f.num[0]*w, true, h, pr)
		d := dist{f.num[1] * between(mix(h+3), 0.7, 1.4), f.num[2]}
		if f.typ == model.MetricTypeSummary {
			e.summary(total, d, f.les, h, pairs...)
			return
		}
		e.histogram(0, never, total, d, f.les, f.bounds, pairs...)
	}
}
