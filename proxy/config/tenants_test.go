package config

import (
	"errors"
	"fmt"
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

// TestDearPasswords: a hash that takes a processor for seconds is refused, since passwords are
// checked one after the other, wrong ones too.
func TestDearPasswords(t *testing.T) {
	for cost, good := range map[int]bool{4: true, 10: true, maxCost: true, maxCost + 1: false, 20: false, 31: false, 32: false} {
		hash := fmt.Sprintf("$2y$%02d$abcdefghijklmnopqrstuuEbD2NGcVfmSKtvpBCQn5GzZ7RIm5VfO", cost)
		_, err := Parse([]byte(minimal+"tenants: [{name: a, basic_auth: {username: a, password_bcrypt: '"+hash+"'}}]\n"), ".")
		var all Problems
		switch {
		case good && err == nil:
		case !good && errors.As(err, &all) && len(all) == 1 && all[0].Path == "tenants[0].basic_auth.password_bcrypt" &&
			strings.Contains(all[0].Message, "htpasswd -nBC 10") && !strings.Contains(all[0].Message, hash):
		default:
			t.Errorf("cost %d: %v", cost, err)
		}
	}
}
