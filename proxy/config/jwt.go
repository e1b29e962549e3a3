package config

import (
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strconv"

	commonconfig "github.com/prometheus/common/config"
)

// JWT is the one issuer whose signed tokens make a tenant known. With the zero value there is none.
type JWT struct {
	// Issuer is what iss has to be.
	Issuer string `yaml:"issuer" is:"required"`
	// Audience is what aud has to have one of; at least one, at most 100.
	Audience []string `yaml:"audience" is:"required max=100"`
	// JWKSFile has the issuer's keys. After Load it is absolute or relative to the working
	// directory.
	JWKSFile string `yaml:"jwks_file" is:"filled"`
	// JWKSURL is where the keys are instead: https, or http on this machine.
	JWKSURL string `yaml:"jwks_url" is:"filled"`
	// HTTPClient is for JWKSURL. It follows no redirect.
	HTTPClient commonconfig.HTTPClientConfig `yaml:"http_client"`
	// Claim is the name of the claim that says whose a token is; with a slash in front it is a JSON
	// pointer into the claims.
	Claim string `yaml:"claim" is:"required"`
}

func (JWT) meaning() map[string]string {
	return map[string]string{
		"issuer":      "What `iss` of a token has to be, byte for byte.",
		"audience":    "What Spillway is called: `aud` of a token has to have one of these.",
		"jwks_file":   "A file with the issuer's keys, a JSON Web Key Set, relative to the configuration file; it is read again when it changes.",
		"jwks_url":    "Where they are instead: an https URL. Plain http only on this machine, since who can change the keys can be anybody.",
		"http_client": "Authentication, TLS and proxy for `jwks_url`, as `http_client` of a replica. No redirect is followed.",
		"claim": "The claim that says whose a token is, a text or a list of texts, such as `groups`. With a slash in front it is a " +
			"[JSON pointer](https://www.rfc-editor.org/rfc/rfc6901) into the claims, such as `/realm_access/roles`.",
	}
}

// Set tells whether there is an issuer.
func (j *JWT) Set() bool { return !reflect.ValueOf(*j).IsZero() }

// String is the issuer: the rest of it may be secret.
func (j JWT) String() string { return j.Issuer }

// Format prints String for every verb.
func (j JWT) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(j.Issuer)) }

// LogValue is String.
func (j JWT) LogValue() slog.Value { return slog.StringValue(j.Issuer) }

// MarshalJSON is the issuer's settings with stars for secrets.
func (j JWT) MarshalJSON() ([]byte, error) { return toJSON(node(reflect.ValueOf(j), "")) }

// MarshalYAML is the issuer's settings with stars for secrets.
func (j JWT) MarshalYAML() (any, error) { return node(reflect.ValueOf(j), ""), nil }

// Client is the settings of the client that reads JWKSURL.
func (j *JWT) Client() commonconfig.HTTPClientConfig {
	c := j.HTTPClient
	if reflect.ValueOf(c).IsZero() {
		c = defaultHTTPClient()
	}
	c.FollowRedirects = false
	return c
}

// jwt checks the issuer, and whether any tenant is known by it.
func (v *validator) jwt(j *JWT, all []Tenant) {
	used := slices.IndexFunc(all, func(t Tenant) bool { return len(t.JWTValues) > 0 })
	if !j.Set() {
		if used >= 0 {
			v.problem("tenants["+strconv.Itoa(used)+"].jwt_values", "no issuer of tokens is configured; write jwt beside tenants")
		}
		if v.has("jwt") && !v.wrong["jwt"] && !v.blank["jwt"] {
			v.problem("jwt", "it says nothing; give issuer, audience, claim, and jwks_file or jwks_url, or remove the key")
		}
		return
	}
	if used < 0 {
		v.problem("jwt", "no tenant has jwt_values, so that no token makes anybody known; give them to a tenant, or remove the key")
	}
	for _, text := range []struct{ key, value string }{{"issuer", j.Issuer}, {"claim", j.Claim}} {
		if text.value == "" {
			v.problem("jwt."+text.key, "it is missing, and nothing is believed of a token without it")
		}
	}
	if len(j.Audience) == 0 || len(j.Audience) > 100 || slices.Contains(j.Audience, "") {
		v.problem("jwt.audience", "give 1 to 100 names, none of them empty: a token for somebody else must not be taken")
	}
	if (j.JWKSFile == "") == (j.JWKSURL == "") {
		v.problem("jwt", "give one of jwks_file and jwks_url, where the issuer's keys are")
	}
	if j.JWKSURL != "" {
		v.jwksURL(j.JWKSURL)
	} else if v.has("jwt.http_client") {
		v.problem("jwt.http_client", "it is for jwks_url, which is not given; remove one, or write the other")
	}
	j.JWKSFile = commonconfig.JoinDir(v.dir, j.JWKSFile)
	j.HTTPClient.SetDirectory(v.dir)
}

// jwksURL checks where keys come from: who can change them on the way can be any tenant.
func (v *validator) jwksURL(text string) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.Fragment != "":
		v.problem("jwt.jwks_url", "it is no https URL without credentials; write one such as https://id.example.org/keys, and credentials under http_client")
	case u.Scheme == "http" && !loopback(u.Hostname()):
		v.problem("jwt.jwks_url", "keys that come over plain http can be replaced on the way, by whoever wants to be a tenant; use https, or jwks_file")
	}
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
