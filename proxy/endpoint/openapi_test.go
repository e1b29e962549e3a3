package endpoint

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pb33f/libopenapi"
	"go.yaml.in/yaml/v3"
)

// operation is what the tests read of a method of a path.
type operation struct {
	OperationID string `yaml:"operationId"`
	Description string
	Parameters  []struct {
		Name, In string
		Required bool
		Example  any
		Schema   map[string]any
	}
	RequestBody map[string]any `yaml:"requestBody"`
	Responses   map[string]map[string]any
}

// TestOpenAPI: the document is one to a parser of OpenAPI, and says of each row what the table
// says, and nothing else.
func TestOpenAPI(t *testing.T) {
	for _, newer := range []bool{false, true} {
		raw := OpenAPI(`1.2"\`, "/spillway/", newer)
		doc, err := libopenapi.NewDocument(raw)
		if err != nil {
			t.Fatal(err)
		}
		model, err := doc.BuildV3Model()
		if err != nil {
			t.Fatal(err)
		}
		if model.Model.Info.Version != `1.2"\` || model.Model.Servers[0].URL != "/spillway/" || (doc.GetVersion() == "3.2.0") != newer {
			t.Errorf("%s %+v %+v", doc.GetVersion(), model.Model.Info, model.Model.Servers)
		}
		if n := model.Model.Paths.PathItems.Len(); n != len(Table) {
			t.Errorf("%d paths, %d rows", n, len(Table))
		}
		var text struct {
			Paths map[string]map[string]yaml.Node
		}
		if err := yaml.Unmarshal(raw, &text); err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for i := range Table {
			e := &Table[i]
			if model.Model.Paths.PathItems.GetOrZero(e.Path) == nil {
				t.Errorf("the parser does not find %s", e.Path)
			}
			methods := 0
			for m, node := range text.Paths[e.Path] {
				if m == "parameters" {
					continue
				}
				methods++
				var op operation
				if err := node.Decode(&op); err != nil {
					t.Fatalf("%s: %v", e.Path, err)
				}
				if seen[op.OperationID] || !strings.HasPrefix(op.OperationID, string(e.ID)) || !strings.Contains(op.Description, e.Doc) {
					t.Errorf("%s %s: %q, %q", m, e.Path, op.OperationID, op.Description)
				}
				seen[op.OperationID] = true
				if !slices.Contains(e.Methods, strings.ToUpper(m)) {
					t.Errorf("%s is not served at %s", m, e.Path)
				}
				if m == "get" {
					e.compare(t, &op)
				}
				if op.Responses["200"] == nil || op.Responses["422"] == nil || op.Responses["503"] == nil {
					t.Errorf("%s: %v", e.Path, op.Responses)
				}
			}
			if methods != len(e.Methods) {
				t.Errorf("%s has %d methods", e.Path, methods)
			}
		}
	}
}

// compare holds the parameters of a GET to the row's.
func (e *Endpoint) compare(t *testing.T, op *operation) {
	t.Helper()
	if len(op.Parameters) != len(e.Params) {
		t.Errorf("%s has %d parameters, want %d", e.ID, len(op.Parameters), len(e.Params))
		return
	}
	for i, p := range e.Params {
		got := op.Parameters[i]
		if got.Name != p.Name || got.In != "query" || got.Required != p.Required || got.Example == nil {
			t.Errorf("%s: %+v, want %s", e.ID, got, p.Name)
		}
		schema := got.Schema
		if p.Repeated {
			if most, ok := schema["maxItems"].(int); !ok || schema["type"] != "array" || p.MaxCount > 0 && most != p.MaxCount {
				t.Errorf("%s %s: %v", e.ID, p.Name, schema)
				continue
			}
			schema, _ = schema["items"].(map[string]any)
		}
		bound, ok := schema["maxLength"].(int)
		if p.MaxBytes > 0 && schema["type"] == "string" && len(p.Words) == 0 && (!ok || bound != p.MaxBytes) {
			t.Errorf("%s %s: %v, want at most %d bytes", e.ID, p.Name, schema, p.MaxBytes)
		}
		if words, _ := schema["enum"].([]any); (p.Kind == KindEnum) != (len(words) > 0) || len(words) != len(p.Words) {
			t.Errorf("%s %s: %v, want %q", e.ID, p.Name, schema, p.Words)
		}
	}
}

// TestWordsAndNumbersOfTheTable: each word of a parameter is taken, and numbers just within its
// bounds; others are not.
func TestWordsAndNumbersOfTheTable(t *testing.T) {
	for _, e := range Table {
		needed := url.Values{}
		for _, p := range e.Params {
			if p.Required {
				needed.Set(p.Name, p.Example)
			}
		}
		try := func(p Param, v string) error {
			form := url.Values{"sort_by": {"alpha"}, "group_limit": {"1"}} // what others need, dropped where it is unknown
			for k, values := range needed {
				form[k] = values
			}
			form.Set(p.Name, v)
			path := strings.ReplaceAll(e.Path, "{name}", "job")
			r, err := http.NewRequest(e.Methods[0], "http://x"+path+"?"+form.Encode(), http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			_, err = Parse(r, Options{})
			return err
		}
		for _, p := range e.Params {
			for _, w := range p.Words {
				if err := try(p, w); err != nil && !strings.Contains(err.Error(), "sort_by=score requires") {
					t.Errorf("%s %s=%s: %v", e.ID, p.Name, w, err)
				}
			}
			if p.Kind == KindEnum && try(p, "nonsense") == nil {
				t.Errorf("%s takes %s=nonsense", e.ID, p.Name)
			}
			if p.Kind != KindNumber {
				continue
			}
			cases := map[int]bool{p.Min - 1: false, p.Min: true}
			if p.Max > 0 {
				cases[p.Max], cases[p.Max+1] = true, false
			}
			for v, fine := range cases {
				if err := try(p, strconv.Itoa(v)); (err == nil) != fine {
					t.Errorf("%s %s=%d: %v, want it taken: %v", e.ID, p.Name, v, err, fine)
				}
			}
		}
	}
}
