package config

import (
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	commonconfig "github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"golang.org/x/net/http/httpguts"

	"github.com/spillwayproject/spillway/internal/clip"
)

// validator checks what a decoded configuration means. It never stops at the first problem.
type validator struct {
	*decoder
	dir   string
	now   time.Time
	notes Problems
}

// problem adds a problem at the path, with the line of the path.
func (v *validator) problem(path, format string, args ...any) {
	v.add(path, v.line(path), format, args...)
}

func (v *validator) note(path, format string, args ...any) {
	v.notes = append(v.notes, Problem{Path: path, Line: v.line(path), Message: fmt.Sprintf(format, args...)})
}

func (v *validator) config(c *Config) {
	if len(c.Groups) == 0 && !v.wrong["groups"] {
		v.problem("groups", "at least one group is needed, with the shards to ask")
	}
	names, urls := map[string]string{}, map[string]string{}
	for i := range c.Groups {
		v.group(&c.Groups[i], "groups["+strconv.Itoa(i)+"]", names, urls)
	}
	if len(c.Groups) > maxGroups {
		v.problem("groups", "%d groups are more than one proxy serves (%d); divide them over several", len(c.Groups), maxGroups)
	} else {
		v.overlaps(c.Groups)
	}
	v.limits(c)
	v.tenants(c.Tenants)
	v.jwt(&c.JWT, c.Tenants)
	v.lanes(c.Lanes, c.Tenants)
	v.usageLog(&c.UsageLog)
	v.dropRules(&c.DropRules)
	v.deny(c)
	if c.StateDir != "" {
		c.StateDir = commonconfig.JoinDir(v.dir, c.StateDir)
	}
	v.partialResponse(c.PartialResponse, "partial_response")
}

func (v *validator) partialResponse(value, path string) {
	if v.has(path) && value != PartialAbort && value != PartialWarn {
		v.problem(path, "%q is neither abort nor warn", clip.Text(value, 40))
	}
}

// maxGroups bounds the labels of our metrics, and the search for overlaps, which compares groups
// with equal labels one by one.
const maxGroups = 1000

var groupName = regexp.MustCompile(byKey(fieldsOf(reflect.TypeFor[Group]()), "name").rules["pattern"])

func (v *validator) group(g *Group, path string, names, urls map[string]string) {
	switch first, twice := names[g.Name]; {
	case g.Name == "" && !v.has(path+".name"):
		v.problem(path+".name", "the group needs a name, for errors and metrics to call it by")
	case !groupName.MatchString(g.Name):
		v.problem(path+".name", "%q is no usable name; use up to 63 letters, digits, '_', '-' and '.'", clip.Text(g.Name, 40))
	case twice:
		v.problem(path+".name", "the name %s is taken by %s; names are unique", g.Name, first)
	default:
		names[g.Name] = path
	}
	replicaLabels := make(map[string]bool, len(g.ReplicaLabels))
	for i, name := range g.ReplicaLabels {
		p := path + ".replica_labels[" + strconv.Itoa(i) + "]"
		if msg := labelProblem(name); msg != "" {
			v.problem(p, "%s", msg)
		} else if replicaLabels[name] {
			v.problem(p, "%s is listed twice", name)
		}
		replicaLabels[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(g.Labels)) {
		p := join(path+".labels", name)
		if msg := labelProblem(name); msg != "" {
			v.problem(p, "%s", msg)
		} else if g.Labels[name] == "" && v.has(p) {
			v.problem(p, "an empty value means that the label is absent; remove it, or give it a value")
		}
		if replicaLabels[name] {
			v.problem(p, "%s is one of the replica_labels too; it is either on every answer or on none", name)
		}
	}
	v.order(g.From, g.Until, path)
	v.shardBy(g, path)
	v.hashmod(g, path)
	v.names(g, path)
	v.heartbeat(g.Heartbeat, path+".heartbeat")
	v.partialResponse(g.PartialResponse, path+".partial_response")
	v.shardsFrom(g, path)
	if len(g.Shards) == 0 && !v.has(path+".shards_from") && !v.wrong[path+".shards"] {
		v.problem(path+".shards", "the group needs at least one shard, such as {replicas: [{url: \"http://10.0.0.1:9090\"}]}")
	}
	for i := range g.Shards {
		v.shard(g, i, path+".shards["+strconv.Itoa(i)+"]", urls)
	}
}

// labelProblem is why a label cannot be a group's or replica's; empty where it can.
func labelProblem(name string) string {
	switch {
	case !model.UTF8Validation.IsValidLabelName(name):
		return fmt.Sprintf("%q is no label name", clip.Text(name, 40))
	case name == model.MetricNameLabel || name == model.BucketLabel || name == model.QuantileLabel:
		return name + " belongs to the metric itself and cannot be set or removed for a whole group"
	case len(name) > 1024:
		return "the label name is longer than 1024 bytes"
	default:
		return ""
	}
}

// IsUp tells whether a selector is one of the metric up alone. It is false for text that is not a
// selector.
func IsUp(selector string) bool {
	matchers, err := parser.NewParser(parser.Options{}).ParseMetricSelector(selector)
	return err == nil && slices.ContainsFunc(matchers, func(m *labels.Matcher) bool {
		return m.Type == labels.MatchEqual && m.Name == model.MetricNameLabel && m.Value == "up"
	})
}

func (v *validator) heartbeat(selector, path string) {
	if selector == "" {
		if v.has(path) {
			v.problem(path, "the selector is empty; write one such as up, or remove the key")
		}
		return
	}
	if len(selector) > 1024 {
		v.problem(path, "the selector is longer than 1024 bytes")
		return
	}
	matchers, err := parser.NewParser(parser.Options{}).ParseMetricSelector(selector)
	if err != nil {
		v.problem(path, "not a selector such as up or up{job=\"node\"}: %s", clip.Text(err.Error(), 200))
		return
	}
	for _, m := range matchers {
		if !m.Matches("") {
			return
		}
	}
	v.problem(path, "the selector matches everything; name a metric, such as up")
}

// order refuses a span that is empty whatever the time is. One relative and one absolute end may be
// empty today and not tomorrow, or the reverse.
func (v *validator) order(from, until Moment, path string) {
	if !from.Set || !until.Set || (from.Rel != 0) != (until.Rel != 0) {
		return
	}
	if from.At(v.now) >= until.At(v.now) {
		v.problem(path+".from", "from (%s) must lie before until (%s)", from, until)
	}
}

func (v *validator) shard(g *Group, i int, path string, urls map[string]string) {
	s := &g.Shards[i]
	v.order(s.From, s.Until, path)
	if until := g.Until; until.Set && s.From.Set && (until.Rel != 0) == (s.From.Rel != 0) && s.From.At(v.now) >= until.At(v.now) {
		v.problem(path+".from", "the shard begins (%s) when its group has ended (%s), so it would never be asked", s.From, until)
	}
	if from := g.From; from.Set && s.Until.Set && (from.Rel != 0) == (s.Until.Rel != 0) && s.Until.At(v.now) <= from.At(v.now) {
		v.problem(path+".until", "the shard ends (%s) before its group begins (%s), so it would never be asked", s.Until, from)
	}
	if len(s.Replicas) == 0 && !v.wrong[path+".replicas"] {
		v.problem(path+".replicas", "the shard needs at least one replica, such as {url: \"http://10.0.0.1:9090\"}")
	}
	for j := range s.Replicas {
		if a, b := s.Replicas[0].Type, s.Replicas[j].Type; a != b && servedType(a) && servedType(b) {
			v.problem(path+".replicas["+strconv.Itoa(j)+"].type", "the shard's first replica is of type %s and this one of type %s; replicas are copies of each other, so give each type its own shard",
				a, b)
		}
		v.replica(&s.Replicas[j], path+".replicas["+strconv.Itoa(j)+"]", urls)
	}
}

func (v *validator) replica(r *Replica, path string, urls map[string]string) {
	if r.URL == "" {
		if !v.wrong[path+".url"] {
			v.problem(path+".url", "the replica needs a url, such as http://10.0.0.1:9090")
		}
	} else if base, err := r.Base(); err != nil {
		v.problem(path+".url", "%s", err)
	} else if first, twice := urls[base.String()]; twice {
		v.problem(path+".url", "the server %s stands at %s too; one server is one replica of one shard", base, first)
	} else {
		urls[base.String()] = path
	}
	switch {
	case servedType(r.Type):
	case r.Type == "victoriametrics":
		v.problem(path+".type", "this version does not serve type: victoriametrics: %s", noVictoriaMetrics)
	default:
		v.problem(path+".type", "%q is no type of server; write prometheus or thanos", clip.Text(r.Type, 40))
	}
	if _, err := r.MetricsURL(); err != nil && r.URL != "" && !v.wrong[path+".metrics"] {
		if _, bad := r.Base(); bad == nil {
			v.problem(path+".metrics", "%s", err)
		}
	}
	v.headers(r, path)
	r.HTTPClient.SetDirectory(v.dir)
	if o := r.HTTPClient.OAuth2; o != nil {
		o.ClientCertificateKeyFile = commonconfig.JoinDir(v.dir, o.ClientCertificateKeyFile)
	}
}

// noVictoriaMetrics is why a type that the contract knows is refused.
const noVictoriaMetrics = "its rate and its look-back are not PromQL's, so its answers cannot be put together with others exactly; use a Prometheus server or a Thanos Query"

func servedType(s string) bool { return s == TypePrometheus || s == TypeThanos }

func (v *validator) headers(r *Replica, path string) {
	if r.Headers == nil {
		return
	}
	canonical := make(map[string]Secret, len(r.Headers))
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		p, key := join(path+".headers", name), http.CanonicalHeaderKey(name)
		if msg := headerProblem(name); msg != "" {
			v.problem(p, "%s", msg)
			continue
		}
		if _, twice := canonical[key]; twice {
			v.problem(p, "the header %s stands twice, spelled differently", key)
		}
		if !httpguts.ValidHeaderFieldValue(string(r.Headers[name])) {
			v.problem(p, "the value has characters that a header cannot carry, such as a line break")
		}
		if h := r.HTTPClient.HTTPHeaders; h != nil {
			for other := range h.Headers {
				if http.CanonicalHeaderKey(other) == key {
					v.problem(p, "the header stands under http_client.http_headers too; keep one")
				}
			}
		}
		// also where http_client is refused for something else
		sets := func(what string) bool { return v.has(path + ".http_client." + what) }
		if key == "Authorization" && (sets("basic_auth") || sets("authorization") || sets("oauth2") || sets("bearer_token") ||
			sets("bearer_token_file")) {
			v.problem(p, "http_client sets the Authorization header too; keep one")
		}
		canonical[key] = r.Headers[name]
	}
	r.Headers = canonical
}

// overlaps refuses groups that say the same of themselves and hold the same time: each sample would
// be in both.
func (v *validator) overlaps(groups []Group) {
	seen := map[string][]int{}
	for i := range groups {
		g := &groups[i]
		if len(g.Labels) == 0 {
			continue
		}
		var key strings.Builder
		for _, name := range slices.Sorted(maps.Keys(g.Labels)) {
			fmt.Fprintf(&key, "%q=%q,", name, g.Labels[name])
		}
		for _, j := range seen[key.String()] {
			if v.overlap(&groups[j], g) {
				v.problem("groups["+strconv.Itoa(i)+"]", "the group %s has the same labels as %s (groups[%d]) and their times overlap; "+
					"make them shards of one group, give each its own label, or let one end (until) where the other begins (from)", g.Name, groups[j].Name, j)
				break
			}
		}
		seen[key.String()] = append(seen[key.String()], i)
	}
}

// instants are the times at which overlaps are looked for: where one end is relative and one is
// not, the answer changes with time.
func (v *validator) instants() []time.Time { return []time.Time{v.now, v.now.AddDate(20, 0, 0)} }

// overlap tells whether two groups hold a common instant, now or when relative ends have moved on.
func (v *validator) overlap(a, b *Group) bool {
	for _, now := range v.instants() {
		aFrom, aUntil := a.Span(now)
		bFrom, bUntil := b.Span(now)
		if max(aFrom, bFrom) < min(aUntil, bUntil) {
			return true
		}
	}
	return false
}

func (v *validator) limits(c *Config) {
	v.unselective(c.Limits.Unselective, "limits.unselective")
	ceiling := c.Limits.Limits
	if ceiling.MetadataRange > ceiling.MaxRange {
		v.note("limits.metadata_range", "%s is above max_range, so %s is used", Duration(ceiling.MetadataRange), Duration(ceiling.MaxRange))
	}
	if Bytes(ceiling.MaxResponseBytes) > c.Memory.Budget {
		v.note("limits.max_response_bytes", "%s is above memory.budget (%s): one large answer is refused for want of memory before this limit is reached", Bytes(ceiling.MaxResponseBytes), c.Memory.Budget)
	}
	if c.Limits.ReadSlots > c.Limits.ReplicaCalls {
		v.problem("limits.read_slots", "%d is above replica_calls (%d), of which each remote read takes one; lower it, or raise limits.replica_calls", c.Limits.ReadSlots, c.Limits.ReplicaCalls)
	}
	v.shadow(c.Limits.Shadow)
	for _, id := range endpointIDs {
		over, overridden := c.Limits.Endpoints[id]
		if !overridden {
			continue
		}
		path := "limits.endpoints." + string(id)
		o, most := reflect.ValueOf(over), reflect.ValueOf(ceiling)
		for _, f := range fieldsOf(o.Type()) {
			above := f.key == "unselective" && over.Unselective == UnselectiveAllow && ceiling.Unselective == UnselectiveRefuse
			if n := o.FieldByIndex(f.index); above || n.CanInt() && n.Int() > most.FieldByIndex(f.index).Int() {
				v.note(path+"."+f.key, "the override is above limits.%s, which is the ceiling and is used; raise limits.%s as well", f.key, f.key)
			}
		}
		if v.has(path + ".unselective") {
			v.unselective(over.Unselective, path+".unselective")
		}
	}
}

func (v *validator) shadow(bounds []string) {
	for i, b := range bounds {
		path := "limits.shadow[" + strconv.Itoa(i) + "]"
		switch {
		case !slices.Contains(Shadowable, b):
			v.problem(path, "%q cannot be in shadow: it is none of %s; what keeps Spillway itself alive is always enforced",
				clip.Text(b, 40), strings.Join(Shadowable, ", "))
		case slices.Contains(bounds[:i], b):
			v.problem(path, "%s is listed twice", b)
		}
	}
}

func (v *validator) unselective(s, path string) {
	if s != UnselectiveRefuse && s != UnselectiveAllow {
		v.problem(path, "%q is neither refuse nor allow", clip.Text(s, 40))
	}
}

// maxPlans is how many plans of drop rules there can be: one for each cluster and then some.
const maxPlans = 100

func (v *validator) dropRules(d *DropRules) {
	const path = "drop_rules.plan"
	if len(d.Plan) == 0 && v.has(path) && !v.wrong[path] {
		v.problem(path, "no plan is named; name a file that `spillway relabel plan` has written, or remove drop_rules")
	}
	if len(d.Plan) > maxPlans {
		v.problem(path, "%d plans are more than are read (%d); name only those whose rules are in force", len(d.Plan), maxPlans)
	}
	seen := make(map[string]bool, len(d.Plan))
	for i, file := range d.Plan {
		p := path + "[" + strconv.Itoa(i) + "]"
		switch {
		case file == "":
			v.problem(p, "the path is empty; name a file that `spillway relabel plan` has written")
		case seen[file]:
			v.problem(p, "the plan %s is listed twice", clip.Text(file, 100))
		}
		seen[file] = true
		d.Plan[i] = commonconfig.JoinDir(v.dir, file)
	}
}

func (v *validator) usageLog(u *UsageLog) {
	const path = "usage_log"
	switch {
	case u.Path == "" && v.has(path+".path"):
		v.problem(path+".path", "the path is empty; name a file, or remove usage_log to write none")
	case u.Path == "" && (v.has(path+".max_size") || v.has(path+".max_files")):
		v.problem(path+".path", "name the file to write, such as usage.jsonl")
	case u.Path == "" && v.has(path) && !v.blank[path] && !v.wrong[path]:
		v.problem(path, "it names no file, so that nothing would be written; give it a path, such as usage.jsonl, or remove usage_log")
	}
	if u.MaxSize < 1<<10 {
		v.problem(path+".max_size", "%s is less than a line or two; write at least 1KiB", u.MaxSize)
	}
	if u.MaxFiles > 1000 {
		v.problem(path+".max_files", "%d files are more than rotation can rename in time; write at most 1000 and a larger max_size", u.MaxFiles)
	}
	u.Path = commonconfig.JoinDir(v.dir, u.Path)
}
