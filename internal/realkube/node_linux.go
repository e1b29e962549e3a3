package realkube

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spillwayproject/spillway/internal/realprom"
)

// Where the node and its pods are, all within the namespaces of Isolated.
const (
	// RealNode is the name of the one node.
	RealNode = "node-1"
	// NodeIP is the node's address, and that of the API server as pods see it.
	NodeIP     = "10.88.0.1"
	podNet     = "10.88.0.0/16"
	bridge     = "pods0"
	clusterDNS = "10.96.0.10"
)

// Isolated is a command that runs in namespaces of its own: a network of nothing but a loopback,
// mounts, of which those folders are empty that programs of a node write to whatever they are told,
// and processes that end with it, whatever they are. It needs root, iproute2 and util-linux.
func Isolated(ctx context.Context, args ...string) *exec.Cmd {
	// The shell is their first process, which takes leave of those that have lost their parents.
	up := `for dir in /run /var/log /var/lib/cni; do mkdir -p $dir && mount -t tmpfs tmpfs $dir || exit; done; ip link set lo up && "$@"; exit $?`
	cmd := exec.CommandContext(ctx, "unshare",
		append([]string{"-m", "-n", "-p", "-f", "--kill-child", "--mount-proc", "sh", "-c", up, "sh"}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// Node is a genuine node of a Cluster, on which pods run: containerd with runc, kubelet, kube-proxy
// and the cluster's DNS; and the controllers and the scheduler that bring pods to it. It must be
// started in the namespaces of Isolated, and its Cluster with ForNode.
type Node struct {
	c   *Cluster
	run []*realprom.Process
}

// nodeArgs are what the API server of a cluster with a node has besides.
func nodeArgs() []string {
	return []string{
		"--bind-address", "0.0.0.0", "--advertise-address", NodeIP, "--endpoint-reconciler-type", "master-count",
		"--kubelet-preferred-address-types", "InternalIP",
	}
}

// makeBridge makes the network in which the node and its pods are.
func makeBridge(ctx context.Context) error {
	for _, args := range []string{
		"link add " + bridge + " type bridge", "addr add " + NodeIP + "/16 dev " + bridge, "link set " + bridge + " up",
		"route add default dev " + bridge, // kubelet and the API server look for one
	} {
		if err := command(ctx, append([]string{"ip"}, strings.Fields(args)...)...); err != nil {
			return err
		}
	}
	return nil
}

// StartNode starts everything and returns when the node is ready.
func (c *Cluster) StartNode(ctx context.Context) (n *Node, err error) {
	n = &Node{c: c}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Stop())
		}
	}()
	for _, dir := range []string{"containerd", "containerd-state", "kubelet", "cni", "ipam"} {
		if err := os.MkdirAll(c.path(dir), 0o700); err != nil {
			return n, err
		}
	}
	group, _, err := MakeCgroups(c.opts.Dir)
	if err != nil {
		return n, err
	}
	for name, text := range n.files("/" + group) {
		if err := os.WriteFile(c.path(name), []byte(text), 0o600); err != nil {
			return n, err
		}
	}
	for _, p := range n.programs() {
		started, err := c.run(p[0], p[1:]...)
		if err != nil {
			return n, err
		}
		n.run = append(n.run, started)
		if p[0] == containerd {
			if err := n.serves(ctx); err != nil {
				return n, err
			}
		}
	}
	return n, errors.Join(n.ready(ctx), n.makeDNS(ctx))
}

// programs are what runs, each with its arguments, in the order in which they start.
func (n *Node) programs() [][]string {
	path, kube := n.c.path, "--kubeconfig="+n.c.Kubeconfig()
	return [][]string{
		{"containerd", "--config", path("containerd.toml")},
		{
			"kube-controller-manager", kube, "--service-account-private-key-file", path("sa.key"), "--root-ca-file", n.c.CertFile(),
			"--leader-elect=false", "--bind-address=127.0.0.1", "--secure-port=0",
		},
		{"kube-scheduler", kube, "--leader-elect=false", "--bind-address=127.0.0.1", "--secure-port=0"},
		{
			"kubelet", kube, "--config", path("kubelet.yaml"), "--hostname-override", RealNode, "--node-ip", NodeIP,
			"--root-dir", path("kubelet"), "--cert-dir", path("kubelet/pki"),
		},
		{
			"kube-proxy", kube, "--proxy-mode=iptables", "--hostname-override", RealNode, "--cluster-cidr", podNet,
			"--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0",
			"--nodeport-addresses=127.0.0.0/8", "--metrics-bind-address=127.0.0.1:10249", "--healthz-bind-address=127.0.0.1:10256",
		},
		{"coredns", "-conf", path("Corefile")},
	}
}

// files are the configurations.
func (n *Node) files(cgroups string) map[string]string {
	path := n.c.path
	return map[string]string{
		"containerd.toml": fmt.Sprintf(`version = 2
root = %q
state = %q
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.internal.v1.opt"]
[grpc]
  address = %q
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = %q
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
`, path("containerd"), path("containerd-state"), n.socket(), PauseImage, path("cni")),
		"cni/10-pods.conflist": fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": %q, "isGateway": true, "ipMasq": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": %q, "rangeStart": "10.88.1.1"}]], "routes": [{"dst": "0.0.0.0/0"}], "dataDir": %q}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
`, bridge, podNet, path("ipam")),
		"kubelet.yaml": fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
cgroupRoot: %q
failSwapOn: false
containerRuntimeEndpoint: %q
clusterDNS: [%s]
clusterDomain: cluster.local
resolvConf: %q
syncFrequency: 5s
healthzPort: 0
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 1Mi, nodefs.available: 1Mi, imagefs.available: 1Mi, nodefs.inodesFree: "1", imagefs.inodesFree: "1"}
`, cgroups, "unix://"+n.socket(), clusterDNS, path("resolv.conf")),
		"resolv.conf": "",
		"Corefile": fmt.Sprintf(`.:53 {
  bind %s
  errors
  kubernetes cluster.local in-addr.arpa {
    kubeconfig %s
    pods insecure
  }
}
`, NodeIP, n.c.Kubeconfig()),
	}
}

func (n *Node) socket() string { return n.c.path("containerd.sock") }

// cgroups are the group of all pods of a node with this folder, in each hierarchy: nothing is mixed
// with those of the machine.
func cgroups(dir string) (name string, dirs []string, err error) {
	name = fmt.Sprintf("spillway-%x", sha256.Sum256([]byte(dir)))[:24]
	hierarchies := []string{"/sys/fs/cgroup/cgroup.procs"}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil { // version 1
		if hierarchies, err = filepath.Glob("/sys/fs/cgroup/*/cgroup.procs"); err != nil {
			return "", nil, err
		}
	}
	for _, procs := range hierarchies {
		dirs = append(dirs, filepath.Join(filepath.Dir(procs), name))
	}
	return name, dirs, nil
}

// MakeCgroups makes the control groups of a node with this folder: their name, and the folder of
// each in its hierarchy.
func MakeCgroups(dir string) (name string, dirs []string, err error) {
	name, dirs, err = cgroups(dir)
	for _, d := range dirs {
		err = errors.Join(err, os.Mkdir(d, 0o755))
	}
	return name, dirs, err
}

// RemoveCgroups removes what is left of the groups of a node with this folder, whose processes have
// ended.
func RemoveCgroups(dir string) error {
	_, dirs, err := cgroups(dir)
	if err != nil {
		return err
	}
	var all []string
	for _, d := range dirs {
		err := filepath.WalkDir(d, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				all = append(all, path)
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	var errs []error
	for _, d := range slices.Backward(all) {
		errs = append(errs, os.Remove(d))
	}
	return errors.Join(errs...)
}

// serves waits until containerd does: kubelet waits for nothing.
func (n *Node) serves(ctx context.Context) error {
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", n.socket())
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("containerd does not serve: %w; last: %w", context.Cause(ctx), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// ready waits until kubelet says that the node is, and nothing keeps pods from it.
func (n *Node) ready(ctx context.Context) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		var node struct {
			Spec struct {
				Taints []struct{ Key string } `json:"taints"`
			} `json:"spec"`
			Status struct {
				Conditions []struct{ Type, Status, Message string } `json:"conditions"`
			} `json:"status"`
		}
		b, err := n.c.Do(ctx, AdminToken, http.MethodGet, "/api/v1/nodes/"+RealNode, nil)
		if err == nil {
			err = json.Unmarshal(b, &node)
		}
		if err == nil && len(node.Spec.Taints) == 0 {
			for _, cond := range node.Status.Conditions {
				if cond.Type == "Ready" && cond.Status == "True" {
					return nil
				}
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the node is not ready: %w; last: %+v, %w", context.Cause(ctx), node, err)
		case <-tick.C:
		}
		for _, p := range n.run {
			select {
			case <-p.Done():
				return fmt.Errorf("a program of the node ended: %w: %s", p.Err(), p.Log())
			default:
			}
		}
	}
}

// makeDNS gives the DNS, which runs beside the pods, the address that they ask.
func (n *Node) makeDNS(ctx context.Context) error {
	return errors.Join(
		n.c.Create(ctx, "v1", `{"kind":"Service","metadata":{"name":"kube-dns","namespace":"kube-system"},"spec":{"clusterIP":"`+clusterDNS+`",
		  "ports":[{"name":"dns","protocol":"UDP","port":53},{"name":"dns-tcp","protocol":"TCP","port":53}]}}`),
		n.c.Create(ctx, "discovery.k8s.io/v1", `{"kind":"EndpointSlice","metadata":{"name":"kube-dns","namespace":"kube-system","labels":{"kubernetes.io/service-name":"kube-dns"}},
		  "addressType":"IPv4","endpoints":[{"addresses":["`+NodeIP+`"],"conditions":{"ready":true}}],
		  "ports":[{"name":"dns","protocol":"UDP","port":53},{"name":"dns-tcp","protocol":"TCP","port":53}]}`),
	)
}

// Import gives the node the images of an archive: nothing is pulled. The flags are those of
// `ctr images import`.
func (n *Node) Import(ctx context.Context, archive string, flags ...string) error {
	args := append([]string{"ctr", "-a", n.socket(), "-n", "k8s.io", "images", "import"}, flags...)
	return command(ctx, append(args, archive)...)
}

// Kill kills the program of a container, as running out of memory does.
func (n *Node) Kill(ctx context.Context, container string) error {
	return command(ctx, "ctr", "-a", n.socket(), "-n", "k8s.io", "tasks", "kill", "-s", "SIGKILL", container)
}

// Stop ends the node's programs; its pods end with the namespaces.
func (n *Node) Stop() error {
	for _, p := range slices.Backward(n.run) {
		p.Kill()
	}
	return nil
}
