package endpoint

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillwayproject/spillway/proxy/qerr"
)

// postForm makes a form request.
func postForm(target, contentType, body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, target, strings.NewReader(body))
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	return r
}

func TestParameters(t *testing.T) {
	yes, no := true, false
	many := func(n int, pair string) string { return strings.TrimSuffix(strings.Repeat(pair+"&", n), "&") }
	matches := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "&match[]=m%d", i)
		}
		return b.String()[1:]
	}
	for _, tc := range []struct {
		name, target string
		body         string // sent as a POST form where not empty
		want         *Request
		err          string // part of the error, which is BadData
	}{
		{name: "URL only", target: "/api/v1/query?query=up&time=1", want: &Request{ID: Query, Query: "up", Time: At(1000)}},
		{name: "body only", target: "/api/v1/query", body: "query=up&time=1", want: &Request{ID: Query, Query: "up", Time: At(1000)}},
		{name: "URL and body", target: "/api/v1/query?time=1", body: "query=up", want: &Request{ID: Query, Query: "up", Time: At(1000)}},
		{name: "equal twice", target: "/api/v1/query?query=up&query=up", body: "query=up", want: &Request{ID: Query, Query: "up"}},
		{name: "plus is a space", target: "/api/v1/query?query=up+or+down%2B1", want: &Request{ID: Query, Query: "up or down+1"}},
		{name: "different in the URL", target: "/api/v1/query?query=up&query=down", err: `"query"`},
		{name: "different in URL and body", target: "/api/v1/query?query=up", body: "query=down", err: `"query"`},
		{name: "empty and not", target: "/api/v1/query?query=&query=up", err: `"query"`},
		{name: "no query", target: "/api/v1/query", err: `invalid parameter "query": unknown position: parse error: no expression found in input`},
		{name: "empty query", target: "/api/v1/query?query=&time=5", err: `invalid parameter "query": unknown position: parse error: no expression found in input`},
		{
			name: "repeated in order, once each", target: "/api/v1/series?match[]=b&match[]=a", body: "match%5B%5D=b&match[]=c",
			want: &Request{ID: Series, Match: []string{"b", "a", "c"}},
		},
		{name: "no match", target: "/api/v1/series", err: "no match[] parameter provided"},
		{
			name: "64 selectors", target: "/api/v1/labels?" + matches(64),
			want: &Request{ID: Labels, Match: strings.Split(strings.ReplaceAll(matches(64), "match[]=", ""), "&")},
		},
		{name: "65 selectors", target: "/api/v1/labels?" + matches(65), err: `"match[]": it has 65 values`},
		{
			name: "128 parameters", target: "/api/v1/query?" + many(127, "x=1") + "&query=up",
			want: &Request{ID: Query, Query: "up", Dropped: []string{"x"}},
		},
		{name: "129 parameters", target: "/api/v1/query?" + many(128, "x=1") + "&query=up", err: "more than 128 parameters"},
		{
			name: "129 parameters over both", target: "/api/v1/query?" + many(100, "x=1"), body: many(29, "x=1"),
			err: "more than 128 parameters",
		},
		{name: "stray ampersands", target: "/api/v1/query?&&query=up&", want: &Request{ID: Query, Query: "up"}},
		{name: "semicolon", target: "/api/v1/query?query=up;query=evil", err: `"query": it contains a semicolon in the URL`},
		{name: "semicolon in the body", target: "/api/v1/query", body: "query=up;x=1", err: "%3B"},
		{name: "encoded semicolon", target: "/api/v1/query?query=a%3Bb", want: &Request{ID: Query, Query: "a;b"}},
		{name: "bad percent", target: "/api/v1/query?query=up%2", err: `"query": its value in the URL is not percent-encoded`},
		{name: "bad percent in the body", target: "/api/v1/query", body: "query=up%zz", err: `"query": its value in the body`},
		{name: "bad percent in a name", target: "/api/v1/query?%zz=1&query=up", err: `"%zz"`},
		{name: "bad percent in an unknown parameter", target: "/api/v1/query?x=%&query=up", err: `"x"`},
		{name: "NUL", target: "/api/v1/query?query=up%00", err: `"query": it contains a NUL byte`},
		{name: "not UTF-8", target: "/api/v1/query?query=%ff", err: `"query": it is not UTF-8`},
		{name: "name not UTF-8", target: "/api/v1/query?%ff=1&query=up", err: "not UTF-8"},
		{name: "UTF-8", target: "/api/v1/query?query=%22%C3%A4%E2%80%AE%22", want: &Request{ID: Query, Query: "\"\u00e4\u202e\""}},
		{
			name: "unknown", target: "/api/v1/query?query=up&zzz=1&aaa=2&zzz=3",
			want: &Request{ID: Query, Query: "up", Dropped: []string{"aaa", "zzz"}},
		},
		{name: "ignored", target: "/api/v1/query?query=up&dedup=true&dedup=false&engine=&explain=x&step=300s", want: &Request{ID: Query, Query: "up"}},
		{
			name: "case matters", target: "/api/v1/query?query=up&Query=down",
			want: &Request{ID: Query, Query: "up", Dropped: []string{"Query"}},
		},

		{name: "NaN", target: "/api/v1/query?query=up&time=NaN", err: `"time"`},
		{name: "Inf", target: "/api/v1/query_range?query=up&start=-Inf&end=1&step=1", err: `"start"`},
		{name: "1e308", target: "/api/v1/query_range?query=up&start=1&end=1e308&step=1", err: `"end"`},
		{name: "leap second", target: "/api/v1/series?match[]=up&end=2026-12-31T23:59:60Z", err: `"end"`},
		{name: "duration as time", target: "/api/v1/labels?start=1w2d", err: `"start"`},
		{name: "no start", target: "/api/v1/query_range?query=up&end=1&step=1", err: `invalid parameter "start": cannot parse "" to a valid timestamp`},
		{name: "no step", target: "/api/v1/query_range?query=up&start=0&end=1", err: `invalid parameter "step": cannot parse "" to a valid duration`},
		{name: "step 0", target: "/api/v1/query_range?query=up&start=0&end=1&step=0", err: `invalid parameter "step": zero or negative query resolution step widths are not accepted. Try a positive integer`},
		{name: "step below a millisecond", target: "/api/v1/query_range?query=up&start=0&end=1&step=0.0001", err: `"step"`},
		{name: "step -0", target: "/api/v1/query_range?query=up&start=0&end=1&step=-0", err: `"step"`},
		{name: "end before start", target: "/api/v1/query_range?query=up&start=2&end=1&step=1", err: `invalid parameter "end": end timestamp must not be before start time`},
		{name: "end before start of exemplars", target: "/api/v1/query_exemplars?query=up&start=2&end=1", err: `"end"`},
		{
			name: "end before start of series", target: "/api/v1/series?match[]=up&start=2&end=1",
			want: &Request{ID: Series, Match: []string{"up"}, Start: At(2000), End: At(1000)},
		},
		{
			name: "end equal to start", target: "/api/v1/query_range?query=up&start=1&end=1&step=1",
			want: &Request{ID: QueryRange, Query: "up", Start: At(1000), End: At(1000), Step: 1e9},
		},
		{name: "a billion points", target: "/api/v1/query_range?query=up&start=0&end=1e9&step=0.001", want: &Request{ID: QueryRange, Query: "up", Start: At(0), End: At(1e12), Step: 1e6}},
		{name: "timeouts", target: "/api/v1/query?query=up&timeout=10y&lookback_delta=5m", want: &Request{ID: Query, Query: "up", Timeout: 10 * 365 * 24 * 3600e9, LookbackDelta: 300e9}},
		{name: "negative timeout", target: "/api/v1/query?query=up&timeout=-3", want: &Request{ID: Query, Query: "up"}},
		{name: "timeout of nothing", target: "/api/v1/query?query=up&timeout=soon", err: `"timeout"`},
		{name: "negative lookback", target: "/api/v1/query?query=up&lookback_delta=-5", err: `"lookback_delta"`},
		{name: "limit 0", target: "/api/v1/labels?limit=0", want: &Request{ID: Labels}},
		{name: "empty values", target: "/api/v1/metadata?limit=&metric=&limit_per_metric=", want: &Request{ID: Metadata}},
		{name: "negative limit", target: "/api/v1/labels?limit=-1", err: `invalid parameter "limit": limit must be non-negative`},
		{name: "limit with a fraction", target: "/api/v1/labels?limit=1.5", err: `"limit"`},
		{name: "huge limit", target: "/api/v1/labels?limit=99999999999999999999", err: `"limit"`},
		{
			name: "partial response", target: "/api/v1/query?query=up&partial_response=1",
			want: &Request{ID: Query, Query: "up", PartialResponse: &yes},
		},
		{
			name: "no partial response", target: "/api/v1/series?match[]=up&partial_response=false",
			want: &Request{ID: Series, Match: []string{"up"}, PartialResponse: &no},
		},
		{name: "partial response maybe", target: "/api/v1/query?query=up&partial_response=maybe", err: `"partial_response"`},
		{name: "long stats", target: "/api/v1/query?query=up&stats=" + strings.Repeat("x", 65), err: `"stats"`},

		{name: "rules", target: "/api/v1/rules?type=ALERT&rule_name[]=b&rule_name[]=a&exclude_alerts=T&group_limit=010", want: &Request{ID: Rules, Filters: map[string][]string{
			"type": {"alert"}, "rule_name[]": {"b", "a"}, "exclude_alerts": {"true"}, "group_limit": {"10"},
		}}},
		{name: "rules of no type", target: "/api/v1/rules?type=both", err: `invalid parameter "type": not supported value "both"`},
		{name: "rules, page without size", target: "/api/v1/rules?group_next_token=x", err: "group_limit needs to be present in order to paginate over the groups"},
		{name: "rules, page of none", target: "/api/v1/rules?group_limit=0", err: `"group_limit"`},
		{
			name: "targets", target: "/api/v1/targets?state=Any&scrapePool=node",
			want: &Request{ID: Targets, Filters: map[string][]string{"state": {"any"}, "scrapePool": {"node"}}},
		},
		{name: "targets of no state", target: "/api/v1/targets?state=lost", err: `"state"`},
		{name: "targets metadata", target: "/api/v1/targets/metadata?match_target={a=\"b\"}&metric=up&limit=3", want: &Request{ID: TargetsMetadata, Match: []string{`{a="b"}`}, Metric: "up", Limit: 3}},
		{
			name: "tsdb", target: "/api/v1/status/tsdb?limit=10000",
			want: &Request{ID: StatusTSDB, Filters: map[string][]string{"limit": {"10000"}}},
		},
		{name: "tsdb, too many", target: "/api/v1/status/tsdb?limit=10001", err: `"limit"`},
		{name: "federate without selector", target: "/federate", want: &Request{ID: Federate}},
		{name: "label values", target: "/api/v1/label/U__a_2e_b/values?match[]=up&start=1&end=2&limit=3", want: &Request{ID: LabelValues, Label: "a.b", Match: []string{"up"}, Start: At(1000), End: At(2000), Limit: 3}},
		{name: "parse_query", target: "/api/v1/parse_query", body: "query=up", want: &Request{ID: ParseQuery, Query: "up"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, tc.target, nil)
			if tc.body != "" {
				r = postForm(tc.target, formType, tc.body)
			}
			got, err := Parse(r, Options{})
			if tc.err != "" {
				wantBadData(t, got, err, tc.err)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, tc.want) || !got.Equal(tc.want) {
				t.Errorf("got  %+v\nwant %+v", got, tc.want)
			}
			roundTrip(t, got)
		})
	}
}

func wantBadData(t *testing.T, got *Request, err error, part string) {
	t.Helper()
	if err == nil {
		t.Fatalf("parsed as %+v", got)
	}
	if e := qerr.From(err); e.Kind != qerr.BadData || !strings.Contains(e.Message, part) || got != nil {
		t.Errorf("%v %q does not contain %q", e.Kind, e.Message, part)
	}
}

// TestEmptyQueryHasPrometheusWords compares with the parser that would have said it.
func TestEmptyQueryHasPrometheusWords(t *testing.T) {
	_, err := parser.NewParser(parser.Options{}).ParseExpr("")
	p := promqlParam()
	if want := fmt.Sprintf("invalid parameter %q: %v", "query", err); p.missing.Error() != want {
		t.Errorf("got %s\nwant %s", p.missing, want)
	}
}

func TestStrict(t *testing.T) {
	_, err := Parse(httptest.NewRequest(http.MethodGet, "/api/v1/query?query=up&namespace=x", nil), Options{StrictParameters: true})
	wantBadData(t, nil, err, `unknown parameter "namespace"; /api/v1/query takes query, time,`)
	_, err = Parse(httptest.NewRequest(http.MethodGet, "/api/v1/status/flags?x=1", nil), Options{StrictParameters: true})
	wantBadData(t, nil, err, "takes no parameters")
	target := "/api/v1/query?query=up"
	for _, name := range Ignored {
		target += "&" + name + "=1s"
	}
	if _, err = Parse(httptest.NewRequest(http.MethodGet, target, nil), Options{StrictParameters: true}); err != nil {
		t.Error(err)
	}
}

func TestDroppedIsBounded(t *testing.T) {
	target := "/api/v1/query?query=up"
	for i := range 100 {
		target += "&" + strings.Repeat("\u00e4", 100) + strconv.Itoa(i) + "=1&x" + strconv.Itoa(i%20) + "=1"
		if i == 60 {
			break
		}
	}
	got, err := Parse(httptest.NewRequest(http.MethodGet, target, nil), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Dropped) != maxDropped {
		t.Errorf("%d names", len(got.Dropped))
	}
	for _, name := range got.Dropped {
		if len(name) > maxDroppedName+3 || strings.ContainsRune(name, '\uFFFD') {
			t.Errorf("%q", name)
		}
	}
}

func TestBodies(t *testing.T) {
	for _, tc := range []struct {
		name, contentType, body string
		err                     string
	}{
		{"form", formType, "query=up", ""},
		{"form in capitals", "Application/X-WWW-Form-Urlencoded", "query=up", ""},
		{"form with charset", formType + "; charset=utf-8", "query=up", ""},
		{"form with another charset", formType + "; charset=utf-16", "query=up", "charset"},
		{"empty without type", "", "", ""},
		{"empty JSON", "application/json", "", ""},
		{"empty multipart", "multipart/form-data; boundary=x", "", ""},
		{"empty nonsense", "///", "", ""},
		{"without type", "", "query=up", "no Content-Type"},
		{"JSON", "application/json", `{"query":"up"}`, "as curl -d"},
		{
			"multipart", "multipart/form-data; boundary=x", "--x\r\nContent-Disposition: form-data; name=\"query\"\r\n\r\nup\r\n--x--\r\n",
			"multipart/form-data",
		},
		{"text", "text/plain", "query=up", "text/plain"},
		{"nonsense", "///", "query=up", "///"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			target := "/api/v1/query"
			if !strings.Contains(tc.body, "query") {
				target += "?query=up"
			}
			got, err := Parse(postForm(target, tc.contentType, tc.body), Options{})
			if tc.err != "" {
				wantBadData(t, got, err, tc.err)
			} else if err != nil || got.Query != "up" {
				t.Errorf("%+v %v", got, err)
			}
		})
	}

	r := postForm("/api/v1/query", formType, "query=up")
	r.Header.Set("Content-Encoding", "gzip")
	_, err := Parse(r, Options{})
	wantBadData(t, nil, err, "uncompressed")

	r = postForm("/api/v1/query?query=up", formType, "time=1")
	r.Method = http.MethodGet
	_, err = Parse(r, Options{})
	wantBadData(t, nil, err, "GET request must not have a body")

	// A body that the path does not deserve is not read.
	body := strings.NewReader("query=up")
	if _, err = Parse(httptest.NewRequest(http.MethodPost, "/api/v1/nothing", body), Options{}); qerr.From(err).Kind != qerr.NotFound ||
		body.Len() != 8 {
		t.Errorf("%v, %d bytes left", err, body.Len())
	}
}

// failing is a body that ends with an error.
type failing struct {
	io.Reader
	err error
}

func (f failing) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if err == io.EOF {
		err = f.err
	}
	return n, err
}

type timeoutError struct{}

func (timeoutError) Error() string { return "i/o timeout" }
func (timeoutError) Timeout() bool { return true }
func (timeoutError) Temporary() bool {
	return true
}

func TestBodyErrors(t *testing.T) {
	left, cancel := context.WithCancelCause(t.Context())
	cancel(qerr.ErrClientLeft)
	late, cancelLate := context.WithCancelCause(t.Context())
	cancelLate(qerr.New(qerr.Timeout, "the deadline passed"))
	for _, tc := range []struct {
		name string
		ctx  context.Context
		err  error
		want qerr.Kind
	}{
		{"the read deadline passed", t.Context(), &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, qerr.SlowRequest},
		{"a timeout", t.Context(), timeoutError{}, qerr.SlowRequest},
		{"the connection ended", t.Context(), io.ErrUnexpectedEOF, qerr.Canceled},
		{
			"the connection was reset", t.Context(), &net.OpError{Op: "read", Err: os.NewSyscallError("read", syscall.ECONNRESET)},
			qerr.Canceled,
		},
		{"the client left", left, errors.New("whatever"), qerr.Canceled},
		{"our deadline passed", late, io.ErrUnexpectedEOF, qerr.Timeout},
		{"bad chunks", t.Context(), errors.New("malformed chunked encoding"), qerr.BadData},
		{"a cap of the server", t.Context(), &http.MaxBytesError{Limit: 5}, qerr.BodyTooLarge},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := postForm("/api/v1/query", formType, "").WithContext(tc.ctx)
			r.ContentLength = -1
			r.Body = io.NopCloser(failing{strings.NewReader("query=up"), tc.err})
			if _, err := Parse(r, Options{}); qerr.From(err).Kind != tc.want {
				t.Errorf("got %v, want %v: %v", qerr.From(err).Kind, tc.want, err)
			}
		})
	}
}

func TestBodyCap(t *testing.T) {
	for _, tc := range []struct {
		size, max int64
		known     bool
		want      bool
	}{
		{100, 100, true, true},
		{101, 100, true, false},
		{100, 100, false, true},
		{101, 100, false, false},
		{1 << 40, 100, false, false},
		{DefaultMaxBodyBytes, 0, true, true},
		{DefaultMaxBodyBytes + 1, 0, true, false},
	} {
		counted := &counter{Reader: io.LimitReader(io.MultiReader(strings.NewReader("query="), endless{}), tc.size)}
		r := postForm("/api/v1/query", formType, "")
		r.Body, r.ContentLength = io.NopCloser(counted), -1
		if tc.known {
			r.ContentLength = tc.size
		}
		_, err := Parse(r, Options{MaxBodyBytes: tc.max})
		e := qerr.From(err)
		if (err == nil) != tc.want || err != nil && (e.Kind != qerr.BodyTooLarge || e.Value == "" || e.Seen == "") {
			t.Errorf("%+v: %v", tc, err)
		}
		if limit := max(tc.max, 0) + DefaultMaxBodyBytes + 1; counted.n > limit {
			t.Errorf("%+v: %d bytes were read", tc, counted.n)
		}
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

type counter struct {
	io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

// TestClientLeavesInTheBody runs a real server: half a body, then the connection ends.
func TestClientLeavesInTheBody(t *testing.T) {
	kinds := make(chan qerr.Kind, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := Parse(r, Options{})
		kinds <- qerr.From(err).Kind
	}))
	defer srv.Close()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "POST /api/v1/query HTTP/1.1\r\nHost: x\r\nContent-Type: "+formType+"\r\nContent-Length: 100\r\n\r\nquery=up"); err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	if got := <-kinds; got != qerr.Canceled {
		t.Errorf("got %v", got)
	}
}

// TestEveryErrorIsOurs feeds nonsense and looks at nothing but the kind and the words.
func TestEveryErrorIsOurs(t *testing.T) {
	for _, raw := range examples() {
		for _, broken := range []string{
			strings.Replace(raw, "=", "=%", 1), strings.Replace(raw, "=", "=\xff", 1),
			strings.Replace(raw, "=1", "=-1x", 1),
		} {
			r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader([]byte(broken))))
			if err != nil {
				continue
			}
			if _, err := Parse(r, Options{}); err != nil {
				var e *qerr.Error
				if !errors.As(err, &e) || e.Message == "" || e.Kind == qerr.Internal {
					t.Errorf("%q: %v", broken, err)
				}
			}
		}
	}
}
