package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// heard is an output that several goroutines write.
type heard struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (h *heard) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.b.Write(p)
}

func (h *heard) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.b.String()
}

// bundle is a folder with the least that is served.
func bundle(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "index.html"), []byte("the page"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// called is a file of one name.
func called(t *testing.T) string {
	t.Helper()
	at := filepath.Join(t.TempDir(), "names.json")
	if err := os.WriteFile(at, []byte(`["<b>x</b>"]`), 0o600); err != nil {
		t.Fatal(err)
	}
	return at
}

// folder has a plugin's plugin.json alone.
func folder(t *testing.T, manifest string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "plugin.json"), []byte(manifest), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Dashboards of two folders are one list, and each opens.
func TestUnion(t *testing.T) {
	u := union{
		fstest.MapFS{"b.json": {Data: []byte("1")}, "c.json": {Data: []byte("2")}},
		fstest.MapFS{"a.json": {Data: []byte("3")}, "b.json": {Data: []byte("4")}},
	}
	names, err := fs.Glob(u, "*.json")
	if err != nil || !slices.Equal(names, []string{"a.json", "b.json", "c.json"}) {
		t.Errorf("%q %v", names, err)
	}
	for name, want := range map[string]string{"a.json": "3", "b.json": "1", "c.json": "2"} {
		if got, err := fs.ReadFile(u, name); string(got) != want || err != nil {
			t.Errorf("%s: %q %v", name, got, err)
		}
	}
	if _, err := u.Open("d.json"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

func TestCommandLine(t *testing.T) {
	page := bundle(t)
	for name, c := range map[string]struct {
		args []string
		code int
		want string
	}{
		"an unknown flag":    {[]string{"--nonsense"}, 2, "nonsense"},
		"a wrong history":    {[]string{"--bundle=" + page, "--history=long"}, 1, "write a duration such as 1h"},
		"an unknown trouble": {[]string{"--bundle=" + page, "--trouble=Nonsense"}, 1, `no trouble "Nonsense"`},
		"trouble elsewhere":  {[]string{"--bundle=" + page, "--trouble=GPUHot", "--url=http://127.0.0.1:9090"}, 1, "staged in the demo"},
		"names of nobody":    {[]string{"--bundle=" + page, "--called=" + filepath.Join(page, "none.json")}, 1, "--called: open"},
		"names that are none": {
			[]string{"--bundle=" + page, "--called=" + filepath.Join(page, "index.html")},
			1,
			"holds no JSON list of names",
		},
		"names elsewhere": {
			[]string{"--bundle=" + page, "--called=" + called(t), "--url=http://127.0.0.1:9090"},
			1,
			"names experiments of the demo",
		},
		"no bundle":         {[]string{"--bundle=" + t.TempDir()}, 1, "not bundled"},
		"a size of no demo": {[]string{"--bundle=" + page, "--nodes=0"}, 1, "--nodes is 0"},
		"no plugin":         {[]string{"--bundle=" + page, "--plugin=" + t.TempDir()}, 1, "make plugin builds"},
		"another plugin": {
			[]string{"--bundle=" + page, "--plugin=" + folder(t, `{"id":"other","executable":"x"}`)},
			1,
			`is of "other"`,
		},
		"half a plugin": {[]string{"--bundle=" + page, "--plugin=" + folder(t, `{"id":"spillway-experiments-datasource","executable":"x"}`)}, 1, "not built for this machine"},
		"an address for all": {
			[]string{"--bundle=" + page, "--url=http://127.0.0.1:9090", "--web.listen-address=0.0.0.0:0"},
			1,
			"not on loopback",
		},
		"the list of trouble": {[]string{"--list-troubles"}, 0, "GPUHot\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out heard
			if code := run(t.Context(), c.args, &out, &out); code != c.code || !strings.Contains(out.String(), c.want) {
				t.Errorf("exit code %d, %q; want %d with %q", code, out.String(), c.code, c.want)
			}
		})
	}
}

// Over the demo: its API answers through the page, and the end of the context ends both.
func TestOverTheDemo(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var out heard
	done := make(chan int, 1)
	go func() {
		done <- run(ctx, []string{
			"--bundle=" + bundle(t), "--web.listen-address=127.0.0.1:0", "--groups=1", "--nodes=4", "--shards=1",
			"--history=5m", "--trouble=NodeDown",
		}, &out, &out)
	}()
	address := regexp.MustCompile(`dashboards +(http://\S+)`)
	deadline := time.Now().Add(2 * time.Minute)
	for address.FindStringSubmatch(out.String()) == nil {
		if time.Now().After(deadline) {
			t.Fatalf("no address:\n%s", out.String())
		}
		select {
		case code := <-done:
			t.Fatalf("it ended with %d:\n%s", code, out.String())
		case <-time.After(50 * time.Millisecond):
		}
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 30 * time.Second}
	resp, err := client.Get(address.FindStringSubmatch(out.String())[1] + `/api/v1/query?query=sum(kube_node_status_condition{condition="Ready",status="true"})`)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(body), `"3"`) {
		t.Errorf("nodes that are ready, of four with one down: %d %s %v", resp.StatusCode, body, err)
	}
	stop()
	select {
	case code := <-done:
		if code != 0 {
			t.Errorf("exit code %d:\n%s", code, out.String())
		}
	case <-time.After(time.Minute):
		t.Fatal("it did not end")
	}
	if left, err := os.ReadDir(os.Getenv("TMPDIR")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}
