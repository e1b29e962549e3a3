package endpoint

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/common/model"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

const (
	labelPrefix = "/api/v1/label/"
	labelSuffix = "/values"
	// escapedLabel begins a label name in which every unusual character is written as _hex_.
	escapedLabel = "U__"
)

// Lookup finds the row for a request by its path and method alone, and the decoded label name where
// the path has one. It reads neither parameters nor body. The error is a *qerr.Error: NotFound for
// any path that is not exactly a canonical one (no cleaning, no redirect, no decoding: what two
// parsers may read differently is not served), BadData for a label name that cannot be one,
// MethodNotAllowed with the allowed methods.
func Lookup(r *http.Request) (*Endpoint, string, error) {
	if r.RequestURI != "" && r.RequestURI[0] != '/' { // absolute-form, authority-form and *: Spillway is no forward proxy
		return nil, "", notFound(r.RequestURI)
	}
	path := r.URL.EscapedPath()
	if raw := r.URL.RawPath; raw != path && strings.Contains(raw, "%") {
		// Escapes beside bytes that ought to be escaped: net/url then writes the path anew, and
		// escapes that are not canonical would be lost to the look-up.
		return nil, "", notFound(raw)
	}
	e, label := byPath[path], ""
	if e == nil {
		segment, ok := labelSegment(path)
		if !ok {
			return nil, "", notFound(path)
		}
		e = byID[LabelValues]
		var err error
		if label, err = decodeLabel(segment); err != nil {
			return nil, "", err
		}
	}
	if !slices.Contains(e.Methods, r.Method) {
		return nil, "", &qerr.Error{
			Kind:    qerr.MethodNotAllowed,
			Message: "method " + quoted(r.Method) + " is not served at " + e.Path + "; use " + strings.Join(e.Methods, " or "),
			Allow:   slices.Clone(e.Methods),
		}
	}
	return e, label, nil
}

// labelSegment cuts the label name out of an escaped path, still escaped.
func labelSegment(path string) (string, bool) {
	rest, ok := strings.CutPrefix(path, labelPrefix)
	if !ok {
		return "", false
	}
	segment, ok := strings.CutSuffix(rest, labelSuffix)
	return segment, ok && segment != "" && !strings.ContainsAny(segment, "/;")
}

// decodeLabel undoes the percent-encoding and then, as Prometheus does, the U__ escaping. Encodings
// that no client needs and that some parser between here and a shard might undo once more (of
// letters, of dots, of slashes, of the percent sign itself) are not found; U__ can write all of
// them.
func decodeLabel(segment string) (string, error) {
	for i := 0; i+2 < len(segment); i++ {
		if segment[i] != '%' {
			continue
		}
		b, err := strconv.ParseUint(segment[i+1:i+3], 16, 8)
		if err != nil {
			return "", notFound(labelPrefix + segment + labelSuffix)
		}
		if c := byte(b); unreserved(c) || c == '/' || c == '\\' || c == '%' || c < ' ' || c == 0x7f {
			e := notFound(labelPrefix + segment + labelSuffix)
			e.Advice = "write such a character of a label name as _hex_ after U__, for example U__http_2e_status"
			return "", e
		}
	}
	name, err := url.PathUnescape(segment)
	if err != nil || name == "." || name == ".." {
		return "", notFound(labelPrefix + segment + labelSuffix)
	}
	if strings.HasPrefix(name, escapedLabel) {
		name = model.UnescapeName(name, model.ValueEncodingEscaping)
	}
	switch {
	case !model.UTF8Validation.IsValidLabelName(name), strings.ContainsRune(name, 0):
		return "", qerr.Prometheus("invalid label name: %s", quoted(name)) // Prometheus' words
	case len(name) > MaxLabelNameBytes:
		return "", qerr.New(qerr.BadData, "invalid label name: %s has %d bytes; at most %d are served", quoted(name), len(name), MaxLabelNameBytes)
	}
	return name, nil
}

// encodeLabel is the canonical path segment of a label name: itself where it is a plain name,
// otherwise in U__ form. It is what decodeLabel and Prometheus both read as the name.
func encodeLabel(name string) string {
	// A plain name that begins with U__ might be read as an escaped one, so it is escaped.
	if model.LegacyValidation.IsValidLabelName(name) && !strings.HasPrefix(name, escapedLabel) {
		return name
	}
	var b strings.Builder
	b.WriteString(escapedLabel)
	for _, c := range name {
		switch {
		case c == '_':
			b.WriteString("__")
		case c < utf8.RuneSelf && alphanumeric(byte(c)):
			b.WriteRune(c)
		case c > 0xFFFFF:
			// Prometheus reads at most five hexadecimal digits, and takes any other byte than an
			// underscore as it stands.
			b.WriteString(url.PathEscape(string(c)))
		default:
			b.WriteByte('_')
			b.WriteString(strconv.FormatInt(int64(c), 16))
			b.WriteByte('_')
		}
	}
	return b.String()
}

func alphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// unreserved tells whether RFC 3986 section 2.3 says that c should never be percent-encoded.
func unreserved(c byte) bool {
	return alphanumeric(c) || c == '-' || c == '.' || c == '_' || c == '~'
}

// refusedPaths says more about paths that people try with reason. The first prefix wins.
var refusedPaths = []struct{ prefix, advice string }{
	{"/api/v1/admin/", "the TSDB admin API is not reachable through Spillway; ask the Prometheus server itself"},
	{"/api/v1/write", "Spillway only reads; write to the Prometheus servers themselves"},
	{"/api/v1/otlp/", "Spillway only reads; write to the Prometheus servers themselves"},
	{
		"/api/v1/scrape_pools/config",
		"a scrape configuration is one server's, and not everybody's to read; ask the Prometheus server itself. The names of all pools are at /api/v1/scrape_pools",
	},
	{
		"/api/v1/targets/relabel_steps",
		"how a target is relabelled is told by the Prometheus server that scrapes it; ask that one itself. Targets with their discovered labels are at /api/v1/targets",
	},
	{"/api/v1/status/tsdb/blocks", "blocks are one server's; ask it itself. What the heads of all hold together is at /api/v1/status/tsdb"},
	{"/api/v1/status/self_metrics", "Spillway's own metrics are at /metrics of the admin listener, a server's at its own /metrics"},
	{
		"/api/v1/notifications/live",
		"nothing is streamed here, and there is nothing to wait for: Spillway has no notifications, and the list at /api/v1/notifications is always empty. Ask a Prometheus server itself for its own",
	},
	{"/api/v1/search/", "what can be searched is /api/v1/search/metric_names, label_names and label_values"},
	{"/api/v1/rules/", "Spillway has no ruler; set the data source's ruler to none"},
	{"/config/v1/rules", "Spillway has no ruler; set the data source's ruler to none"},
	{"/rules", "Spillway has no ruler; rules are listed at /api/v1/rules"},
	{"/api/v2/", "that is Alertmanager's API, which Spillway does not serve"},
	{"/-/", "lifecycle calls do not reach the servers behind Spillway"},
	{"/debug/", "profiles are on the admin listener"},
	{"/metrics", "Spillway's own metrics are on the admin listener"},
}

// notFound is the error for a path that the table lacks. It says which path would have been right
// where only the spelling is off.
func notFound(path string) *qerr.Error {
	e := qerr.New(qerr.NotFound, "%s is not served", strconv.Quote(cut(path, 128)))
	if near := canonical(path); near != "" && near != path {
		e.Advice = "ask for " + near + ", spelled exactly so"
		return e
	}
	for _, p := range refusedPaths {
		if strings.HasPrefix(path, p.prefix) {
			e.Advice = p.advice
			return e
		}
	}
	e.Advice = "Spillway serves the query side of the Prometheus HTTP API: " + servedPaths
	return e
}

// canonical guesses the path that a misspelled one means: case, doubled and trailing slashes. It
// only ever names rows of the table.
func canonical(path string) string {
	if len(path) > 256 {
		return ""
	}
	guess := "/" + strings.Join(strings.FieldsFunc(strings.ToLower(path), func(c rune) bool { return c == '/' }), "/")
	if byPath[guess] != nil {
		return guess
	}
	return ""
}

// servedPaths lists the table in one line.
var servedPaths = func() string {
	names := make([]string, 0, len(Table))
	outside := make([]string, 0, 1)
	for i := range Table {
		if name, ok := strings.CutPrefix(Table[i].Path, "/api/v1/"); ok {
			names = append(names, name)
		} else {
			outside = append(outside, Table[i].Path)
		}
	}
	return "/api/v1/ with " + strings.Join(names, ", ") + ", and " + strings.Join(outside, ", ")
}()
