package config

import (
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	commonconfig "github.com/prometheus/common/config"
	"go.yaml.in/yaml/v3"
	"golang.org/x/net/http/httpguts"
)

// httpClient decodes prometheus/common's client settings. Their own decoder stops at the first
// unknown key only when all of a file is decoded strictly, so the keys are checked here first,
// against the very struct they are decoded into.
func (d *decoder) httpClient(n *yaml.Node, c *commonconfig.HTTPClientConfig, path string) {
	before := len(d.problems)
	d.keys(n, httpClientType, path)
	if hasAlias(n) {
		return
	}
	// Its decoder leaves out keys that it does not know, which were told, and says what it has
	// against the others.
	if err := n.Decode(c); err != nil {
		line, msg := n.Line, strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\n", " "), "yaml: ")
		msg = strings.TrimPrefix(msg, "unmarshal errors: ")
		if m := yamlLine.FindStringSubmatch(msg); m != nil {
			line, _ = strconv.Atoi(m[1])
			msg = m[2]
		}
		if len(d.problems) == before || !strings.Contains(msg, "secret manager") {
			d.add(path, line, "%s", quoted.ReplaceAllString(msg, "a value"))
		}
		refused := *c
		d.broken = append(d.broken, brokenClient{path, &refused})
		*c = defaultHTTPClient()
		return
	}
	if c.FollowRedirects && d.has(join(path, "follow_redirects")) {
		p := join(path, "follow_redirects")
		d.add(p, d.line(p), "redirects are never followed, since they would carry credentials elsewhere; remove the key, and give the final URL as url")
	}
	c.FollowRedirects = false
}

// quoted is a value as the YAML library repeats it in its errors. It may be a secret.
var quoted = regexp.MustCompile("(?s)`.*`|\"(?:[^\"\\\\]|\\\\.)*\"")

// hasAlias tells whether the tree has an alias, whose expansion is unbounded.
func hasAlias(n *yaml.Node) bool {
	return n.Kind == yaml.AliasNode || slices.ContainsFunc(n.Content, hasAlias)
}

// keys reports keys that the struct does not have, and those that stand for a secret manager, which
// Spillway has not.
func (d *decoder) keys(n *yaml.Node, t reflect.Type, path string) {
	d.lines[path] = n.Line
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[commonconfig.Headers](): // an inlined map of header names
		if n.Kind == yaml.MappingNode {
			for i := 0; i+1 < len(n.Content); i += 2 {
				p := join(path, n.Content[i].Value)
				if msg := headerProblem(n.Content[i].Value); msg != "" {
					d.add(p, n.Content[i].Line, "%s", msg)
				}
				d.keys(n.Content[i+1], reflect.TypeFor[commonconfig.Header](), p)
			}
		}
	case t.Kind() == reflect.Struct && n.Kind == yaml.MappingNode && t != reflect.TypeFor[commonconfig.URL]():
		fields := fieldsOf(t)
		for i := 0; i+1 < len(n.Content); i += 2 {
			k, v := n.Content[i], n.Content[i+1]
			if k.Kind != yaml.ScalarNode {
				continue
			}
			p := join(path, k.Value)
			f := byKey(fields, k.Value)
			switch {
			case f == nil:
				d.unknown(p, k, withoutRefs(keysOf(t)))
			case strings.HasSuffix(k.Value, "_ref"):
				d.add(p, k.Line, "Spillway has no secret manager; use %s_file", strings.TrimSuffix(k.Value, "_ref"))
			default:
				d.keys(v, t.FieldByIndex(f.index).Type, p)
			}
		}
	}
}

// withoutRefs leaves out the keys that need a secret manager: nobody should be led to them.
func withoutRefs(keys []string) []string {
	return slices.DeleteFunc(keys, func(key string) bool { return strings.HasSuffix(key, "_ref") })
}

// ownHeaders are those that belong to the connection or are written by Spillway itself for each
// request.
var ownHeaders = []string{
	"Accept", "Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Expect", "Host", "Keep-Alive",
	"Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Traceparent", "Tracestate",
	"Upgrade",
	"Www-Authenticate", "X-Prometheus-Remote-Read-Version", "X-Spillway-Via",
}

// headerProblem is why a header of that name cannot be configured; empty where it can.
func headerProblem(name string) string {
	switch {
	case !httpguts.ValidHeaderFieldName(name):
		return "not a header name"
	case slices.Contains(ownHeaders, http.CanonicalHeaderKey(name)):
		return "the header belongs to the connection or is written by Spillway for each request; remove it"
	default:
		return ""
	}
}
