package config

import (
	"reflect"
	"slices"
	"strconv"

	commonconfig "github.com/prometheus/common/config"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/spillwayproject/spillway/internal/clip"
)

// The roles of KubernetesSD.
const (
	RoleEndpointSlice = "endpointslice"
	RolePod           = "pod"
	// RoleService is one that a selector may have, no one to be looked up.
	RoleService = "service"
)

// KubernetesSD is one API server, or one kind of objects there, as Prometheus' kubernetes_sd_config
// spells it.
type KubernetesSD struct {
	// Role is what is looked up: RoleEndpointSlice or RolePod.
	Role string `yaml:"role" is:"required one=endpointslice|pod"`
	// APIServer is its URL; with neither it nor KubeconfigFile it is that of the pod's own cluster.
	APIServer string `yaml:"api_server" is:"filled"`
	// KubeconfigFile is absolute or relative to the working directory after Load.
	KubeconfigFile string               `yaml:"kubeconfig_file" is:"filled"`
	Namespaces     KubernetesNamespaces `yaml:"namespaces"`
	Selectors      []KubernetesSelector `yaml:"selectors"`
	// HTTPClient is for APIServer.
	HTTPClient commonconfig.HTTPClientConfig `yaml:"http_client"`
}

func (KubernetesSD) meaning() map[string]string {
	return map[string]string{
		"role": "What is looked up: `endpointslice` or `pod`.",
		"api_server": "The API server's URL. Without it, and without `kubeconfig_file`, it is that of the cluster whose pod Spillway is, " +
			"asked by the pod's service account.",
		"kubeconfig_file": "A kubeconfig in its place, relative to the configuration file.",
		"namespaces":      "Where it is looked for; in all namespaces where it is absent, which needs a ClusterRole.",
		"selectors":       "Which objects are asked for.",
		"http_client":     "Authentication, TLS and proxy for `api_server`, as `http_client` of a replica; no `oauth2`.",
	}
}

func (k *KubernetesSD) setDefaults() { k.HTTPClient = defaultHTTPClient() }

// KubernetesNamespaces are where it is looked for; with the zero value everywhere.
type KubernetesNamespaces struct {
	// OwnNamespace is that of the pod.
	OwnNamespace bool `yaml:"own_namespace"`
	// Names are at most 100.
	Names Paths `yaml:"names" is:"filled max=100"`
}

func (KubernetesNamespaces) meaning() map[string]string {
	return map[string]string{
		"own_namespace": "In that of the pod that Spillway is.",
		"names":         "In these.",
	}
}

// KubernetesSelector says which objects of a role are asked for.
type KubernetesSelector struct {
	// Role is RolePod, or with RoleEndpointSlice also that and RoleService.
	Role  string `yaml:"role" is:"required one=endpointslice|pod|service"`
	Label string `yaml:"label"`
	Field string `yaml:"field"`
}

func (KubernetesSelector) meaning() map[string]string {
	return map[string]string{
		"role":  "Of which objects: `pod`, or for `role: endpointslice` also `endpointslice` and `service`.",
		"label": "By their labels, as in `kubectl get -l`.",
		"field": "By their fields, as in `kubectl get --field-selector`.",
	}
}

// otherRoles are Prometheus' other roles, and why none is looked up.
var otherRoles = map[string]string{
	"endpoints": "an Endpoints object is cut at 1,000 addresses without a word; write endpointslice",
	"service":   "a service's address is that of any of its servers, and a replica is one server; write endpointslice",
	"ingress":   "an ingress' address is that of any of its servers, and a replica is one server; write endpointslice",
	"node":      "a node is no server that answers queries; write pod",
}

// kubernetes checks one of a group's kubernetes_sd_configs.
func (v *validator) kubernetes(k *KubernetesSD, path string) {
	switch why, other := otherRoles[k.Role]; {
	case k.Role == RoleEndpointSlice || k.Role == RolePod:
	case other:
		v.problem(path+".role", "%s", why)
	default:
		v.problem(path+".role", "%q is no role; write endpointslice or pod", clip.Text(k.Role, 40))
	}
	client := !reflect.DeepEqual(k.HTTPClient, defaultHTTPClient())
	if k.APIServer != "" && !plainURL(k.APIServer) {
		v.problem(path+".api_server", "it is no http or https URL without credentials; write one such as https://10.0.0.1:6443, and credentials under http_client")
	}
	if k.APIServer != "" && k.KubeconfigFile != "" {
		v.problem(path+".kubeconfig_file", "api_server stands there too; keep one")
	}
	if client && k.APIServer == "" {
		v.problem(path+".http_client", "it is for api_server, which is missing; the pod's service account and a kubeconfig bring their own")
	}
	if k.HTTPClient.OAuth2 != nil {
		v.problem(path+".http_client.oauth2", "API servers are not asked with tokens of a token endpoint; give authorization.credentials_file or tls_config")
	}
	if k.Namespaces.OwnNamespace && (k.APIServer != "" || k.KubeconfigFile != "") {
		v.problem(path+".namespaces.own_namespace", "it is that of the pod in its own cluster, and api_server or kubeconfig_file is of another; write its name under names")
	}
	v.lookedUp(k.Namespaces.Names, path+".namespaces.names")
	for i, s := range k.Selectors {
		v.selector(k, i, s, path+".selectors["+strconv.Itoa(i)+"]")
	}
	if k.KubeconfigFile != "" {
		k.KubeconfigFile = commonconfig.JoinDir(v.dir, k.KubeconfigFile)
	}
	k.HTTPClient.SetDirectory(v.dir)
}

// selector checks the one that is number i.
func (v *validator) selector(k *KubernetesSD, i int, s KubernetesSelector, path string) {
	allowed := []string{RolePod}
	if k.Role == RoleEndpointSlice {
		allowed = []string{RoleEndpointSlice, RolePod, RoleService}
	}
	if !slices.Contains(allowed, s.Role) {
		v.problem(path+".role", "with role: %s selectors are of %v, and this is of %q", clip.Text(k.Role, 40), allowed, clip.Text(s.Role, 40))
	}
	if slices.IndexFunc(k.Selectors, func(o KubernetesSelector) bool { return o.Role == s.Role }) < i {
		v.problem(path+".role", "a selector of this role stands there already; join their terms by commas")
	}
	if s.Label == "" && s.Field == "" {
		v.problem(path, "it selects nothing; give label or field")
	}
	if _, err := labels.Parse(s.Label); err != nil {
		v.problem(path+".label", "%s", clip.Text(err.Error(), 200))
	}
	if _, err := fields.ParseSelector(s.Field); err != nil {
		v.problem(path+".field", "%s", clip.Text(err.Error(), 200))
	}
}
