package config

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"time"

	commonconfig "github.com/prometheus/common/config"
	"github.com/prometheus/prometheus/promql/parser"
	"golang.org/x/crypto/bcrypt"

	"github.com/spillwayproject/spillway/internal/clip"
)

// Tenant is somebody who may ask, and what they may ask.
type Tenant struct {
	// Name is unique; it appears in the log and the usage log.
	Name string `yaml:"name" is:"required pattern=^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$"`
	// BearerTokenFile has the token by which the tenant is known. After Load it is absolute or
	// relative to the working directory.
	BearerTokenFile string `yaml:"bearer_token_file" is:"filled"`
	// BasicAuth is a name and a password instead.
	BasicAuth TenantPassword `yaml:"basic_auth"`
	// ClientCertCN is the common name of a verified client certificate instead.
	ClientCertCN string `yaml:"client_cert_cn" is:"filled"`
	// JWTValues are values of the claim jwt.claim instead: a token with any of them is the
	// tenant's.
	JWTValues []string `yaml:"jwt_values" is:"filled max=100"`
	// Matchers are selectors whose matchers all hold for everything that the tenant sees; with none
	// it sees everything. Where the file has an empty list they are empty and not nil.
	Matchers []string `yaml:"matchers" is:"given"`
	// Limits are its own bounds, 0 is none; those of the endpoint hold too.
	Limits Limits `yaml:"limits"`
	// MaySet are the headers that are believed when it says on whose behalf it asks.
	MaySet []string `yaml:"may_set"`
}

// TenantPassword is a name and a password.
type TenantPassword struct {
	// Username is what is sent in the clear; unique.
	Username string `yaml:"username" is:"required"`
	// PasswordBcrypt is the password's hash.
	PasswordBcrypt Secret `yaml:"password_bcrypt" is:"required"`
}

func (Tenant) meaning() map[string]string {
	return map[string]string{
		"name":              "Unique; the log and the usage log call the tenant by it.",
		"bearer_token_file": "A file with the token by which the tenant is known, relative to the configuration file; it is read again when it changes.",
		"basic_auth":        "A name and a password instead.",
		"client_cert_cn":    "The common name of a client certificate instead, which the web configuration has verified.",
		"jwt_values":        "Values of the claim `jwt.claim` instead: a token with any of them is the tenant's.",
		"matchers":          "Selectors, such as `{namespace=~\"research-.+\"}`. All their matchers hold for all that the tenant sees; none is everything. A reload that is to take all of a tenant's away needs `[]`.",
		"limits":            "Its own bounds, by the keys of `limits`; those of the endpoint hold too.",
		"may_set":           "Headers that are believed when the tenant says on whose behalf it asks, such as `X-Grafana-User`. Others are dropped.",
	}
}

func (TenantPassword) meaning() map[string]string {
	return map[string]string{
		"username":        "Unique among the tenants.",
		"password_bcrypt": "The password's bcrypt hash, as `htpasswd -nBC 10 \"\"` writes it, of cost 14 at most. Printed as stars.",
	}
}

// Bound is the limits, lowered to the tenant's own.
func (t *Tenant) Bound(l Limits) Limits {
	own, out := reflect.ValueOf(t.Limits), reflect.ValueOf(&l).Elem()
	for _, f := range fieldsOf(own.Type()) {
		if v := own.FieldByIndex(f.index); v.CanInt() && v.Int() > 0 {
			dst := out.FieldByIndex(f.index)
			dst.SetInt(min(dst.Int(), v.Int()))
		}
	}
	if t.Limits.Unselective == UnselectiveRefuse {
		l.Unselective = UnselectiveRefuse
	}
	l.MetadataRange = min(l.MetadataRange, l.MaxRange)
	return l
}

// maySet are the headers by which a tenant says on whose behalf it asks.
var maySet = []string{"X-Grafana-User", "X-Dashboard-Uid", "X-Panel-Id", "X-Rule-Uid", "Fromalert"}

const maxTenants = 1000

// maxCost is the dearest bcrypt hash that is taken: it takes a processor for a second, and
// passwords are checked one after the other.
const maxCost = 14

// hashTime is about what one of bcrypt.DefaultCost takes.
const hashTime = 60 * time.Millisecond

// tenants checks who may ask. Each thing by which one is known is one's own.
func (v *validator) tenants(all []Tenant) {
	if len(all) == 0 && v.has("tenants") && !v.wrong["tenants"] {
		v.problem("tenants", "the list is empty, so that it is not clear who may ask; name tenants, or remove the key and everybody may")
	}
	if len(all) > maxTenants {
		v.problem("tenants", "%d tenants are more than one proxy knows (%d)", len(all), maxTenants)
	}
	known := map[string]string{}
	claim := func(path, what, value string) {
		if value == "" {
			return
		}
		key := what + " " + value
		if first, twice := known[key]; twice {
			v.problem(path, "%s is that of %s too; each tenant is known by its own", what, first)
			return
		}
		known[key] = path
	}
	for i := range all {
		t, path := &all[i], "tenants["+strconv.Itoa(i)+"]"
		if !groupName.MatchString(t.Name) {
			v.problem(path+".name", "%q is no usable name; use up to 63 letters, digits, '_', '-' and '.'", clip.Text(t.Name, 40))
		}
		claim(path+".name", "the name", t.Name)
		ways := 0
		for _, given := range []bool{t.BearerTokenFile != "", t.BasicAuth != TenantPassword{}, t.ClientCertCN != "", len(t.JWTValues) > 0} {
			if given {
				ways++
			}
		}
		if ways != 1 {
			v.problem(path, "%d ways to know the tenant are given; give one of bearer_token_file, basic_auth, client_cert_cn and jwt_values", ways)
		}
		if b := t.BasicAuth; b != (TenantPassword{}) {
			if b.Username == "" {
				v.problem(path+".basic_auth.username", "the name is missing")
			}
			if cost, err := bcrypt.Cost([]byte(b.PasswordBcrypt)); err != nil {
				v.problem(path+".basic_auth.password_bcrypt", "it is no bcrypt hash; write what `htpasswd -nBC 10 \"\"` prints behind the colon")
			} else if cost > maxCost {
				v.problem(path+".basic_auth.password_bcrypt", "a hash of cost %d takes a processor for about %s, for a wrong password too, and they are checked one after the other, so that all who have one wait; write one of cost %d at most, as `htpasswd -nBC 10 \"\"` prints it",
					cost, (hashTime << (cost - bcrypt.DefaultCost)).Round(time.Second), maxCost)
			}
			claim(path+".basic_auth.username", "the username", b.Username)
		}
		t.BearerTokenFile = commonconfig.JoinDir(v.dir, t.BearerTokenFile)
		claim(path+".bearer_token_file", "the file", t.BearerTokenFile)
		claim(path+".client_cert_cn", "the common name", t.ClientCertCN)
		if len(t.JWTValues) > 100 {
			v.problem(path+".jwt_values", "%d values are more than are looked for (100)", len(t.JWTValues))
		}
		for j, value := range t.JWTValues {
			if value == "" {
				v.problem(fmt.Sprintf("%s.jwt_values[%d]", path, j), "the value is empty, and would be that of whoever has none")
			}
			claim(fmt.Sprintf("%s.jwt_values[%d]", path, j), "the value", value)
		}
		if v.blank[path+".matchers"] {
			v.problem(path+".matchers", "the key has no value, so that it is not clear what the tenant may see; write a selector, or [] and it sees everything")
		}
		for j, text := range t.Matchers {
			if _, err := parser.NewParser(parser.Options{}).ParseMetricSelector(text); err != nil || len(text) > 4096 {
				v.problem(fmt.Sprintf("%s.matchers[%d]", path, j), "it is no selector of at most 4096 bytes; write one such as {namespace=~\"research-.+\"}")
			}
		}
		if u := t.Limits.Unselective; u != "" {
			v.unselective(u, path+".limits.unselective")
		}
		for j, name := range t.MaySet {
			if !slices.Contains(maySet, http.CanonicalHeaderKey(name)) {
				v.problem(fmt.Sprintf("%s.may_set[%d]", path, j), "%q is not read by Spillway; it reads %v", clip.Text(name, 40), maySet)
				continue
			}
			t.MaySet[j] = http.CanonicalHeaderKey(name)
		}
	}
}
