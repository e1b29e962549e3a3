package adopt

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestRights: adopt asks for nothing but what Reads and Writes list, and for all of it; and the
// page lists the same.
func TestRights(t *testing.T) {
	var asked []Rule
	for i := range fleets {
		c := newCluster(t)
		c.populate(&fleets[i])
		p := c.plan(Scope{})
		for _, r := range c.asked {
			if !granted(Reads, r) {
				t.Errorf("to look, %s %s in %q is asked for and not listed", r.Verbs[0], r.Resource, r.Group)
			}
		}
		c.available(p, fleets[i].namespace)
		s := Settings{Namespace: fleets[i].namespace, Grafana: true}
		if err := c.Apply(t.Context(), p, c.reach(), s, quiet); err != nil {
			t.Fatal(err)
		}
		_, err := c.Undo(t.Context(), Scope{Home: fleets[i].namespace}, false, quiet)
		if fleets[i].restart != "" && err != nil && strings.Contains(err.Error(), fleets[i].restart) {
			_, err = c.Undo(t.Context(), Scope{Home: fleets[i].namespace}, false, quiet)
		}
		if err != nil {
			t.Fatal(err)
		}
		asked = append(asked, c.asked...)
	}
	all := append(slices.Clone(Reads), Writes...)
	for _, r := range asked {
		if !granted(all, r) {
			t.Errorf("%s %s in %q is asked for and not listed", r.Verbs[0], r.Resource, r.Group)
		}
	}
	for _, r := range all {
		if r.Why == roleGrants {
			continue // Kubernetes asks for it itself
		}
		for _, verb := range r.Verbs {
			// The API server asks for create where what is applied is not there.
			if !slices.ContainsFunc(asked, func(a Rule) bool {
				return a.Group == r.Group && a.Resource == r.Resource && (a.Verbs[0] == verb || verb == "create")
			}) {
				t.Errorf("%s %s in %q is listed and never asked for", verb, r.Resource, r.Group)
			}
		}
	}
	const page, begin, end = "../../docs/adopt.md", "<!-- rights: begin -->\n", "<!-- rights: end -->"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, _ := strings.Cut(string(text), begin)
	_, tail, ok := strings.Cut(rest, end)
	if !ok {
		t.Fatalf("%s has no %s", page, begin)
	}
	want := head + begin + rightsTable() + end + tail
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(text) {
		t.Errorf("%s has another table (-update writes it):\n%s", page, rightsTable())
	}
}

func granted(all []Rule, r Rule) bool {
	return slices.ContainsFunc(all, func(g Rule) bool {
		return g.Group == r.Group && g.Resource == r.Resource && slices.Contains(g.Verbs, r.Verbs[0])
	})
}

func rightsTable() string {
	var b strings.Builder
	b.WriteString("| for | API group | resource | verbs | why |\n|---|---|---|---|---|\n")
	for _, part := range []struct {
		name  string
		rules []Rule
	}{{"looking", Reads}, {"`--apply`, `--undo`", Writes}} {
		for _, r := range part.rules {
			group := "core"
			if r.Group != "" {
				group = "`" + r.Group + "`"
			}
			fmt.Fprintf(&b, "| %s | %s | `%s` | %s | %s |\n", part.name, group, r.Resource, strings.Join(r.Verbs, ", "), r.Why)
		}
	}
	return b.String()
}
