package console

import (
	"bytes"
	"context"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/spillwayproject/spillway/proxy/attribution"
	"github.com/spillwayproject/spillway/proxy/deny"
	"github.com/spillwayproject/spillway/proxy/live"
	"github.com/spillwayproject/spillway/proxy/shard"
	"github.com/spillwayproject/spillway/proxy/vitals"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

// scene is a source of whatever a test wants to be shown.
type scene struct {
	mu       sync.Mutex
	glance   Glance
	replicas []shard.Info
	live     []live.Query
	spent    attribution.Table
	rules    []deny.Entry
	killed   []live.Filter
	looks    int
	later    time.Duration // between two questions for the time
	now      time.Duration
}

func (s *scene) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now += s.later
	return noon.Add(s.now)
}

func (s *scene) Head() Head {
	return Head{Version: "1.2.3", Hash: "0123456789abcdef", Loaded: noon.Add(-time.Hour)}
}

func (s *scene) Glance() Glance {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.looks++
	g := s.glance
	g.At = noon
	return g
}
func (s *scene) Replicas() []shard.Info { return s.replicas }
func (s *scene) Live(time.Time) []live.Query {
	return append([]live.Query(nil), s.live...)
}

func (s *scene) Top(now time.Time, by attribution.Kind, limit int) attribution.Top {
	return s.spent.Top(now, by, "shard_s", limit)
}
func (s *scene) Deny(time.Time) []deny.Entry { return s.rules }

func (s *scene) Kill(_ *http.Request, f live.Filter) int {
	s.killed = append(s.killed, f)
	return 1
}

func (s *scene) Explain(_ *http.Request, query string) (verdict, reason string, tree any, problem string) {
	type call struct{ Shard, Replica, Query string }
	type node struct {
		Mode, Expr, Why string
		Calls           []call
		Children        []*node
	}
	leaf := &node{Mode: "push", Expr: query, Calls: []call{{"a[0]", "a/b:1", query}}}
	return "exact", "", &node{Mode: "raw", Expr: query, Children: []*node{leaf}}, ""
}

// asked is a request of that dashboard's panel.
func asked(id, dashboard, panel, query string) live.Query {
	return live.Query{
		Facts: live.Facts{ID: id, Endpoint: "query_range", Query: query, User: "ada", Dashboard: dashboard, Panel: panel},
		State: live.State{Doing: "asked of the shards", HeldBytes: 1 << 20},
	}
}

// get is a page; it fails where the status is another one.
func get(t *testing.T, c *Console, path string, status int) string {
	t.Helper()
	mux := http.NewServeMux()
	c.Mount(mux)
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
	if w.Code != status {
		t.Fatalf("%s: %d, want %d: %s", path, w.Code, status, w.Body)
	}
	if strings.HasSuffix(path, ".css") || strings.HasSuffix(path, ".js") {
		return w.Body.String()
	}
	if csp := w.Header().Get("Content-Security-Policy"); !strings.HasPrefix(csp, "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'") {
		t.Errorf("%s: the policy is %q", path, csp)
	}
	return w.Body.String()
}

var links = regexp.MustCompile(`href="([^"]*)"`)

// linksTo are the page's links that begin so, in their order.
func linksTo(page, prefix string) (out []string) {
	for _, m := range links.FindAllStringSubmatch(page, -1) {
		if l := html.UnescapeString(m[1]); strings.HasPrefix(l, prefix) {
			out = append(out, l)
		}
	}
	return out
}

// TestTwoClicks: the first link to a dashboard leads to that which has cost most, and there the
// first link to a panel to the panel that has, with what it asks and what was refused of it.
func TestTwoClicks(t *testing.T) {
	s := &scene{live: []live.Query{
		asked("4", "other", "7", "calm too"), asked("3", "b/wall & co", "1", "calm"), asked("2", "b/wall & co", "7", "count(storm)"),
	}}
	for _, spent := range []struct {
		dashboard, panel string
		seconds          float64
	}{{"calm", "9", 30}, {"b/wall & co", "1", 1}, {"b/wall & co", "7", 50}, {"b", "7", 20}} {
		who := attribution.Who{Dashboard: spent.dashboard, Panel: spent.panel}
		s.spent.Add(noon, who, attribution.Cost{Requests: 1, ShardSeconds: spent.seconds})
	}
	c := New(s)
	for panel, query := range map[string]string{"7": "sum(all)", "8": "sum(else)"} {
		what := Asked{ID: "r" + panel, Query: query, Dashboard: "b/wall & co", Panel: panel}
		c.Refused(Refusal{Asked: what, Kind: "too_expensive", Bound: "max_series"})
	}
	page := get(t, c, "/", 200)
	top := page[strings.Index(page, "by dashboard"):]
	dashboard := get(t, c, linksTo(top, "/dashboard")[0], 200)
	for _, want := range []string{"51.0", "calm", "count(storm)", "sum(all)", "sum(else)"} {
		if !strings.Contains(dashboard, want) {
			t.Errorf("the dashboard's page lacks %q: %s", want, dashboard)
		}
	}
	if strings.Contains(dashboard, "calm too") {
		t.Error("it has another one's request")
	}
	panel := get(t, c, linksTo(dashboard, "/panel")[0], 200)
	for want, there := range map[string]bool{"50.0": true, "count(storm)": true, "sum(all)": true, "calm": false, "sum(else)": false} {
		if strings.Contains(panel, want) != there {
			t.Errorf("the panel's page has %q: %t: %s", want, !there, panel)
		}
	}
}

// TestMemoryOfServers: how much of its memory a server holds stands beside it, and how it is where
// that is a reason to look.
func TestMemoryOfServers(t *testing.T) {
	s := &scene{glance: Glance{Shards: []shard.Places{{Group: "main", Places: 24}}}}
	for want, v := range map[string]shard.VitalsInfo{
		`11GiB of 12GiB (91 %)</span> <b class="bad">sick</b>`: {State: vitals.Sick, HeldBytes: 11 << 30, LimitBytes: 12 << 30},
		`10GiB of 12GiB (83 %)</span> <b class="bad">busy</b>`: {State: vitals.Busy, HeldBytes: 10 << 30, LimitBytes: 12 << 30},
		"2GiB of 12GiB (16 %)</span>":                          {State: vitals.Sound, HeldBytes: 2 << 30, LimitBytes: 12 << 30},
		"2GiB</span>":                                          {State: vitals.Unknown, HeldBytes: 2 << 30, LimitBytes: -1},
	} {
		s.replicas = []shard.Info{{Group: "main", URL: "http://a:9090", State: shard.Up, Vitals: v}}
		if page := get(t, New(s), "/", 200); !strings.Contains(page, want) {
			t.Errorf("%q is not on the page", want)
		}
	}
	s.replicas = []shard.Info{{Group: "main", URL: "http://a:9090", State: shard.Up}}
	s.replicas[0].Vitals = shard.VitalsInfo{State: vitals.Unknown, HeldBytes: -1, LimitBytes: -1}
	if page := get(t, New(s), "/", 200); strings.Contains(page, "-1B") {
		t.Error("memory that is not known is shown")
	}
}

// hostile is what a client may call itself, or ask for.
const hostile = `"><script>alert(1)</script><img src=x onerror=alert(1)>&amp;'</textarea></pre>{{.}}javascript:alert(1)`

var values = regexp.MustCompile(`="[^"]*"`)

// TestHostileTexts: whatever is shown, the pages have no element and no attribute of a client's.
func TestHostileTexts(t *testing.T) {
	s := &scene{
		glance:   Glance{Lanes: []Lane{{Name: hostile}}, Shards: []shard.Places{{Group: hostile, Places: 24}}},
		replicas: []shard.Info{{Group: hostile, URL: hostile, Version: hostile, Error: hostile, Note: hostile, Do: []string{hostile}}},
		live: []live.Query{{Facts: live.Facts{
			ID: hostile, Endpoint: "query", Query: hostile, Tenant: hostile, User: hostile,
			Dashboard: hostile, Panel: hostile, Rule: hostile,
		}}},
		rules: []deny.Entry{{Rule: deny.Rule{Name: hostile, Reason: hostile}}},
	}
	who := attribution.Who{Tenant: hostile, User: hostile, Dashboard: hostile, Panel: hostile, Rule: hostile, Query: hostile}
	s.spent.Add(noon, who, attribution.Cost{Requests: 1})
	c := New(s)
	c.history.add(s.Glance())
	c.Refused(Refusal{
		Asked: Asked{
			ID: "r1", Endpoint: "query", Query: hostile, Tenant: hostile, User: hostile, Dashboard: hostile, Panel: hostile, Rule: hostile,
		},
		Kind: "too_expensive", Bound: hostile, Value: hostile, Seen: hostile, Message: hostile, Advice: hostile, Rewrite: hostile,
		Marks: [][2]int{{2, 10}, {20, 30}},
	})
	of := url.Values{"uid": {hostile}, "panel": {hostile}}.Encode()
	of += "&" + url.Values{"query": {hostile}}.Encode()
	for _, path := range []string{"/", "/refusals", "/refusals/r1", "/dashboard?" + of, "/panel?" + of, "/explain?" + of} {
		page := get(t, c, path, 200)
		if !strings.Contains(html.UnescapeString(strings.NewReplacer("<mark>", "", "</mark>", "").Replace(page)), hostile[:40]) {
			t.Errorf("%s does not show it", path)
		}
		if strings.Count(page, "<script") != 1 || strings.Contains(page, "<img") || strings.Contains(page, `href="javascript`) {
			t.Errorf("%s: %s", path, page)
		}
		tags := regexp.MustCompile(`<[a-z][^<>]*>`).FindAllString(page, -1)
		for _, tag := range tags {
			tag = values.ReplaceAllString(tag, `=""`)
			if regexp.MustCompile(`\son[a-z]+=|\sstyle=|\ssrc=x`).MatchString(tag) || strings.ContainsAny(tag, "'{") {
				t.Errorf("%s has the tag %s", path, tag)
			}
		}
	}
}

// TestTenThousand: with 10,000 requests under way, 256 refusals and 500 shards, all with the
// longest texts, the page stays below 150 kB, and says how many more there are.
func TestTenThousand(t *testing.T) {
	s := crowded()
	c := New(s)
	full(c, s)
	page := get(t, c, "/", 200)
	if len(page) > 150_000 {
		t.Errorf("the page has %d bytes", len(page))
	}
	for _, want := range []string{"and 9980 more", "and 236 more", "and 460 more"} {
		if !strings.Contains(page, want) {
			t.Errorf("it does not say %q", want)
		}
	}
	t.Logf("%d bytes", len(page))
}

// crowded is more of everything than a page has room for.
func crowded() *scene {
	s := &scene{}
	long := strings.Repeat("x", live.MaxQueryBytes)
	for i := range 10_000 {
		q := asked(fmt.Sprint(i), fmt.Sprintf("d%d", i%300), fmt.Sprint(i%40), fmt.Sprint(i)+long)
		s.live = append(s.live, q)
		who := attribution.Who{User: q.User, Dashboard: q.Dashboard, Panel: q.Panel, Query: q.Query}
		s.spent.Add(noon, who, attribution.Cost{Requests: 1, ShardSeconds: float64(i)})
	}
	for i := range 500 {
		p := shard.Places{Group: fmt.Sprintf("cluster-%d", i/10), Shard: i % 10, Held: i % 24, Places: 24}
		s.glance.Shards = append(s.glance.Shards, p)
		for range 2 {
			s.replicas = append(s.replicas, shard.Info{
				Group: p.Group, Shard: p.Shard, URL: "http://prometheus-a-0.monitoring.svc:9090", State: shard.Up, Version: "3.15.0",
				Vitals: shard.VitalsInfo{State: vitals.Sick, HeldBytes: 11 << 30, LimitBytes: 12 << 30},
			})
		}
	}
	for i := range 20 {
		s.glance.Lanes = append(s.glance.Lanes, Lane{Name: fmt.Sprint("lane-", i), Held: i})
	}
	return s
}

// full fills what a console remembers to the brim.
func full(c *Console, s *scene) {
	for range 2 * points {
		c.history.add(s.Glance())
	}
	for i := range 2 * MaxRefusals {
		what := Asked{ID: fmt.Sprint("r", i), Query: fmt.Sprint(i) + strings.Repeat("y", 2*maxText)}
		c.Refused(Refusal{Asked: what, Kind: "too_expensive", Bound: "max_series"})
	}
}

// BenchmarkFirstPage is the first page with 10,000 requests under way and all that is remembered.
func BenchmarkFirstPage(b *testing.B) {
	s := crowded()
	c := New(s)
	full(c, s)
	mux := http.NewServeMux()
	c.Mount(mux)
	for b.Loop() {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
		b.ReportMetric(float64(w.Body.Len()), "page-B")
	}
}

// BenchmarkRefused is what it costs a refusal to be remembered, of one that is new each time.
func BenchmarkRefused(b *testing.B) {
	c := New(&scene{})
	full(c, &scene{})
	for i := 0; b.Loop(); i++ {
		c.Refused(Refusal{Asked: Asked{ID: fmt.Sprint("b", i), Query: fmt.Sprint(i)}, Kind: "overloaded", Bound: "replica_calls"})
	}
}

// TestKill: a form ends one request, or a dashboard's, and goes back to its own page and no other.
func TestKill(t *testing.T) {
	s := &scene{}
	mux := http.NewServeMux()
	New(s).Mount(mux)
	post := func(form url.Values, referer string) *httptest.ResponseRecorder {
		r := httptest.NewRequest(http.MethodPost, "http://spillway:9091/kill", strings.NewReader(form.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.Header.Set("Referer", referer)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		return w
	}
	for referer, want := range map[string]string{
		"http://spillway:9091/panel?uid=a&panel=2": "/panel?ended=1&panel=2&uid=a", "http://elsewhere/panel": "/?ended=1", "": "/?ended=1",
		"http://spillway:9091//elsewhere/": "/elsewhere/?ended=1", ":": "/?ended=1", "http://spillway:9091/?ended=7": "/?ended=1",
	} {
		if w := post(url.Values{"id": {"7"}}, referer); w.Code != http.StatusSeeOther || w.Header().Get("Location") != want {
			t.Errorf("from %q it goes on to %q (%d), want %q", referer, w.Header().Get("Location"), w.Code, want)
		}
	}
	post(url.Values{"dashboard": {"wall"}}, "")
	if got := fmt.Sprint(s.killed[0], s.killed[len(s.killed)-1]); got != fmt.Sprint(live.Filter{ID: "7"}, live.Filter{Dashboard: "wall"}) {
		t.Errorf("ended: %s", got)
	}
	before := len(s.killed)
	if w := post(url.Values{"tenant": {"all"}}, ""); w.Code != http.StatusNotFound || len(s.killed) != before {
		t.Errorf("a form that names nobody: %d", w.Code)
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/kill?id=7", http.NoBody))
	if w.Code != http.StatusMethodNotAllowed || len(s.killed) != before {
		t.Errorf("GET: %d, and %d were ended", w.Code, len(s.killed)-before)
	}
}

// TestMissing: pages without their subject say what they take.
func TestMissing(t *testing.T) {
	c := New(&scene{})
	for path, want := range map[string]string{
		"/dashboard": "takes uid", "/panel?uid=a": "takes uid and panel", "/refusals/no-such": "no request of this id",
	} {
		if page := get(t, c, path, http.StatusNotFound); !strings.Contains(page, want) {
			t.Errorf("%s: %s", path, page)
		}
	}
	if page := get(t, c, "/dashboard?uid=quiet", 200); !strings.Contains(page, "has asked for nothing") {
		t.Error(page)
	}
}

// TestMarks: what was in the way is marked in the query, wherever the marks come from.
func TestMarks(t *testing.T) {
	const query = `sum(a{x="1"}) / sum(b)`
	for _, c := range []struct {
		marks [][2]int
		want  string
	}{
		{nil, `sum(a{x="1"}) / sum(b)`},
		{[][2]int{{4, 12}}, `sum([a{x="1"}]) / sum(b)`},
		{[][2]int{{4, 12}, {20, 21}}, `sum([a{x="1"}]) / sum([b])`},
		{[][2]int{{4, 12}, {5, 9}, {-1, 3}, {20, 900}, {7, 7}}, `sum([a{x="1"}]) / sum(b)`},
	} {
		var l Refusals
		l.Add(noon, Refusal{Asked: Asked{ID: "1", Query: query}, Marks: c.marks})
		r, _ := l.Get("1")
		var got strings.Builder
		for _, p := range pieces(r.Query, r.Marks) {
			if p.Marked {
				got.WriteString("[" + p.Text + "]")
			} else {
				got.WriteString(p.Text)
			}
		}
		if got.String() != c.want {
			t.Errorf("%v: %s, want %s", c.marks, got.String(), c.want)
		}
	}
}

// TestRefusals: refusals that are alike are one, which each of their ids finds; the one that came
// last the longest ago makes room; and nothing grows.
func TestRefusals(t *testing.T) {
	var l Refusals
	alike := func(id string) Refusal {
		return Refusal{Asked: Asked{ID: id, Query: "up", User: "ada"}, Kind: "overloaded", Bound: "replica_calls"}
	}
	l.Add(noon, alike("a"))
	l.Add(noon.Add(time.Minute), alike("b"))
	other := alike("c")
	other.User = "bob"
	l.Add(noon, other)
	all := l.List()
	if len(all) != 2 || all[0].ID != "b" || all[0].Count != 2 || all[1].Count != 1 ||
		!all[0].First.Equal(noon) || !all[0].Last.Equal(noon.Add(time.Minute)) {
		t.Fatalf("got %+v", all)
	}
	if a, ok := l.Get("a"); !ok || a.ID != "b" || a.Count != 2 {
		t.Errorf("the first one's id finds %+v, %t", a, ok)
	}
	for i := range 3 * maxIDs {
		r := alike(fmt.Sprint("x", i))
		r.Query = fmt.Sprint(i%(2*MaxRefusals), strings.Repeat("é", maxText))
		l.Add(noon.Add(2*time.Minute+time.Duration(i)), r)
	}
	full := map[*Refusal]bool{}
	for _, r := range l.ids {
		if r.Query != "" {
			full[r] = true
		}
	}
	if len(l.by) > MaxRefusals || len(l.ids) > maxIDs || len(l.List()) != MaxRefusals || len(full) > MaxRefusals {
		t.Errorf("%d refusals, %d ids and what %d of them were about are remembered", len(l.by), len(l.ids), len(full))
	}
	if _, ok := l.Get("a"); ok {
		t.Error("an id of long ago is remembered")
	}
	if r, ok := l.Get(fmt.Sprint("x", 3*maxIDs-1)); !ok || len(r.Query) > maxText+len("…") {
		t.Errorf("the last one: %t, %d bytes", ok, len(r.Query))
	}
}

// TestRefusalsKeepNoBodies: what is remembered is the text, and not the body that it is a part of.
func TestRefusalsKeepNoBodies(t *testing.T) {
	var l Refusals
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for i := range 64 {
		body := fmt.Sprintf("q%02d", i) + strings.Repeat("p", 1<<20)
		l.Add(noon, Refusal{Asked: Asked{ID: fmt.Sprint(i), Query: body[:3], User: body[:2], Panel: body[1:3]}})
	}
	if grown := int64(heap()) - int64(before); grown > 8<<20 {
		t.Errorf("64 refusals of three characters hold %d MiB", grown>>20)
	}
	if len(l.List()) != 64 {
		t.Error("they are not remembered")
	}
}

// TestEnded: the page says what a click has ended, and that it has ended nothing.
func TestEnded(t *testing.T) {
	c := New(&scene{})
	for ended, want := range map[string]string{"2": "2 ended", "0": "Nothing was ended"} {
		if page := get(t, c, "/?ended="+ended, 200); !strings.Contains(page, want) {
			t.Errorf("%s: %s", ended, page)
		}
	}
	for _, ended := range []string{"", "-1", "<b>"} {
		if page := get(t, c, "/?ended="+url.QueryEscape(ended), 200); strings.Contains(page, `class="said"`) {
			t.Errorf("%q: %s", ended, page)
		}
	}
}

// TestOneDrawing: everybody who looks within a second has the same drawing, and the next second
// another one.
func TestOneDrawing(t *testing.T) {
	s := &scene{later: 400 * time.Millisecond}
	c := New(s)
	for range 6 {
		get(t, c, "/", 200)
	}
	if s.looks != 2 {
		t.Errorf("in two seconds it was drawn %d times", s.looks)
	}
}

// TestHistory: glances are kept for ten minutes, and no more of them, nor more lanes and shards.
func TestHistory(t *testing.T) {
	s := crowded()
	s.glance.Lanes, s.glance.Shards = make([]Lane, 2*maxLanes), make([]shard.Places, 2*maxShards)
	c := New(s)
	full(c, s)
	all := c.Glances()
	if len(all) != points || len(all[0].Lanes) != maxLanes || len(all[0].Shards) != maxShards || cap(all[0].Shards) > maxShards*5/4 {
		t.Errorf("%d glances of %d lanes and %d shards", len(all), len(all[0].Lanes), len(all[0].Shards))
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	before := s.looks
	go func() { c.Run(ctx); close(done) }()
	for {
		s.mu.Lock()
		n := s.looks
		s.mu.Unlock()
		if n > before {
			break
		}
		time.Sleep(time.Millisecond)
	}
	cancel()
	<-done
}

// TestStrip: a shard's strip has a stroke for each glance, the newest on the right, and marks those
// at which calls waited; a shard that has just come begins late.
func TestStrip(t *testing.T) {
	at := func(held, waiting int) Glance {
		return Glance{Shards: []shard.Places{{Group: "a", Shard: 1, Held: held, Waiting: waiting, Places: 24}}}
	}
	held, waited := strip([]Glance{{}, at(0, 0), at(1, 0), at(24, 3), at(48, 0)}, shard.Places{Group: "a", Shard: 1})
	if held != "M230 20v-1M234 20v-20M238 20v-20" || waited != "M234 22v3" {
		t.Errorf("%q, %q", held, waited)
	}
	if held, waited := strip([]Glance{at(1, 1)}, shard.Places{Group: "a", Shard: 2}); held != "" || waited != "" {
		t.Errorf("another shard has %q, %q", held, waited)
	}
}

// TestInChromium: in a browser the page exchanges what has changed, its style and script are let
// in by its own policy, and nothing is complained of; without a server it says that it is old.
func TestInChromium(t *testing.T) {
	browser := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			browser = path
			break
		}
	}
	if browser == "" {
		t.Skip("no Chromium is installed (tools/debian.sh chromium)")
	}
	s := &scene{later: time.Second}
	c := New(s)
	mux := http.NewServeMux()
	c.Mount(mux)
	var asks int
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/" {
			s.mu.Lock()
			asks++
			s.live = []live.Query{asked(fmt.Sprint(asks), "wall", "7", fmt.Sprintf("look_%d", min(asks, 2)))}
			s.mu.Unlock()
			if r.Header.Get("Sec-Fetch-Mode") == "navigate" && asks > 1 {
				t.Error("the page loads itself whole, though it has a script")
			}
		}
		mux.ServeHTTP(w, r)
	}))
	defer server.Close()
	cmd := exec.Command(browser, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--user-data-dir="+t.TempDir(),
		"--virtual-time-budget=9000", "--dump-dom", server.URL+"/")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	if !strings.Contains(out.String(), "look_2") || strings.Contains(out.String(), `class="stale"`) {
		t.Errorf("after eight seconds the page has: %s", out.String())
	}
	if regexp.MustCompile(`CONSOLE|Refused to|Uncaught`).MatchString(errs.String()) {
		t.Errorf("the browser complains: %s", errs.String())
	}
}
