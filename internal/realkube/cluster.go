package realkube

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spillwayproject/spillway/internal/realprom"
)

// The users that the API server knows, each by a token of its own.
const (
	// AdminToken may do everything.
	AdminToken = "admin-token"
	// PrometheusToken may read /metrics and /metrics/slis.
	PrometheusToken = "prometheus-token"
	// NoisyToken is that of the user "noisy", who may read pods. A FlowSchema can single it out, as
	// it cannot the admins of system:masters: they are exempt whatever it says.
	NoisyToken = "noisy-token"
)

// containerd is the only program that comes from the system.
const containerd = "containerd"

const tokens = AdminToken + `,admin,u0,"system:masters"
` + PrometheusToken + `,prometheus,u1,"monitoring"
` + NoisyToken + `,noisy,u2,"readers"
`

// Options say what to start.
type Options struct {
	// Dir is where data, keys and logs are kept; it must exist.
	Dir string
	// APIServerArgs are added to those of kube-apiserver.
	APIServerArgs []string
	// ForNode has the API server listen where StartNode's pods reach it, which makes a network for
	// them: in the namespaces of Isolated.
	ForNode bool
}

// Cluster is a running control plane. Its methods may be called from several goroutines.
type Cluster struct {
	opts                Options
	host                string // of the API server
	etcd, api, ksm      *realprom.Process
	apiPort, etcdPort   int
	ksmPort, etcdMetric int
	etcdPeer            int
	client              *http.Client
	logs                []*os.File
}

// Start starts everything. Ports that another process takes in between make it fail: call it again.
func Start(ctx context.Context, o Options) (c *Cluster, err error) {
	c = &Cluster{opts: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Stop())
		}
	}()
	for _, p := range []*int{&c.apiPort, &c.etcdPort, &c.ksmPort, &c.etcdMetric, &c.etcdPeer} {
		if *p, err = realprom.FreePort(); err != nil {
			return c, err
		}
	}
	c.host = "127.0.0.1"
	if o.ForNode {
		if err := makeBridge(ctx); err != nil {
			return c, err
		}
		c.host, c.opts.APIServerArgs = NodeIP, append(nodeArgs(), o.APIServerArgs...)
	}
	if err := c.startEtcd(ctx); err != nil {
		return c, err
	}
	if err := c.keys(); err != nil {
		return c, err
	}
	if err := c.startAPIServer(ctx); err != nil {
		return c, err
	}
	for _, object := range []string{
		`{"kind":"ClusterRole","metadata":{"name":"metrics-reader"},"rules":[{"nonResourceURLs":["/metrics","/metrics/slis"],"verbs":["get"]}]}`,
		`{"kind":"ClusterRoleBinding","metadata":{"name":"metrics-reader"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"metrics-reader"},
		  "subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"prometheus"}]}`,
		`{"kind":"ClusterRole","metadata":{"name":"pod-reader"},"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get","list"]}]}`,
		`{"kind":"ClusterRoleBinding","metadata":{"name":"readers"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"pod-reader"},
		  "subjects":[{"kind":"Group","apiGroup":"rbac.authorization.k8s.io","name":"readers"}]}`,
	} {
		if err := c.Create(ctx, "rbac.authorization.k8s.io/v1", object); err != nil {
			return c, err
		}
	}
	return c, c.startKSM(ctx)
}

func (c *Cluster) path(name string) string { return filepath.Join(c.opts.Dir, name) }

// run starts a program whose log goes to DIR/NAME.log.
func (c *Cluster) run(name string, args ...string) (*realprom.Process, error) {
	path, err := exec.LookPath(name)
	if name != containerd {
		path, err = realprom.Find(name)
	}
	if err != nil {
		return nil, fmt.Errorf("%w (./tools/build.sh kubernetes coredns and ./tools/debian.sh containerd)", err)
	}
	log, err := os.OpenFile(c.path(name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	c.logs = append(c.logs, log)
	return realprom.StartProcess(realprom.ProcessOptions{Path: path, Args: args, Log: log})
}

// startEtcd starts etcd and waits until it is healthy.
func (c *Cluster) startEtcd(ctx context.Context) (err error) {
	local := func(port int) string { return fmt.Sprintf("http://127.0.0.1:%d", port) }
	c.etcd, err = c.run("etcd", "--data-dir", c.path("etcd"), "--listen-client-urls", local(c.etcdPort), "--advertise-client-urls",
		local(c.etcdPort),
		"--listen-peer-urls", local(c.etcdPeer), "--initial-advertise-peer-urls", local(c.etcdPeer), "--initial-cluster",
		"default="+local(c.etcdPeer),
		"--listen-metrics-urls", local(c.etcdMetric), "--unsafe-no-fsync", "--log-level", "warn")
	if err != nil {
		return err
	}
	return c.etcd.WaitReady(ctx, local(c.etcdMetric)+"/health")
}

// keys writes what the API server signs tokens of service accounts with, and who its users are.
func (c *Cluster) keys() error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return err
	}
	for name, b := range map[string][]byte{
		"sa.key":     pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}),
		"sa.pub":     pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}),
		"tokens.csv": []byte(tokens),
	} {
		if err := os.WriteFile(c.path(name), b, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// startAPIServer starts the API server and waits until it is ready.
func (c *Cluster) startAPIServer(ctx context.Context) (err error) {
	args := append([]string{
		"--etcd-servers", fmt.Sprintf("http://127.0.0.1:%d", c.etcdPort), "--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1",
		"--secure-port", fmt.Sprint(c.apiPort), "--cert-dir", c.path("certs"), "--service-account-issuer", "https://kubernetes.default.svc",
		"--service-account-key-file", c.path("sa.pub"), "--service-account-signing-key-file", c.path("sa.key"),
		"--service-cluster-ip-range", "10.96.0.0/16",
		"--authorization-mode", "RBAC", "--endpoint-reconciler-type", "none", "--token-auth-file", c.path("tokens.csv"),
		"--enable-aggregator-routing",
	}, c.opts.APIServerArgs...)
	if c.api, err = c.run("kube-apiserver", args...); err != nil {
		return err
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		last := c.trust()
		if last == nil {
			if _, last = c.Do(ctx, AdminToken, http.MethodGet, "/readyz", nil); last == nil {
				return nil
			}
		}
		select {
		case <-c.api.Done():
			return fmt.Errorf("kube-apiserver: %w", errors.Join(errors.New("ended before it was ready"), c.api.Err()))
		case <-ctx.Done():
			return fmt.Errorf("kube-apiserver is not ready: %w; last: %w", context.Cause(ctx), last)
		case <-tick.C:
		}
	}
}

// trust makes the client that believes the certificate which the API server made for itself.
func (c *Cluster) trust() error {
	b, err := os.ReadFile(c.path("certs/apiserver.crt"))
	if err != nil {
		return err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b) {
		return errors.New("the API server's certificate is not complete yet")
	}
	if c.client != nil {
		c.client.CloseIdleConnections()
	}
	c.client = &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, MaxIdleConnsPerHost: writers,
		MaxConnsPerHost: 4 * writers,
	}}
	return nil
}

func (c *Cluster) startKSM(ctx context.Context) error {
	ca, err := os.ReadFile(c.path("certs/apiserver.crt"))
	if err != nil {
		return err
	}
	config := map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "c",
		"contexts": []any{map[string]any{"name": "c", "context": map[string]any{"cluster": "c", "user": "u"}}},
		"users":    []any{map[string]any{"name": "u", "user": map[string]any{"token": AdminToken}}},
		"clusters": []any{map[string]any{"name": "c", "cluster": map[string]any{"server": c.API(), "certificate-authority-data": ca}}},
	}
	b, err := json.Marshal(config)
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.Kubeconfig(), b, 0o600); err != nil {
		return err
	}
	telemetry, err := realprom.FreePort()
	if err != nil {
		return err
	}
	c.ksm, err = c.run("kube-state-metrics", "--kubeconfig", c.Kubeconfig(), "--host", "127.0.0.1", "--port", fmt.Sprint(c.ksmPort),
		"--telemetry-host", "127.0.0.1", "--telemetry-port", fmt.Sprint(telemetry),
		"--metric-labels-allowlist", "nodes=[*],pods=[*],namespaces=[*],jobs=[*]")
	if err != nil {
		return err
	}
	return c.ksm.WaitReady(ctx, "http://"+c.KSM()+"/metrics")
}

// API is the API server's URL; its page /metrics wants PrometheusToken. Its certificate is
// CertFile.
func (c *Cluster) API() string { return fmt.Sprintf("https://%s:%d", c.host, c.apiPort) }

// CertFile is the certificate to believe of the API server.
func (c *Cluster) CertFile() string { return c.path("certs/apiserver.crt") }

// Kubeconfig is the path of an administrator's kubeconfig.
func (c *Cluster) Kubeconfig() string { return c.path("kubeconfig") }

// KSM is the host and port of kube-state-metrics.
func (c *Cluster) KSM() string { return fmt.Sprintf("127.0.0.1:%d", c.ksmPort) }

// Etcd is the host and port of etcd's metrics.
func (c *Cluster) Etcd() string { return fmt.Sprintf("127.0.0.1:%d", c.etcdMetric) }

// HangEtcd stops etcd from running without ending it, as a dead disk does; ResumeEtcd undoes it.
func (c *Cluster) HangEtcd() error { return syscall.Kill(c.etcd.PID(), syscall.SIGSTOP) }

// ResumeEtcd lets etcd run again.
func (c *Cluster) ResumeEtcd() error { return syscall.Kill(c.etcd.PID(), syscall.SIGCONT) }

// RestartAPIServer kills the API server and starts it anew at the same port, with what etcd holds.
func (c *Cluster) RestartAPIServer(ctx context.Context) error {
	c.api.Kill()
	<-c.api.Done()
	return c.startAPIServer(ctx)
}

// ServiceAccount makes a service account and returns a token of it.
func (c *Cluster) ServiceAccount(ctx context.Context, namespace, name string) (token string, err error) {
	err = c.Create(ctx, "v1", fmt.Sprintf(`{"kind":"ServiceAccount","metadata":{"name":%q,"namespace":%q}}`, name, namespace))
	if err != nil {
		return "", err
	}
	b, err := c.Do(ctx, AdminToken, http.MethodPost, "/api/v1/namespaces/"+namespace+"/serviceaccounts/"+name+"/token",
		[]byte(`{"kind":"TokenRequest","apiVersion":"authentication.k8s.io/v1","spec":{}}`))
	if err != nil {
		return "", err
	}
	var answer struct{ Status struct{ Token string } }
	if err := json.Unmarshal(b, &answer); err != nil {
		return "", fmt.Errorf("the answer to a token request: %w", err)
	}
	return answer.Status.Token, nil
}

// Stop ends everything that runs.
func (c *Cluster) Stop() error {
	var errs []error
	if c.client != nil {
		c.client.CloseIdleConnections()
	}
	if c.ksm != nil {
		errs = append(errs, c.ksm.Stop())
	}
	if c.api != nil {
		c.api.Kill() // its watchers keep it for half a minute, and it has nothing to save
	}
	if c.etcd != nil {
		_ = c.ResumeEtcd() // fails only if it has ended
		c.etcd.Kill()
	}
	for _, l := range c.logs {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// StatusError is an answer of the API server that is no success.
type StatusError struct {
	Code int
	Body string
}

func (e *StatusError) Error() string { return fmt.Sprintf("status %d: %.500s", e.Code, e.Body) }

// Do asks the API server and returns the body of its answer; one that is no success is a
// *StatusError.
func (c *Cluster) Do(ctx context.Context, token, method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.API()+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err == nil && resp.StatusCode >= 300 {
		err = &StatusError{resp.StatusCode, string(b)}
	}
	return b, err
}
