package realkube

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
)

// writers is how many objects are written at the same time.
const writers = 8

// collections are the paths' last elements of the kinds that Create knows.
var collections = map[string]string{
	"ClusterRole": "clusterroles", "ClusterRoleBinding": "clusterrolebindings", "Namespace": "namespaces",
	"ServiceAccount": "serviceaccounts", "Node": "nodes", "Pod": "pods",
	"ConfigMap": "configmaps", "Service": "services", "FlowSchema": "flowschemas", "Role": "roles", "RoleBinding": "rolebindings",
	"EndpointSlice":                  "endpointslices",
	"PriorityLevelConfiguration":     "prioritylevelconfigurations",
	"ValidatingWebhookConfiguration": "validatingwebhookconfigurations", "APIService": "apiservices",
	"CustomResourceDefinition": "customresourcedefinitions",
	"Secret":                   "secrets", "Deployment": "deployments", "PodDisruptionBudget": "poddisruptionbudgets",
	"HorizontalPodAutoscaler": "horizontalpodautoscalers", "NetworkPolicy": "networkpolicies", "Ingress": "ingresses",
	"HTTPRoute": "httproutes", "PriorityClass": "priorityclasses",
	"PrometheusRule": "prometheusrules", "ServiceMonitor": "servicemonitors", "PodMonitor": "podmonitors",
}

// Create writes one object, JSON without apiVersion, into the API group and version, and then its
// status, where it has one.
func (c *Cluster) Create(ctx context.Context, apiVersion, object string) error {
	path, body, status, err := prepare(apiVersion, object)
	if err != nil {
		return err
	}
	if _, err := c.Do(ctx, AdminToken, http.MethodPost, path, body); err != nil {
		return fmt.Errorf("create in %s: %w", path, err)
	}
	if status == nil {
		return nil
	}
	return c.status(ctx, path+"/"+status.name, status.patch)
}

// DryRun asks the API server whether it would take the object, every unknown field being an error.
func (c *Cluster) DryRun(ctx context.Context, apiVersion, object string) error {
	path, body, _, err := prepare(apiVersion, object)
	if err != nil {
		return err
	}
	_, err = c.Do(ctx, AdminToken, http.MethodPost, path+"?dryRun=All&fieldValidation=Strict", body)
	return err
}

type statusPatch struct {
	name  string
	patch []byte
}

func prepare(apiVersion, object string) (path string, body []byte, status *statusPatch, err error) {
	var o map[string]any
	if err := json.Unmarshal([]byte(object), &o); err != nil {
		return "", nil, nil, fmt.Errorf("the object is not JSON: %w", err)
	}
	kind, _ := o["kind"].(string)
	collection, ok := collections[kind]
	if !ok {
		return "", nil, nil, fmt.Errorf("kind %q is none that this package knows", kind)
	}
	o["apiVersion"] = apiVersion
	meta, _ := o["metadata"].(map[string]any)
	path = "/apis/" + apiVersion
	if !strings.Contains(apiVersion, "/") {
		path = "/api/" + apiVersion
	}
	if ns, ok := meta["namespace"].(string); ok {
		path += "/namespaces/" + ns
	}
	path += "/" + collection
	if s, ok := o["status"]; ok && kind == "Pod" { // a node's is kept as it is written
		patch, err := json.Marshal(map[string]any{"status": s})
		if err != nil {
			return "", nil, nil, err
		}
		name, _ := meta["name"].(string)
		status = &statusPatch{name, patch}
		delete(o, "status")
	}
	body, err = json.Marshal(o)
	return path, body, status, err
}

func (c *Cluster) status(ctx context.Context, path string, patch []byte) error {
	_, err := c.Do(ctx, AdminToken, http.MethodPatch, path+"/status", patch)
	if err != nil {
		return fmt.Errorf("the status of %s: %w", path, err)
	}
	return nil
}

// each calls f for 0 to n-1, a few at a time, and ends with the first errors.
func each(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	next := make(chan int)
	errs := make([]error, writers)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range next {
				if err := f(ctx, i); err != nil {
					errs[w] = err
					cancel()
					return
				}
			}
		})
	}
loop:
	for i := range n {
		select {
		case next <- i:
		case <-ctx.Done():
			break loop
		}
	}
	close(next)
	wg.Wait()
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}
	return ctx.Err()
}

// NodeName is the name of node i.
func NodeName(i int) string { return fmt.Sprintf("gpu-%05d", i) }

// Nodes writes n nodes that are ready, with so many GPUs each.
func (c *Cluster) Nodes(ctx context.Context, n, gpus int) error {
	return each(ctx, n, func(ctx context.Context, i int) error {
		resources := fmt.Sprintf(`{"cpu":"192","memory":"2000Gi","pods":"250","ephemeral-storage":"2000Gi","nvidia.com/gpu":"%d"}`, gpus)
		return c.Create(ctx, "v1", fmt.Sprintf(`{"kind":"Node","metadata":{"name":"%s","labels":{"nvidia.com/gpu.product":"H100","rack":"r%03d"}},
		  "status":{"capacity":%s,"allocatable":%s,"conditions":[%s],"nodeInfo":{"kubeletVersion":"v1.34.4","machineID":"","systemUUID":"","bootID":"","kernelVersion":"",
		  "osImage":"","containerRuntimeVersion":"","kubeProxyVersion":"","operatingSystem":"linux","architecture":"amd64"}}}`, NodeName(i), i/16, resources, resources, ready("True")))
	})
}

func ready(status string) string {
	return fmt.Sprintf(`{"type":"Ready","status":"%s","reason":"Set","message":"","lastHeartbeatTime":"2026-01-01T00:00:00Z","lastTransitionTime":"2026-01-01T00:00:00Z"}`, status)
}

// NotReady sets the condition Ready of nodes first to last-1 to False, or back to True.
func (c *Cluster) NotReady(ctx context.Context, first, last int, back bool) error {
	status := "False"
	if back {
		status = "True"
	}
	return each(ctx, last-first, func(ctx context.Context, i int) error {
		return c.status(ctx, "/api/v1/nodes/"+NodeName(first+i), fmt.Appendf(nil, `{"status":{"conditions":[%s]}}`, ready(status)))
	})
}

// Namespace makes a namespace with its default service account, without which pods are refused, and
// a team's label where team is not empty.
func (c *Cluster) Namespace(ctx context.Context, name, team string) error {
	labels := "{}"
	if team != "" {
		labels = fmt.Sprintf(`{"team":"%s"}`, team)
	}
	if name != "default" {
		if err := c.Create(ctx, "v1", fmt.Sprintf(`{"kind":"Namespace","metadata":{"name":"%s","labels":%s}}`, name, labels)); err != nil {
			return err
		}
	}
	err := c.Create(ctx, "v1", fmt.Sprintf(`{"kind":"ServiceAccount","metadata":{"name":"default","namespace":"%s"}}`, name))
	var status *StatusError
	if errors.As(err, &status) && status.Code == http.StatusConflict {
		return nil
	}
	return err
}

// Pod is a pod as a test wants it.
type Pod struct {
	Namespace, Name string
	// Container is the name of its container; main where it is empty.
	Container string
	// Node it is bound to; empty for one that waits.
	Node string
	// GPUs that it asks for.
	GPUs int
	// Labels of the pod.
	Labels map[string]string
	// Status is the JSON of its status.
	Status string
}

// States of pods.
const (
	// Running is the status of a pod whose container runs.
	Running = `{"phase":"Running","conditions":[{"type":"PodScheduled","status":"True"},{"type":"Ready","status":"True"}],
	  "containerStatuses":[{"name":"main","image":"i","imageID":"i","ready":true,"restartCount":0,"state":{"running":{"startedAt":"2026-01-01T00:00:00Z"}}}]}`
	// Unschedulable is that of one for which the scheduler found no node.
	Unschedulable = `{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable","message":"0 nodes are available"}]}`
)

// CrashLoop is the status of a pod whose container was killed for its memory so many times.
func CrashLoop(restarts int) string {
	return fmt.Sprintf(`{"phase":"Running","conditions":[{"type":"PodScheduled","status":"True"},{"type":"Ready","status":"False"}],
	  "containerStatuses":[{"name":"main","image":"i","imageID":"i","ready":false,"restartCount":%d,"state":{"waiting":{"reason":"CrashLoopBackOff"}},
	  "lastState":{"terminated":{"reason":"OOMKilled","exitCode":137}}}]}`, restarts)
}

// Pods writes pods, each with its status.
func (c *Cluster) Pods(ctx context.Context, pods []Pod) error {
	return each(ctx, len(pods), func(ctx context.Context, i int) error {
		p := pods[i]
		container := cmp.Or(p.Container, mainContainer)
		labels, err := json.Marshal(p.Labels)
		if err != nil {
			return err
		}
		resources := "{}"
		if p.GPUs > 0 {
			resources = fmt.Sprintf(`{"requests":{"nvidia.com/gpu":"%d"},"limits":{"nvidia.com/gpu":"%d"}}`, p.GPUs, p.GPUs)
		}
		return c.Create(ctx, "v1", fmt.Sprintf(`{"kind":"Pod","metadata":{"name":"%s","namespace":"%s","labels":%s},"spec":{"nodeName":"%s","automountServiceAccountToken":false,
		  "containers":[{"name":"%s","image":"i","resources":%s}]},"status":%s}`, p.Name, p.Namespace, labels, p.Node, container, resources, named(p.Status, container)))
	})
}

// mainContainer is how the states call the container.
const mainContainer = "main"

// named is a status with the container's name in it.
func named(status, container string) string {
	return strings.ReplaceAll(status, `"name":"`+mainContainer+`"`, `"name":"`+container+`"`)
}

// PodStatus sets the status of a pod whose container has this name.
func (c *Cluster) PodStatus(ctx context.Context, namespace, name, container, status string) error {
	return c.status(ctx, "/api/v1/namespaces/"+namespace+"/pods/"+name, []byte(`{"status":`+named(status, container)+`}`))
}

// Delete removes what is at the path, such as /api/v1/nodes/gpu-00001.
func (c *Cluster) Delete(ctx context.Context, path string) error {
	_, err := c.Do(ctx, AdminToken, http.MethodDelete, path, []byte(`{"gracePeriodSeconds":0,"kind":"DeleteOptions","apiVersion":"v1"}`))
	return err
}
