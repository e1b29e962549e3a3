package adopt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

const (
	// sightPatience is how long Spillway's pods may take to reach the servers: a kubelet writes a
	// changed Secret within a minute and a half, Spillway reads it within 30 s, and probes.
	sightPatience = 3 * time.Minute
	// sightPoll is how often they are asked.
	sightPoll = 2 * time.Second
	// maxMetrics is the most bytes of what one says of itself: ten thousand servers have 40 MiB.
	maxMetrics = 64 << 20
)

// inSight waits until each ready pod of Spillway says that it reaches each server of the plan.
// Where a policy keeps Spillway from a server, or a pod still has an older configuration, Grafana
// must not be pointed at it.
func (c *Client) inSight(ctx context.Context, p *Plan, r *Reach, s Settings, say func(string, ...any)) error {
	began := time.Now()
	tick := time.NewTicker(min(sightPoll, r.patience/10))
	defer tick.Stop()
	for {
		pods, why := c.ownPods(ctx, s.Namespace)
		for _, pod := range pods {
			if why = p.unseenBy(ctx, r, pod); why != nil {
				break
			}
		}
		if why == nil {
			say("its pods (%d) reach all servers", len(pods))
			return nil
		}
		if time.Since(began) < r.patience && ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
			continue
		}
		touched := "; Grafana was not touched"
		if !s.Grafana {
			touched = ""
		}
		return fmt.Errorf("%w%s. Where a NetworkPolicy is in the way, or the server is down, mend it and run this again; or take it back by --undo", why, touched)
	}
}

// ownPods are Spillway's pods that are ready, as servers of which the metrics are asked.
func (c *Client) ownPods(ctx context.Context, ns string) ([]*Server, error) {
	ours := labels.Set(ownLabels)
	pods, err := list(ctx, c, "/api/v1/namespaces/"+ns+"/pods", ours.String(), isReady)
	if err != nil {
		return nil, err
	}
	var out []*Server
	for i := range pods {
		s := &Server{Workload: &Workload{Namespace: ns, Scheme: "http"}, Pod: pods[i].Name, IP: pods[i].Status.PodIP}
		for _, container := range pods[i].Spec.Containers {
			for _, port := range container.Ports {
				if container.Name == "spillway" && port.Name == "metrics" {
					s.Port = port.ContainerPort
				}
			}
		}
		if s.Port == 0 {
			return nil, fmt.Errorf("pod %s/%s has no container spillway with a port metrics", ns, s.Pod)
		}
		out = append(out, s)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no pod in namespace %s with the labels %s is ready", ns, ours)
	}
	return out, nil
}

func isReady(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// unseenBy says what a pod of Spillway does not reach; nil where it reaches everything.
func (p *Plan) unseenBy(ctx context.Context, r *Reach, pod *Server) error {
	name := "Spillway's pod " + pod.Workload.Namespace + "/" + pod.Pod
	b, err := r.fetch(ctx, pod, "/metrics", maxMetrics)
	if err != nil {
		return fmt.Errorf("whether %s reaches the servers cannot be asked, by its port %d: %w", name, pod.Port, err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(b))
	if err != nil {
		return fmt.Errorf("the metrics of %s: %w", name, err)
	}
	up := map[[2]string]bool{} // by group and address
	for _, m := range families["spillway_shard_replica_state"].GetMetric() {
		of := map[string]string{}
		for _, l := range m.GetLabel() {
			of[l.GetName()] = l.GetValue()
		}
		if of["state"] == "up" && m.GetGauge().GetValue() == 1 {
			up[[2]string{of["group"], of["replica"]}] = true
		}
	}
	var unseen []string
	for _, g := range p.Groups {
		for _, s := range g.Servers {
			if at := s.address(); !up[[2]string{g.Name, at}] {
				unseen = append(unseen, s.Workload.Namespace+"/"+s.Pod+" at "+at)
			}
		}
	}
	if len(unseen) == 0 {
		return nil
	}
	more := ""
	if n := len(unseen) - 5; n > 0 {
		unseen, more = unseen[:5], fmt.Sprintf(" and %d more", n)
	}
	return errors.New(name + " does not reach " + strings.Join(unseen, ", ") + more)
}
