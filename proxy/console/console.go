package console

import (
	"cmp"
	"context"
	_ "embed"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spillwayproject/spillway/internal/clip"
	"github.com/spillwayproject/spillway/proxy/admit"
	"github.com/spillwayproject/spillway/proxy/attribution"
	"github.com/spillwayproject/spillway/proxy/deny"
	"github.com/spillwayproject/spillway/proxy/live"
	"github.com/spillwayproject/spillway/proxy/shard"
	"github.com/spillwayproject/spillway/proxy/ui"
)

const (
	// MaxRows is how many rows of one kind a page has.
	MaxRows = 20
	// maxStrips is how many shards, and maxReplicas how many servers, the first page has;
	// maxListed is how many refusals their own page has.
	maxStrips, maxReplicas, maxListed = 40, 100, 100
	// fresh is how long one drawing of the first page serves everybody who looks.
	fresh = time.Second
	// shownText is how many bytes of a text a row has.
	shownText = 300
)

// Head is what stands above each page.
type Head struct {
	// Version is Spillway's own, empty where it is not known; Hash is the configuration's, of which
	// a page shows the beginning.
	Version, Hash string
	// Loaded is when it was loaded.
	Loaded time.Time
}

// Source is where pages have from what they show. Its methods are called by several goroutines and
// answer at once.
type Source interface {
	Now() time.Time
	Head() Head
	Glance() Glance
	Replicas() []shard.Info
	Live(now time.Time) []live.Query
	Top(now time.Time, by attribution.Kind, limit int) attribution.Top
	Deny(now time.Time) []deny.Entry
	// Kill ends requests on behalf of r, and returns how many.
	Kill(r *http.Request, f live.Filter) int
	// Explain is how a query would be answered: a tree of values with Mode, Expr, Why, Calls (each
	// with Shard, Replica and Query) and Children; or a sentence that says why not.
	Explain(r *http.Request, query string) (verdict, reason string, tree any, problem string)
}

// Console draws the pages. It is safe for concurrent use.
type Console struct {
	source   Source
	refusals Refusals
	history  history

	mu    sync.Mutex // one draws, the others wait for it
	drawn map[string]any
	at    time.Time
}

// New is the console of a source.
func New(s Source) *Console { return &Console{source: s} }

// Run keeps the history until ctx ends.
func (c *Console) Run(ctx context.Context) { c.history.run(ctx, c.source.Glance) }

// Refused takes note of a refusal, of which Count, First and Last are set here.
func (c *Console) Refused(r Refusal) { c.refusals.Add(c.source.Now(), r) }

// Refusals is what was refused lately, those that came last first.
func (c *Console) Refusals() []Refusal { return c.refusals.List() }

// Glances are those of the last HistorySpan, the oldest first.
func (c *Console) Glances() []Glance { return c.history.all() }

// Mount serves the pages.
func (c *Console) Mount(mux *http.ServeMux) {
	mux.HandleFunc("GET /{$}", c.first)
	mux.HandleFunc("GET /dashboard", c.dashboard)
	mux.HandleFunc("GET /panel", c.panel)
	mux.HandleFunc("GET /refusals", c.refused)
	mux.HandleFunc("GET /refusals/{id}", c.why)
	mux.HandleFunc("GET /explain", c.explain)
	mux.HandleFunc("POST /kill", c.kill)
	mux.HandleFunc("GET /console.css", asset("text/css; charset=utf-8", style))
	mux.HandleFunc("GET /console.js", asset("text/javascript; charset=utf-8", script))
}

var (
	//go:embed console.css
	style string
	//go:embed console.js
	script string
	//go:embed pages.html
	texts string

	pages = template.Must(template.New("").Funcs(template.FuncMap{
		"bytes": admit.FormatBytes, "clip": func(s string) string { return clip.Text(s, shownText) },
		"seconds": func(s float64) string { return strconv.FormatFloat(s, 'f', 1, 64) },
		"utc":     func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") },
		"whole":   func(s string) bool { return !strings.HasSuffix(s, "…") },
		"uid":     func(panel string) string { uid, _, _ := cutPanel(panel); return uid },
		"panel":   func(panel string) string { _, id, _ := cutPanel(panel); return id },
		"percent": func(part, whole int64) int64 { return part * 100 / max(whole, 1) },
	}).Parse(texts))
)

func asset(kind, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-cache")
		_, _ = w.Write([]byte(text)) // the browser may be gone
	}
}

// write draws a page, and what was said about the last click.
func (c *Console) write(w http.ResponseWriter, r *http.Request, status int, name string, data map[string]any) {
	data["Head"] = c.source.Head()
	if n, err := strconv.Atoi(r.URL.Query().Get("ended")); err == nil && n >= 0 {
		data["Ended"], data["EndedAny"] = n, true
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	w.WriteHeader(status)
	_ = pages.ExecuteTemplate(w, name, data) // the browser may be gone
}

// rows are the first MaxRows of all, and how many more there are.
func rows[T any](all []T) (first []T, more int) {
	n := min(len(all), MaxRows)
	return all[:n], len(all) - n
}

// stripOf is a shard on the first page.
type stripOf struct {
	shard.Places
	Strip, Waited string
	Replicas      []shard.Info
}

func (c *Console) first(w http.ResponseWriter, r *http.Request) {
	data := maps.Clone(c.overview())
	data["Base"] = "http://" + r.Host
	c.write(w, r, http.StatusOK, "first", data)
}

// overview is what the first page shows, of now or of a moment ago.
func (c *Console) overview() map[string]any {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.source.Now()
	if age := now.Sub(c.at); c.drawn != nil && age >= 0 && age < fresh {
		return c.drawn
	}
	c.drawn, c.at = c.draw(now), now
	return c.drawn
}

func (c *Console) draw(now time.Time) map[string]any {
	g := c.source.Glance()
	past := append(c.history.all(), g)
	past = past[max(0, len(past)-points):]
	until := g.At
	from := until.Add(-HistorySpan)
	under := c.source.Live(now)
	underWay, more := rows(under)
	refusals, moreRefusals := rows(c.refusals.List())
	rules := c.source.Deny(now)
	slices.SortStableFunc(rules, func(a, b deny.Entry) int { return cmp.Compare(b.Hits, a.Hits) })
	rules, moreRules := rows(rules)
	strips, moreStrips := strips(past, g.Shards, c.source.Replicas())
	return map[string]any{
		"Title": "Spillway", "Glance": g,
		"Strips": strips, "MoreStrips": moreStrips, "Live": underWay, "MoreLive": more, "UnderWay": len(under),
		"Held":   ui.Plot(lanes(past, g.Lanes, func(l Lane) float64 { return float64(l.Held) }), from, until, HistoryStep),
		"Queue":  ui.Plot(lanes(past, g.Lanes, func(l Lane) float64 { return float64(l.Waiting) }), from, until, HistoryStep),
		"Memory": ui.Plot(memory(past), from, until, HistoryStep),
		"Tops": []attribution.Top{
			c.source.Top(now, attribution.ByDashboard, MaxRows/2), c.source.Top(now, attribution.ByPanel, MaxRows/2),
			c.source.Top(now, attribution.ByUser, MaxRows/2), c.source.Top(now, attribution.ByQuery, MaxRows/2),
		},
		"Refusals": refusals, "MoreRefusals": moreRefusals, "Rules": rules, "MoreRules": moreRules,
	}
}

// strips are the shards of a page, in the order of the configuration; where there are too many,
// those that have the most to do, and how many more there are.
func strips(past []Glance, now []shard.Places, replicas []shard.Info) (out []stripOf, more int) {
	chosen := slices.Clone(now)
	if len(chosen) > maxStrips {
		slices.SortStableFunc(chosen, func(a, b shard.Places) int {
			return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.Held*max(a.Places, 1), a.Held*max(b.Places, 1)))
		})
		chosen, more = chosen[:maxStrips], len(chosen)-maxStrips
	}
	left := maxReplicas
	for _, p := range chosen {
		s := stripOf{Places: p}
		s.Strip, s.Waited = strip(past, p)
		for _, i := range replicas {
			if i.Group == p.Group && i.Shard == p.Shard && left > 0 {
				s.Replicas = append(s.Replicas, i)
				left--
			}
		}
		out = append(out, s)
	}
	return out, more
}

// cutPanel takes the name of a row by panel apart.
func cutPanel(name string) (dashboard, panel string, ok bool) {
	i := strings.LastIndexByte(name, '/')
	if i < 0 {
		return "", name, false
	}
	return name[:i], name[i+1:], true
}

// within draws what is known of the requests that has holds for.
func (c *Console) within(data map[string]any, has func(dashboard, panel string) bool) map[string]any {
	now := c.source.Now()
	under := slices.DeleteFunc(c.source.Live(now), func(q live.Query) bool { return !has(q.Dashboard, q.Panel) })
	refusals := slices.DeleteFunc(c.refusals.List(), func(r Refusal) bool { return !has(r.Dashboard, r.Panel) })
	data["UnderWay"] = len(under)
	data["Live"], data["MoreLive"] = rows(under)
	data["Refusals"], data["MoreRefusals"] = rows(refusals)
	return data
}

func (c *Console) dashboard(w http.ResponseWriter, r *http.Request) {
	uid := r.URL.Query().Get("uid")
	if uid == "" {
		c.missing(w, r, "which dashboard? This page takes uid, as the first page's links have it")
		return
	}
	now := c.source.Now()
	all := c.source.Top(now, attribution.ByPanel, attribution.MaxKeys*attribution.Buckets)
	panels := slices.DeleteFunc(all.Rows, func(row attribution.Row) bool { d, _, ok := cutPanel(row.Name); return !ok || d != uid })
	shown, more := rows(panels)
	c.write(w, r, http.StatusOK, "dashboard", c.within(map[string]any{
		"Title": "Dashboard " + clip.Text(uid, shownText), "UID": uid, "Panels": shown, "MorePanels": more,
		"Cost": costOf(c.source.Top(now, attribution.ByDashboard, attribution.MaxKeys*attribution.Buckets), uid),
	}, func(d, _ string) bool { return d == uid }))
}

func (c *Console) panel(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	uid, id := q.Get("uid"), q.Get("panel")
	if uid == "" || id == "" {
		c.missing(w, r, "which panel? This page takes uid and panel, as the links of a dashboard's page have them")
		return
	}
	c.write(w, r, http.StatusOK, "panel", c.within(map[string]any{
		"Title": "Panel " + clip.Text(id, shownText), "UID": uid, "Panel": id,
		"Cost": costOf(c.source.Top(c.source.Now(), attribution.ByPanel, attribution.MaxKeys*attribution.Buckets), uid+"/"+id),
	}, func(d, p string) bool { return d == uid && p == id }))
}

// costOf is the row of that name; nil where there is none.
func costOf(t attribution.Top, name string) *attribution.Row {
	name = clip.Text(name, attribution.MaxKeyBytes)
	for i := range t.Rows {
		if t.Rows[i].Name == name {
			return &t.Rows[i]
		}
	}
	return nil
}

func (c *Console) refused(w http.ResponseWriter, r *http.Request) {
	all := c.refusals.List()
	n := min(len(all), maxListed)
	c.write(w, r, http.StatusOK, "refusals", map[string]any{"Title": "What was refused", "Refusals": all[:n], "Older": len(all) - n})
}

// piece is a part of a query, in the way or not.
type piece struct {
	Text   string
	Marked bool
}

// pieces takes a text apart at its marks.
func pieces(text string, marks [][2]int) (out []piece) {
	at := 0
	for _, m := range marks {
		if m[0] < at {
			continue
		}
		out = append(out, piece{text[at:m[0]], false}, piece{text[m[0]:m[1]], true})
		at = m[1]
	}
	return append(out, piece{text[at:], false})
}

func (c *Console) why(w http.ResponseWriter, r *http.Request) {
	ref, ok := c.refusals.Get(r.PathValue("id"))
	if !ok {
		c.missing(w, r, "no request of this id was refused lately: it was answered, or is forgotten, or another Spillway has refused it; the log and the usage log have every request")
		return
	}
	c.write(w, r, http.StatusOK, "why", map[string]any{
		"Title": "Why was it refused?", "R": ref, "Pieces": pieces(ref.Query, ref.Marks),
		"IsQuery": strings.HasPrefix(ref.Endpoint, "query"),
	})
}

func (c *Console) explain(w http.ResponseWriter, r *http.Request) {
	data := map[string]any{"Title": "How a query is answered", "Still": true, "Query": r.URL.Query().Get("query")}
	if q := r.URL.Query().Get("query"); strings.TrimSpace(q) != "" {
		data["Verdict"], data["Reason"], data["Tree"], data["Problem"] = c.source.Explain(r, q)
	}
	c.write(w, r, http.StatusOK, "explain", data)
}

// kill ends what the form names, and goes back to the page that it stood on.
func (c *Console) kill(w http.ResponseWriter, r *http.Request) {
	f := live.Filter{ID: r.PostFormValue("id"), Dashboard: r.PostFormValue("dashboard"), User: r.PostFormValue("user")}
	if f == (live.Filter{}) {
		c.missing(w, r, "which ones? The form takes id, dashboard or user")
		return
	}
	n := c.source.Kill(r, f)
	c.mu.Lock()
	c.drawn = nil // else what was ended may stand there for a moment
	c.mu.Unlock()
	back, query := url.URL{Path: "/"}, url.Values{}
	if from, err := url.Parse(r.Referer()); err == nil && from.Host == r.Host {
		back.Path, query = "/"+strings.TrimLeft(from.Path, "/"), from.Query()
	}
	query.Set("ended", strconv.Itoa(n))
	back.RawQuery = query.Encode()
	http.Redirect(w, r, back.String(), http.StatusSeeOther)
}

func (c *Console) missing(w http.ResponseWriter, r *http.Request, sentence string) {
	c.write(w, r, http.StatusNotFound, "missing", map[string]any{"Title": "Not found", "Sentence": sentence})
}
