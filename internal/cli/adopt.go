package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/spillwayproject/spillway/internal/adopt"
)

// adopting are the flags of spillway adopt.
type adopting struct {
	kubeconfig, context, via, out string
	scope                         adopt.Scope
	settings                      adopt.Settings
	apply, undo, objects, hashmod bool
	evenIfAsked, evenIfClosed     bool
	timeout                       time.Duration
}

// adoptCommand looks at a cluster, and puts Spillway in front of what is there.
func adoptCommand(e *Env, parent Clause) func() error {
	c := parent.Command("adopt", "Looks at a Kubernetes cluster, writes a configuration for the Prometheus servers that are there, proves it against them, and says what would be changed. Exit code 1 where it is proven wrong.")
	var a adopting
	c.Flag("kubeconfig", "The cluster; else $KUBECONFIG, ~/.kube/config, or the cluster whose pod this is.").PlaceHolder("FILE").StringVar(&a.kubeconfig)
	c.Flag("context", "One of the kubeconfig's; else its current one.").PlaceHolder("NAME").StringVar(&a.context)
	c.Flag("look-in", "A namespace; only what is in it is looked at; may be given several times. Else all.").PlaceHolder("NAMESPACE").StringsVar(&a.scope.Namespaces)
	c.Flag("only", "A Prometheus; the others are left alone; may be given several times.").PlaceHolder("NAMESPACE/NAME").StringsVar(&a.scope.Only)
	c.Flag("namespace", "Where Spillway is put; it must exist.").Default("monitoring").StringVar(&a.settings.Namespace)
	c.Flag("image", "What Spillway's pods run; --apply needs it.").PlaceHolder("REGISTRY/NAME:TAG").StringVar(&a.settings.Image)
	c.Flag("image-pull-secret", "A Secret in --namespace with which that is pulled; may be given several times.").PlaceHolder("NAME").StringsVar(&a.settings.PullSecrets)
	c.Flag("grafana", "Whether Grafana's data sources are changed too.").Default("true").BoolVar(&a.settings.Grafana)
	c.Flag("via", "How the servers are asked: apiserver, through the API server, or direct, at the addresses of their pods. auto is direct in a pod of the cluster. One of: [auto, apiserver, direct]").Default("auto").EnumVar(&a.via, "auto", "apiserver", "direct")
	c.Flag("hashmod", "Whether the file says by which hash the operator divides targets, where that can be said; it is then to be written anew when the number of shards changes.").BoolVar(&a.hashmod)
	c.Flag("out", "Where the configuration is written; a file that adopt has not written is not replaced; - prints it.").Default("spillway.yaml").StringVar(&a.out)
	c.Flag("objects", "Prints the objects that would be applied, as YAML, and nothing else.").BoolVar(&a.objects)
	c.Flag("apply", "Does it.").BoolVar(&a.apply)
	c.Flag("undo", "Takes back what --apply did.").BoolVar(&a.undo)
	c.Flag("even-if-asked", "With --undo: Spillway is deleted though data sources still ask it, which get no answers then.").BoolVar(&a.evenIfAsked)
	c.Flag("even-if-closed", "With --apply: it is applied though policies of Cilium, Calico, Istio or of administrators may close the servers, which adopt does not follow: whom they keep out may read through Spillway what the servers have.").BoolVar(&a.evenIfClosed)
	c.Flag("timeout", "How long all of it may take.").Default("5m").DurationVar(&a.timeout)
	return func() error {
		switch {
		case a.apply && a.undo:
			return errUsage{errors.New("--apply and --undo: one of them")}
		case a.objects && (a.apply || a.undo):
			return errUsage{errors.New("--objects only prints; leave --apply and --undo away")}
		case a.evenIfAsked && !a.undo:
			return errUsage{errors.New("--even-if-asked says what --undo does; give both, or neither")}
		case a.evenIfClosed && !a.apply:
			return errUsage{errors.New("--even-if-closed says what --apply does; give both, or neither")}
		case a.apply && a.settings.Image == "":
			return errUsage{errors.New("--apply needs --image: no registry has one of Spillway's yet; docs/image.md says how to build and push it")}
		}
		return a.run(e)
	}
}

func (a *adopting) run(e *Env) error {
	ctx, cancel := context.WithTimeoutCause(e.Ctx, a.timeout, fmt.Errorf("--timeout=%s has passed", a.timeout))
	defer cancel()
	client, err := adopt.Connect(a.kubeconfig, a.context)
	if err != nil {
		return err
	}
	defer client.Close()
	say := func(format string, args ...any) {
		fmt.Fprintln(e.Stdout, adopt.Printable(fmt.Sprintf(format, args...)))
	}
	a.scope.Home = a.settings.Namespace
	if a.undo {
		left, err := client.Undo(ctx, a.scope, a.evenIfAsked, say)
		for _, l := range left {
			say("left: %s", l)
		}
		if err == nil && len(left) > 0 {
			return errQuiet
		}
		return err
	}
	found, err := client.Read(ctx, a.scope)
	if err != nil {
		return err
	}
	if len(found.Workloads) == 0 {
		return errors.New("there is no Prometheus in what was looked at: no object of the operator, and no StatefulSet or Deployment that looks like one")
	}
	way := adopt.Direct
	if a.via == "apiserver" || a.via == "auto" && !adopt.InCluster() {
		way = func() (*adopt.Reach, error) { return adopt.Through(client) }
	}
	reach, err := way()
	if err != nil {
		return err
	}
	defer reach.Close()
	plan, err := adopt.Make(ctx, found, reach, a.hashmod)
	if err != nil {
		return err
	}
	if len(plan.Groups) == 0 {
		return errors.New("no server can be adopted: " + adopt.Printable(strings.Join(plan.Open, "; ")))
	}
	if a.objects {
		return a.print(e, plan)
	}
	problems, err := a.propose(ctx, say, plan, reach)
	switch {
	case err != nil:
		return err
	case problems > 0 && a.apply:
		return errors.New("nothing was applied: the configuration and the servers do not agree")
	case len(plan.Open) > 0 && a.apply:
		return errors.New("nothing was applied, since servers are left out: name those that are wanted by --only")
	case plan.Unsure() != "" && a.apply:
		return errors.New("nothing was applied: " + adopt.Printable(plan.Unsure()))
	case len(plan.Unfollowed()) > 0 && a.apply && !a.evenIfClosed:
		return errors.New("nothing was applied: " + unfollowed)
	case problems+len(plan.Open) > 0:
		return errQuiet
	case a.apply:
		return client.Apply(ctx, plan, reach, a.settings, say)
	}
	if why := plan.Unsure(); why != "" {
		say("Nothing was changed, and --apply would not: %s.", why)
		return nil
	}
	if len(plan.Unfollowed()) > 0 {
		say("Nothing was changed, and --apply would not: %s.", unfollowed)
		return nil
	}
	say("Nothing was changed. To do it: the same with --apply and --image; to see its objects: with --objects.")
	return nil
}

// unfollowed is why --apply needs --even-if-closed.
const unfollowed = "policies that adopt does not follow may close these servers, as was said: make one like them for Spillway's pods, or see that there is none, and then give --even-if-closed"

// propose writes the configuration, proves it, and says what would be changed. It tells in how many
// ways the servers contradict it.
func (a *adopting) propose(ctx context.Context, say func(string, ...any), plan *adopt.Plan, reach *adopt.Reach) (wrong int, err error) {
	text, err := plan.YAML()
	if err != nil {
		return 0, err
	}
	if err := a.write(say, text); err != nil {
		return 0, err
	}
	shards, servers := 0, 0
	for _, g := range plan.Groups {
		seen := map[string]bool{}
		for _, s := range g.Servers {
			seen[s.Shard] = true
		}
		shards += len(seen)
		servers += len(g.Servers)
	}
	for _, o := range plan.Open {
		say("left out: %s", o)
	}
	problems, err := plan.Prove(ctx, reach)
	if err != nil {
		return 0, err
	}
	for _, p := range problems {
		say("%s", p)
	}
	counts := Count(len(plan.Groups), "group") + ", " + Count(shards, "shard") + ", " + Count(servers, "server")
	if len(problems) > 0 {
		say("%s: %s in what the servers say of themselves.", counts, Count(len(problems), "problem"))
		if strings.Contains(strings.Join(problems, " "), "cannot be examined") {
			say("A server that cannot be reached from here may be in the cluster; with an account that has the rights of docs/adopt.md:\n%s", a.inside())
		}
	} else {
		say("%s: proven against the servers.", counts)
	}
	if a.settings.Grafana {
		a.sources(say, plan)
	}
	for _, admitted := range plan.Admitted(a.settings) {
		say("%s", admitted)
	}
	for _, policy := range plan.Unfollowed() {
		say("%s: who is kept from these servers by it is not kept from Spillway, since adopt follows NetworkPolicies of Kubernetes only.", policy)
	}
	return len(problems), nil
}

// sources says what becomes of Grafana's data sources.
func (a *adopting) sources(say func(string, ...any), plan *adopt.Plan) {
	changes, remarks := plan.Grafana(a.settings.Target())
	for i := range changes {
		say("%s", strings.TrimSuffix(changes[i].Diff(), "\n"))
		if o := changes[i].Owners; len(o) > 0 {
			say("This field belongs to %s, from which --apply takes it, and to which --undo gives it back.", strings.Join(o, ", "))
		}
		if o := changes[i].Appliers; len(o) > 0 {
			say("The next server-side apply of %s, such as helm upgrade of Helm 4, is refused for that, or takes the field back (--force-conflicts): "+
				"better --no-grafana here, and the URL changed in what it applies.", strings.Join(o, ", "))
		}
		if !changes[i].Source.Sidecar {
			say("Grafana reads this file at its start: restart it after --apply; --undo waits for another restart.")
		}
	}
	for _, r := range remarks {
		say("%s", r)
	}
	if where := plan.Unasked(a.settings.Target()); where != "" {
		if len(a.scope.Namespaces) > 0 {
			where += ", of " + strings.Join(a.scope.Namespaces, ", ")
		}
		say("No data source is changed: none that was found asks these servers. Looked at were %s. What is elsewhere, change by hand.", where)
	}
}

// inside is the command that does the same in the cluster, in a pod that a namespace with the
// restricted Pod Security Standard takes.
func (a *adopting) inside() string {
	const overrides = `{"apiVersion":"v1","spec":{"serviceAccountName":"ACCOUNT",%s"securityContext":{"runAsNonRoot":true,"seccompProfile":{"type":"RuntimeDefault"}},` +
		`"containers":[{"name":"spillway-adopt","securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}}}]}}`
	line := []string{"/spillway", "adopt", "--via=direct", "--out=-", "--namespace=" + a.settings.Namespace}
	for _, only := range a.scope.Only {
		line = append(line, "--only="+only)
	}
	for _, ns := range a.scope.Namespaces {
		line = append(line, "--look-in="+ns)
	}
	if a.hashmod {
		line = append(line, "--hashmod")
	}
	if !a.settings.Grafana {
		line = append(line, "--no-grafana")
	}
	pull := ""
	for _, name := range a.settings.PullSecrets {
		pull += fmt.Sprintf(`,{"name":%q}`, name)
	}
	if pull != "" {
		pull = `"imagePullSecrets":[` + pull[1:] + `],`
	}
	kubectl := "kubectl"
	if a.kubeconfig != "" {
		kubectl += " --kubeconfig=" + a.kubeconfig
	}
	if a.context != "" {
		kubectl += " --context=" + a.context
	}
	return kubectl + fmt.Sprintf(" -n %s run spillway-adopt --rm -it --restart=Never --image=%s --override-type=strategic --overrides='%s' --command -- %s",
		a.settings.Namespace, cmp.Or(a.settings.Image, "IMAGE"), fmt.Sprintf(overrides, pull), strings.Join(line, " "))
}

// write puts the configuration where it belongs.
func (a *adopting) write(say func(string, ...any), text []byte) error {
	if a.out == "-" {
		say("%s", bytes.TrimSuffix(text, []byte("\n")))
		return nil
	}
	old, err := os.ReadFile(a.out)
	switch {
	case err == nil && !bytes.Equal(old, text):
		return fmt.Errorf("%s is there already and says something else: look at the difference (--out=- prints the new one), then remove it, or name another file by --out", a.out)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := os.WriteFile(a.out, text, 0o600); err != nil {
		return err
	}
	say("wrote %s", a.out)
	return nil
}

// print writes the objects that would be applied.
func (a *adopting) print(e *Env, plan *adopt.Plan) error {
	objects, err := plan.Objects(a.settings)
	if err != nil {
		return err
	}
	if a.settings.Image == "" {
		fmt.Fprintln(e.Stdout, "# The image is nobody's yet: name yours by --image.")
	}
	for _, o := range objects {
		b, err := yaml.Marshal(o)
		if err != nil {
			return err
		}
		fmt.Fprintf(e.Stdout, "---\n%s", b)
	}
	return nil
}
