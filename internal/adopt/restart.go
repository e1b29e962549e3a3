package adopt

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// restarts says which Grafana is to be restarted before Spillway may go, since it reads what was
// changed at its start only. What is put back by this run is written down, with the containers that
// run now: the next run sees by them who was not restarted since. f is nil where nobody could look.
func (c *Client) restarts(ctx context.Context, s Scope, f *Found, r *record, held object, done []bool) (out []string, err error) {
	fresh := false
	for i := range r.Changed {
		if ch := &r.Changed[i]; done[i] && !ch.Restored && ch.atStart(f) {
			ch.Restored, fresh = true, true
		}
	}
	running := []string{}
	for i := range r.Changed {
		ch := &r.Changed[i]
		if !ch.Restored {
			continue
		}
		how := []string{}
		for _, g := range f.mounting(ch.Ref) {
			how = append(how, fmt.Sprintf("kubectl -n %s rollout restart %s/%s", g.namespace, strings.ToLower(g.kind), g.name))
			now, err := c.containers(ctx, g)
			if err != nil {
				return nil, fmt.Errorf("which pods %s/%s has: %w", g.namespace, g.name, err)
			}
			running = append(running, now...)
		}
		if len(how) == 0 {
			how = []string{"whatever mounts that"}
		}
		slices.Sort(how)
		if fresh {
			out = append(out, fmt.Sprintf("Grafana reads %s at its start and asks Spillway until then, which therefore stays: restart it (%s), then run --undo again",
				ch.Ref, strings.Join(slices.Compact(how), "; ")))
		}
	}
	if fresh {
		slices.Sort(running)
		r.Running = slices.Compact(running)
		if _, err := c.writeRecord(ctx, s.Home, held, r); err != nil {
			return nil, fmt.Errorf("write down what was put back: %w", err)
		}
		return out, nil
	}
	for _, one := range running {
		if slices.Contains(r.Running, one) {
			pod, _, _ := strings.Cut(one, " ")
			out = append(out, fmt.Sprintf("Pod %s has not been restarted since its file was put back, and may ask Spillway, which therefore stays: restart it, then run --undo again", pod))
		}
	}
	return out, nil
}

// atStart tells whether Grafana reads a field that was changed at its start only: as the record
// says, and else as it is seen to be now. What nobody can see is.
func (ch *changed) atStart(f *Found) bool {
	if ch.AtStart != nil {
		return *ch.AtStart
	}
	return f == nil || slices.ContainsFunc(f.Sources, func(s Source) bool { return s.Ref == ch.Ref && !s.Sidecar })
}

// mounting are those that mount an object with data sources.
func (f *Found) mounting(r Ref) (out []*grafana) {
	if f == nil {
		return nil
	}
	for _, g := range f.grafanas {
		if slices.Contains(g.mounts, r) {
			out = append(out, g)
		}
	}
	return out
}

// containers are those of a Grafana that run now, each as "NAMESPACE/POD UID CONTAINER": another
// one, or one that was started again, has another name.
func (c *Client) containers(ctx context.Context, g *grafana) (out []string, err error) {
	pods, err := list[corev1.Pod](ctx, c, "/api/v1/namespaces/"+g.namespace+"/pods", metav1.FormatLabelSelector(&g.marks), nil)
	if err != nil {
		return nil, err
	}
	for i := range pods {
		p := &pods[i]
		for _, k := range p.Spec.Containers {
			at := slices.IndexFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == k.Name })
			if at >= 0 && grafanaImage.MatchString(k.Image) {
				out = append(out, fmt.Sprintf("%s/%s %s %s", g.namespace, p.Name, p.UID, p.Status.ContainerStatuses[at].ContainerID))
			}
		}
	}
	return out, nil
}
