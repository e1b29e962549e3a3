package operation

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/internal/fakeshard"
)

// TestKilledDuringAQuery: the built program is killed, as for want of memory, while it answers a
// query, again and again. After each start what was under way is refused at once and reaches no
// shard, everything else is answered, and a request that whoever runs it lets pass is answered too.
func TestKilledDuringAQuery(t *testing.T) {
	t.Parallel()
	const poison = `sum(rate(poison[5m]))`
	shard := fakeshard.Start(t, fakeshard.Config{
		Series: []map[string]string{{"__name__": "up", "instance": "a"}},
		Routes: []fakeshard.Route{{Path: "/api/v1/query", Query: poison, Script: "stall"}},
	})
	dir := t.TempDir()
	file := filepath.Join(dir, "spillway.yaml")
	replace(t, file, fmt.Sprintf("groups: [{name: heron, shards: [{replicas: [{url: %q}]}]}]\nstate_dir: state\n", shard.URL()))
	ask := func(p *program, query string) (int, string) {
		t.Helper()
		status, body, err := get(p.client, p.main+"/api/v1/query?query="+strings.ReplaceAll(query, " ", "%20"))
		if err != nil {
			t.Fatal(err)
		}
		return status, string(body)
	}
	poisoned := func() (n int) {
		for _, r := range shard.RequestsTo("/api/v1/query") {
			if r.Form.Get("query") == poison {
				n++
			}
		}
		return n
	}
	// A slot is cleared a moment after its request has ended.
	cleared := func() bool {
		b, err := os.ReadFile(filepath.Join(dir, "state", "running.journal"))
		return err == nil && !strings.Contains(string(b), `"t":"up"`)
	}
	// A request may have reached its shard before it is written.
	written := func() bool {
		b, err := os.ReadFile(filepath.Join(dir, "state", "running.journal"))
		return err == nil && strings.Contains(string(b), poison)
	}
	p := start(t, file, "", nil)
	if status, body := ask(p, "up"); status != http.StatusOK {
		t.Fatal(body)
	}
	for kill := 1; kill <= 3; kill++ {
		go func(p *program) { // ends with the program
			_, _, _ = get(p.client, p.main+"/api/v1/query?query="+poison)
		}(p)
		if kill == 1 && !eventually(func() bool { return poisoned() == 1 && written() }) {
			t.Fatal("the shard was not asked, or the request does not stand in the journal")
		}
		if !eventually(cleared) {
			t.Fatal("a request that has ended still stands in the journal")
		}
		p.Kill()
		p = start(t, file, "", nil)
		status, body := ask(p, poison)
		if status != http.StatusServiceUnavailable || !strings.Contains(body, `"bound":"quarantine"`) ||
			!strings.Contains(body, "when Spillway was killed") {
			t.Errorf("after kill %d: %d %s", kill, status, body)
		}
		if n := poisoned(); n != 1 {
			t.Errorf("after kill %d the shard was asked %d times", kill, n)
		}
		if status, body := ask(p, "up"); status != http.StatusOK {
			t.Errorf("after kill %d: up: %d %s", kill, status, body)
		}
	}
	if got := p.metrics()[`spillway_deny_rules{source="crash"}`]; got != 1 {
		t.Errorf("%g requests are suspected, want 1", got)
	}
	_, list, err := get(p.client, p.admin+"/api/spillway/v1/deny")
	if err != nil {
		t.Fatal(err)
	}
	_, name, _ := strings.Cut(string(list), `"name":"`)
	name, _, _ = strings.Cut(name, `"`)
	req, err := http.NewRequest(http.MethodDelete, p.admin+"/api/spillway/v1/deny/"+name, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := p.client.Do(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%v: %+v", err, resp)
	}
	_ = resp.Body.Close()
	if err := shard.Set(""); err != nil {
		t.Fatal(err)
	}
	if status, body := ask(p, poison); status != http.StatusOK {
		t.Errorf("let pass: %d %s", status, body)
	}
}
