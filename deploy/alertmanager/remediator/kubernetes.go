package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/version"
)

const (
	// markLabel is on every node that was cordoned here; its value is always "true".
	markLabel = "spillway.dev/remediated"
	// markTime is the annotation with when, in RFC 3339; markReason has which alert and why;
	// markAction has the action, which lists of metadata do not tell from the taint.
	markTime   = "spillway.dev/remediated-at"
	markReason = "spillway.dev/remediated-for"
	markAction = "spillway.dev/remediated-by"
	// taintKey is the taint's key; its value is the action.
	taintKey = "spillway.dev/remediation"

	// answerBytes bounds an answer of the API server: a page of 500 nodes' metadata has about 2
	// MiB.
	answerBytes = 32 << 20
	// conflictTries is how often a node that changed in between is read again.
	conflictTries = 4
)

var (
	errNoNode     = errors.New("the node does not exist")
	errConflict   = errors.New("the node changed in between")
	errOthers     = errors.New("the node was cordoned by somebody else, or is deleted")
	errLeaving    = errors.New("an autoscaler takes the node away")
	errOtherStart = errors.New("the node was started anew in between")
)

// saysNo is an answer of the API server that is none of success.
type saysNo struct {
	method, path, status string
	code                 int
	text                 string
}

func (e saysNo) Error() string {
	return fmt.Sprintf("%s %s: the API server says %s: %s", e.method, e.path, e.status, e.text)
}

// perhapsDone tells of a change that failed whether it may have been made all the same: the answer
// was lost, or says only that something went wrong behind the server.
func perhapsDone(err error) bool {
	if no, ok := errors.AsType[saysNo](err); ok {
		return no.code >= 500 || no.code == http.StatusRequestTimeout
	}
	return !errors.Is(err, errConflict)
}

// kube is the part of the Kubernetes API that is needed, over plain HTTP.
type kube struct {
	base      string // https://host:port
	tokenFile string // read for each request: tokens of service accounts are renewed; empty: none
	client    *http.Client
}

// newKube makes a client. caFile is read again when it changes; it may be empty: the system's
// certificates then.
func newKube(base, tokenFile, caFile string) (*kube, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, fmt.Errorf("--kubernetes-url=%q: must be like https://10.96.0.1:443", base)
	}
	way, err := newTrust("--kubernetes-ca-file", caFile, "")
	if err != nil {
		return nil, err
	}
	return &kube{
		base: strings.TrimSuffix(base, "/"), tokenFile: tokenFile,
		client: &http.Client{Timeout: 15 * time.Second, Transport: way},
	}, nil
}

// node is what is read of a Node.
type node struct {
	Metadata meta `json:"metadata"`
	Spec     struct {
		Unschedulable bool    `json:"unschedulable"`
		Taints        []taint `json:"taints"`
	} `json:"spec"`
	Status struct {
		NodeInfo struct {
			BootID string `json:"bootID"` // another one after each start of the machine
		} `json:"nodeInfo"`
		Conditions []struct {
			Type               string    `json:"type"`
			Status             string    `json:"status"`
			LastTransitionTime time.Time `json:"lastTransitionTime"`
		} `json:"conditions"`
	} `json:"status"`
}

// readySince tells whether the node has become ready after a time, as each start of its machine
// ends.
func (n node) readySince(t time.Time) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == "Ready" {
			return c.Status == "True" && c.LastTransitionTime.After(t)
		}
	}
	return false
}

// startingSince tells whether its kubelet has said, after a time, that the node is not ready, as
// each start of its machine begins: the start that it shows may be a new one. Of one that nobody
// hears of (Unknown) it is the last one.
func (n node) startingSince(t time.Time) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == "Ready" {
			return c.Status == "False" && c.LastTransitionTime.After(t)
		}
	}
	return false
}

// others tells that somebody else has cordoned the node: it does not bear both the label and the
// taint of here. The label alone may have been left behind after a repair.
func (n node) others() bool {
	own := slices.ContainsFunc(n.Spec.Taints, func(t taint) bool { return t.Key == taintKey })
	return n.Spec.Unschedulable && (!own || n.Metadata.Labels[markLabel] != "true")
}

// leavingTaints are those that autoscalers, clouds and people set on a node which they take away or
// have switched off, as _config.node.toBeDeleted and switchedOff of the mixin have them, and
// --leaving-taints unless it is given.
var leavingTaints = taintKeys{
	"ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted", "karpenter.sh/disruption",
	"cloud.google.com/impending-node-termination", "node.kubernetes.io/out-of-service",
	"node.cloudprovider.kubernetes.io/shutdown",
}

// leftTo is the reason why a node is left to those who are at work on it, "" if it is not: it is
// deleted, one of the taints says that somebody means to take it away, or others have cordoned it
// and such nodes are not marked.
func (n node) leftTo(evenOthers bool, taints taintKeys) string {
	switch {
	case n.Metadata.DeletionTimestamp != "":
		return outByOthers
	case slices.ContainsFunc(n.Spec.Taints, func(t taint) bool { return slices.Contains(taints, t.Key) }):
		return leaving
	case n.others() && !evenOthers:
		return outByOthers
	}
	return ""
}

// goesOn tells that an action makes of a node nothing that it is not already: what reads its taint
// takes the jobs away, or the action lets them run as what it replaces does. Where somebody has
// taken the taint off nobody takes them away.
func (n node) goesOn(action string) bool {
	return n.Spec.Unschedulable && n.Metadata.Labels[markLabel] == "true" &&
		slices.ContainsFunc(n.Spec.Taints, func(t taint) bool {
			return t.Key == taintKey && weight(t.Value) >= 0 && (isLight(action) || !isLight(t.Value))
		})
}

type meta struct {
	Name              string            `json:"name"`
	ResourceVersion   string            `json:"resourceVersion"`
	Labels            map[string]string `json:"labels"`
	Annotations       map[string]string `json:"annotations"`
	DeletionTimestamp string            `json:"deletionTimestamp"`
}

// isLight tells of a node that was taken out here for a light action. A mark of before there were
// such says nothing, and counts as another one.
func (m meta) isLight() bool {
	return m.Labels[markLabel] == "true" && isLight(m.Annotations[markAction])
}

// waitsLightly tells of a node that is out here for a light action: something heavier takes its
// place.
func (n node) waitsLightly() bool {
	return n.Spec.Unschedulable && n.Metadata.Labels[markLabel] == "true" &&
		slices.ContainsFunc(n.Spec.Taints, func(t taint) bool { return t.Key == taintKey && isLight(t.Value) })
}

// taint is kept whole, so that those of others are written back as they were.
type taint struct {
	Key       string `json:"key"`
	Value     string `json:"value,omitempty"`
	Effect    string `json:"effect"`
	TimeAdded string `json:"timeAdded,omitempty"`
}

// list is a list of nodes' metadata.
type list struct {
	Metadata struct {
		Continue           string `json:"continue"`
		RemainingItemCount int    `json:"remainingItemCount"`
	} `json:"metadata"`
	Items []struct {
		Metadata meta `json:"metadata"`
	} `json:"items"`
}

func (k *kube) do(ctx context.Context, method, path string, body any, contentType, accept string, into any) error {
	var r io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		r = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, k.base+path, r)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", accept)
	req.Header.Set("User-Agent", "spillway-remediator/"+cmp.Or(version.Version, "unknown"))
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	if k.tokenFile != "" {
		bearer, err := bearerOf("--kubernetes-token-file", k.tokenFile)
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", bearer)
	}
	res, err := k.client.Do(req)
	if err != nil {
		return fmt.Errorf("ask the API server: %w", err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, answerBytes))
	if err != nil {
		return fmt.Errorf("read the API server's answer: %w", err)
	}
	switch {
	case res.StatusCode == http.StatusNotFound:
		return errNoNode
	case res.StatusCode == http.StatusConflict:
		return errConflict
	case res.StatusCode/100 != 2:
		return saysNo{method, path, res.Status, res.StatusCode, string(text[:min(len(text), 300)])}
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s %s: the API server's answer makes no sense: %w", method, path, err)
	}
	return nil
}

const (
	wholeObject  = "application/json"
	metadataOnly = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	metadataList = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

// node reads one node.
func (k *kube) node(ctx context.Context, name string) (node, error) {
	var n node
	err := k.do(ctx, http.MethodGet, "/api/v1/nodes/"+url.PathEscape(name), nil, "", wholeObject, &n)
	return n, err
}

// metadata reads that of one node.
func (k *kube) metadata(ctx context.Context, name string) (meta, error) {
	var n node
	err := k.do(ctx, http.MethodGet, "/api/v1/nodes/"+url.PathEscape(name), nil, "", metadataOnly, &n)
	return n.Metadata, err
}

// total counts all nodes by asking for one: the server says how many remain, or else they are
// listed.
func (k *kube) total(ctx context.Context) (int, error) {
	var l list
	if err := k.do(ctx, http.MethodGet, "/api/v1/nodes?limit=1", nil, "", metadataList, &l); err != nil {
		return 0, err
	}
	if l.Metadata.Continue != "" && l.Metadata.RemainingItemCount == 0 {
		all, err := k.matching(ctx, url.Values{})
		return len(all), err
	}
	return len(l.Items) + l.Metadata.RemainingItemCount, nil
}

// matching lists the metadata of all nodes that the parameters select.
func (k *kube) matching(ctx context.Context, v url.Values) ([]meta, error) {
	return k.those(ctx, v, func(meta) bool { return true })
}

// those are the ones of what the parameters select that are wanted; the others are not held.
func (k *kube) those(ctx context.Context, v url.Values, wanted func(meta) bool) ([]meta, error) {
	var out []meta
	v.Set("limit", "500")
	for {
		var l list
		if err := k.do(ctx, http.MethodGet, "/api/v1/nodes?"+v.Encode(), nil, "", metadataList, &l); err != nil {
			return nil, err
		}
		for _, i := range l.Items {
			if wanted(i.Metadata) {
				out = append(out, i.Metadata)
			}
		}
		if l.Metadata.Continue == "" {
			return out, nil
		}
		v.Set("continue", l.Metadata.Continue)
	}
}

// marked are the nodes that were cordoned here and still carry the mark.
func (k *kube) marked(ctx context.Context) ([]meta, error) {
	return k.matching(ctx, url.Values{"labelSelector": {markLabel + "=true"}})
}

// onceMarked are the nodes that were cordoned here, those that were given back too: the time stays
// on a node whose mark was taken off.
func (k *kube) onceMarked(ctx context.Context) ([]meta, error) {
	return k.those(ctx, url.Values{}, func(m meta) bool { return m.Annotations[markTime] != "" })
}

// cordoned are the nodes on which nothing is scheduled, whoever wanted that.
func (k *kube) cordoned(ctx context.Context) ([]meta, error) {
	return k.matching(ctx, url.Values{"fieldSelector": {"spec.unschedulable=true"}})
}

// cordon marks a node, taints it and keeps new pods away. The patch names the version that was
// read: a list of taints is replaced as a whole, and another's must not be lost. A node that others
// have cordoned is marked where evenOthers says so, and one that has another start than the wish
// was decided on with is another machine, or a cured one. It answers with the time that is on the
// node, or may be where the change failed; without one where none was sent.
func (k *kube) cordon(ctx context.Context, w wish, at time.Time, evenOthers bool, leave taintKeys) (string, error) {
	name, action := w.node, w.action
	for try := 1; ; try++ {
		n, err := k.node(ctx, name)
		if err != nil {
			return "", err
		}
		if n.Status.NodeInfo.BootID != w.boot {
			return "", errOtherStart
		}
		switch n.leftTo(evenOthers, leave) {
		case outByOthers:
			return "", errOthers
		case leaving:
			return "", errLeaving
		}
		taints := slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(t taint) bool { return t.Key == taintKey })
		taints = append(taints, taint{Key: taintKey, Value: action, Effect: "NoSchedule"})
		annotations := map[string]string{markReason: reasonOf(w.alert), markAction: action}
		// A node that was given back and kept the mark is taken out anew, and so is one that is
		// drained after a light action.
		since := n.Metadata.Annotations[markTime]
		if since == "" || !n.goesOn(action) {
			since = at.UTC().Format(time.RFC3339)
			annotations[markTime] = since
		}
		patch := map[string]any{
			"metadata": map[string]any{
				"resourceVersion": n.Metadata.ResourceVersion, "labels": map[string]string{markLabel: "true"},
				"annotations": annotations,
			},
			"spec": map[string]any{"unschedulable": true, "taints": taints},
		}
		var after node
		err = k.do(ctx, http.MethodPatch, "/api/v1/nodes/"+url.PathEscape(name)+"?fieldManager=spillway-remediator", patch,
			"application/merge-patch+json", wholeObject, &after)
		if errors.Is(err, errConflict) && try < conflictTries {
			continue
		}
		return since, err
	}
}
