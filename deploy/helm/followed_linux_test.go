package helm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillwayproject/spillway/internal/docstest"
	"github.com/spillwayproject/spillway/internal/realkube"
	"github.com/spillwayproject/spillway/internal/realkube/realkubetest"
)

// user follows the pages on an empty machine: a home that holds a kubeconfig and nothing else, the
// repository under the name spillway, and helm and kubectl of their own Go modules.
type user struct {
	*judge
	node    *realkube.Node
	home    string
	address string // of the service of Spillway
}

var (
	indented         = regexp.MustCompile(`(?m)^ {4,}((?:helm|kubectl) .*)$`)
	remediatorSecret = regexp.MustCompile(`kubectl -n monitoring create secret generic remediator .*`)
	quotedExec       = regexp.MustCompile("`(kubectl [^`]* exec [^`]*)`")
	quoted           = regexp.MustCompile("`((?:helm|kubectl) (?:-n [a-z]+ )?(?:uninstall|delete) [^`]*)`")
)

// newUser has the namespace of the servers, monitoring, and nothing else.
func newUser(t *testing.T, cluster *realkube.Cluster, node *realkube.Node) user {
	t.Helper()
	u := user{judge: &judge{Cluster: cluster, t: t, ctx: t.Context()}, node: node, home: t.TempDir()}
	kubeconfig, err := os.ReadFile(u.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	u.write(".kube", "config", string(kubeconfig))
	root, err := filepath.Abs("../..")
	if err = errors.Join(err, os.MkdirAll(filepath.Join(u.home, "spillway"), 0o755),
		os.Symlink(filepath.Join(root, "deploy"), filepath.Join(u.home, "spillway/deploy"))); err != nil {
		t.Fatal(err)
	}
	// The standard is the strictest.
	u.make("v1", `{"kind":"Namespace","metadata":{"name":"monitoring","labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`)
	return u
}

// commands are those of a text that are to be typed, in its order.
func commands(t *testing.T, text string, want int) (out []string) {
	t.Helper()
	for _, m := range slices.Concat(indented.FindAllStringSubmatch(text, -1), quoted.FindAllStringSubmatch(text, -1)) {
		out = append(out, m[1])
	}
	if len(out) != want {
		t.Fatalf("%d commands, want %d: %q", len(out), want, out)
	}
	return out
}

// tries runs a command as it stands in the page, in a folder of the user's.
func (u user) tries(folder, command string) (string, error) {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(u.ctx, 90*time.Second)
	defer cancel()
	tools, err := filepath.Abs("../../tools/bin")
	if err != nil {
		u.t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Dir, cmd.Env = filepath.Join(u.home, folder), []string{"HOME=" + u.home, "PATH=" + tools + ":/usr/bin:/bin"}
	cmd.WaitDelay = time.Second // the shell's own children outlive it
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// types is tries of what must not fail.
func (u user) types(folder, command string) string {
	u.t.Helper()
	out, err := u.tries(folder, command)
	if err != nil {
		u.t.Fatalf("%s: %v\n%s\n%s", command, err, out, realkubetest.Events(u.t, u.Cluster))
	}
	u.t.Logf("$ %s\n%s", command, out)
	return out
}

// becomes waits until something is so.
func (u user) becomes(what string, so func() (string, bool)) {
	u.t.Helper()
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(500 * time.Millisecond) {
		said, ok := so()
		if ok {
			return
		}
		if time.Now().After(end) {
			u.t.Fatalf("%s: %s\n%s", what, said, realkubetest.Events(u.t, u.Cluster))
		}
	}
}

// saves writes the first text of a section that is the file.
func (u user) saves(folder, file, text string) {
	u.t.Helper()
	for _, m := range block.FindAllStringSubmatch(text, -1) {
		if m[1] == file {
			u.write(folder, file, m[2])
			return
		}
	}
	u.t.Fatalf("no text of %s", file)
}

func (u user) write(folder, file, text string) {
	u.t.Helper()
	err := os.MkdirAll(filepath.Join(u.home, folder), 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(u.home, folder, file), []byte(text), 0o600)
	}
	if err != nil {
		u.t.Fatal(err)
	}
}

// there are all objects of the cluster, by kind, namespace and name, but for what the API server
// writes by itself as time goes.
func (u user) there() (out []string) {
	u.t.Helper()
	all, err := u.tries(".", "kubectl api-resources --verbs=list -o name | grep -v '^events\\|^leases\\|^componentstatuses'")
	if err != nil {
		u.t.Fatal(err, all)
	}
	kinds := strings.Fields(all)
	if len(kinds) < 40 {
		u.t.Fatalf("%d kinds of objects: %q", len(kinds), kinds)
	}
	b, err := exec.CommandContext(u.ctx, "../../tools/bin/kubectl", "--kubeconfig="+u.Kubeconfig(), "get", strings.Join(kinds, ","), "-A",
		"--ignore-not-found", "-o", `go-template={{range .items}}{{.kind}} {{.metadata.namespace}}/{{.metadata.name}}{{"\n"}}{{end}}`).Output()
	if err != nil {
		u.t.Fatal(err, string(b))
	}
	out = strings.Split(strings.TrimSpace(string(b)), "\n")
	slices.Sort(out)
	return out
}

// leavesNothing waits until the objects of the cluster are those of before, when the last pod has
// taken its leave.
func (u user) leavesNothing(before []string) {
	u.t.Helper()
	u.becomes("what is left", func() (string, bool) {
		after := u.there()
		return firstDifference(strings.Join(before, "\n"), strings.Join(after, "\n")), slices.Equal(after, before)
	})
}

// TestGenuineInstallPage follows docs/install.md, docs/upgrade.md, docs/uninstall.md and
// docs/grafana-plugin.md on a genuine node: their own texts and commands, as they stand there, by
// Helm and by kustomize, with the image that `make image` builds and real Prometheus servers as
// pods.
func TestGenuineInstallPage(t *testing.T) {
	if !*genuine {
		t.Skip("a real node, helm and kubectl, which take minutes to build: make test-full runs it, by -genuine")
	}
	if !realkubetest.Inside(t, 20*time.Minute, builds(t)) {
		return
	}
	cluster, node := realkubetest.Node(t)
	imports(t, node)
	u := newUser(t, cluster, node)
	u.write(".", "servers.yaml", servers+
		fmt.Sprintf(server, "prometheus", "prometheus")+
		fmt.Sprintf(server, "prometheus-operated", "prometheus-k8s"))
	u.types(".", "kubectl apply -f servers.yaml && kubectl -n monitoring rollout status statefulset/prometheus statefulset/prometheus-k8s")
	before := u.there()
	for _, way := range []struct {
		name string
		does func(user)
	}{
		{"helm", func(u user) { u.byHelm(before) }},
		{"plugin", user.byPlugin},
		{"kustomize", func(u user) { u.byKustomize(before) }},
	} {
		t.Run(way.name, func(t *testing.T) {
			one := u
			one.judge = &judge{Cluster: u.Cluster, t: t, ctx: t.Context()}
			way.does(one)
		})
	}
}

func (u user) byHelm(before []string) {
	text := docstest.Section(u.t, "install.md", "## By Helm")
	u.saves("spillway", "values.yaml", text)
	install := commands(u.t, text, 2)
	if out := u.types("spillway", install[0]); !strings.Contains(out, "STATUS: deployed") {
		u.t.Errorf("helm does not say that it is deployed:\n%s", out)
	}
	if out := u.types("spillway", install[1]); !strings.Contains(out, "successfully rolled out") {
		u.t.Error(out)
	}
	u.finds("spillway")
	u.answers("count(up)", "2")
	check := quotedExec.FindStringSubmatch(docstest.Section(u.t, "install.md", "## See that it works"))[1]
	u.becomes("what the page checks", func() (string, bool) { // a server that has just begun has no heartbeat yet
		out, err := u.tries(".", check)
		return out, err == nil && strings.Contains(out, "is valid: 1 group, 1 shard, 2 replicas")
	})
	if now := u.there(); len(now) < len(before)+6 {
		u.t.Fatalf("%d objects before, %d now", len(before), len(now))
	}
	// The page goes on by an upgrade, with the values by which the road is closed.
	u.saves("spillway", "values.yaml", docstest.Section(u.t, "install.md", "## Close the road around it"))
	upgrade := commands(u.t, docstest.Section(u.t, "upgrade.md", "## Reload or restart"), 2)
	u.whileAsked(func() { u.types("spillway", upgrade[0]) })
	u.types("spillway", upgrade[1])
	if out := u.types(".", "kubectl -n monitoring get networkpolicy -o name"); strings.Count(out, "\n") != 2 {
		u.t.Errorf("the policies of the page are not there: %q", out)
	}
	u.takesUp()
	u.rollsOver(upgrade)
	u.comesBack()
	uninstall := docstest.Section(u.t, "uninstall.md", "# Uninstall")
	u.saves("spillway", "networkpolicy.yaml", uninstall)
	back := commands(u.t, uninstall, 4)
	for i, policies := range []int{3, 1} { // what opens the servers stands beside the others, and alone
		u.types("spillway", back[i])
		if out := u.types(".", "kubectl -n monitoring get networkpolicy -o name"); strings.Count(out, "\n") != policies {
			u.t.Errorf("after %s the policies are %q", back[i], out)
		}
	}
	u.types("spillway", back[3])
	u.leavesNothing(before)
}

// byPlugin patches a Grafana that somebody else wrote, in a namespace with the strictest standard.
func (u user) byPlugin() {
	text := docstest.Section(u.t, "grafana-plugin.md", "## By plain YAML")
	u.saves("grafana", "kustomization.yaml", text)
	u.write("grafana", "grafana.yaml", foreign)
	list := commands(u.t, text, 2)
	if out := u.types("grafana", list[0]); strings.Contains(out, "Warning") || !strings.Contains(out, "deployment.apps/grafana created") {
		u.t.Errorf("%s", out)
	}
	if out := u.types("grafana", list[1]); !strings.Contains(out, "registry.example.org/spillway-grafana-plugin:0.1.0") {
		u.t.Errorf("the copier is not there: %q", out)
	}
	u.types("grafana", "kubectl delete -k .")
}

func (u user) byKustomize(before []string) {
	text := docstest.Section(u.t, "install.md", "## By plain YAML")
	u.saves("overlay", "kustomization.yaml", text)
	servers, err := os.ReadFile(filepath.Join(plain, "spillway.yaml"))
	if err != nil {
		u.t.Fatal(err)
	}
	u.write("overlay", "spillway.yaml", string(servers)+"# mine\n")
	apply := commands(u.t, text, 1)[0]
	u.types("overlay", apply)
	u.types("overlay", commands(u.t, docstest.Section(u.t, "install.md", "## By Helm"), 2)[1])
	got := u.types(".", `kubectl -n monitoring get deployment spillway -o 'jsonpath={.spec.template.spec.containers[0].image}'`)
	if want := `registry.example.org/spillway:0.1.0`; got != want {
		u.t.Errorf("the image is %s, the page says %s", got, want)
	}
	if got := u.types(".", `kubectl -n monitoring get secret spillway -o 'jsonpath={.data.spillway\.yaml}' | base64 -d`); !strings.HasSuffix(got, "# mine\n") {
		u.t.Errorf("the file is not the overlay's:\n%s", got)
	}
	// A change is the same command again; then the part that is off by default.
	u.write("overlay", "spillway.yaml", string(servers)+"# changed\n")
	overlay := filepath.Join(u.home, "overlay/kustomization.yaml")
	b, err := os.ReadFile(overlay)
	if err != nil {
		u.t.Fatal(err)
	}
	u.write("overlay", "kustomization.yaml", fmt.Sprintf("%scomponents: [../spillway/deploy/kubernetes/networkpolicy, ../spillway/deploy/kubernetes/remediator]\n", b))
	u.types("overlay", apply)
	// It waits for the Secret of its page, as kubelet has it.
	u.write("overlay", "token", "a token of many letters and digits")
	u.types("overlay", remediatorSecret.FindString(docstest.Section(u.t, "remediation.md", "## The example")))
	u.types("overlay", "kubectl -n monitoring rollout status deployment/spillway-remediator")
	if out := u.types(".", "kubectl -n monitoring get networkpolicy -o name"); strings.Count(out, "\n") != 3 {
		u.t.Errorf("the policies are %q", out)
	}
	u.types("overlay", "kubectl -n monitoring delete secret remediator")
	u.types("overlay", commands(u.t, docstest.Section(u.t, "uninstall.md", "# Uninstall"), 4)[2])
	u.leavesNothing(before)
}
