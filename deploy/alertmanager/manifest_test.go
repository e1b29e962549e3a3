package alertmanager

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// headOf are the commands at the top of the manifest.
func headOf(t *testing.T) (commands []string, manifest string) {
	t.Helper()
	text, err := os.ReadFile("kubernetes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	head, manifest, _ := strings.Cut(string(text), "\napiVersion:")
	for line := range strings.Lines(head) {
		if command, ok := strings.CutPrefix(strings.TrimSpace(line), "#   "); ok {
			commands = append(commands, command)
		}
	}
	return commands, manifest
}

// TestManifestCommands: what the manifest mounts is made by commands that can be typed again, for
// changed routes, and nothing else takes these up than the reload, which each pod is told; the page
// has the same lines.
func TestManifestCommands(t *testing.T) {
	commands, manifest := headOf(t)
	if len(commands) != 3 {
		t.Fatalf("%d commands: %q", len(commands), commands)
	}
	b, err := os.ReadFile("../../docs/alertmanager.md")
	if err != nil {
		t.Fatal(err)
	}
	_, page, _ := strings.Cut(string(b), "\n## Two of them\n")
	page, _, _ = strings.Cut(page, "\n## ")
	made := map[string]bool{}
	for _, c := range commands {
		if !strings.Contains(page, "    "+c+"\n") {
			t.Errorf("docs/alertmanager.md does not have %s", c)
		}
		if m := regexp.MustCompile(`^kubectl -n monitoring create (configmap|secret generic) (\S+) `).FindStringSubmatch(c); m != nil {
			made[m[1]+" "+m[2]] = true
			if !strings.HasSuffix(c, " --dry-run=client -o yaml | kubectl apply --server-side -f -") {
				t.Errorf("the second time it fails: %s", c)
			}
		}
	}
	for what, mount := range map[string]string{
		"configmap alertmanager": "configMap: {name: alertmanager}", "secret generic alertmanager": "secret: {secretName: alertmanager}",
	} {
		if !made[what] || !strings.Contains(manifest, mount) {
			t.Errorf("%s is made: %v", what, made[what])
		}
	}
	reload := commands[len(commands)-1]
	for _, pod := range []string{"alertmanager-0", "alertmanager-1"} {
		if !strings.Contains(reload, pod) || !strings.Contains(manifest, "--cluster.peer="+pod+".") {
			t.Errorf("%s is not told: %s", pod, reload)
		}
	}
	if strings.Count(manifest, "--cluster.peer=") != 2 || strings.Contains(manifest, "reloader") {
		t.Error("there are more pods than two, or something in them that reloads")
	}
	for _, want := range []string{"`alertmanager_config_last_reload_successful`", "amtool check-config", "--force-conflicts"} {
		if !strings.Contains(page, want) {
			t.Errorf("docs/alertmanager.md does not have %s", want)
		}
	}
}

// TestReloadTakesRoutesUp: the command of the manifest that tells a pod, as it stands there, has a
// real Alertmanager take changed routes up; of a file that is broken it says so, and the routes
// stay those of before.
func TestReloadTakesRoutesUp(t *testing.T) {
	commands, _ := headOf(t)
	m := regexp.MustCompile(` -- (wget \S.*) http://127\.0\.0\.1:9093(/\S+);`).FindStringSubmatch(commands[len(commands)-1])
	if m == nil {
		t.Fatalf("no command tells a pod: %q", commands)
	}
	conf, err := Rehearsal(Config, "http://127.0.0.1:1", 1)
	if err != nil {
		t.Fatal(err)
	}
	am, err := Start(t.Context(), conf)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := am.Stop(); err != nil {
			t.Error(err)
		}
	}()
	file := filepath.Join(am.temp, "alertmanager.yml")
	const before, after = "repeat_interval: 12h", "repeat_interval: 11h"
	if !bytes.Contains(conf, []byte(before)) {
		t.Fatalf("the routes do not have %s:\n%s", before, conf)
	}
	for _, c := range []struct {
		text  []byte
		taken bool
	}{
		{bytes.Replace(conf, []byte(before), []byte(after), 1), true},
		{[]byte("route: nowhere"), false},
	} {
		if err := os.WriteFile(file, c.text, 0o600); err != nil {
			t.Fatal(err)
		}
		words := append(strings.Fields(m[1]), am.URL()+m[2])
		if out, err := exec.CommandContext(t.Context(), words[0], words[1:]...).CombinedOutput(); (err == nil) != c.taken {
			t.Errorf("%q: %v %s", words, err, out)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, am.URL()+"/api/v2/status", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		var status struct{ Config struct{ Original string } }
		if err != nil || json.Unmarshal(text, &status) != nil || !strings.Contains(status.Config.Original, after) {
			t.Errorf("it goes by other routes (%v):\n%s", err, text)
		}
	}
}
