package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	commonconfig "github.com/prometheus/common/config"
	"go.yaml.in/yaml/v3"

	"github.com/spillwayproject/spillway/proxy/endpoint"
)

// Redacted is the configuration in use as YAML, defaults filled in, every secret and every header's
// value as stars.
func (c *Config) Redacted() []byte {
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(node(reflect.ValueOf(c).Elem(), "")); err != nil {
		panic(err) // a tree built here from valid values always encodes
	}
	return out.Bytes()
}

// String is Redacted.
func (c *Config) String() string { return string(c.Redacted()) }

// Format prints Redacted for every verb: those for numbers would otherwise bypass String and print
// the secrets.
func (c *Config) Format(f fmt.State, _ rune) { _, _ = f.Write(c.Redacted()) }

// MarshalYAML is the tree of Redacted.
func (c *Config) MarshalYAML() (any, error) { return node(reflect.ValueOf(c).Elem(), ""), nil }

// MarshalJSON is Redacted as JSON.
func (c *Config) MarshalJSON() ([]byte, error) { return toJSON(node(reflect.ValueOf(c).Elem(), "")) }

// LogValue is what a log line needs: which file, and how large.
func (c *Config) LogValue() slog.Value {
	return slog.GroupValue(slog.String("hash", c.Hash), slog.Int("groups", len(c.Groups)))
}

// String is the replica's URL: the rest of it may be secret.
func (r Replica) String() string { return r.URL }

// Format prints String for every verb.
func (r Replica) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(r.URL)) }

// LogValue is String.
func (r Replica) LogValue() slog.Value { return slog.StringValue(r.URL) }

// MarshalJSON is the replica with stars for secrets.
func (r Replica) MarshalJSON() ([]byte, error) { return toJSON(node(reflect.ValueOf(r), "")) }

// MarshalYAML is the replica with stars for secrets.
func (r Replica) MarshalYAML() (any, error) { return node(reflect.ValueOf(r), ""), nil }

// LimitsJSON is the limits in use, with the configuration's keys in a stable order: the ceiling,
// and under endpoints what LimitsFor returns for each. Durations and bytes are spelled as in the
// file, counts are numbers.
func (c *Config) LimitsJSON() []byte {
	all := LimitsSection{
		Limits: c.Limits.Limits, ReadSlots: c.Limits.ReadSlots, ReplicaCalls: c.Limits.ReplicaCalls,
		ProcessCalls: c.Limits.ProcessCalls, ShardBudget: c.Limits.ShardBudget,
		Rewrites:  c.Limits.Rewrites,
		Endpoints: map[endpoint.ID]Limits{},
	}
	for _, id := range endpointIDs {
		all.Endpoints[id] = c.LimitsFor(id)
	}
	out, err := toJSON(node(reflect.ValueOf(all), ""))
	if err != nil {
		panic(err) // as in Redacted
	}
	return out
}

// node is the YAML tree of a value of the configuration, secrets starred. What is empty and has no
// default is left out.
func node(v reflect.Value, unit string) *yaml.Node {
	switch x := v.Interface().(type) {
	case commonconfig.HTTPClientConfig:
		return httpClientNode(x)
	case Moment:
		return word(x.String(), "!!str")
	case Hash:
		return word(x.String(), "!!int")
	case Bytes:
		return word(x.String(), "!!str")
	case time.Duration:
		return word(Duration(x), "!!str")
	case Secret:
		return word(stars, "!!str")
	case Group:
		if x.ShardsFrom.Set() { // what was found is no part of the file
			x.Shards = nil
			v = reflect.ValueOf(x)
		}
	case UsageLog:
		if x.Path == "" { // sizes of no file would be refused if this were read again
			return &yaml.Node{Kind: yaml.MappingNode}
		}
	}
	switch v.Kind() {
	case reflect.Struct:
		n := &yaml.Node{Kind: yaml.MappingNode}
		for _, f := range fieldsOf(v.Type()) {
			fv := v.FieldByIndex(f.index)
			if fv.IsZero() && fv.Kind() != reflect.Bool && (fv.Kind() != reflect.String || v.Type() != reflect.TypeFor[Relabel]()) {
				continue
			}
			if child := node(fv, f.unit); child.Kind != yaml.MappingNode || len(child.Content) > 0 {
				n.Content = append(n.Content, word(f.key, "!!str"), child)
			}
		}
		return n
	case reflect.Slice:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		for i := range v.Len() {
			n.Content = append(n.Content, node(v.Index(i), ""))
		}
		return n
	case reflect.Map:
		n := &yaml.Node{Kind: yaml.MappingNode}
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return bytes.Compare([]byte(a.String()), []byte(b.String())) })
		for _, k := range keys {
			n.Content = append(n.Content, word(k.String(), "!!str"), node(v.MapIndex(k), ""))
		}
		return n
	case reflect.Int, reflect.Int64:
		if unit == "bytes" {
			return word(Bytes(v.Int()).String(), "!!str")
		}
		return word(strconv.FormatInt(v.Int(), 10), "!!int")
	case reflect.Float64:
		s := strconv.FormatFloat(v.Float(), 'f', -1, 64)
		if !strings.Contains(s, ".") {
			return word(s, "!!int") // else the tag would be written too
		}
		return word(s, "!!float")
	case reflect.Bool:
		return word(strconv.FormatBool(v.Bool()), "!!bool")
	default:
		return word(v.String(), "!!str")
	}
}

func word(s, tag string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: s}
	if tag == "!!str" {
		n.SetString(s)
	}
	return n
}

// httpClientNode is prometheus/common's own YAML form, which hides what it declares as secret, with
// those and what else may be secret starred: the values of headers and of OAuth2 parameters, and
// credentials within URLs. Settings at their defaults give an empty mapping.
func httpClientNode(c commonconfig.HTTPClientConfig) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode}
	if reflect.DeepEqual(c, defaultHTTPClient()) {
		return n
	}
	if h := c.HTTPHeaders; h != nil {
		starred := commonconfig.Headers{Headers: maps.Clone(h.Headers)}
		for name, header := range starred.Headers {
			header.Values = slices.Repeat([]string{stars}, len(header.Values))
			starred.Headers[name] = header
		}
		c.HTTPHeaders = &starred
	}
	if o := c.OAuth2; o != nil {
		starred := *o
		starred.EndpointParams, starred.Claims = maps.Clone(o.EndpointParams), maps.Clone(o.Claims)
		for k := range starred.EndpointParams {
			starred.EndpointParams[k] = stars
		}
		for k := range starred.Claims {
			starred.Claims[k] = stars
		}
		if u, err := url.Parse(o.TokenURL); err != nil || u.User != nil || u.RawQuery != "" {
			starred.TokenURL = stars
		}
		c.OAuth2 = &starred
	}
	if err := n.Encode(c); err != nil {
		return word(stars, "!!str") // better no settings than a leak
	}
	starSecrets(n)
	return n
}

// starSecrets replaces the word by which prometheus/common hides a secret.
func starSecrets(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && n.Value == "<secret>" {
		n.SetString(stars)
	}
	for _, child := range n.Content {
		starSecrets(child)
	}
}

// toJSON writes the tree with its keys in the tree's order.
func toJSON(n *yaml.Node) ([]byte, error) {
	switch n.Kind {
	case yaml.MappingNode:
		out := []byte{'{'}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if i > 0 {
				out = append(out, ',')
			}
			k, err := json.Marshal(n.Content[i].Value)
			if err != nil {
				return nil, err
			}
			v, err := toJSON(n.Content[i+1])
			if err != nil {
				return nil, err
			}
			out = append(append(append(out, k...), ':'), v...)
		}
		return append(out, '}'), nil
	case yaml.SequenceNode:
		out := []byte{'['}
		for i, child := range n.Content {
			if i > 0 {
				out = append(out, ',')
			}
			v, err := toJSON(child)
			if err != nil {
				return nil, err
			}
			out = append(out, v...)
		}
		return append(out, ']'), nil
	default:
		if n.Tag == "!!int" || n.Tag == "!!bool" {
			return []byte(n.Value), nil
		}
		return json.Marshal(n.Value)
	}
}
