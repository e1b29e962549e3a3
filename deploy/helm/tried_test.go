package helm

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/spillwayproject/spillway/internal/docstest"
	"github.com/spillwayproject/spillway/proxy/config"
)

// TestChangeIsTried: the pipeline of docs/upgrade.md gives the pod the file that the chart would,
// byte for byte, in a Secret and in a ConfigMap. The page's text is run, with a helm that prints
// what the chart renders and a kubectl that keeps what it is given.
func TestChangeIsTried(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not on this machine: the page's commands are not run")
	}
	text := docstest.Section(t, "upgrade.md", "## A change by Helm")
	pipeline := regexp.MustCompile(`(?m)^    helm template spillway .*\|\n(?:      .*\n)+`).FindString(text)
	if !strings.Contains(pipeline, "-- /spillway check config - --online") {
		t.Fatalf("the page has no pipeline: %q", pipeline)
	}
	for _, kind := range []string{"Secret", "ConfigMap"} {
		for name, file := range ciFiles(t) {
			values := valuesOf(t, file)
			if values["existingSecret"] != nil {
				continue // nothing of it is the chart's
			}
			values["configKind"] = kind
			rendered := templateOf(t, values, "config.yaml")
			objects, err := decode(rendered)
			if err != nil || len(objects) != 1 {
				t.Fatal(name, len(objects), err)
			}
			var want string
			switch in := objects[0].in.(type) {
			case *corev1.Secret:
				want = in.StringData["spillway.yaml"]
			case *corev1.ConfigMap:
				want = in.Data["spillway.yaml"]
			}
			dir := t.TempDir()
			for tool, script := range map[string]string{"helm": "cat rendered", "kubectl": "cat >given"} {
				if err := os.WriteFile(filepath.Join(dir, tool), []byte("#!"+bash+"\n"+script+"\n"), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			source := "---\n# Source: spillway/templates/config.yaml\n" // as helm template prints it
			if err := os.WriteFile(filepath.Join(dir, "rendered"), []byte(source+rendered), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(bash, "-ec", pipeline)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+dir+string(os.PathListSeparator)+os.Getenv("PATH"))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, out)
			}
			got, err := os.ReadFile(filepath.Join(dir, "given"))
			if err != nil || want == "" || string(got) != want {
				t.Errorf("%s in a %s: %v, the pod is given\n%s\nand not\n%s", name, kind, err, got, want)
			}
			if _, err := config.Parse(got, dir); err != nil {
				t.Errorf("%s in a %s: %v", name, kind, err)
			}
		}
	}
}
