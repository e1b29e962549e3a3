package adopt

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/prometheus/common/version"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/spillwayproject/spillway/internal/clip"
)

// Manager is the field manager of all that adopt writes.
const Manager = "spillway-adopt"

// letGo is how long it takes to have Grafana read a data source anew: sidecars and Grafana's
// operator watch, and are told within a second or two. One that looks now and then says how often.
const letGo = 15 * time.Second

// maxBody is the most bytes of one answer of the API server.
const maxBody = 64 << 20

// Client asks one API server. Close it.
type Client struct {
	base *url.URL
	http *http.Client
	// seen, if not nil, is told of each request: a test compares them with Rules.
	seen func(*http.Request)
	// letGo is how long Undo lets Grafana be told that a data source is another.
	letGo time.Duration
}

// Connect reads a kubeconfig: the file that is named, else those of $KUBECONFIG or ~/.kube/config,
// else the service account of the pod that this is. context names one of it; empty is its current
// one. Nothing is asked yet.
func Connect(kubeconfig, contextName string) (*Client, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	chosen := &clientcmd.ConfigOverrides{CurrentContext: contextName}
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, chosen).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("no cluster to look at: %w; name a file by --kubeconfig, or run this in a pod with a service account", err)
	}
	return NewClient(cfg)
}

// NewClient is a client with settings that were read already.
func NewClient(cfg *rest.Config) (*Client, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = "spillway-adopt/" + version.Version
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("the API server's address: %w", err)
	}
	hc, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("how to reach the API server: %w", err)
	}
	// A token of one server must not be sent to another one.
	hc.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{base: base, http: hc, letGo: letGo}, nil
}

// Close closes its connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// InCluster tells whether this process is a pod, from which servers can be asked by their own
// addresses.
func InCluster() bool {
	_, err := os.Stat("/var/run/secrets/kubernetes.io/serviceaccount/token")
	return err == nil && os.Getenv("KUBERNETES_SERVICE_HOST") != ""
}

// StatusError is an answer of the API server that is no success.
type StatusError struct {
	Code         int
	Method, Path string
	Message      string
}

func (e *StatusError) Error() string {
	advice := ""
	switch e.Code {
	case http.StatusForbidden:
		advice = "; docs/adopt.md lists the rights that are needed"
	case http.StatusUnauthorized:
		advice = "; the credentials of the kubeconfig are not taken"
	}
	return fmt.Sprintf("%s %s: the API server says %d: %s%s", e.Method, e.Path, e.Code, e.Message, advice)
}

// isStatus tells whether an error is an answer of that code.
func isStatus(err error, code int) bool {
	var e *StatusError
	return errors.As(err, &e) && e.Code == code
}

// do asks the API server. What is read is decoded into out, unless that is nil.
func (c *Client) do(ctx context.Context, method, path string, query url.Values, contentType string, body, out any) error {
	u := *c.base
	u.Path = strings.TrimSuffix(u.Path, "/") + path
	u.RawQuery = query.Encode()
	var r io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		r = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), r)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", contentType)
	}
	if c.seen != nil {
		c.seen(req)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("ask the API server: %w", err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxBody+1))
	switch {
	case err != nil:
		return fmt.Errorf("%s %s: read the answer: %w", method, path, err)
	case len(b) > maxBody:
		return fmt.Errorf("%s %s: the answer is longer than %d MiB", method, path, maxBody>>20)
	case res.StatusCode >= 300:
		var said struct{ Message string }
		if json.Unmarshal(b, &said) != nil || said.Message == "" {
			said.Message = string(b)
		}
		return &StatusError{res.StatusCode, method, path, clip.Text(strings.TrimSpace(said.Message), 500)}
	case out == nil:
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("%s %s: the answer is not what it should be: %w", method, path, err)
	}
	return nil
}

func (c *Client) get(ctx context.Context, path string, out any) error {
	return c.do(ctx, http.MethodGet, path, nil, "", nil, out)
}

// list reads a collection page by page and keeps of each page what keep keeps. A collection that
// the API server does not serve, or whose kind nobody has defined, is empty.
func list[T any](ctx context.Context, c *Client, path, selector string, keep func(*T) bool) (out []T, err error) {
	query := url.Values{"limit": {"500"}}
	if selector != "" {
		query.Set("labelSelector", selector)
	}
	for {
		var page struct {
			Metadata struct{ Continue string }
			Items    []T
		}
		if err := c.do(ctx, http.MethodGet, path, query, "", nil, &page); isStatus(err, http.StatusNotFound) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
		for i := range page.Items {
			if keep == nil || keep(&page.Items[i]) {
				out = append(out, page.Items[i])
			}
		}
		if page.Metadata.Continue == "" {
			return out, nil
		}
		query.Set("continue", page.Metadata.Continue)
	}
}

// object is one as it is, with all its fields.
type object map[string]any

// at is what stands at a path of keys; nil where there is none.
func (o object) at(path ...string) any {
	var v any = map[string]any(o)
	for _, key := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[key]
	}
	return v
}

// text is the string at a path; empty where there is none.
func (o object) text(path ...string) string {
	s, _ := o.at(path...).(string)
	return s
}

// set writes a value at a path, whose maps it makes.
func (o object) set(v any, path ...string) {
	m := map[string]any(o)
	for _, key := range path[:len(path)-1] {
		next, ok := m[key].(map[string]any)
		if !ok {
			next = map[string]any{}
			m[key] = next
		}
		m = next
	}
	m[path[len(path)-1]] = v
}

// Ref names one object.
type Ref struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace"`
	Name       string `json:"name"`
}

func (r Ref) String() string { return r.Kind + " " + r.Namespace + "/" + r.Name }

// plurals are the collections of the kinds that adopt writes.
var plurals = map[string]string{
	"ConfigMap": "configmaps", "Secret": "secrets", "Deployment": "deployments", "Service": "services", "ServiceAccount": "serviceaccounts",
	"Role": "roles", "RoleBinding": "rolebindings", "PodDisruptionBudget": "poddisruptionbudgets", "NetworkPolicy": "networkpolicies",
	"GrafanaDatasource": "grafanadatasources",
}

// path is where the object is on the API server.
func (r Ref) path() string {
	root := "/apis/"
	if !strings.Contains(r.APIVersion, "/") {
		root = "/api/"
	}
	return root + r.APIVersion + "/namespaces/" + r.Namespace + "/" + plurals[r.Kind] + "/" + r.Name
}

func refOf(o object) Ref {
	return Ref{o.text("apiVersion"), o.text("kind"), o.text("metadata", "namespace"), o.text("metadata", "name")}
}

// read is the object as it is; nil where there is none.
func (c *Client) read(ctx context.Context, r Ref) (object, error) {
	var o object
	if err := c.get(ctx, r.path(), &o); isStatus(err, http.StatusNotFound) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	return o, nil
}

// apply is a server-side apply of adopt's own. Without force a field of another manager is an error
// with code 409.
func (c *Client) apply(ctx context.Context, o object, force, dry bool) (object, error) {
	query := url.Values{"fieldManager": {Manager}, "fieldValidation": {"Strict"}}
	if force {
		query.Set("force", "true")
	}
	if dry {
		query.Set("dryRun", "All")
	}
	var out object
	err := c.do(ctx, http.MethodPatch, refOf(o).path(), query, "application/apply-patch+yaml", o, &out)
	return out, err
}

// replace writes the whole object; its resourceVersion must be the one that the API server has.
func (c *Client) replace(ctx context.Context, o object) (object, error) {
	var out object
	err := c.do(ctx, http.MethodPut, refOf(o).path(), url.Values{"fieldManager": {Manager}}, "application/json", o, &out)
	return out, err
}

// remove deletes the object if it still has that uid. What it owns goes too.
func (c *Client) remove(ctx context.Context, r Ref, uid string) error {
	return c.do(ctx, http.MethodDelete, r.path(), nil, "application/json", map[string]any{
		"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background", "preconditions": map[string]any{"uid": uid},
	}, nil)
}
