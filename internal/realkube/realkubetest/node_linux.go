// Package realkubetest runs tests on a genuine node: each again by itself, as a process in
// namespaces of its own, in which a control plane, a kubelet and pods are.
//
// It refuses nothing but what realkube refuses; a test that cannot have its namespaces is skipped
// with the reason. It holds what realkube holds, and what the pods do.
package realkubetest

import (
	"bufio"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/realkube"
	"github.com/spillwayproject/spillway/internal/realprom"
)

// inside says to the process that it is in its namespaces.
const inside = "SPILLWAY_TEST_INSIDE"

// Inside is false for the test as it was started, which is run again in namespaces of its own, and
// whose end tells how that ended; and true for the one that runs in them. Outside, before is called
// first, with the folder that Dir is inside: for what needs what the machine reaches, such as Go's
// modules.
func Inside(t *testing.T, limit time.Duration, before func(dir string)) bool {
	t.Helper()
	if os.Getenv(inside) != "" {
		return true
	}
	if os.Getuid() != 0 {
		t.Skip("a node needs root")
	}
	for _, program := range []string{"containerd", "runc", "ctr", "iptables", "ip", "unshare", "/usr/lib/cni/bridge"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("there is no %s; ./tools/debian.sh containerd installs it", program)
		}
	}
	dir := t.TempDir()
	before(dir)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	args := []string{os.Args[0]}
	for _, a := range os.Args[1:] {
		if !strings.HasPrefix(a, "-test.") {
			args = append(args, a)
		}
	}
	args = append(args, "-test.run", "^"+t.Name()+"$", "-test.v", "-test.timeout", limit.String())
	cmd := realkube.Isolated(ctx, args...)
	cmd.Env = append(os.Environ(), inside+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		t.Log(lines.Text())
	}
	if err := cmd.Wait(); err != nil {
		t.Error("in its namespaces: ", err)
	}
	if err := realkube.RemoveCgroups(nodeDir(dir)); err != nil {
		t.Error(err)
	}
	return false
}

// Dir is the folder that was given to before.
func Dir() string { return os.Getenv(inside) }

func nodeDir(dir string) string { return filepath.Join(dir, "node") }

// Cgroups makes control groups for processes of a test that has no node: the folder of each in its
// hierarchy. They are removed when the test has ended.
func Cgroups(t *testing.T) []string {
	t.Helper()
	_, dirs, err := realkube.MakeCgroups(nodeDir(Dir()))
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}

// Node is a control plane with a node, which end with the test.
func Node(t *testing.T) (*realkube.Cluster, *realkube.Node) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	dir := nodeDir(Dir())
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	c, err := realkube.Start(ctx, realkube.Options{Dir: dir, ForNode: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	n, err := c.StartNode(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Stop(); err != nil {
			t.Error(err)
		}
	})
	pause := filepath.Join(t.TempDir(), "pause")
	build := exec.CommandContext(ctx, "go", "build", "-o", pause, "github.com/spillwayproject/spillway/internal/realkube/pause")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	Import(t, n, realkube.Image{Name: realkube.PauseImage, Program: pause})
	return c, n
}

// Import gives the node an image.
func Import(t *testing.T, n *realkube.Node, i realkube.Image) {
	t.Helper()
	archive := filepath.Join(t.TempDir(), "image.tar")
	if err := i.Write(archive); err != nil {
		t.Fatal(err)
	}
	if err := n.Import(t.Context(), archive); err != nil {
		t.Fatal(err)
	}
}

// BuildSpillway writes the layout of Spillway's image into the folder of before, by the command
// that `make image` runs.
func BuildSpillway(t *testing.T, dir string) {
	t.Helper()
	out, err := exec.Command("go", "run", "github.com/spillwayproject/spillway/deploy/image",
		"-platforms=linux/"+runtime.GOARCH, "-version=0.1.0", "-out="+filepath.Join(dir, "image")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// ImportSpillway gives the node what BuildSpillway has written, by the command of docs/image.md:
// registry.example.org/spillway:0.1.0.
func ImportSpillway(t *testing.T, n *realkube.Node) {
	t.Helper()
	archive := filepath.Join(t.TempDir(), "spillway.tar")
	if out, err := exec.Command("tar", "-C", filepath.Join(Dir(), "image"), "-cf", archive, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := n.Import(t.Context(), archive, "--base-name", "registry.example.org/spillway"); err != nil {
		t.Fatal(err)
	}
}

// Kubectl runs kubectl as an administrator, and gives what it printed.
func Kubectl(t *testing.T, c *realkube.Cluster, args ...string) string {
	t.Helper()
	path, err := realprom.Find("kubectl")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), path, append([]string{"--kubeconfig", c.Kubeconfig()}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s\n%s", strings.Join(args, " "), err, out, Events(t, c))
	}
	return string(out)
}

// Events are what the cluster says of itself, for a failure's message.
func Events(t *testing.T, c *realkube.Cluster) string {
	t.Helper()
	path, err := realprom.Find("kubectl")
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(path, "--kubeconfig", c.Kubeconfig(), "get", "events", "-A", "--sort-by=.lastTimestamp",
		"-o", "custom-columns=:.involvedObject.name,:.reason,:.message").CombinedOutput()
	if err != nil {
		return err.Error()
	}
	return string(out)
}

// Resolver asks the cluster's DNS, as its pods do.
func Resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, "10.96.0.10:53")
	}}
}
