package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/proxy/plan"
	"github.com/spillwayproject/spillway/proxy/plan/raw"
	"github.com/spillwayproject/spillway/proxy/qerr"
)

func TestRecordLeavesDataOut(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{`{}`, `{}`},
		{`{"data":1}`, `{"data":null}`},
		{`{"status":"success","data":{"result":[{"metric":{"data":"}"}},["\"]"]]},"warnings":["a"]}`, `{"status":"success","data":null,"warnings":["a"]}`},
		{`{"data":"a\\","x":"\"data\":1"}`, `{"data":null,"x":"\"data\":1"}`},
		{`{"datas":[1],"dat":[2],"x":{"data":[3]}}`, `{"datas":[1],"dat":[2],"x":{"data":[3]}}`},
		{`{"x":"data","y":["data"]}`, `{"x":"data","y":["data"]}`},
		{`{ "data" : [ 1 , 2 ] , "x" : 3 }`, `{ "data" :null, "x" : 3 }`},
		{`{"status":"error","error":"data: {"}`, `{"status":"error","error":"data: {"}`},
	} {
		rec := &record{dataless: true}
		for i := range len(c.in) { // in pieces of one byte
			if _, err := rec.Write([]byte(c.in[i : i+1])); err != nil {
				t.Fatal(err)
			}
		}
		if got := string(rec.body); got != c.want {
			t.Errorf("%s: %s, want %s", c.in, got, c.want)
		}
	}
}

// FuzzRecord holds the record to what encoding/json reads of the same text.
func FuzzRecord(f *testing.F) {
	for _, seed := range []string{`{"status":"success","data":[1,{"data":"x\""}],"spillway":{"explain":{"data":2}}}`, `{"a":"\\","data":"\\\"","b":[]}`, `{"data":1,"data":2}`, `[{"data":1}]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		rec := &record{dataless: true}
		if _, err := rec.Write(in); err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(in, []byte(`\u`)) || bytes.Contains(in, []byte(`\U`)) {
			return // nobody writes data with escapes
		}
		var all, kept map[string]json.RawMessage
		if json.Unmarshal(in, &all) != nil || all == nil {
			return
		}
		if _, ok := all["data"]; ok {
			all["data"] = json.RawMessage("null")
		}
		if err := json.Unmarshal(rec.body, &kept); err != nil || !reflect.DeepEqual(all, kept) {
			t.Errorf("%q: %q (%v), want the members of %q", in, rec.body, err, all)
		}
	})
}

// What a record is given beyond its bound ends the request, as a client that leaves would; a request that ends by itself is told by its cause.
func TestRecordEnds(t *testing.T) {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	gone, leave := context.WithCancel(t.Context())
	leave()
	for _, c := range []struct {
		name string
		ctx  context.Context
		do   func(http.ResponseWriter)
		want qerr.Kind
		says string
	}{
		{"too long", t.Context(), func(w http.ResponseWriter) {
			for {
				if _, err := w.Write(make([]byte, 1<<16)); err != nil {
					panic(http.ErrAbortHandler)
				}
			}
		}, qerr.TooExpensive, "more than 8 MiB"},
		{"gone", gone, func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, qerr.Canceled, "client left"},
		{"cut", t.Context(), func(w http.ResponseWriter) { _, _ = w.Write([]byte("{")); panic(http.ErrAbortHandler) }, qerr.ShardFailed, "failed after its answer had begun"},
	} {
		rec := &record{header: http.Header{}}
		err := rec.run(func(w http.ResponseWriter, _ *http.Request) { c.do(w) }, r.WithContext(c.ctx))
		if e := qerr.From(err); e.Kind != c.want || !strings.Contains(e.Message, c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
		if cap(rec.body) > 2*maxExplanation {
			t.Errorf("%s: %d bytes are held", c.name, cap(rec.body))
		}
	}
	defer func() {
		if p := recover(); p != "a fault" {
			t.Errorf("a fault became %v", p)
		}
	}()
	_ = (&record{}).run(func(http.ResponseWriter, *http.Request) { panic("a fault") }, r)
}

// What explain on the admin listener refuses itself, and what it hands on from the API.
func TestAdminExplainRefuses(t *testing.T) {
	r := newRig(t, manyShards(1), "")
	for _, c := range []struct {
		query  string
		status int
		says   string
	}{
		{"", 400, "explain needs a query: explain?query=sum(up)"},
		{"query=%20", 400, "explain needs a query"},
		{"query=up&qery=up", 400, `does not know the parameter \"qery\"; it takes query, time, start, end, step, analyze`},
		{"query=up&query=down", 400, "query stands 2 times"},
		{"query=%zz", 400, "percent-encode"},
		{"query=up&analyze=maybe", 400, "analyze takes 1 or 0"},
		{"query=up&start=1", 400, "start, end and step go together"},
		{"query=up&start=1&end=2&step=1&time=3", 400, "start, end and step go together"},
		{"query=up&time=yesterday", 400, "time"},
	} {
		resp, err := r.client.Get(r.admin + adminAPI + "explain?" + c.query)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != c.status || !bytes.Contains(body, []byte(c.says)) || !json.Valid(body) || resp.Header.Get("Content-Type") != "application/json" {
			t.Errorf("explain?%s: status %d, %s, err %v", c.query, resp.StatusCode, body, err)
		}
	}
	resp, err := r.client.Post(r.admin+adminAPI+"explain?query=up", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") != "GET" {
		t.Errorf("POST: status %d, Allow %q", resp.StatusCode, resp.Header.Get("Allow"))
	}
}

// sample is an Explanation with everything in it.
func sample() *plan.Explanation {
	call := &plan.Call{
		Shard: "jaguar[0]", Replica: "jaguar/10.0.0.1:9090", Query: "sum(up)", Segments: []raw.Segment{{Slice: "jaguar[0]", Copy: "jaguar/10.0.0.1:9090", From: 1, Until: 2}},
		Series: 1, Samples: 2, Bytes: 3, Seconds: 0.004,
	}
	return &plan.Explanation{
		Query: "sum(up) / 2", Verdict: plan.Exact, Reason: "r",
		Plan: &plan.Node{
			Mode: plan.ModeRaw, Expr: "sum(up) / 2", Why: "it is evaluated here",
			Children: []*plan.Node{{Mode: plan.ModePush, Expr: "sum(up)", Why: "sums of disjoint shards add up", Calls: []*plan.Call{call}}},
		},
	}
}

// The page shows whatever stands in a plan as text, links and posts nowhere but to itself, and fetches nothing.
func TestPageEscapes(t *testing.T) {
	const evil = `</textarea></pre><script>alert(1)</script><img src=x onerror="alert(2)">'"&`
	e := &plan.Explanation{Query: evil, Verdict: evil, Reason: evil, Plan: &plan.Node{
		Mode: evil, Expr: evil, Why: evil, Calls: []*plan.Call{{Shard: evil, Replica: evil, Query: evil}}, Children: []*plan.Node{{Mode: evil, Expr: evil, Why: evil}},
	}}
	w := httptest.NewRecorder()
	writePage(w, homePage, map[string]any{"Title": evil, "Version": evil, "Base": evil, "Prefix": "/x", "First": evil, "Plans": []explained{{Query: evil, Plan: e}, {Query: evil, Error: evil}}})
	page := w.Body.String()
	for _, tag := range []string{"<script", "<img", "onerror=\"", "</textarea></pre>"} {
		if strings.Contains(page, tag) {
			t.Errorf("the page has %s: %s", tag, page)
		}
	}
	if n := strings.Count(page, "</textarea>"); n != 1 {
		t.Errorf("%d ends of a textarea", n)
	}
	if !strings.HasSuffix(strings.TrimSpace(page), "</html>") {
		t.Errorf("the page ends in the middle: %s", page)
	}
}

func TestPageShowsPlan(t *testing.T) {
	w := httptest.NewRecorder()
	writePage(w, homePage, map[string]any{"Title": "", "Version": "", "Base": "", "Prefix": "/pre", "First": "", "Plans": []explained{{Query: "sum(up) / 2", Plan: sample()}}})
	page := w.Body.String()
	for _, want := range []string{
		`action="/pre/graph"`, `<b class="mode">raw</b> <code>sum(up) / 2</code>`, `<b class="mode">push</b> <code>sum(up)</code>`, "sums of disjoint shards add up",
		"jaguar[0] at jaguar/10.0.0.1:9090: <code>sum(up)</code>", `<p class="exact">exact: r</p>`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s: %s", want, page)
		}
	}
	if w.Header().Get("Content-Security-Policy") == "" || strings.Contains(page, "http://") || strings.Contains(page, "https://") {
		t.Errorf("the page reaches elsewhere: %v %s", w.Header(), page)
	}
}

// The page at / has the box, at /graph it is filled; with and without a route prefix; a query that cannot be explained is still shown, with the reason.
func TestPageExplains(t *testing.T) {
	for _, prefix := range []string{"", "/spill/way"} {
		r := newRig(t, manyShards(1), "", func(o *Options) { o.RoutePrefix = prefix })
		page := func(path string) string {
			t.Helper()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, r.url+prefix+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			a := r.ask(req)
			if a.status != http.StatusOK || a.header.Get("Content-Type") != "text/html; charset=utf-8" {
				t.Errorf("%s: %s", path, a)
			}
			return string(a.body)
		}
		if p := page("/"); !strings.Contains(p, `action="`+prefix+`/graph"`) || !strings.Contains(p, `name="g0.expr"`) {
			t.Errorf("the box is missing: %s", p)
		}
		broken := page("/graph?g0.expr=" + url.QueryEscape("sum(<b>") + "&g0.tab=1")
		for _, want := range []string{`spellcheck="false">sum(&lt;b&gt;</textarea>`, "<pre>sum(&lt;b&gt;</pre>", `class="refused"`} {
			if !strings.Contains(broken, want) {
				t.Errorf("the page lacks %s: %s", want, broken)
			}
		}
	}
}

// docs/explain.md has every field by its name in JSON, and none that is not there.
func TestExplainDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/explain.md")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	seen := map[reflect.Type]bool{}
	var fields func(reflect.Type)
	fields = func(typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct || seen[typ] {
			return
		}
		seen[typ] = true
		for i := range typ.NumField() {
			f := typ.Field(i)
			if !f.IsExported() {
				continue
			}
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" {
				name = f.Name
			}
			want = append(want, fmt.Sprintf("%s.%s", strings.ToLower(typ.Name()), name))
			fields(f.Type)
		}
	}
	fields(reflect.TypeFor[plan.Explanation]())
	var got []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z]+\\.[A-Za-z]+)` \\|").FindAllSubmatch(text, -1) {
		got = append(got, string(m[1]))
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("docs/explain.md has %q, the types have %q", got, want)
	}
}

// An error of the API is told in its own words.
func TestAnswered(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{`{"status":"error","errorType":"execution","error":"too much","spillway":{"advice":"ask for less"}}`, "too much; ask for less"},
		{`{"status":"error","error":"too much; ask for less","spillway":{"advice":"ask for less"}}`, "too much; ask for less"},
		{`nonsense`, "the query was answered with status 422"},
	} {
		var err error = &answered{status: 422, body: []byte(c.body)}
		if err.Error() != c.want || publicly(fmt.Errorf("x: %w", err)) != c.want {
			t.Errorf("%s: %s", c.body, err)
		}
	}
	if got := publicly(errors.New("a secret")); strings.Contains(got, "secret") {
		t.Errorf("a private cause is shown: %s", got)
	}
}
