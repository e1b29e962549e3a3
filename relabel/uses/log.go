package uses

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/usage"
)

// MaxQueries is how many different query texts a usage log may hold. More is an error: with fewer,
// a use would be lost.
const MaxQueries = 1 << 18

// maxLine bounds one line of a usage log; its lists of labels are complete however long the query
// is.
const maxLine = 64 << 20

// LogOptions say which part of a usage log counts.
type LogOptions struct {
	// Window is how far back from Now lines count; 0 is all of them.
	Window time.Duration
	// Now is the end of the window. Lines after it count too: clocks differ.
	Now time.Time
}

// Log adds the queries of a usage log with the files that it was rotated into (usage.jsonl.1 and so
// on), each of them packed (.gz) or not. Each different text is one use, with its last time and
// count. A refused query counts as one that was asked, but for selectors that name no metric, which
// would have needed everything. Series, names and values of selectors that select nothing in
// particular are no use either: such calls list what there is. Nor are lines that spillway relabel
// left itself when it took stock through the proxy, nor those of requests for a plan alone. Lines
// of a version that is not known, and what is no line of such a log, are errors.
func Log(ctx context.Context, set *Set, path string, o LogOptions) (err error) {
	parts, err := usage.OpenParts(path)
	if err != nil {
		return fmt.Errorf("usage log: %w", err)
	}
	defer func() { err = errors.Join(err, usage.CloseParts(parts)) }()
	l := newLogReader(o)
	for _, part := range parts {
		if number, err := l.read(ctx, part); err != nil {
			return fmt.Errorf("usage log: %w", inFile(part.Name, number, err))
		}
	}
	l.finish(set, path)
	return nil
}

// line is what is read of a record. The lists stay as they are until they are needed: nearly every
// line repeats a text that is known.
type line struct {
	V         int       `json:"v"`
	Time      time.Time `json:"time"`
	Tenant    string    `json:"tenant"`
	User      string    `json:"user"`
	Dashboard string    `json:"dashboard"`
	Panel     string    `json:"panel"`
	Rule      string    `json:"rule"`
	Endpoint  string    `json:"endpoint"`
	Query     string    `json:"query"`
	Verdict   string    `json:"verdict"`
	Purpose   string    `json:"purpose"`
	Range     float64   `json:"range_s"`
	Lost      int64     `json:"lost"`
	lists
}

// lists are what a record says of a query whose text was cut.
type lists struct {
	Metrics  json.RawMessage `json:"metrics"`
	Matchers json.RawMessage `json:"matchers"`
	Cut      json.RawMessage `json:"cut"`
	Nameless bool            `json:"nameless"`
}

// group is all lines with one text.
type group struct {
	query   string
	kind    byte // how its text is to be read: see class
	count   int64
	refused bool // each time
	ruled   bool // a rule asked it
	// from and to are when somebody without a name asked it, the first and the last time.
	from, to time.Time
	last     line // the lists of it only where the text is cut
}

// The ways to read a record's text.
const (
	asQuery  = 'q'
	asSeries = 's' // selectors whose series went out
	asList   = 'l' // selectors that listed series, names or values
)

// class says how the text of an endpoint's record is to be read, 0 if it is not evaluated.
func class(name string) byte {
	switch endpoint.ID(name).Selects() {
	case endpoint.SelectsComputed:
		return asQuery
	case endpoint.SelectsStored:
		return asSeries
	case endpoint.SelectsListed:
		return asList
	}
	return 0
}

// lacks tells whether a line says that something was cut. It was read with the line: where it is
// another type nothing is known.
func (l *lists) lacks(what string) bool { return bytes.Contains(l.Cut, []byte(strconv.Quote(what))) }

type logReader struct {
	options  LogOptions
	since    time.Time
	groups   map[logKey]*group
	oldest   time.Time      // of all lines, whether they count or not
	from, to time.Time      // of those that count
	hours    map[int64]bool // of all lines
	lines    int64
	nuls     int64 // stretches of NUL bytes
	own      int64 // of an inventory
	plans    int64 // of which the plan alone was asked
	lost     Losses
	// maxQueries is MaxQueries but in tests.
	maxQueries int
}

// logKey tells texts apart. Texts that were cut may differ where they were cut: their lists tell
// that.
type logKey struct {
	kind         byte
	query, lists string
}

func newLogReader(o LogOptions) *logReader {
	l := &logReader{groups: map[logKey]*group{}, hours: map[int64]bool{}, options: o, maxQueries: MaxQueries}
	if o.Window > 0 {
		l.since = o.Now.Add(-o.Window)
	}
	return l
}

// read reads lines and says at which it stopped. A last line without an end that is no record is
// being written.
func (l *logReader) read(ctx context.Context, r io.Reader) (int, error) {
	in := bufio.NewReaderSize(r, 1<<18)
	var long []byte
	for number := 1; ; number++ {
		if number%1024 == 0 && ctx.Err() != nil {
			return number, context.Cause(ctx)
		}
		text, err := in.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			long = append(long[:0], text...)
			for errors.Is(err, bufio.ErrBufferFull) {
				text, err = in.ReadSlice('\n')
				if len(bytes.TrimLeft(long, "\x00")) == 0 {
					long = append(long[:0], 0) // of a stretch of them one is enough
				}
				if long = append(long, text...); len(long) > maxLine {
					return number, fmt.Errorf("the line is longer than %d MiB", maxLine>>20)
				}
			}
			text = long
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return number, err
		}
		if len(text) > 0 && text[0] == 0 { // no line of ours: the machine died, or somebody else cut the file
			l.nuls++
			text = bytes.TrimLeft(text, "\x00")
		}
		if len(strings.TrimSpace(string(text[:min(len(text), 8)]))) > 0 {
			if lineErr := l.line(text); lineErr != nil && (err == nil || errors.As(lineErr, new(*versionError))) {
				return number, lineErr
			}
		}
		if err != nil {
			return number, nil
		}
	}
}

type versionError struct{ version int }

func (e *versionError) Error() string {
	return fmt.Sprintf("the line is of version %d of the usage log's format, and only %d is known: use the spillway that wrote it, or a newer one", e.version, usage.Version)
}

func (l *logReader) line(text []byte) error {
	var rec line
	if err := json.Unmarshal(text, &rec); err != nil {
		return fmt.Errorf("this is no line of a usage log (%w); take it out if the file was damaged", err)
	}
	if rec.V != usage.Version {
		return &versionError{rec.V}
	}
	if rec.Purpose == usage.Lost {
		if to := rec.Time.Add(time.Duration(rec.Range * float64(time.Second))); !to.Before(l.since) {
			l.lost.add(Losses{max(rec.Lost, 1), rec.Time, to})
		}
		return nil
	}
	if l.oldest.IsZero() || rec.Time.Before(l.oldest) {
		l.oldest = rec.Time
	}
	if h := hour(rec.Time); !l.hours[h] {
		l.hours[h] = true
	}
	// What a short line of the window points to may stand before it, in the same hour of the clock
	// by which the log was written.
	if early := l.since.Sub(rec.Time); early > 0 && (early > 2*time.Hour || len(text) <= usage.OrdinaryLine) {
		return nil
	}
	switch rec.Purpose {
	case usage.Inventory:
		l.own++
		return nil
	case usage.Explain:
		l.plans++
		return nil
	}
	l.lines++
	if l.from.IsZero() || rec.Time.Before(l.from) {
		l.from = rec.Time
	}
	if rec.Time.After(l.to) {
		l.to = rec.Time
	}
	kind := class(rec.Endpoint)
	if kind == 0 || rec.Query == "" || rec.lacks(usage.CutRepeat) {
		return nil
	}
	key := logKey{kind: kind, query: rec.Query}
	cut := strings.HasSuffix(rec.Query, usage.CutMark)
	if cut {
		key.lists = fmt.Sprintf("%s%s%s%v", rec.Metrics, rec.Matchers, rec.Cut, rec.Nameless)
	}
	g := l.groups[key]
	if g == nil {
		if len(l.groups) >= l.maxQueries {
			return fmt.Errorf("there are more than %d different queries: choose a shorter window", l.maxQueries)
		}
		g = &group{query: rec.Query, kind: kind, refused: true, last: rec}
		if !cut {
			g.last.lists = lists{}
		}
		l.groups[key] = g
	}
	if rec.User == "" && rec.Dashboard == "" && rec.Panel == "" && rec.Rule == "" {
		g.from, g.to = earlier(g.from, rec.Time), later(g.to, rec.Time)
	}
	g.count++
	g.ruled = g.ruled || rec.Rule != ""
	g.refused = g.refused && rec.Verdict == "refuse"
	if rec.Time.After(g.last.Time) {
		known := g.last.lists
		g.last = rec
		g.last.lists = known
	}
	g.last.Query = ""
	return nil
}

// finish adds one use for each group.
func (l *logReader) finish(set *Set, path string) {
	var n counted
	keys := slices.Collect(maps.Keys(l.groups))
	slices.SortFunc(keys, func(a, b logKey) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), strings.Compare(a.query, b.query), strings.Compare(a.lists, b.lists))
	})
	for _, key := range keys {
		g := l.groups[key]
		u := &Use{
			Kind: Logged, File: path, Where: g.last.where(), Owner: first(g.last.User, g.last.Tenant), Query: g.query,
			Last: g.last.Time, Count: g.count, Picked: !g.ruled,
		}
		var warning string
		u.Needs, warning = g.needs()
		if !g.to.IsZero() {
			set.Nameless.add(u.Needs, g.from, g.to)
		}
		if warning != "" {
			u.Reason = warning
			n.unread += g.count
		}
		cut := strings.HasSuffix(g.query, usage.CutMark)
		if cut {
			u.Query = "" // half of a query is none
		}
		if g.kind == asSeries || g.kind == asList {
			u.Query = oneSelector(u.Query)
		}
		needs := len(u.Needs)
		switch {
		case g.kind == asList:
			u.Needs = slices.DeleteFunc(u.Needs, func(n Need) bool { return !n.selective() && !(cut && len(n.Matchers) == 0) })
			if len(u.Needs) < needs {
				n.browsed += g.count
			}
		case g.refused:
			u.Needs = slices.DeleteFunc(u.Needs, func(n Need) bool { return n.everything() && !(cut && g.last.lacks(usage.CutMetrics)) })
			if len(u.Needs) < needs {
				n.refused += g.count
			}
		}
		u.Lists = g.kind == asList && !cut // half of a text may have named metrics
		set.ignoreListing(u)
		if u.Needs == nil {
			u.Needs = []Need{}
		}
		if cut && slices.ContainsFunc(u.Needs, func(n Need) bool { return len(n.Matchers) == 0 }) {
			n.unknown += g.count
		}
		if needs > 0 && len(u.Needs) == 0 {
			continue
		}
		if i := slices.IndexFunc(u.Needs, func(n Need) bool { return n.everything() }); i >= 0 {
			if n.open++; n.example == "" {
				n.example = u.Needs[i].Selector()
			}
		}
		set.Add(u)
	}
	l.tell(set, path, n)
}

// counted are the lines of which people should know, and the texts that select without a name.
type counted struct {
	browsed, refused, unread, unknown int64

	open    int
	example string
}

// tell adds the warnings about the log.
func (l *logReader) tell(set *Set, path string, n counted) {
	warn := func(format string, args ...any) {
		set.Warnings = append(set.Warnings, path+": "+fmt.Sprintf(format, args...))
	}
	if l.own > 0 {
		warn("left out, since they are no uses: %s by which spillway relabel took stock through the proxy", number(l.own, "request", "requests"))
	}
	if l.plans > 0 {
		warn("left out, since they are no uses: %s for the plan of a query alone", number(l.plans, "request", "requests"))
	}
	if l.lost.Requests > 0 {
		set.Lost.add(l.lost)
		warn("%s, since the disk was full or slow: what these asked is not known", l.lost)
	}
	if l.nuls > 0 {
		warn("%s of NUL bytes passed over: the machine died while lines were written, or somebody else cut the file; what was asked there is not known",
			number(l.nuls, "stretch", "stretches"))
	}
	if n.browsed > 0 {
		warn("%d calls listed series, names or values without selecting anything in particular, such as {le!=\"\"}; nothing is kept for them", n.browsed)
	}
	if n.refused > 0 {
		warn("%d queries that selected metrics without naming them were refused; nothing is kept for that part of them", n.refused)
	}
	if n.unread > 0 {
		warn("%d lines have queries that were cut or do not parse; every metric named in them is kept", n.unread)
	}
	if n.unknown > 0 {
		warn("%d lines have lists that were cut, too, so that nobody knows what all they select (or their caller had had its share of the log, spillway_usage_log_shortened_total); everything is kept for them", n.unknown)
	}
	if n.open > 0 {
		warn("%d different queries select series without naming a metric, such as %s; all that they select are kept", n.open, n.example)
	}
	l.coverage(set, warn)
}

// Losses are requests that a usage log has no line of, as far as it says so itself.
type Losses struct {
	Requests int64
	// From and To are when the first and the last one were lost.
	From, To time.Time
}

func (l *Losses) add(more Losses) {
	l.Requests += more.Requests
	l.From, l.To = earlier(l.From, more.From), later(l.To, more.To)
}

// String says how many they are, and when: `3 requests have no line, from … to … (UTC)`.
func (l Losses) String() string {
	return fmt.Sprintf("%s no line, from %s to %s (UTC)", number(l.Requests, "request has", "requests have"),
		l.From.UTC().Format(time.DateTime), l.To.UTC().Format(time.DateTime))
}

// Nameless are the metrics that callers without a user, dashboard, panel or rule asked for by name,
// and when they did: what programs ask for. Its zero value is empty.
type Nameless struct {
	Metrics  map[string]bool
	From, To time.Time
}

// add notes the metrics that the needs name.
func (n *Nameless) add(needs []Need, from, to time.Time) {
	for i := range needs {
		name, ok := needs[i].Name()
		if !ok {
			continue
		}
		if n.Metrics == nil {
			n.Metrics = map[string]bool{}
		}
		n.Metrics[name] = true
		n.From, n.To = earlier(n.From, from), later(n.To, to)
	}
}

// earlier is the earlier of two times; a zero time is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// later is the later of two times.
func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// where names who asked: `ada, dashboard gpu-overview, panel 7`.
func (r *line) where() string {
	parts := []string{first(r.User, r.Tenant, "somebody")}
	for _, p := range [][2]string{{"dashboard", r.Dashboard}, {"panel", r.Panel}, {"rule", r.Rule}} {
		if p[1] != "" {
			parts = append(parts, p[0]+" "+p[1])
		}
	}
	if len(parts) == 1 {
		parts = append(parts, r.Endpoint)
	}
	return strings.Join(parts, ", ")
}

func (g *group) needs() ([]Need, string) {
	if strings.HasSuffix(g.query, usage.CutMark) {
		return g.last.facts(g.query), "the text was cut; the metrics that the log names for it are kept"
	}
	if g.kind == asQuery {
		return Needs(g.query)
	}
	if needs, warning := Needs(g.query); warning == "" { // one selector, or of exemplars an expression
		for i := range needs {
			needs[i].Labels, needs[i].Quantile = All, false
		}
		return needs, ""
	}
	var out []Need
	for _, text := range splitSelectors(g.query) {
		m, err := promql.ParseMetricSelector(text)
		if err != nil && text != "{}" {
			return textual(g.query, nil), "the selectors do not parse; every metric named in them is kept"
		}
		out = append(out, Need{Matchers: m, Labels: All})
	}
	return out, ""
}

// splitSelectors splits at the commas between selectors.
func splitSelectors(text string) []string {
	var out []string
	depth, start := 0, 0
	for _, t := range tokens(text) {
		switch t.kind {
		case '{':
			depth++
		case '}':
			depth--
		case ',':
			if depth == 0 {
				out = append(out, text[start:t.offset])
				start = t.offset + 1
			}
		}
	}
	return append(out, text[start:])
}

// oneSelector is the text, if it is an expression that can be asked.
func oneSelector(text string) string {
	if _, err := promql.ParseExpr(text); err != nil {
		return ""
	}
	return text
}

// facts are the needs of a query whose text was cut, from the lists of its record, which do not say
// what belongs together: all labels of all series of each metric. Where there is a selector without
// a name, each matcher may be a selector by itself; lines from before Cut do not say so, and there
// it has to be seen, or no name at all be known. Where the lists were cut, what is missing of them
// may select anything.
func (r *line) facts(query string) []Need {
	if r.lacks(usage.CutMetrics) {
		return []Need{{Labels: All}}
	}
	var metrics, texts []string
	_ = json.Unmarshal(r.Metrics, &metrics) // it was read with the line: an error means another type, and then nothing is known
	_ = json.Unmarshal(r.Matchers, &texts)
	var out []Need
	for _, name := range metrics {
		out = append(out, Need{
			Matchers: []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, model.MetricNameLabel, name)},
			Labels:   All,
		})
	}
	nameless := r.Nameless
	if r.Cut == nil {
		nameless = len(metrics) == 0 || seesNameless(query)
	}
	var matchers []*labels.Matcher
	for _, text := range texts {
		if m := oneMatcher(text); m != nil {
			matchers = append(matchers, m)
			nameless = nameless || isName(m) && m.Matches(noName) // a selector with that has as good as none
		}
	}
	unknown := nameless && r.lacks(usage.CutMatchers)
	for _, m := range matchers {
		if nameless && !unknown || isName(m) {
			out = append(out, Need{Matchers: []*labels.Matcher{m}, Labels: All})
		}
	}
	if unknown {
		out = append(out, Need{Labels: All})
	}
	return out
}

// oneMatcher is the matcher that a text has; nil where it has not one.
func oneMatcher(text string) *labels.Matcher {
	m, err := promql.ParseMetricSelector("{" + text + "}")
	if err != nil { // it lets the empty text through, and cannot stand alone
		if m, err = promql.ParseMetricSelector(`{__name__!="",` + text + "}"); err != nil {
			return nil
		}
		m = m[1:]
	}
	if len(m) != 1 {
		return nil
	}
	return m[0]
}

// seesNameless tells whether a selector without a name stands in the text.
func seesNameless(query string) bool {
	all := tokens(query)
	for i, t := range all {
		if t.kind == '{' && (i == 0 || all[i-1].kind != 'w' && all[i-1].kind != 's') {
			return true
		}
	}
	return false
}

// selective tells whether the need selects something in particular: by a matcher that is not only a
// negation and does not let nearly everything through.
func (n *Need) selective() bool {
	for _, m := range n.Matchers {
		switch {
		case m.Type == labels.MatchEqual && m.Value != "":
			return true
		case m.Type == labels.MatchRegexp && !m.Matches("") && m.Value != ".+" && m.Value != "..*":
			return true
		}
	}
	return false
}
