package server

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// makingRig is a proxy over shards that hold so many series of up each, with a label pod of so many
// bytes.
func makingRig(t *testing.T, shards, series, bytes int) (base string, fakes []*fakeshard.Shard) {
	t.Helper()
	config := "groups:\n  - name: heron\n    shards:\n"
	for i := range shards {
		var held []map[string]string
		for j := range series {
			pod := fmt.Sprintf("%d-%d-", i, j)
			held = append(held, map[string]string{"__name__": "up", "pod": pod + strings.Repeat("a", max(0, bytes-len(pod)))})
		}
		s := fakeshard.Start(t, fakeshard.Config{Series: held})
		fakes = append(fakes, s)
		config += fmt.Sprintf("      - replicas: [{url: %q}]\n", s.URL())
	}
	_, base = startProxy(t, t.Context(), config+limits(ample))
	return base, fakes
}

// instant asks for a query and returns the status, the bound and the sentence.
func instant(t *testing.T, base, text string) (code int, bound, sentence string, body []byte) {
	t.Helper()
	code, body = ask(t, base, "/api/v1/query", url.Values{"query": {text}})
	var e struct {
		Error    string
		Spillway struct{ Bound string }
	}
	if err := json.Unmarshal(body, &e); err != nil {
		t.Fatalf("%v: %.300s", err, body)
	}
	return code, e.Spillway.Bound, e.Error, body
}

// made are the questions of clients that reached a shard and make labels there.
func made(fakes []*fakeshard.Shard) (out []string) {
	for _, s := range fakes {
		for _, r := range s.Requests() {
			if text := r.Form.Get("query"); strings.Contains(text, "label_replace") || strings.Contains(text, "label_join") {
				out = append(out, text)
			}
		}
	}
	return out
}

// TestMuchMadeIsNotForShards: a shard may hold a million series, so what makes much of each is
// evaluated over those that are read, whose number is bounded; what makes little goes on to run on
// the shard.
func TestMuchMadeIsNotForShards(t *testing.T) {
	base, fakes := makingRig(t, 1, 5, 20)
	for _, text := range []string{
		`label_replace(up,"x","` + strings.Repeat("b", 2000) + `","","")`,
		`count(label_join(up,"x","` + strings.Repeat("b", 2000) + `","pod","pod"))`,
		`label_replace(up,"x","$1","pod","` + strings.Repeat(".*a", 100) + `.*")`,
	} {
		if code, _, sentence, body := instant(t, base, text); code != 200 || !strings.Contains(string(body), `"value"`) {
			t.Errorf("%.60s: %d %s", text, code, sentence)
		}
		if got := made(fakes); len(got) > 0 {
			t.Errorf("the shard was asked for %.80s", got[0])
		}
	}
	if code, _, sentence, _ := instant(t, base, `label_replace(up,"x","$1","pod","(.*)-.*")`); code != 200 || len(made(fakes)) != 1 {
		t.Errorf("%d %s: the shard was asked %d times for a label that a dashboard makes", code, sentence, len(made(fakes)))
	}
}

// fakeThanos is a Thanos Query with one store, of one cluster.
func fakeThanos(t *testing.T, cluster string, more ...fakeshard.Route) *fakeshard.Shard {
	return fakeshard.Start(t, fakeshard.Config{
		Version: "0.42.4", Flags: map[string]string{
			"query.lookback-delta": "0s", "query.default-evaluation-interval": "1m",
			"query.timeout": "2m",
		},
		Series: []map[string]string{{"__name__": "up", "cluster": cluster, "pod": "a"}},
		Routes: append(more, []fakeshard.Route{
			{Path: "/api/v1/stores", Script: `header Content-Type application/json; send '{"status":"success","data":{"sidecar":[` +
				`{"name":"s1","lastCheck":"2026-10-01T00:00:00Z","lastError":null,"labelSets":[{"cluster":"` + cluster + `"}],"minTime":0,"maxTime":9223372036854775807}]}}'`},
			{Path: "/api/v1/status/config", Script: "status 404; send no"},
			{Path: "/api/v1/features", Script: "status 404; send no"},
		}...),
	})
}

// TestMuchMadeBehindThanos: a Thanos Query serves finished answers only, so what it must not make
// is made here of its answers, or refused.
func TestMuchMadeBehindThanos(t *testing.T) {
	fake := fakeThanos(t, "heron")
	_, base := startProxy(t, t.Context(), fmt.Sprintf("groups: [{name: heron, labels: {cluster: heron}, shards: [{replicas: [{url: %q, type: thanos}]}]}]\n", fake.URL())+limits(ample))
	fakes := []*fakeshard.Shard{fake}
	if code, _, sentence, _ := instant(t, base, `label_replace(up,"x","b","","")`); code != 200 || len(made(fakes)) != 1 {
		t.Fatalf("%d %s: asked %d times for a label that a dashboard makes", code, sentence, len(made(fakes)))
	}
	much := `label_replace(up,"x","` + strings.Repeat("b", 2000) + `","","")`
	if code, _, sentence, body := instant(t, base, much); code != 200 || !strings.Contains(string(body), "bbb") || len(made(fakes)) != 1 {
		t.Errorf("made here, of the server's answer at one time: %d %s; asked %d times", code, sentence, len(made(fakes)))
	}
	for _, text := range []string{much, `count_values("version", up)`, `max_over_time(` + much + `[10m:1m])`} {
		code, body := ask(t, base, "/api/v1/query_range",
			url.Values{"query": {text}, "start": {"1795000000"}, "end": {"1795000600"}, "step": {"60"}})
		if code != 200 || len(made(fakes)) != 1 {
			t.Errorf("made here, of the server's answer at each step: %d %.300s; asked %d times", code, body, len(made(fakes)))
		}
	}
	for _, r := range fake.Requests() {
		if text := r.Form.Get("query"); strings.Contains(text, "count_values") {
			t.Errorf("the server was asked for %s", text)
		}
	}
	code, body := ask(t, base, "/api/v1/query_range", url.Values{
		"query": {`max_over_time(` + much + `[10m:1m] @ end())`},
		"start": {"1795000000"}, "end": {"1795000600"}, "step": {"60"},
	})
	if code != 422 || !strings.Contains(string(body), `"bound":"thanos_raw"`) || len(made(fakes)) != 1 {
		t.Errorf("%d %.300s; asked %d times", code, body, len(made(fakes)))
	}
}

// TestMadeOfWhatIsRead: labels of the stored series are longer than was assumed, or the series
// many: known once they are read, and refused before they are evaluated.
func TestMadeOfWhatIsRead(t *testing.T) {
	base, _ := makingRig(t, 2, 300, 8<<10)
	for _, tc := range []struct{ name, text, bound string }{
		{"labels", `count(label_replace(up,"x","` + strings.Repeat("$1", 30) + `","pod","(.*)"))`, "label_bytes"},
		{
			"labels of an answer of shards", `label_replace(sum by (pod) (up),"x","` + strings.Repeat("$1", 30) + `","pod","(.*)")`,
			"label_bytes",
		},
		{"regular expressions", `count(label_replace(up,"x","$1","pod","(` + strings.Repeat(".*a", 50) + `)"))`, "regex_cost"},
	} {
		code, bound, sentence, _ := instant(t, base, tc.text)
		if code != 422 || bound != tc.bound || !strings.Contains(sentence, "the series that it reads") {
			t.Errorf("%s: %d %s %s", tc.name, code, bound, sentence)
		}
	}
	if code, _, sentence, _ := instant(t, base, `count(label_replace(up,"x","$1","pod","(.).*"))`); code != 200 {
		t.Errorf("%d %s", code, sentence)
	}
	// 36 MB by one, and both hold theirs at a time.
	base, _ = makingRig(t, 2, 100, 8<<10)
	half := `count(label_replace(up,"x","` + strings.Repeat("$1", 22) + `","pod","(.*)"))`
	if code, _, sentence, _ := instant(t, base, half); code != 200 {
		t.Errorf("one: %d %s", code, sentence)
	}
	if code, bound, _, _ := instant(t, base, half+"+"+half); code != 422 || bound != "label_bytes" {
		t.Errorf("two over one selector: %d %s", code, bound)
	}
}
