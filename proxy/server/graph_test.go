package server

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/endpoint"
	"github.com/spillwayproject/spillway/proxy/ui"
)

// body asks for a page and returns it.
func (r *rig) body(path string) string {
	r.t.Helper()
	a := r.get(r.url + path)
	if a.status != http.StatusOK {
		r.t.Fatalf("%s: %s", path, a)
	}
	return string(a.body)
}

func pageHas(t *testing.T, page string, wanted ...string) {
	t.Helper()
	for _, want := range wanted {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s:\n%s", want, page)
		}
	}
}

// The page behind an alert's link has the query's value, a table, a plot and its plan.
func TestLinksOfAlertsShowValues(t *testing.T) {
	r := explainWorld(t)
	link := func(expr string, more ...string) string {
		form := url.Values{"g0.expr": {expr}, "g0.tab": {"1"}}
		for i := 0; i+1 < len(more); i += 2 {
			form.Set(more[i], more[i+1])
		}
		return "/graph?" + form.Encode()
	}
	page := r.body(link("count(up)"))
	pageHas(t, page, `<td><code>{}</code></td><td class="value">15</td>`, "<polyline points=", `aria-label="1 lines from `,
		`<b class="mode">push</b> <code>count(up)</code>`)

	page = r.body(link(`up{cluster="heron"}`, "g0.range_input", "10m"))
	pageHas(t, page, `<code>up{cluster=&#34;heron&#34;,`, `value="10m"`, "5 lines from ")

	pageHas(t, r.body(link("up > 5")), "No series: nothing has this value, or fulfils this condition, at that time.", "Nothing to plot in the 1h before.")
	pageHas(t, r.body(link("vector(7) > 5")), `<td class="value">7</td>`, "<polyline")
	pageHas(t, r.body(link(`"text"`)), `<td class="value">text</td>`, "No plot: ")
	pageHas(t, r.body(link(`up{cluster="heron"}[5m]`)), "the last of ", "No plot: ")

	// What was asked for then, not now.
	then := time.Now().Add(-10 * time.Minute).UTC().Format(time.DateTime)
	page = r.body(link("time()", "g0.moment_input", then))
	at, err := time.ParseInLocation(time.DateTime, then, time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	pageHas(t, page, `value="`+then+`"`,
		`<td class="value">`+strings.Replace(strconv.FormatFloat(float64(at.Unix()), 'g', -1, 64), "+", "&#43;", 1)+"</td>")
}

// Where the servers fail the page says what a client would be told, once, and asks them no second
// time for the plot.
func TestLinksOfAlertsSayWhatFails(t *testing.T) {
	r := newRig(t, manyShards(1), "")
	for _, sh := range r.all() {
		if err := sh.Set("", fakeshard.Route{Path: "/api/v1/query", Script: `status 422; send '{"status":"error","errorType":"execution","error":"too <b>many</b>"}'`}); err != nil {
			t.Fatal(err)
		}
	}
	page := r.body("/graph?g0.expr=up")
	pageHas(t, page, `<p class="refused">too &lt;b&gt;many&lt;/b&gt;`)
	for _, sh := range r.all() {
		if n := len(sh.RequestsTo("/api/v1/query_range")); n > 0 {
			t.Errorf("a plot was asked for %d times though the value failed", n)
		}
	}
}

// --web.graph-url has to have a place for the query; the page links there, with the query as it
// belongs into that place.
func TestGraphURL(t *testing.T) {
	for _, bad := range []string{
		"grafana", "https://grafana/explore", "javascript:alert('{expr}')", "https:///x?{expr}",
		"https://gra fana/{expr}",
	} {
		if err := checkGraphURL(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	const grafana = `https://grafana.example/explore?panes=%7B%22a%22%3A%7B%22queries%22%3A%5B%7B%22expr%22%3A%22{expr_json}%22%7D%5D%2C%22range%22%3A%7B%22from%22%3A%22{from}%22%2C%22to%22%3A%22{until}%22%7D%7D%7D&q={expr}`
	s := &Server{opts: Options{GraphURL: grafana}}
	at := time.UnixMilli(7200_000)
	got := string(s.graphLink(`up{job="a\\b"}`, moment{at: at, span: time.Hour}))
	u, err := url.Parse(got)
	if err != nil {
		t.Fatal(err)
	}
	if q := u.Query(); q.Get("q") != `up{job="a\\b"}` || q.Get("panes") != `{"a":{"queries":[{"expr":"up{job=\"a\\\\b\"}"}],"range":{"from":"3600000","to":"7200000"}}}` {
		t.Errorf("got %q", q)
	}
	if link := (&Server{}).graphLink("up", moment{}); link != "" {
		t.Errorf("a link without --web.graph-url: %q", link)
	}
	r := newRig(t, manyShards(1), "", func(o *Options) { o.GraphURL = "https://grafana.example/explore?q={expr}" })
	pageHas(t, r.body("/graph?g0.expr="+url.QueryEscape("1 > 0")), `<a href="https://grafana.example/explore?q=1&#43;%3E&#43;0">`)
}

// TestDrawnIsHeld: an answer that is drawn is held as its JSON and as it is read; where that finds
// no memory the page says so.
func TestDrawnIsHeld(t *testing.T) {
	r := newRig(t, manyShards(1), "")
	const long = 8 << 10
	form := url.Values{"query": {`"` + strings.Repeat("x", long) + `"`}, "time": {"1"}}
	from := r.request(t.Context(), asking{path: "/graph"})
	for _, c := range []struct {
		pool  int64
		drawn bool
	}{{4 * long, false}, {1 << 20, true}} {
		drawn := admit.NewBudget(admit.NewPool(c.pool), admit.Limits{})
		a, err := r.s.look(from, endpoint.Query, form, drawn)
		if c.drawn != (err == nil) || err != nil && !strings.Contains(publicly(err), "memory") {
			t.Errorf("of %d bytes: %v", c.pool, err)
		}
		if rows, _ := rowsOf(a); c.drawn && (len(rows) != 1 || drawn.Held() < (1+readFactor)*long) {
			t.Errorf("%d rows, for which %d bytes are held", len(rows), drawn.Held())
		}
		drawn.Close()
	}
	r.body("/graph?g0.expr=up")
	r.eventually("a page gives back what it held", func() bool { return r.s.state.Load().pool.InUse() == 0 })
}

func rowsOf(a *ui.Answer) ([]ui.Row, int) {
	if a == nil {
		return nil, 0
	}
	return a.Rows()
}
