package live

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spillwayproject/spillway/dashboards"
	mixin "github.com/spillwayproject/spillway/jsonnet"
	"github.com/spillwayproject/spillway/loadtest/cluster"
)

// Facts are what the mixin says of each panel, by dashboard and title.
type Facts = map[string]map[string]mixin.PanelFacts

// shown are the panels that a kind of trouble must change, by dashboard.
func shown(facts Facts) map[cluster.Kind]map[string][]string {
	out := map[cluster.Kind]map[string][]string{}
	for name, panels := range facts {
		for title, f := range panels {
			for _, k := range f.Trouble {
				if out[cluster.Kind(k)] == nil {
					out[cluster.Kind(k)] = map[string][]string{}
				}
				out[cluster.Kind(k)][name] = append(out[cluster.Kind(k)][name], title)
			}
		}
	}
	for _, by := range out {
		for _, titles := range by {
			slices.Sort(titles)
		}
	}
	return out
}

// Kinds are the troubles that at least one panel shows, sorted.
func Kinds(facts Facts) []cluster.Kind { return slices.Sorted(maps.Keys(shown(facts))) }

// WriteTable writes docs/dashboards-by-trouble.md.
func WriteTable(w io.Writer, facts Facts) error {
	var b strings.Builder
	b.WriteString(`# Troubles and the panels that show them

<!-- Made by: go test ./dashboards/live -run TestTable -update -->

Each trouble is staged on the simulated cluster; each panel beside it must then answer otherwise than it does at the same moment of the same cluster without the trouble. ` + "`make test`" + ` shows it
for three troubles, ` + "`make test-full`" + ` for all, on real Prometheus servers and through the proxy. What the second table says of real servers, ` + "`make test`" + ` stages on a ruler, an Alertmanager
and a proxy that are scraped. [alerts-by-trouble.md](alerts-by-trouble.md) says which alerts come.

| trouble | dashboard | panels that change |
| --- | --- | --- |
`)
	by := shown(facts)
	for _, k := range Kinds(facts) {
		trouble := string(k)
		for _, name := range slices.Sorted(maps.Keys(by[k])) {
			d, err := dashboards.Load(name)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, "| %s | [%s](dashboards.md) | %s |\n", trouble, d.Title,
				strings.ReplaceAll(strings.Join(by[k][name], "; "), "|", `\|`))
			trouble = ""
		}
	}
	b.WriteString("\n## Panels that are empty while all is well\n\n| dashboard | panel | because | shown with |\n| --- | --- | --- | --- |\n")
	for _, name := range slices.Sorted(maps.Keys(facts)) {
		d, err := dashboards.Load(name)
		if err != nil {
			return err
		}
		for _, title := range slices.Sorted(maps.Keys(facts[name])) {
			if f := facts[name][title]; f.Quiet != "" {
				with := strings.Join(f.Trouble, ", ")
				if with == "" {
					with = Elsewhere[name+": "+title]
				}
				fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", d.Title, title, f.Quiet, with)
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Elsewhere are panels that are empty while all is well and that no trouble of the simulated
// cluster fills, by dashboard and title: which trouble of real servers does. TestScrapedRuler
// stages each of them.
var Elsewhere = map[string]string{
	"alerts: Alerts in Alertmanager":                  "real servers: Alertmanager is scraped, and an alert fires",
	"alerts: Alerts that the ruler could not send":    "real servers: Alertmanager is gone",
	"alerts: Evaluations of the ruler":                "real servers: the ruler is scraped",
	"alerts: Groups whose evaluation fails":           "real servers: a rule joins with a series that is there twice",
	"alerts: Notifications that fail":                 "real servers: the receiver of notifications is gone",
	"proxy: Calls that fail, by replica":              "real servers: a replica breaks its connections",
	"proxy: Calls that outlive their request":         "real servers: clients leave while a shard keeps them waiting",
	"proxy: Groups whose servers do not fit together": "real servers: a replica is listed as a shard",
	"proxy: How long replicas have lacked something":  "real servers: a replica scrapes less than the other one",
	"proxy: Refusals by bound":                        "real servers: somebody asks for everything",
	"proxy: Refusals by endpoint and bound":           "real servers: somebody asks for everything",
	"proxy: Replicas that lack something":             "real servers: a replica scrapes less than the other one",
	"proxy: Replicas that need second tries":          "real servers: a replica breaks its connections",
	"proxy: Shards for which series are fetched":      "real servers: two replicas have no heartbeat",
	"proxy: Why series are fetched":                   "real servers: a replica is listed as a shard",
}
