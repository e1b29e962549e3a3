package server

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/localprom"
)

// sortedRows are those of an answer, in an order: instant vectors have none.
func sortedRows(body []byte) string {
	rows := strings.Split(strings.TrimSuffix(strings.TrimSpace(string(body)), "]}}"), `,{"metric":`)
	if head, first, ok := strings.Cut(rows[0], `{"metric":`); ok {
		rows[0] = first
		slices.Sort(rows)
		rows = append(rows, head)
	}
	return strings.Join(rows, "\n")
}

// serverWith is the URL of a server that holds what a script of promtool's tests loads from start
// on.
func serverWith(t *testing.T, script string, start time.Time, features ...string) string {
	t.Helper()
	p, err := localprom.Start(t.Context(), localprom.Options{DisableWAL: true, Features: features})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	if err := p.LoadAt(script, start); err != nil {
		t.Fatal(err)
	}
	return p.URL()
}

// TestAlertsThatEveryShardEvaluates: a watchdog fires on each shard with the same labels, which is
// one series in a server that holds everything. It must be counted once, and is no fault to warn
// of.
func TestAlertsThatEveryShardEvaluates(t *testing.T) {
	start := time.Now().Add(-20 * time.Minute).Truncate(time.Minute)
	serve := func(series string) string { return serverWith(t, "load 1m\n"+series, start) }
	const everywhere = `  ALERTS{alertname="Watchdog",alertstate="firing",severity="none"} 1x15
  ALERTS{alertname="ProxyDown",alertstate="firing",severity="critical"} _x5 1x10
`
	of := func(node string) string {
		return fmt.Sprintf("  ALERTS{alertname=\"DiskFull\",alertstate=\"firing\",severity=\"critical\",node=%q} 1x15\n  up{node=%[1]q} 1x15\n", node)
	}
	// The time since when an alert is there differs: each shard has begun at its own moment.
	since := func(at string) string {
		return `  ALERTS_FOR_STATE{alertname="Watchdog",severity="none"} ` + at + "x15\n"
	}
	one := serve(everywhere + of("a") + of("b") + since("1000"))
	text := "groups: [{name: jaguar, shard_by: [node], shards: ["
	for i, node := range []string{"a", "b"} {
		text += fmt.Sprintf("{replicas: [{url: %q}]},", serve(everywhere+of(node)+since(fmt.Sprint(1000+i))))
	}
	_, base := startProxy(t, t.Context(), text+"]}]\n")
	r := &rig{t: t, client: newClient(t)}
	get := func(u string) *reply {
		req, err := http.NewRequest(http.MethodGet, u, nil)
		if err != nil {
			t.Fatal(err)
		}
		return r.ask(req)
	}
	now, then := stamp(start.Add(14*time.Minute)), stamp(start.Add(8*time.Minute))
	for _, query := range []string{
		`ALERTS`, `count(ALERTS)`, `sum by (severity) (ALERTS{alertstate="firing"})`, `count(ALERTS_FOR_STATE)`,
		`sum(count_over_time(ALERTS{severity="critical"}[10m]))`, `count({alertname="Watchdog",alertstate!=""})`,
		`count({__name__=~"ALERTS|up",severity=""})`, `count({__name__=~"ALERTS|up"})`, `sum by (severity) ({__name__=~"up|ALERTS"})`, `group by (alertname) (ALERTS) unless ALERTS{alertname="ProxyDown"}`,
		`count by (node) (ALERTS)`, `sum(up) + on () count(ALERTS)`, `max(avg_over_time(count(ALERTS)[5m:1m]))`,
	} {
		for _, at := range []string{"query?time=" + now, "query_range?step=60&start=" + then + "&end=" + now} {
			ask := "/api/v1/" + at + "&query=" + url.QueryEscape(query)
			got, want := get(base+ask), get(one+ask)
			if got.status != 200 || sortedRows(got.body) != sortedRows(want.body) {
				t.Errorf("%s: %s\nwant %s", ask, got, want)
			}
		}
	}
}
