package realkubetest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spillwayproject/spillway/internal/realkube"
	"github.com/spillwayproject/spillway/internal/realprom"
)

const operatorModule = "github.com/prometheus-operator/prometheus-operator@v0.85.0"

// BuildOperator writes the manifest of the Prometheus operator, as its module has it, into the
// folder of before, and the program of the image example.org/target:v1, which tells whoever scrapes
// it the same.
func BuildOperator(t *testing.T, dir string) {
	t.Helper()
	run := func(args ...string) []byte {
		t.Helper()
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%q: %v: %s", args, err, out)
		}
		return out
	}
	run("go", "build", "-o", filepath.Join(dir, "target"), "github.com/spillwayproject/spillway/internal/realkube/realkubetest/testdata/target")
	var module struct{ Dir string }
	if err := json.Unmarshal(run("go", "mod", "download", "-json", operatorModule), &module); err != nil {
		t.Fatal(err)
	}
	run("cp", filepath.Join(module.Dir, operatorManifest), dir)
}

const operatorManifest = "bundle.yaml"

// OperatorManifest is the file that BuildOperator has written.
func OperatorManifest() string { return filepath.Join(Dir(), operatorManifest) }

// Manifests applies manifests to a cluster, and gives its node the images that they name.
type Manifests struct {
	c   *realkube.Cluster
	n   *realkube.Node
	had map[string]bool // images
}

// NewManifests is for the cluster of a node.
func NewManifests(c *realkube.Cluster, n *realkube.Node) *Manifests {
	return &Manifests{c: c, n: n, had: map[string]bool{}}
}

var (
	imageNamed = regexp.MustCompile(`(?m)(?:image: |config-reloader=)"?([a-z0-9./-]+:v[0-9.]+)`)
	// programs are those that the images have, by the last element of their names; Prometheus is
	// the one that looks up Kubernetes.
	programs = map[string]string{
		"prometheus": "prometheus-3.9", "prometheus-operator": "operator", "prometheus-config-reloader": "prometheus-config-reloader",
		"kube-state-metrics": "kube-state-metrics", "thanos": "thanos", "node-exporter": "node_exporter",
	}
)

// Apply applies a manifest. Images of programs that are not here the node does not get.
func (m *Manifests) Apply(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, named := range imageNamed.FindAllStringSubmatch(string(text), -1) {
		image := named[1]
		if m.had[image] {
			continue
		}
		m.had[image] = true
		base, _, _ := strings.Cut(image[strings.LastIndexByte(image, '/')+1:], ":")
		path := filepath.Join(Dir(), base)
		if name, ok := programs[base]; ok {
			if path, err = realprom.Find(name); err != nil {
				t.Fatal(err)
			}
		} else if base != "target" {
			continue
		}
		Import(t, m.n, realkube.Image{Name: image, Program: path})
	}
	Kubectl(t, m.c, "apply", "--server-side", "--force-conflicts", "-f", file)
}
