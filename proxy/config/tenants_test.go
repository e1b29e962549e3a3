package config

import (
	"errors"
	"strings"
	"testing"
)

// TestTenantWithoutMatchers: a tenant that sees everything says so by an empty list, or has no such
// key; which of the two it is can be told, and is printed. A key without a value is neither.
func TestTenantWithoutMatchers(t *testing.T) {
	for matchers, explicit := range map[string]bool{"": false, ", matchers: []": true} {
		c, err := Parse([]byte(minimal+"tenants: [{name: a, client_cert_cn: a"+matchers+"}]\n"), ".")
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Tenants[0].Matchers; len(got) > 0 || (got != nil) != explicit {
			t.Errorf("%q: %#v", matchers, got)
		}
	}
	_, err := Parse([]byte(minimal+"tenants:\n  - name: a\n    client_cert_cn: a\n    matchers:\n"), ".")
	var all Problems
	if !errors.As(err, &all) || len(all) != 1 || all[0].Path != "tenants[0].matchers" ||
		!strings.Contains(all[0].Message, "write a selector, or []") {
		t.Errorf("without a value: %v", err)
	}
}
