package server

import (
	"html/template"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
)

// pageHead begins the page: no script, no font, nothing from elsewhere.
const pageHead = `<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<title>{{.Title}}</title><style>
body{font:15px/1.5 system-ui,sans-serif;margin:3rem auto;max-width:60rem;padding:0 1rem;color:#1b2733}
h1{font-size:1.5rem;margin:0 0 .2rem}p.sub{color:#5b6b7a;margin:0 0 2rem}a{color:#0b62c4}code,pre{font:13px/1.5 ui-monospace,monospace}
pre{background:#f3f5f7;border-radius:6px;padding:.8rem 1rem;overflow:auto;white-space:pre-wrap}
table{border-collapse:collapse;width:100%;font-size:14px}th{text-align:left;color:#5b6b7a;font-weight:600}td,th{padding:.35rem .6rem .35rem 0;border-bottom:1px solid #e3e8ec;vertical-align:top}
textarea{box-sizing:border-box;width:100%;font:13px/1.5 ui-monospace,monospace;padding:.6rem .8rem;border:1px solid #b8c2cc;border-radius:6px}
button{font:inherit;padding:.3rem 1rem}ul.plan,ul.plan ul{list-style:none;padding-left:1.2rem;border-left:2px solid #e3e8ec}ul.plan>li{margin:.4rem 0}
figure{margin:1rem 0}svg text{font:11px system-ui,sans-serif;fill:#5b6b7a}figcaption{font-size:13px;display:flex;flex-wrap:wrap;gap:.2rem 1.2rem}
td.value,th.value{font:13px/1.5 ui-monospace,monospace;white-space:nowrap;text-align:right}details{margin:.6rem 0 2rem}summary{cursor:pointer;color:#0b62c4}.box{max-height:24rem;overflow:auto}
b.mode{display:inline-block;min-width:3.6rem}p.why,p.call{color:#5b6b7a;margin:0 0 0 3.8rem;font-size:14px}
.up,.exact{color:#12733a}.down,.misconfigured,.refused{color:#b3261e}.unknown{color:#8a6100}
</style></head><body>`

var homePage = template.Must(template.New("home").Parse(pageHead + `
<h1>Spillway{{with .Version}} {{.}}{{end}}</h1><p class="sub">A bounded Prometheus API over {{.Shards}} shards in {{.Groups}} groups.</p>
<form method="get" action="{{.Prefix}}/graph"><p><label for="expr">A query, which is run now:</label></p>
<textarea id="expr" name="g0.expr" rows="3" spellcheck="false">{{.First}}</textarea>
<p><button>Run</button> and plot the last <input name="g0.range_input" value="{{.Range}}" size="5" aria-label="range"> before <input name="g0.moment_input" value="{{.Moment}}" size="28" placeholder="now, or 2026-01-02 15:04:05" aria-label="moment"> (UTC)</p></form>
{{range .Shown}}<pre>{{.Query}}</pre>
{{with .Link}}<p><a href="{{.}}">Open it where graphs are drawn</a></p>{{end}}
{{with .Problem}}<p class="refused">{{.}}</p>{{end}}{{if .Empty}}<p>No series: nothing has this value, or fulfils this condition, at that time.</p>{{end}}
{{with .Rows}}<div class="box"><table>{{range .}}<tr><td><code>{{.Series}}</code></td><td class="value">{{.Value}}</td></tr>{{end}}</table></div>{{end}}
{{with .More}}<p>and {{.}} more</p>{{end}}{{range .Warnings}}<p class="unknown">{{.}}</p>{{end}}
{{with .PlotProblem}}<p class="refused">No plot: {{.}}</p>{{end}}{{if .Plot}}{{.Plot}}{{else if not (or .Problem .PlotProblem)}}<p>Nothing to plot in the {{.Span}} before.</p>{{end}}
<details><summary>How it is answered</summary>{{with .PlanError}}<p class="refused">{{.}}</p>{{end}}{{with .Plan}}<p class="{{.Verdict}}">{{.Verdict}}{{with .Reason}}: {{.}}{{end}}</p>
{{with .Plan}}<ul class="plan">{{template "node" .}}</ul>{{end}}{{end}}</details>{{end}}
<p>This is a Prometheus data source: point Grafana, promtool or any client of the Prometheus HTTP API at <code>{{.Base}}</code>.</p>
<ul>
<li><a href="{{.Prefix}}/api/v1/status/buildinfo">build information</a> of the oldest shard</li>
<li><a href="{{.Prefix}}/api/v1/status/config">configuration</a> and <a href="{{.Prefix}}/api/v1/status/flags">flags</a></li>
<li><a href="{{.Prefix}}/api/v1/alerts">alerts</a>, <a href="{{.Prefix}}/api/v1/rules">rules</a> and <a href="{{.Prefix}}/api/v1/targets">targets</a> of all shards</li>
<li><a href="{{.Prefix}}/-/ready">readiness</a></li>
</ul></body></html>
{{define "node"}}<li><b class="mode">{{.Mode}}</b> <code>{{.Expr}}</code><p class="why">{{.Why}}</p>
{{range .Calls}}<p class="call">{{.Shard}} at {{.Replica}}: <code>{{.Query}}</code></p>{{end}}
{{with .Children}}<ul>{{range .}}{{template "node" .}}{{end}}</ul>{{end}}</li>{{end}}
`))

// home is the main listener's page, at / and at /graph, where every alert's link points: of each
// query of the link its value, a plot, and how it is answered. What it asks goes the road of all
// queries, under the same bounds.
func (s *Server) home(w http.ResponseWriter, r *http.Request) {
	st := s.acquire()
	defer st.release()
	data := map[string]any{
		"Title": "Spillway", "Version": s.shownVersion(), "Groups": len(st.top.Groups), "Shards": st.shards, "Prefix": s.opts.RoutePrefix,
		"Range": model.Duration(graphRange).String(),
		"First": "", "Moment": "",
	}
	if data["Base"] = s.opts.ExternalURL; s.opts.ExternalURL == "" {
		data["Base"] = "http://" + r.Host + s.opts.RoutePrefix
	}
	if q, err := url.ParseQuery(r.URL.RawQuery); err == nil {
		var all []shown
		for i := range graphExprs {
			prefix := "g" + strconv.Itoa(i) + "."
			expr, m := q.Get(prefix+"expr"), readMoment(q, prefix, s.now())
			if i == 0 {
				if data["First"], data["Range"] = expr, model.Duration(m.span).String(); m.set {
					data["Moment"] = m.at.Format(time.DateTime)
				}
			}
			if expr = strings.TrimSpace(expr); expr != "" {
				all = append(all, s.show(r, expr, m))
			}
		}
		data["Shown"] = all
	}
	writePage(w, homePage, data)
}

// unknownVersion is what a build is called that nobody gave a version.
const unknownVersion = "unknown"

// shownVersion is the version as a heading has it: nothing, where it is not known.
func (s *Server) shownVersion() string {
	if s.opts.Version == unknownVersion {
		return ""
	}
	return s.opts.Version
}

func writePage(w http.ResponseWriter, t *template.Template, data any) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
	boundAnswer(w)
	_ = t.Execute(w, data) // the client may be gone
}
