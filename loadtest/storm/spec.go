package storm

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

//go:embed mixed.yaml
var builtin []byte

// maxFile is how large a file of a storm may be.
const maxFile = 1 << 20

// A Storm is what callers do, beside whom on-call people want their answers.
type Storm struct {
	// Name is a word; About a sentence.
	Name  string `yaml:"name"`
	About string `yaml:"about"`
	// Lanes are those of the Spillway in front of which it comes, in their order.
	Lanes []Lane `yaml:"lanes"`
	// OnCall is what is asked all the time, evenly, in the storm and before it. It neither leaves
	// nor asks again.
	OnCall Part `yaml:"on_call"`
	// Parts are the storm.
	Parts []Part `yaml:"parts"`
}

// A Lane is a share of a server's places for what a tenant asks.
type Lane struct {
	Tenant        string  `yaml:"tenant"`
	Share         float64 `yaml:"share"`
	MaxConcurrent int     `yaml:"max_concurrent"`
	// Lend is lanes[].lend, half where it is missing, and First lanes[].first.
	Lend  *float64 `yaml:"lend"`
	First bool     `yaml:"first"`
	// MaxWait is lanes[].max_wait.
	MaxWait time.Duration `yaml:"max_wait"`
}

// A Part is one kind of caller.
type Part struct {
	Name  string `yaml:"name"`
	About string `yaml:"about"`
	// Tenant is whose token is sent. Headers are sent too; their values are templates.
	Tenant  string            `yaml:"tenant"`
	Headers map[string]string `yaml:"headers"`
	// Rate is how many arrive each second, on average. An arrival asks Burst requests at once; 1.
	Rate  float64 `yaml:"rate"`
	Burst int     `yaml:"burst"`
	// TimesGoodput, in place of Rate, is by how much more arrives than is answered when four
	// callers ask one after the other and nobody else does; whoever runs the storm measures that.
	TimesGoodput float64 `yaml:"times_goodput"`
	// From and Until are the part of the storm's time in which it comes, as shares; 0 and 1.
	From  float64 `yaml:"from"`
	Until float64 `yaml:"until"`
	// Patience is how long a caller waits for an answer, from when it was due; 30s, as Grafana.
	Patience model.Duration `yaml:"patience"`
	// LeaveAfter is after how long a caller hangs up on purpose; 0 is never.
	LeaveAfter model.Duration `yaml:"leave_after"`
	// Again is how often a request that was not answered, whatever the reason, is asked again at
	// once.
	Again int `yaml:"again"`
	// ReadBytesPerSecond is how slowly answers are read; 0 is as fast as they come.
	ReadBytesPerSecond int `yaml:"read_bytes_per_second"`
	// Requests are asked in turn.
	Requests []Request `yaml:"requests"`
}

// A Request is one thing that is asked. Path, values of parameters and RemoteRead are templates;
// see expand.
type Request struct {
	// Name is for tables.
	Name string `yaml:"name"`
	// Method is GET, the default, or POST, which sends the parameters as a form.
	Method string            `yaml:"method"`
	Path   string            `yaml:"path"`
	Params map[string]string `yaml:"params"`
	// RemoteRead is a selector that is read by the remote read protocol, streamed, in place of the
	// other fields; Range is how far back.
	RemoteRead string         `yaml:"remote_read"`
	Range      model.Duration `yaml:"range"`
}

// Builtin is the committed storm.
func Builtin() Storm {
	s, err := Parse("mixed.yaml", builtin)
	if err != nil {
		panic(fmt.Sprintf("the built-in storm: %v", err)) // a test parses it
	}
	return s
}

// Load reads a storm from a file of at most 1 MiB.
func Load(path string) (Storm, error) {
	f, err := os.Open(path)
	if err != nil {
		return Storm{}, fmt.Errorf("read the storm: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return Storm{}, fmt.Errorf("read the storm: %w", err)
	}
	if len(text) > maxFile {
		return Storm{}, fmt.Errorf("read the storm: %s is larger than 1 MiB", path)
	}
	return Parse(path, text)
}

// Parse reads a storm from YAML; name is what errors call the text. It reports everything that is
// wrong, each with its line.
func Parse(name string, text []byte) (Storm, error) {
	var s Storm
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&s); err != nil {
		return s, fmt.Errorf("%s: %w", name, err)
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return s, fmt.Errorf("%s: there is a second document", name)
	}
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		return s, fmt.Errorf("%s: %w", name, err)
	}
	c := checker{name: name, root: root.Content[0]}
	c.storm(&s)
	return s, errors.Join(c.errs...)
}

// checker finds what is wrong with a storm, and where in the file that stands.
type checker struct {
	name string
	root *yaml.Node
	errs []error
}

// bad reports what is wrong at a path; of a key that is missing it is the line of what lacks it.
func (c *checker) bad(at []any, format string, args ...any) {
	line, path := c.root.Line, strings.Builder{}
	n := c.root
	for _, step := range at {
		switch step := step.(type) {
		case string:
			if path.Len() > 0 {
				path.WriteByte('.')
			}
			path.WriteString(step)
			n = value(n, step)
		case int:
			fmt.Fprintf(&path, "[%d]", step)
			if n != nil && step < len(n.Content) {
				n = n.Content[step]
			}
		}
		if n != nil {
			line = n.Line
		}
	}
	c.errs = append(c.errs, fmt.Errorf("%s:%d: %s: %s", c.name, line, path.String(), fmt.Sprintf(format, args...)))
}

// value is what a mapping has under a key; nil where it has nothing.
func value(n *yaml.Node, key string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

func (c *checker) storm(s *Storm) {
	if s.Name == "" {
		c.bad([]any{"name"}, "must not be empty")
	}
	if len(s.Parts) == 0 {
		c.bad([]any{"parts"}, "there must be one at least")
	}
	total := 0.0
	for i, l := range s.Lanes {
		at := []any{"lanes", i}
		total += l.Share
		if l.Tenant == "" {
			c.bad(append(at, "tenant"), "must not be empty")
		}
		if l.Share <= 0 || total > 1 {
			c.bad(append(at, "share"), "%g must be above 0, and all shares together at most 1", l.Share)
		}
		if l.MaxConcurrent < 0 {
			c.bad(append(at, "max_concurrent"), "must not be negative")
		}
		if l.Lend != nil && (*l.Lend < 0 || *l.Lend > 1) {
			c.bad(append(at, "lend"), "%g is outside 0 to 1", *l.Lend)
		}
	}
	if s.OnCall.Name == "" {
		s.OnCall.Name = "on-call"
	}
	c.part(&s.OnCall, []any{"on_call"})
	for _, k := range []struct {
		name string
		set  bool
	}{
		{"leave_after", s.OnCall.LeaveAfter != 0},
		{"again", s.OnCall.Again != 0},
		{"times_goodput", s.OnCall.TimesGoodput != 0},
		{"from", s.OnCall.From != 0},
		{"until", s.OnCall.Until != 1},
	} {
		if k.set {
			c.bad([]any{"on_call", k.name}, "on-call people do not do that here")
		}
	}
	names := map[string]bool{s.OnCall.Name: true}
	for i := range s.Parts {
		p, at := &s.Parts[i], []any{"parts", i}
		if p.Name == "" || names[p.Name] {
			c.bad(append(at, "name"), "%q is empty or there already", p.Name)
		}
		names[p.Name] = true
		c.part(p, at)
	}
}

// part checks a part and fills in its defaults.
func (c *checker) part(p *Part, at []any) {
	key := func(k ...any) []any { return append(slices.Clone(at), k...) }
	if p.Tenant == "" {
		c.bad(key("tenant"), "must not be empty")
	}
	if p.Burst == 0 {
		p.Burst = 1
	}
	if p.Until == 0 {
		p.Until = 1
	}
	if p.Patience == 0 {
		p.Patience = model.Duration(30 * time.Second)
	}
	switch {
	case p.Rate < 0 || p.TimesGoodput < 0 || (p.Rate == 0) == (p.TimesGoodput == 0):
		c.bad(key("rate"), "%g: either it or times_goodput must be above 0", p.Rate)
	case p.Rate*float64(p.Burst) > maxRate:
		c.bad(key("rate"), "%g times a burst of %d is more than %d requests a second", p.Rate, p.Burst, maxRate)
	case p.TimesGoodput > 20:
		c.bad(key("times_goodput"), "%g is more than 20", p.TimesGoodput)
	}
	if p.Burst < 1 {
		c.bad(key("burst"), "%d must be above 0", p.Burst)
	}
	if p.From < 0 || p.Until > 1 || p.From >= p.Until {
		c.bad(key("from"), "from %g until %g is no part of the storm's time", p.From, p.Until)
	}
	if p.Again < 0 || p.Again > 100 {
		c.bad(key("again"), "%d is outside 0 to 100", p.Again)
	}
	if p.ReadBytesPerSecond < 0 {
		c.bad(key("read_bytes_per_second"), "must not be negative")
	}
	for _, name := range slices.Sorted(maps.Keys(p.Headers)) {
		if _, err := expand(p.Headers[name], sample); err != nil {
			c.bad(key("headers", name), "%v", err)
		}
	}
	if len(p.Requests) == 0 {
		c.bad(key("requests"), "there must be one at least")
	}
	for i := range p.Requests {
		c.request(&p.Requests[i], key("requests", i))
	}
}

// sample is what the templates of a file are tried with.
var sample = vars{now: time.Unix(1.7e9, 0), n: 1, cluster: `cluster="a",`, pods: []string{"a"}}

func (c *checker) request(r *Request, at []any) {
	key := func(k ...any) []any { return append(slices.Clone(at), k...) }
	if r.Name == "" {
		c.bad(key("name"), "must not be empty")
	}
	if r.Method == "" {
		r.Method = "GET"
	}
	if r.RemoteRead != "" {
		if r.Path != "" || len(r.Params) > 0 {
			c.bad(key("path"), "remote_read has neither path nor params")
		}
		c.selector(r.RemoteRead, key("remote_read"))
		if r.Range <= 0 {
			c.bad(key("range"), "remote_read needs one above 0")
		}
		return
	}
	if r.Range != 0 {
		c.bad(key("range"), "only remote_read has one; elsewhere it is params.start")
	}
	if r.Method != "GET" && r.Method != "POST" {
		c.bad(key("method"), "%q is neither GET nor POST", r.Method)
	}
	if p, err := expand(r.Path, sample); err != nil || !strings.HasPrefix(p, "/") {
		c.bad(key("path"), "%q does not begin with a slash, or: %v", r.Path, err)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Params)) {
		text, err := expand(r.Params[name], sample)
		if err == nil && name == "query" {
			_, err = parser.NewParser(parser.Options{}).ParseExpr(text)
		}
		if err != nil {
			c.bad(key("params", name), "%v", err)
		}
	}
}

func (c *checker) selector(template string, at []any) {
	text, err := expand(template, sample)
	if err == nil {
		_, err = parser.NewParser(parser.Options{}).ParseMetricSelector(text)
	}
	if err != nil {
		c.bad(at, "%v", err)
	}
}

// Tenants are all that are named, by lanes too, once each, on-call's first.
func (s Storm) Tenants() []string {
	names := []string{s.OnCall.Tenant}
	add := func(name string) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, p := range s.Parts {
		add(p.Tenant)
	}
	for _, l := range s.Lanes {
		add(l.Tenant)
	}
	return names
}

// Only is the storm with these parts, by name, and no others; with all where none is named.
func (s Storm) Only(names ...string) (Storm, error) {
	if len(names) == 0 {
		return s, nil
	}
	all := s.Parts
	s.Parts = nil
	for _, name := range names {
		i := slices.IndexFunc(all, func(p Part) bool { return p.Name == name })
		if i < 0 {
			return s, fmt.Errorf("the storm %s has no part %q", s.Name, name)
		}
		s.Parts = append(s.Parts, all[i])
	}
	return s, nil
}
