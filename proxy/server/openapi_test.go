package server

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestOpenAPIAsAnAgent: who knows nothing but the document asks each path that has a GET with the
// document's own examples, with what is required and with everything, and gets an answer or a
// sentence.
func TestOpenAPIAsAnAgent(t *testing.T) {
	r := newRig(t, []rigGroup{{name: "jaguar", replicas: []int{1}}}, "")
	got := r.ask(r.request(t.Context(), asking{path: "/api/v1/openapi.yaml"}))
	if got.status != 200 || got.header.Get("Content-Type") != "application/yaml; charset=utf-8" {
		t.Fatal(got)
	}
	type parameter struct {
		Name, In string
		Required bool
		Example  yaml.Node
	}
	var doc struct {
		Paths map[string]struct {
			Parameters []parameter
			Get        *struct{ Parameters []parameter }
		}
	}
	if err := yaml.Unmarshal(got.body, &doc); err != nil {
		t.Fatal(err)
	}
	asked := 0
	for path, item := range doc.Paths {
		if item.Get == nil {
			continue
		}
		for _, p := range item.Parameters {
			path = strings.ReplaceAll(path, "{"+p.Name+"}", p.Example.Value)
		}
		for _, all := range []bool{false, true} {
			form := url.Values{}
			for _, p := range item.Get.Parameters {
				values := []*yaml.Node{&p.Example}
				if p.Example.Kind == yaml.SequenceNode {
					values = p.Example.Content
				}
				for _, v := range values {
					if all || p.Required {
						form.Add(p.Name, v.Value)
					}
				}
			}
			got := r.ask(r.request(t.Context(), asking{path: path, form: form}))
			asked++
			refused := (got.status == http.StatusBadRequest || got.status == http.StatusUnprocessableEntity) && len(got.message.Error) > 20
			if got.status != http.StatusOK && !refused {
				t.Errorf("%s: %s", fmt.Sprint(path, form), got)
			}
		}
	}
	if asked < 50 {
		t.Errorf("only %d questions", asked)
	}
}
