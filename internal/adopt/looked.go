package adopt

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// grafana is what runs Grafana.
type grafana struct {
	kind, namespace, name string

	marks    metav1.LabelSelector // of its pods
	labels   map[string]string    // which these have
	operated bool                 // by Grafana's operator
	mounts   []Ref                // from which it has data sources that it reads at its start
	sidecars []sidecar            // that have it read others
}

// sidecar is what looks for data sources on behalf of the Grafana beside it.
type sidecar struct {
	selector string        // of the ConfigMaps or Secrets that it looks for
	maps     bool          // it looks for ConfigMaps
	secrets  bool          // it looks for Secrets
	in       string        // where: namespaces with commas, ALL, or empty for its own
	every    time.Duration // how often it looks; 0 is that it watches
	once     bool          // it runs before Grafana, and never again in its pod
	reloads  bool          // it goes on running, and has Grafana read what has changed
}

// finds tells whether the sidecar beside a Grafana looks for a source.
func (one *sidecar) finds(g *grafana, s *Source) bool {
	marks := labels.Set{}
	all, _ := s.object.at("metadata", "labels").(map[string]any)
	for k, v := range all {
		marks[k], _ = v.(string)
	}
	sel, err := labels.Parse(one.selector)
	in := strings.Split(cmp.Or(one.in, g.namespace), ",")
	kind := s.Kind == "ConfigMap" && one.maps || s.Kind == "Secret" && one.secrets
	return kind && err == nil && sel.Matches(marks) && (one.in == "ALL" || slices.Contains(in, s.Namespace))
}

// reads tells whether a Grafana has data sources from there, as far as its pods and its sidecars
// say so.
func (g *grafana) reads(s *Source) bool {
	if s.Kind == "GrafanaDatasource" {
		return g.operated && (g.namespace == s.Namespace || s.object.at("spec", "allowCrossNamespaceImport") == true)
	}
	return slices.Contains(g.mounts, s.Ref) || slices.ContainsFunc(g.sidecars, func(one sidecar) bool { return one.finds(g, s) })
}

// readsAtStart tells whether a Grafana reads a source, and reads it at its start only.
func (g *grafana) readsAtStart(s *Source) bool {
	told := func(one sidecar) bool { return one.reloads && one.finds(g, s) }
	return s.Kind != "GrafanaDatasource" && g.reads(s) && (slices.Contains(g.mounts, s.Ref) || !slices.ContainsFunc(g.sidecars, told))
}

// readIn tells whether a Grafana in that namespace reads a source.
func (f *Found) readIn(ns string, s *Source) bool {
	return slices.ContainsFunc(f.grafanas, func(g *grafana) bool { return g.namespace == ns && g.reads(s) })
}

// sidecar remembers by which label a sidecar of Grafana finds data sources, where its environment
// says so, and whether it tells Grafana. Those for dashboards have another folder.
func (f *Found) sidecar(g *grafana, r *runs) {
	pod := &r.Spec.Template.Spec
	for i, k := range slices.Concat(pod.InitContainers, pod.Containers) {
		once := i < len(pod.InitContainers) && otherwise(k.RestartPolicy, "") != corev1.ContainerRestartPolicyAlways
		env := func(name string) string {
			i := slices.IndexFunc(k.Env, func(e corev1.EnvVar) bool { return e.Name == name })
			if i < 0 {
				return ""
			}
			return k.Env[i].Value
		}
		selector := env("LABEL")
		if selector == "" || !strings.HasPrefix(env("FOLDER"), provisioning) {
			continue
		}
		if v := env("LABEL_VALUE"); v != "" {
			selector += "=" + v
		}
		if _, err := labels.Parse(selector); err != nil {
			f.Remarks = append(f.Remarks, fmt.Sprintf("a sidecar of Grafana in %s looks for data sources by %q, which is no label: they are not looked at", r.Namespace, selector))
			continue
		}
		// Without a URL to ask it writes files that Grafana does not look at.
		asks := slices.ContainsFunc(k.Env, func(e corev1.EnvVar) bool {
			return e.Name == "REQ_URL" && (e.Value != "" || e.ValueFrom != nil)
		})
		one := sidecar{selector: selector, in: env("NAMESPACE"), once: once, reloads: asks && !once && env("METHOD") != "LIST"}
		one.maps, one.secrets = env("RESOURCE") != "secret", env("RESOURCE") == "secret" || env("RESOURCE") == "both"
		if env("METHOD") == "SLEEP" {
			seconds, err := strconv.Atoi(cmp.Or(env("SLEEP_TIME"), "60"))
			if err != nil || seconds < 0 {
				seconds = 60
			}
			one.every = time.Duration(seconds) * time.Second
		}
		g.sidecars = append(g.sidecars, one)
		if selector != sidecarLabel && !slices.Contains(f.sidecars, selector) {
			f.sidecars = append(f.sidecars, selector)
		}
	}
}

// selectors are those by which ConfigMaps and Secrets with data sources are found.
func (f *Found) selectors() []string { return append([]string{sidecarLabel}, f.sidecars...) }

// labelled are the ConfigMaps and Secrets that have one of the labels. That Secrets may not be
// listed is written down.
func (c *Client) labelled(ctx context.Context, s Scope, f *Found) (all []object, err error) {
	for _, selector := range f.selectors() {
		for _, kind := range []string{"ConfigMap", "Secret"} {
			some, err := everywhere[object](ctx, c, s, "/api/v1", strings.ToLower(kind)+"s", selector, nil)
			if kind == "Secret" && isStatus(err, http.StatusForbidden) {
				f.unlisted = fmt.Errorf("the Secrets with the label %s cannot be listed: %w", selector, err)
				f.Remarks = append(f.Remarks, f.unlisted.Error()+"; data sources in them are not looked at")
				continue
			} else if err != nil {
				return nil, err
			}
			for _, o := range some {
				o["apiVersion"], o["kind"] = "v1", kind // a list leaves them out
				if !slices.ContainsFunc(all, func(a object) bool { return refOf(a) == refOf(o) }) {
					all = append(all, o)
				}
			}
		}
	}
	return all, nil
}

// Unasked is where data sources were looked for, if none of those that were found asks a server of
// the plan, or Spillway at target; empty if one does.
func (p *Plan) Unasked(target string) string {
	for _, s := range p.Found.Sources {
		for _, e := range s.Entries {
			u, err := url.Parse(e.URL)
			if p.Found.asks(e.URL, target, &s) || err == nil && u.Host != "" && len(p.served(u, s.Namespace)) > 0 {
				return ""
			}
		}
	}
	return fmt.Sprintf("ConfigMaps and Secrets with the label %s, what Grafana mounts at %s, and GrafanaDatasources",
		strings.Join(p.Found.selectors(), " or "), provisioning)
}
