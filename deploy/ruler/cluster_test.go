package ruler

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/fakeshard"
	"github.com/spillwayproject/spillway/proxy/server/servertest"
)

// TestRulerOfEachCluster: a ruler that asks as a tenant whose matcher is one cluster goes on while
// another cluster is away, since Spillway asks the group of that one alone; one that asks for all
// fails. The rules are the same: the matcher is put into each selector.
func TestRulerOfEachCluster(t *testing.T) {
	jaguar := fakeshard.Start(t, fakeshard.Config{Series: []map[string]string{{"__name__": "up", "job": "etcd", "instance": "a:2381"}}})
	tokens := map[string]string{}
	for _, who := range []string{"all", "jaguar", "ibis"} {
		tokens[who] = writeFile(t, who, "token-of-"+who)
	}
	base, _ := servertest.Start(t, fmt.Sprintf(`
groups:
  - {name: jaguar, labels: {cluster: jaguar}, shards: [{replicas: [{url: %q}]}]}
  - {name: ibis, labels: {cluster: ibis}, shards: [{replicas: [{url: "http://127.0.0.1:1"}]}]} # behind a tunnel that is down
tenants:
  - {name: ruler, bearer_token_file: %q}
  - {name: ruler-jaguar, bearer_token_file: %q, matchers: ['{cluster="jaguar"}']}
  - {name: ruler-ibis, bearer_token_file: %q, matchers: ['{cluster="ibis"}']}
partial_response: abort
`, jaguar.URL(), tokens["all"], tokens["jaguar"], tokens["ibis"]))
	store := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer store.Close()
	rules := writeFile(t, "etcd.yaml", `
groups:
  - name: etcd
    interval: 1s
    rules:
      - {alert: EtcdUp, expr: 'max by (cluster) (up{job="etcd"}) > 0', labels: {severity: critical}}
`)
	type group struct {
		Name  string
		Rules []struct {
			Health, LastError string
			Alerts            []activeAlert
		}
	}
	for who, want := range map[string]string{
		"jaguar": "ok firing for jaguar", "ibis": "err", "all": "err",
	} {
		r, err := StartRule(t.Context(), RuleOptions{
			Name: "ruler-" + who, Query: base, Store: store.URL, TimeScale: 30, RuleFiles: []string{rules}, TokenFile: tokens[who],
		})
		if err != nil {
			t.Fatal(err)
		}
		stopAtEnd(t, "the ruler of "+who, r, r.Log)
		wait(t, "the ruler of "+who+" is "+want, 60*time.Second, func() string {
			var m struct{ Data struct{ Groups []group } }
			if err := get(t, r.URL()+"/api/v1/rules", &m); err != nil {
				return err.Error()
			}
			var got []string
			for _, g := range m.Data.Groups {
				if g.Name != "etcd" {
					continue
				}
				for _, rule := range g.Rules {
					got = append(got, rule.Health)
					for _, a := range rule.Alerts {
						got = append(got, a.State+" for "+a.Labels["cluster"])
					}
				}
			}
			if strings.Join(got, " ") != want {
				return fmt.Sprint(got)
			}
			return ""
		})
	}
}
