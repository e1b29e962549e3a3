package server

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/endpoint"
)

// oddMethods are methods, and what somebody may take for one.
var oddMethods = []string{
	"GET", "POST", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "QUERY", "PROPFIND", "FOO", "get", "Post", "GETS",
}

// lookalikes are other characters that some reader may take for a letter, or for a slash.
var lookalikes = map[rune]string{
	'a': "\u0430", 'e': "\u0435", 'i': "\u0456", 'o': "\u043e", 'p': "\u0440", 's': "\u017f", 'x': "\u0445", 'y': "\u0443", 'l': "\u217c",
	'r': "\uff52", 't': "\uff54", 'f': "\uff46", 'd': "\uff44", 'u': "\uff55", '1': "\uff11", '/': "\u2215",
}

// spellings are ways to write the path that are not its canonical one: some two hundred, by letter,
// by slash, and by what stands before and behind. None of them is another path of the table.
func spellings(path string) []string {
	out := map[string]bool{}
	add := func(all ...string) {
		for _, s := range all {
			out[s] = true
		}
	}
	for i, c := range path {
		before, after := path[:i], path[i+1:]
		if strings.Contains(after, "/") && i > 0 && path[i-1] != '/' && c != '/' {
			continue // a letter in the middle of what other paths have too
		}
		code := fmt.Sprintf("%02x", c)
		put := func(all ...string) {
			for _, s := range all {
				add(before + s + after)
			}
		}
		switch c {
		case '/':
			put("//", "///", "/./", "/.//", "/x/../", "/../", "/%2e/", "/%2E%2e/", "%2F", "%2f", "%252F", "%25252f")
			put("\\", "%5c", "/\\", "\\/")
			put("/;/", "/;x=1/", ";/", "/..;/", "%c0%af", "%e0%80%af", "%ef%bc%8f", lookalikes[c], "/%00/", "/%20/", "/ ", "?", "/%")
			put("/?/", "/*/", "")
		case '_', '{', '}':
			put("%"+code, "-")
		default:
			put("%"+code, "%"+strings.ToUpper(code), "%25"+code, "%u00"+code, string(c)+string(c), "")
			if 'a' <= c && c <= 'z' {
				put(strings.ToUpper(string(c)))
			}
			if l := lookalikes[c]; l != "" {
				put(l, url.PathEscape(l))
			}
			if i == len(path)-1 {
				last := 0x80 | c&0x3f // of an overlong form
				put(fmt.Sprintf("%%%02x%%%02x", 0xc0|c>>6, last), fmt.Sprintf("%%e0%%%02x%%%02x", 0x80|c>>6, last))
			}
		}
	}
	for _, after := range []string{
		"/", "//", "/.", "/..", "/./", "/x", "/%2e", "%2f", "%2F", "%5c", "\\", "-", "[", "]", "{", "}", "%25", "/api/v1", "//federate",
		".", "..", ".json", ".php", "x", ",", "&", "=", "~", "*", "+", "!", "'", "(", ":",
		"@", "$", "|", "%7c", "^", "`", "\"", "<", ";", ";x", ";x=1", ";jsessionid=1", "%3b", "%3Bx", "%3F", "%3Fquery=up", "%3fquery=up",
		"%23", "#", "#x", "%26",
		"&query=up", "%", "%2", "%zz", "%00", "%00.json", "%0a", "%0d%0aX:1", "%09", "%20", " ", "\t", "%7f", "\x7f", "\x80", "%80",
		"%ff", "%e2%80%8b", "\u200b", "\u00a0",
		"%c2%a0", strings.Repeat("/", 64), strings.Repeat("a", 2000), strings.Repeat("/..", 100), "/..%2f" + path[1:],
	} {
		add(path + after)
	}
	for _, before := range []string{
		"/", "/.", "/..", "/x/..", "/%2e", "/%2e%2e", "/%2f", "\\", "/\\", "/x", "/prometheus", "/api", "/api/v1", "/;", "/;x=1", "/%00",
		"%2f", "x", ".", "~", "*", "@",
		"http://x", "https://x", "http://u:p@x", "http:", "//x", "///x", "http://x//", "ftp://x", "file://", " ", "\t", "x:80",
	} {
		add(before + path)
	}
	add(path[1:], strings.ToUpper(path), path+path, strings.ToUpper(path[:1])+strings.ToUpper(path[1:2])+path[2:], url.PathEscape(path),
		strings.ReplaceAll(path, "/", "%2F"), strings.ReplaceAll(path, "/", "\\"), strings.Replace(path, "v1", "v2", 1)+"/x", path+"../x")
	served := []string{path, "", "/", "/graph", "/query", "/-/healthy", "/-/ready"}
	for _, e := range endpoint.Table {
		served = append(served, e.Path)
	}
	var list []string
	for s := range out {
		if before, _, _ := strings.Cut(s, "?"); !slices.Contains(served, before) {
			list = append(list, s)
		}
	}
	slices.Sort(list)
	return list
}

// line is a request as it goes over the wire: a form in the URL, in the body, or in both.
type line struct {
	method, target, body, what string
}

func (l *line) raw() string {
	head := l.method + " " + l.target + " HTTP/1.1\r\nHost: x\r\n"
	if l.body != "" {
		head += "Content-Type: application/x-www-form-urlencoded\r\n"
	}
	if l.body != "" || l.method == http.MethodPost {
		head += fmt.Sprintf("Content-Length: %d\r\n", len(l.body))
	}
	return head + "\r\n" + l.body
}

// readable tells whether net/http reads it as one request: else it answers by itself, and closes.
func (l *line) readable() bool {
	_, err := http.ReadRequest(bufio.NewReader(strings.NewReader(l.raw())))
	return err == nil && len(l.raw()) < 4096
}

// converse sends the lines one behind the other over few connections, and gives the status of each
// answer; 0 is a connection that was closed without one.
func converse(t testing.TB, address string, lines []line) []int {
	t.Helper()
	statuses := make([]int, len(lines))
	for next := 0; next < len(lines); {
		until := next + 1
		for until < min(len(lines), next+64) && lines[until-1].readable() && lines[until].readable() {
			until++
		}
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Error(err)
			return statuses
		}
		_ = conn.SetDeadline(time.Now().Add(patience))
		var b strings.Builder
		for _, l := range lines[next:until] {
			b.WriteString(l.raw())
		}
		_, _ = io.WriteString(conn, b.String()) // it may have been closed in the middle of what is too long
		r := bufio.NewReader(conn)
		for ; next < until; next++ {
			resp, err := http.ReadResponse(r, &http.Request{Method: lines[next].method})
			if err != nil {
				if isTimeout(err) {
					t.Errorf("%s %.200q: no answer", lines[next].method, lines[next].target)
				}
				next++
				break
			}
			statuses[next] = resp.StatusCode
			_, err = io.Copy(io.Discard, resp.Body)
			if err != nil || resp.Close {
				next++
				break
			}
		}
		_ = conn.Close()
	}
	return statuses
}

// converseAll is converse in several goroutines.
func converseAll(t testing.TB, address string, lines []line) []int {
	t.Helper()
	statuses := make([]int, len(lines))
	const workers = 4
	part := (len(lines) + workers - 1) / workers
	var wg sync.WaitGroup
	for from := 0; from < len(lines); from += part {
		until := min(from+part, len(lines))
		wg.Go(func() { copy(statuses[from:], converse(t, address, lines[from:until])) })
	}
	wg.Wait()
	return statuses
}

// quietRig is a rig of one shard that is asked nothing but what clients ask: the proxy's own
// questions are over.
func quietRig(t *testing.T) (r *rig, address string) {
	t.Helper()
	r = newRig(t, []rigGroup{{"heron", false, []int{1}}}, limits(ample), func(o *Options) {
		o.Logger = slog.New(slog.DiscardHandler)
		o.shards = seldom
		o.HeaderTimeout, o.BodyTimeout, o.IdleTimeout = 10*patience, 10*patience, 10*patience
	})
	r.quiet()
	return r, strings.TrimPrefix(r.url, "http://")
}

// asExamples is the form of a row with the examples of all that it needs.
func asExamples(e *endpoint.Endpoint) url.Values {
	form := url.Values{}
	for _, p := range e.Params {
		if p.Required {
			form.Set(p.Name, p.Example)
		}
	}
	return form
}

func pathOf(e *endpoint.Endpoint) string { return strings.Replace(e.Path, "{name}", "job", 1) }

// asLabel are spellings of the path of label values that have a label name in them, which is
// another one then: it may be served.
var asLabel = regexp.MustCompile(`^/api/v1/label/[^/;?#]+/values$`)

// TestSpellingsNeverReachShards: about two hundred spellings of each path of the table by fifteen
// methods, raw over connections. What is not a path of the table byte for byte is 404, or 400 where
// net/http cannot read it, and is no question to a shard; a label name in a path comes to it in its
// canonical form.
func TestSpellingsNeverReachShards(t *testing.T) {
	r, address := quietRig(t)
	fake := r.all()[0]
	seen := fake.Seen()
	for i := range endpoint.Table {
		e := &endpoint.Table[i]
		all := spellings(pathOf(e))
		if len(all) < 200 {
			t.Errorf("only %d spellings of %s", len(all), e.Path)
		}
		form := asExamples(e).Encode()
		var lines []line
		for j, s := range all {
			one := line{method: http.MethodGet, target: s + "?" + form}
			methods := oddMethods
			if !one.readable() { // net/http's own affair, and each takes a connection
				methods = oddMethods[:2]
			}
			if j%16 == 0 {
				methods = append(slices.Clone(methods), "G@T")
			}
			for _, m := range methods {
				one.method = m
				lines = append(lines, one)
			}
		}
		for j, code := range converseAll(t, address, lines) {
			l := lines[j]
			label := e.ID == endpoint.LabelValues && asLabel.MatchString(strings.TrimSuffix(l.target, "?"+form))
			if code == 404 || code == 400 || code == 0 && !l.readable() || label && (code == 200 || code == 405) {
				continue
			}
			t.Errorf("%s %.200q: status %d", l.method, l.target, code)
		}
		for _, rec := range fake.Requests()[seen:] {
			if e.ID != endpoint.LabelValues {
				t.Errorf("a spelling of %s came to the shard as %s %s", e.Path, rec.Method, rec.Target)
			} else if why := uncanonical(t, rec); why != "" {
				t.Errorf("a spelling of %s: %s", e.Path, why)
			}
		}
		seen = fake.Seen()
	}
}

// uncanonical says what is wrong with a question to a shard: the table's own parser reads it, and
// what is written of that must be the same bytes, path, parameters and body. Empty is nothing.
func uncanonical(t testing.TB, rec fakeshard.Record) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), rec.Method, "http://x", bytes.NewReader(rec.Body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header, req.RequestURI = rec.Header, rec.Target
	if req.URL, err = url.ParseRequestURI(rec.Target); err != nil {
		return err.Error()
	}
	if len(rec.Body) == 0 {
		req.Body = http.NoBody
	}
	said := rec.Method + " " + rec.Target
	parsed, err := endpoint.Parse(req, endpoint.Options{StrictParameters: true})
	if err != nil {
		return said + " is refused: " + err.Error()
	}
	out, err := parsed.Write(t.Context(), &url.URL{Scheme: "http", Host: "x"})
	if err != nil {
		return said + ": " + err.Error()
	}
	var body []byte
	if out.Body != nil {
		if body, err = io.ReadAll(out.Body); err != nil {
			t.Fatal(err)
		}
	}
	// And by what everybody else knows of a form: sorted by name, with the escapes of net/url.
	path, query, asked := strings.Cut(rec.Target, "?")
	form, err := url.ParseQuery(query)
	if err != nil || query != form.Encode() || asked != (query != "") {
		return said + " has other parameters than " + form.Encode()
	}
	if e := endpoint.Get(parsed.ID); path != e.Path && parsed.ID != endpoint.LabelValues || !slices.Contains(e.Methods, rec.Method) {
		return said + " is not " + e.Path
	}
	if want := out.Method + " " + out.URL.RequestURI(); want != said || !bytes.Equal(body, rec.Body) {
		return fmt.Sprintf("a shard was asked %s %.200q, which is written %s %.200q", said, rec.Body, want, body)
	}
	return ""
}

// parameterLines are requests to the row with odd parameters. Those of a list in fine are all
// answered as its first one is, where nothing is odd; those in bad are refused.
func parameterLines(e *endpoint.Endpoint) (fine [][]line, bad []line) {
	base := asExamples(e)
	for _, m := range e.Methods {
		// odd has the first in the URL, and the second there as well, or in the body.
		odd := func(what, first, second string) (out []line) {
			out = append(out, line{m, pathOf(e) + "?" + joined(first, second), "", what + ", in the URL"})
			if m == http.MethodPost {
				out = append(out, line{m, pathOf(e) + "?" + first, second, what + ", in both places"},
					line{m, pathOf(e), joined(first, second), what + ", in the body"})
			}
			return out
		}
		for _, p := range e.Params {
			form := url.Values{}
			for k, v := range base {
				form[k] = v
			}
			form.Del(p.Name)
			name, rest := url.QueryEscape(p.Name), form.Encode()
			one := name + "=" + url.QueryEscape(p.Example)
			fine = append(fine, slices.Concat(odd(p.Name+" once", rest, one), odd(p.Name+" twice, equal", joined(rest, one), one),
				odd(p.Name+" with its name in escapes", rest, escapedAll(p.Name)+"="+url.QueryEscape(p.Example))))
			if !p.Repeated {
				bad = append(bad, odd(p.Name+" twice, different", joined(rest, one), one+"1")...)
			}
			for _, v := range []string{
				"%", "%2", "%zz", "a%", "%u0061", "%ff", "%c0%af", "%00", ";", "a\x80", url.QueryEscape(p.Example) + ";x=1",
			} {
				bad = append(bad, odd(p.Name+" with "+v, rest, name+"="+v)...)
			}
		}
		all := base.Encode()
		fine = append(fine, slices.Concat(odd("nothing odd", all, ""), odd("one that nobody knows", all, "nobody_knows=1"),
			odd("fifty that nobody knows", all, strings.Repeat("x=1&", 50)+"x=1")))
		for what, text := range map[string]string{
			"a bad percent sign in a name": "%zz=1", "a percent sign as a name": "%=1", "a semicolon alone": ";",
			"a semicolon in a name": "a;b=1",
			"NUL in a name":         "%00=1", "a name that is no text": "%ff=1", "10,000": strings.Repeat("a=&", 10_000) + "a=",
			"10,000 different": numbered(10_000),
			"129":              numbered(129),
		} {
			bad = append(bad, odd(what, all, text)...)
		}
		if m == http.MethodGet {
			bad = append(bad, line{m, pathOf(e) + "?" + all, "x=1", "a body of a GET"})
		}
	}
	return fine, bad
}

func joined(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), "&")
}

// escapedAll writes each byte as an escape.
func escapedAll(s string) string {
	var b strings.Builder
	for i := range len(s) {
		fmt.Fprintf(&b, "%%%02x", s[i])
	}
	return b.String()
}

func numbered(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "a%d=1&", i)
	}
	return strings.TrimSuffix(b.String(), "&")
}

// TestParametersOfEveryRow: of each row each parameter twice, in both places, with bad percent
// signs, semicolons, bytes that are no text, and ten thousand of them. What is refused comes to no
// shard, and what is not comes there as the table writes it.
func TestParametersOfEveryRow(t *testing.T) {
	r, address := quietRig(t)
	fake := r.all()[0]
	served, asked := 0, 0
	for i := range endpoint.Table {
		e := &endpoint.Table[i]
		if e.ID == endpoint.Read {
			continue // its body is no form
		}
		fine, bad := parameterLines(e)
		seen := fake.Seen()
		for j, code := range converseAll(t, address, bad) {
			if l := bad[j]; code != 400 && code != 413 && code != 431 && !(code == 0 && len(l.raw()) > maxHeaderBytes) {
				t.Errorf("%s of %s %s: status %d: %.300q", l.what, l.method, e.Path, code, l.raw())
			}
		}
		for _, rec := range fake.Requests()[seen:] {
			t.Errorf("of what is refused at %s the shard was asked %s %s", e.Path, rec.Method, rec.Target)
		}
		seen = fake.Seen()
		for _, alike := range fine {
			codes := converse(t, address, alike)
			if codes[0] == 200 {
				served++
			}
			for j, code := range codes {
				if l := alike[j]; code != codes[0] {
					t.Errorf("%s of %s %s: status %d, without the oddity %d: %.300q", l.what, l.method, e.Path, code, codes[0], l.raw())
				}
			}
			if len(e.Params) == 0 && codes[0] != 200 {
				t.Errorf("%s: status %d", e.Path, codes[0])
			}
		}
		for _, rec := range fake.Requests()[seen:] {
			asked++
			if why := uncanonical(t, rec); why != "" {
				t.Errorf("%s: %s", e.Path, why)
			}
		}
	}
	if served < 150 || asked < 500 {
		t.Errorf("only %d requests without an oddity were answered, and the shard was asked %d times", served, asked)
	}
}
