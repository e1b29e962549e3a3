package docs_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/spillwayproject/spillway/"

// own are the packages of Spillway that each of these may import: the road goes forward, and a leaf
// stays one. An entry that is not used any more is an error, so that the table says how it is.
var own = map[string][]string{
	"proxy/qerr":       {},
	"proxy/identity":   {},
	"proxy/answer":     {},
	"proxy/ui":         {},
	"internal/clip":    {},
	"internal/nearest": {},
	"internal/version": {},
	"internal/oauth":   {},
	"proxy/endpoint":   {"internal/clip", "proxy/qerr"},
	"proxy/config":     {"internal/clip", "internal/nearest", "internal/plainfile", "proxy/deny", "proxy/endpoint"},
	"proxy/deny":       {"internal/plainfile", "internal/tree"},
	"proxy/journal":    {"internal/clip", "internal/plainfile"},
	"proxy/discovery":  {"internal/clip", "proxy/config"},
	"proxy/tenant": {
		"internal/oauth", "internal/plainfile", "internal/tree", "proxy/config", "proxy/endpoint", "proxy/identity", "proxy/qerr",
	},
	"proxy/policy":      {"internal/clip", "internal/tree", "proxy/endpoint", "proxy/qerr"},
	"proxy/admit":       {"proxy/qerr"},
	"proxy/merge":       {"internal/clip", "internal/version", "proxy/admit", "proxy/qerr"},
	"proxy/coalesce":    {"proxy/admit"},
	"proxy/evaluation":  {"internal/tree", "proxy/policy", "proxy/qerr"},
	"proxy/cost":        {"internal/tree", "proxy/policy"},
	"proxy/heap":        {"proxy/admit", "proxy/policy", "proxy/qerr"},
	"proxy/dropped":     {"internal/clip", "internal/plainfile"},
	"proxy/attribution": {"internal/clip"},
	"proxy/live":        {"internal/clip", "proxy/qerr"},
	"proxy/usage":       {"internal/clip", "internal/tree"},
	"proxy/console": {
		"internal/clip", "proxy/admit", "proxy/attribution", "proxy/deny", "proxy/live", "proxy/shard", "proxy/ui",
	},
	"proxy/shard/h1": {},
	"proxy/vitals":   {},
	"proxy/trust":    {"internal/clip", "proxy/config", "proxy/endpoint"},
	"proxy/thanos":   {"internal/clip", "proxy/config", "proxy/endpoint", "proxy/trust"},
	"proxy/shard": {
		"internal/clip", "internal/oauth", "internal/timers", "internal/version", "proxy/admit", "proxy/config", "proxy/endpoint",
		"proxy/identity", "proxy/qerr", "proxy/shard/h1", "proxy/thanos", "proxy/trust", "proxy/vitals",
	},
	"proxy/rewrite":  {"internal/clip", "internal/tree", "proxy/endpoint", "proxy/policy"},
	"proxy/plan/raw": {"proxy/qerr"},
	"proxy/plan":     {"internal/tree", "proxy/admit", "proxy/endpoint", "proxy/merge", "proxy/plan/raw", "proxy/qerr", "proxy/shard"},
	"proxy/weigh": {
		"internal/clip", "internal/tree", "proxy/admit", "proxy/answer", "proxy/cost", "proxy/endpoint", "proxy/merge", "proxy/plan",
		"proxy/policy", "proxy/qerr", "proxy/shard",
	},
	"relabel/uses":   {"internal/plainfile", "proxy/endpoint", "proxy/usage"},
	"relabel/config": {"internal/plainfile"},
}

// never are packages that must not be imported, by themselves or as a prefix, each with the reason.
var never = []struct{ who, what, why string }{
	{"proxy/", "net/http/httputil", "requests are rebuilt, never forwarded"},
	{"proxy/", "unsafe", "no reason is good enough here"},
	{"proxy/", module + "loadtest", "the laboratory uses the product, not the other way round"},
	{"proxy/", module + "internal/localprom", "a product that embeds its test servers"},
	{"proxy/", module + "internal/fakeshard", "a product that embeds its test servers"},
	{"proxy/", module + "internal/realprom", "a product that starts its test servers"},
	{"relabel/", module + "internal/localprom", "a product that embeds its test servers"},
	{"relabel/", module + "proxy/server", "a plan is made without a proxy"},
	{"proxy/endpoint", "github.com/prometheus/prometheus/promql", "PromQL is parsed only after policy's scan of the text"},
	{"proxy/endpoint", "github.com/prometheus/prometheus/web", "the API of Prometheus brings the whole server with it"},
	{"proxy/endpoint", "github.com/prometheus/prometheus/storage", "remote read is decoded here under caps that the storage package lacks"},
	{"proxy/endpoint", "github.com/prometheus/client_golang", "the server counts; parsing has no state"},
	{"proxy/endpoint", "log", "the server logs a request, once"},
	{"proxy/endpoint", "encoding/json", "the API takes no JSON"},
	{"proxy/endpoint", "regexp", "a client's text is never a pattern here"},
	{"proxy/identity", "github.com", "who asks is told by headers; nothing else is needed"},
	{"proxy/merge", "net/http", "a merge reads from readers and writes to writers; who is at the other end is not its business"},
	{"proxy/merge", "github.com/prometheus/prometheus/web", "Prometheus' codec is what the tests compare with, and pulls in a server"},
	{"proxy/merge", "github.com/prometheus/prometheus/tsdb", "nothing is stored here"},
	{"proxy/merge", "github.com/prometheus/prometheus/storage", "nothing is evaluated here"},
	{"proxy/merge", "github.com/json-iterator", "the scanner bounds what it reads; jsoniter does not"},
	{"proxy/trust", "net/http", "who has the servers asks them"},
	{"proxy/vitals", "net/http", "who has the servers asks them"},
	{"proxy/thanos", "net/http", "who has the servers asks them"},
	{"proxy/config", "k8s.io/client-go", "who reads a configuration asks no API server"},
	{"proxy/server", "k8s.io", "proxy/discovery asks API servers"},
	{"proxy/shard", "k8s.io", "proxy/discovery asks API servers"},
	{"proxy/shard", "github.com/prometheus/prometheus/promql", "shards evaluate, shard only asks"},
	{"proxy/shard", "github.com/prometheus/prometheus/tsdb", "nothing is stored here"},
}

// TestImports holds the packages to their places.
func TestImports(t *testing.T) {
	cmd := exec.Command("go", "list", "-f", "{{.ImportPath}} {{join .Imports \" \"}}", "./...")
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	imports := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		imports[strings.TrimPrefix(f[0], module)] = f[1:]
	}
	for room, allowed := range own {
		all, ok := imports[room]
		if !ok {
			t.Errorf("%s is in the table and is no package", room)
		}
		var used []string
		for _, path := range all {
			rest, ours := strings.CutPrefix(path, module)
			if !ours {
				continue
			}
			used = append(used, rest)
			if !slices.Contains(allowed, rest) {
				t.Errorf("%s imports %s", room, rest)
			}
		}
		for _, name := range allowed {
			if !slices.Contains(used, name) {
				t.Errorf("%s may import %s and does not: take it out of the table", room, name)
			}
		}
	}
	for _, no := range never {
		if rest, ours := strings.CutPrefix(no.what, module); ours &&
			!slices.ContainsFunc(packages(imports), func(p string) bool { return p == rest || strings.HasPrefix(p, rest+"/") }) {
			t.Errorf("%s is forbidden to %s and is not there any more", rest, no.who)
		}
		found := false
		for room, all := range imports {
			if room != strings.TrimSuffix(no.who, "/") && !strings.HasPrefix(room, strings.TrimSuffix(no.who, "/")+"/") ||
				strings.HasSuffix(room, "test") {
				continue
			}
			found = true
			for _, path := range all {
				if path == no.what || strings.HasPrefix(path, no.what+"/") {
					t.Errorf("%s imports %s: %s", room, path, no.why)
				}
			}
		}
		if !found {
			t.Errorf("there is no package %s", no.who)
		}
	}
}

func packages(imports map[string][]string) (all []string) {
	for p := range imports {
		all = append(all, p)
	}
	return all
}

// laboratory is what cmd/spillway must not link: the binary that stands before production servers
// has no laboratory, no plots and no embedded server in it.
var laboratory = []string{
	module + "loadtest", module + "internal/lab", module + "internal/demo", module + "internal/localprom", module + "internal/realprom",
	module + "internal/realkube", module + "internal/fakeshard",
	module + "alerts/live", module + "alerts/soak",
	module + "dashboards/live", module + "grafana-plugin/pkg", module + "deploy/ruler", module + "proofs",
	"gonum.org/v1/plot", "github.com/prometheus/prometheus/web",
	"helm.sh/helm", "k8s.io/pod-security-admission", "github.com/prometheus-operator/prometheus-operator", "sigs.k8s.io/gateway-api",
}

// TestProductLinksNoLaboratory looks at the whole closure; and that the laboratory's own does have
// these, so that no name here is of something that is gone.
func TestProductLinksNoLaboratory(t *testing.T) {
	closure := func(packages ...string) []string {
		cmd := exec.Command("go", append([]string{"list", "-deps"}, packages...)...)
		cmd.Dir = ".."
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(string(out))
	}
	all, product := closure("-test", "./..."), closure("./cmd/spillway")
	if len(product) < 200 {
		t.Fatalf("go list names %d packages", len(product))
	}
	for _, name := range laboratory {
		within := func(p string) bool { return p == name || strings.HasPrefix(p, name+"/") }
		if !slices.ContainsFunc(all, within) {
			t.Errorf("%s is forbidden and is nowhere any more", name)
		}
		for _, p := range product {
			if within(p) {
				t.Errorf("cmd/spillway links %s", p)
			}
		}
	}
}

// TestProductKnowsTimeZones: the image has no zoneinfo, so spillway brings its own for --timezone.
func TestProductKnowsTimeZones(t *testing.T) {
	cmd := exec.Command("go", "list", "-deps", "./cmd/spillway")
	cmd.Dir = ".."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(strings.Fields(string(out)), "time/tzdata") {
		t.Error("cmd/spillway does not link time/tzdata: spillway cost --timezone would take nothing but UTC in the image")
	}
}
