package discovery

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	commonconfig "github.com/prometheus/common/config"
	"github.com/prometheus/common/version"
	prom "github.com/prometheus/prometheus/discovery"
	"github.com/prometheus/prometheus/discovery/kubernetes"
	"github.com/prometheus/prometheus/discovery/targetgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	discoveryv1client "k8s.io/client-go/kubernetes/typed/discovery/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/spillwayproject/spillway/proxy/config"
)

// cluster is one of a group's kubernetes_sd_configs. What is found is told by Prometheus' own
// discovery of its role; the feeds are ours, so that it is known what has come and what is refused.
type cluster struct {
	prefix string // of the sources of what it tells
	host   string
	log    *slog.Logger
	client *http.Client
	feeds  []*feed
	main   []*feed // those whose objects are told, each as a target group of its own
	roles  []prom.Discoverer

	kubeconfig string            // the file; empty where there is none
	read       [sha256.Size]byte // the file's digest when it was read
}

// namespaceFile holds the namespace of the pod that this is.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// klogOnce makes client-go's own log ours. It is set once, before anything of client-go runs.
var klogOnce sync.Once

// aside is a log in which what client-go only remarks is for whoever debugs it: what matters of it
// is told by feeds.
type aside struct{ slog.Handler }

func (a aside) Enabled(ctx context.Context, l slog.Level) bool {
	return a.Handler.Enabled(ctx, asideLevel(l))
}

func (a aside) Handle(ctx context.Context, r slog.Record) error {
	r.Level = asideLevel(r.Level)
	return a.Handler.Handle(ctx, r)
}

func (a aside) WithAttrs(attrs []slog.Attr) slog.Handler { return aside{a.Handler.WithAttrs(attrs)} }

func (a aside) WithGroup(name string) slog.Handler { return aside{a.Handler.WithGroup(name)} }

func asideLevel(l slog.Level) slog.Level {
	if l < slog.LevelWarn {
		return min(l, slog.LevelDebug)
	}
	return l
}

// newCluster prepares what Run starts. changed is called when a feed begins to work or to fail.
func newCluster(k *config.KubernetesSD, n int, log *slog.Logger, changed func()) (*cluster, error) {
	log = log.With("kubernetes_sd_config", n)
	klogOnce.Do(func() { klog.SetSlogLogger(slog.New(aside{log.Handler()})) })
	read, _ := digest(k.KubeconfigFile) // what is wrong is told by who reads it as one
	rc, err := restConfig(k)
	if err != nil {
		return nil, err
	}
	rc.UserAgent = "Spillway/" + version.Version
	rc.ContentType, rc.AcceptContentTypes = "application/vnd.kubernetes.protobuf", "application/vnd.kubernetes.protobuf,application/json"
	rc.WarningHandlerWithContext = rest.NoWarnings{} // of versions of the API that will go; the versions here are stable
	c := &cluster{prefix: fmt.Sprint(n, "/"), host: rc.Host, log: log, kubeconfig: k.KubeconfigFile, read: read}
	transport, err := rest.TransportFor(rc)
	if err != nil {
		return nil, err
	}
	bounded := &limited{
		RoundTripper: transport, most: maxAnswer, watches: true, what: "the API server's answer",
		advice: "have it list fewer objects, by namespaces and selectors",
	}
	c.client = &http.Client{Transport: observed{bounded}, CheckRedirect: func(to *http.Request, _ []*http.Request) error {
		return fmt.Errorf("a redirect to %s is not followed", to.URL.Host)
	}}
	core, err := corev1client.NewForConfigAndClient(rc, c.client)
	if err != nil {
		return nil, err
	}
	endpoints, err := discoveryv1client.NewForConfigAndClient(rc, c.client)
	if err != nil {
		return nil, err
	}
	namespaces, err := namespacesOf(k)
	if err != nil {
		return nil, err
	}
	events := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "events_total"}, []string{"role", "event"}) // ours are of groups
	for _, ns := range namespaces {
		pods := newFeed(k, config.RolePod, ns, "pods", &corev1.Pod{}, listWatch(core.Pods(ns).List, core.Pods(ns).Watch), changed)
		if k.Role == config.RolePod {
			c.feeds, c.main = append(c.feeds, pods), append(c.main, pods)
			c.roles = append(c.roles, kubernetes.NewPod(log, pods.informer, nil, nil, nil, nil, false, false, false, events))
			continue
		}
		services := newFeed(k, config.RoleService, ns, "services", &corev1.Service{},
			listWatch(core.Services(ns).List, core.Services(ns).Watch), changed)
		es := newFeed(k, config.RoleEndpointSlice, ns, "endpointslices", &discoveryv1.EndpointSlice{},
			listWatch(endpoints.EndpointSlices(ns).List, endpoints.EndpointSlices(ns).Watch), changed)
		c.feeds, c.main = append(c.feeds, es, services, pods), append(c.main, es)
		c.roles = append(c.roles, kubernetes.NewEndpointSlice(log, es.informer, services.informer, pods.informer, nil, nil, nil, nil,
			false, false, false, events))
	}
	return c, nil
}

// outdated tells whether the kubeconfig has other contents than when it was read, as a token that
// was rotated. One that cannot be read says nothing.
func (c *cluster) outdated() bool {
	now, ok := digest(c.kubeconfig)
	return ok && now != c.read
}

// digest is that of a file; false where it cannot be read.
func digest(file string) (sum [sha256.Size]byte, ok bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return sum, false
	}
	return sha256.Sum256(text), true
}

// restConfig is where the API server is and who asks it.
func restConfig(k *config.KubernetesSD) (*rest.Config, error) {
	switch {
	case k.KubeconfigFile != "":
		rc, err := clientcmd.BuildConfigFromFlags("", k.KubeconfigFile)
		if err != nil {
			return nil, fmt.Errorf("kubeconfig_file: %w", err)
		}
		return rc, nil
	case k.APIServer != "":
		rt, err := commonconfig.NewRoundTripperFromConfig(k.HTTPClient, "kubernetes_sd")
		if err != nil {
			return nil, fmt.Errorf("http_client: %w", err)
		}
		return &rest.Config{Host: k.APIServer, Transport: rt}, nil
	default:
		rc, err := rest.InClusterConfig()
		if errors.Is(err, rest.ErrNotInCluster) {
			return nil, errors.New("this is no pod of a cluster; give api_server or kubeconfig_file")
		}
		if err != nil {
			return nil, fmt.Errorf("the pod's service account: %w", err)
		}
		return rc, nil
	}
}

// namespacesOf are where it is looked for; "" is everywhere.
func namespacesOf(k *config.KubernetesSD) ([]string, error) {
	names := append([]string{}, k.Namespaces.Names...)
	if k.Namespaces.OwnNamespace {
		own, err := os.ReadFile(namespaceFile)
		if err != nil || len(own) == 0 {
			return nil, fmt.Errorf("namespaces.own_namespace: this is no pod with a service account: %w", err)
		}
		if name := strings.TrimSpace(string(own)); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return []string{metav1.NamespaceAll}, nil
	}
	return names, nil
}

// Run implements Prometheus' Discoverer. It returns when all that it began has ended.
func (c *cluster) Run(ctx context.Context, out chan<- []*targetgroup.Group) {
	logged := klog.NewContext(ctx, logr.FromSlogHandler(aside{c.log.Handler()}))
	in := make(chan []*targetgroup.Group)
	var wg sync.WaitGroup
	for _, f := range c.feeds {
		wg.Go(func() { f.informer.RunWithContext(logged) })
	}
	for _, r := range c.roles {
		wg.Go(func() { r.Run(ctx, in) })
	}
	wg.Go(func() { // two API servers have objects of one name
		for {
			select {
			case <-ctx.Done():
				return
			case groups := <-in:
				for i, g := range groups {
					own := *g
					own.Source = c.prefix + g.Source
					groups[i] = &own
				}
				select {
				case <-ctx.Done():
					return
				case out <- groups:
				}
			}
		}
	})
	wg.Go(func() { // where there is nothing, nothing is told
		for _, f := range c.feeds {
			if !cache.WaitForCacheSync(ctx.Done(), f.informer.HasSynced) {
				return
			}
			f.changed()
		}
	})
	wg.Wait()
	utilnet.CloseIdleConnectionsFor(c.client.Transport.(observed).RoundTripper)
}

// answered tells whether all that there is has been told.
func (c *cluster) answered(told map[string]*targetgroup.Group) bool {
	for _, f := range c.feeds {
		if !f.works() {
			return false
		}
	}
	for _, f := range c.main {
		for _, key := range f.informer.GetStore().ListKeys() {
			if told[c.prefix+f.role+"/"+key] == nil {
				return false
			}
		}
	}
	return true
}

// warming is how long a refusal may be that of an API server which has just been started, and has
// not read yet who may do what.
const warming = 5 * time.Second

// hopeless is why waiting is of no use, once that is known of every feed; nil where it may be.
func (c *cluster) hopeless() error {
	for _, f := range c.feeds {
		since, err := f.fails()
		if err == nil && !f.works() || err != nil && time.Since(since) < warming {
			return nil
		}
	}
	return c.refused()
}

// refused is what the API server refuses, and what is to be done about it; nil where that is
// nothing.
func (c *cluster) refused() error {
	var what, on []string
	var first error
	how := "a Role in that namespace and a RoleBinding"
	for _, f := range c.feeds {
		_, err := f.fails()
		switch {
		case apierrors.IsUnauthorized(err):
			return fmt.Errorf("the API server %s does not know who Spillway is; its token or certificate is wrong, or is valid no longer (it says: %s)",
				serverOf(c.host), said(err))
		case apierrors.IsForbidden(err):
			first = cmp.Or(first, err)
			what = append(what, f.String())
			if !slices.Contains(on, f.resource) {
				on = append(on, f.resource)
			}
			if f.namespace == "" {
				how = "a ClusterRole and a ClusterRoleBinding"
			}
		}
	}
	if first == nil {
		return nil
	}
	return fmt.Errorf("the API server %s does not let Spillway list and watch %s; grant list and watch on %s by %s (it says: %s)",
		serverOf(c.host), strings.Join(what[:min(len(what), 5)], ", "), strings.Join(on, ", "), how, said(first))
}

// missing is what has not come yet.
func (c *cluster) missing() []string {
	var out []string
	for _, f := range c.feeds {
		if !f.works() {
			out = append(out, f.String())
		}
	}
	for _, f := range c.feeds {
		if why := f.why(); why != "" && len(out) > 0 {
			out[len(out)-1] += " of " + serverOf(c.host) + why
			break
		}
	}
	return out
}

func serverOf(host string) string {
	if u, err := url.Parse(host); err == nil && u.Host != "" {
		return u.Host
	}
	return host
}
