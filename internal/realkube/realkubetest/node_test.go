//go:build linux

package realkubetest

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/realkube"
)

var genuine = flag.Bool("genuine", false, "run pods on a real node (./tools/build.sh kubernetes coredns, ./tools/debian.sh containerd)")

// TestGenuineNode: a pod that keeps to the restricted standard runs, is found by its service's name
// and reached at its address, tells its log, and goes.
func TestGenuineNode(t *testing.T) {
	if !*genuine {
		t.Skip("a real node, whose programs take minutes to build: make test-full runs it, by -genuine")
	}
	if !Inside(t, 5*time.Minute, func(string) {}) {
		return
	}
	c, n := Node(t)
	ctx := t.Context()
	program := filepath.Join(t.TempDir(), "says")
	build := exec.Command("go", "build", "-o", program, "./testdata/says")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	Import(t, n, realkube.Image{Name: "example.org/says:1", Program: program, User: "65534"})
	if err := c.Create(ctx, "v1", `{"kind":"Namespace","metadata":{"name":"work","labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`); err != nil {
		t.Fatal(err)
	}
	if err := c.Create(ctx, "v1", `{"kind":"Service","metadata":{"name":"says","namespace":"work"},"spec":{"selector":{"app":"says"},"ports":[{"port":80,"targetPort":8080}]}}`); err != nil {
		t.Fatal(err)
	}
	if err := c.Create(ctx, "v1", `{"kind":"Pod","metadata":{"name":"says","namespace":"work","labels":{"app":"says"}},"spec":{
	  "automountServiceAccountToken":false,"securityContext":{"runAsNonRoot":true,"seccompProfile":{"type":"RuntimeDefault"}},
	  "containers":[{"name":"says","image":"example.org/says:1","readinessProbe":{"httpGet":{"port":8080,"path":"/"},"periodSeconds":1},
	  "securityContext":{"allowPrivilegeEscalation":false,"readOnlyRootFilesystem":true,"capabilities":{"drop":["ALL"]}}}]}}`); err != nil {
		t.Fatal(err)
	}
	Kubectl(t, c, "-n", "work", "wait", "--for=condition=Ready", "pod/says", "--timeout=60s")
	addrs, err := Resolver().LookupHost(ctx, "says.work.svc.cluster.local")
	if err != nil || len(addrs) != 1 {
		t.Fatal(addrs, err)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) { // kube-proxy hears of the pod later than this test
		resp, err := http.Get(fmt.Sprintf("http://%s/", addrs[0]))
		if err == nil {
			resp.Body.Close()
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	if out := Kubectl(t, c, "-n", "work", "logs", "says"); !strings.Contains(out, "asked for /") {
		t.Errorf("its log is %q", out)
	}
	Kubectl(t, c, "-n", "work", "delete", "pod", "says", "--timeout=60s")
}
