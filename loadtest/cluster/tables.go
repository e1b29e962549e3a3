package cluster

import "fmt"

// table is rows of labels that belong together, for the schema files.
type table struct {
	cols []string
	rows [][]string
}

func (t *table) col(name string) int {
	for i, c := range t.cols {
		if c == name {
			return i
		}
	}
	panic("cluster: no column " + name)
}

var tables = map[string]*table{
	"f": {[]string{"flow_schema", "priority_level"}, [][]string{
		{"exempt", "exempt"},
		{"system-nodes", "system"},
		{"system-node-high", "node-high"},
		{"system-leader-election", "leader-election"},
		{"kube-controller-manager", "workload-high"},
		{"service-accounts", "workload-low"},
		{"global-default", "global-default"},
		{"catch-all", "catch-all"},
	}},
	"g": {[]string{"grpc_service", "grpc_method", "grpc_type"}, [][]string{
		{"etcdserverpb.KV", "Range", "unary"},
		{"etcdserverpb.KV", "Txn", "unary"},
		{"etcdserverpb.KV", "Compact", "unary"},
		{"etcdserverpb.Watch", "Watch", "bidi_stream"},
		{"etcdserverpb.Lease", "LeaseGrant", "unary"},
		{"etcdserverpb.Lease", "LeaseKeepAlive", "bidi_stream"},
		{"etcdserverpb.Maintenance", "Status", "unary"},
		{"etcdserverpb.Maintenance", "Defragment", "unary"},
	}},
	"deployment": {[]string{"namespace", "deployment"}, [][]string{
		{"kube-system", "coredns"},
		{"kube-system", "cluster-autoscaler"},
		{"monitoring", "kube-state-metrics"},
		{"gpu-operator", "gpu-operator"},
		{"kube-system", "jobset-controller-manager"},
	}},
	"replicaset": {[]string{"namespace", "replicaset"}, [][]string{
		{"kube-system", "coredns-7c65d6cfc9"},
		{"kube-system", "cluster-autoscaler-6d4f7"},
		{"monitoring", "kube-state-metrics-5bc9"},
		{"gpu-operator", "gpu-operator-84b6"},
	}},
	"service": {[]string{"namespace", "service", "uid"}, [][]string{
		{"default", "kubernetes", "0a1f3c5e-8d2b-4c6a-9e10-5b7d9f1a3c5e"},
		{"kube-system", "kube-dns", "1b2e4d6f-9c3a-4b5d-8f21-6c8e0a2b4d6f"},
		{"monitoring", "prometheus", "2c3f5e7a-ad4b-4a6e-9032-7d9f1b3c5e7a"},
		{"monitoring", "kube-state-metrics", "3d4a6f8b-be5c-497f-8143-8eaa2c4d6f8b"},
	}},
	"configmap": {[]string{"namespace", "configmap"}, [][]string{
		{"default", "kube-root-ca.crt"},
		{"kube-system", "kube-root-ca.crt"},
		{"kube-system", "coredns"},
		{"kube-system", "extension-apiserver-authentication"},
		{"monitoring", "prometheus-config"},
	}},
	"endpointslice": {[]string{"namespace", "endpointslice"}, [][]string{
		{"default", "kubernetes"}, {"kube-system", "kube-dns-4b6fd"}, {"monitoring", "kube-state-metrics-ppn4r"},
	}},
}

// table returns a table by name; "r" depends on the cluster's options.
func (m *Model) table(name string) *table {
	if name == "r" {
		return m.resources
	}
	t, ok := tables[name]
	if !ok {
		panic("cluster: no table " + name)
	}
	return t
}

// apiResource is one kind of object that the API servers serve.
type apiResource struct {
	group, version, resource, scope string
	weight                          float64 // requests a second of its LISTs, at 1,000 nodes
	verbs                           []string
}

var (
	readVerbs  = []string{"GET", "LIST", "WATCH"}
	basicVerbs = []string{"GET", "LIST", "WATCH", "POST", "PUT", "PATCH", "DELETE"}
)

// apiResources lists kinds, the busiest first; Lean clusters serve only those.
func apiResources(o Options) []apiResource {
	r := []apiResource{
		{"", "v1", "pods", "namespace", 9, basicVerbs},
		{"", "v1", "nodes", "cluster", 6, []string{"GET", "LIST", "WATCH", "PATCH"}},
		{"coordination.k8s.io", "v1", "leases", "namespace", 20, []string{"GET", "PUT", "LIST", "WATCH"}},
		{"", "v1", "events", "namespace", 7, []string{"POST", "PATCH", "LIST"}},
		{"", "v1", "configmaps", "namespace", 3, readVerbs},
		{"", "v1", "secrets", "namespace", 2, readVerbs},
		{"discovery.k8s.io", "v1", "endpointslices", "namespace", 1, readVerbs},
		{"batch", "v1", "jobs", "namespace", 1, []string{"GET", "LIST", "WATCH", "POST"}},
	}
	if o.Detail == Full {
		core := []string{
			"services", "endpoints", "namespaces", "serviceaccounts", "persistentvolumeclaims", "replicationcontrollers",
			"resourcequotas", "limitranges", "podtemplates",
		}
		for _, k := range core {
			r = append(r, apiResource{"", "v1", k, "namespace", 0.6, basicVerbs})
		}
		for _, g := range [][2]string{
			{"apps", "deployments"},
			{"apps", "replicasets"},
			{"apps", "daemonsets"},
			{"apps", "statefulsets"},
			{"apps", "controllerrevisions"},
			{"batch", "cronjobs"},
			{"autoscaling", "horizontalpodautoscalers"},
			{"policy", "poddisruptionbudgets"},
			{"networking.k8s.io", "networkpolicies"},
			{"networking.k8s.io", "ingresses"},
			{"rbac.authorization.k8s.io", "roles"},
			{"rbac.authorization.k8s.io", "rolebindings"},
		} {
			r = append(r, apiResource{g[0], "v1", g[1], "namespace", 0.4, basicVerbs})
		}
		for _, g := range [][2]string{
			{"rbac.authorization.k8s.io", "clusterroles"},
			{"rbac.authorization.k8s.io", "clusterrolebindings"},
			{"storage.k8s.io", "storageclasses"},
			{"storage.k8s.io", "csinodes"},
			{"storage.k8s.io", "volumeattachments"},
			{"scheduling.k8s.io", "priorityclasses"},
			{"apiextensions.k8s.io", "customresourcedefinitions"},
			{"apiregistration.k8s.io", "apiservices"},
			{"admissionregistration.k8s.io", "validatingwebhookconfigurations"},
			{"flowcontrol.apiserver.k8s.io", "flowschemas"},
			{"certificates.k8s.io", "certificatesigningrequests"},
		} {
			r = append(r, apiResource{g[0], "v1", g[1], "cluster", 0.2, readVerbs})
		}
	}
	custom := []string{
		"experiments", "jobsets", "rayclusters", "podgroups", "queues", "checkpoints", "datasets", "sweeps",
		"gpureservations", "nodeclaims",
	}
	for i := range o.CustomResources {
		name, group := custom[i%len(custom)], "research.example"
		if i >= len(custom) {
			name = fmt.Sprintf("%s%d", name, i/len(custom))
		}
		r = append(r, apiResource{group, "v1alpha1", name, "namespace", 0.3, basicVerbs})
	}
	return r
}

func resourceTable(kinds []apiResource) *table {
	t := &table{cols: []string{"group", "version", "resource", "scope"}}
	for _, k := range kinds {
		t.rows = append(t.rows, []string{k.group, k.version, k.resource, k.scope})
	}
	return t
}
