package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/internal/realprom"
	"github.com/spillwayproject/spillway/internal/realprom/realpromtest"
)

// sender is a Prometheus with these scrape pools, which sends alerts to some Alertmanagers and
// whose relabelling drops others.
type sender struct{ pools, sends, drops []string }

// promConfig is the configuration of a Prometheus that is all of these.
func promConfig(senders ...sender) string {
	pools := map[string]bool{}
	alerting, scrapes := "", ""
	for _, s := range senders {
		for _, p := range s.pools {
			if !pools[p] {
				scrapes += fmt.Sprintf("  - {job_name: %q, static_configs: [{targets: ['127.0.0.1:1']}]}\n", p)
			}
			pools[p] = true
		}
		alerting += fmt.Sprintf("    - static_configs: [{targets: ['%s']}]\n", strings.Join(slices.Concat(s.sends, s.drops), "', '"))
		if len(s.drops) > 0 {
			alerting += fmt.Sprintf("      relabel_configs: [{source_labels: [__address__], regex: '%s', action: drop}]\n", strings.Join(s.drops, "|"))
		}
	}
	return "global: {scrape_interval: 1h}\nalerting:\n  alertmanagers:\n" + alerting + "scrape_configs:\n" + scrapes
}

// wireAlertmanagers is the data of alertmanagers.
type wireAlertmanagers struct {
	ActiveAlertmanagers, DroppedAlertmanagers []struct{ URL string }
}

// TestListsOfServers: scrape pools and Alertmanagers over real servers, two replicas and another
// shard, are those that one server with the configuration of all three has.
func TestListsOfServers(t *testing.T) {
	all := []sender{
		{[]string{"node", "kubelet"}, []string{"127.0.0.1:1", "127.0.0.1:2"}, []string{"127.0.0.1:3"}},
		{[]string{"node", "kubelet"}, []string{"127.0.0.1:2"}, []string{"127.0.0.1:1", "127.0.0.1:3"}}, // other than its replica
		{[]string{"node", "API <é>"}, []string{"127.0.0.1:4"}, nil},
	}
	var urls []string
	for _, s := range all {
		urls = append(urls, realpromtest.Start(t, realprom.Options{Config: promConfig(s)}).URL())
	}
	one := realpromtest.Start(t, realprom.Options{Config: promConfig(all...)}).URL()
	_, base := startProxy(t, t.Context(), fmt.Sprintf(
		"groups: [{name: jaguar, labels: {cluster: jaguar}, shards: [{replicas: [{url: %q}, {url: %q}]}, {replicas: [{url: %q}]}]}]\n",
		urls[0], urls[1], urls[2]))
	r := &rig{t: t, client: newClient(t)}
	list := func(base string) (a wireAlertmanagers) {
		got := r.get(base + "/api/v1/alertmanagers")
		if err := json.Unmarshal(got.message.Data, &a); err != nil || got.status != 200 || len(got.message.Warnings) > 0 {
			t.Errorf("%v: %s", err, got)
		}
		return a
	}
	r.eventually("the servers know their targets", func() bool {
		a := list(one)
		pools := r.get(one + "/api/v1/scrape_pools")
		whole := len(a.ActiveAlertmanagers) == 4 && len(a.DroppedAlertmanagers) == 3 && bytes.Count(pools.body, []byte(`"`)) == 14
		for i, u := range urls {
			b := list(u)
			whole = whole && len(b.ActiveAlertmanagers) == len(all[i].sends) && len(b.DroppedAlertmanagers) == len(all[i].drops) &&
				bytes.Contains(r.get(u+"/api/v1/scrape_pools").body, []byte(`"node"`))
		}
		return whole
	})
	got, want := r.get(base+"/api/v1/scrape_pools"), r.get(one+"/api/v1/scrape_pools")
	if got.status != 200 || !bytes.Equal(got.body, want.body) {
		t.Errorf("%s\nwant %s", got, want)
	}
	alike := list(one)
	for _, l := range []*[]struct{ URL string }{&alike.ActiveAlertmanagers, &alike.DroppedAlertmanagers} {
		slices.SortFunc(*l, func(a, b struct{ URL string }) int { return strings.Compare(a.URL, b.URL) })
		*l = slices.Compact(*l)
	}
	if a := list(base); !reflect.DeepEqual(a, alike) || len(a.ActiveAlertmanagers) != 3 || len(a.DroppedAlertmanagers) != 2 {
		t.Errorf("%+v\nwant %+v", a, alike)
	}
}

// TestNotifications: the list is empty, and nobody is asked for it.
func TestNotifications(t *testing.T) {
	r := newRig(t, []rigGroup{{"heron", false, []int{1}}}, limits(ample))
	if got := r.get(r.url + "/api/v1/notifications"); got.status != 200 || string(got.body) != `{"status":"success","data":[]}` {
		t.Errorf("%s", got)
	}
	resp, err := answered(t, r.client, http.MethodPost, r.url+"/api/v1/notifications")
	if err != nil || resp.StatusCode != 405 || resp.Header.Get("Allow") != "GET" {
		t.Errorf("POST: %v %+v", err, resp)
	}
	for path, want := range map[string]string{
		"/api/v1/notifications/live":    "/api/v1/notifications is always empty",
		"/api/v1/scrape_pools/config":   "/api/v1/scrape_pools",
		"/api/v1/targets/relabel_steps": "/api/v1/targets",
		"/api/v1/status/tsdb/blocks":    "/api/v1/status/tsdb",
		"/api/v1/status/self_metrics":   "/metrics of the admin listener",
	} {
		if got := r.get(r.url + path); got.status != 404 || !strings.Contains(got.message.Spillway.Advice, want) {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	if got := r.asked(); len(got) > 0 {
		t.Errorf("shards were asked: %q", got)
	}
}
