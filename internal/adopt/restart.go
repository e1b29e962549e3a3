package adopt

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pledge writes down, before anything is put back, of which changes Grafana reads the field at its
// start only, and which of its containers run: the next run sees by them who was not restarted
// since, also where this one is ended halfway. fresh are those changes. Where it cannot be seen or
// written nothing is to be put back.
func (c *Client) pledge(ctx context.Context, s Scope, r *record, held object) (fresh []bool, err error) {
	fresh = make([]bool, len(r.Changed))
	var f *Found
	for i := range r.Changed {
		ch := &r.Changed[i]
		o, err := c.read(ctx, ch.Ref)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", ch.Ref, err)
		}
		if !sourceField(*ch) || ch.settled(o) {
			continue
		}
		if f == nil {
			f, err = c.sources(ctx, s, r)
			if err != nil && ch.AtStart != nil && !*ch.AtStart { // nobody can say better
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("which Grafana reads %s cannot be seen, and nothing was put back: %w; --look-in=NAMESPACE looks in that one only, --even-if-asked nowhere", ch.Ref, err)
			}
		}
		fresh[i] = ch.atStart(f)
	}
	if !slices.Contains(fresh, true) {
		return fresh, nil
	}
	r.Running = []string{}
	for i := range r.Changed {
		ch := &r.Changed[i]
		if ch.Restored = ch.Restored || fresh[i]; !ch.Restored {
			continue
		}
		now, err := c.startedWith(ctx, f, ch.Ref)
		if err != nil {
			return nil, fmt.Errorf("nothing was put back: %w", err)
		}
		r.Running = append(r.Running, now...)
	}
	slices.Sort(r.Running)
	r.Running = slices.Compact(r.Running)
	if _, err := c.writeRecord(ctx, s.Home, held, r); err != nil {
		return nil, fmt.Errorf("write down what is put back, before it is: %w", err)
	}
	return fresh, nil
}

// settled tells whether there is nothing to put back: the object is gone or another one, or the
// field is as it was and nobody's but its old owners'.
func (ch *changed) settled(o object) bool {
	return o == nil || o.text("metadata", "uid") != ch.UID || o.text(ch.Path...) == ch.Old && !managed(o)
}

// startedWith are the containers that run of those Grafanas that read an object at their start.
func (c *Client) startedWith(ctx context.Context, f *Found, r Ref) (out []string, err error) {
	for _, g := range f.starting(r) {
		now, err := c.containers(ctx, g)
		if err != nil {
			return nil, fmt.Errorf("which pods %s/%s has: %w", g.namespace, g.name, err)
		}
		out = append(out, now...)
	}
	return out, nil
}

// restarts says which Grafana is to be restarted before Spillway may go, since it reads at its
// start only what was put back: by this run, or by one before whose containers run still. f is nil
// where nobody could look.
func (c *Client) restarts(ctx context.Context, f *Found, r *record, fresh []bool) (out []string, err error) {
	for i := range r.Changed {
		ch := &r.Changed[i]
		if !fresh[i] {
			continue
		}
		how := []string{}
		for _, g := range f.starting(ch.Ref) {
			how = append(how, fmt.Sprintf("kubectl -n %s rollout restart %s/%s", g.namespace, strings.ToLower(g.kind), g.name))
		}
		if len(how) == 0 {
			how = []string{"whatever reads that"}
		}
		slices.Sort(how)
		out = append(out, fmt.Sprintf("Grafana reads %s at its start and asks Spillway until then, which therefore stays: restart it (%s), then run --undo again",
			ch.Ref, strings.Join(slices.Compact(how), "; ")))
	}
	if len(out) > 0 {
		return out, nil
	}
	for i := range r.Changed {
		if !r.Changed[i].Restored {
			continue
		}
		now, err := c.startedWith(ctx, f, r.Changed[i].Ref)
		if err != nil {
			return nil, err
		}
		for _, one := range now {
			if slices.Contains(r.Running, one) {
				pod, _, _ := strings.Cut(one, " ")
				out = append(out, fmt.Sprintf("Pod %s has not been restarted since its file was put back, and may ask Spillway, which therefore stays: restart it, then run --undo again", pod))
			}
		}
	}
	return out, nil
}

// atStart tells whether Grafana reads a field that was changed at its start only: where the record
// says so, and else as it is seen to be now, since a Grafana that was told may not be any more.
// What nobody can see is.
func (ch *changed) atStart(f *Found) bool {
	if ch.AtStart != nil && *ch.AtStart {
		return true
	}
	return f == nil || slices.ContainsFunc(f.Sources, func(s Source) bool { return s.Ref == ch.Ref && !s.Sidecar })
}

// starting are those that read an object with data sources at their start only: they mount it, or
// no sidecar tells them.
func (f *Found) starting(r Ref) (out []*grafana) {
	if f == nil {
		return nil
	}
	for _, g := range f.grafanas {
		untold := func(s Source) bool { return s.Ref == r && g.readsAtStart(&s) }
		if slices.Contains(g.mounts, r) || slices.ContainsFunc(f.Sources, untold) {
			out = append(out, g)
		}
	}
	return out
}

// containers are those of a Grafana that run now, each as "NAMESPACE/POD UID CONTAINER": another
// one, or one that was started again, has another name. Where an init container has written its
// files, one that is started again in the same pod finds the old ones, and has the same name.
func (c *Client) containers(ctx context.Context, g *grafana) (out []string, err error) {
	pods, err := list[corev1.Pod](ctx, c, "/api/v1/namespaces/"+g.namespace+"/pods", metav1.FormatLabelSelector(&g.marks), nil)
	if err != nil {
		return nil, err
	}
	once := slices.ContainsFunc(g.sidecars, func(one sidecar) bool { return one.once })
	for i := range pods {
		p := &pods[i]
		for _, k := range p.Spec.Containers {
			at := slices.IndexFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == k.Name })
			if at < 0 || !grafanaImage.MatchString(k.Image) {
				continue
			}
			id := p.Status.ContainerStatuses[at].ContainerID
			if once {
				id = ""
			}
			out = append(out, fmt.Sprintf("%s/%s %s %s", g.namespace, p.Name, p.UID, id))
		}
	}
	return out, nil
}
