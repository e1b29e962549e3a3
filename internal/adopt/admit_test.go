package adopt

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// policy is one of those that the plan makes; nil where it makes none of that name.
func policy(t *testing.T, p *Plan, s Settings, name string) object {
	t.Helper()
	all, err := p.objects(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range all {
		if o.text("kind") == "NetworkPolicy" && o.text("metadata", "name") == name {
			return o
		}
	}
	return nil
}

// wall has a policy in a namespace.
func (c *cluster) wall(ns, name, spec string) {
	o := object{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"}
	o.set(name, "metadata", "name")
	o.set(ns, "metadata", "namespace")
	var v any
	if err := json.Unmarshal([]byte(spec), &v); err != nil {
		c.t.Fatal(err)
	}
	o.set(v, "spec")
	c.put(o)
}

// TestOnlyReadersAreLetIn: the policy by which Grafana reaches Spillway is about the pods of those
// that read what asks it, and about no namespace as a whole.
func TestOnlyReadersAreLetIn(t *testing.T) {
	c := newCluster(t)
	c.populate(&fleets[2])
	c.wall("metrics", "deny", `{"podSelector":{}}`)
	for _, ns := range []string{"research", "metrics"} { // one that reads nothing of it
		o := object{"apiVersion": "apps/v1", "kind": "Deployment"}
		o.set("theirs", "metadata", "name")
		o.set(ns, "metadata", "namespace")
		o.set("theirs", "spec", "selector", "matchLabels", "app")
		o.set([]any{map[string]any{"name": "grafana", "image": "grafana/grafana:12.0.0"}}, "spec", "template", "spec", "containers")
		c.put(o)
	}
	s := Settings{Namespace: "metrics", Grafana: true}
	p := c.plan(Scope{Home: "metrics"})
	rules, _ := policy(t, p, s, fromGrafana).at("spec", "ingress").([]any)
	const want = `[{"from":[{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"metrics"}},"podSelector":{"matchLabels":{"app":"grafana"}}}],` +
		`"ports":[{"port":9090,"protocol":"TCP"}]}]`
	if b, err := json.Marshal(rules); err != nil || string(b) != want {
		t.Errorf("it lets in %s, %v", b, err)
	}
	if said := fmt.Sprint(p.Admitted(s)); !strings.Contains(said, "Deployment metrics/grafana, which reads these data sources, is let in") {
		t.Errorf("it says %s", said)
	}
	delete(c.objects, "/apis/apps/v1/namespaces/metrics/deployments/grafana")
	p = c.plan(Scope{Home: "metrics"})
	if o := policy(t, p, s, fromGrafana); o != nil {
		t.Errorf("nobody reads it, and it lets in %v", o)
	}
	if said := fmt.Sprint(p.Admitted(s)); !strings.Contains(said, "which Grafana reads ConfigMap metrics/datasources is not seen") {
		t.Errorf("it says %s", said)
	}
}

// TestSpillwayIsClosedAsItsServers: whom a policy keeps from the servers, Spillway keeps out too;
// of several only those that all let in are let in, and where nobody is kept out no policy is made.
func TestSpillwayIsClosedAsItsServers(t *testing.T) {
	const a, b = `"podSelector":{"matchLabels":{"part":"a"}}`, `"podSelector":{"matchLabels":{"part":"b"}}`
	const web, ruler = `{"podSelector":{"matchLabels":{"app":"web"}}}`, `{"podSelector":{"matchLabels":{"app":"ruler"}}}`
	const metrics = `,{"ports":[{"port":9092,"protocol":"TCP"}]}]`
	in := func(pods string) string {
		return `{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"metrics"}},"podSelector":{"matchLabels":` + pods + `}}`
	}
	from := func(peers ...string) string {
		return `[{"from":[` + strings.Join(peers, ",") + `],"ports":[{"port":9090,"protocol":"TCP"}]}` + metrics
	}
	const nobody = `[{"ports":[{"port":9092,"protocol":"TCP"}]}]`
	for name, one := range map[string]struct {
		walls []string
		want  string // its rules; empty is that there is no policy
	}{
		"no wall":          {nil, ""},
		"one that is open": {[]string{`{` + a + `,"ingress":[{}]}`}, ""},
		"of one of them":   {[]string{`{` + a + `,"ingress":[{"from":[` + web + `]}]}`}, from(in(`{"app":"web"}`))},
		"nobody":           {[]string{`{` + a + `}`}, nobody},
		"another port":     {[]string{`{` + a + `,"ingress":[{"from":[` + web + `],"ports":[{"port":8080}]}]}`}, nobody},
		"the port by name": {
			[]string{`{` + a + `,"ingress":[{"from":[` + web + `],"ports":[{"port":"http"}]}]}`},
			from(in(`{"app":"web"}`)),
		},
		"a range of ports": {
			[]string{`{` + a + `,"ingress":[{"from":[` + web + `],"ports":[{"port":9000,"endPort":9100}]}]}`},
			from(in(`{"app":"web"}`)),
		},
		"two of one add up": {
			[]string{`{` + a + `,"ingress":[{"from":[` + web + `]}]}`, `{` + a + `,"ingress":[{"from":[` + ruler + `]}]}`},
			from(in(`{"app":"web"}`), in(`{"app":"ruler"}`)),
		},
		"one of two is open": {[]string{`{` + a + `,"ingress":[{"from":[` + web + `]}]}`, `{` + a + `,"ingress":[{}]}`}, ""},
		"two of two intersect": {[]string{
			`{` + a + `,"ingress":[{"from":[` + web + `,` + ruler + `]}]}`, `{` + b + `,"ingress":[{"from":[` + ruler + `]}]}`,
		}, from(in(`{"app":"ruler"}`))},
		"labels of both": {[]string{
			`{` + a + `,"ingress":[{"from":[` + web + `]}]}`, `{` + b + `,"ingress":[{"from":[{"podSelector":{"matchLabels":{"team":"x"}}}]}]}`,
		}, from(in(`{"app":"web","team":"x"}`))},
		"blocks": {[]string{
			`{` + a + `,"ingress":[{"from":[{"ipBlock":{"cidr":"10.0.0.0/8","except":["10.1.2.0/24","10.2.0.0/16"]}}]}]}`,
			`{` + b + `,"ingress":[{"from":[{"ipBlock":{"cidr":"10.1.0.0/16"}},{"ipBlock":{"cidr":"10.2.0.0/16"}},` + web + `]}]}`,
		}, from(`{"ipBlock":{"cidr":"10.1.0.0/16","except":["10.1.2.0/24"]}}`)},
		"Grafana": {
			[]string{`{` + a + `,"ingress":[{"from":[{"podSelector":{"matchLabels":{"app":"grafana"}}}]}]}`},
			from(in(`{"app":"grafana"}`)),
		},
		"Grafana of elsewhere": {
			[]string{`{` + a + `,"ingress":[{"from":[{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"other"}}}]}]}`},
			from(`{"namespaceSelector":{"matchLabels":{"kubernetes.io/metadata.name":"other"}}}`),
		},
		"Grafana of one of two": {[]string{
			`{` + a + `,"ingress":[{"from":[` + web + `,{"podSelector":{"matchLabels":{"app":"grafana"}}}]}]}`, `{` + b + `,"ingress":[{"from":[` + web + `]}]}`,
		}, from(in(`{"app":"web"}`))},
		"a namespace by what nobody knows of it": {
			[]string{`{` + a + `,"ingress":[{"from":[{"namespaceSelector":{"matchLabels":{"team":"a"}}}]}]}`},
			from(`{"namespaceSelector":{"matchLabels":{"team":"a"}}}`),
		},
		"egress alone": {[]string{`{` + a + `,"policyTypes":["Egress"]}`}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.populate(&fleets[2])
			for i, spec := range one.walls {
				c.wall("metrics", fmt.Sprint("wall-", i), spec)
			}
			s := Settings{Namespace: "spill", Grafana: true}
			p := c.plan(Scope{Home: "spill"})
			o := policy(t, p, s, asServers)
			got := ""
			if o != nil {
				b, err := json.Marshal(o.at("spec", "ingress"))
				if err != nil {
					t.Fatal(err)
				}
				got = string(b)
			}
			if got != one.want {
				t.Errorf("it lets in %s, want %s", got, one.want)
			}
			// Grafana is let in where the servers let it in, as far as anybody can tell, or nobody.
			reads := one.want == nobody || slices.Contains([]string{"blocks", "Grafana", "a namespace by what nobody knows of it"}, name)
			if grafana := policy(t, p, s, fromGrafana); (grafana != nil) != reads {
				t.Errorf("the policy of Grafana is %v", grafana)
			}
			if said := fmt.Sprint(p.Admitted(s)); strings.Contains(said, "is let in neither by") != (one.want != "" && !reads) {
				t.Errorf("it says %s", said)
			}
			said := fmt.Sprint(p.Admitted(s))
			if (said != "[]") != (one.want != "") || strings.Contains(one.want, `{"app":"web"}}}]`) &&
				!strings.Contains(said, "(pods with app=web in namespaces with kubernetes.io/metadata.name=metrics)") {
				t.Errorf("it says %s", said)
			}
		})
	}
}
