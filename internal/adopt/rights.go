package adopt

import (
	"net/http"
	"strings"
)

// Rule is one right that adopt needs: verbs on a kind.
type Rule struct {
	Group, Resource string
	Verbs           []string
	// Why says what it is for.
	Why string
}

// roleGrants is why the rights of Spillway's own Role are needed: Kubernetes wants them of whoever
// makes it.
const roleGrants = "what Spillway's Role grants"

// otherWalls is why policies are listed that adopt does not follow.
const otherWalls = "what else may keep somebody from them, where there is such a kind"

// Reads are the rights that looking needs, and Writes those of Apply and Undo besides.
var (
	Reads = []Rule{
		{"monitoring.coreos.com", "prometheuses", []string{"list"}, "the operator's servers"},
		{"monitoring.coreos.com", "thanosrulers", []string{"list"}, "rulers"},
		{"apps", "statefulsets", []string{"list"}, "servers without the operator"},
		{"apps", "deployments", []string{"list"}, "servers without the operator, Thanos Query, Grafana"},
		{"", "pods", []string{"list"}, "the servers themselves"},
		{"", "services", []string{"list"}, "by what they are looked up"},
		{"discovery.k8s.io", "endpointslices", []string{"list"}, "their addresses"},
		{"networking.k8s.io", "networkpolicies", []string{"list"}, "what may reach them"},
		{"cilium.io", "ciliumnetworkpolicies", []string{"list"}, otherWalls},
		{"cilium.io", "ciliumclusterwidenetworkpolicies", []string{"list"}, otherWalls},
		{"projectcalico.org", "networkpolicies", []string{"list"}, otherWalls},
		{"projectcalico.org", "globalnetworkpolicies", []string{"list"}, otherWalls},
		{"crd.projectcalico.org", "networkpolicies", []string{"list"}, otherWalls},
		{"crd.projectcalico.org", "globalnetworkpolicies", []string{"list"}, otherWalls},
		{"policy.networking.k8s.io", "adminnetworkpolicies", []string{"list"}, otherWalls},
		{"policy.networking.k8s.io", "baselineadminnetworkpolicies", []string{"list"}, otherWalls},
		{"policy.networking.k8s.io", "clusternetworkpolicies", []string{"list"}, otherWalls},
		{"security.istio.io", "authorizationpolicies", []string{"list"}, otherWalls},
		{"", "configmaps", []string{"get", "list"}, "Grafana's data sources"},
		{"", "secrets", []string{"get", "list"}, "Grafana's data sources, where its Deployment mounts a Secret of them, or Secrets have the label"},
		{"grafana.integreatly.org", "grafanadatasources", []string{"list"}, "data sources of Grafana's operator"},
		{"", "pods/proxy", []string{"get", "create"}, "to ask the servers through the API server; not from inside the cluster"},
	}
	Writes = []Rule{
		{"", "secrets", []string{"get", "patch", "create", "update", "delete"}, "the configuration, and what Undo needs to know"},
		{"", "configmaps", []string{"get", "patch", "update"}, "Grafana's data sources"},
		{"grafana.integreatly.org", "grafanadatasources", []string{"get", "patch", "update"}, "Grafana's data sources"},
		{"", "services", []string{"get", "patch", "create", "delete"}, "Spillway's objects"},
		{"", "serviceaccounts", []string{"get", "patch", "create", "delete"}, "Spillway's objects"},
		{"apps", "deployments", []string{"get", "patch", "create", "delete"}, "Spillway's objects"},
		{"policy", "poddisruptionbudgets", []string{"get", "patch", "create", "delete"}, "Spillway's objects"},
		{"rbac.authorization.k8s.io", "roles", []string{"get", "patch", "create", "delete"}, "Spillway's right to look pods up, which nobody may grant who has it not"},
		{"rbac.authorization.k8s.io", "rolebindings", []string{"get", "patch", "create", "delete"}, "the same"},
		{"", "pods", []string{"list", "watch"}, roleGrants},
		{"", "services", []string{"list", "watch"}, roleGrants},
		{"discovery.k8s.io", "endpointslices", []string{"list", "watch"}, roleGrants},
		{"networking.k8s.io", "networkpolicies", []string{"get", "patch", "create", "delete"}, "so that Spillway reaches servers that a policy closes"},
	}
)

// ruleOf is what a request needs: group, resource and verb, as the API server names them. The
// second is false for what is no request for an object.
func ruleOf(r *http.Request) (Rule, bool) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	out := Rule{}
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		out.Group, parts = parts[1], parts[3:]
	default:
		return out, false
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	out.Resource = parts[0]
	verb := map[string]string{
		http.MethodGet: "get", http.MethodPost: "create", http.MethodPatch: "patch", http.MethodPut: "update", http.MethodDelete: "delete",
	}[r.Method]
	switch {
	case len(parts) > 2:
		out.Resource += "/" + parts[2]
	case len(parts) == 1 && verb == "get":
		verb = "list"
	}
	out.Verbs = []string{verb}
	return out, true
}
