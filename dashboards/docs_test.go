package dashboards

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "writes docs/dashboards.md anew")

const docs = "../docs/dashboards.md"

// order is the one of the page: from the whole fleet to what watches it.
var order = []string{
	"fleet", "apiserver", "etcd", "gpu-fleet", "gpu-node", "gpu-use", "node", "network", "pending", "cost", "prometheus", "proxy",
	"cardinality", "alerts",
}

// TestDocs: docs/dashboards.md has every dashboard with a line on what each panel answers.
func TestDocs(t *testing.T) {
	if got := slices.Sorted(slices.Values(order)); !slices.Equal(got, Names()) {
		t.Fatalf("the page has %v, the folder %v", got, Names())
	}
	want, err := docsPage()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(docs, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(docs)
	if err != nil || string(got) != want {
		t.Errorf("%s is not what the dashboards say (%v): go test ./dashboards -run TestDocs -update", docs, err)
	}
	for _, name := range order {
		for _, kind := range pictures {
			if _, err := os.Stat("../docs/" + picture(name, kind.file)); err != nil {
				t.Errorf("%v: make pictures", err)
			}
		}
	}
}

var pictures = []struct{ file, text string }{
	{"dark", "quiet, dark"},
	{"light", "quiet, light"},
	{"dark-trouble", "trouble, dark"},
	{"light-trouble", "trouble, light"},
}

func picture(name, kind string) string { return "images/dashboards/" + name + "-" + kind + ".png" }

const head = `# Dashboards

<!-- Made by: go test ./dashboards -run TestDocs -update -->

Fourteen dashboards for Grafana 11 to 13, made from ` + "`jsonnet/`" + ` like the [alerts](alerts.md): ` + "`dashboards/*.json`" + ` is what it renders with its defaults, committed.

| you have | take |
| --- | --- |
| a Grafana | ` + "[deploy/grafana](../deploy/grafana/README.md)" + `: provisioning of the folder and the data source |
| the Grafana sidecar or the operator on Kubernetes | ` + "`spillway mixin render --format k8s --out DIR`" + `: ConfigMaps with the sidecar's label, GrafanaDashboard objects |
| other labels, thresholds, links | ` + "`spillway mixin render --config values.yaml --out DIR`" + ` |
| a jsonnet project, such as kube-prometheus | ` + "`import 'mixin.libsonnet'`" + `; they are its ` + "`grafanaDashboards`" + ` |
| no Grafana at hand | ` + "`make dashboards`" + `: all of them in a browser page over the demo, drawn by Grafana's own components (needs Node.js) |

All ask one data source, Spillway, with a cluster variable in every query, once a minute. What rules record must be recorded ([ruler.md](ruler.md)), and exporters be set up as
[exporters.md](exporters.md) says. No panel draws a line for each node: names come as the worst few, the rest as quantiles, heat maps and counts, and a click leads from the fleet to the
node, the GPU and the pod. Green, orange and red judge; other colours and dashes only tell series apart, and a name has the same ones everywhere. A panel that is rightly empty while all is well says so in its description, which is behind the
(i) beside its title.

[dashboards-by-trouble.md](dashboards-by-trouble.md) says which panels show which trouble; [performance.md](performance.md) what they cost at 7,500 nodes. The pictures are from the demo
(` + "`make pictures`" + `), with every trouble staged that goes together where it says trouble.

`

func docsPage() (string, error) {
	var b strings.Builder
	b.WriteString(head)
	for _, name := range order {
		d, err := Load(name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "## %s\n\n%s\n\n", d.Title, d.Description)
		fmt.Fprintf(&b, "![%s](%s)\n\n", d.Title, picture(name, "dark-trouble"))
		var links []string
		for _, k := range pictures {
			links = append(links, fmt.Sprintf("[%s](%s)", k.text, picture(name, k.file)))
		}
		fmt.Fprintf(&b, "Pictures: %s.\n\n| panel | what it says |\n| --- | --- |\n", strings.Join(links, ", "))
		for _, p := range d.Panels {
			if p.Type == "row" {
				if p.Title != "" {
					fmt.Fprintf(&b, "| **%s** | |\n", p.Title)
				}
				continue
			}
			says, _, _ := strings.Cut(p.Description, quietMark)
			fmt.Fprintf(&b, "| %s | %s |\n", p.Title, strings.ReplaceAll(strings.Join(strings.Fields(says), " "), "|", `\|`))
		}
		b.WriteString("\n")
	}
	return strings.TrimRight(b.String(), "\n") + "\n", nil
}
