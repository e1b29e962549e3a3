package helm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	psa "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"github.com/spillwayproject/spillway/internal/cli"
	"github.com/spillwayproject/spillway/proxy/config"
)

// check holds all that is rendered to what doc.go promises.
func check(t testing.TB, all []object) {
	t.Helper()
	if err := verify(all); err != nil {
		t.Error(err)
	}
	if err := programTakes(deployment(all).Spec.Template.Spec.Containers[0].Args); err != nil {
		t.Error(err)
	}
}

func deployment(all []object) *appsv1.Deployment {
	for _, o := range all {
		if d, ok := o.in.(*appsv1.Deployment); ok {
			return d
		}
	}
	none := &appsv1.Deployment{}
	none.Spec.Template.Spec.Containers = make([]corev1.Container, 1)
	return none
}

// verify finds what is wrong with objects that decode.
func verify(all []object) error {
	var errs []error
	wrong := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }
	names := map[string]bool{}
	for _, o := range all {
		gvk := o.in.GetObjectKind().GroupVersionKind()
		id := fmt.Sprintf("%s %s/%s", gvk.GroupKind(), o.meta.GetNamespace(), o.meta.GetName())
		if names[id] {
			wrong("%s is there twice", id)
		}
		names[id] = true
		if len(o.meta.GetName()) > 63 {
			wrong("%s: its name is longer than 63", id)
		}
		// Else a pod that is not ready is one that no drain of its node may evict, for ever.
		if b, ok := o.in.(*policyv1.PodDisruptionBudget); ok && (b.Spec.UnhealthyPodEvictionPolicy == nil ||
			*b.Spec.UnhealthyPodEvictionPolicy != policyv1.AlwaysAllow) {
			wrong("%s: it keeps pods that are not ready", id)
		}
	}
	d := deployment(all)
	if d.Name == "" {
		return errors.New("there is no Deployment")
	}
	errs = append(errs, mounted(d))
	for _, o := range all {
		if pods, ok := o.in.(*appsv1.Deployment); ok {
			errs = append(errs, restricted(pods), token(pods, all))
		}
	}
	text, ok := configOf(all)
	if !ok {
		return errors.Join(errs...)
	}
	c, err := config.Parse([]byte(text), ".")
	if err != nil {
		wrong("spillway.yaml: %w\n%s", err, text)
		return errors.Join(errs...)
	}
	// What the program takes of the container (internal/cli/memory.go).
	limit := d.Spec.Template.Spec.Containers[0].Resources.Limits.Memory().Value()
	if said := strings.Contains(text, "budget:"); limit > 0 && !said {
		wrong("memory.budget is not made to fit %d bytes", limit)
	} else if budget := int64(c.Memory.Budget); limit > 0 && budget > limit {
		wrong("memory.budget %s is above the container's memory, %d", c.Memory.Budget, limit)
	}
	return errors.Join(errs...)
}

// configOf is the spillway.yaml that the chart made, where it made one.
func configOf(all []object) (string, bool) {
	for _, o := range all {
		switch in := o.in.(type) {
		case *corev1.Secret:
			if text, ok := in.StringData["spillway.yaml"]; ok {
				return text, true
			}
		case *corev1.ConfigMap:
			if text, ok := in.Data["spillway.yaml"]; ok {
				return text, true
			}
		}
	}
	return "", false
}

// standard is Kubernetes' own implementation of the Pod Security Standards.
var standard = func() policy.Evaluator {
	e, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		panic(err)
	}
	return e
}()

// restricted says what the restricted Pod Security Standard has against the pods, and what this
// house wants besides.
func restricted(d *appsv1.Deployment) error {
	var errs []error
	spec := &d.Spec.Template.Spec
	level := psa.LevelVersion{Level: psa.LevelRestricted, Version: psa.LatestVersion()}
	for _, r := range standard.EvaluatePod(level, &d.Spec.Template.ObjectMeta, spec) {
		if !r.Allowed {
			errs = append(errs, fmt.Errorf("restricted: %s: %s", r.ForbiddenReason, r.ForbiddenDetail))
		}
	}
	for _, c := range spec.Containers {
		if s := c.SecurityContext; s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem {
			errs = append(errs, fmt.Errorf("%s may write to its root", c.Name))
		}
	}
	// DrainTimeout of proxy/server is 15 s, and begins after the delay.
	delay := delayOf(spec)
	if grace := spec.TerminationGracePeriodSeconds; grace == nil || *grace < int64(delay.Seconds())+20 {
		errs = append(errs, errors.New("the pod is killed before its drain has ended"))
	}
	return errors.Join(errs...)
}

// delayOf is how long the proxy goes on taking connections when it is to end.
func delayOf(p *corev1.PodSpec) (d time.Duration) {
	for _, a := range p.Containers[0].Args {
		if v, ok := strings.CutPrefix(a, "--web.shutdown-delay="); ok {
			d, _ = time.ParseDuration(v) // the program's own tests refuse what is none
		}
	}
	return d
}

// mounted says which mounts have no volume, and whether a change of spillway.yaml would arrive: a
// file that is mounted by subPath stays what it was.
func mounted(d *appsv1.Deployment) error {
	var errs []error
	volumes := map[string]bool{}
	for _, v := range d.Spec.Template.Spec.Volumes {
		volumes[v.Name] = true
	}
	c := d.Spec.Template.Spec.Containers[0]
	for _, m := range c.VolumeMounts {
		if !volumes[m.Name] {
			errs = append(errs, fmt.Errorf("it mounts %s, which is not there", m.Name))
		}
		if m.Name == "config" && m.SubPath != "" {
			errs = append(errs, errors.New("a change of spillway.yaml would not arrive"))
		}
	}
	return errors.Join(errs...)
}

// may is what the account of a Deployment may do at most: the proxy what docs/discovery.md asks
// for, the remediator what docs/remediation.md does.
var may = map[bool]struct{ resources, verbs []string }{
	false: {[]string{"pods", "services", "endpointslices"}, []string{"list", "watch"}},
	true:  {[]string{"nodes"}, []string{"get", "list", "patch"}},
}

func isRemediator(o metav1.Object) bool {
	return o.GetLabels()["app.kubernetes.io/component"] == "remediator"
}

// token says whether the pods have a token without a right, or rights without a token, and whether
// these are more than they may have.
func token(d *appsv1.Deployment, all []object) error {
	var errs []error
	bound := false
	remediator := isRemediator(d)
	for _, o := range all {
		var rules []rbacv1.PolicyRule
		switch in := o.in.(type) {
		case *rbacv1.Role:
			rules = in.Rules
		case *rbacv1.ClusterRole:
			rules = in.Rules
		}
		if isRemediator(o.meta) != remediator {
			continue
		}
		for _, r := range rules {
			bound = true
			for _, res := range r.Resources {
				if !slices.Contains(may[remediator].resources, res) {
					errs = append(errs, fmt.Errorf("the account may look at %s", res))
				}
			}
			if !slices.Equal(r.Verbs, may[remediator].verbs) {
				errs = append(errs, fmt.Errorf("the account may %v", r.Verbs))
			}
		}
		if b, ok := o.in.(*rbacv1.ClusterRoleBinding); ok && b.Subjects[0].Name != d.Spec.Template.Spec.ServiceAccountName {
			errs = append(errs, fmt.Errorf("the rights of %s are bound to another account, %s", d.Name, b.Subjects[0].Name))
		}
	}
	if mounts := d.Spec.Template.Spec.AutomountServiceAccountToken; mounts == nil || bound && !*mounts {
		errs = append(errs, fmt.Errorf("the account has rights (%v), its token is mounted: %v", bound, mounts))
	}
	return errors.Join(errs...)
}

var configFile = regexp.MustCompile(`^--config\.file=(.*)$`)

// programTakes parses arguments with the real command: one that finds no fault with its flags goes
// on to read the file, which is not there.
func programTakes(args []string) error {
	args = slices.Clone(args)
	for i, a := range args {
		if m := configFile.FindStringSubmatch(a); m != nil {
			args[i] = "--config.file=/nowhere/spillway.yaml"
		}
	}
	var out bytes.Buffer
	cli.Spillway.Run(context.Background(), context.Background(), args, &out, &out)
	if !strings.Contains(out.String(), "/nowhere/spillway.yaml") {
		return fmt.Errorf("the program does not take %q: %s", args, out.String())
	}
	return nil
}

// TestVerifySees: each promise can be broken, and is then seen.
func TestVerifySees(t *testing.T) {
	values := valuesOf(t, ciFiles(t)["operator"])
	for want, breaks := range map[string]func(*corev1.PodSpec){
		"allowPrivilegeEscalation": func(p *corev1.PodSpec) { *p.Containers[0].SecurityContext.AllowPrivilegeEscalation = true },
		"runAsNonRoot":             func(p *corev1.PodSpec) { p.SecurityContext.RunAsNonRoot = nil },
		"seccompProfile":           func(p *corev1.PodSpec) { p.SecurityContext.SeccompProfile = nil },
		"unrestricted capabilities": func(p *corev1.PodSpec) {
			p.Containers[0].SecurityContext.Capabilities.Drop = nil
		},
		"restricted volume types": func(p *corev1.PodSpec) {
			host := corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}
			p.Volumes = append(p.Volumes, corev1.Volume{Name: "host", VolumeSource: host})
		},
		"may write to its root":       func(p *corev1.PodSpec) { p.Containers[0].SecurityContext.ReadOnlyRootFilesystem = nil },
		"before its drain":            func(p *corev1.PodSpec) { *p.TerminationGracePeriodSeconds = 29 },
		"mounts config, which is not": func(p *corev1.PodSpec) { p.Volumes = p.Volumes[1:] },
		"would not arrive":            func(p *corev1.PodSpec) { p.Containers[0].VolumeMounts[0].SubPath = "spillway.yaml" },
		"its token is mounted":        func(p *corev1.PodSpec) { *p.AutomountServiceAccountToken = false },
		"above the container's memory": func(p *corev1.PodSpec) {
			p.Containers[0].Resources.Limits = corev1.ResourceList{"memory": quantity("100Mi")}
		},
	} {
		all, err := render(values)
		if err != nil {
			t.Fatal(err)
		}
		breaks(&find[*appsv1.Deployment](t, all, "spillway").Spec.Template.Spec)
		if err := verify(all); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	for want, breaks := range map[string]func(runtime.Object){
		"may look at": func(o runtime.Object) { o.(*rbacv1.Role).Rules[0].Resources = []string{"secrets"} },
		"may [get]":   func(o runtime.Object) { o.(*rbacv1.Role).Rules[1].Verbs = []string{"get"} },
	} {
		all, err := render(values)
		if err != nil {
			t.Fatal(err)
		}
		breaks(find[*rbacv1.Role](t, all, "spillway"))
		if err := verify(all); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if err := programTakes([]string{"proxy", "--config.file=a", "--web.listen-adress=:1"}); err == nil {
		t.Error("a flag that the program does not have is taken")
	}
}

// TestBudgetFits: memory.budget is what the program itself says that a container has room for:
// twice the budget and 256 MiB are at most nine tenths of it (internal/cli/memory.go).
func TestBudgetFits(t *testing.T) {
	for limit, want := range map[string]string{
		"512Mi": "102MiB", "2Gi": "793MiB", "1500M": "515MiB", "8589934592": "3558MiB", "0.5Gi": "102MiB", "16Gi": "7244MiB",
	} {
		values := valuesOf(t, ciFiles(t)["minimal"])
		values["resources"] = map[string]any{"limits": map[string]any{"memory": limit}}
		all, err := render(values)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := configOf(all)
		c, err := config.Parse([]byte(text), ".")
		if err != nil {
			t.Fatal(err)
		}
		l := quantity(limit)
		most := l.Value() / 10 * 9
		if need := 2*int64(c.Memory.Budget) + 256<<20; c.Memory.Budget.String() != want || need > most || need < most-4<<20 {
			t.Errorf("%s: %s, want %s", limit, c.Memory.Budget, want)
		}
	}
}

// TestBudgetOfEmptyMemory: a memory that says no budget gets the one that fits.
func TestBudgetOfEmptyMemory(t *testing.T) {
	for _, memory := range []any{obj{}, nil} {
		values := valuesOf(t, ciFiles(t)["minimal"])
		values["config"].(obj)["memory"] = memory
		all, err := render(values)
		if err != nil {
			t.Errorf("%v: %v", memory, err)
			continue
		}
		text, _ := configOf(all)
		if c, err := config.Parse([]byte(text), "."); err != nil || c.Memory.Budget.String() != "793MiB" {
			t.Errorf("%v: %s, %v", memory, c.Memory.Budget, err)
		}
	}
}

// TestReadSlots: all proxies together take no more of a server than one would.
func TestReadSlots(t *testing.T) {
	for replicas, want := range map[int]int{1: 8, 2: 4, 3: 2, 8: 1, 20: 1} {
		values := valuesOf(t, ciFiles(t)["minimal"])
		values["replicaCount"] = replicas
		all, err := render(values)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := configOf(all)
		if c, err := config.Parse([]byte(text), "."); err != nil || int(c.Limits.ReadSlots) != want {
			t.Errorf("%d proxies: %v, want %d read slots each (%v)\n%s", replicas, c.Limits.ReadSlots, want, err, text)
		}
	}
}
