package alertmanager

import (
	"testing"

	"go.yaml.in/yaml/v3"
)

func TestRehearsalRefuses(t *testing.T) {
	for name, f := range map[string]func() error{
		"time scale below 1": func() error { _, err := Rehearsal(Config, "http://127.0.0.1:1", 0.5); return err },
		"slash at the end":   func() error { _, err := Rehearsal(Config, "http://127.0.0.1:1/", 1); return err },
		"no URL":             func() error { _, err := Rehearsal(Config, "here", 1); return err },
		"no YAML":            func() error { _, err := Rehearsal([]byte("{"), "http://127.0.0.1:1", 1); return err },
		"no receivers":       func() error { _, err := Rehearsal([]byte("route: {}"), "http://127.0.0.1:1", 1); return err },
		"a nameless one":     func() error { _, err := Rehearsal([]byte("receivers: [{}]"), "http://127.0.0.1:1", 1); return err },
		"a bad duration": func() error {
			_, err := Rehearsal([]byte("{receivers: [{name: a}], route: {group_wait: soon}}"), "http://127.0.0.1:1", 1)
			return err
		},
	} {
		if f() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestRehearsalKeepsRoutes compares all but receivers and waits.
func TestRehearsalKeepsRoutes(t *testing.T) {
	out, err := Rehearsal(Config, "http://127.0.0.1:1", 30)
	if err != nil {
		t.Fatal(err)
	}
	strip := func(text []byte) string {
		var doc map[string]any
		if err := yaml.Unmarshal(text, &doc); err != nil {
			t.Fatal(err)
		}
		delete(doc, "receivers")
		delete(doc, "global")
		var walk func(any)
		walk = func(n any) {
			switch n := n.(type) {
			case []any:
				for _, v := range n {
					walk(v)
				}
			case map[string]any:
				for _, k := range []string{"group_wait", "group_interval", "repeat_interval"} {
					delete(n, k)
				}
				for _, v := range n {
					walk(v)
				}
			}
		}
		walk(doc)
		b, err := yaml.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if a, b := strip(Config), strip(out); a != b {
		t.Errorf("routes or inhibitions changed:\n%s\n---\n%s", a, b)
	}
	if err := Check(t.Context(), out); err != nil {
		t.Error(err)
	}
}
