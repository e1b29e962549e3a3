package ruler

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/spillwayproject/spillway/proxy/config"
)

// queryFile is what is read of query.yaml.
type queryFile struct {
	Static []string `yaml:"static_configs"`
	Scheme string
	HTTP   struct {
		Transport struct {
			Header int64 `yaml:"response_header_timeout"` // nanoseconds
		} `yaml:"transport_config"`
	} `yaml:"http_config"`
}

// TestQueryFile: one address, and a wait for it that has an end: after Spillway's own, whose
// sentence says what is wrong, and within the four minutes after which what fires is over.
func TestQueryFile(t *testing.T) {
	text, err := File("query.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var got []queryFile
	if err := yaml.Unmarshal([]byte(text), &got); err != nil || len(got) != 1 || len(got[0].Static) != 1 {
		t.Fatalf("%+v, %v: want one address, since Thanos goes on to the next one after an error", got, err)
	}
	if got[0].Static[0] != "spillway-rules.monitoring.svc:9090" || got[0].Scheme != "http" {
		t.Errorf("asks %+v", got[0])
	}
	c, err := config.Load("spillway.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if wait := time.Duration(got[0].HTTP.Transport.Header); wait <= c.Limits.Timeout || wait > time.Minute {
		t.Errorf("the ruler waits %s for an answer, Spillway takes %s at most", wait, c.Limits.Timeout)
	}
	args, err := Args("thanos-rule")
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(args, "\n")
	if !strings.Contains(all, "--query.config-file=/etc/ruler/query.yaml\n") || strings.Contains(all, "--query=") {
		t.Error("thanos rule does not read query.yaml, or is given an address beside it")
	}
}

// TestHung: a query that is never answered, as by a Spillway that is stopped or whose node is gone
// behind a connection that nobody ends, is a rule that fails, and the group goes on.
func TestHung(t *testing.T) {
	var hung atomic.Bool
	var waiting atomic.Int32
	done := make(chan struct{})
	query := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hung.Load() {
			waiting.Add(1)
			<-done
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"status":"success","data":{"resultType":"vector","result":[{"metric":{"cluster":"jaguar"},"value":[1,"1"]}]}}`)
	}))
	defer query.Close()
	defer close(done)
	store := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer store.Close()
	r, err := StartRule(t.Context(), RuleOptions{
		Name: "ruler-0", Query: query.URL, Store: store.URL, TimeScale: 30,
		RuleFiles: []string{writeFile(t, "fleet.yaml", `
groups:
  - name: fleet
    interval: 1s
    rules:
      - {alert: FleetNodesNotReady, expr: 'cluster:nodes_not_ready:ratio > 0.1', labels: {severity: critical}}
`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	stopAtEnd(t, "thanos rule", r, r.Log)
	health := func() string {
		var m struct {
			Data struct {
				Groups []struct {
					Name  string
					Rules []struct{ Health, LastError string }
				}
			}
		}
		if err := get(t, r.URL()+"/api/v1/rules", &m); err != nil {
			return err.Error()
		}
		for _, g := range m.Data.Groups {
			if g.Name == "fleet" && len(g.Rules) == 1 {
				return g.Rules[0].Health
			}
		}
		return "no group fleet"
	}
	is := func(want string) func() string {
		return func() string {
			if got := health(); got != want {
				return got
			}
			return ""
		}
	}
	wait(t, "the rule is evaluated", 30*time.Second, is("ok"))
	hung.Store(true)
	wait(t, "the rule fails", 75*time.Second, is("err"))
	wait(t, "it is asked again", 15*time.Second, func() string {
		if n := waiting.Load(); n < 2 {
			return fmt.Sprintf("asked %d times", n)
		}
		return ""
	})
	hung.Store(false)
	wait(t, "it is well again", 75*time.Second, is("ok"))
}
